//! Deployment: pods that are replaced step by step when their template changes.

use std::borrow::Cow;

use serde_json::{Value, json};
use setpoint_api::BadValue;

use super::super::int_or_percent::{amount, validate_at_most_whole, validate_non_negative, validate_positive};
use super::super::{cells, go_value};
use super::replicas::{validate_collisions, validate_counts, validate_parts};
use super::workload;
use crate::behaviour::{Behaviour, Context, Generation, ScalePaths, keep, keep_all_but};
use crate::columns::Column;
use crate::edit::Edit;
use crate::errors::Errors;
use crate::kind::Kind;
use crate::metadata;
use crate::node::Node;

/// The annotation that asks for an older revision: a field of the spec in versions before this one.
const ROLLBACK: &str = "deprecated.deployment.rollback.to";

const STRATEGIES: [&str; 2] = ["Recreate", "RollingUpdate"];
const SPEC: &str = "io.k8s.api.apps.v1.DeploymentSpec";
const STATUS: &str = "io.k8s.api.apps.v1.DeploymentStatus";

const COUNTS: [&str; 8] = [
    "observedGeneration",
    "replicas",
    "updatedReplicas",
    "readyReplicas",
    "availableReplicas",
    "unavailableReplicas",
    "terminatingReplicas",
    "collisionCount",
];

const COLUMNS: &[Column<'static>] = &[
    Column::NAME,
    Column::new("Ready", "string", |object, _| workload::share(object, "readyReplicas"))
        .about("Number of the pod with ready state"),
    Column::new("Up-to-date", "string", |object, _| cells::number(object, &["status", "updatedReplicas"]))
        .about_field(STATUS, "updatedReplicas"),
    Column::new("Available", "string", |object, _| cells::number(object, &["status", "availableReplicas"]))
        .about_field(STATUS, "availableReplicas"),
    Column::AGE,
    workload::CONTAINERS,
    workload::IMAGES,
    workload::SELECTOR.about_field(SPEC, "selector"),
];

/// The decisions of Deployment.
#[derive(Debug)]
pub struct Deployment;

impl Behaviour for Deployment {
    fn default(&self, object: &mut Value) {
        let spec = object.ensure("spec");
        workload::default_template(spec);
        spec.fill("replicas", 1);
        spec.fill("revisionHistoryLimit", 10);
        spec.fill("progressDeadlineSeconds", 600);
        let strategy = spec.ensure("strategy");
        strategy.default_to("type", "RollingUpdate");
        if strategy.text("type") == "RollingUpdate" {
            let rolling = strategy.ensure("rollingUpdate");
            rolling.fill("maxUnavailable", "25%");
            rolling.fill("maxSurge", "25%");
        }
    }

    fn prepare_create(&self, object: &mut Value, _context: &Context) {
        object.remove("status");
        workload::drop_disabled_fields(object, None);
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, _context: &Context) {
        keep(new, old, &["status"]);
        workload::drop_disabled_fields(new, Some(old));
        move_generation_with_annotations(new, old);
    }

    fn prepare_status_update(&self, new: &mut Value, old: &Value, _context: &Context) {
        keep_all_but(new, old, &["status", "metadata", "kind", "apiVersion"]);
        let labels = old.find(&["metadata", "labels"]).cloned();
        new.ensure("metadata").set_or_remove("labels", labels);
    }

    fn validate(&self, object: &Node<'_>, errs: &mut Errors) {
        validate_spec(object, None, errs);
    }

    fn check_update(&self, _kind: &Kind, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        metadata::validate_update(new, old, errs);
        validate_spec(new, Some(old), errs);
        workload::validate_selector_stays(new, old, errs);
    }

    fn validate_status_update(&self, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        let status = new.get("status");
        validate_counts(&status, &COUNTS, errs);
        let parts = ["updatedReplicas", "readyReplicas", "availableReplicas"];
        validate_parts(&status, &parts, "cannot be greater than readyReplicas", errs);
        validate_collisions(new, old, errs);
    }

    fn warnings(&self, new: &Node<'_>, old: Option<&Node<'_>>) -> Vec<String> {
        let about_name = if old.is_none() { workload::name_warning(new) } else { None };
        about_name.into_iter().chain(workload::template_warnings(new, old)).collect()
    }

    fn generation(&self) -> Generation {
        Generation::On(&["spec"])
    }

    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        if subresource == "status" { &["spec", "metadata.labels"] } else { &["status"] }
    }

    fn columns(&self) -> Cow<'_, [Column<'_>]> {
        COLUMNS.into()
    }

    fn scale(&self) -> Option<ScalePaths> {
        Some(workload::scale_paths())
    }
}

/// Annotations count as much as the spec: they are copied to the ReplicaSets.
fn move_generation_with_annotations(new: &mut Value, old: &Value) {
    let annotations = |object: &Value| object.find(&["metadata", "annotations"]).cloned().unwrap_or_else(|| json!({}));
    if annotations(new) != annotations(old) {
        let before = old.find(&["metadata", "generation"]).and_then(Value::as_i64).unwrap_or(0);
        new.ensure("metadata").set("generation", before + 1);
    }
}

