//! When enough indexes of a Job have succeeded for the whole to be a success.

use setpoint_api::BadValue;

use super::super::go_value;
use super::super::int_or_percent::validate_non_negative;
use super::failure_policy::list;
use super::indexes;
use crate::errors::Errors;
use crate::node::Node;

const RULES_MAX: usize = 20;
const INDEXES_BYTES_MAX: usize = 64 * 1024;

/// The rules for the success policy of an indexed Job's spec.
pub(super) fn validate(spec: &Node<'_>, errs: &mut Errors) {
    let policy = spec.get("successPolicy");
    let (at, count) = (policy.get("rules"), policy.count("rules"));
    if count == 0 {
        errs.required(&at, "at least one rules must be specified when the successPolicy is specified");
    }
    if count > RULES_MAX {
        errs.too_many(&at, count, RULES_MAX);
    }
    let completions = spec.int("completions").unwrap_or(0);
    for rule in policy.items("rules") {
        validate_rule(&rule, completions, errs);
    }
}

/// The policy as a message shows it.
pub(super) fn shown(policy: &Node<'_>) -> BadValue {
    if !policy.is_set() {
        return BadValue::Json("null".into());
    }
    let rules = list(&policy.get("rules"), |rule| {
        go_value::structure([
            ("SucceededIndexes", go_value::scalar(rule.get("succeededIndexes").value())),
            ("SucceededCount", go_value::scalar(rule.get("succeededCount").value())),
        ])
    });
    BadValue::Json(go_value::structure([("Rules", rules)]))
}

fn validate_rule(rule: &Node<'_>, completions: i64, errs: &mut Errors) {
    let (indexes, at_count) = (rule.get("succeededIndexes"), rule.get("succeededCount"));
    if !indexes.is_set() && !at_count.is_set() {
        errs.required(rule, "at least one of succeededCount or succeededIndexes must be specified");
    }
    let mut total = 0;
    if indexes.is_set() {
        if indexes.as_str().len() > INDEXES_BYTES_MAX {
            errs.too_long(&indexes, INDEXES_BYTES_MAX);
        }
        match indexes::count(indexes.as_str(), completions) {
            Ok(count) => total = count,
            Err(error) => errs.invalid(&indexes, indexes.as_str(), format!("error parsing succeededIndexes: {error}")),
        }
    }
    let Some(count) = at_count.as_int() else { return };
    validate_non_negative(&at_count, errs);
    if count > completions {
        let detail = format!("must be less than or equal to {completions} (the number of specified completions)");
        errs.invalid(&at_count, count, detail);
    }
    if indexes.is_set() && count > total {
        let of_what = "the number of indexes in the specified succeededIndexes field";
        errs.invalid(&at_count, count, format!("must be less than or equal to {total} ({of_what})"));
    }
}
