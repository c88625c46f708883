//! ResourceQuota: how much a namespace may hold.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde_json::{Value, json};
use setpoint_api::Quantity;

use super::resource_list;
use crate::behaviour::{Behaviour, Context, keep};
use crate::columns::Column;
use crate::edit::Edit;
use crate::errors::Errors;
use crate::internal_form::shown;
use crate::kind::Kind;
use crate::metadata;
use crate::node::Node;

const SCOPES: [&str; 7] = [
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "VolumeAttributesClass",
    "CrossNamespacePodAffinity",
];

const POD_RESOURCES: [&str; 7] =
    ["pods", "cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"];

/// Scopes that exclude each other.
const OPPOSITES: [[&str; 2]; 2] = [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]];

const EXISTS_ONLY: &str = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, \
    ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or \
    ResourceQuotaScopeCrossNamespacePodAffinity";

const COLUMNS: &[Column<'static>] = &[
    Column::NAME,
    Column::new("Request", "string", |object, _| json!(used(object, |name| !is_limit(name))))
        .about("Request represents a minimum amount of cpu/memory that a container may consume."),
    Column::new("Limit", "string", |object, _| json!(used(object, is_limit))).about(
        "Limits control the maximum amount of cpu/memory that a container may use independent of contention on the node.",
    ),
    Column::AGE,
];

/// The decisions of ResourceQuota.
#[derive(Debug)]
pub struct ResourceQuota;

impl Behaviour for ResourceQuota {
    fn default(&self, object: &mut Value) {
        for way in [["spec", "hard"], ["status", "hard"], ["status", "used"]] {
            resource_list::round_up(object.find_mut(&way));
        }
    }

    fn prepare_create(&self, object: &mut Value, _context: &Context) {
        object.remove("status");
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, _context: &Context) {
        keep(new, old, &["status"]);
    }

    fn validate(&self, object: &Node<'_>, errs: &mut Errors) {
        validate_spec(&object.get("spec"), errs);
        validate_status(&object.get("status"), errs);
    }

    fn check_update(&self, _kind: &Kind, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        metadata::validate_update(new, old, errs);
        let (spec, old) = (new.get("spec"), old.get("spec"));
        validate_spec(&spec, errs);
        if spec.strings("scopes").collect::<BTreeSet<_>>() != old.strings("scopes").collect() {
            errs.invalid_here(&spec.get("scopes"), "field is immutable");
        }
    }

    fn validate_status_update(&self, new: &Node<'_>, _old: &Node<'_>, errs: &mut Errors) {
        validate_status(&new.get("status"), errs);
    }

    fn warnings(&self, new: &Node<'_>, old: Option<&Node<'_>>) -> Vec<String> {
        if old.is_some() {
            return Vec::new();
        }
        let hard = new.get("spec").get("hard");
        ["cpu", "memory", "storage", "ephemeral-storage"]
            .iter()
            .filter_map(|name| request_over_limit(&hard, name))
            .collect()
    }

    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        if subresource.is_empty() { &["status"] } else { &["spec"] }
    }

    fn columns(&self) -> Cow<'_, [Column<'_>]> {
        COLUMNS.into()
    }
}

fn validate_spec(spec: &Node<'_>, errs: &mut Errors) {
    validate_list(spec, "hard", errs);
    validate_scopes(spec, errs);
    validate_scope_selector(spec, errs);
}

fn validate_status(status: &Node<'_>, errs: &mut Errors) {
    validate_list(status, "hard", errs);
    validate_list(status, "used", errs);
}

fn validate_list(parent: &Node<'_>, list: &'static str, errs: &mut Errors) {
    for (resource, amount) in parent.entries(list) {
        resource_list::validate_quota_name(&amount, resource, errs);
        resource_list::validate_amount(&amount, resource, errs);
    }
}

fn validate_scopes(spec: &Node<'_>, errs: &mut Errors) {
    let at = spec.get("scopes");
    let scopes: Vec<&str> = spec.strings("scopes").collect();
    for scope in &scopes {
        if !SCOPES.contains(scope) {
            errs.invalid_here(&at, "unsupported scope");
        }
        for _ in out_of_scope(spec, scope) {
            errs.invalid_here(&at, "unsupported scope applied to resource");
        }
    }
    for pair in OPPOSITES {
        if pair.iter().all(|scope| scopes.contains(scope)) {
            errs.invalid_here(&at, "conflicting scopes");
        }
    }
}

fn validate_scope_selector(spec: &Node<'_>, errs: &mut Errors) {
    let selector = spec.get("scopeSelector");
    let at = selector.get("matchExpressions");
    let mut scopes = Vec::new();
    for requirement in at.clone().into_items() {
        let scope = requirement.str("scopeName");
        if !SCOPES.contains(&scope) {
            errs.invalid(&at.at_child("scopeName"), scope, "unsupported scope");
        }
        for _ in out_of_scope(spec, scope) {
            errs.invalid(&at, shown(&selector), "unsupported scope applied to resource");
        }
        validate_operator(&at, &requirement, errs);
        scopes.push(scope);
    }
    for pair in OPPOSITES {
        if pair.iter().all(|scope| scopes.contains(scope)) {
            errs.invalid(&at, spec.get("scopes").json(), "conflicting scopes");
        }
    }
}

