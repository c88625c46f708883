//! The cell that shows what a HorizontalPodAutoscaler measures and aims for: `cpu: 33%/80%, 12/30 (avg) + 1 more...`.

use serde_json::Value;

use crate::edit::Edit;

/// Metrics beyond these are counted, not shown.
const SHOWN_MAX: usize = 2;

const UNKNOWN: &str = "<unknown>";

/// Present and desired values of the metrics.
pub(super) fn targets(object: &Value) -> String {
    let list = |way: &[&str]| object.find(way).and_then(Value::as_array).cloned().unwrap_or_default();
    let (specs, statuses) = (list(&["spec", "metrics"]), list(&["status", "currentMetrics"]));
    if specs.is_empty() {
        return "<none>".to_owned();
    }
    let shown: Vec<String> = specs
        .iter()
        .enumerate()
        .take(SHOWN_MAX)
        .map(|(index, spec)| target(spec, statuses.get(index).unwrap_or(&Value::Null)))
        .collect();
    let text = shown.join(", ");
    match specs.len().checked_sub(SHOWN_MAX) {
        Some(more) if more > 0 => format!("{text} + {more} more..."),
        _ => text,
    }
}

fn target(spec: &Value, status: &Value) -> String {
    let field = match spec.text("type") {
        "External" => "external",
        "Pods" => "pods",
        "Object" => "object",
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        _ => return "<unknown type>".to_owned(),
    };
    let (wanted, measured) = (&spec[field]["target"], &status[field]["current"]);
    let average = wanted.has("averageValue");
    // Where upstream doesn't look whether a measured quantity is there, an absent one is shown as Go shows it.
    let looked_at = average && matches!(field, "external" | "object");
    let of = |name: &str| match quantity(measured, name) {
        Some(text) => text,
        None if status.has(field) && !looked_at => "<nil>".to_owned(),
        None => UNKNOWN.to_owned(),
    };
    match field {
        "pods" => format!("{}/{}", of("averageValue"), quantity(wanted, "averageValue").unwrap_or_default()),
        "external" | "object" if average => {
            format!("{}/{} (avg)", of("averageValue"), quantity(wanted, "averageValue").unwrap_or_default())
        }
        "external" | "object" => format!("{}/{}", of("value"), quantity(wanted, "value").unwrap_or_default()),
        _ if average => {
            let name = spec[field].text("name");
            format!("{name}: {}/{}", of("averageValue"), quantity(wanted, "averageValue").unwrap_or_default())
        }
        _ => {
            let percent = |target: &Value, absent: &str| {
                target.number("averageUtilization").map_or_else(|| absent.to_owned(), |number| format!("{number}%"))
            };
            format!("{}: {}/{}", spec[field].text("name"), percent(measured, UNKNOWN), percent(wanted, "<auto>"))
        }
    }
}

fn quantity(target: &Value, name: &str) -> Option<String> {
    match target.get(name)? {
        Value::String(text) => Some(text.clone()),
        Value::Null => None,
        other => Some(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn two_metrics_are_shown_and_the_rest_counted() {
        let cpu = json!({"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 80}}});
        let queue = json!({"type": "External", "external": {"target": {"averageValue": "30"}}});
        let object = json!({
            "spec": {"metrics": [cpu, queue, cpu]},
            "status": {"currentMetrics": [{"resource": {"current": {"averageUtilization": 33}}}]},
        });
        assert_eq!(targets(&object), "cpu: 33%/80%, <unknown>/30 (avg) + 1 more...");
    }
}
