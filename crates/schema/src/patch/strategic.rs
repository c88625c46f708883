//! Strategic merge patch: a merge patch that knows which lists are merged, by which key, and takes directives.
//!
//! Directives: `$patch: replace | delete`, `$retainKeys`, `$deleteFromPrimitiveList/<field>`, `$setElementOrder/<field>`.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::go_print::{number_text, value_text};
use super::order::go_type;
use super::{PatchError, Strictness};
use crate::decode::{DecodeError, decode_untyped};
use crate::json::{self, Json};
use crate::types::TypeRef;

mod level;
mod list;

use level::Level;
use list::{delete_items, merge_list_by, set_order};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList";
const SET_ORDER: &str = "$setElementOrder";

/// A decoded strategic merge patch.
#[derive(Debug, Clone)]
pub struct StrategicPatch {
    patch: Map<String, Value>,
    complaints: Vec<String>,
}

/// What a strategic merge gives.
#[derive(Debug, Clone, PartialEq)]
pub struct Merged {
    /// The patched object.
    pub value: Value,
    /// The patch without the directives that were carried out: what Kubernetes shows when the patched object can't be
    /// decoded (see [`value_text`]).
    pub patch: Value,
}

impl StrategicPatch {
    /// Reads the body of a request.
    pub fn decode(body: &[u8], strictness: Strictness) -> Result<Self, PatchError> {
        let bad = |error: String| PatchError::BadRequest(error);
        let json = json::parse(body).map_err(|error| bad(error.to_string()))?;
        if !matches!(json, Json::Object(_) | Json::Null) {
            let (found, expected) = (json.kind().to_owned(), "map[string]interface {}".to_owned());
            let error = DecodeError::Type { found, owner: String::new(), field: String::new(), expected };
            return Err(bad(error.to_string()));
        }
        let decoded = decode_untyped(json).map_err(|error| bad(error.to_string()))?;
        let complaints = match strictness {
            Strictness::Checked => decoded.strict,
            Strictness::Lax => Vec::new(),
        };
        let patch = match decoded.value {
            Value::Object(patch) => patch,
            _ => Map::new(),
        };
        Ok(Self { patch, complaints })
    }

    /// What strict decoding would refuse: `duplicate field "data.a"`.
    pub fn complaints(&self) -> &[String] {
        &self.complaints
    }

    /// The fields of the object that it can change; None if a directive speaks of all of them.
    pub fn fields(&self) -> Option<Vec<&str>> {
        self.patch.keys().map(|name| (!name.starts_with('$')).then_some(name.as_str())).collect()
    }

    /// The patched object.
    pub fn apply(&self, original: Value, ty: TypeRef<'_>) -> Result<Merged, PatchError> {
        let mut patch = self.patch.clone();
        let original = match original {
            Value::Object(fields) => fields,
            _ => Map::new(),
        };
        let value = merge_map(original, &mut patch, Level::root(ty))?;
        Ok(Merged { value: Value::Object(value), patch: Value::Object(patch) })
    }
}

type Fields = Map<String, Value>;

fn merge_map(mut original: Fields, patch: &mut Fields, level: Level<'_>) -> Result<Fields, PatchError> {
    if let Some(directive) = patch.get(DIRECTIVE) {
        return match directive.as_str() {
            Some("replace") => {
                patch.remove(DIRECTIVE);
                Ok(patch.clone())
            }
            Some("delete") => Ok(Map::new()),
            _ => Err(unknown_directive(directive, patch)),
        };
    }
    retain_keys(&mut original, patch)?;
    for key in keys_with(patch, SET_ORDER) {
        set_order(&mut original, patch, &key, level)?;
    }
    for (key, change) in patch.iter_mut() {
        merge_field(&mut original, key, change, level)?;
    }
    Ok(original)
}

