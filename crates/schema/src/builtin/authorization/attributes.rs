//! What a review asks about: a resource or another URL, and who.

use serde_json::{Value, json};
use setpoint_api::{BadValue, name};

use super::super::go_value;
use crate::errors::Errors;
use crate::node::Node;

/// Metadata in the order in which Go prints it.
const METADATA: &[&str] = &[
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
];

/// Either a resource or another URL.
pub(super) fn validate_attributes(spec: &Node<'_>, errs: &mut Errors) {
    let (resource, other) = (spec.get("resourceAttributes"), spec.get("nonResourceAttributes"));
    match (resource.is_set(), other.is_set()) {
        (true, true) => {
            errs.invalid(&other, shown(&other), "cannot be specified in combination with resourceAttributes")
        }
        (false, false) => {
            let detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            errs.invalid(&resource, BadValue::Json("null".into()), detail);
        }
        _ => {}
    }
}

/// Somebody: a user, groups, or both.
pub(super) fn validate_subject(spec: &Node<'_>, errs: &mut Errors) {
    if spec.str("user").is_empty() && spec.count("groups") == 0 {
        errs.invalid(&spec.get("user"), "", "at least one of user or group must be specified");
    }
}

/// The selectors that narrow a resource down.
pub(super) fn validate_selectors(spec: &Node<'_>, errs: &mut Errors) {
    let resource = spec.get("resourceAttributes");
    for field in ["fieldSelector", "labelSelector"] {
        let selector = resource.get(field);
        if selector.is_set() {
            validate_selector(&selector, field == "labelSelector", errs);
        }
    }
}

/// A question has no metadata, but for what `allowed` names.
pub(super) fn validate_metadata(object: &Node<'_>, allowed: &[&str], detail: &str, errs: &mut Errors) {
    let metadata = object.get("metadata");
    let fields = metadata.value().and_then(Value::as_object);
    let is_free = |name: &str| name == "managedFields" || allowed.contains(&name);
    if fields.into_iter().flatten().any(|(name, value)| !is_free(name) && !value.is_null()) {
        let present = METADATA.iter().filter_map(|name| Some((*name, metadata.json().get(*name)?.clone())));
        errs.invalid(&metadata, go_value::object(present), detail);
    }
}

/// Attributes of another URL, as Go prints them.
pub(super) fn shown(other: &Node<'_>) -> BadValue {
    go_value::object([("Path", json!(other.str("path"))), ("Verb", json!(other.str("verb")))])
}

fn validate_selector(selector: &Node<'_>, of_labels: bool, errs: &mut Errors) {
    let (raw, requirements) = (selector.get("rawSelector"), selector.get("requirements"));
    match (raw.is_empty(), requirements.is_empty()) {
        (false, false) => errs.invalid_here(&raw, "may not specified at the same time as requirements"),
        (true, true) => {
            let detail = format!("when {} is specified, requirements or rawSelector is required", selector.path());
            errs.required(&requirements, detail);
        }
        _ => {}
    }
    for requirement in requirements.into_items() {
        validate_requirement(&requirement, of_labels, errs);
    }
}

/// Operators that we don't know are taken: a newer client may know them.
fn validate_requirement(requirement: &Node<'_>, of_labels: bool, errs: &mut Errors) {
    let (key, values) = (requirement.get("key"), requirement.get("values"));
    if !of_labels && key.is_empty() {
        errs.required(&key, "must be specified");
    }
    match requirement.str("operator") {
        "In" | "NotIn" if values.is_empty() => {
            errs.required(&values, "must be specified when `operator` is 'In' or 'NotIn'");
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            errs.forbidden(&values, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
        }
        _ => {}
    }
    if of_labels {
        errs.invalid_each(&key, key.as_str(), name::qualified_name(key.as_str()));
        for value in values.into_items() {
            errs.invalid_each(&value, value.as_str(), name::label_value(value.as_str()));
        }
    }
}
