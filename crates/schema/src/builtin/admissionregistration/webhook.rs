//! Webhooks: the parts and rules that validating and mutating ones share.

use std::collections::HashSet;

use serde_json::{Value, json};
use setpoint_api::labels::ValueRules;
use setpoint_api::name;

use super::super::label_selector;
use super::super::webhook_client;
use super::expression::{self, Scope};
use super::rule::{FAILURE_POLICIES, MATCH_POLICIES, default_rules, one_of, validate_rule};
use crate::columns::Column;
use crate::edit::Edit;
use crate::errors::Errors;
use crate::node::Node;

/// Versions of AdmissionReview that we speak.
const REVIEW_VERSIONS: &[&str] = &["v1", "v1beta1"];
const REVIEW_VERSIONS_TEXT: &str = "v1, v1beta1";
const NO_SIDE_EFFECTS: &[&str] = &["None", "NoneOnDryRun"];
const SIDE_EFFECTS: &[&str] = &["None", "NoneOnDryRun", "Some", "Unknown"];
const REINVOCATION_POLICIES: &[&str] = &["IfNeeded", "Never"];
const TIMEOUT_SECONDS_MAX: i64 = 30;

pub(super) const COLUMNS: &[Column<'static>] = &[
    Column::NAME,
    Column::new("Webhooks", "integer", |object, _| {
        json!(object.get("webhooks").and_then(Value::as_array).map_or(0, |hooks| hooks.len()))
    })
    .about("Webhooks indicates the number of webhooks registered in this configuration"),
    Column::AGE,
];

/// Whether the webhooks of a configuration look at objects or change them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Validating,
    Mutating,
}

/// What an update may keep because the old object has it already.
struct Allowance {
    conditions_unchanged: bool,
    no_side_effects: bool,
    known_version: bool,
    unique_names: bool,
    values: ValueRules,
}

impl Allowance {
    const NONE: Self = Self {
        conditions_unchanged: false,
        no_side_effects: true,
        known_version: true,
        unique_names: true,
        values: ValueRules::Strict,
    };

    fn of_update(new: &Node<'_>, old: &Node<'_>) -> Self {
        let hooks: Vec<_> = old.items("webhooks").collect();
        let mut names = HashSet::new();
        let mut found = Errors::new();
        for hook in &hooks {
            validate_selectors(hook, ValueRules::Strict, &mut found);
        }
        Self {
            conditions_unchanged: conditions_unchanged(new, &hooks),
            no_side_effects: hooks.iter().all(|hook| NO_SIDE_EFFECTS.contains(&hook.str("sideEffects"))),
            known_version: hooks.iter().all(|hook| {
                let mut versions = hook.strings("admissionReviewVersions").peekable();
                versions.peek().is_none() || versions.any(|version| REVIEW_VERSIONS.contains(&version))
            }),
            unique_names: hooks.iter().all(|hook| names.insert(hook.str("name"))),
            values: if found.is_empty() { ValueRules::Strict } else { ValueRules::Lenient },
        }
    }
}

pub(super) fn default_webhooks(object: &mut Value, role: Role) {
    for hook in object.items_mut("webhooks") {
        hook.default_absent("failurePolicy", "Fail");
        hook.default_absent("matchPolicy", "Equivalent");
        hook.default_absent("namespaceSelector", json!({}));
        hook.default_absent("objectSelector", json!({}));
        hook.default_absent("timeoutSeconds", 10);
        if role == Role::Mutating {
            hook.default_absent("reinvocationPolicy", "Never");
        }
        if let Some(service) = hook.find_mut(&["clientConfig", "service"]) {
            service.default_absent("port", 443);
        }
        default_rules(hook, "rules");
    }
}

pub(super) fn validate_webhooks(object: &Node<'_>, role: Role, errs: &mut Errors) {
    validate(object, role, &Allowance::NONE, errs);
}

pub(super) fn validate_webhooks_update(new: &Node<'_>, old: &Node<'_>, role: Role, errs: &mut Errors) {
    validate(new, role, &Allowance::of_update(new, old), errs);
}