/// Drops what the object has besides the keys named, and makes sure that the patch names all it sets.
fn retain_keys(original: &mut Fields, patch: &mut Fields) -> Result<(), PatchError> {
    let malformed = || PatchError::BadRequest("invalid patch format of retainKeys".to_owned());
    let Some(directive) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let Value::Array(keys) = directive else { return Err(malformed()) };
    let keys: HashSet<&str> = keys.iter().filter_map(Value::as_str).collect();
    let exempt = |key: &str| key.starts_with(DELETE_FROM_LIST) || key.starts_with(SET_ORDER);
    if patch.iter().any(|(key, value)| !value.is_null() && !exempt(key) && !keys.contains(key.as_str())) {
        return Err(malformed());
    }
    original.retain(|key, _| keys.contains(key.as_str()));
    Ok(())
}

fn merge_field(original: &mut Fields, key: &str, change: &mut Value, level: Level<'_>) -> Result<(), PatchError> {
    let deleting = key.starts_with(DELETE_FROM_LIST);
    let field = match deleting {
        true => field_of(key, DELETE_FROM_LIST, "invalid patch format of primitive list")?,
        false => key,
    };
    let field = if field.is_empty() { key } else { field };
    if change.is_null() {
        original.remove(field);
        return Ok(());
    }
    let merged = match (original.get_mut(field).map(Value::take), &mut *change) {
        (Some(Value::Object(live)), Value::Object(changes)) => {
            let (below, rule) = level.field(field)?;
            Value::Object(if rule.replace { changes.clone() } else { merge_map(live, changes, below)? })
        }
        (Some(Value::Array(live)), Value::Array(changes)) => {
            let (item, rule) = level.list(field)?;
            if deleting {
                delete_items(live, changes, item, rule)?
            } else {
                merge_list_by(live, changes, item, rule)?.into()
            }
        }
        (Some(live), other) if deleting && go_type(&live) != go_type(other) => live,
        (None, _) if deleting => return Ok(()),
        (_, change) => match taken_as_is(change) {
            Some(change) => change,
            None => {
                original.remove(field);
                return Ok(());
            }
        },
    };
    original.insert(field.to_owned(), merged);
    Ok(())
}

/// The value of a field that has nothing to be merged with; `None` if all it says is a directive.
fn taken_as_is(change: &mut Value) -> Option<Value> {
    discard_nulls(change);
    match change {
        // The patch keeps its own list, as it is shown later.
        Value::Array(items) => {
            Some(items.iter_mut().filter_map(|item| strip_directives(item).then(|| item.clone())).collect())
        }
        other => strip_directives(other).then(|| other.clone()),
    }
}

fn discard_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(discard_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(discard_nulls),
        _ => {}
    }
}

/// Removes objects with a directive; false if the value itself is one.
fn strip_directives(value: &mut Value) -> bool {
    match value {
        Value::Object(fields) if fields.contains_key(DIRECTIVE) => return false,
        Value::Object(fields) => fields.retain(|_, value| strip_directives(value)),
        Value::Array(items) => items.retain_mut(strip_directives),
        _ => {}
    }
    true
}

fn keys_with(patch: &Fields, prefix: &str) -> Vec<String> {
    patch.keys().filter(|key| key.starts_with(prefix)).cloned().collect()
}

/// The field that a directive such as `$setElementOrder/containers` is about.
fn field_of<'d>(directive: &'d str, prefix: &str, malformed: &str) -> Result<&'d str, PatchError> {
    match directive.split_once('/') {
        Some((name, field)) if name == prefix => Ok(field),
        _ => Err(PatchError::BadRequest(malformed.to_owned())),
    }
}

fn unknown_directive(directive: &Value, fields: &Fields) -> PatchError {
    let shown = match directive {
        Value::Null => "%!s(<nil>)".to_owned(),
        Value::Bool(_) => format!("%!s(bool={directive})"),
        Value::Number(number) => format!("%!s({}={})", go_type(directive), number_text(number)),
        Value::String(_) | Value::Array(_) | Value::Object(_) => value_text(directive),
    };
    let fields = value_text(&Value::Object(fields.clone()));
    PatchError::Unforeseen(format!("unknown patch type: {shown} in map: {fields}"))
}

#[cfg(test)]
mod tests;
