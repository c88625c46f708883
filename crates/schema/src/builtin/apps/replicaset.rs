//! ReplicaSet: so many pods of one template, no more and no fewer.

use std::borrow::Cow;

use serde_json::Value;

use super::super::cells;
use super::super::int_or_percent::validate_non_negative;
use super::replicas::{validate_counts, validate_parts};
use super::workload;
use crate::behaviour::{Behaviour, Context, Generation, ScalePaths, keep};
use crate::columns::Column;
use crate::edit::Edit;
use crate::errors::Errors;
use crate::kind::Kind;
use crate::metadata;
use crate::node::Node;

const SPEC: &str = "io.k8s.api.apps.v1.ReplicaSetSpec";
const STATUS: &str = "io.k8s.api.apps.v1.ReplicaSetStatus";

const COUNTS: [&str; 6] = [
    "replicas",
    "fullyLabeledReplicas",
    "readyReplicas",
    "availableReplicas",
    "observedGeneration",
    "terminatingReplicas",
];

const COLUMNS: &[Column<'static>] = &[
    Column::NAME,
    Column::new("Desired", "integer", |object, _| cells::number(object, &["spec", "replicas"]))
        .about_field(SPEC, "replicas"),
    Column::new("Current", "integer", |object, _| cells::number(object, &["status", "replicas"]))
        .about_field(STATUS, "replicas"),
    Column::new("Ready", "integer", |object, _| cells::number(object, &["status", "readyReplicas"]))
        .about_field(STATUS, "readyReplicas"),
    Column::AGE,
    workload::CONTAINERS,
    workload::IMAGES,
    workload::SELECTOR.about_field(SPEC, "selector"),
];

/// The decisions of ReplicaSet.
#[derive(Debug)]
pub struct ReplicaSet;

impl Behaviour for ReplicaSet {
    fn default(&self, object: &mut Value) {
        let spec = object.ensure("spec");
        workload::default_template(spec);
        spec.fill("replicas", 1);
    }

    fn prepare_create(&self, object: &mut Value, _context: &Context) {
        object.remove("status");
        workload::drop_disabled_fields(object, None);
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, _context: &Context) {
        keep(new, old, &["status"]);
        workload::drop_disabled_fields(new, Some(old));
    }

    fn validate(&self, object: &Node<'_>, errs: &mut Errors) {
        validate_spec(&object.get("spec"), None, errs);
    }

    fn check_update(&self, _kind: &Kind, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        metadata::validate_update(new, old, errs);
        validate_spec(&new.get("spec"), Some(&old.get("spec").get("template")), errs);
        workload::validate_selector_stays(new, old, errs);
    }

    fn validate_status_update(&self, new: &Node<'_>, _old: &Node<'_>, errs: &mut Errors) {
        let status = new.get("status");
        validate_counts(&status, &COUNTS, errs);
        let parts = ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"];
        validate_parts(&status, &parts, "cannot be greater than readyReplicas", errs);
    }

    fn warnings(&self, new: &Node<'_>, old: Option<&Node<'_>>) -> Vec<String> {
        let about_name = if old.is_none() { workload::name_warning(new) } else { None };
        about_name.into_iter().chain(workload::template_warnings(new, old)).collect()
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

    fn scale(&self) -> Option<ScalePaths> {
        Some(workload::scale_paths())
    }
}

fn validate_spec(spec: &Node<'_>, old_template: Option<&Node<'_>>, errs: &mut Errors) {
    validate_non_negative(&spec.get("replicas"), errs);
    validate_non_negative(&spec.get("minReadySeconds"), errs);
    workload::validate_selector(spec, "deployment", errs); // sic: upstream calls it so here too
    if workload::selector_is_sound(spec, "invalid label selector", errs) {
        let template = spec.get("template");
        workload::validate_match(spec, errs);
        workload::validate_template(&template, old_template, errs);
        workload::validate_endless(&template, "ReplicaSet", errs);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::testing::create_fails;

    #[test]
    fn a_selector_that_can_not_be_understood_says_so_once_more() {
        let selector = json!({"matchExpressions": [{"key": "app", "operator": "In"}]});
        create_fails(
            "apps/v1",
            "replicasets",
            json!({"metadata": {"name": "r"}, "spec": {"selector": selector}}),
            "[spec.selector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or \
             'NotIn', spec.selector: Invalid value: {\"matchExpressions\":[{\"key\":\"app\",\"operator\":\"In\"}]}: \
             invalid label selector]",
        );
    }
}
