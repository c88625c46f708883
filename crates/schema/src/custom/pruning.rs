//! Dropping what a schema doesn't know: unknown fields, and nulls where null is no value.

use serde_json::{Map, Value};

use super::tree::Place;

/// Drops unknown fields from an object and returns their paths, sorted.
pub(super) fn prune(object: &mut Value, root: Place<'_>) -> Vec<String> {
    let mut pruning = Pruning { path: String::new(), found: Vec::new() };
    pruning.value(object, Some(root));
    pruning.found.sort_unstable();
    pruning.found
}

/// Drops nulls of fields that may not be null and have no default; those with one are filled in later.
pub(super) fn drop_nulls(value: &mut Value, place: Option<Place<'_>>) {
    match value {
        Value::Object(fields) => fields.retain(|name, value| {
            let inner = place.and_then(|place| place.child(name)).filter(|inner| !inner.node().unknown);
            if value.is_null() && inner.is_some_and(|inner| !inner.node().nullable && inner.default().is_none()) {
                return false;
            }
            drop_nulls(value, inner);
            true
        }),
        Value::Array(items) => {
            let inner = place.and_then(|place| place.item());
            items.iter_mut().for_each(|item| drop_nulls(item, inner));
        }
        _ => {}
    }
}

const META_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

struct Pruning {
    path: String,
    found: Vec<String>,
}

impl Pruning {
    /// Without a place nothing is known, and all fields of objects go.
    fn value(&mut self, value: &mut Value, place: Option<Place<'_>>) {
        let place = place.filter(|place| !place.node().unknown);
        match value {
            Value::Object(fields) => self.object(fields, place),
            Value::Array(items) => {
                let keeps = place.is_some_and(|place| place.node().preserves);
                let inner = place.and_then(|place| place.item());
                let before = self.path.len();
                for (index, item) in items.iter_mut().enumerate() {
                    self.path.push_str(&format!("[{index}]"));
                    match inner {
                        None if keeps => {}
                        inner => self.value(item, inner),
                    }
                    self.path.truncate(before);
                }
            }
            _ => {}
        }
    }

    fn object(&mut self, fields: &mut Map<String, Value>, place: Option<Place<'_>>) {
        let before = self.path.len();
        fields.retain(|name, value| {
            let is_meta = META_FIELDS.contains(&name.as_str());
            if is_meta && place.is_some_and(|place| place.node().embedded) {
                return true;
            }
            if before > 0 {
                self.path.push('.');
            }
            self.path.push_str(name);
            let kept = match place.and_then(|place| Some((place, place.child(name)?))) {
                Some((_, inner)) => {
                    self.value(value, Some(inner));
                    true
                }
                None => place.is_some_and(|place| place.node().preserves),
            };
            if !kept {
                self.found.push(self.path.clone());
            }
            self.path.truncate(before);
            kept
        });
    }
}
