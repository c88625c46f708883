//! The rules for the schema of a version.

use std::sync::Arc;

use serde_json::Value;
use setpoint_api::BadValue;

use super::rule::{Costs, Place, validate_rules};
use super::{schema_default, structural};
use crate::cel::Declared;
use crate::edit::Edit;
use crate::errors::Errors;
use crate::internal_form;
use crate::node::Node;

const TYPES: &[&str] = &["array", "boolean", "integer", "number", "object", "string"];

/// Fields in Go's order that the root may not have beside a status subresource, whose schema is taken out of it.
const NOT_AT_ROOT: &[&str] = &[
    "id",
    "$schema",
    "$ref",
    "nullable",
    "default",
    "enum",
    "maxProperties",
    "minProperties",
    "allOf",
    "oneOf",
    "anyOf",
    "not",
    "additionalProperties",
    "patternProperties",
    "dependencies",
    "additionalItems",
    "definitions",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
];
const ALLOWED_AT_ROOT: &str = "[Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength \
     MinLength Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example \
     XPreserveUnknownFields XValidations]";

/// The rules for a schema and what holds it (`spec.validation`, `spec.versions[0].schema`).
pub(super) fn validate_schema(holder: &Node<'_>, has_status: bool, errs: &mut Errors) {
    let root = holder.get("openAPIV3Schema");
    if !root.is_set() {
        return;
    }
    let before = errs.len();
    if has_status {
        validate_beside_status(&root, errs);
    }
    if root.bool("nullable") {
        errs.forbidden(&root.get("nullable"), "nullable cannot be true at the root");
    }
    let obstacle = structural::obstacle(root.json());
    let mut sound = false;
    if obstacle.is_none() {
        let mut found = structural::violations(&root);
        if found.is_empty() {
            found = schema_default::violations(&root);
        }
        sound = found.is_empty();
        errs.extend(found);
    }
    let mut walk = Walk::default();
    let seen = (sound && has_rules(root.json())).then(|| Declared::root(root.json()));
    walk.schema(&root, &Surrounding::root(), seen.as_ref());
    errs.extend(walk.schema.into_vec());
    errs.extend(walk.rules.into_vec());
    walk.costs.validate(&root, errs);
    if let Some(obstacle) = obstacle.filter(|_| errs.len() == before) {
        errs.invalid(&root, "", obstacle);
    }
}

/// Whether a schema has a default anywhere.
pub(super) fn has_default(schema: &Value) -> bool {
    schema.has("default") || children(schema).any(has_default)
}

/// Whether a schema has a rule anywhere.
fn has_rules(schema: &Value) -> bool {
    schema.has("x-kubernetes-validations") || children(schema).any(has_rules)
}

/// All schemas directly inside a schema.
pub(super) fn children(schema: &Value) -> impl Iterator<Item = &Value> {
    let single = ["items", "not", "additionalProperties", "additionalItems"];
    let lists = ["items", "allOf", "anyOf", "oneOf"];
    let maps = ["properties", "patternProperties", "definitions", "dependencies"];
    let single = single.into_iter().filter_map(|field| schema.get(field)).filter(|inner| inner.is_object());
    let lists = lists.into_iter().filter_map(|field| schema.get(field)?.as_array()).flatten();
    let maps = maps.into_iter().filter_map(|field| schema.get(field)?.as_object()).flat_map(|fields| fields.values());
    single.chain(lists).chain(maps).filter(|inner| inner.is_object())
}

fn validate_beside_status(root: &Node<'_>, errs: &mut Errors) {
    let early = NOT_AT_ROOT.iter().take(3).find(|field| root.json().has(field));
    let ty = root.get("type");
    if early.is_none() && !ty.is_empty() && ty.as_str() != "object" {
        let detail =
            "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
        return errs.invalid_here(&ty, detail);
    }
    if NOT_AT_ROOT.iter().any(|field| root.json().has(field)) {
        let shown = BadValue::Json(internal_form::compact(root.value(), root.ty()));
        let detail = format!(
            "only {ALLOWED_AT_ROOT} fields are allowed at the root of the schema if the status subresource is enabled"
        );
        errs.invalid(root, shown, detail);
    }
}

/// What the place of a schema means for it.
#[derive(Debug, Clone)]
pub(super) struct Surrounding {
    is_root: bool,
    /// Why defaults are not allowed here.
    no_defaults: Option<String>,
    inside_metadata: bool,
    /// The place around this one whose old and new parts can't be told to be the same.
    pub(super) uncorrelated: Option<String>,
    /// How often values of this schema may be in one object, if the schemas around it tell.
    pub(super) cardinality: Option<u64>,
}

impl Surrounding {
    fn root() -> Self {
        Self { is_root: true, no_defaults: None, inside_metadata: false, uncorrelated: None, cardinality: Some(1) }
    }

    fn inside(&self) -> Self {
        Self { is_root: false, ..self.clone() }
    }

