//! Acting for someone else: `Impersonate-User` and its relatives, for those who may.

use std::collections::BTreeMap;

use http::HeaderMap;
use setpoint_api::{Status, quote::quote};

use super::{Asked, What};
use crate::server::Inner;
use crate::user::User;

const EXTRA: &str = "impersonate-extra-";
const AUTHENTICATION: &str = "authentication.k8s.io";

/// Whom a request is to be taken for, if its headers say so and its user may. None if they say nothing.
pub(crate) fn impersonated(server: &Inner, user: &User, headers: &HeaderMap) -> Result<Option<User>, Box<Status>> {
    if !headers.keys().any(|name| name.as_str().starts_with("impersonate-")) {
        return Ok(None);
    }
    let wanted = asked_for(headers);
    if wanted.name.is_empty() {
        if wanted == User::default() {
            return Ok(None);
        }
        let message = format!("requested {} without impersonating a user name", shown(&wanted));
        return Err(Box::new(Status::bad_request(message)));
    }
    let account = account_of(&wanted.name);
    let check = |group: &str, resource: &str, subresource: &str, namespace: &str, name: &str| {
        let what = What::Resource { group, resource, subresource, namespace, name };
        server.access.check(&server.store, user, &Asked::new("impersonate", what))
    };
    match account {
        Some((namespace, name)) => check("", "serviceaccounts", "", namespace, name)?,
        None => check("", "users", "", "", &wanted.name)?,
    }
    wanted.groups.iter().try_for_each(|group| check("", "groups", "", "", group))?;
    for (key, values) in &wanted.extra {
        values.iter().try_for_each(|value| check(AUTHENTICATION, "userextras", key, "", value))?;
    }
    if !wanted.uid.is_empty() {
        check(AUTHENTICATION, "uids", "", "", &wanted.uid)?;
    }
    let groups = match (account, wanted.groups.is_empty()) {
        (Some((namespace, _)), true) => {
            vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")]
        }
        _ => wanted.groups.clone(),
    };
    Ok(Some(User { groups, ..wanted }.settled()))
}

fn asked_for(headers: &HeaderMap) -> User {
    let texts = |name: &str| -> Vec<String> {
        let values = headers.get_all(name).iter();
        values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect()
    };
    let first = |name: &str| texts(name).into_iter().next().unwrap_or_default();
    let mut extra = BTreeMap::new();
    for name in headers.keys() {
        if let Some(key) = name.as_str().strip_prefix(EXTRA) {
            extra.insert(unescaped(key), texts(name.as_str()));
        }
    }
    User { name: first("impersonate-user"), groups: texts("impersonate-group"), uid: first("impersonate-uid"), extra }
}

/// Keys may hold letters that headers can't: as in URLs.
fn unescaped(key: &str) -> String {
    let escaped = key.replace('+', "%2B");
    form_urlencoded::parse(format!("{escaped}=").as_bytes()).next().map_or(key.to_owned(), |(key, _)| key.into_owned())
}

/// The namespace and name of a service account, from its name as a user.
fn account_of(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    (!namespace.is_empty() && !name.is_empty() && !name.contains(':')).then_some((namespace, name))
}

/// A user as Go shows it.
fn shown(user: &User) -> String {
    let list = |texts: &[String]| match texts {
        [] => "[]string(nil)".to_owned(),
        texts => format!("[]string{{{}}}", texts.iter().map(|text| quote(text)).collect::<Vec<_>>().join(", ")),
    };
    let extra = match user.extra.is_empty() {
        true => "map[string][]string(nil)".to_owned(),
        false => {
            let entries = user.extra.iter().map(|(key, values)| format!("{}:{}", quote(key), list(values)));
            format!("map[string][]string{{{}}}", entries.collect::<Vec<_>>().join(", "))
        }
    };
    let (name, uid, groups) = (quote(&user.name), quote(&user.uid), list(&user.groups));
    format!("&user.DefaultInfo{{Name:{name}, UID:{uid}, Groups:{groups}, Extra:{extra}}}")
}