fn validate_operator(at: &Node<'_>, requirement: &Node<'_>, errs: &mut Errors) {
    let (scope, operator) = (requirement.str("scopeName"), requirement.str("operator"));
    let by_presence = !matches!(scope, "PriorityClass" | "VolumeAttributesClass") && SCOPES.contains(&scope);
    if by_presence && operator != "Exists" {
        errs.invalid(&at.at_child("operator"), operator, EXISTS_ONLY);
    }
    let values = requirement.get("values");
    match operator {
        "In" | "NotIn" if values.is_empty() => errs.required(
            &at.at_child("values"),
            "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
        ),
        "In" | "NotIn" => {}
        "Exists" | "DoesNotExist" if !values.is_empty() => errs.invalid(
            &at.at_child("values"),
            values.json(),
            "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector",
        ),
        "Exists" | "DoesNotExist" => {}
        _ => errs.invalid(&at.at_child("operator"), operator, "not a valid selector operator"),
    }
}

/// The limited resources that a scope says nothing about.
fn out_of_scope<'a>(spec: &Node<'a>, scope: &str) -> Vec<&'a str> {
    let fits = |resource: &str| match scope {
        "BestEffort" => resource == "pods",
        "VolumeAttributesClass" => matches!(resource, "persistentvolumeclaims" | "requests.storage"),
        known if SCOPES.contains(&known) => POD_RESOURCES.contains(&resource),
        _ => true,
    };
    let limited = spec.entries("hard").map(|(resource, _)| resource);
    limited.filter(|resource| resource_list::is_quota_standard(resource) && !fits(resource)).collect()
}

fn request_over_limit(hard: &Node<'_>, resource: &str) -> Option<String> {
    let amount = |name: &str| hard.json().get(name)?.as_str().and_then(|text| Quantity::parse(text).ok());
    let mut name = format!("requests.{resource}");
    let mut request = amount(&name);
    if request.is_none() && matches!(resource, "cpu" | "memory") {
        name = resource.to_owned();
        request = amount(&name);
    }
    let (request, limit) = (request?, amount(&format!("limits.{resource}"))?);
    (request > limit)
        .then(|| format!("ResourceQuota {name} ({request}) should be less than limits.{resource} ({limit})"))
}

fn is_limit(resource: &str) -> bool {
    resource.starts_with("limits.")
}

fn used(object: &Value, chosen: impl Fn(&str) -> bool) -> String {
    let hard = object.find(&["status", "hard"]).and_then(Value::as_object);
    let used = object.find(&["status", "used"]);
    let parts = hard.into_iter().flatten().filter(|(name, _)| chosen(name)).map(|(name, hard)| {
        let used = used.map_or("", |used| used.text(name));
        format!("{name}: {}/{}", if used.is_empty() { "0" } else { used }, hard.as_str().unwrap_or("0"))
    });
    parts.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{columns, create, create_fails, update_fails, warnings};
    use super::*;

    fn quota(spec: Value) -> Value {
        json!({"metadata": {"name": "a"}, "spec": spec})
    }

    #[test]
    fn limits_are_known_whole_and_in_scope() {
        for (spec, expected) in [
            (json!({"hard": {"pods": "1.5"}}), "spec.hard[pods]: Invalid value: \"1500m\": must be an integer"),
            (
                json!({"hard": {"pods": "-1"}}),
                "spec.hard[pods]: Invalid value: \"-1\": must be greater than or equal to 0",
            ),
            (
                json!({"hard": {"configmaps": "1"}, "scopes": ["BestEffort"]}),
                "spec.scopes: Invalid value: [\"BestEffort\"]: unsupported scope applied to resource",
            ),
            (
                json!({"scopes": ["Terminating", "NotTerminating"]}),
                "spec.scopes: Invalid value: [\"Terminating\",\"NotTerminating\"]: conflicting scopes",
            ),
            (
                json!({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In"}]}}),
                "spec.scopeSelector.matchExpressions.values: Required value: must be at least one value when `operator` is \
                 'In' or 'NotIn' for scope selector",
            ),
        ] {
            create_fails("v1", "resourcequotas", quota(spec), expected);
        }
    }

    #[test]
    fn scopes_stay() {
        let new = quota(json!({"scopes": ["Terminating"]}));
        let expected = "spec.scopes: Invalid value: [\"Terminating\"]: field is immutable";
        update_fails("v1", "resourcequotas", quota(json!({})), new, expected);
    }

    #[test]
    fn a_request_above_its_limit_warns() {
        assert_eq!(
            warnings("v1", "resourcequotas", quota(json!({"hard": {"cpu": "2", "limits.cpu": "1"}}))),
            ["ResourceQuota cpu (2) should be less than limits.cpu (1)"]
        );
    }

    #[test]
    fn usage_is_shown_beside_the_limit() {
        let mut object = create("v1", "resourcequotas", quota(json!({})));
        object["status"] = json!({"hard": {"pods": "4", "cpu": "2", "limits.cpu": "3"}, "used": {"pods": "1"}});
        assert_eq!(
            columns("v1", "resourcequotas", &object),
            json!(["a", "cpu: 0/2, pods: 1/4", "limits.cpu: 0/3", "<unknown>"])
        );
    }
}
