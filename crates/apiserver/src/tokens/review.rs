//! TokenReview: whose token this is.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};
use setpoint_api::{GroupResource, Revision, Status};
use setpoint_schema::Edit;

use super::request::texts;
use super::verified::{Bound, Opened};
use super::{Claims, ISSUER, Named, Refused, Said, Subject, bootstrap};
use crate::call::Call;
use crate::objects;
use crate::server::Inner;
use crate::user::User;

/// How far clocks may be apart.
const LEEWAY_SECONDS: i64 = 60;

/// The status of a TokenReview.
pub(crate) fn review(call: &Call<'_>, object: &Value) -> Result<Value, Box<Status>> {
    let token = object["spec"].text("token");
    if token.is_empty() {
        return Err(Box::new(Status::bad_request("token is required for TokenReview in authentication")));
    }
    let mut wanted = texts(&object["spec"]["audiences"]);
    if wanted.is_empty() {
        wanted.push(ISSUER.to_owned());
    }
    let joins = || bootstrap::holder(call.server, token).filter(|_| wanted.iter().any(|audience| audience == ISSUER));
    let judged = judge(call.server, token, &wanted);
    if let (Err(_), Some(user)) = (&judged, joins()) {
        return Ok(accepted(user.settled(), &[ISSUER.to_owned()]));
    }
    Ok(match judged {
        Ok((opened, audiences)) => accepted(user(&opened.said), &audiences),
        Err(Refused::Foreign) => json!({"user": {}, "error": "invalid bearer token"}),
        Err(Refused::Because(why)) => json!({"user": {}, "error": format!("[invalid bearer token, {why}]")}),
    })
}

fn accepted(user: User, audiences: &[String]) -> Value {
    let mut info = json!({});
    info.set("username", user.name);
    info.set_or_remove("uid", Some(Value::from(user.uid)).filter(|uid| uid != ""));
    info.set("groups", json!(user.groups));
    info.set_or_remove("extra", Some(json!(user.extra)).filter(|extra| *extra != json!({})));
    json!({"authenticated": true, "user": info, "audiences": audiences})
}

/// The claims of a good token, and for which of the audiences it is.
fn judge(server: &Inner, token: &str, wanted: &[String]) -> Result<(Arc<Opened>, Vec<String>), Refused> {
    let opened = server.signer.get().ok_or(Refused::Foreign)?.open(token)?;
    let has = opened.said.audiences();
    let audiences: Vec<String> = has.iter().filter(|audience| wanted.contains(audience)).cloned().collect();
    if audiences.is_empty() {
        let (has, wants) = (quoted(&has), quoted(wanted));
        let why = format!("token audiences [{has}] is invalid for the target audiences [{wants}]");
        return Err(Refused::Because(why));
    }
    match &opened.said {
        Said::Bound(claims) => {
            check_time(claims, server.clock.seconds())?;
            check_objects(server, &opened, &claims.kubernetes)?;
        }
        Said::Legacy(claims) => claims.check(server, token)?,
    }
    Ok((opened, audiences))
}

/// Whose token this is, if it is a good one for this server.
pub(crate) fn holder(server: &Inner, token: &str) -> Option<Arc<User>> {
    match judge(server, token, &[ISSUER.to_owned()]) {
        Ok((opened, _)) => Some(Arc::clone(opened.user.get_or_init(|| Arc::new(user(&opened.said))))),
        Err(_) => bootstrap::holder(server, token).map(|user| Arc::new(user.settled())),
    }
}

fn quoted(texts: &[String]) -> String {
    texts.iter().map(|text| format!("{text:?}")).collect::<Vec<_>>().join(" ")
}

fn check_time(claims: &Claims, now: i64) -> Result<(), Refused> {
    let why = if now > claims.exp.saturating_add(LEEWAY_SECONDS) {
        "service account token has expired"
    } else if now < claims.nbf.saturating_sub(LEEWAY_SECONDS) {
        "service account token is not valid yet"
    } else if now < claims.iat.saturating_sub(LEEWAY_SECONDS) {
        "service account token is issued in the future"
    } else {
        return Ok(());
    };
    Err(Refused::Because(why.to_owned()))
}

/// What tokens are bound to, in the order of [`Bound`].
static RESOURCES: LazyLock<[GroupResource; 4]> =
    LazyLock::new(|| ["serviceaccounts", "secrets", "pods", "nodes"].map(|plural| GroupResource::new("", plural)));

