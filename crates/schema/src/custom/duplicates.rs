//! Lists that are sets or maps: nothing is in them twice.

use std::collections::HashMap;

use serde_json::{Map, Value};
use setpoint_api::{BadValue, FieldError, Path};

use super::embedded::child;
use super::tree::Place;
use crate::types::{ListType, Text};

/// What is in a list twice, at any depth of an object.
pub(super) fn check(object: &Value, root: Place<'_>) -> Vec<FieldError> {
    let mut found = Vec::new();
    walk(object, root, "", &mut found);
    found
}

fn walk(value: &Value, place: Place<'_>, path: &str, found: &mut Vec<FieldError>) {
    if !place.node().below.list_types {
        return;
    }
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match (place.field(name), place.additional()) {
                    (Some(inner), _) => walk(value, inner, &child(path, name), found),
                    (None, Some(inner)) => walk(value, inner, &format!("{path}[{name}]"), found),
                    (None, None) => {}
                }
            }
        }
        Value::Array(items) => {
            match place.list_type() {
                Some(ListType::Set) => set(items, path, found),
                Some(ListType::Map(keys)) => map(items, keys, path, found),
                Some(ListType::Atomic) | None => {}
            }
            let Some(inner) = place.item() else { return };
            for (index, item) in items.iter().enumerate() {
                walk(item, inner, &format!("{path}[{index}]"), found);
            }
        }
        _ => {}
    }
}

fn set(items: &[Value], path: &str, found: &mut Vec<FieldError>) {
    for index in repeated(items) {
        found.push(FieldError::duplicate(&Path::nil(), &items[index]).at(format!("{path}[{index}]")));
    }
}

fn map(items: &[Value], keys: &[Text], path: &str, found: &mut Vec<FieldError>) {
    if let Some(odd) = items.iter().position(|item| !item.is_object() && !item.is_null()) {
        let detail = "must be an object for an array of list-type map";
        found.push(FieldError::invalid(&Path::nil(), &items[odd], detail).at(format!("{path}[{odd}]")));
        return;
    }
    let key_of = |item: &Value| -> Value {
        let given = keys.iter().filter_map(|key| Some((key.to_string(), item.get(&**key)?.clone())));
        Value::Object(given.collect::<Map<_, _>>())
    };
    let identities: Vec<Value> = items.iter().map(key_of).collect();
    for index in repeated(&identities) {
        let shown = BadValue::json(&identities[index]);
        found.push(FieldError::duplicate(&Path::nil(), shown).at(format!("{path}[{index}]")));
    }
}

/// The place of the second of each group of equal values.
fn repeated(values: &[Value]) -> Vec<usize> {
    let mut counts: HashMap<String, usize> = HashMap::with_capacity(values.len());
    let mut found = Vec::new();
    for (index, value) in values.iter().enumerate() {
        let count = counts.entry(value.to_string()).or_default();
        *count += 1;
        if *count == 2 {
            found.push(index);
        }
    }
    found
}
