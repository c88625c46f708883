//! DaemonSet: one pod of a template on every node that fits.

use std::borrow::Cow;

use serde_json::{Value, json};
use setpoint_api::BadValue;
use setpoint_api::labels::ValueRules;

use super::super::int_or_percent::{amount, validate_at_most_whole, validate_non_negative, validate_positive};
use super::super::{cells, go_value, label_selector};
use super::replicas::{validate_collisions, validate_counts};
use super::workload;
use crate::behaviour::{Behaviour, Context, Generation, keep, keep_all_but};
use crate::columns::Column;
use crate::edit::Edit;
use crate::equality;
use crate::errors::Errors;
use crate::facts::type_named;
use crate::kind::Kind;
use crate::metadata;
use crate::node::Node;

/// The annotation that counts changes of the template: a field of the spec in versions before this one.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

const STRATEGIES: [&str; 2] = ["RollingUpdate", "OnDelete"];
const SPEC: &str = "io.k8s.api.apps.v1.DaemonSetSpec";
const STATUS: &str = "io.k8s.api.apps.v1.DaemonSetStatus";

const COUNTS: [&str; 9] = [
    "currentNumberScheduled",
    "numberMisscheduled",
    "desiredNumberScheduled",
    "numberReady",
    "observedGeneration",
    "updatedNumberScheduled",
    "numberAvailable",
    "numberUnavailable",
    "collisionCount",
];

const COLUMNS: &[Column<'static>] = &[
    Column::NAME,
    Column::new("Desired", "integer", |object, _| cells::number(object, &["status", "desiredNumberScheduled"]))
        .about_field(STATUS, "desiredNumberScheduled"),
    Column::new("Current", "integer", |object, _| cells::number(object, &["status", "currentNumberScheduled"]))
        .about_field(STATUS, "currentNumberScheduled"),
    Column::new("Ready", "integer", |object, _| cells::number(object, &["status", "numberReady"]))
        .about_field(STATUS, "numberReady"),
    Column::new("Up-to-date", "integer", |object, _| cells::number(object, &["status", "updatedNumberScheduled"]))
        .about_field(STATUS, "updatedNumberScheduled"),
    Column::new("Available", "integer", |object, _| cells::number(object, &["status", "numberAvailable"]))
        .about_field(STATUS, "numberAvailable"),
    Column::new("Node Selector", "string", |object, _| {
        cells::labels(object.find(&["spec", "template", "spec", "nodeSelector"]))
    })
    .about_field("io.k8s.api.core.v1.PodSpec", "nodeSelector"),
    Column::AGE,
    workload::CONTAINERS,
    workload::IMAGES,
    workload::SELECTOR.about_field(SPEC, "selector"),
];

/// The decisions of DaemonSet.
#[derive(Debug)]
pub struct DaemonSet;

impl Behaviour for DaemonSet {
    fn default(&self, object: &mut Value) {
        // In this version the count is always shown: who writes an object without it writes that there was none.
        let annotations = object.ensure("metadata").ensure("annotations");
        annotations.default_to(TEMPLATE_GENERATION, "0");
        let spec = object.ensure("spec");
        workload::default_template(spec);
        spec.fill("revisionHistoryLimit", 10);
        let strategy = spec.ensure("updateStrategy");
        strategy.default_to("type", "RollingUpdate");
        if strategy.text("type") == "RollingUpdate" {
            let rolling = strategy.ensure("rollingUpdate");
            rolling.fill("maxUnavailable", 1);
            rolling.fill("maxSurge", 0);
        } else if let Some(rolling) = strategy.child("rollingUpdate") {
            // Plain numbers in upstream's own form: absent is zero.
            rolling.fill("maxUnavailable", 0);
            rolling.fill("maxSurge", 0);
        }
    }

