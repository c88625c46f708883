//! What a Job does and when it is done: the part that a CronJob carries as a template.

use serde_json::Value;

use super::super::apps::workload;
use super::super::core::pod_template;
use super::super::domain_path;
use super::super::int_or_percent::validate_non_negative;
use super::{failure_policy, success_policy};
use crate::edit::Edit;
use crate::errors::Errors;
use crate::node::Node;

const PARALLELISM_MAX: i64 = 100_000;
const FAILED_INDEXES_MAX: i64 = 100_000;
/// Above this many completions, failures of single indexes are tracked for fewer pods.
const COMPLETIONS_SOFT_MAX: i64 = 100_000;
const PARALLELISM_MAX_FOR_MANY: i64 = 10_000;
const FAILED_INDEXES_MAX_FOR_MANY: i64 = 10_000;
const MANAGED_BY_BYTES_MAX: usize = 63;
const REPLACEMENTS: [&str; 2] = ["Failed", "TerminatingOrFailed"];
const INDEXED: &str = "requires indexed completion mode";

/// Fills in what a spec has wherever it stands: the template, and patterns of conditions.
pub(super) fn default_everywhere(spec: &mut Value) {
    workload::default_template(spec);
    if let Some(policy) = spec.child("podFailurePolicy") {
        for pattern in policy.items_mut("rules").flat_map(|rule| rule.items_mut("onPodConditions")) {
            pattern.default_to("status", "True");
        }
    }
}

