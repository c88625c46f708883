//! The schemas of custom kinds, as their definitions give them: with all their rules, which the types don't keep.

use serde_json::{Map, Value, json};
use setpoint_schema::{Edit, facts};

use super::definitions::Dialect;

const METADATA: &str = "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";
const EMBEDDED_VERSION: &str = "apiVersion defines the versioned schema of this representation of an object. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources";
const EMBEDDED_KIND: &str = "kind is a string value representing the type of this object. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";

const INT_OR_STRING: &str = "x-kubernetes-int-or-string";
const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
const EMBEDDED: &str = "x-kubernetes-embedded-resource";

/// What objects of a version look like. `metadata` refers to the schema of metadata.
pub(super) fn schema(definition: &Value, version: &str, dialect: Dialect, metadata: &Value) -> Value {
    let versions = definition.find(&["spec", "versions"]).and_then(Value::as_array);
    let found = versions.into_iter().flatten().find(|found| found.text("name") == version);
    let given = found.and_then(|found| found.find(&["schema", "openAPIV3Schema"]));
    let mut schema = match given {
        Some(given) if dialect == Dialect::V3 || !given.flag(PRESERVE) => {
            let scribe = Scribe { dialect, metadata };
            let mut schema = scribe.rewrite(given);
            let properties = schema.ensure("properties");
            properties.set("metadata", scribe.metadata());
            for name in ["apiVersion", "kind"] {
                properties.set(name, json!({"type": "string", "description": about_type(name)}));
            }
            schema
        }
        // Clients would refuse unknown fields beside any known ones.
        _ => json!({"type": "object"}),
    };
    if let Some(fields) = found.and_then(|found| found.get("selectableFields")).and_then(Value::as_array) {
        let paths = fields.iter().map(|field| field.text("jsonPath").trim_start_matches('.'));
        schema.set("x-kubernetes-selectable-fields", paths.map(|path| json!({"fieldPath": path})).collect::<Vec<_>>());
    }
    schema
}

/// What all kinds say of their version and kind.
pub(super) fn about_type(name: &str) -> &'static str {
    let namespaces = facts::kind_type("v1", "Namespace").expect("a built-in kind");
    namespaces.field(name).map_or("", |field| field.published.description)
}

struct Scribe<'a> {
    dialect: Dialect,
    metadata: &'a Value,
}

impl Scribe<'_> {
    fn rewrite(&self, given: &Value) -> Value {
        let Some(given) = given.as_object() else { return given.clone() };
        let mut schema = given.clone();
        if self.dialect == Dialect::V2 {
            simplify(&mut schema, given);
        } else if given.get(INT_OR_STRING) == Some(&Value::Bool(true)) {
            unfold(&mut schema);
        }
        if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
            properties.values_mut().for_each(|property| *property = self.rewrite(property));
        }
        for name in ["items", "additionalProperties"] {
            if let Some(inner) = schema.get_mut(name).filter(|inner| inner.is_object()) {
                *inner = self.rewrite(inner);
            }
        }
        let mut schema = Value::Object(schema);
        if schema.flag(EMBEDDED) && !(self.dialect == Dialect::V2 && schema.flag(PRESERVE)) {
            self.embed(&mut schema);
        }
        schema
    }

    /// An object within the object has what all objects have.
    fn embed(&self, schema: &mut Value) {
        let properties = schema.ensure("properties");
        properties.set("apiVersion", json!({"type": "string", "description": EMBEDDED_VERSION}));
        properties.set("kind", json!({"type": "string", "description": EMBEDDED_KIND}));
        properties.set("metadata", self.metadata());
        let mut required = schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
        for name in ["kind", "apiVersion"] {
            if !required.iter().any(|known| known == name) {
                required.push(json!(name));
            }
        }
        schema.set("required", required);
    }

    fn metadata(&self) -> Value {
        let mut value = match self.dialect {
            Dialect::V2 => self.metadata.clone(),
            // What stands beside a reference is ignored.
            Dialect::V3 => json!({"allOf": [self.metadata]}),
        };
        value.set("description", METADATA);
        value
    }
}