    fn prepare_create(&self, object: &mut Value, _context: &Context) {
        object.remove("status");
        set_template_generation(object, template_generation(object).max(1));
        workload::drop_disabled_fields(object, None);
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, _context: &Context) {
        workload::drop_disabled_fields(new, Some(old));
        keep(new, old, &["status"]);
        let template = type_named("io.k8s.api.core.v1.PodTemplateSpec");
        let same = equality::semantic(&new["spec"]["template"], &old["spec"]["template"], template);
        set_template_generation(new, template_generation(old) + i64::from(!same));
    }

    fn prepare_status_update(&self, new: &mut Value, old: &Value, _context: &Context) {
        keep_all_but(new, old, &["status", "metadata", "kind", "apiVersion"]);
        set_template_generation(new, template_generation(old));
    }

    fn validate(&self, object: &Node<'_>, errs: &mut Errors) {
        validate_spec(&object.get("spec"), None, errs);
    }

    fn check_update(&self, _kind: &Kind, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        metadata::validate_update(new, old, errs);
        workload::validate_selector_stays(new, old, errs);
        validate_spec(&new.get("spec"), Some(&old.get("spec")), errs);
    }

    fn validate_status_update(&self, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        validate_counts(&new.get("status"), &COUNTS, errs);
        validate_collisions(new, old, errs);
    }

    fn warnings(&self, new: &Node<'_>, old: Option<&Node<'_>>) -> Vec<String> {
        let same_template = |old: &Node<'_>| template_generation(old.json()) == template_generation(new.json());
        if old.is_some_and(same_template) { Vec::new() } else { workload::template_warnings(new, old) }
    }

    /// Inside upstream's server the count is a field, so tables don't show the annotation.
    fn row_metadata(&self, metadata: &mut Value) {
        if let Some(annotations) = metadata.child("annotations") {
            annotations.remove(TEMPLATE_GENERATION);
            if annotations.as_object().is_some_and(|left| left.is_empty()) {
                metadata.remove("annotations");
            }
        }
    }

    fn generation(&self) -> Generation {
        Generation::On(&["spec"])
    }

    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        if subresource == "status" { &["spec"] } else { &["status"] }
    }

    fn columns(&self) -> Cow<'_, [Column<'_>]> {
        COLUMNS.into()
    }
}

fn template_generation(object: &Value) -> i64 {
    let text = object.find(&["metadata", "annotations", TEMPLATE_GENERATION]).and_then(Value::as_str);
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn set_template_generation(object: &mut Value, generation: i64) {
    object.ensure("metadata").ensure("annotations").set(TEMPLATE_GENERATION, generation.to_string());
}

fn validate_spec(spec: &Node<'_>, old: Option<&Node<'_>>, errs: &mut Errors) {
    let selector = spec.get("selector");
    label_selector::validate(&selector, value_rules(old), errs);
    let sound = label_selector::read(&selector).is_some_and(|selector| selector.selector().is_ok());
    if sound {
        workload::validate_match(spec, errs);
    }
    if selector.is_set() && label_selector::is_empty(&selector) {
        let shown = BadValue::Json(go_value::label_selector(selector.value()));
        errs.invalid(&selector, shown, "empty selector is invalid for daemonset");
    }
    let template = spec.get("template");
    workload::validate_template(&template, old.map(|old| old.get("template")).as_ref(), errs);
    workload::validate_endless(&template, "DaemonSet", errs);
    validate_non_negative(&spec.get("minReadySeconds"), errs);
    validate_strategy(&spec.get("updateStrategy"), errs);
    validate_non_negative(&spec.get("revisionHistoryLimit"), errs);
}

/// Values of labels that were bad before the rule came may stay.
fn value_rules(old: Option<&Node<'_>>) -> ValueRules {
    let bad = |old: &Node<'_>| {
        let (mut strict, mut lenient) = (Errors::new(), Errors::new());
        label_selector::validate(&old.get("selector"), ValueRules::Strict, &mut strict);
        label_selector::validate(&old.get("selector"), ValueRules::Lenient, &mut lenient);
        strict.len() > lenient.len()
    };
    if old.is_some_and(bad) { ValueRules::Lenient } else { ValueRules::Strict }
}

