//! Whole objects inside of custom objects: their metadata is that of every object.

use std::sync::LazyLock;

use serde_json::{Map, Value};
use setpoint_api::{BadValue, FieldError, Path, name};

use super::tree::Place;
use crate::decode::{DecodeError, decode};
use crate::edit::Edit;
use crate::errors::Errors;
use crate::facts;
use crate::json::Json;
use crate::metadata;
use crate::name_rule::NameRule;
use crate::node::Node;
use crate::types::TypeRef;

static OBJECT_META: LazyLock<TypeRef<'static>> =
    LazyLock::new(|| facts::type_named("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta").expect("a built-in type"));

/// Brings the metadata of an object into its usual form. Gives the unknown fields that it had, with their paths.
pub(super) fn read_metadata(object: &mut Map<String, Value>, path: &str) -> Result<Vec<String>, DecodeError> {
    let Some(found) = object.get_mut("metadata") else { return Ok(Vec::new()) };
    let decoded = decode(Json::from(found.clone()), *OBJECT_META)?;
    *found = decoded.value;
    let unknown = decoded.strict.iter().filter_map(|complaint| {
        let inside = complaint.strip_prefix("unknown field \"")?.strip_suffix('"')?;
        Some(format!("{path}{inside}"))
    });
    Ok(unknown.collect())
}

/// Brings the metadata of all embedded objects into its usual form. Gives unknown fields, sorted.
pub(super) fn coerce(object: &mut Value, root: Place<'_>) -> Result<Vec<String>, FieldError> {
    let mut unknown = Vec::new();
    if root.node().below.embedded {
        coerce_inside(object, root, "", &mut unknown)?;
    }
    unknown.sort_unstable();
    Ok(unknown)
}

fn coerce_inside(value: &mut Value, place: Place<'_>, path: &str, unknown: &mut Vec<String>) -> Result<(), FieldError> {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields.iter_mut() {
                let (inner, path) = match (place.field(name), place.additional()) {
                    (Some(inner), _) => (inner, child(path, name)),
                    (None, Some(inner)) => (inner, format!("{path}[{name}]")),
                    (None, None) => continue,
                };
                coerce_value(value, inner, &path, unknown)?;
            }
        }
        Value::Array(items) => {
            let Some(inner) = place.item() else { return Ok(()) };
            for (index, item) in items.iter_mut().enumerate() {
                coerce_value(item, inner, &format!("{path}[{index}]"), unknown)?;
            }
        }
        _ => {}
    }
    Ok(())
}

fn coerce_value(value: &mut Value, place: Place<'_>, path: &str, unknown: &mut Vec<String>) -> Result<(), FieldError> {
    if !place.node().below.embedded {
        return Ok(());
    }
    if let (true, Some(object)) = (place.node().embedded, value.as_object_mut()) {
        for field in ["apiVersion", "kind"] {
            if let Some(found) = object.get(field).filter(|found| !found.is_string()) {
                return Err(FieldError::invalid(&Path::nil(), found, "must be a string").at(child(path, field)));
            }
        }
        let given = object.get("metadata").cloned();
        match read_metadata(object, &format!("{path}.metadata.")) {
            Ok(found) => unknown.extend(found),
            Err(error) => {
                let shown = BadValue::from(&given.unwrap_or_default());
                return Err(FieldError::invalid(&Path::nil(), shown, error.to_string()).at(child(path, "metadata")));
            }
        }
    }
    coerce_inside(value, place, path, unknown)
}

/// The rules for embedded objects: they say what they are, and their metadata is valid.
pub(super) fn validate(object: &Value, root: Place<'_>, errs: &mut Errors) {
    if root.node().below.embedded {
        validate_inside(object, root, "", errs);
    }
}

fn validate_inside(value: &Value, place: Place<'_>, path: &str, errs: &mut Errors) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match (place.field(name), place.additional()) {
                    (Some(inner), _) => validate_value(value, inner, &child(path, name), errs),
                    (None, Some(inner)) => validate_value(value, inner, &format!("{path}[{name}]"), errs),
                    (None, None) => {}
                }
            }
        }
        Value::Array(items) => {
            let Some(inner) = place.item() else { return };
            for (index, item) in items.iter().enumerate() {
                validate_value(item, inner, &format!("{path}[{index}]"), errs);
            }
        }
        _ => {}
    }
}

fn validate_value(value: &Value, place: Place<'_>, path: &str, errs: &mut Errors) {
    if !place.node().below.embedded {
        return;
    }
    if let (true, Some(object)) = (place.node().embedded, value.as_object()) {
        validate_object(value, object, path, errs);
    }
    validate_inside(value, place, path, errs);
}

fn validate_object(value: &Value, object: &Map<String, Value>, path: &str, errs: &mut Errors) {
    for field in ["apiVersion", "kind"].into_iter().filter(|field| !object.contains_key(*field)) {
        errs.push(FieldError::required(&Path::nil(), "").at(child(path, field)));
    }
    let mut complain = |field: &str, detail: String| {
        errs.push(FieldError::invalid(&Path::nil(), &object[field], detail).at(child(path, field)));
    };
    match object.get("apiVersion").map(Value::as_str) {
        None => {}
        Some(None) => complain("apiVersion", "must be a string".to_owned()),
        Some(Some("")) => complain("apiVersion", "must not be empty".to_owned()),
        Some(Some(version)) if version.matches('/').count() > 1 => {
            complain("apiVersion", format!("unexpected GroupVersion string: {version}"));
        }
        Some(Some(_)) => {}
    }
    match object.get("kind").map(Value::as_str) {
        None => {}
        Some(None) => complain("kind", "must be a string".to_owned()),
        Some(Some("")) => complain("kind", "must not be empty".to_owned()),
        Some(Some(kind)) => {
            let complaints = name::dns1035_label(&kind.to_lowercase());
            if !complaints.is_empty() {
                let rest = complaints.join(",");
                complain("kind", format!("may have mixed case, but should otherwise match: {rest}"));
            }
        }
    }
    if object.contains_key("metadata") {
        validate_metadata(value, path, errs);
    }
}

/// The rules for any metadata; a name may be absent here.
fn validate_metadata(value: &Value, path: &str, errs: &mut Errors) {
    let Some(meta) = facts::kind_type("v1", "ConfigMap") else { return };
    let mut named = serde_json::json!({"metadata": value["metadata"]});
    named["metadata"].default_to("name", "fakename");
    let namespaced = named["metadata"].has("namespace");
    let mut found = Errors::new();
    metadata::validate_generic(&Node::root(&named, meta), namespaced, NameRule::PATH_SEGMENT, &mut found);
    errs.extend(found.into_vec().into_iter().map(|error| {
        let at = child(path, &error.field);
        error.at(at)
    }));
}

/// The path of a field.
pub(super) fn child(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}
