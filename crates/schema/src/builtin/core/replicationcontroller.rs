//! ReplicationController: a number of pods of one kind, in the form that came before ReplicaSet.

use std::borrow::Cow;

use serde_json::Value;
use setpoint_api::name;

use super::pod_template::{
    default_pod_template, drop_disabled_pod_template_fields, pod_template_warnings, validate_pod_template,
    validate_pod_template_update,
};
use crate::behaviour::{Behaviour, Context, Generation, ScalePaths, keep};
use crate::builtin::cells;
use crate::columns::Column;
use crate::edit::Edit;
use crate::errors::Errors;
use crate::kind::Kind;
use crate::metadata;
use crate::name_rule::NameRule;
use crate::node::Node;
use crate::selectable::Selectable;

const SPEC: &str = "io.k8s.api.core.v1.ReplicationControllerSpec";
const STATUS: &str = "io.k8s.api.core.v1.ReplicationControllerStatus";

const COLUMNS: &[Column<'static>] = &[
    Column::NAME,
    Column::new("Desired", "integer", |object, _| cells::number(object, &["spec", "replicas"]))
        .about_field(SPEC, "replicas"),
    Column::new("Current", "integer", |object, _| cells::number(object, &["status", "replicas"]))
        .about_field(STATUS, "replicas"),
    Column::new("Ready", "integer", |object, _| cells::number(object, &["status", "readyReplicas"]))
        .about_field(STATUS, "readyReplicas"),
    Column::AGE,
    Column::new("Containers", "string", |object, _| cells::of_containers(object.find(&["spec", "template"]), "name"))
        .about("Names of each container in the template.")
        .wide(),
    Column::new("Images", "string", |object, _| cells::of_containers(object.find(&["spec", "template"]), "image"))
        .about("Images referenced by each container in the template.")
        .wide(),
    Column::new("Selector", "string", |object, _| cells::labels(object.find(&["spec", "selector"])))
        .about_field(SPEC, "selector")
        .wide(),
];

static SELECTABLE: [Selectable; 1] =
    [Selectable::new("status.replicas", |object| object["status"].number("replicas").unwrap_or(0).to_string())];

/// The decisions of ReplicationController.
#[derive(Debug)]
pub struct ReplicationController;

impl Behaviour for ReplicationController {
    fn default(&self, object: &mut Value) {
        let labels = object.find(&["spec", "template", "metadata", "labels"]).cloned();
        if let Some(labels) = labels {
            let absent = |owner: &Value, field: &str| {
                owner.get(field).and_then(Value::as_object).is_none_or(|labels| labels.is_empty())
            };
            if absent(&object["spec"], "selector") {
                object["spec"].set("selector", labels.clone());
            }
            if absent(&object["metadata"], "labels") {
                object.ensure("metadata").set("labels", labels);
            }
        }
        let spec = object.ensure("spec");
        spec.fill("replicas", 1);
        if let Some(template) = spec.child("template") {
            default_pod_template(template);
        }
    }

    /// What a status leaves without labels has those of its pods again as soon as it is read.
    fn canonicalize(&self, object: &mut Value) {
        self.default(object);
    }

    fn prepare_create(&self, object: &mut Value, _context: &Context) {
        object.remove("status");
        if let Some(template) = object.find_mut(&["spec", "template"]) {
            drop_disabled_pod_template_fields(template, None);
        }
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, _context: &Context) {
        keep(new, old, &["status"]);
        if let Some(template) = new.find_mut(&["spec", "template"]) {
            drop_disabled_pod_template_fields(template, old.find(&["spec", "template"]));
        }
    }

    fn validate(&self, object: &Node<'_>, errs: &mut Errors) {
        validate_spec(&object.get("spec"), None, errs);
    }

    fn check_update(&self, _kind: &Kind, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        metadata::validate_update(new, old, errs);
        validate_spec(&new.get("spec"), Some(&old.get("spec")), errs);
    }

    fn validate_status_update(&self, new: &Node<'_>, _old: &Node<'_>, errs: &mut Errors) {
        validate_status(&new.get("status"), errs);
    }

    fn warnings(&self, new: &Node<'_>, old: Option<&Node<'_>>) -> Vec<String> {
        let template = |object: &Node<'_>| object.get("spec").get("template").is_set();
        let Some(old) = old else {
            let complaints = name::dns1123_label(new.get("metadata").str("name"));
            let mut found = Vec::new();
            if !complaints.is_empty() {
                found.push(format!(
                    "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS \
                     label is recommended: [{}]",
                    complaints.join(" ")
                ));
            }
            if template(new) {
                found.extend(pod_template_warnings(&new.get("spec").get("template"), None));
            }
            return found;
        };
        // Upstream looks at the template from before, and so do we: the warnings are the same.
        let moved = new.get("metadata").int("generation") != old.get("metadata").int("generation");
        if moved && template(old) {
            let template = new.get("spec").get("template");
            return pod_template_warnings(&old.get("spec").get("template"), Some(&template));
        }
        Vec::new()
    }

