//! All objects at one moment, to look at and to compare.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use setpoint_api::GroupResource;
use setpoint_store::{Query, Selection, Snapshot};

use crate::outside::Outside;

/// All objects at one moment.
#[derive(Clone)]
pub struct State {
    snapshot: Snapshot,
    outside: Outside,
}

impl State {
    pub(crate) fn new(snapshot: Snapshot, outside: Outside) -> State {
        State { snapshot, outside }
    }

    /// What is outside of the cluster, as it is now: it has no earlier states, so rules about its past are its own to note.
    pub fn outside<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        self.outside.get()
    }

    /// The objects of a resource, by namespace and name: `objects("apps", "deployments")`.
    pub fn objects(&self, group: &str, plural: &str) -> Vec<Value> {
        self.of(&GroupResource::new(group, plural))
    }

    /// One object; the namespace of a cluster-wide one is empty.
    pub fn object(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        let namespace = Some(namespace).filter(|namespace| !namespace.is_empty());
        let object = self.snapshot.get(&GroupResource::new(group, plural), namespace, name)?;
        serde_json::from_slice(object.json()).ok()
    }

    fn of(&self, resource: &GroupResource) -> Vec<Value> {
        let selection = Selection::everything();
        let query = Query { resource, namespace: None, selection: &selection, after: None, limit: None };
        let items = self.snapshot.list(&query).items;
        items.iter().filter_map(|object| serde_json::from_slice(object.json()).ok()).collect()
    }

    /// Every object that counts when two states are compared, by where it is.
    pub(crate) fn comparable(&self, view: impl Fn(Value) -> Option<Value>) -> BTreeMap<String, Value> {
        let mut all = BTreeMap::new();
        for resource in self.snapshot.counts().into_keys().filter(|resource| !is_passing(resource)) {
            for mut object in self.of(&resource) {
                let metadata = &object["metadata"];
                let text = |name: &str| metadata[name].as_str().unwrap_or("").to_owned();
                let place = format!("{resource} {}/{}", text("namespace"), text("name"));
                strip(&mut object);
                if let Some(object) = view(object) {
                    all.insert(place, object);
                }
            }
        }
        all
    }
}

/// Objects that tell what happened, not what is.
fn is_passing(resource: &GroupResource) -> bool {
    matches!(
        (&*resource.group, &*resource.resource),
        ("", "events") | ("coordination.k8s.io", "leases") | ("events.k8s.io", "events")
    )
}

/// Takes out what differs between two runs that mean the same: identities, versions, and times.
fn strip(value: &mut Value) {
    const PASSING: [&str; 6] =
        ["uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "observedGeneration"];
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| !PASSING.contains(&name.as_str()));
            fields.values_mut().for_each(strip);
        }
        Value::Array(items) => items.iter_mut().for_each(strip),
        Value::String(text) if is_time(text) => *text = "<time>".to_owned(),
        _ => {}
    }
}

fn is_time(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() >= 20 && bytes[4] == b'-' && bytes[7] == b'-' && bytes[10] == b'T' && bytes[bytes.len() - 1] == b'Z'
}

/// The first places at which two states differ, in words.
pub(crate) fn difference(wanted: &BTreeMap<String, Value>, got: &BTreeMap<String, Value>) -> Option<String> {
    let mut lines = Vec::new();
    for (place, object) in wanted {
        match got.get(place) {
            None => lines.push(format!("{place} is missing")),
            Some(other) if other != object => lines.push(format!("{place}: {other}\n    instead of {object}")),
            Some(_) => {}
        }
    }
    lines.extend(got.keys().filter(|place| !wanted.contains_key(*place)).map(|place| format!("{place} is left over")));
    lines.truncate(5);
    (!lines.is_empty()).then(|| lines.join("\n  "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_passes_is_left_out_of_a_comparison() {
        let mut object = json!({"metadata": {"name": "a", "uid": "1", "resourceVersion": "7"}, "status": {"at": "2026-01-01T00:00:00Z", "n": 1}});
        strip(&mut object);
        assert_eq!(object, json!({"metadata": {"name": "a"}, "status": {"at": "<time>", "n": 1}}));
    }

    #[test]
    fn a_difference_says_where() {
        let one = BTreeMap::from([("a".to_owned(), json!(1)), ("b".to_owned(), json!(2))]);
        let other = BTreeMap::from([("a".to_owned(), json!(3)), ("c".to_owned(), json!(2))]);
        let said = difference(&one, &other).unwrap();
        assert!(said.contains("a: 3") && said.contains("b is missing") && said.contains("c is left over"), "{said}");
        assert_eq!(difference(&one, &one), None);
    }
}
