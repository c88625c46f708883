//! Figures in the form of the API, and what discovery says of them.

use serde_json::{Value, json};
use setpoint_api::time::format_rfc3339;
use setpoint_schema::Edit;

use crate::nearby::Usage;
use crate::representation;

/// The group.
pub(crate) const GROUP: &str = "metrics.k8s.io";
/// Its version.
pub(crate) const VERSION: &str = "v1beta1";

const API_VERSION: &str = "metrics.k8s.io/v1beta1";

/// What a figure is measured over, in seconds.
const WINDOW: i64 = 15;

/// Says that nothing was measured.
const SIMULATED: &str = "setpoint.dev/simulated";

/// How errors call the objects.
pub(super) fn resource(is_pods: bool) -> &'static str {
    if is_pods { "podmetrics" } else { "nodemetrics" }
}

pub(super) fn node(node: &Value, usage: &Usage, now: i64) -> Value {
    let mut shown = json!({"kind": "NodeMetrics", "apiVersion": API_VERSION});
    shown.set("metadata", metadata(node, now));
    shown.set("timestamp", moment(now));
    shown.set("window", format!("{WINDOW}s"));
    shown.set("usage", quantities(usage));
    shown
}

pub(super) fn pod(pod: &Value, containers: &[Usage], now: i64) -> Value {
    let containers: Vec<Value> =
        containers.iter().map(|used| json!({"name": used.name, "usage": quantities(used)})).collect();
    let mut shown = json!({"kind": "PodMetrics", "apiVersion": API_VERSION});
    shown.set("metadata", metadata(pod, now));
    shown.set("timestamp", moment(now));
    shown.set("window", format!("{WINDOW}s"));
    shown.set("containers", containers);
    shown
}

pub(super) fn list(is_pods: bool, items: Vec<Value>) -> Value {
    let kind = if is_pods { "PodMetricsList" } else { "NodeMetricsList" };
    json!({"kind": kind, "apiVersion": API_VERSION, "metadata": {}, "items": items})
}

/// Name, figures and window, as people read them.
pub(super) fn table(items: &[Value], version: &str) -> Value {
    let column = |name: &str, format: &str| json!({"name": name, "type": "string", "format": format, "description": "", "priority": 0});
    let columns =
        [column("Name", "name"), column("cpu", "quantity"), column("memory", "quantity"), column("Window", "duration")];
    let rows: Vec<Value> = items
        .iter()
        .map(|item| {
            let sum = |what: &str| -> String {
                let of = |used: &Value| used[what].as_str().unwrap_or("0").to_owned();
                match item["containers"].as_array() {
                    None => of(&item["usage"]),
                    Some(containers) => total(containers.iter().map(|it| of(&it["usage"]))),
                }
            };
            let cells =
                [item["metadata"].text("name").to_owned(), sum("cpu"), sum("memory"), item.text("window").to_owned()];
            json!({"cells": cells, "object": representation::partial(item, version)})
        })
        .collect();
    json!({
        "kind": "Table", "apiVersion": format!("meta.k8s.io/{version}"), "metadata": {},
        "columnDefinitions": columns, "rows": rows,
    })
}

fn total(quantities: impl Iterator<Item = String>) -> String {
    let parsed = quantities.filter_map(|text| setpoint_api::quantity::Quantity::parse(&text).ok());
    let sum = parsed.reduce(|mut sum, next| {
        sum.add(&next);
        sum
    });
    sum.map_or_else(|| "0".to_owned(), |sum| sum.to_string())
}

fn metadata(object: &Value, now: i64) -> Value {
    let meta = &object["metadata"];
    let mut shown = json!({"name": meta["name"]});
    if !meta.text("namespace").is_empty() {
        shown.set("namespace", meta["namespace"].clone());
    }
    shown.set("creationTimestamp", format_rfc3339(now));
    if meta["labels"].is_object() {
        shown.set("labels", meta["labels"].clone());
    }
    shown.set("annotations", json!({SIMULATED: "true"}));
    shown
}

fn moment(now: i64) -> String {
    format_rfc3339(now - now.rem_euclid(WINDOW))
}

fn quantities(usage: &Usage) -> Value {
    json!({"cpu": format!("{}n", usage.cpu_nanos), "memory": format!("{}Ki", usage.memory_bytes / 1024)})
}

const KINDS: [(&str, bool, &str); 2] = [("nodes", false, "NodeMetrics"), ("pods", true, "PodMetrics")];

/// The resources of the version.
pub(crate) fn resource_list() -> Value {
    let resources = KINDS.map(|(name, namespaced, kind)| {
        json!({"name": name, "singularName": "", "namespaced": namespaced, "kind": kind, "verbs": ["get", "list"]})
    });
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": API_VERSION, "resources": resources})
}

/// The group in the document of all groups.
pub(crate) fn discovery_item() -> Value {
    let resources = KINDS.map(|(name, namespaced, kind)| {
        json!({
            "resource": name, "responseKind": {"group": "", "version": "", "kind": kind},
            "scope": if namespaced { "Namespaced" } else { "Cluster" }, "singularResource": "", "verbs": ["get", "list"],
        })
    });
    json!({
        "metadata": {"name": GROUP},
        "versions": [{"version": VERSION, "resources": resources, "freshness": "Current"}],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_say_what_was_used_and_that_nobody_measured_it() {
        let node_object = json!({"metadata": {"name": "n", "labels": {"a": "b"}}});
        let used = Usage { name: "c".to_owned(), cpu_nanos: 1_500_000, memory_bytes: 3 << 20 };
        let shown = node(&node_object, &used, 100);
        assert_eq!(shown["usage"], json!({"cpu": "1500000n", "memory": "3072Ki"}));
        assert_eq!(shown["metadata"]["annotations"][SIMULATED], "true");
        assert_eq!(shown["metadata"]["labels"], json!({"a": "b"}));
        assert_eq!(shown["timestamp"], "1970-01-01T00:01:30Z");
        let shown = pod(&json!({"metadata": {"name": "p", "namespace": "s"}}), &[used.clone(), used], 100);
        let table = table(&[shown], "v1");
        assert_eq!(table["rows"][0]["cells"], json!(["p", "3m", "6Mi", "15s"]));
    }
}
