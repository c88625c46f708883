//! Defaults in schemas: they keep to their own schema, so that they can be filled in.

use serde_json::Value;
use setpoint_api::{BadValue, FieldError};

use crate::cel::Budget;
use crate::custom;
use crate::edit::Edit;
use crate::errors::Errors;
use crate::node::Node;

/// What is wrong with the defaults in a schema.
pub(super) fn violations(root: &Node<'_>) -> Vec<FieldError> {
    let mut errs = Errors::new();
    walk(root, &mut Budget::full(), &mut errs);
    errs.into_vec()
}

fn walk(schema: &Node<'_>, budget: &mut Budget, errs: &mut Errors) {
    let default = schema.get("default");
    if let Some(value) = default.value() {
        if has_unknown(value, schema.json()) {
            errs.invalid(&default, BadValue::json(value), "must not have unknown fields");
        }
        errs.extend(custom::violations(value, schema.json(), &default.path(), budget));
    }
    let items = schema.get("items");
    if items.json().is_object() {
        walk(&items, budget, errs);
    }
    for (_, property) in schema.entries("properties") {
        walk(&property, budget, errs);
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

    #[test]
    fn defaults_keep_to_rules_in_cel_as_what_stays_and_as_what_is_new() {
        let rules = |rule: &str, more: Value| {
            let mut one = json!({"rule": rule, "message": "no"});
            more.as_object().unwrap().iter().for_each(|(name, value)| one[name] = value.clone());
            json!([one])
        };
        let field = |rule: &str, more: Value| {
            let validations = rules(rule, more);
            json!({"type": "integer", "default": 3, "x-kubernetes-validations": validations})
        };
        let new = json!({"optionalOldSelf": true});
        let inside = json!({"type": "object", "default": {"x": 1}, "properties": {
            "x": {"type": "integer", "x-kubernetes-validations": rules("self > 1", json!({}))},
        }});
        let wrong = json!({"type": "integer", "maximum": 1, "default": 3, "x-kubernetes-validations": rules("false", json!({}))});
        let spec = json!({"type": "object", "properties": {
            "a": field("self > 2", json!({})),
            "b": field("self > 3", json!({})),
            "c": field("self == oldSelf", json!({})),
            "d": field("oldSelf.hasValue()", new.clone()),
            "e": field("!oldSelf.hasValue()", new),
            "f": inside,
            "g": wrong,
        }});
        assert_eq!(
            violations_of(spec),
            [
                "s.properties[b].default: Invalid value: 3: no",
                "s.properties[d].default: Invalid value: 3: no",
                "s.properties[e].default: Invalid value: 3: no",
                "s.properties[f].default.x: Invalid value: 1: no",
                "s.properties[g].default: Invalid value: 3:  in body should be less than or equal to 1",
            ]
        );
    }

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
