//! Cells of tables that several kinds show the same way.

use serde_json::{Value, json};
use setpoint_api::labels::LabelSelector;

use crate::edit::Edit;

/// What stands where there is nothing to show.
pub const NONE: &str = "<none>";

/// The number at the end of a way of fields; 0 if absent.
pub fn number(object: &Value, way: &[&str]) -> Value {
    json!(object.find(way).and_then(Value::as_i64).unwrap_or(0))
}

/// The text at the end of a way of fields; `<none>` if absent.
pub fn text_or_none(object: &Value, way: &[&str]) -> Value {
    json!(object.find(way).and_then(Value::as_str).unwrap_or(NONE))
}

/// A label selector as the text that `kubectl get -l` takes.
pub fn selector(selector: Option<&Value>) -> Value {
    let text = match selector.map(|value| serde_json::from_value::<LabelSelector>(value.clone())) {
        None => String::new(),
        Some(Ok(selector)) => match selector.selector() {
            Ok(selector) => selector.to_string(),
            Err(_) => return json!("<error>"),
        },
        Some(Err(_)) => return json!("<error>"),
    };
    json!(if text.is_empty() { NONE } else { &text })
}

/// A map of labels as `key=value` pairs.
pub fn labels(labels: Option<&Value>) -> Value {
    let pairs: Vec<String> = labels
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or("")))
        .collect();
    json!(if pairs.is_empty() { NONE.to_owned() } else { pairs.join(",") })
}

/// One field of each container of a pod template.
pub fn of_containers(template: Option<&Value>, field: &str) -> Value {
    let containers = template.and_then(|t| t.find(&["spec", "containers"])).and_then(Value::as_array);
    let texts: Vec<&str> = containers.into_iter().flatten().map(|container| container.text(field)).collect();
    json!(texts.join(","))
}