/// The account, and what the token is bound to, are still the same.
fn check_objects(server: &Inner, opened: &Opened, subject: &Subject) -> Result<(), Refused> {
    let namespace = Some(&*subject.namespace);
    check_account(server, opened, subject)?;
    check_bound(server, opened, Bound::Secret, namespace, subject.secret.as_ref())?;
    check_bound(server, opened, Bound::Pod, namespace, subject.pod.as_ref())?;
    // A pod's token says where the pod is; it is not bound to that node.
    check_bound(server, opened, Bound::Node, None, subject.node.as_ref().filter(|_| subject.pod.is_none()))
}

fn check_account(server: &Inner, opened: &Opened, subject: &Subject) -> Result<(), Refused> {
    let (namespace, account) = (&*subject.namespace, &subject.serviceaccount);
    let missing = |resource: &GroupResource| Refused::Because(Status::not_found(resource, &account.name).message);
    let Some(found) = look(server, opened, Bound::Account, Some(namespace), &account.name).map_err(missing)? else {
        return Ok(());
    };
    let uid = found.object["metadata"].text("uid");
    if uid != account.uid {
        let why = format!("service account UID ({uid}) does not match claim ({})", account.uid);
        return Err(Refused::Because(why));
    }
    if is_gone(server, &found.object) {
        return Err(Refused::Because(format!("service account {namespace}/{} has been deleted", account.name)));
    }
    remember(opened, Bound::Account, &found);
    Ok(())
}

fn check_bound(
    server: &Inner,
    opened: &Opened,
    what: Bound,
    namespace: Option<&str>,
    bound: Option<&Named>,
) -> Result<(), Refused> {
    let Some(bound) = bound else { return Ok(()) };
    let invalidated = || Refused::Because("service account token has been invalidated".to_owned());
    let found = look(server, opened, what, namespace, &bound.name).map_err(|_| invalidated())?;
    let Some(found) = found else { return Ok(()) };
    let uid = found.object["metadata"].text("uid");
    if uid != bound.uid {
        let kind = RESOURCES[what as usize].resource.trim_end_matches('s');
        let why = format!("{kind} UID ({uid}) does not match service account {kind} ref claim ({})", bound.uid);
        return Err(Refused::Because(why));
    }
    if is_gone(server, &found.object) {
        return Err(invalidated());
    }
    remember(opened, what, &found);
    Ok(())
}

/// The object that a token is bound to, as it is now; nothing if it is as it was when it was found to be right.
fn look(
    server: &Inner,
    opened: &Opened,
    bound: Bound,
    namespace: Option<&str>,
    name: &str,
) -> Result<Option<Looked>, &'static GroupResource> {
    let resource = &RESOURCES[bound as usize];
    let found = server.store.snapshot().get(resource, namespace, name).ok_or(resource)?;
    let revision = found.revision();
    Ok((!opened.has_seen(bound, revision)).then(|| Looked { object: objects::value(&found), revision }))
}

/// One that is not being deleted stays right until it changes.
fn remember(opened: &Opened, bound: Bound, looked: &Looked) {
    if !looked.object["metadata"].has("deletionTimestamp") {
        opened.saw(bound, looked.revision);
    }
}

/// A version of an object.
struct Looked {
    object: Value,
    revision: Revision,
}

/// Deleted for longer than clocks differ, whatever still holds the object.
fn is_gone(server: &Inner, object: &Value) -> bool {
    let deleted = object["metadata"].text("deletionTimestamp");
    let limit = setpoint_api::time::format_rfc3339(server.clock.seconds() - LEEWAY_SECONDS);
    !deleted.is_empty() && *deleted < *limit
}

fn user(said: &Said) -> User {
    match said {
        Said::Bound(claims) => holder_of(claims),
        Said::Legacy(claims) => claims.user(),
    }
}

fn holder_of(claims: &Claims) -> User {
    let subject = &claims.kubernetes;
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut tell = |what: &str, value: String| {
        extra.insert(format!("authentication.kubernetes.io/{what}"), vec![value]);
    };
    tell("credential-id", format!("JTI={}", claims.jti));
    for (what, named) in [("node", &subject.node), ("pod", &subject.pod)] {
        let Some(named) = named else { continue };
        tell(&format!("{what}-name"), named.name.clone());
        if !named.uid.is_empty() {
            tell(&format!("{what}-uid"), named.uid.clone());
        }
    }
    let groups = [
        "system:serviceaccounts".to_owned(),
        format!("system:serviceaccounts:{}", subject.namespace),
        "system:authenticated".to_owned(),
    ];
    User { name: claims.sub.clone(), groups: groups.into(), uid: subject.serviceaccount.uid.clone(), extra }
}
