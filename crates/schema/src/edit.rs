//! Changing an object in place: what defaulting and preparing need.

use serde_json::{Map, Value};

/// Reading and changing the fields of an object. Every method is a no-op (or says absent) if the value isn't an object.
pub trait Edit {
    /// The text of a field; `""` if absent.
    fn text(&self, name: &str) -> &str;
    /// The whole number in a field.
    fn number(&self, name: &str) -> Option<i64>;
    /// The flag in a field; false if absent.
    fn flag(&self, name: &str) -> bool;
    /// Present and not null.
    fn has(&self, name: &str) -> bool;
    /// The value at the end of a way of fields, if each is there and not null.
    fn find(&self, way: &[&str]) -> Option<&Value>;
    /// Sets the field if it is absent, null or `""`.
    fn default_to(&mut self, name: &str, value: impl Into<Value>);
    /// Sets the field if it is absent or null; a `""` that was given stays, as for pointers in Go.
    fn default_absent(&mut self, name: &str, value: impl Into<Value>);
    /// Sets the field if it is absent or null: for pointers, where `""` is a choice.
    fn fill(&mut self, name: &str, value: impl Into<Value>);
    /// Sets the field.
    fn set(&mut self, name: &str, value: impl Into<Value>);
    /// Sets the field, or removes it if there is no value.
    fn set_or_remove(&mut self, name: &str, value: Option<Value>);
    /// Removes the field.
    fn remove(&mut self, name: &str) -> Option<Value>;
    /// The value of a field, if present and not null.
    fn child(&mut self, name: &str) -> Option<&mut Value>;
    /// The value at the end of a way of fields, if each is there and not null.
    fn find_mut(&mut self, way: &[&str]) -> Option<&mut Value>;
    /// The object in a field, made empty first if it is absent or null.
    fn ensure(&mut self, name: &str) -> &mut Value;
    /// The items of a list field.
    fn items_mut(&mut self, name: &str) -> std::slice::IterMut<'_, Value>;
}

impl Edit for Value {
    fn text(&self, name: &str) -> &str {
        self.get(name).and_then(Value::as_str).unwrap_or("")
    }

    fn number(&self, name: &str) -> Option<i64> {
        self.get(name).and_then(Value::as_i64)
    }

    fn flag(&self, name: &str) -> bool {
        self.get(name).and_then(Value::as_bool).unwrap_or(false)
    }

    fn has(&self, name: &str) -> bool {
        self.get(name).is_some_and(|v| !v.is_null())
    }

    fn find(&self, way: &[&str]) -> Option<&Value> {
        way.iter().try_fold(self, |at, name| at.get(name)).filter(|v| !v.is_null())
    }

    fn default_to(&mut self, name: &str, value: impl Into<Value>) {
        let Some(fields) = self.as_object_mut() else { return };
        let absent = match fields.get(name) {
            None | Some(Value::Null) => true,
            Some(Value::String(text)) => text.is_empty(),
            Some(_) => false,
        };
        if absent {
            fields.insert(name.to_owned(), value.into());
        }
    }

    fn default_absent(&mut self, name: &str, value: impl Into<Value>) {
        if !self.has(name) {
            self.set(name, value);
        }
    }

    fn fill(&mut self, name: &str, value: impl Into<Value>) {
        if !self.has(name) {
            self.set(name, value);
        }
    }

    fn set(&mut self, name: &str, value: impl Into<Value>) {
        if let Some(fields) = self.as_object_mut() {
            fields.insert(name.to_owned(), value.into());
        }
    }

    fn set_or_remove(&mut self, name: &str, value: Option<Value>) {
        match value {
            Some(value) => self.set(name, value),
            None => drop(self.remove(name)),
        }
    }

    fn remove(&mut self, name: &str) -> Option<Value> {
        self.as_object_mut()?.remove(name)
    }

    fn child(&mut self, name: &str) -> Option<&mut Value> {
        self.get_mut(name).filter(|v| !v.is_null())
    }

    fn find_mut(&mut self, way: &[&str]) -> Option<&mut Value> {
        way.iter().try_fold(self, |at, name| at.get_mut(name)).filter(|v| !v.is_null())
    }

    fn ensure(&mut self, name: &str) -> &mut Value {
        if !self.is_object() {
            *self = Value::Object(Map::new());
        }
        let slot = &mut self[name];
        if slot.is_null() {
            *slot = Value::Object(Map::new());
        }
        slot
    }

    fn items_mut(&mut self, name: &str) -> std::slice::IterMut<'_, Value> {
        match self.get_mut(name).and_then(Value::as_array_mut) {
            Some(items) => items.iter_mut(),
            None => [].iter_mut(),
        }
    }
}