/// Says in full what a number or a string is, where the definition only marks it.
fn unfold(schema: &mut Map<String, Value>) {
    let both = json!([{"type": "integer"}, {"type": "string"}]);
    let is_told = |schema: &Map<String, Value>| schema.get("anyOf") == Some(&both);
    let all = schema.get("allOf").and_then(Value::as_array);
    let first = all.and_then(|all| all.first()).and_then(Value::as_object);
    if is_told(schema) || first.is_some_and(is_told) {
        return;
    }
    if schema.contains_key("anyOf") {
        let mut all = all.cloned().unwrap_or_default();
        all.insert(0, json!({"anyOf": both}));
        schema.insert("allOf".to_owned(), Value::Array(all));
    } else {
        schema.insert("anyOf".to_owned(), both);
    }
}

/// Leaves out what version 2 has no words for, and what its readers misunderstand.
fn simplify(schema: &mut Map<String, Value>, given: &Map<String, Value>) {
    let is = |schema: &Map<String, Value>, name: &str| schema.get(name) == Some(&Value::Bool(true));
    for name in ["allOf", "oneOf", "anyOf", "not"] {
        schema.remove(name);
    }
    if is(given, "nullable") {
        for name in ["nullable", "type", "items", "properties"] {
            schema.remove(name);
        }
    }
    if is(given, PRESERVE) {
        schema.remove("items");
        schema.remove("properties");
    }
    let ty = schema.get("type").and_then(Value::as_str).unwrap_or("").to_owned();
    if ty == "array" && !schema.contains_key("items") || ty == "object" && is(given, PRESERVE) {
        schema.remove("type");
    }
    let nullable = |name: &str| {
        let property = given.get("properties").and_then(|properties| properties.get(name));
        property.and_then(Value::as_object).is_some_and(|property| is(property, "nullable"))
    };
    if let Some(required) = schema.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|name| !name.as_str().is_some_and(nullable));
        if required.is_empty() {
            schema.remove("required");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(dialect: Dialect, field: Value, expected: Value) {
        let given = json!({"type": "object", "properties": {"f": field}, "required": ["f"]});
        let version = json!({"name": "v1", "schema": {"openAPIV3Schema": given}});
        let definition = json!({"spec": {"versions": [version]}});
        let found = schema(&definition, "v1", dialect, &json!({"$ref": "#/m"}));
        assert_eq!(found["properties"]["f"], expected);
        assert_eq!(found["properties"]["apiVersion"]["type"], "string");
    }

    #[test]
    fn version_three_has_all_that_the_definition_says() {
        let field =
            json!({"type": "string", "pattern": "a", "nullable": true, "x-kubernetes-validations": [{"rule": "true"}]});
        check(Dialect::V3, field.clone(), field);
        let both = json!([{"type": "integer"}, {"type": "string"}]);
        check(Dialect::V3, json!({INT_OR_STRING: true}), json!({INT_OR_STRING: true, "anyOf": both}));
    }

    #[test]
    fn version_two_has_what_its_readers_understand() {
        check(Dialect::V2, json!({"type": "array", "nullable": true, "items": {"type": "string"}}), json!({}));
        check(Dialect::V2, json!({"type": "object", PRESERVE: true}), json!({PRESERVE: true}));
        check(Dialect::V2, json!({"type": "string", "anyOf": [{"minLength": 1}]}), json!({"type": "string"}));
    }

    #[test]
    fn an_object_within_has_what_all_objects_have() {
        let version = json!({"name": "v1", "schema": {"openAPIV3Schema": {"type": "object", "properties": {
            "f": {"type": "object", EMBEDDED: true}
        }}}});
        let definition = json!({"spec": {"versions": [version]}});
        let found = schema(&definition, "v1", Dialect::V3, &json!({"$ref": "#/m"}));
        assert_eq!(found["properties"]["f"]["required"], json!(["kind", "apiVersion"]));
        assert_eq!(found["properties"]["f"]["properties"]["metadata"]["allOf"], json!([{"$ref": "#/m"}]));
        assert_eq!(found["properties"]["metadata"]["description"], METADATA);
    }
}
