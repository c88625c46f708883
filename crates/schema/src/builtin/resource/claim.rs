//! What a claim asks for: requests for devices, what they have in common, how they are configured.

use std::collections::HashMap;

use serde_json::Value;
use setpoint_api::name;

use super::bounded::{each, set};
use super::configuration::{CONFIGS_MAX, validate_configuration, validate_selectors};
use super::names::{validate_fully_qualified, validate_label};
use crate::edit::Edit;
use crate::errors::Errors;
use crate::node::Node;

pub(super) const REQUESTS_MAX: usize = 32;
const SUBREQUESTS_MAX: usize = 8;
const CONSTRAINTS_MAX: usize = 32;
pub(super) const TAINT_EFFECTS: &[&str] = &["NoExecute", "NoSchedule", "None"];
const NO_SUCH_REQUEST: &str =
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";

/// A request is for exactly one device unless it says otherwise.
pub(super) fn default_claim(spec: &mut Value) {
    let Some(devices) = spec.child("devices") else { return };
    for request in devices.items_mut("requests") {
        if let Some(exactly) = request.child("exactly") {
            default_request(exactly);
        }
        request.items_mut("firstAvailable").for_each(default_request);
    }
}

/// The rules for a claim's `spec`.
pub(super) fn validate_claim(spec: &Node<'_>, errs: &mut Errors) {
    let devices = spec.get("devices");
    let names = RequestNames::of(spec);
    set(&devices.get("requests"), REQUESTS_MAX, errs, |request| request.str("name"), validate_request);
    each(&devices.get("constraints"), CONSTRAINTS_MAX, errs, |constraint, errs| {
        validate_constraint(constraint, &names, errs);
    });
    each(&devices.get("config"), CONFIGS_MAX, errs, |config, errs| {
        names.validate_references(&config.get("requests"), errs);
        validate_configuration(config, false, errs);
    });
}

/// The names of requests, each with those of its alternatives.
pub(super) struct RequestNames<'a>(HashMap<&'a str, Vec<&'a str>>);

impl<'a> RequestNames<'a> {
    pub(super) fn of(spec: &Node<'a>) -> Self {
        let requests = spec.get("devices").items("requests");
        let names = |request: &Node<'a>| request.items("firstAvailable").map(|sub| sub.str("name")).collect();
        Self(requests.map(|request| (request.str("name"), names(&request))).collect())
    }

    /// References to requests, each at most once.
    pub(super) fn validate_references(&self, list: &Node<'_>, errs: &mut Errors) {
        set(list, REQUESTS_MAX, errs, |item| item.as_str(), |item, errs| self.validate_reference(item, errs));
    }

    /// A request, or one of its alternatives after a slash.
    pub(super) fn validate_reference(&self, at: &Node<'_>, errs: &mut Errors) {
        let text = at.as_str();
        let parts: Vec<&str> = text.split('/').collect();
        if parts.len() > 2 {
            return errs.invalid(at, text, NO_SUCH_REQUEST);
        }
        for part in &parts {
            errs.invalid_each(at, part, name::dns1123_label(part));
        }
        let known = self.0.get(parts[0]).is_some_and(|subs| parts.get(1).is_none_or(|sub| subs.contains(sub)));
        if !known {
            errs.invalid(at, text, NO_SUCH_REQUEST);
        }
    }
}

fn default_request(request: &mut Value) {
    for toleration in request.items_mut("tolerations") {
        toleration.default_to("operator", "Equal");
    }
    request.default_to("allocationMode", "ExactCount");
    if request.text("allocationMode") == "ExactCount" && request.number("count").unwrap_or(0) == 0 {
        request.set("count", 1);
    }
}

fn validate_request(request: &Node<'_>, errs: &mut Errors) {
    validate_label(&request.get("name"), errs);
    let (exactly, first) = (request.get("exactly"), request.get("firstAvailable"));
    match (exactly.is_set(), !first.is_empty()) {
        (false, false) => errs.required(request, "exactly one of `exactly` or `firstAvailable` is required"),
        (true, true) => {
            let detail = "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set";
            errs.invalid(request, &Value::Null, detail);
        }
        (true, false) => validate_devices_wanted(&exactly, errs),
        (false, true) => set(
            &first,
            SUBREQUESTS_MAX,
            errs,
            |sub| sub.str("name"),
            |sub, errs| {
                validate_label(&sub.get("name"), errs);
                validate_devices_wanted(sub, errs);
            },
        ),
    }
}

/// How many devices of which class, and which ones.
fn validate_devices_wanted(request: &Node<'_>, errs: &mut Errors) {
    let class = request.get("deviceClassName");
    if class.is_empty() {
        errs.required(&class, "");
    } else {
        errs.invalid_each(&class, class.as_str(), name::dns1123_subdomain(class.as_str()));
    }
    validate_selectors(&request.get("selectors"), errs);
    let (mode, count) = (request.get("allocationMode"), request.int("count").unwrap_or(0));
    match mode.as_str() {
        "All" if count != 0 => {
            errs.invalid(&request.get("count"), count, "must not be specified when allocationMode is 'All'");
        }
        "ExactCount" if count <= 0 => errs.invalid(&request.get("count"), count, "must be greater than zero"),
        "All" | "ExactCount" => {}
        other => errs.not_supported(&mode, other, &["All", "ExactCount"]),
    }
    for toleration in request.items("tolerations") {
        validate_toleration(&toleration, errs);
    }
}

fn validate_toleration(toleration: &Node<'_>, errs: &mut Errors) {
    let (key, value, effect) = (toleration.get("key"), toleration.get("value"), toleration.get("effect"));
    if !key.is_empty() {
        errs.invalid_each(&key, key.as_str(), name::qualified_name(key.as_str()));
    }
    let operator = toleration.get("operator");
    match operator.as_str() {
        "Exists" if !value.is_empty() => errs.invalid_here(&value, "must be empty for operator `Exists`"),
        "Exists" => {}
        "Equal" => errs.invalid_each(&value, value.as_str(), name::label_value(value.as_str())),
        "" => errs.required(&operator, ""),
        other => errs.not_supported(&operator, other, &["Equal", "Exists"]),
    }
    if !effect.is_empty() && !TAINT_EFFECTS.contains(&effect.as_str()) {
        errs.not_supported(&effect, effect.as_str(), TAINT_EFFECTS);
    }
}

fn validate_constraint(constraint: &Node<'_>, names: &RequestNames<'_>, errs: &mut Errors) {
    names.validate_references(&constraint.get("requests"), errs);
    let (same, different) = (constraint.get("matchAttribute"), constraint.get("distinctAttribute"));
    if same.is_set() {
        validate_fully_qualified(&same, errs);
    } else if different.is_set() {
        validate_fully_qualified(&different, errs);
    } else {
        let detail =
            "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields are set";
        errs.required(constraint, detail);
    }
}
