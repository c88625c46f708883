//! Defaults in schemas: they keep to their own schema, so that they can be filled in.
//!
//! Checked are types, bounds, enumerations, required and unknown fields; patterns, formats, combinations and rules are not.

use serde_json::Value;
use setpoint_api::{BadValue, FieldError, Path};

use crate::edit::Edit;
use crate::errors::Errors;
use crate::node::Node;

/// What is wrong with the defaults in a schema.
pub(super) fn violations(root: &Node<'_>) -> Vec<FieldError> {
    let mut errs = Errors::new();
    walk(root, &mut errs);
    errs.into_vec()
}

fn walk(schema: &Node<'_>, errs: &mut Errors) {
    let default = schema.get("default");
    if let Some(value) = default.value() {
        if has_unknown(value, schema.json()) {
            errs.invalid(&default, BadValue::json(value), "must not have unknown fields");
        }
        check(&default.path(), "", value, schema.json(), errs);
    }
    let items = schema.get("items");
    if items.json().is_object() {
        walk(&items, errs);
    }
    for (_, property) in schema.entries("properties") {
        walk(&property, errs);
    }
}

/// Whether a value has fields that would be pruned.
fn has_unknown(value: &Value, schema: &Value) -> bool {
    if schema.flag("x-kubernetes-preserve-unknown-fields") {
        return false;
    }
    match value {
        Value::Object(fields) => fields.iter().any(|(name, inner)| {
            let is_meta = schema.flag("x-kubernetes-embedded-resource")
                && matches!(name.as_str(), "metadata" | "kind" | "apiVersion");
            match (schema["properties"].get(name), schema.get("additionalProperties")) {
                (Some(property), _) => has_unknown(inner, property),
                (None, Some(Value::Bool(allowed))) => !allowed,
                (None, Some(additional)) => has_unknown(inner, additional),
                (None, None) => !is_meta,
            }
        }),
        Value::Array(items) => items.iter().any(|item| has_unknown(item, &schema["items"])),
        _ => false,
    }
}

/// The rules of a schema for one value, in the words of upstream's validator.
fn check(path: &str, name: &str, value: &Value, schema: &Value, errs: &mut Errors) {
    let at = if name.is_empty() { path.to_owned() } else { format!("{path}.{name}") };
    if value.is_null() && schema.flag("nullable") {
        return;
    }
    if !fits(value, schema) {
        let found = type_of(value);
        let detail = format!("{name} in body must be of type {}: \"{found}\"", schema.text("type"));
        return errs.push(FieldError::type_invalid(&Path::nil(), found, detail).at(at));
    }
    check_enum(&at, value, schema, errs);
    match value {
        Value::Number(number) => check_bounds(&at, name, number.as_f64().unwrap_or(0.0), value, schema, errs),
        Value::String(text) => check_length(&at, name, text, schema, errs),
        Value::Array(items) => {
            check_count(&at, name, items.len(), schema, errs);
            for (index, item) in items.iter().enumerate() {
                check(path, &format!("{name}[{index}]"), item, &schema["items"], errs);
            }
        }
        Value::Object(fields) => {
            let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
            for missing in required.filter(|field| !fields.contains_key(*field)) {
                errs.push(FieldError::required(&Path::nil(), "").at(format!("{at}.{missing}")));
            }
            for (field, inner) in fields {
                let inside = if name.is_empty() { field.clone() } else { format!("{name}.{field}") };
                let own = schema["properties"].get(field).or(schema.get("additionalProperties"));
                if let Some(own) = own.filter(|own| own.is_object()) {
                    check(path, &inside, inner, own, errs);
                }
            }
        }
        _ => {}
    }
}

fn fits(value: &Value, schema: &Value) -> bool {
    if schema.flag("x-kubernetes-int-or-string") {
        return value.is_string() || value.is_i64() || value.is_u64();
    }
    match schema.text("type") {
        "integer" => value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => true,
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn check_enum(at: &str, value: &Value, schema: &Value, errs: &mut Errors) {
    let Some(allowed) = schema["enum"].as_array().filter(|allowed| !allowed.contains(value)) else { return };
    let allowed: Vec<String> =
        allowed.iter().map(|one| one.as_str().map_or_else(|| one.to_string(), str::to_owned)).collect();
    errs.push(FieldError::not_supported(&Path::nil(), value, &allowed).at(at));
}

fn check_bounds(at: &str, name: &str, number: f64, value: &Value, schema: &Value, errs: &mut Errors) {
    let mut complain = |detail: String| errs.push(FieldError::invalid(&Path::nil(), value, detail).at(at));
    if let Some(max) = schema["maximum"].as_f64() {
        match schema.flag("exclusiveMaximum") {
            true if number >= max => complain(format!("{name} in body should be less than {max}")),
            false if number > max => complain(format!("{name} in body should be less than or equal to {max}")),
            _ => {}
        }
    }
    if let Some(min) = schema["minimum"].as_f64() {
        match schema.flag("exclusiveMinimum") {
            true if number <= min => complain(format!("{name} in body should be greater than {min}")),
            false if number < min => complain(format!("{name} in body should be greater than or equal to {min}")),
            _ => {}
        }
    }
    if let Some(factor) = schema["multipleOf"].as_f64().filter(|factor| *factor > 0.0)
        && (number / factor).fract() != 0.0
    {
        complain(format!("{name} in body should be a multiple of {factor}"));
    }
}

fn check_length(at: &str, name: &str, text: &str, schema: &Value, errs: &mut Errors) {
    let length = text.chars().count() as i64;
    if let Some(max) = schema.number("maxLength").filter(|max| length > *max) {
        errs.push(FieldError::too_long(&Path::nil(), usize::try_from(max).unwrap_or(0)).at(at));
    }
    if let Some(min) = schema.number("minLength").filter(|min| length < *min) {
        let detail = format!("{name} in body should be at least {min} chars long");
        errs.push(FieldError::invalid(&Path::nil(), text, detail).at(at));
    }
}

fn check_count(at: &str, name: &str, count: usize, schema: &Value, errs: &mut Errors) {
    if let Some(max) = schema.number("maxItems").filter(|max| count as i64 > *max) {
        errs.push(FieldError::too_many(&Path::nil(), Some(count), usize::try_from(max).unwrap_or(0)).at(at));
    }
    if let Some(min) = schema.number("minItems").filter(|min| (count as i64) < *min) {
        let detail = format!("{name} in body should have at least {min} items");
        errs.push(FieldError::invalid(&Path::nil(), count as i64, detail).at(at));
    }
}
