//! Counts of pods in the status of a workload: none negative, no part larger than the whole.

use super::super::int_or_percent::validate_non_negative;
use crate::errors::Errors;
use crate::node::Node;

const OVER_REPLICAS: &str = "cannot be greater than status.replicas";

/// That none of these fields is negative.
pub(super) fn validate_counts(status: &Node<'_>, fields: &[&'static str], errs: &mut Errors) {
    for field in fields {
        validate_non_negative(&status.get(field), errs);
    }
}

/// That each of these parts is at most `replicas`, and that no more are available than ready; `over_ready` says so.
pub(super) fn validate_parts(status: &Node<'_>, parts: &[&'static str], over_ready: &str, errs: &mut Errors) {
    let number = |field| status.int(field).unwrap_or(0);
    for part in parts.iter().filter(|part| number(part) > number("replicas")) {
        errs.invalid(&status.get(part), number(part), OVER_REPLICAS);
    }
    let available = number("availableReplicas");
    if available > number("readyReplicas") {
        errs.invalid(&status.get("availableReplicas"), available, over_ready);
    }
}

/// That the count of name collisions only grows.
pub(super) fn validate_collisions(new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
    let (new, old) = (new.get("status").get("collisionCount"), old.get("status").get("collisionCount"));
    if let Some(before) = old.as_int()
        && new.as_int().is_none_or(|after| after < before)
    {
        errs.invalid(&new, new.as_int().unwrap_or(0), "cannot be decremented");
    }
}
