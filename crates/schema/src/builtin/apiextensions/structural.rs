//! Structural schemas: every field has one type, which stands outside of `allOf`, `anyOf`, `oneOf` and `not`.

use serde_json::{Value, json};
use setpoint_api::FieldError;

use crate::edit::Edit;
use crate::errors::Errors;
use crate::node::Node;
use crate::regexp::Regexp;

/// What `allOf`, `anyOf`, `oneOf` and `not` may not say, and how it is refused.
const FORBIDDEN_INSIDE: &[(&str, &str)] = &[
    ("type", "must be empty to be structural"),
    ("additionalProperties", "must be undefined to be structural"),
    ("default", "must be undefined to be structural"),
    ("title", "must be empty to be structural"),
    ("description", "must be empty to be structural"),
    ("nullable", "must be false to be structural"),
    ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
    ("x-kubernetes-embedded-resource", "must be false to be structural"),
    ("x-kubernetes-int-or-string", "must be false to be structural"),
    ("x-kubernetes-list-map-keys", "must be empty to be structural"),
    ("x-kubernetes-list-type", "must be undefined to be structural"),
    ("x-kubernetes-map-type", "must be undefined to be structural"),
    ("x-kubernetes-validations", "must be empty to be structural"),
];

/// Where a schema stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// What keeps a schema from being structural, sorted by message as upstream does.
pub(super) fn violations(root: &Node<'_>) -> Vec<FieldError> {
    let mut errs = Errors::new();
    invariants(root, Level::Root, &mut errs);
    completeness(root, root, root, &mut errs);
    let mut found = errs.into_vec();
    found.sort_by_key(ToString::to_string);
    found
}

/// Why a schema can't even be brought into structural form; the rules for schemas tell most of it in better words.
pub(super) fn obstacle(schema: &Value) -> Option<String> {
    for (field, shown) in [
        ("id", "id"),
        ("$schema", "schema"),
        ("$ref", "$ref"),
        ("patternProperties", "patternProperties"),
        ("dependencies", "dependencies"),
        ("additionalItems", "additionalItems"),
        ("definitions", "definitions"),
    ] {
        if is_given(schema, field) {
            return Some(format!("OpenAPIV3Schema '{shown}' is not supported"));
        }
    }
    if schema.get("x-kubernetes-preserve-unknown-fields") == Some(&json!(false)) {
        return Some("internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined".to_owned());
    }
    if schema["items"].is_array() {
        return Some("OpenAPIV3Schema 'items' must be a schema, but is an array".to_owned());
    }
    super::schema::children(schema).find_map(obstacle)
}

fn invariants(schema: &Node<'_>, level: Level, errs: &mut Errors) {
    let (ty, items) = (schema.str("type"), schema.get("items"));
    if ty == "array" && !items.is_set() {
        errs.required(&items, "must be specified");
    }
    if items.is_set() {
        invariants(&items, Level::Item, errs);
    }
    for (_, property) in schema.entries("properties") {
        invariants(&property, Level::Field, errs);
    }
    let additional = schema.get("additionalProperties");
    if additional.is_set() && level == Level::Root {
        errs.forbidden(&additional, "must not be used at the root");
    }
    if additional.json().is_object() {
        invariants(&additional, Level::Field, errs);
    }
    let extension = |name: &'static str| schema.json().flag(name);
    let embedded = extension("x-kubernetes-embedded-resource");
    let preserves = extension("x-kubernetes-preserve-unknown-fields");
    let int_or_string = extension("x-kubernetes-int-or-string");
    for (name, set) in
        [("x-kubernetes-preserve-unknown-fields", preserves), ("x-kubernetes-embedded-resource", embedded)]
    {
        if int_or_string && set {
            errs.invalid_here(&schema.get(name), "must be false if x-kubernetes-int-or-string is true");
        }
    }
    let skip = if is_int_or_string(&schema.json()["anyOf"]) {
        Skip::AnyOf
    } else if is_int_or_string(&schema.json()["allOf"][0]["anyOf"]) {
        Skip::FirstAllOf
    } else {
        Skip::Nothing
    };
    value_rules(schema, skip, errs);
    validate_type(schema, level, embedded, int_or_string || preserves, errs);
    if embedded && additional.is_set() {
        errs.forbidden(&additional, "must not be used if x-kubernetes-embedded-resource is set");
    }
    if level == Level::Root && !ty.is_empty() && ty != "object" {
        errs.invalid_here(&schema.get("type"), "must be object at the root");
    }
    validate_metadata(schema, level, embedded, errs);
    if embedded && !preserves && schema.count("properties") == 0 {
        let detail =
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        errs.required(&schema.get("properties"), detail);
    }
}

fn validate_type(schema: &Node<'_>, level: Level, embedded: bool, may_be_absent: bool, errs: &mut Errors) {
    let ty = schema.get("type");
    if embedded && ty.as_str() != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        if ty.is_empty() { errs.required(&ty, detail) } else { errs.invalid_here(&ty, detail) }
    } else if ty.is_empty() && !may_be_absent {
        errs.required(
            &ty,
            match level {
                Level::Root => "must not be empty at the root",
                Level::Item => "must not be empty for specified array items",
                Level::Field => "must not be empty for specified object fields",
            },
        );
    }
}