    /// Inside a schema whose values may hold many.
    fn inside_of(&self, schema: &Value) -> Self {
        let limit = |field: &str| schema.get(field).and_then(Value::as_i64).map(|most| most.max(0).unsigned_abs());
        let factor = match schema.text("type") {
            "object" if schema.has("additionalProperties") => limit("maxProperties"),
            "array" => limit("maxItems"),
            _ => Some(1),
        };
        let cardinality = self.cardinality.zip(factor).map(|(own, factor)| own.saturating_mul(factor));
        Self { cardinality, ..self.inside() }
    }
}

/// What was found; what is wrong with rules is told after all else.
#[derive(Debug, Default)]
struct Walk {
    schema: Errors,
    rules: Errors,
    costs: Costs,
}

impl Walk {
    /// `seen` is what rules see of values here, where they can be compiled.
    fn schema(&mut self, schema: &Node<'_>, here: &Surrounding, seen: Option<&Arc<Declared>>) {
        let before = self.schema.len();
        validate_keywords(schema, here, &mut self.schema);
        self.additional(schema, here, seen);
        self.properties(schema, here, seen);
        let inside = here.inside();
        let not = schema.get("not");
        if not.is_set() {
            self.schema(&not, &inside, None);
        }
        for field in ["allOf", "oneOf", "anyOf"] {
            schema.items(field).for_each(|inner| self.schema(&inner, &inside, None));
        }
        schema.entries("definitions").for_each(|(_, inner)| self.schema(&inner, &inside, None));
        self.items(schema, here, seen);
        for (_, inner) in schema.entries("dependencies").filter(|(_, inner)| inner.json().is_object()) {
            self.schema(&inner, &inside, None);
        }
        validate_extensions(schema, &mut self.schema);
        let sound = self.schema.len() == before;
        let place = Place { around: here, seen: seen.filter(|seen| sound && seen.is_visible()) };
        validate_rules(schema, &place, &mut self.schema, &mut self.rules, &mut self.costs);
    }

    fn additional(&mut self, schema: &Node<'_>, here: &Surrounding, seen: Option<&Arc<Declared>>) {
        let additional = schema.get("additionalProperties");
        if !additional.is_set() {
            return;
        }
        if schema.count("properties") != 0 && additional.as_bool() != Some(true) {
            self.schema.forbidden(&additional, "additionalProperties and properties are mutual exclusive");
        }
        if additional.json().is_object() {
            let mut inside = here.inside_of(schema.json());
            if here.inside_metadata {
                inside.no_defaults = Some("inside additionalProperties applying to object metadata".to_owned());
            }
            self.schema(&additional, &inside, seen.and_then(|seen| seen.items()));
        }
    }

    fn properties(&mut self, schema: &Node<'_>, here: &Surrounding, seen: Option<&Arc<Declared>>) {
        let root = here.is_root || schema.json().flag("x-kubernetes-embedded-resource");
        for (name, property) in schema.entries("properties") {
            let mut inside = here.inside_of(schema.json());
            if schema.str("x-kubernetes-map-type") == "atomic" {
                inside.uncorrelated.get_or_insert_with(|| schema.path());
            }
            if root && matches!(name, "metadata" | "kind" | "apiVersion") {
                inside.inside_metadata = true;
                if here.is_root {
                    inside.no_defaults = Some(format!("in top-level {name}"));
                }
            }
            self.schema(&property, &inside, seen.and_then(|seen| seen.property(name)));
        }
    }

    fn items(&mut self, schema: &Node<'_>, here: &Surrounding, seen: Option<&Arc<Declared>>) {
        let items = schema.get("items");
        let mut inside = here.inside_of(schema.json());
        if schema.str("x-kubernetes-list-type") != "map" {
            inside.uncorrelated.get_or_insert_with(|| schema.path());
        }
        match items.json() {
            Value::Object(_) => self.schema(&items, &inside, seen.and_then(|seen| seen.items())),
            Value::Array(_) => items.into_items().for_each(|one| self.schema(&one, &inside, None)),
            _ => {}
        }
    }
}

fn validate_keywords(schema: &Node<'_>, here: &Surrounding, errs: &mut Errors) {
    let ty = schema.get("type");
    if !ty.is_empty() && !TYPES.contains(&ty.as_str()) {
        errs.not_supported(&ty, ty.as_str(), TYPES);
    }
    if let Some(reason) = here.no_defaults.as_ref().filter(|_| schema.has("default")) {
        errs.forbidden(&schema.get("default"), format!("must not be set {reason}"));
    }
    let given = |field: &'static str| Some(field).filter(|field| !Node::untyped(&schema.json()[*field]).is_empty());
    let present = |field: &'static str| Some(field).filter(|field| schema.json().has(field));
    let unsupported = [
        given("id"),
        present("additionalItems"),
        given("patternProperties"),
        given("definitions"),
        present("dependencies"),
        present("$ref"),
    ];
    for field in unsupported.into_iter().flatten() {
        errs.forbidden(&schema.get(field), format!("{field} is not supported"));
    }
    if ty.as_str() == "null" {
        errs.forbidden(&ty, "type cannot be set to null, use nullable as an alternative");
    }
    if schema.json()["items"].as_array().is_some_and(|items| !items.is_empty()) {
        errs.forbidden(&schema.get("items"), "items must be a schema object and not an array");
    }
    let embedded = schema.get("x-kubernetes-embedded-resource");
    if here.inside_metadata && !embedded.is_empty() {
        errs.forbidden(&embedded, "must not be used inside of resource meta");
    }
    if schema.bool("uniqueItems") {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errs.forbidden(&schema.get("uniqueItems"), detail);
    }
}