/// Fills in what the spec of a Job itself has.
pub(super) fn default_own(spec: &mut Value) {
    if !spec.has("completions") && !spec.has("parallelism") {
        spec.set("completions", 1);
    }
    spec.fill("parallelism", 1);
    let per_index = spec.has("backoffLimitPerIndex");
    spec.fill("backoffLimit", if per_index { i32::MAX } else { 6 });
    spec.fill("completionMode", "NonIndexed");
    spec.fill("suspend", false);
    let replacement = if spec.has("podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
    spec.fill("podReplacementPolicy", replacement);
    spec.fill("manualSelector", false);
}

/// The rules for a spec, its selector apart.
pub(super) fn validate(spec: &Node<'_>, old: Option<&Node<'_>>, errs: &mut Errors) {
    let counts = ["parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished"];
    for field in counts.into_iter().chain(["backoffLimitPerIndex", "maxFailedIndexes"]) {
        validate_non_negative(&spec.get(field), errs);
    }
    if spec.has("maxFailedIndexes") && !spec.has("backoffLimitPerIndex") {
        errs.required(&spec.get("backoffLimitPerIndex"), "when maxFailedIndexes is specified");
    }
    if spec.has("managedBy") {
        domain_path::validate(&spec.get("managedBy"), errs);
        if spec.str("managedBy").len() > MANAGED_BY_BYTES_MAX {
            errs.too_long(&spec.get("managedBy"), MANAGED_BY_BYTES_MAX);
        }
    }
    validate_mode(spec, errs);
    if spec.has("podFailurePolicy") {
        failure_policy::validate(spec, errs);
    }
    if spec.has("successPolicy") {
        let policy = spec.get("successPolicy");
        match spec.str("completionMode") {
            "Indexed" => success_policy::validate(spec, errs),
            _ => errs.invalid(&policy, success_policy::shown(&policy), INDEXED),
        }
    }
    validate_replacement(spec, errs);
    workload::validate_template(&spec.get("template"), old.map(|old| old.get("template")).as_ref(), errs);
    validate_restart(spec, errs);
}

/// What the user should know about a spec.
pub(super) fn warnings(spec: &Node<'_>, old: Option<&Node<'_>>) -> Vec<String> {
    let mut warnings = Vec::new();
    let number = |field| spec.int(field).unwrap_or(0);
    let many = number("completions") > COMPLETIONS_SOFT_MAX && number("parallelism") > PARALLELISM_MAX_FOR_MANY;
    if spec.str("completionMode") == "Indexed" && many {
        warnings.push(format!(
            "{}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, \
             Kubernetes might not be able to track completedIndexes when a big number of indexes fail",
            spec.path()
        ));
    }
    let before = old.map(|old| old.get("template"));
    warnings.extend(pod_template::pod_template_warnings(&spec.get("template"), before.as_ref()));
    warnings
}

fn validate_mode(spec: &Node<'_>, errs: &mut Errors) {
    let mode = spec.get("completionMode");
    if mode.is_set() && !matches!(mode.as_str(), "NonIndexed" | "Indexed") {
        errs.not_supported(&mode, mode.as_str(), &["NonIndexed", "Indexed"]);
    }
    if mode.as_str() == "Indexed" {
        validate_indexed(spec, errs);
    }
    if !mode.is_set() || mode.as_str() == "NonIndexed" {
        for field in ["backoffLimitPerIndex", "maxFailedIndexes"] {
            if let Some(number) = spec.int(field) {
                errs.invalid(&spec.get(field), number, INDEXED);
            }
        }
    }
}

fn validate_indexed(spec: &Node<'_>, errs: &mut Errors) {
    let (completions, parallelism, failed) =
        (spec.int("completions"), spec.int("parallelism"), spec.int("maxFailedIndexes"));
    if completions.is_none() {
        errs.required(&spec.get("completions"), "when completion mode is Indexed");
    }
    let at_most = |field, number: Option<i64>, max: i64, when: &str, errs: &mut Errors| {
        if let Some(number) = number.filter(|number| *number > max) {
            errs.invalid(&spec.get(field), number, format!("must be less than or equal to {max}{when}"));
        }
    };
    at_most("parallelism", parallelism, PARALLELISM_MAX, " when completion mode is Indexed", errs);
    if let (Some(completions), Some(failed)) = (completions, failed)
        && failed > completions
    {
        errs.invalid(&spec.get("maxFailedIndexes"), failed, "must be less than or equal to completions");
    }
    at_most("maxFailedIndexes", failed, FAILED_INDEXES_MAX, "", errs);
    if completions.is_some_and(|completions| completions > COMPLETIONS_SOFT_MAX) && spec.has("backoffLimitPerIndex") {
        if failed.is_none() {
            let detail = format!("must be specified when completions is above {COMPLETIONS_SOFT_MAX}");
            errs.required(&spec.get("maxFailedIndexes"), detail);
        }
        let when = format!(" when completions are above {COMPLETIONS_SOFT_MAX} and used with backoff limit per index");
        at_most("parallelism", parallelism, PARALLELISM_MAX_FOR_MANY, &when, errs);
        at_most("maxFailedIndexes", failed, FAILED_INDEXES_MAX_FOR_MANY, &when, errs);
    }
}

fn validate_replacement(spec: &Node<'_>, errs: &mut Errors) {
    let policy = spec.get("podReplacementPolicy");
    let supported = if spec.has("podFailurePolicy") { &REPLACEMENTS[..1] } else { &REPLACEMENTS };
    if policy.is_set() && !supported.contains(&policy.as_str()) {
        errs.not_supported(&policy, policy.as_str(), supported);
    }
}

fn validate_restart(spec: &Node<'_>, errs: &mut Errors) {
    let at = spec.get("template").get("spec").get("restartPolicy");
    match at.as_str() {
        "" | "Always" => errs.required(&at, "valid values: \"OnFailure\", \"Never\""),
        "OnFailure" if spec.has("podFailurePolicy") => {
            errs.invalid(&at, at.as_str(), "only \"Never\" is supported when podFailurePolicy is specified");
        }
        "OnFailure" | "Never" => {}
        other => errs.not_supported(&at, other, &["OnFailure", "Never"]),
    }
}

/// Removes from the template the fields of features that are switched off.
pub(super) fn drop_disabled_fields(spec: &mut Value, old: Option<&Value>) {
    if let Some(template) = spec.child("template") {
        pod_template::drop_disabled_pod_template_fields(template, old.and_then(|old| old.get("template")));
    }
}

/// An object around a spec, for the rules that want one.
#[cfg(test)]
pub(super) fn example(more: Value) -> Value {
    let pod = serde_json::json!({"containers": [{"name": "c", "image": "nginx"}], "restartPolicy": "Never"});
    let mut spec = serde_json::json!({"template": {"spec": pod}});
    for (name, value) in more.as_object().into_iter().flatten() {
        spec.set(name, value.clone());
    }
    spec
}
