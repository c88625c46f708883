//! Fields that a field selector may name.

use serde_json::Value;

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

/// A scalar as text: strings as they are, absent as nothing.
pub fn as_text(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}
