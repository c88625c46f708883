//! What a vehicle says is about itself: how it is, never what it was told. From its task follows which firmware it may read, and the task
//! is the controllers'.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use setpoint_api::Status;
use setpoint_schema::Edit;

use super::resource;
use crate::authorization::vehicle;
use crate::call::Call;

/// The parts of a vehicle's status that it speaks of itself; all others are the controllers'.
const OWN: [&str; 7] = ["agentVersion", "firmwareVersion", "lastSeenTime", "progress", "rxswin", "session", "slot"];

/// The conditions that it speaks of itself.
const OWN_CONDITIONS: [&str; 2] = ["Connected", "Healthy"];

const CONDITIONS: &str = "conditions";

/// Before a change.
pub(super) fn update(call: &Call<'_>, new: &Value, old: &Value) -> Result<(), Box<Status>> {
    if resource(call) != (vehicle::GROUP, "vehicles") || !vehicle::is(call.user) {
        return Ok(());
    }
    let refuse = |part: &str| {
        let why = format!("a vehicle can't write status.{part}: that is for controllers");
        Err(Box::new(Status::forbidden(&call.served.resource, call.object_name(), why)))
    };
    if let Some(part) = foreign_change(&new["status"], &old["status"]) {
        return refuse(&part);
    }
    // Who owns a field with others keeps it when they let go of it.
    let known: BTreeSet<Claim<'_>> = foreign_claims(old).collect();
    match foreign_claims(new).find(|claim| !known.contains(claim)) {
        Some(claim) => refuse(claim.part),
        None => Ok(()),
    }
}

/// A part of the status that is not the vehicle's and isn't what it was.
fn foreign_change(new: &Value, old: &Value) -> Option<String> {
    let names = |status: &Value| status.as_object().into_iter().flat_map(|parts| parts.keys()).cloned().collect();
    let mut parts: Vec<String> = names(new);
    parts.extend::<Vec<String>>(names(old));
    parts.retain(|part| !OWN.contains(&part.as_str()) && part != CONDITIONS);
    if let Some(part) = parts.into_iter().find(|part| new.get(part) != old.get(part)) {
        return Some(part);
    }
    (others(new) != others(old)).then(|| CONDITIONS.to_owned())
}

/// The conditions that are not the vehicle's. What has no type has no owner either.
fn others(status: &Value) -> BTreeMap<&str, Vec<&Value>> {
    let mut found: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for condition in status[CONDITIONS].as_array().into_iter().flatten() {
        let kind = condition.text("type");
        if !OWN_CONDITIONS.contains(&kind) {
            found.entry(kind).or_default().push(condition);
        }
    }
    found
}

/// Somebody's claim to a part of the status.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Claim<'a> {
    manager: &'a str,
    operation: &'a str,
    part: &'a str,
    /// Which of a list.
    item: &'a str,
}

/// The claims to what is not the vehicle's.
fn foreign_claims(vehicle: &Value) -> impl Iterator<Item = Claim<'_>> {
    let entries = vehicle["metadata"]["managedFields"].as_array().into_iter().flatten();
    entries.flat_map(|entry| {
        let claim =
            |part, item| Claim { manager: entry.text("manager"), operation: entry.text("operation"), part, item };
        let mut found = Vec::new();
        for (field, below) in entry["fieldsV1"]["f:status"].as_object().into_iter().flatten() {
            match field.strip_prefix("f:") {
                Some(CONDITIONS) => {
                    let keys = below.as_object().into_iter().flat_map(|keys| keys.keys());
                    let foreign = keys.filter(|key| key.starts_with("k:") && !is_own_condition(key));
                    found.extend(foreign.map(|key| claim(CONDITIONS, key.as_str())));
                }
                Some(part) if !OWN.contains(&part) => found.push(claim(part, "")),
                _ => {}
            }
        }
        found
    })
}

fn is_own_condition(key: &str) -> bool {
    OWN_CONDITIONS.iter().any(|kind| key == format!("k:{{\"type\":\"{kind}\"}}"))
}
