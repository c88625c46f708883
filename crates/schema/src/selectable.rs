//! Fields that a field selector may name.

use serde_json::Value;

use crate::partial::{self, Part};
use crate::types::Text;

/// A field that a field selector may name.
#[derive(Debug, Clone)]
pub struct Selectable {
    /// As the user writes it: `spec.nodeName`.
    pub name: Text,
    get: Get,
}

#[derive(Debug, Clone)]
enum Get {
    Call(fn(&Value) -> String),
    Way(Vec<String>),
}

impl Selectable {
    /// A field of a built-in kind, with the function that finds its value.
    pub const fn new(name: &'static str, get: fn(&Value) -> String) -> Self {
        Self { name: Text::Borrowed(name), get: Get::Call(get) }
    }

    /// A field found by its way from the root; absent is the empty text.
    pub fn at(name: String, way: Vec<String>) -> Self {
        Self { name: Text::Owned(name), get: Get::Way(way) }
    }

    /// Its value in an object, as text.
    pub fn value(&self, object: &Value) -> String {
        match &self.get {
            Get::Call(get) => get(object),
            Get::Way(way) => as_text(way.iter().try_fold(object, |at, name| at.get(name))),
        }
    }
}

/// As much of an object's JSON as its selectable fields are read from: its scalars down to the deepest of these fields, no lists.
/// What can't be read is as good as empty.
pub fn readable(json: &[u8], selectable: &[Selectable]) -> Value {
    let ways = selectable.iter().map(|field| match &field.get {
        Get::Call(_) => BUILT_IN_DEPTH,
        Get::Way(way) => way.len(),
    });
    let depth = ways.max().unwrap_or(0);
    partial::read(json, Scalars { depth }).unwrap_or_default()
}

/// How deep the selectable fields of built-in kinds are: `spec.nodeName`.
const BUILT_IN_DEPTH: usize = 2;

/// Scalars, and objects down to a depth.
#[derive(Clone, Copy)]
struct Scalars {
    depth: usize,
}

impl Part for Scalars {
    fn of_member(self, _: &str) -> Option<Scalars> {
        Some(Scalars { depth: self.depth - 1 })
    }

    fn has_objects(self) -> bool {
        self.depth > 0
    }

    fn has_lists(self) -> bool {
        false
    }
}

/// A scalar as text: strings as they are, absent as nothing.
pub fn as_text(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_read_is_enough_for_every_selectable_field() {
        let pod = json!({
            "metadata": {"name": "web", "labels": {"app": "web"}, "managedFields": [{"manager": "kubectl"}]},
            "spec": {"nodeName": "node-1", "hostNetwork": true, "containers": [{"name": "web"}], "affinity": {"nodeAffinity": {}}},
            "status": {"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}], "observedGeneration": 3},
        });
        let way = |name: &str| Selectable::at(name.into(), name.split('.').map(str::to_owned).collect());
        let fields = [
            Selectable::new("spec.nodeName", |pod| as_text(pod["spec"].get("nodeName"))),
            Selectable::new("spec.hostNetwork", |pod| as_text(pod["spec"].get("hostNetwork"))),
            way("metadata.labels.app"),
            way("status.observedGeneration"),
            way("spec.nowhere"),
        ];
        let values = |object: &Value| fields.iter().map(|field| field.value(object)).collect::<Vec<_>>();
        let read = readable(pod.to_string().as_bytes(), &fields);
        assert_eq!(values(&read), ["node-1", "true", "web", "3", ""]);
        assert_eq!(values(&read), values(&pod));
        assert_eq!(read["spec"]["containers"], Value::Null, "lists are passed over");
        assert_eq!(read["spec"]["affinity"]["nodeAffinity"], Value::Null, "and what is deeper than any of them");
    }

    #[test]
    fn what_is_no_json_has_no_fields() {
        assert_eq!(
            readable(br#"{"spec":{"nodeName":"#, &[Selectable::at("spec.nodeName".into(), vec![])]),
            Value::Null
        );
    }
}