    /// Upstream looks at the whole name only.
    fn name_rule(&self) -> NameRule {
        NameRule { prefix: |_| Vec::new(), ..NameRule::SUBDOMAIN }
    }

    fn generation(&self) -> Generation {
        Generation::On(&["spec"])
    }

    fn orphans_dependents(&self) -> bool {
        true
    }

    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        if subresource.is_empty() { &["status"] } else { &["spec"] }
    }

    fn selectable(&self) -> &[Selectable] {
        &SELECTABLE
    }

    fn columns(&self) -> Cow<'_, [Column<'_>]> {
        COLUMNS.into()
    }

    fn scale(&self) -> Option<ScalePaths> {
        let way = |way: [&str; 2]| way.map(str::to_owned).to_vec();
        Some(ScalePaths {
            spec_replicas: way(["spec", "replicas"]),
            status_replicas: way(["status", "replicas"]),
            selector: Some(way(["spec", "selector"])),
        })
    }
}

fn validate_spec(spec: &Node<'_>, old: Option<&Node<'_>>, errs: &mut Errors) {
    validate_non_negative(&spec.get("minReadySeconds"), errs);
    if spec.count("selector") == 0 {
        errs.required(&spec.get("selector"), "");
    }
    validate_non_negative(&spec.get("replicas"), errs);
    let template = spec.get("template");
    if !template.is_set() {
        return errs.required(&template, "");
    }
    let labels = template.get("metadata").get("labels");
    let matches = spec.entries("selector").all(|(key, value)| labels.json().get(key) == Some(value.json()));
    if !matches {
        errs.invalid_here(&labels, "`selector` does not match template `labels`");
    }
    match old.map(|old| old.get("template")).filter(|old| old.is_set()) {
        Some(old) => validate_pod_template_update(&template, &old, errs),
        None => validate_pod_template(&template, errs),
    }
    let policy = template.get("spec").get("restartPolicy");
    if policy.as_str() != "Always" {
        errs.not_supported(&policy, policy.as_str(), &["Always"]);
    }
    let deadline = template.get("spec").get("activeDeadlineSeconds");
    if deadline.is_set() {
        errs.forbidden(&deadline, "activeDeadlineSeconds in ReplicationController is not Supported");
    }
}

fn validate_status(status: &Node<'_>, errs: &mut Errors) {
    let count = |field: &'static str| status.int(field).unwrap_or(0);
    for field in ["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration"] {
        validate_non_negative(&status.get(field), errs);
    }
    for field in ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"] {
        if count(field) > count("replicas") {
            errs.invalid(&status.get(field), count(field), "cannot be greater than status.replicas");
        }
    }
    if count("availableReplicas") > count("readyReplicas") {
        let available = count("availableReplicas");
        errs.invalid(&status.get("availableReplicas"), available, "cannot be greater than readyReplicas");
    }
}

fn validate_non_negative(at: &Node<'_>, errs: &mut Errors) {
    if at.as_int().is_some_and(|number| number < 0) {
        errs.invalid_here(at, "must be greater than or equal to 0");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::testing::{columns, create, create_fails, selected, status_update_fails};
    use super::*;

    fn controller(template: Value) -> Value {
        json!({"metadata": {"name": "a"}, "spec": {"template": template}})
    }

    fn template() -> Value {
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
    }

    #[test]
    fn a_status_without_labels_leaves_those_of_the_template() {
        let mut object = create("v1", "replicationcontrollers", controller(template()));
        object["metadata"].remove("labels");
        ReplicationController.canonicalize(&mut object);
        assert_eq!(object["metadata"]["labels"], json!({"a": "b"}));
    }

    #[test]
    fn labels_of_the_template_are_the_selector() {
        let object = create("v1", "replicationcontrollers", controller(template()));
        assert_eq!(object["spec"]["selector"], json!({"a": "b"}));
        assert_eq!(object["metadata"]["labels"], json!({"a": "b"}));
        assert_eq!(object["spec"]["replicas"], 1);
        assert_eq!(selected("v1", "replicationcontrollers", &object, "status.replicas"), "0");
        assert_eq!(
            columns("v1", "replicationcontrollers", &object),
            json!(["a", 1, 0, 0, "<unknown>", "c", "i", "a=b"])
        );
    }

    #[test]
    fn pods_are_selected_and_run_forever() {
        let mut unlike = controller(template());
        unlike["spec"]["selector"] = json!({"x": "y"});
        let mut once = template();
        once["spec"]["restartPolicy"] = json!("Never");
        for (body, expected) in [
            (
                unlike,
                "spec.template.metadata.labels: Invalid value: {\"a\":\"b\"}: `selector` does not match template `labels`",
            ),
            (
                controller(once),
                "spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\"",
            ),
        ] {
            create_fails("v1", "replicationcontrollers", body, expected);
        }
    }

    #[test]
    fn counts_fit_together() {
        let mut new = controller(template());
        new["status"] = json!({"replicas": 1, "readyReplicas": 2});
        status_update_fails(
            "v1",
            "replicationcontrollers",
            controller(template()),
            new,
            "status.readyReplicas: Invalid value: 2: cannot be greater than status.replicas",
        );
    }
}
