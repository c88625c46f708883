//! The conditions of a CertificateSigningRequest: approved, denied or failed, each for good.

use serde_json::Value;
use setpoint_api::time::format_rfc3339;

use crate::behaviour::Context;
use crate::edit::Edit;
use crate::errors::Errors;
use crate::node::Node;

/// Conditions that are only ever true.
const TERMINAL: [&str; 3] = ["Approved", "Denied", "Failed"];
/// Conditions that only `/approval` sets.
const APPROVAL: [&str; 2] = ["Approved", "Denied"];
const STATUSES: [&str; 3] = ["False", "True", "Unknown"];

/// Which conditions are overlooked because the stored object has them already.
#[derive(Debug, Default)]
pub(super) struct Leniency {
    both: bool,
    duplicates: bool,
    no_type: bool,
}

impl Leniency {
    /// What the stored object has.
    pub(super) fn of(old: &Node<'_>) -> Self {
        let kinds: Vec<&str> = types(old).collect();
        let doubled = kinds.iter().enumerate().any(|(at, kind)| kinds[..at].contains(kind));
        Self {
            both: APPROVAL.iter().all(|kind| kinds.contains(kind)),
            duplicates: doubled,
            no_type: kinds.contains(&""),
        }
    }
}

/// The rules for conditions, whoever sets them.
pub(super) fn validate(object: &Node<'_>, leniency: &Leniency, errs: &mut Errors) {
    let list = object.get("status").get("conditions");
    let mut seen: Vec<&str> = Vec::new();
    for condition in list.clone().into_items() {
        let (kind, status) = (condition.str("type"), condition.str("status"));
        if !leniency.no_type && kind.is_empty() {
            errs.required(&condition.get("type"), "");
        }
        let allowed = if TERMINAL.contains(&kind) { &STATUSES[1..2] } else { &STATUSES };
        match status {
            "" => errs.required(&condition.get("status"), ""),
            known if allowed.contains(&known) => {}
            other => errs.not_supported(&condition.get("status"), other, allowed),
        }
        let opposite = APPROVAL.contains(&kind) && seen.iter().any(|other| *other != kind && APPROVAL.contains(other));
        if !leniency.both && opposite {
            errs.invalid(&list, kind, "Approved and Denied conditions are mutually exclusive");
        }
        if !leniency.duplicates && seen.contains(&kind) {
            errs.duplicate(&condition.get("type"), kind);
        }
        seen.push(kind);
    }
}

/// That no verdict is taken back, and that only `/approval` speaks one.
pub(super) fn validate_change(new: &Node<'_>, old: &Node<'_>, may_approve: bool, errs: &mut Errors) {
    let list = new.get("status").get("conditions");
    let count = |object: &Node<'_>, kind: &str| types(object).filter(|other| *other == kind).count();
    for kind in TERMINAL.into_iter().filter(|kind| count(new, kind) < count(old, kind)) {
        errs.forbidden(&list, format!("updates may not remove a condition of type \"{kind}\""));
    }
    for kind in APPROVAL.into_iter().filter(|kind| !may_approve && count(new, kind) > count(old, kind)) {
        errs.forbidden(&list, format!("updates may not add a condition of type \"{kind}\""));
    }
}

/// Verdicts stay as they are unless their number changes, which validation refuses.
pub(super) fn keep_verdicts(new: &mut Value, old: &Value) {
    for kind in APPROVAL {
        let before: Vec<&Value> = items(old).filter(|condition| condition.text("type") == kind).collect();
        let same = items(new).filter(|condition| condition.text("type") == kind).count() == before.len();
        if !same {
            continue;
        }
        let of_kind = new.ensure("status").items_mut("conditions").filter(|condition| condition.text("type") == kind);
        of_kind.zip(before).for_each(|(condition, before)| *condition = before.clone());
    }
}

/// Times that the user left out: now, or that of the last transition if the condition was there already.
pub(super) fn fill_in_times(new: &mut Value, old: &Value, context: &Context) {
    let now = format_rfc3339(context.now);
    for condition in new.ensure("status").items_mut("conditions") {
        if !condition.has("lastUpdateTime") {
            condition.set("lastUpdateTime", now.as_str());
        }
        if !condition.has("lastTransitionTime") {
            let same = |other: &&Value| {
                let equal = |field| other.text(field) == condition.text(field);
                equal("type") && equal("status") && other.has("lastTransitionTime")
            };
            let then =
                items(old).find(same).map_or_else(|| Value::from(now.as_str()), |it| it["lastTransitionTime"].clone());
            condition.set("lastTransitionTime", then);
        }
    }
}

/// The state in words, for the table.
pub(super) fn words(object: &Value) -> String {
    let has = |kind: &str| items(object).any(|condition| condition.text("type") == kind);
    let verdict = match (has("Denied"), has("Approved")) {
        (true, _) => "Denied",
        (false, true) => "Approved",
        (false, false) => "Pending",
    };
    let failed = if has("Failed") { ",Failed" } else { "" };
    let issued = object.find(&["status", "certificate"]).is_some_and(|certificate| certificate != "");
    format!("{verdict}{failed}{}", if issued { ",Issued" } else { "" })
}

fn types<'a>(object: &Node<'a>) -> impl Iterator<Item = &'a str> + use<'a> {
    object.get("status").items("conditions").map(|condition| condition.str("type"))
}

fn items(object: &Value) -> impl Iterator<Item = &Value> {
    object.find(&["status", "conditions"]).and_then(Value::as_array).into_iter().flatten()
}
