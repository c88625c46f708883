//! One HorizontalPodAutoscaler in two versions. Version 1 knows only CPU; the rest travels in annotations, so that
//! nothing is lost on the way there and back.

use serde_json::{Value, json};

use super::super::go_value;
use super::horizontalpodautoscaler::{CPU_PERCENT, cpu_metric};
use super::metrics_annotation as annotation;
use crate::decode::decode;
use crate::edit::Edit;
use crate::facts::{kind_type, type_named};
use crate::json::parse;
use crate::normal::normalize;
use crate::types::{Shape, TypeRef};

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOUR: &str = "autoscaling.alpha.kubernetes.io/behavior";

/// Everything that belongs to the way of travel and not to the object.
const ANNOTATIONS: [&str; 6] = [
    METRICS,
    CURRENT_METRICS,
    CONDITIONS,
    BEHAVIOUR,
    "autoscaling.alpha.kubernetes.io/scale-down-tolerance",
    "autoscaling.alpha.kubernetes.io/scale-up-tolerance",
];

const PACKAGE: &str = "io.k8s.api.autoscaling.v2.";

/// The object in version 2. Annotations that can't be read are as good as absent.
pub fn to_v2(v1: &Value) -> Value {
    let mut v2 = v1.clone();
    v2.set("apiVersion", "autoscaling/v2");
    let carried = |name: &str| v1.find(&["metadata", "annotations", name]).and_then(Value::as_str);
    let spec = v2.ensure("spec");
    let cpu = spec.remove("targetCPUUtilizationPercentage").and_then(|percent| percent.as_i64()).map(cpu_metric);
    let mut metrics =
        carried(METRICS).and_then(|text| read_list(text, "MetricSpec", annotation::spec_from_v1)).unwrap_or_default();
    metrics.extend(cpu);
    if metrics.is_empty() {
        metrics.push(cpu_metric(CPU_PERCENT));
    }
    spec.set("metrics", metrics);
    spec.set_or_remove("behavior", carried(BEHAVIOUR).and_then(read_behaviour));
    let status = v2.ensure("status");
    let current = status.remove("currentCPUUtilizationPercentage").filter(|percent| !percent.is_null());
    let measured = current.map(|percent| {
        json!([{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": percent}}}])
    });
    let carried_status =
        carried(CURRENT_METRICS).and_then(|text| read_list(text, "MetricStatus", annotation::status_from_v1));
    status.set_or_remove("currentMetrics", carried_status.map(Value::from).or(measured));
    let conditions =
        carried(CONDITIONS).and_then(|text| read_list(text, "HorizontalPodAutoscalerCondition", Value::clone));
    status.set_or_remove("conditions", conditions.map(Value::from));
    drop_annotations(v2.ensure("metadata"));
    normalize_as(&mut v2, "autoscaling/v2");
    v2
}

/// The object in version 1.
pub fn to_v1(v2: &Value) -> Value {
    let mut v1 = v2.clone();
    v1.set("apiVersion", "autoscaling/v1");
    drop_annotations(v1.ensure("metadata"));
    let mut carried: Vec<(&str, String)> = Vec::new();
    let spec = v1.ensure("spec");
    let (metrics, behaviour) = (items(spec.remove("metrics")), spec.remove("behavior"));
    spec.set_or_remove("targetCPUUtilizationPercentage", metrics.iter().find_map(cpu_percent).cloned());
    let others: Vec<&Value> = metrics.iter().filter(|metric| cpu_percent(metric).is_none()).collect();
    if !others.is_empty() {
        carried.push((METRICS, annotation::list(others, annotation::spec_to_v1)));
    }
    if let Some(behaviour) = behaviour.filter(|behaviour| !behaviour.is_null()) {
        carried.push((BEHAVIOUR, behaviour_text(&behaviour)));
    }
    let status = v1.ensure("status");
    let (current, conditions) = (items(status.remove("currentMetrics")), items(status.remove("conditions")));
    status.set_or_remove("currentCPUUtilizationPercentage", current.iter().rev().find_map(cpu_measured).cloned());
    if !current.is_empty() {
        carried.push((CURRENT_METRICS, annotation::list(&current, annotation::status_to_v1)));
    }
    if !conditions.is_empty() {
        carried.push((CONDITIONS, annotation::list(&conditions, annotation::condition)));
    }
    if !carried.is_empty() {
        let annotations = v1.ensure("metadata").ensure("annotations");
        carried.into_iter().for_each(|(name, text)| annotations.set(name, text));
    }
    normalize_as(&mut v1, "autoscaling/v1");
    v1
}

/// Removes from metadata the annotations in which a version carries what it doesn't know.
pub(super) fn drop_annotations(metadata: &mut Value) {
    if let Some(annotations) = metadata.child("annotations") {
        ANNOTATIONS.iter().for_each(|name| drop(annotations.remove(name)));
        if annotations.as_object().is_some_and(|left| left.is_empty()) {
            metadata.remove("annotations");
        }
    }
}

fn items(list: Option<Value>) -> Vec<Value> {
    match list {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    }
}

/// The share of CPU that a metric aims for, if that is all it says.
fn cpu_percent(metric: &Value) -> Option<&Value> {
    let cpu = metric.text("type") == "Resource" && metric["resource"].text("name") == "cpu";
    metric.find(&["resource", "target", "averageUtilization"]).filter(|_| cpu)
}

fn cpu_measured(metric: &Value) -> Option<&Value> {
    let cpu = metric.text("type") == "Resource" && metric["resource"].text("name") == "cpu";
    metric.find(&["resource", "current", "averageUtilization"]).filter(|_| cpu)
}

fn behaviour_text(behaviour: &Value) -> String {
    let rules = |name: &str| match behaviour.get(name).filter(|rules| !rules.is_null()) {
        None => "null".to_owned(),
        Some(rules) => go_value::structure([
            ("StabilizationWindowSeconds", go_value::scalar(rules.get("stabilizationWindowSeconds"))),
            ("SelectPolicy", go_value::scalar(rules.get("selectPolicy"))),
            ("Policies", rules.get("policies").and_then(Value::as_array).map_or("null".into(), |list| policies(list))),
            ("Tolerance", go_value::scalar(rules.get("tolerance"))),
        ]),
    };
    go_value::structure([("ScaleUp", rules("scaleUp")), ("ScaleDown", rules("scaleDown"))])
}

fn policies(list: &[Value]) -> String {
    annotation::list(list, |policy| {
        go_value::structure([
            ("Type", go_value::scalar(policy.get("type"))),
            ("Value", go_value::scalar(policy.get("value"))),
            ("PeriodSeconds", go_value::scalar(policy.get("periodSeconds"))),
        ])
    })
}

fn read_behaviour(text: &str) -> Option<Value> {
    let ty = type_named(&format!("{PACKAGE}HorizontalPodAutoscalerBehavior"))?;
    let named = with_json_names(&parse(text.as_bytes()).ok()?.into_value(), ty);
    let read = decode(named.into(), ty).ok()?.value;
    read.as_object().is_some_and(|fields| !fields.is_empty()).then_some(read)
}

/// Gives fields their JSON names: Go finds a field whatever the case of its name.
fn with_json_names(value: &Value, ty: TypeRef<'_>) -> Value {
    match (ty.shape(), value) {
        (Shape::Struct(_), Value::Object(fields)) => {
            let known = |name: &str| ty.fields().iter().find(|field| field.name.eq_ignore_ascii_case(name));
            let renamed = fields.iter().filter_map(|(name, value)| {
                let field = known(name)?;
                Some((field.name.to_string(), with_json_names(value, ty.to(field.ty))))
            });
            Value::Object(renamed.collect())
        }
        (Shape::List(list), Value::Array(items)) => {
            items.iter().map(|item| with_json_names(item, ty.to(list.item))).collect()
        }
        _ => value.clone(),
    }
}

/// A list out of an annotation, each item converted and then read as the type of version 2; None if that can't be done.
fn read_list(text: &str, ty: &str, convert: fn(&Value) -> Value) -> Option<Vec<Value>> {
    let ty = type_named(&format!("{PACKAGE}{ty}"))?;
    let Value::Array(items) = parse(text.as_bytes()).ok()?.into_value() else { return None };
    items.iter().map(|item| Some(decode(convert(item).into(), ty).ok()?.value)).collect()
}

fn normalize_as(object: &mut Value, api_version: &str) {
    if let Some(ty) = kind_type(api_version, "HorizontalPodAutoscaler") {
        normalize(object, ty);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(v2_spec: Value, v1_spec: Value, annotations: Value) {
        let object = |version: &str, spec: &Value| json!({"apiVersion": version, "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"}, "spec": spec});
        let v1 = to_v1(&object("autoscaling/v2", &v2_spec));
        assert_eq!(v1["metadata"].get("annotations").unwrap_or(&json!({})), &annotations);
        for (name, value) in v1_spec.as_object().unwrap() {
            assert_eq!(&v1["spec"][name], value, "{name}");
        }
        let back = to_v2(&v1);
        assert_eq!(back["spec"]["metrics"], v2_spec["metrics"]);
        assert_eq!(back["spec"].get("behavior"), v2_spec.get("behavior"));
        assert_eq!(back["metadata"].get("annotations"), None);
    }

    #[test]
    fn a_share_of_cpu_needs_no_annotation() {
        check(json!({"metrics": [cpu_metric(60)]}), json!({"targetCPUUtilizationPercentage": 60}), json!({}));
    }

    #[test]
    fn other_metrics_travel_in_an_annotation() {
        let pods = json!({"type": "Pods", "pods": {
            "metric": {"name": "rps", "selector": {"matchLabels": {"v": "get"}}},
            "target": {"type": "AverageValue", "averageValue": "1k"},
        }});
        let text = r#"[{"type":"Pods","pods":{"metricName":"rps","targetAverageValue":"1k","selector":{"matchLabels":{"v":"get"}}}}]"#;
        check(json!({"metrics": [pods]}), json!({}), json!({METRICS: text}));
    }

    #[test]
    fn behaviour_travels_under_the_names_of_go() {
        let spec =
            json!({"metrics": [cpu_metric(1)], "behavior": {"scaleUp": {"selectPolicy": "Min", "tolerance": "100m"}}});
        let text = r#"{"ScaleUp":{"StabilizationWindowSeconds":null,"SelectPolicy":"Min","Policies":null,"Tolerance":"100m"},"ScaleDown":null}"#;
        check(spec, json!({}), json!({BEHAVIOUR: text}));
    }

    #[test]
    fn an_annotation_that_can_not_be_read_is_dropped() {
        let annotations = json!({METRICS: "[", BEHAVIOUR: "{}", "mine": "kept"});
        let v2 = to_v2(&json!({"metadata": {"annotations": annotations}, "spec": {}}));
        assert_eq!(v2["spec"]["metrics"], json!([cpu_metric(80)]));
        assert_eq!(v2["spec"].get("behavior"), None);
        assert_eq!(v2["metadata"]["annotations"], json!({"mine": "kept"}));
    }
}
