//! TokenReview: whose token this is.

use serde_json::{Value, json};
use setpoint_api::Status;
use setpoint_schema::Edit;

use super::request::{find, texts};
use super::{Claims, ISSUER, Named, Refused};
use crate::call::Call;

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
    Ok(match judge(call, token, &wanted) {
        Ok(status) => status,
        Err(Refused::Foreign) => json!({"user": {}, "error": "invalid bearer token"}),
        Err(Refused::Because(why)) => json!({"user": {}, "error": format!("[invalid bearer token, {why}]")}),
    })
}

fn judge(call: &Call<'_>, token: &str, wanted: &[String]) -> Result<Value, Refused> {
    let claims = call.server.signer.get().ok_or(Refused::Foreign)?.open(token)?;
    let audiences: Vec<&String> = claims.aud.iter().filter(|audience| wanted.contains(audience)).collect();
    if audiences.is_empty() {
        let (has, wants) = (quoted(&claims.aud), quoted(wanted));
        let why = format!("token audiences [{has}] is invalid for the target audiences [{wants}]");
        return Err(Refused::Because(why));
    }
    check_time(&claims, call.server.clock.seconds())?;
    check_objects(call, &claims)?;
    Ok(json!({"authenticated": true, "user": user(&claims), "audiences": audiences}))
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

/// The account, and what the token is bound to, are still the same.
fn check_objects(call: &Call<'_>, claims: &Claims) -> Result<(), Refused> {
    let subject = &claims.kubernetes;
    let namespace = &*subject.namespace;
    let account = &subject.serviceaccount;
    let found = find(call, "serviceaccounts", Some(namespace), &account.name)
        .map_err(|status| Refused::Because(status.message.clone()))?;
    let uid = found["metadata"].text("uid");
    if uid != account.uid {
        let why = format!("service account UID ({uid}) does not match claim ({})", account.uid);
        return Err(Refused::Because(why));
    }
    if is_gone(call, &found) {
        return Err(Refused::Because(format!("service account {namespace}/{} has been deleted", account.name)));
    }
    check_bound(call, "secrets", Some(namespace), subject.secret.as_ref())?;
    check_bound(call, "pods", Some(namespace), subject.pod.as_ref())?;
    // A pod's token says where the pod is; it is not bound to that node.
    check_bound(call, "nodes", None, subject.node.as_ref().filter(|_| subject.pod.is_none()))
}

fn check_bound(call: &Call<'_>, plural: &str, namespace: Option<&str>, bound: Option<&Named>) -> Result<(), Refused> {
    let Some(bound) = bound else { return Ok(()) };
    let invalidated = || Refused::Because("service account token has been invalidated".to_owned());
    let found = find(call, plural, namespace, &bound.name).map_err(|_| invalidated())?;
    let uid = found["metadata"].text("uid");
    if uid != bound.uid {
        let kind = plural.trim_end_matches('s');
        let why = format!("{kind} UID ({uid}) does not match service account {kind} ref claim ({})", bound.uid);
        return Err(Refused::Because(why));
    }
    if is_gone(call, &found) { Err(invalidated()) } else { Ok(()) }
}

/// Deleted for longer than clocks differ, whatever still holds the object.
fn is_gone(call: &Call<'_>, object: &Value) -> bool {
    let deleted = object["metadata"].text("deletionTimestamp");
    let limit = setpoint_api::time::format_rfc3339(call.server.clock.seconds() - LEEWAY_SECONDS);
    !deleted.is_empty() && *deleted < *limit
}

fn user(claims: &Claims) -> Value {
    let subject = &claims.kubernetes;
    let mut extra = json!({"authentication.kubernetes.io/credential-id": [format!("JTI={}", claims.jti)]});
    for (what, named) in [("node", &subject.node), ("pod", &subject.pod)] {
        let Some(named) = named else { continue };
        extra.set(&format!("authentication.kubernetes.io/{what}-name"), json!([named.name]));
        if !named.uid.is_empty() {
            extra.set(&format!("authentication.kubernetes.io/{what}-uid"), json!([named.uid]));
        }
    }
    json!({
        "username": claims.sub,
        "uid": subject.serviceaccount.uid,
        "groups": [
            "system:serviceaccounts",
            format!("system:serviceaccounts:{}", subject.namespace),
            "system:authenticated",
        ],
        "extra": extra,
    })
}
