//! The metrics of a HorizontalPodAutoscaler: what is measured and what is aimed for.

use setpoint_api::{Quantity, name};

use super::super::core::resource_list::validate_container_name;
use super::horizontalpodautoscaler::{ApiVersionRule, api_version_complaint, validate_reference};
use crate::errors::Errors;
use crate::node::Node;

const TYPES: [&str; 5] = ["ContainerResource", "External", "Object", "Pods", "Resource"];

/// Each type with the field that belongs to it, in the order in which sources are looked at.
const SOURCES: [(&str, &str); 5] = [
    ("Object", "object"),
    ("External", "external"),
    ("Pods", "pods"),
    ("Resource", "resource"),
    ("ContainerResource", "containerResource"),
];

/// The rules for all metrics of a spec.
pub(super) fn validate_metrics(spec: &Node<'_>, old: Option<&Node<'_>>, errs: &mut Errors) {
    let described = |metric: &Node<'_>| metric.get("object").get("describedObject").str("apiVersion").to_owned();
    let bad_before = |metric: Node<'_>| {
        let object = metric.str("type") == "Object" && metric.has("object");
        object && api_version_complaint(&described(&metric), ApiVersionRule::Any).is_some()
    };
    let lenient = old.is_some_and(|old| old.items("metrics").any(bad_before));
    let rule = if lenient { ApiVersionRule::Unchecked } else { ApiVersionRule::Any };
    for metric in spec.items("metrics") {
        validate_metric(&metric, rule, errs);
    }
    let measured_elsewhere = spec.items("metrics").any(|metric| matches!(metric.str("type"), "Object" | "External"));
    if spec.int("minReplicas") == Some(0) && !measured_elsewhere {
        let detail = "must specify at least one Object or External metric to support scaling to zero replicas";
        errs.forbidden(&spec.get("metrics"), detail);
    }
}

fn validate_metric(metric: &Node<'_>, rule: ApiVersionRule, errs: &mut Errors) {
    let (at, kind) = (metric.get("type"), metric.str("type"));
    if kind.is_empty() {
        errs.required(&at, "must specify a metric source type");
    }
    if !TYPES.contains(&kind) {
        errs.not_supported(&at, kind, &TYPES);
    }
    let present: Vec<&'static str> =
        SOURCES.map(|(_, field)| field).into_iter().filter(|field| metric.has(field)).collect();
    if let Some(first) = present.first() {
        validate_source(first, &metric.get(first), rule, errs);
    }
    let expected = SOURCES.iter().find(|(name, _)| *name == kind).map(|(_, field)| *field);
    match expected {
        Some(field) if !metric.has(field) => {
            errs.required(&metric.get(field), "must populate information for the given metric source");
        }
        Some(_) => {}
        None => errs.not_supported(&at, kind, &TYPES),
    }
    if present.len() != 1 {
        for field in present.into_iter().filter(|field| Some(*field) != expected) {
            errs.forbidden(&metric.get(field), "must populate the given metric source only");
        }
    }
}

fn validate_source(field: &str, source: &Node<'_>, rule: ApiVersionRule, errs: &mut Errors) {
    let target = source.get("target");
    match field {
        "object" => {
            validate_reference(&source.get("describedObject"), rule, errs);
            validate_identifier(&source.get("metric"), errs);
            validate_target(&target, errs);
            if !target.has("value") && !target.has("averageValue") {
                errs.required(&target.get("averageValue"), "must set either a target value or averageValue");
            }
        }
        "external" => {
            validate_identifier(&source.get("metric"), errs);
            validate_target(&target, errs);
            validate_either(&target, errs);
        }
        "pods" => {
            validate_identifier(&source.get("metric"), errs);
            validate_target(&target, errs);
            if !target.has("averageValue") {
                errs.required(&target.get("averageValue"), "must specify a positive target averageValue");
            }
        }
        "containerResource" => {
            validate_container(source, errs);
            validate_utilization(&target, errs);
        }
        _ => {
            if source.str("name").is_empty() {
                errs.required(&source.get("name"), "must specify a resource name");
            }
            validate_utilization(&target, errs);
        }
    }
}

fn validate_either(target: &Node<'_>, errs: &mut Errors) {
    match (target.has("value"), target.has("averageValue")) {
        (false, false) => {
            let detail = "must set either a target value for metric or a per-pod target";
            errs.required(&target.get("averageValue"), detail);
        }
        (true, true) => {
            let detail = "may not set both a target value for metric and a per-pod target";
            errs.forbidden(&target.get("value"), detail);
        }
        _ => {}
    }
}

fn validate_container(source: &Node<'_>, errs: &mut Errors) {
    match source.str("name") {
        "" => errs.required(&source.get("name"), "must specify a resource name"),
        resource => validate_container_name(&source.get("name"), resource, errs),
    }
    match source.str("container") {
        "" => errs.required(&source.get("container"), "must specify a container"),
        container => errs.invalid_each(&source.get("container"), container, name::dns1123_label(container)),
    }
}

fn validate_utilization(target: &Node<'_>, errs: &mut Errors) {
    validate_target(target, errs);
    match (target.has("averageUtilization"), target.has("averageValue")) {
        (false, false) => {
            let detail = "must set either a target raw value or a target utilization";
            errs.required(&target.get("averageUtilization"), detail);
        }
        (true, true) => {
            let detail = "may not set both a target raw value and a target utilization";
            errs.forbidden(&target.get("averageValue"), detail);
        }
        _ => {}
    }
}

fn validate_target(target: &Node<'_>, errs: &mut Errors) {
    let (at, kind) = (target.get("type"), target.str("type"));
    if kind.is_empty() {
        errs.required(&at, "must specify a metric target type");
    }
    if !matches!(kind, "Utilization" | "Value" | "AverageValue") {
        errs.invalid(&at, kind, "must be either Utilization, Value, or AverageValue");
    }
    for field in ["value", "averageValue"] {
        if let Some(value) = target.quantity(field).filter(|value| *value <= Quantity::ZERO) {
            errs.invalid(&target.get(field), value.to_string(), "must be positive");
        }
    }
    if let Some(percent) = target.int("averageUtilization").filter(|percent| *percent < 1) {
        errs.invalid(&target.get("averageUtilization"), percent, "must be greater than 0");
    }
}

fn validate_identifier(metric: &Node<'_>, errs: &mut Errors) {
    match metric.str("name") {
        "" => errs.required(&metric.get("name"), "must specify a metric name"),
        text => errs.invalid_each(&metric.get("name"), text, name::path_segment_name(text)),
    }
}
