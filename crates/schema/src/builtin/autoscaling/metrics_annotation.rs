//! Metrics as version 1 of HorizontalPodAutoscaler carries them in annotations: other names, another order.

use serde_json::{Value, json};
use setpoint_api::Quantity;

use super::super::go_value::{label_selector, scalar, structure};
use crate::edit::Edit;

/// A JSON list of what `text` makes of each item.
pub(super) fn list<'a>(items: impl IntoIterator<Item = &'a Value>, text: impl Fn(&Value) -> String) -> String {
    format!("[{}]", items.into_iter().map(text).collect::<Vec<_>>().join(","))
}

/// What a metric aims for, in version 1.
pub(super) fn spec_to_v1(metric: &Value) -> String {
    metric_to_v1(metric, "target", "target")
}

/// What was measured, in version 1.
pub(super) fn status_to_v1(metric: &Value) -> String {
    metric_to_v1(metric, "current", "current")
}

/// A condition, in the order of version 1.
pub(super) fn condition(condition: &Value) -> String {
    let always = ["type", "status", "lastTransitionTime"].map(|name| (name, Some(scalar(condition.get(name)))));
    let if_set = ["reason", "message"].map(|name| (name, set(condition, name).map(|value| scalar(Some(value)))));
    present(always.into_iter().chain(if_set))
}

/// What a metric aims for, out of version 1.
pub(super) fn spec_from_v1(metric: &Value) -> Value {
    from_v1(metric, |field, source| match field {
        "object" => {
            let (value, average) = (quantity(source, "targetValue"), source.get("averageValue"));
            let kind = if source.has("averageValue") { "AverageValue" } else { "Value" };
            let zero = value.as_str().and_then(|text| Quantity::parse(text).ok()).is_some_and(|value| value.is_zero());
            let value = if source.has("averageValue") && zero { Value::Null } else { value };
            json!({"target": {"type": kind, "value": value, "averageValue": average}})
        }
        "pods" => json!({"target": {"type": "AverageValue", "averageValue": quantity(source, "targetAverageValue")}}),
        "external" => {
            let kind = if source.has("targetValue") { "Value" } else { "AverageValue" };
            let (value, average) = (source.get("targetValue"), source.get("targetAverageValue"));
            json!({"target": {"type": kind, "value": value, "averageValue": average}})
        }
        _ => {
            let kind = if source.has("targetAverageUtilization") { "Utilization" } else { "AverageValue" };
            let (percent, average) = (source.get("targetAverageUtilization"), source.get("targetAverageValue"));
            json!({"target": {"type": kind, "averageUtilization": percent, "averageValue": average}})
        }
    })
}

/// What was measured, out of version 1.
pub(super) fn status_from_v1(metric: &Value) -> Value {
    from_v1(metric, |field, source| match field {
        "object" => {
            json!({"current": {"value": quantity(source, "currentValue"), "averageValue": source.get("averageValue")}})
        }
        "pods" => json!({"current": {"averageValue": quantity(source, "currentAverageValue")}}),
        "external" => json!({"current": {
            "value": quantity(source, "currentValue"), "averageValue": source.get("currentAverageValue"),
        }}),
        _ => json!({"current": {
            "averageUtilization": source.get("currentAverageUtilization"),
            "averageValue": quantity(source, "currentAverageValue"),
        }}),
    })
}

/// The sources of a metric, in the order of version 1.
const SOURCES: [&str; 5] = ["object", "pods", "resource", "containerResource", "external"];

/// `place` is where version 2 keeps the numbers, `prefix` what their names start with in version 1.
fn metric_to_v1(metric: &Value, place: &str, prefix: &str) -> String {
    let sources = SOURCES.map(|field| {
        let source = metric.get(field).filter(|source| !source.is_null());
        (field, source.map(|source| source_to_v1(field, source, &source[place], prefix)))
    });
    present(std::iter::once(("type", Some(scalar(metric.get("type"))))).chain(sources))
}

fn source_to_v1(field: &str, source: &Value, numbers: &Value, prefix: &str) -> String {
    let name = |rest: &str| format!("{prefix}{rest}");
    let (value, average, percent) = (name("Value"), name("AverageValue"), name("AverageUtilization"));
    let optional = |field: &str| set(numbers, field).map(|value| scalar(Some(value)));
    let always = |field: &str| Some(optional(field).unwrap_or_else(|| "\"0\"".to_owned()));
    let metric = &source["metric"];
    let metric_name = || Some(scalar(Some(&json!(metric.text("name")))));
    let selector = || set(metric, "selector").map(|selector| label_selector(Some(selector)));
    let own = |field: &str| Some(scalar(Some(&json!(source.text(field)))));
    // Measured averages of resources are always there in version 1, those aimed for are not.
    let resource_average = if prefix == "current" { always("averageValue") } else { optional("averageValue") };
    match field {
        "object" => present([
            ("target", Some(reference(&source["describedObject"]))),
            ("metricName", metric_name()),
            (&*value, always("value")),
            ("selector", selector()),
            ("averageValue", optional("averageValue")),
        ]),
        "pods" => {
            present([("metricName", metric_name()), (&*average, always("averageValue")), ("selector", selector())])
        }
        "external" => {
            let value_text = if prefix == "current" { always("value") } else { optional("value") };
            let fields = [
                ("metricName", metric_name()),
                ("metricSelector", selector()),
                (&*value, value_text),
                (&*average, optional("averageValue")),
            ];
            present(fields)
        }
        _ => {
            let container = if field == "containerResource" { own("container") } else { None };
            let fields = [
                ("name", own("name")),
                (&*percent, optional("averageUtilization")),
                (&*average, resource_average),
                ("container", container),
            ];
            present(fields)
        }
    }
}

fn reference(object: &Value) -> String {
    let text = |field: &str| scalar(Some(&json!(object.text(field))));
    let version = set(object, "apiVersion").map(|value| scalar(Some(value)));
    present([("kind", Some(text("kind"))), ("name", Some(text("name"))), ("apiVersion", version)])
}

/// A metric in version 2: `numbers` tells what it aims for or what was measured.
fn from_v1(metric: &Value, numbers: impl Fn(&str, &Value) -> Value) -> Value {
    let mut converted = json!({"type": metric.get("type")});
    for field in SOURCES {
        let Some(source) = metric.get(field).filter(|source| source.is_object()) else { continue };
        let mut new = numbers(field, source);
        match field {
            "resource" | "containerResource" => {
                new.set_or_remove("name", source.get("name").cloned());
                new.set_or_remove(
                    "container",
                    source.get("container").cloned().filter(|_| field == "containerResource"),
                );
            }
            _ => {
                let selector = source.get(if field == "external" { "metricSelector" } else { "selector" });
                new.set("metric", json!({"name": source.get("metricName"), "selector": selector}));
            }
        }
        if field == "object" {
            new.set_or_remove("describedObject", source.get("target").cloned());
        }
        converted.set(field, new);
    }
    converted
}

/// A quantity that is zero if absent.
fn quantity(source: &Value, field: &str) -> Value {
    source.get(field).filter(|value| !value.is_null()).cloned().unwrap_or_else(|| json!("0"))
}

/// A field that is there and not empty.
fn set<'a>(object: &'a Value, field: &str) -> Option<&'a Value> {
    object.get(field).filter(|value| !value.is_null() && value.as_str() != Some(""))
}

fn present<'a>(fields: impl IntoIterator<Item = (&'a str, Option<String>)>) -> String {
    structure(fields.into_iter().filter_map(|(name, text)| Some((name, text?))))
}