fn validate_spec(object: &Node<'_>, old: Option<&Node<'_>>, errs: &mut Errors) {
    let spec = object.get("spec");
    validate_non_negative(&spec.get("replicas"), errs);
    workload::validate_selector(&spec, "deployment", errs);
    if workload::selector_is_sound(&spec, "invalid label selector", errs) {
        let template = spec.get("template");
        workload::validate_match(&spec, errs);
        workload::validate_template(&template, old.map(|old| old.get("spec").get("template")).as_ref(), errs);
        workload::validate_endless(&template, "ReplicaSet", errs);
    }
    validate_strategy(&spec.get("strategy"), errs);
    for field in ["minReadySeconds", "revisionHistoryLimit"] {
        validate_non_negative(&spec.get(field), errs);
    }
    let revision = object.get("metadata").get("annotations").entry(ROLLBACK).as_str().parse().unwrap_or(0i64);
    if revision < 0 {
        errs.invalid(&spec.at("spec.rollback.version"), revision, "must be greater than or equal to 0");
    }
    let deadline = spec.get("progressDeadlineSeconds");
    validate_non_negative(&deadline, errs);
    if let Some(seconds) = deadline.as_int().filter(|seconds| *seconds <= spec.int("minReadySeconds").unwrap_or(0)) {
        errs.invalid(&deadline, seconds, "must be greater than minReadySeconds");
    }
}

fn validate_strategy(strategy: &Node<'_>, errs: &mut Errors) {
    let rolling = strategy.get("rollingUpdate");
    match strategy.str("type") {
        "Recreate" if rolling.is_set() => {
            errs.forbidden(&rolling, "may not be specified when strategy `type` is 'Recreate'");
        }
        "Recreate" => {}
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
    validate_positive(&unavailable, errs);
    validate_positive(&surge, errs);
    if amount(&unavailable) == 0 && amount(&surge) == 0 {
        errs.invalid(&unavailable, BadValue::json(unavailable.json()), "may not be 0 when `maxSurge` is 0");
    }
    validate_at_most_whole(&unavailable, errs);
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{
        columns, create, create_fails, status_update_fails, update, update_fails, warnings,
    };
    use super::*;

    const API: &str = "apps/v1";

    fn deployment(name: &str, more: Value) -> Value {
        let template = json!({
            "metadata": {"labels": {"app": "a"}},
            "spec": {"containers": [{"name": "c", "image": "nginx"}], "restartPolicy": "Always"},
        });
        let mut spec = json!({"selector": {"matchLabels": {"app": "a"}}, "template": template});
        for (name, value) in more.as_object().unwrap() {
            spec.set(name, value.clone());
        }
        json!({"metadata": {"name": name}, "spec": spec})
    }

    #[test]
    fn a_deployment_rolls_unless_said() {
        let object = create(API, "deployments", deployment("d", json!({})));
        assert_eq!(object["spec"]["replicas"], 1);
        assert_eq!(
            object["spec"]["strategy"],
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}})
        );
        let row = json!(["d", "0/1", 0, 0, "<unknown>", "c", "nginx", "app=a"]);
        assert_eq!(columns(API, "deployments", &object), row);
    }

    #[test]
    fn strategies_are_consistent() {
        for (strategy, expected) in [
            (
                json!({"type": "BlueGreen"}),
                "spec.strategy: Unsupported value: {\"Type\":\"BlueGreen\",\"RollingUpdate\":null}: supported values: \
                 \"Recreate\", \"RollingUpdate\"",
            ),
            (
                json!({"type": "Recreate", "rollingUpdate": {}}),
                "spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'",
            ),
            (
                json!({"rollingUpdate": {"maxUnavailable": 0, "maxSurge": "0%"}}),
                "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0",
            ),
        ] {
            create_fails(API, "deployments", deployment("d", json!({"strategy": strategy})), expected);
        }
    }

    #[test]
    fn the_selector_finds_the_template_and_stays() {
        create_fails(
            API,
            "deployments",
            deployment("d", json!({"selector": {"matchLabels": {"app": "b"}}})),
            "spec.template.metadata.labels: Invalid value: {\"app\":\"a\"}: `selector` does not match template `labels`",
        );
        let expression =
            json!({"matchExpressions": [{"key": "app", "operator": "Exists"}], "matchLabels": {"app": "a"}});
        update_fails(
            API,
            "deployments",
            deployment("d", json!({})),
            deployment("d", json!({"selector": expression})),
            "spec.selector: Invalid value: {\"matchLabels\":{\"app\":\"a\"},\"matchExpressions\":[{\"key\":\"app\",\
             \"operator\":\"Exists\"}]}: field is immutable",
        );
    }

    #[test]
    fn annotations_move_the_generation_too() {
        let mut new = deployment("d", json!({}));
        new["metadata"]["labels"] = json!({"a": "b"});
        assert_eq!(update(API, "deployments", deployment("d", json!({})), new.clone())["metadata"]["generation"], 1);
        new["metadata"]["annotations"] = json!({"a": "b"});
        assert_eq!(update(API, "deployments", deployment("d", json!({})), new)["metadata"]["generation"], 2);
    }

    #[test]
    fn a_name_with_dots_is_warned_about() {
        let found = warnings(API, "deployments", deployment("a.b", json!({})));
        assert_eq!(found.len(), 1);
        assert!(found[0].ends_with("a DNS label is recommended: [must not contain dots]"), "{found:?}");
    }

    #[test]
    fn parts_of_the_status_fit_the_whole() {
        let mut new = deployment("d", json!({}));
        new["status"] = json!({"replicas": 1, "updatedReplicas": 2});
        status_update_fails(
            API,
            "deployments",
            deployment("d", json!({})),
            new,
            "status.updatedReplicas: Invalid value: 2: cannot be greater than status.replicas",
        );
    }
}
