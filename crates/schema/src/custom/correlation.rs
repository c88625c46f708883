//! Which old value belongs to a new one: what did not change is no error, even if it is not valid any more.

use serde_json::Value;

use super::tree::Place;
use crate::types::{ListType, Text};

/// A value together with the one that was there before.
#[derive(Debug, Clone, Copy)]
pub(super) struct Correlation<'a> {
    pub(super) old: &'a Value,
    pub(super) new: &'a Value,
    pub(super) place: Place<'a>,
}

impl<'a> Correlation<'a> {
    /// The field of both; None if it can't be told which old value belongs to it.
    pub(super) fn key(self, name: &str) -> Option<Self> {
        let (old, new) = (self.old.as_object()?.get(name)?, self.new.as_object()?.get(name)?);
        let place = self.place.child(name).filter(|place| !place.node().unknown)?;
        Some(Self { old, new, place })
    }

    /// The item of both; only items of maps in lists can be told apart.
    pub(super) fn index(self, index: usize) -> Option<Self> {
        let new = self.new.as_array()?.get(index)?;
        let ListType::Map(keys) = self.place.list_type()? else { return None };
        let old = find_item(self.old.as_array()?, new, keys)?;
        Some(Self { old, new, place: self.place.item()? })
    }

    /// Whether nothing changed. What the schema doesn't know can't be compared and counts as changed.
    pub(super) fn is_unchanged(self) -> bool {
        match (self.old, self.new) {
            (Value::Array(old), Value::Array(new)) => {
                old.len() == new.len()
                    && match self.place.list_type() {
                        Some(ListType::Map(_)) => {
                            (0..new.len()).all(|index| self.index(index).is_some_and(Self::is_unchanged))
                        }
                        _ => old == new,
                    }
            }
            (Value::Object(old), Value::Object(new)) => {
                old.len() == new.len() && new.keys().all(|name| self.key(name).is_some_and(Self::is_unchanged))
            }
            (old, new) => old == new,
        }
    }
}

/// The item of a list that has the same keys.
pub(super) fn find_item<'a>(items: &'a [Value], wanted: &Value, keys: &[Text]) -> Option<&'a Value> {
    let wanted = wanted.as_object()?;
    let same = |item: &&Value| {
        item.as_object().is_some_and(|item| keys.iter().all(|key| item.get(&**key) == wanted.get(&**key)))
    };
    items.iter().find(same)
}