fn validate(object: &Node<'_>, role: Role, allowance: &Allowance, errs: &mut Errors) {
    let mut names = HashSet::new();
    for hook in object.items("webhooks") {
        validate_webhook(&hook, role, allowance, errs);
        validate_review_versions(&hook.get("admissionReviewVersions"), allowance, errs);
        let name = hook.get("name");
        if allowance.unique_names && !name.is_empty() && !names.insert(name.as_str()) {
            errs.duplicate(&name, name.as_str());
        }
    }
}

fn validate_webhook(hook: &Node<'_>, role: Role, allowance: &Allowance, errs: &mut Errors) {
    validate_name(&hook.get("name"), errs);
    for rule in hook.items("rules") {
        validate_rule(&rule, errs);
    }
    one_of(&hook.get("failurePolicy"), FAILURE_POLICIES, errs);
    one_of(&hook.get("matchPolicy"), MATCH_POLICIES, errs);
    validate_side_effects(&hook.get("sideEffects"), allowance, errs);
    let timeout = hook.get("timeoutSeconds");
    if timeout.as_int().is_some_and(|seconds| !(1..=TIMEOUT_SECONDS_MAX).contains(&seconds)) {
        errs.invalid_here(&timeout, "the timeout value must be between 1 and 30 seconds");
    }
    validate_selectors(hook, allowance.values, errs);
    if role == Role::Mutating {
        one_of(&hook.get("reinvocationPolicy"), REINVOCATION_POLICIES, errs);
    }
    let client = hook.get("clientConfig");
    match (client.has("url"), client.has("service")) {
        (true, false) => webhook_client::validate_url(&client.get("url"), errs),
        (false, true) => webhook_client::validate_service(&client.get("service"), errs),
        _ => errs.required(&client, "exactly one of url or service is required"),
    }
    if !allowance.conditions_unchanged {
        expression::validate_match_conditions(&hook.get("matchConditions"), &Scope::without_params(), errs);
    }
}

/// A webhook's name is a domain of at least three parts.
fn validate_name(at: &Node<'_>, errs: &mut Errors) {
    let text = at.as_str();
    if text.is_empty() {
        return errs.required(at, "");
    }
    let complaints = name::dns1123_subdomain(text);
    if !complaints.is_empty() {
        errs.invalid(at, text, complaints.join(","));
    } else if text.split('.').count() < 3 {
        errs.invalid(at, text, "should be a domain with at least three segments separated by dots");
    }
}

fn validate_side_effects(at: &Node<'_>, allowance: &Allowance, errs: &mut Errors) {
    let allowed = if allowance.no_side_effects { NO_SIDE_EFFECTS } else { SIDE_EFFECTS };
    if at.is_set() {
        one_of(at, allowed, errs);
    } else {
        errs.required(at, format!("must specify one of {}", allowed.join(", ")));
    }
}

fn validate_selectors(hook: &Node<'_>, values: ValueRules, errs: &mut Errors) {
    label_selector::validate(&hook.get("namespaceSelector"), values, errs);
    label_selector::validate(&hook.get("objectSelector"), values, errs);
}

fn validate_review_versions(versions: &Node<'_>, allowance: &Allowance, errs: &mut Errors) {
    if versions.is_empty() {
        return errs.required(versions, format!("must specify one of {REVIEW_VERSIONS_TEXT}"));
    }
    let mut seen = HashSet::new();
    for version in versions.clone().into_items() {
        if !seen.insert(version.as_str()) {
            errs.invalid_here(&version, "duplicate version");
            continue;
        }
        errs.invalid_each(&version, version.as_str(), name::dns1035_label(version.as_str()));
    }
    if allowance.known_version && !REVIEW_VERSIONS.iter().any(|version| seen.contains(version)) {
        errs.invalid_here(versions, format!("must include at least one of {REVIEW_VERSIONS_TEXT}"));
    }
}

fn conditions_unchanged(new: &Node<'_>, old: &[Node<'_>]) -> bool {
    let new = new.items("webhooks");
    new.len() == old.len() && new.zip(old).all(|(a, b)| a.get("matchConditions").same(&b.get("matchConditions")))
}
