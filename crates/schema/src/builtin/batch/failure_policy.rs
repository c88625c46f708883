//! When a failed pod fails its Job, is tried again or doesn't count.

use serde_json::{Value, json};
use setpoint_api::{BadValue, name};

use super::super::go_value;
use crate::errors::Errors;
use crate::node::Node;

const RULES_MAX: usize = 20;
const EXIT_CODES_MAX: usize = 255;
const CONDITIONS_MAX: usize = 20;
const ACTIONS: [&str; 4] = ["Count", "FailIndex", "FailJob", "Ignore"];
const OPERATORS: [&str; 2] = ["In", "NotIn"];
const STATUSES: [&str; 3] = ["False", "True", "Unknown"];

/// The rules for the failure policy of a Job's spec.
pub(super) fn validate(spec: &Node<'_>, errs: &mut Errors) {
    let policy = spec.get("podFailurePolicy");
    let count = policy.count("rules");
    if count > RULES_MAX {
        errs.too_many(&policy.get("rules"), count, RULES_MAX);
    }
    let pod = spec.get("template").get("spec");
    let containers: Vec<&str> =
        pod.items("containers").chain(pod.items("initContainers")).map(|container| container.str("name")).collect();
    for rule in policy.items("rules") {
        validate_rule(spec, &rule, &containers, errs);
    }
}

/// The policy as a message shows it.
pub(super) fn shown(policy: &Node<'_>) -> BadValue {
    if !policy.is_set() {
        return BadValue::Json("null".into());
    }
    let rules = list(&policy.get("rules"), |rule| {
        let codes = rule.get("onExitCodes");
        let codes_text = go_value::structure([
            ("ContainerName", go_value::scalar(codes.get("containerName").value())),
            ("Operator", go_value::scalar(Some(&json!(codes.str("operator"))))),
            ("Values", go_value::scalar(codes.get("values").value())),
        ]);
        let conditions = list(&rule.get("onPodConditions"), |condition| {
            go_value::structure([
                ("Type", go_value::scalar(Some(&json!(condition.str("type"))))),
                ("Status", go_value::scalar(Some(&json!(condition.str("status"))))),
            ])
        });
        go_value::structure([
            ("Action", go_value::scalar(Some(&json!(rule.str("action"))))),
            ("OnExitCodes", if codes.is_set() { codes_text } else { "null".to_owned() }),
            ("OnPodConditions", conditions),
        ])
    });
    // An empty list is kept as an absent one, and a policy without rules is far likelier to have been written as `[]`.
    let rules = if policy.count("rules") == 0 { "[]".to_owned() } else { rules };
    BadValue::Json(go_value::structure([("Rules", rules)]))
}

/// A JSON list of what `text` makes of each item; an absent list is null.
pub(super) fn list(items: &Node<'_>, text: impl Fn(&Node<'_>) -> String) -> String {
    match items.value() {
        None => "null".to_owned(),
        Some(_) => format!("[{}]", items.clone().into_items().map(|item| text(&item)).collect::<Vec<_>>().join(",")),
    }
}

fn validate_rule(spec: &Node<'_>, rule: &Node<'_>, containers: &[&str], errs: &mut Errors) {
    let (at, action) = (rule.get("action"), rule.str("action"));
    match action {
        "" => errs.required(&at, valid_values(&ACTIONS)),
        "FailIndex" if !spec.has("backoffLimitPerIndex") => {
            errs.invalid(&at, action, "requires the backoffLimitPerIndex to be set");
        }
        known if ACTIONS.contains(&known) => {}
        other => errs.not_supported(&at, other, &ACTIONS),
    }
    let codes = rule.get("onExitCodes");
    if codes.is_set() {
        validate_exit_codes(&codes, containers, errs);
    }
    let conditions = rule.count("onPodConditions");
    if conditions > CONDITIONS_MAX {
        errs.too_many(&rule.get("onPodConditions"), conditions, CONDITIONS_MAX);
    }
    for pattern in rule.items("onPodConditions") {
        validate_condition(&pattern, errs);
    }
    match (codes.is_set(), conditions > 0) {
        (true, true) => {
            errs.invalid(rule, BadValue::Omitted, "specifying both OnExitCodes and OnPodConditions is not supported");
        }
        (false, false) => {
            errs.invalid(rule, BadValue::Omitted, "specifying one of OnExitCodes and OnPodConditions is required");
        }
        _ => {}
    }
}

fn validate_condition(pattern: &Node<'_>, errs: &mut Errors) {
    errs.invalid_each(&pattern.get("type"), pattern.str("type"), name::qualified_name(pattern.str("type")));
    match pattern.str("status") {
        "" => errs.required(&pattern.get("status"), valid_values(&STATUSES)),
        known if STATUSES.contains(&known) => {}
        other => errs.not_supported(&pattern.get("status"), other, &STATUSES),
    }
}

fn validate_exit_codes(codes: &Node<'_>, containers: &[&str], errs: &mut Errors) {
    let operator = codes.str("operator");
    match operator {
        "" => errs.required(&codes.get("operator"), valid_values(&OPERATORS)),
        known if OPERATORS.contains(&known) => {}
        other => errs.not_supported(&codes.get("operator"), other, &OPERATORS),
    }
    let container = codes.get("containerName");
    if container.is_set() && !containers.contains(&container.as_str()) {
        let detail = "must be one of the container or initContainer names in the pod template";
        errs.invalid(&container, container.as_str(), detail);
    }
    let (at, count) = (codes.get("values"), codes.count("values"));
    match count {
        0 => errs.invalid(&at, BadValue::Json(go_value::scalar(at.value())), "at least one value is required"),
        _ if count > EXIT_CODES_MAX => errs.too_many(&at, count, EXIT_CODES_MAX),
        _ => {}
    }
    let mut seen: Vec<i64> = Vec::new();
    for value in codes.items("values") {
        let code = value.as_int().unwrap_or(0);
        if operator == "In" && code == 0 {
            errs.invalid(&value, code, "must not be 0 for the In operator");
        }
        if seen.contains(&code) {
            errs.duplicate(&value, code);
        }
        seen.push(code);
    }
    if !seen.is_sorted() {
        errs.invalid(&at, BadValue::json(at.json()), "must be ordered");
    }
}

fn valid_values(values: &[&str]) -> String {
    let quoted: Vec<String> = values.iter().map(|value| Value::from(*value).to_string()).collect();
    format!("valid values: [{}]", quoted.join(" "))
}