fn validate_strategy(strategy: &Node<'_>, errs: &mut Errors) {
    let rolling = strategy.get("rollingUpdate");
    match strategy.str("type") {
        "OnDelete" => {}
        "RollingUpdate" if !rolling.is_set() => errs.required(&rolling, ""),
        "RollingUpdate" => validate_rolling(&rolling, errs),
        other => {
            let amount = |field| go_value::scalar(rolling.get(field).value().or(Some(&json!(0))));
            let parts = || {
                go_value::structure([("MaxUnavailable", amount("maxUnavailable")), ("MaxSurge", amount("maxSurge"))])
            };
            let shown = go_value::structure([
                ("Type", go_value::scalar(Some(&json!(other)))),
                ("RollingUpdate", if rolling.is_set() { parts() } else { "null".to_owned() }),
            ]);
            errs.not_supported(strategy, BadValue::Json(shown), &STRATEGIES);
        }
    }
}

fn validate_rolling(rolling: &Node<'_>, errs: &mut Errors) {
    let (unavailable, surge) = (rolling.get("maxUnavailable"), rolling.get("maxSurge"));
    for at in [&unavailable, &surge] {
        validate_positive(at, errs);
    }
    for at in [&unavailable, &surge] {
        validate_at_most_whole(at, errs);
    }
    match (amount(&unavailable) != 0, amount(&surge) != 0) {
        (true, true) => {
            let detail = "may not be set when maxUnavailable is non-zero";
            errs.invalid(&surge, BadValue::json(surge.json()), detail);
        }
        (false, false) => errs.required(&unavailable, "cannot be 0 when maxSurge is 0"),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{create, create_fails, update};
    use super::*;

    const API: &str = "apps/v1";

    fn set(image: &str, more: Value) -> Value {
        let template = json!({
            "metadata": {"labels": {"app": "a"}},
            "spec": {"containers": [{"name": "c", "image": image}], "restartPolicy": "Always"},
        });
        let mut spec = json!({"selector": {"matchLabels": {"app": "a"}}, "template": template});
        for (name, value) in more.as_object().unwrap() {
            spec.set(name, value.clone());
        }
        json!({"metadata": {"name": "d"}, "spec": spec})
    }

    #[test]
    fn numbers_of_a_strategy_that_is_not_used_are_zero() {
        let strategy = json!({"type": "OnDelete", "rollingUpdate": {}});
        let object = create(API, "daemonsets", set("nginx", json!({"updateStrategy": strategy})));
        let rolling = &object["spec"]["updateStrategy"]["rollingUpdate"];
        assert_eq!(rolling, &json!({"maxUnavailable": 0, "maxSurge": 0}));
    }

    #[test]
    fn changes_of_the_template_are_counted() {
        let counted = |object: &Value| object["metadata"]["annotations"][TEMPLATE_GENERATION].clone();
        let object = create(API, "daemonsets", set("nginx", json!({})));
        assert_eq!((counted(&object), &object["metadata"]["generation"]), (json!("1"), &json!(1)));
        let object = update(API, "daemonsets", set("nginx", json!({})), set("nginx:2", json!({})));
        assert_eq!((counted(&object), &object["metadata"]["generation"]), (json!("2"), &json!(2)));
        let object = update(API, "daemonsets", set("nginx", json!({})), set("nginx", json!({"minReadySeconds": 1})));
        assert_eq!((counted(&object), &object["metadata"]["generation"]), (json!("1"), &json!(2)));
    }

    #[test]
    fn either_some_are_away_or_some_are_doubled() {
        for (rolling, expected) in [
            (json!({"maxSurge": 1}), "maxSurge: Invalid value: 1: may not be set when maxUnavailable is non-zero"),
            (json!({"maxUnavailable": "0%"}), "maxUnavailable: Required value: cannot be 0 when maxSurge is 0"),
        ] {
            let body = set("nginx", json!({"updateStrategy": {"rollingUpdate": rolling}}));
            create_fails(API, "daemonsets", body, &format!("spec.updateStrategy.rollingUpdate.{expected}"));
        }
    }
}
