//! Acting for someone else: `Impersonate-User` and its relatives, for those who may.
//!
//! There are two ways to be allowed it. The old one is the verb `impersonate`: who has it may do as somebody else whatever they may.
//! Constrained impersonation asks for two rights: to be that somebody (`impersonate:MODE`), and to do as somebody else what the request
//! does (`impersonate-on:MODE:VERB`). Modes are tried from the narrowest to the old one; the first that lets the request through counts,
//! and if none does, the first refusal is the answer.
//!
//! Upstream remembers which mode let somebody through last and tries it first, and keeps what was allowed for ten seconds. Nothing is
//! kept here: rights are read from memory, so it would save nothing, and a right that is taken away is gone at once.

mod mode;
mod parts;

use std::collections::BTreeMap;

use http::HeaderMap;
use http::request::Parts;
use setpoint_api::{Status, percent, quote::quote};

use super::{Asked, Narrowed};
use crate::path::{ResourcePath, Target};
use crate::query::Query;
use crate::server::{Inner, decoded};
use crate::user::User;
use mode::Mode;

const EXTRA: &str = "impersonate-extra-";

/// Somebody for whom a request acts.
#[derive(Debug)]
pub(crate) struct Acting {
    pub(crate) user: User,
    /// The verb that allowed it, where it was one of constrained impersonation.
    pub(crate) constraint: Option<&'static str>,
}

/// A request to act as somebody.
struct Wish<'a> {
    server: &'a Inner,
    requestor: &'a User,
    wanted: &'a User,
    /// What is to be done as somebody else.
    asked: Asked<'a>,
}

/// Whom a request is to be taken for, if its headers say so and its user may. None if they say nothing.
pub(crate) fn impersonated(
    server: &Inner,
    user: &User,
    parts: &Parts,
    target: &Target<'_>,
) -> Result<Option<Acting>, Box<Status>> {
    if !parts.headers.keys().any(|name| name.as_str().starts_with("impersonate-")) {
        return Ok(None);
    }
    let wanted = asked_for(&parts.headers);
    if wanted.name.is_empty() {
        if wanted == User::default() {
            return Ok(None);
        }
        let message = format!("requested {} without impersonating a user name", shown(&wanted));
        return Err(Box::new(Status::bad_request(message)));
    }
    let query = Query::parse(parts.uri.query().unwrap_or(""));
    match target {
        Target::Other(_) => {
            let verb = parts.method.as_str().to_ascii_lowercase();
            let asked = Asked::of_path(&verb, parts.uri.path());
            Wish { server, requestor: user, wanted: &wanted, asked }.granted().map(Some)
        }
        Target::Resource(path) => {
            let name = path.name.map(decoded).transpose()?;
            let namespace = path.namespace.map(decoded).transpose()?;
            let path = ResourcePath { name: name.as_deref(), namespace: namespace.as_deref(), ..path.clone() };
            let narrowed = Narrowed::of(&path, &query);
            let asked = Asked::of_resource(&parts.method, &path, &query, &narrowed);
            Wish { server, requestor: user, wanted: &wanted, asked }.granted().map(Some)
        }
    }
}

impl Wish<'_> {
    /// Somebody else, by the first mode that allows it.
    fn granted(&self) -> Result<Acting, Box<Status>> {
        let mut first = None;
        for mode in Mode::ALL {
            match mode.check(self) {
                None => {}
                Some(Ok(acting)) => return Ok(acting),
                Some(Err(refused)) => first = first.or(Some(refused)),
            }
        }
        Err(first.expect("the old mode has an answer for everybody"))
    }

    fn check(&self, asked: &Asked<'_>) -> Result<(), Box<Status>> {
        self.server.access.check(&self.server.store, self.requestor, asked)
    }
}

fn asked_for(headers: &HeaderMap) -> User {
    let texts = |name: &str| -> Vec<String> {
        let values = headers.get_all(name).iter();
        values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect()
    };
    let first = |name: &str| texts(name).into_iter().next().unwrap_or_default();
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for name in headers.keys() {
        if let Some(key) = name.as_str().strip_prefix(EXTRA) {
            extra.entry(unescaped(key)).or_default().extend(texts(name.as_str()));
        }
    }
    User { name: first("impersonate-user"), groups: texts("impersonate-group"), uid: first("impersonate-uid"), extra }
}

/// Keys may hold letters that headers can't: as in URLs. One with a wrong escape stands as it is.
fn unescaped(key: &str) -> String {
    let is_escape = |rest: &str| {
        let digits = rest.as_bytes().get(..2);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    if !key.split('%').skip(1).all(is_escape) {
        return key.to_owned();
    }
    String::from_utf8_lossy(&percent::decoded(key)).into_owned()
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

#[cfg(test)]
mod tests;
