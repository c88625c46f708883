//! The status of a pod in the form of the API.

use k8s_openapi::api::core::v1::{PodCondition, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::resize;

/// The conditions that a node answers for; others belong to others.
pub const OWN: [&str; 7] = [
    "PodReadyToStartContainers",
    "Initialized",
    "Ready",
    "ContainersReady",
    "PodScheduled",
    resize::IN_PROGRESS,
    resize::PENDING,
];

/// A condition of a pod.
pub struct Verdict {
    pub kind: &'static str,
    pub holds: bool,
    pub reason: Option<&'static str>,
    pub message: Option<String>,
}

impl Verdict {
    pub fn holds(kind: &'static str) -> Verdict {
        Verdict { kind, holds: true, reason: None, message: None }
    }

    pub fn fails(kind: &'static str, reason: &'static str, message: Option<String>) -> Verdict {
        Verdict { kind, holds: false, reason: Some(reason), message }
    }
}

/// Sets a condition; the time of its change moves only if its status does.
pub fn set(status: &mut PodStatus, verdict: Verdict, generation: i64, now: Timestamp) {
    let conditions = status.conditions.get_or_insert_default();
    let old = conditions.iter().find(|condition| condition.type_ == verdict.kind);
    let value = if verdict.holds { "True" } else { "False" };
    let since = old.filter(|old| old.status == value).and_then(|old| old.last_transition_time.clone());
    let condition = PodCondition {
        type_: verdict.kind.to_owned(),
        status: value.to_owned(),
        reason: verdict.reason.map(str::to_owned),
        message: verdict.message,
        last_probe_time: None,
        last_transition_time: Some(since.unwrap_or_else(|| time_of(now))),
        observed_generation: (generation > 0).then_some(generation),
    };
    match conditions.iter_mut().find(|other| other.type_ == verdict.kind) {
        Some(place) => *place = condition,
        None => conditions.push(condition),
    }
}

/// Takes a condition away.
pub fn remove(status: &mut PodStatus, kind: &str) {
    if let Some(conditions) = &mut status.conditions {
        conditions.retain(|it| it.type_ != kind);
    }
}

/// The patch that makes this status of a pod out of an older one. Conditions of others are left out: they may have changed since.
pub fn patch(uid: &str, old: &PodStatus, status: &PodStatus) -> Value {
    let mut fields = match serde_json::to_value(status) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    };
    let mut own: Vec<Value> =
        status.conditions.iter().flatten().filter(|it| OWN.contains(&&*it.type_)).map(condition).collect();
    let is_there = |kind: &str| status.conditions.iter().flatten().any(|it| it.type_ == kind);
    let gone = old.conditions.iter().flatten().filter(|it| OWN.contains(&&*it.type_) && !is_there(&it.type_));
    own.extend(gone.map(|it| json!({"type": it.type_, "$patch": "delete"})));
    fields.insert("conditions".to_owned(), own.into());
    json!({"metadata": {"uid": uid}, "status": fields})
}

/// What a condition no longer says must be taken away, since a patch keeps what it doesn't name.
fn condition(condition: &PodCondition) -> Value {
    json!({
        "type": condition.type_,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "lastProbeTime": null,
        "lastTransitionTime": condition.last_transition_time,
        "observedGeneration": condition.observed_generation,
    })
}

/// A time in the form of the API, which has whole seconds.
pub fn time_of(moment: Timestamp) -> Time {
    Time(seconds(moment))
}

/// The text of a time in the form of the API.
pub fn time(moment: Timestamp) -> Value {
    json!(time_of(moment))
}

/// A moment without its fraction of a second.
pub fn seconds(moment: Timestamp) -> Timestamp {
    Timestamp::from_second(moment.as_second()).unwrap_or(moment)
}
