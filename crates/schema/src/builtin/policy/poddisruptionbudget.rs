//! PodDisruptionBudget: how many pods of a set may be away at the same time by choice.

use std::borrow::Cow;

use serde_json::{Value, json};
use setpoint_api::BadValue;
use setpoint_api::labels::ValueRules;

use super::super::int_or_percent::{validate_at_most_whole, validate_non_negative, validate_positive};
use super::super::{cells, conditions, go_value, label_selector};
use crate::behaviour::{Behaviour, Context, Generation, keep};
use crate::columns::Column;
use crate::edit::Edit;
use crate::errors::Errors;
use crate::kind::Kind;
use crate::node::Node;

/// The key by which an older version of this kind told "everything" from "nothing". Users may not mix it with their own.
const MATCH_LABEL: &str = "pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match";

const EVICTION_POLICIES: [&str; 2] = ["AlwaysAllow", "IfHealthyBudget"];
const COUNTS: [&str; 4] = ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"];

const COLUMNS: &[Column<'static>] = &[
    Column::NAME,
    Column::new("Min Available", "string", |object, _| amount(object, "minAvailable"))
        .about("The minimum number of pods that must be available."),
    Column::new("Max Unavailable", "string", |object, _| amount(object, "maxUnavailable"))
        .about("The maximum number of pods that may be unavailable."),
    Column::new("Allowed Disruptions", "integer", |object, _| cells::number(object, &["status", "disruptionsAllowed"]))
        .about("Calculated number of pods that may be disrupted at this time."),
    Column::AGE,
];

/// The decisions of PodDisruptionBudget.
#[derive(Debug)]
pub struct PodDisruptionBudget;

impl Behaviour for PodDisruptionBudget {
    fn default(&self, object: &mut Value) {
        let Some(selector) = object.find_mut(&["spec", "selector"]) else { return };
        let none = json!({"matchExpressions": [{"key": MATCH_LABEL, "operator": "Exists"}]});
        if *selector != none
            && let Some(expressions) = selector.child("matchExpressions").and_then(Value::as_array_mut)
        {
            expressions.retain(|expression| expression.text("key") != MATCH_LABEL);
        }
    }

    fn prepare_create(&self, object: &mut Value, _context: &Context) {
        object.remove("status");
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, _context: &Context) {
        keep(new, old, &["status"]);
    }

    /// Metadata has the generic rules only, so that a name may be anything that fits into a URL.
    fn check_create(&self, _kind: &Kind, object: &Node<'_>, errs: &mut Errors) {
        validate_spec(&object.get("spec"), ValueRules::Strict, errs);
    }

    fn check_update(&self, _kind: &Kind, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        let mut before = Errors::new();
        label_selector::validate(&old.get("spec").get("selector"), ValueRules::Strict, &mut before);
        let values = if before.is_empty() { ValueRules::Strict } else { ValueRules::Lenient };
        validate_spec(&new.get("spec"), values, errs);
    }

    fn check_status_update(&self, _kind: &Kind, new: &Node<'_>, _old: &Node<'_>, errs: &mut Errors) {
        let status = new.get("status");
        conditions::validate(&status.get("conditions"), errs);
        for field in COUNTS {
            validate_non_negative(&status.get(field), errs);
        }
    }

    fn generation(&self) -> Generation {
        Generation::On(&["spec"])
    }

    fn allow_unconditional_update(&self) -> bool {
        false
    }

    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        if subresource == "status" { &["spec"] } else { &["status"] }
    }

    fn columns(&self) -> Cow<'_, [Column<'_>]> {
        COLUMNS.into()
    }
}

