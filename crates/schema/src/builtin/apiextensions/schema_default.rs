//! Defaults in schemas: they keep to their own schema, so that they can be filled in.
//!
//! They are checked as objects are, but for rules in CEL.

use serde_json::Value;
use setpoint_api::{BadValue, FieldError};

use crate::custom;
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
        errs.extend(custom::violations(value, schema.json(), &default.path()));
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn violations_of(schema: Value) -> Vec<String> {
        violations(&Node::untyped(&schema).at("s")).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn defaults_keep_to_all_that_objects_keep_to() {
        let spec = json!({"type": "object", "properties": {
            "a": {"type": "string", "format": "date", "default": "a"},
            "b": {"type": "string", "pattern": "^b$", "default": "a"},
            "c": {"type": "integer", "enum": [1], "multipleOf": 2, "default": 7},
            "d": {"type": "object", "default": {}, "required": ["x"], "properties": {"x": {"type": "string"}}},
        }});
        assert_eq!(
            violations_of(spec),
            [
                "s.properties[a].default: Invalid value: \"a\":  in body must be of type date: \"a\"",
                "s.properties[b].default: Invalid value: \"a\":  in body should match '^b$'",
                "s.properties[c].default: Invalid value: 7:  in body should be a multiple of 2",
                "s.properties[c].default: Unsupported value: 7: supported values: \"1\"",
                "s.properties[d].default.x: Required value",
            ]
        );
    }
}
