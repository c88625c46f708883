//! StorageClass: a way to make volumes.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use setpoint_api::name;

use super::parameters::{validate_parameters, validate_provisioner};
use crate::behaviour::Behaviour;
use crate::builtin::core::node_label;
use crate::columns::{Column, field};
use crate::edit::Edit;
use crate::errors::Errors;
use crate::kind::Kind;
use crate::metadata;
use crate::node::Node;

/// Marks the class for claims that name none; the second is the older spelling.
const DEFAULT_CLASS: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];

const RECLAIM_POLICIES: [&str; 2] = ["Delete", "Retain"];
const BINDING_MODES: [&str; 2] = ["Immediate", "WaitForFirstConsumer"];

const STORAGE_CLASS: &str = "io.k8s.api.storage.v1.StorageClass";

const COLUMNS: &[Column<'static>] = &[
    Column::new("Name", "string", |object, _| json!(shown_name(object)))
        .format("name")
        .about_field("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta", "name"),
    Column::new("Provisioner", "string", |object, _| field(object, &["provisioner"]))
        .about_field(STORAGE_CLASS, "provisioner"),
    Column::new("ReclaimPolicy", "string", |object, _| json!(object.find(&["reclaimPolicy"]).map_or("Delete", text)))
        .about_field(STORAGE_CLASS, "reclaimPolicy"),
    Column::new("VolumeBindingMode", "string", |object, _| {
        json!(object.find(&["volumeBindingMode"]).map_or("Immediate", text))
    })
    .about_field(STORAGE_CLASS, "volumeBindingMode"),
    Column::new("AllowVolumeExpansion", "string", |object, _| json!(object.flag("allowVolumeExpansion")))
        .about_field(STORAGE_CLASS, "allowVolumeExpansion"),
    Column::AGE,
];

/// The decisions of StorageClass.
#[derive(Debug)]
pub struct StorageClass;

impl Behaviour for StorageClass {
    fn default(&self, object: &mut Value) {
        object.fill("reclaimPolicy", "Delete");
        object.fill("volumeBindingMode", "Immediate");
    }

    fn validate(&self, object: &Node<'_>, errs: &mut Errors) {
        validate_provisioner(&object.get("provisioner"), errs);
        validate_parameters(&object.get("parameters"), errs);
        let (policy, mode) = (object.str("reclaimPolicy"), object.str("volumeBindingMode"));
        if !policy.is_empty() && !RECLAIM_POLICIES.contains(&policy) {
            errs.not_supported(&object.get("reclaimPolicy"), policy, &RECLAIM_POLICIES);
        }
        if !BINDING_MODES.contains(&mode) {
            errs.not_supported(&object.get("volumeBindingMode"), mode, &BINDING_MODES);
        }
        validate_topologies(&object.get("allowedTopologies"), errs);
    }

    fn check_update(&self, kind: &Kind, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        self.check_create(kind, new, errs);
        metadata::validate_update(new, old, errs);
        for field in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
            errs.immutable(&new.get(field), &old.get(field));
        }
    }

    fn warnings(&self, new: &Node<'_>, _old: Option<&Node<'_>>) -> Vec<String> {
        let expressions = new.items("allowedTopologies").flat_map(|term| term.items("matchLabelExpressions"));
        let keys = expressions.map(|expression| expression.get("key"));
        keys.filter_map(|key| Some(format!("{}: {}", key.path(), node_label::deprecated(key.as_str())?))).collect()
    }

    fn columns(&self) -> Cow<'_, [Column<'_>]> {
        COLUMNS.into()
    }
}

/// Terms name each label once, and no term stands twice.
fn validate_topologies(topologies: &Node<'_>, errs: &mut Errors) {
    // Upstream starts with as many empty terms as there are: one that says nothing is a duplicate of each.
    let count = topologies.clone().into_items().len();
    let mut seen: Vec<BTreeMap<&str, BTreeSet<&str>>> = vec![BTreeMap::new(); count];
    for term in topologies.clone().into_items() {
        let mut labels = BTreeMap::new();
        for requirement in term.items("matchLabelExpressions") {
            let values = validate_requirement(&requirement, errs);
            if labels.contains_key(requirement.str("key")) {
                errs.duplicate(&requirement.get("key"), requirement.str("key"));
            }
            labels.insert(requirement.str("key"), values);
        }
        for _ in seen.iter().filter(|other| **other == labels) {
            errs.duplicate(&term.get("matchLabelExpressions").at(term.get("matchLabelExpressions").path()), "");
        }
        seen.push(labels);
    }
}

fn validate_requirement<'a>(requirement: &Node<'a>, errs: &mut Errors) -> BTreeSet<&'a str> {
    let mut values = BTreeSet::new();
    if requirement.count("values") == 0 {
        errs.required(&requirement.get("values"), "");
    }
    for value in requirement.items("values") {
        if !values.insert(value.as_str()) {
            errs.duplicate(&value, value.as_str());
        }
    }
    let key = requirement.get("key");
    errs.invalid_each(&key, key.as_str(), name::qualified_name(key.as_str()));
    values
}

fn shown_name(object: &Value) -> String {
    let metadata = &object["metadata"];
    let default = DEFAULT_CLASS.iter().any(|key| metadata["annotations"].text(key) == "true");
    format!("{}{}", metadata.text("name"), if default { " (default)" } else { "" })
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{columns, create, create_fails, update_fails};
    use super::*;

    const V1: &str = "storage.k8s.io/v1";

    #[test]
    fn a_class_deletes_and_binds_at_once_by_default() {
        let annotations = json!({"storageclass.kubernetes.io/is-default-class": "true"});
        let body = json!({"metadata": {"name": "a", "annotations": annotations}, "provisioner": "x/y"});
        let object = create(V1, "storageclasses", body);
        assert_eq!(
            columns(V1, "storageclasses", &object),
            json!(["a (default)", "x/y", "Delete", "Immediate", false, "<unknown>"])
        );
    }

    #[test]
    fn words_keys_and_topologies_are_checked() {
        for (field, value, expected) in [
            ("provisioner", json!(""), "provisioner: Required value"),
            (
                "reclaimPolicy",
                json!("Recycle"),
                "reclaimPolicy: Unsupported value: \"Recycle\": supported values: \"Delete\", \"Retain\"",
            ),
            ("parameters", json!({"": "x"}), "parameters: Invalid value: \"\": field can not be empty."),
            (
                "allowedTopologies",
                json!([{"matchLabelExpressions": [{"key": "a", "values": ["x", "x"]}]}]),
                "allowedTopologies[0].matchLabelExpressions[0].values[1]: Duplicate value: \"x\"",
            ),
            ("allowedTopologies", json!([{}]), "allowedTopologies[0].matchLabelExpressions: Duplicate value: \"\""),
        ] {
            let mut body = json!({"metadata": {"name": "a"}, "provisioner": "x/y"});
            body[field] = value;
            create_fails(V1, "storageclasses", body, expected);
        }
    }

    #[test]
    fn only_expansion_and_topologies_may_change() {
        update_fails(
            V1,
            "storageclasses",
            json!({"metadata": {"name": "a"}, "provisioner": "x/y"}),
            json!({"metadata": {"name": "a"}, "provisioner": "x/z", "parameters": {"a": "b"}}),
            "[parameters: Invalid value: {\"a\":\"b\"}: field is immutable, \
             provisioner: Invalid value: \"x/z\": field is immutable]",
        );
    }
}