fn validate_extensions(schema: &Node<'_>, errs: &mut Errors) {
    let preserve = schema.get("x-kubernetes-preserve-unknown-fields");
    if preserve.as_bool() == Some(false) {
        errs.invalid_here(&preserve, "must be true or undefined");
    }
    let (ty, map, list) =
        (schema.get("type"), schema.get("x-kubernetes-map-type"), schema.get("x-kubernetes-list-type"));
    if map.is_set() {
        validate_type_for(&ty, "object", "x-kubernetes-map-type", errs);
        if !matches!(map.as_str(), "atomic" | "granular") {
            errs.not_supported(&map, map.as_str(), &["atomic", "granular"]);
        }
    }
    if list.is_set() && ty.as_str() != "array" {
        validate_type_for(&ty, "array", "x-kubernetes-list-type", errs);
    } else if list.as_str() == "set" {
        validate_set_items(&schema.get("items"), errs);
    }
    if list.is_set() && !matches!(list.as_str(), "atomic" | "set" | "map") {
        errs.not_supported(&list, list.as_str(), &["atomic", "set", "map"]);
    }
    if schema.count("x-kubernetes-list-map-keys") > 0 {
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        match list.value() {
            None => errs.required(&list, detail),
            Some(_) if list.as_str() != "map" => errs.invalid_here(&list, detail),
            Some(_) => {}
        }
    }
    if list.as_str() == "map" {
        validate_map_items(schema, errs);
    }
    if matches!(list.as_str(), "set" | "map") && schema.json()["items"].is_object() {
        validate_item_keys(schema, list.as_str(), errs);
    }
}

fn validate_type_for(ty: &Node<'_>, wanted: &str, extension: &str, errs: &mut Errors) {
    let detail = format!("must be {wanted} if {extension} is specified");
    match ty.as_str() {
        "" => errs.required(ty, detail),
        other if other != wanted => errs.invalid_here(ty, detail),
        _ => {}
    }
}

/// Items of a set are compared as a whole.
fn validate_set_items(items: &Node<'_>, errs: &mut Errors) {
    let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
    let (list, map) = (items.get("x-kubernetes-list-type"), items.get("x-kubernetes-map-type"));
    match items.json().text("type") {
        "array" if list.is_set() && list.as_str() != "atomic" => errs.invalid_here(&list, detail),
        "object" if map.as_str() != "atomic" => errs.invalid(&map, list.json(), detail),
        _ => {}
    }
}

/// Items of a map are objects with scalar keys.
fn validate_map_items(schema: &Node<'_>, errs: &mut Errors) {
    let (keys, items) = (schema.get("x-kubernetes-list-map-keys"), schema.get("items"));
    if keys.is_empty() {
        errs.required(&keys, "must not be empty if x-kubernetes-list-type is map");
    }
    if !items.is_set() {
        return errs.required(&items, "must have a schema if x-kubernetes-list-type is map");
    }
    if items.json().is_array() {
        return errs.invalid_here(&items, "must only have a single schema if x-kubernetes-list-type is map");
    }
    let ty = items.json().text("type");
    if ty != "object" {
        return errs.invalid(&items.get("type"), ty, "must be object if parent array's x-kubernetes-list-type is map");
    }
    let mut seen = std::collections::HashSet::new();
    for key in keys.clone().into_items() {
        match items.json()["properties"].get(key.as_str()) {
            Some(property) if matches!(property.text("type"), "array" | "object") => {
                let at = items.at(format!("{}.properties[{}].type", items.path(), key.as_str()));
                errs.invalid(&at, ty, "must be a scalar type if parent array's x-kubernetes-list-type is map");
            }
            Some(_) => {}
            None => errs.invalid_here(&keys, "entries must all be names of item properties"),
        }
        if !seen.insert(key.as_str()) {
            errs.invalid_here(&keys, "must not contain duplicate entries");
        }
    }
}

/// Keys are always there, and no item is null.
fn validate_item_keys(schema: &Node<'_>, list: &str, errs: &mut Errors) {
    let items = schema.get("items");
    if items.json().flag("nullable") {
        errs.forbidden(&items.get("nullable"), format!("cannot be nullable when x-kubernetes-list-type is {list}"));
    }
    if list != "map" {
        return;
    }
    let required = items.json()["required"].as_array().cloned().unwrap_or_default();
    for key in schema.strings("x-kubernetes-list-map-keys") {
        let Some(property) = items.json()["properties"].get(key) else { continue };
        let at = |field: &str| items.at(format!("{}.properties[{key}].{field}", items.path()));
        if !required.contains(&Value::from(key)) && !property.has("default") {
            let detail =
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            errs.required(&at("default"), detail);
        }
        if property.flag("nullable") {
            errs.forbidden(&at("nullable"), "this property is in x-kubernetes-list-map-keys, so it cannot be nullable");
        }
    }
}
