//! Conditions in the status of objects: `metav1.Condition`, checked in place.

use setpoint_api::name;

use crate::errors::Errors;
use crate::node::Node;

const STATUSES: [&str; 3] = ["False", "True", "Unknown"];
/// Longest reason, as Kubernetes bounds it.
const REASON_BYTES_MAX: usize = 1024;
/// Longest message, as Kubernetes bounds it.
const MESSAGE_BYTES_MAX: usize = 32 * 1024;

/// What is wrong with the list of conditions at this place.
pub fn validate(conditions: &Node<'_>, errs: &mut Errors) {
    let mut seen: Vec<&str> = Vec::new();
    for condition in conditions.clone().into_items() {
        let kind = condition.str("type");
        if seen.contains(&kind) {
            errs.duplicate(&condition.get("type"), kind);
        }
        seen.push(kind);
        validate_one(&condition, errs);
    }
}

fn validate_one(condition: &Node<'_>, errs: &mut Errors) {
    errs.invalid_each(&condition.get("type"), condition.str("type"), name::qualified_name(condition.str("type")));
    if !STATUSES.contains(&condition.str("status")) {
        errs.not_supported(&condition.get("status"), condition.str("status"), &STATUSES);
    }
    if condition.int("observedGeneration").unwrap_or(0) < 0 {
        errs.invalid_here(&condition.get("observedGeneration"), "must be greater than or equal to zero");
    }
    if !condition.has("lastTransitionTime") {
        errs.required(&condition.get("lastTransitionTime"), "");
    }
    let reason = condition.str("reason");
    if reason.is_empty() {
        errs.required(&condition.get("reason"), "");
    } else {
        errs.invalid_each(&condition.get("reason"), reason, name::condition_reason(reason));
        if reason.len() > REASON_BYTES_MAX {
            errs.too_long(&condition.get("reason"), REASON_BYTES_MAX);
        }
    }
    if condition.str("message").len() > MESSAGE_BYTES_MAX {
        errs.too_long(&condition.get("message"), MESSAGE_BYTES_MAX);
    }
}