/// Metadata is known; a schema may restrict names and nothing else.
fn validate_metadata(schema: &Node<'_>, level: Level, embedded: bool, errs: &mut Errors) {
    let properties = schema.get("properties");
    let checked = level == Level::Root || embedded;
    for field in ["kind", "apiVersion"] {
        let property = properties.entry(field);
        if checked && property.is_set() && property.str("type") != "string" {
            errs.invalid(&property.get("type"), property.str("type"), "must be string");
        }
    }
    let metadata = properties.entry("metadata");
    if !metadata.is_set() {
        return;
    }
    if checked && metadata.str("type") != "object" {
        errs.invalid(&metadata.get("type"), metadata.str("type"), "must be object");
    }
    if level == Level::Root && !only_restricts_names(metadata.json()) {
        let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        errs.forbidden(&metadata, detail);
    }
}

fn only_restricts_names(metadata: &Value) -> bool {
    let names = |properties: &Value| {
        let fields = properties.as_object();
        fields.is_some_and(|fields| fields.keys().all(|name| name == "name" || name == "generateName"))
    };
    metadata.as_object().into_iter().flatten().all(|(field, value)| match field.as_str() {
        "type" | "default" => true,
        "properties" => names(value),
        _ => !is_something(value),
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Skip {
    Nothing,
    AnyOf,
    FirstAllOf,
}

/// `integer` or `string`, which is how a schema says that a value may be both.
fn is_int_or_string(any_of: &Value) -> bool {
    *any_of == json!([{"type": "integer"}, {"type": "string"}])
}

fn value_rules(schema: &Node<'_>, skip: Skip, errs: &mut Errors) {
    if skip != Skip::AnyOf {
        schema.items("anyOf").for_each(|inner| nested_rules(&inner, Skip::Nothing, errs));
    }
    for (index, inner) in schema.items("allOf").enumerate() {
        let skip = if index == 0 && skip == Skip::FirstAllOf { Skip::AnyOf } else { Skip::Nothing };
        nested_rules(&inner, skip, errs);
    }
    schema.items("oneOf").for_each(|inner| nested_rules(&inner, Skip::Nothing, errs));
    let not = schema.get("not");
    if not.is_set() {
        nested_rules(&not, Skip::Nothing, errs);
    }
    let at = schema.get("pattern");
    if !at.is_empty()
        && let Err(complaint) = Regexp::new(at.as_str())
    {
        errs.invalid_here(&at, format!("must be a valid regular expression, but isn't: {complaint}"));
    }
}

fn nested_rules(schema: &Node<'_>, skip: Skip, errs: &mut Errors) {
    value_rules(schema, skip, errs);
    let items = schema.get("items");
    if items.is_set() {
        nested_rules(&items, Skip::Nothing, errs);
    }
    for (_, property) in schema.entries("properties") {
        nested_rules(&property, Skip::Nothing, errs);
    }
    for (field, detail) in FORBIDDEN_INSIDE {
        if is_given(schema.json(), field) {
            errs.forbidden(&schema.get(field), *detail);
        }
    }
    let metadata = schema.get("properties").entry("metadata");
    if metadata.is_set() {
        errs.forbidden(&metadata, "must not be specified in a nested context");
    }
}

/// That every field that `allOf` and the like speak of is there outside of them.
fn completeness(rules: &Node<'_>, outside: &Node<'_>, outside_at: &Node<'_>, errs: &mut Errors) {
    let not = rules.get("not");
    if not.is_set() {
        nested_completeness(&not, outside, outside_at, errs);
    }
    for field in ["allOf", "anyOf", "oneOf"] {
        for inner in rules.items(field) {
            nested_completeness(&inner, outside, outside_at, errs);
        }
    }
}

fn nested_completeness(rules: &Node<'_>, outside: &Node<'_>, outside_at: &Node<'_>, errs: &mut Errors) {
    if !outside.is_set() {
        return errs.required(outside_at, format!("because it is defined in {}", rules.path()));
    }
    completeness(rules, outside, outside_at, errs);
    let items = rules.get("items");
    if items.is_set() {
        nested_completeness(&items, &outside.get("items"), &outside_at.get("items"), errs);
    }
    for (name, property) in rules.entries("properties") {
        let own = outside.json()["properties"].get(name);
        let at = outside_at.at(format!("{}.properties[{name}]", outside_at.path()));
        match own {
            Some(value) => {
                let own = Node::untyped(value).at(at.path());
                nested_completeness(&property, &own, &own, errs);
            }
            None => errs.required(&at, format!("because it is defined in {}", property.path())),
        }
    }
}

fn is_given(schema: &Value, field: &str) -> bool {
    schema.get(field).is_some_and(is_something) || (field == "default" && schema.has(field))
}

/// Not what Go calls the zero value.
fn is_something(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => true,
    }
}
