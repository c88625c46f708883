//! Bindings of policies: what validating and mutating ones share.

use serde_json::{Value, json};
use setpoint_api::labels::{LabelSelector, ValueRules};
use setpoint_api::name;

use super::super::label_selector;
use super::rule::default_match_resources;
use crate::columns::Column;
use crate::edit::Edit;
use crate::errors::Errors;
use crate::node::Node;

pub(super) const COLUMNS: &[Column<'static>] = &[
    Column::NAME,
    Column::new("PolicyName", "string", |object, _| json!(object["spec"].text("policyName")))
        .about("PolicyName indicates the policy definition which the policy binding binded to"),
    Column::new("ParamRef", "string", param_cell)
        .about("ParamRef indicates the param resource which sets the configuration param"),
    Column::AGE,
];

pub(super) fn default_binding(object: &mut Value) {
    default_match_resources(object.ensure("spec"), "matchResources");
}

/// The policy and the parameters of a binding.
pub(super) fn validate_binding(spec: &Node<'_>, errs: &mut Errors) {
    let policy = spec.get("policyName");
    if policy.is_empty() {
        errs.required(&policy, "");
    } else {
        errs.invalid_each(&policy, policy.as_str(), name::dns1123_subdomain(policy.as_str()));
    }
    let param = spec.get("paramRef");
    if param.is_set() {
        validate_param(&param, errs);
    }
}

fn validate_param(param: &Node<'_>, errs: &mut Errors) {
    const EXCLUSIVE: &str = "name and selector are mutually exclusive";
    let (name, selector) = (param.get("name"), param.get("selector"));
    if !name.is_empty() {
        errs.invalid_each(&name, name.as_str(), name::path_segment_name(name.as_str()));
        if selector.is_set() {
            errs.forbidden(&name, EXCLUSIVE);
        }
    }
    if selector.is_set() {
        label_selector::validate(&selector, ValueRules::Strict, errs);
        if !name.is_empty() {
            errs.forbidden(&selector, EXCLUSIVE);
        }
    }
    if name.is_empty() && !selector.is_set() {
        errs.required(param, "one of name or selector must be specified");
    }
    let action = param.get("parameterNotFoundAction");
    match action.as_str() {
        "" => errs.required(&action, ""),
        "Deny" | "Allow" => {}
        other => errs.not_supported(&action, other, &["Deny", "Allow"]),
    }
}

fn param_cell(object: &Value, _now: i64) -> Value {
    let Some(param) = object.find(&["spec", "paramRef"]) else { return json!("<unset>") };
    let name = param.text("name");
    match (name, param.text("namespace"), param.get("selector")) {
        ("", _, Some(selector)) => json!(go_selector(selector)),
        ("", _, None) => json!("<unset>"),
        (name, "", _) => json!(format!("*/{name}")),
        (name, namespace, _) => json!(format!("{namespace}/{name}")),
    }
}

/// A selector as Go prints its structure.
fn go_selector(selector: &Value) -> String {
    let selector: LabelSelector = serde_json::from_value(selector.clone()).unwrap_or_default();
    let labels: String = selector.match_labels.iter().map(|(key, value)| format!("{key}: {value},")).collect();
    let expressions = selector.match_expressions.iter().map(|e| {
        let values = e.values.join(" ");
        format!("LabelSelectorRequirement{{Key:{},Operator:{},Values:[{values}],}},", e.key, e.operator)
    });
    let expressions: String = expressions.collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}
