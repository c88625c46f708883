//! Admission policies: what validating and mutating ones share.

use serde_json::{Value, json};
use setpoint_api::name;

use super::expression::{self, Scope};
use super::rule::{FAILURE_POLICIES, default_match_resources, one_of_required, validate_match_resources};
use crate::edit::Edit;
use crate::errors::Errors;
use crate::node::Node;

pub(super) fn default_policy(object: &mut Value) {
    let spec = object.ensure("spec");
    spec.default_absent("failurePolicy", "Fail");
    default_match_resources(spec, "matchConstraints");
}

/// What comes before the rules or mutations themselves; `then` comes right after the constraints.
pub(super) fn validate_policy(
    spec: &Node<'_>,
    conditions_unchanged: bool,
    then: impl FnOnce(&Node<'_>, &mut Errors),
    errs: &mut Errors,
) -> Scope {
    one_of_required(&spec.get("failurePolicy"), FAILURE_POLICIES, errs);
    validate_param_kind(&spec.get("paramKind"), errs);
    let constraints = spec.get("matchConstraints");
    if constraints.is_set() {
        validate_match_resources(&constraints, errs);
        if constraints.count("resourceRules") == 0 {
            errs.required(&constraints.get("resourceRules"), "");
        }
        then(&constraints, errs);
    } else {
        errs.required(&constraints, "");
    }
    let mut scope = Scope::of_policy(spec);
    if !conditions_unchanged {
        expression::validate_match_conditions(&spec.get("matchConditions"), &scope, errs);
    }
    expression::validate_variables(spec, &mut scope, errs);
    scope
}

/// Whether an update leaves all that match conditions depend on as it was.
pub(super) fn conditions_unchanged(new: &Node<'_>, old: &Node<'_>) -> bool {
    let (new, old) = (new.get("spec"), old.get("spec"));
    ["paramKind", "matchConditions"].iter().all(|field| new.get(field).same(&old.get(field)))
}

pub(super) fn param_kind_cell(object: &Value, _now: i64) -> Value {
    match object.find(&["spec", "paramKind"]) {
        Some(kind) => json!(format!("{}/{}", kind.text("apiVersion"), kind.text("kind"))),
        None => json!("<unset>"),
    }
}

pub(super) fn count_cell(object: &Value, field: &str) -> Value {
    json!(object.find(&["spec", field]).and_then(Value::as_array).map_or(0, |items| items.len()))
}

fn validate_param_kind(kind: &Node<'_>, errs: &mut Errors) {
    if !kind.is_set() {
        return;
    }
    validate_api_version(&kind.get("apiVersion"), errs);
    let at = kind.get("kind");
    let complaints = name::dns1035_label(&at.as_str().to_lowercase());
    if at.is_empty() {
        errs.required(&at, "");
    } else if !complaints.is_empty() {
        errs.invalid_here(&at, format!("may have mixed case, but should otherwise match: {}", complaints.join(",")));
    }
}

fn validate_api_version(at: &Node<'_>, errs: &mut Errors) {
    let text = at.as_str();
    if text.is_empty() {
        return errs.required(at, "");
    }
    if text.matches('/').count() > 1 {
        return errs.invalid_here(at, format!("unexpected GroupVersion string: {text}"));
    }
    let (group, version) = text.split_once('/').unwrap_or(("", text));
    let complaints = name::dns1123_subdomain(group);
    if !group.is_empty() && !complaints.is_empty() {
        errs.invalid(at, group, complaints.join(","));
    }
    let complaints = name::dns1035_label(version);
    if version.is_empty() {
        errs.invalid_here(at, "version must be specified");
    } else if !complaints.is_empty() {
        errs.invalid(at, version, complaints.join(","));
    }
}
