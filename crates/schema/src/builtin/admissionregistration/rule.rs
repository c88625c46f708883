//! Which requests a webhook or a policy is about: operations, groups, versions, resources.

use std::collections::HashSet;

use serde_json::{Value, json};
use setpoint_api::labels::ValueRules;
use setpoint_api::name;

use super::super::label_selector;
use crate::edit::Edit;
use crate::errors::Errors;
use crate::node::Node;

pub(super) const FAILURE_POLICIES: &[&str] = &["Fail", "Ignore"];
pub(super) const MATCH_POLICIES: &[&str] = &["Equivalent", "Exact"];
const OPERATIONS: &[&str] = &["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
/// A deletion has nothing to change.
const MUTABLE_OPERATIONS: &[&str] = &["*", "CONNECT", "CREATE", "UPDATE"];
const SCOPES: &[&str] = &["*", "Cluster", "Namespaced"];

/// Rules are for every scope unless they say otherwise.
pub(super) fn default_rules(parent: &mut Value, field: &str) {
    for rule in parent.items_mut(field) {
        rule.default_absent("scope", "*");
    }
}

/// Policies match equivalent requests in every namespace and with any labels unless they say otherwise.
pub(super) fn default_match_resources(spec: &mut Value, field: &str) {
    let Some(matched) = spec.child(field) else { return };
    matched.default_absent("matchPolicy", "Equivalent");
    matched.default_absent("namespaceSelector", json!({}));
    matched.default_absent("objectSelector", json!({}));
    default_rules(matched, "resourceRules");
    default_rules(matched, "excludeResourceRules");
}

/// The matching part of a policy or a binding; an absent one is good.
pub(super) fn validate_match_resources(matched: &Node<'_>, errs: &mut Errors) {
    if !matched.is_set() {
        return;
    }
    one_of_required(&matched.get("matchPolicy"), MATCH_POLICIES, errs);
    for field in ["namespaceSelector", "objectSelector"] {
        let selector = matched.get(field);
        if selector.is_set() {
            label_selector::validate(&selector, ValueRules::Strict, errs);
        } else {
            errs.required(&selector, "");
        }
    }
    for field in ["resourceRules", "excludeResourceRules"] {
        for rule in matched.items(field) {
            validate_resource_names(&rule, errs);
            validate_rule(&rule, errs);
        }
    }
}

/// A policy that changes objects can't be about deletions.
pub(super) fn validate_mutable_operations(matched: &Node<'_>, errs: &mut Errors) {
    for rule in matched.items("resourceRules") {
        for operation in rule.items("operations") {
            if !MUTABLE_OPERATIONS.contains(&operation.as_str()) {
                let at = operation.at(format!("{}.resourceRules.operations", matched.path()));
                errs.not_supported(&at, operation.as_str(), MUTABLE_OPERATIONS);
            }
        }
    }
}

/// A rule with its operations.
pub(super) fn validate_rule(rule: &Node<'_>, errs: &mut Errors) {
    let operations = rule.get("operations");
    if operations.is_empty() {
        errs.required(&operations, "");
    }
    star_stands_alone(&operations, "operations", errs);
    for operation in operations.into_items() {
        one_of(&operation, OPERATIONS, errs);
    }
    let groups = rule.get("apiGroups");
    if groups.is_empty() {
        errs.required(&groups, "");
    }
    star_stands_alone(&groups, "API groups", errs);
    let versions = rule.get("apiVersions");
    if versions.is_empty() {
        errs.required(&versions, "");
    }
    star_stands_alone(&versions, "API versions", errs);
    for version in versions.into_items().filter(|version| version.as_str().is_empty()) {
        errs.required(&version, "");
    }
    validate_resources(&rule.get("resources"), errs);
    one_of(&rule.get("scope"), SCOPES, errs);
}

/// That a value that is there is one of these.
pub(super) fn one_of(at: &Node<'_>, allowed: &[&str], errs: &mut Errors) {
    if at.is_set() && !allowed.contains(&at.as_str()) {
        errs.not_supported(at, at.as_str(), allowed);
    }
}

/// That a value is there and is one of these.
pub(super) fn one_of_required(at: &Node<'_>, allowed: &[&str], errs: &mut Errors) {
    if at.is_set() { one_of(at, allowed, errs) } else { errs.required(at, "") }
}

fn star_stands_alone(list: &Node<'_>, what: &str, errs: &mut Errors) {
    let mut items = list.clone().into_items();
    if items.len() > 1 && items.any(|item| item.as_str() == "*") {
        errs.invalid_here(list, format!("if '*' is present, must not specify other {what}"));
    }
}

fn validate_resources(resources: &Node<'_>, errs: &mut Errors) {
    if resources.is_empty() {
        errs.required(resources, "");
    }
    let (mut whole, mut parts) = (HashSet::new(), HashSet::new());
    // Upstream lets the last plain resource decide; so do we, to take and refuse the same lists.
    let mut plain = false;
    let texts: Vec<&str> = resources.clone().into_items().map(|item| item.as_str()).collect();
    for (item, text) in resources.clone().into_items().zip(&texts) {
        if text.is_empty() {
            errs.required(&item, "");
            continue;
        }
        let Some((resource, part)) = text.split_once('/') else {
            plain = *text != "*";
            continue;
        };
        if whole.contains(resource) {
            errs.invalid_here(&item, format!("if '{resource}/*' is present, must not specify {text}"));
        }
        if parts.contains(part) {
            errs.invalid_here(&item, format!("if '*/{part}' is present, must not specify {text}"));
        }
        if part == "*" {
            whole.insert(resource);
        }
        if resource == "*" {
            parts.insert(part);
        }
    }
    if texts.len() > 1 && texts.contains(&"*/*") {
        errs.invalid_here(resources, "if '*/*' is present, must not specify other resources");
    }
    if texts.contains(&"*") && plain {
        errs.invalid_here(resources, "if '*' is present, must not specify other resources without subresources");
    }
}

fn validate_resource_names(rule: &Node<'_>, errs: &mut Errors) {
    let mut seen = HashSet::new();
    for item in rule.items("resourceNames") {
        errs.invalid_each(&item, item.as_str(), name::path_segment_name(item.as_str()));
        if !seen.insert(item.as_str()) {
            errs.duplicate(&item, item.as_str());
        }
    }
}
