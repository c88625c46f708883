//! What was converted lately, within a bound.

use std::collections::HashMap;
use std::mem;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;
use setpoint_schema::Edit;

/// Largest sum of what is remembered of one kind, by the length of its JSON. A value takes some times that.
const BYTES_MAX: usize = 8 * 1024 * 1024;

/// Where an object is, and which version of it is meant. The object that a deletion tells of has a version of its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Place(Box<str>);

impl Place {
    pub(super) fn of(object: &Value) -> Place {
        let metadata = &object["metadata"];
        let (uid, version) = (metadata.text("uid"), metadata.text("resourceVersion"));
        Place(format!("{uid}/{version}").into())
    }
}

/// Objects by version and place: the young, and those that were young before.
#[derive(Debug, Default)]
pub(super) struct Known(Mutex<Generations>);

#[derive(Debug, Default)]
struct Generations {
    young: HashMap<(Box<str>, Place), Value>,
    young_bytes: usize,
    old: HashMap<(Box<str>, Place), Value>,
}

impl Known {
    pub(super) fn get(&self, wanted: &str, place: &Place) -> Option<Value> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (wanted.into(), place.clone());
        if let Some(found) = known.young.get(&key) {
            return Some(found.clone());
        }
        let found = known.old.remove(&key)?;
        known.put(key, found.clone());
        Some(found)
    }

    pub(super) fn put(&self, wanted: &str, place: Place, object: &Value) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.put((wanted.into(), place), object.clone());
    }
}

impl Generations {
    fn put(&mut self, key: (Box<str>, Place), object: Value) {
        let bytes = object.to_string().len();
        if self.young_bytes + bytes > BYTES_MAX / 2 {
            self.old = mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        if bytes > BYTES_MAX / 2 {
            return;
        }
        self.young_bytes += bytes;
        self.young.insert(key, object);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(name: &str, version: &str, bytes: usize) -> Value {
        json!({"metadata": {"uid": name, "resourceVersion": version}, "data": "x".repeat(bytes)})
    }

    #[test]
    fn an_object_is_known_by_version_of_its_own_and_of_its_kind() {
        let known = Known::default();
        let (first, second) = (object("a", "1", 1), object("a", "2", 1));
        known.put("g/v1", Place::of(&first), &first);
        assert_eq!(known.get("g/v1", &Place::of(&first)), Some(first.clone()));
        assert_eq!(known.get("g/v2", &Place::of(&first)), None);
        assert_eq!(known.get("g/v1", &Place::of(&second)), None);
    }

    #[test]
    fn what_is_used_stays_and_the_rest_goes_at_the_bound() {
        let known = Known::default();
        let (used, unused) = (object("used", "1", 100_000), object("unused", "1", 100_000));
        known.put("v", Place::of(&used), &used);
        known.put("v", Place::of(&unused), &unused);
        for number in 0..200 {
            let other = object(&format!("o{number}"), "1", 100_000);
            known.put("v", Place::of(&other), &other);
            assert!(known.get("v", &Place::of(&used)).is_some(), "after {number}");
        }
        assert!(known.get("v", &Place::of(&unused)).is_none());
        let known = known.0.lock().unwrap();
        let bytes: usize = known.young.values().chain(known.old.values()).map(|value| value.to_string().len()).sum();
        assert!(bytes <= BYTES_MAX);
    }
}
