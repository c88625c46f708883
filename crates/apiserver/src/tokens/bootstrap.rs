//! Tokens with which machines join that have no identity yet. Each is a Secret in `kube-system`, of a type of its own.

use std::collections::BTreeSet;

use serde_json::Value;
use setpoint_api::time::Timestamp;
use setpoint_schema::{Edit, base64};

use super::request::find;
use crate::server::Inner;
use crate::user::User;

const TYPE: &str = "bootstrap.kubernetes.io/token";
const GROUP: &str = "system:bootstrappers";
const EXTRA_GROUP: &str = "system:bootstrappers:";

/// Longest name of a group, behind its prefix.
const GROUP_BYTES_MAX: usize = 256;

/// Who joins with this token, if it is one of these and still good.
pub(super) fn holder(server: &Inner, token: &str) -> Option<User> {
    let (id, secret) = token.split_once('.')?;
    if !is_word(id, 6) || !is_word(secret, 16) {
        return None;
    }
    let object = find(server, "secrets", Some("kube-system"), &format!("bootstrap-token-{id}")).ok()?;
    let is_kept = !object["metadata"].has("deletionTimestamp") && object.text("type") == TYPE;
    let data = |name: &str| data(&object, name);
    let is_it = is_kept && is_same(data("token-secret").as_bytes(), secret.as_bytes()) && data("token-id") == id;
    let is_good = is_it && !has_expired(&object, server.clock.seconds());
    if !is_good || data("usage-bootstrap-authentication") != "true" {
        return None;
    }
    Some(User {
        name: format!("system:bootstrap:{id}"),
        groups: groups(&data("auth-extra-groups"))?,
        ..User::default()
    })
}

fn data(object: &Value, name: &str) -> String {
    let bytes = base64::decode(object["data"].text(name)).unwrap_or_default();
    String::from_utf8(bytes).unwrap_or_default()
}

/// Compares in a time that tells nothing of where they differ.
pub(super) fn is_same(one: &[u8], other: &[u8]) -> bool {
    let differences = one.iter().zip(other).fold(0, |all, (a, b)| all | (a ^ b));
    one.len() == other.len() && differences == 0
}

fn is_word(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

/// A time that can't be read has passed.
fn has_expired(object: &Value, now: i64) -> bool {
    match data(object, "expiration") {
        text if text.is_empty() => object["data"].has("expiration") && !object["data"].text("expiration").is_empty(),
        text => Timestamp::parse(&text).map_or(true, |end| end.seconds <= now),
    }
}

/// The group of all of them, and those that the token names; none if it names one that it can't give.
fn groups(extra: &str) -> Option<Vec<String>> {
    let mut groups = BTreeSet::from([GROUP.to_owned()]);
    for group in extra.split(',').filter(|_| !extra.is_empty()) {
        let rest = group.strip_prefix(EXTRA_GROUP)?;
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let ends_well = rest.bytes().last().is_some_and(fits);
        if rest.len() > GROUP_BYTES_MAX || !ends_well || !rest.bytes().all(|byte| fits(byte) || b":-".contains(&byte)) {
            return None;
        }
        groups.insert(group.to_owned());
    }
    Some(groups.into_iter().collect())
}