fn validate_spec(spec: &Node<'_>, values: ValueRules, errs: &mut Errors) {
    let (min, max) = (spec.get("minAvailable"), spec.get("maxUnavailable"));
    if min.is_set() && max.is_set() {
        errs.invalid(spec, shown(spec), "minAvailable and maxUnavailable cannot be both set");
    }
    for at in [&min, &max].into_iter().filter(|at| at.is_set()) {
        validate_positive(at, errs);
        validate_at_most_whole(at, errs);
    }
    label_selector::validate(&spec.get("selector"), values, errs);
    let policy = spec.get("unhealthyPodEvictionPolicy");
    if policy.is_set() && !EVICTION_POLICIES.contains(&policy.as_str()) {
        errs.not_supported(&policy, policy.as_str(), &EVICTION_POLICIES);
    }
}

fn shown(spec: &Node<'_>) -> BadValue {
    let scalar = |field| go_value::scalar(spec.get(field).value());
    BadValue::Json(go_value::structure([
        ("MinAvailable", scalar("minAvailable")),
        ("Selector", go_value::label_selector(spec.get("selector").value())),
        ("MaxUnavailable", scalar("maxUnavailable")),
        ("UnhealthyPodEvictionPolicy", scalar("unhealthyPodEvictionPolicy")),
    ]))
}

fn amount(object: &Value, field: &str) -> Value {
    match object.find(&["spec", field]) {
        Some(Value::String(text)) => json!(text),
        Some(other) => json!(other.to_string()),
        None => json!("N/A"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{columns, create, create_fails, status_update_fails};
    use super::*;

    const API: &str = "policy/v1";

    fn budget(spec: Value) -> Value {
        json!({"metadata": {"name": "b"}, "spec": spec})
    }

    #[test]
    fn a_budget_counts_from_one_side() {
        create_fails(
            API,
            "poddisruptionbudgets",
            budget(json!({"minAvailable": 1, "maxUnavailable": "10%", "selector": {"matchLabels": {"a": "b"}}})),
            "spec: Invalid value: {\"MinAvailable\":1,\"Selector\":{\"matchLabels\":{\"a\":\"b\"}},\
             \"MaxUnavailable\":\"10%\",\"UnhealthyPodEvictionPolicy\":null}: \
             minAvailable and maxUnavailable cannot be both set",
        );
    }

    #[test]
    fn amounts_are_numbers_or_shares_of_the_whole() {
        for (amount, expected) in [
            (json!(-1), "Invalid value: -1: must be greater than or equal to 0"),
            (json!("101%"), "Invalid value: \"101%\": must not be greater than 100%"),
        ] {
            let expected = format!("spec.minAvailable: {expected}");
            create_fails(API, "poddisruptionbudgets", budget(json!({"minAvailable": amount})), &expected);
        }
        let object = create(API, "poddisruptionbudgets", budget(json!({"minAvailable": 2})));
        assert_eq!(columns(API, "poddisruptionbudgets", &object), json!(["b", "2", "N/A", 0, "<unknown>"]));
    }

    #[test]
    fn the_label_of_the_older_version_stands_alone_or_not_at_all() {
        let own = json!({"key": "a", "operator": "Exists"});
        let theirs = json!({"key": MATCH_LABEL, "operator": "Exists"});
        let mixed =
            create(API, "poddisruptionbudgets", budget(json!({"selector": {"matchExpressions": [own, theirs]}})));
        assert_eq!(mixed["spec"]["selector"], json!({"matchExpressions": [own]}));
        let alone = create(API, "poddisruptionbudgets", budget(json!({"selector": {"matchExpressions": [theirs]}})));
        assert_eq!(alone["spec"]["selector"], json!({"matchExpressions": [theirs]}));
    }

    #[test]
    fn counts_are_not_negative() {
        let mut new = budget(json!({}));
        new["status"] = json!({"currentHealthy": -1, "desiredHealthy": 0, "expectedPods": 0, "disruptionsAllowed": 0});
        status_update_fails(
            API,
            "poddisruptionbudgets",
            budget(json!({})),
            new,
            "status.currentHealthy: Invalid value: -1: must be greater than or equal to 0",
        );
    }
}
