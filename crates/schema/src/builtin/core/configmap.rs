//! ConfigMap: configuration as keys and values, text or binary.

use std::borrow::Cow;

use serde_json::{Value, json};
use setpoint_api::name;

use crate::behaviour::Behaviour;
use crate::columns::Column;
use crate::errors::Errors;
use crate::node::Node;

/// All values together, here and in a Secret.
pub const DATA_BYTES_MAX: usize = 1024 * 1024;

pub(super) const IMMUTABLE: &str = "field is immutable when `immutable` is set";

const COLUMNS: &[Column<'static>] = &[
    Column::NAME,
    Column::new("Data", "string", |object, _| json!(count(object, "data") + count(object, "binaryData")))
        .about_field("io.k8s.api.core.v1.ConfigMap", "data"),
    Column::AGE,
];

/// The decisions of ConfigMap.
#[derive(Debug)]
pub struct ConfigMap;

impl Behaviour for ConfigMap {
    fn validate(&self, object: &Node<'_>, errs: &mut Errors) {
        let binary = object.get("binaryData");
        let mut total = 0;
        for (key, value) in object.entries("data") {
            errs.invalid_each(&value, key, name::config_map_key(key));
            if binary.entry(key).is_set() {
                errs.invalid(&value, key, "duplicate of key present in binaryData");
            }
            total += value.as_str().len();
        }
        for (key, value) in object.entries("binaryData") {
            errs.invalid_each(&value, key, name::config_map_key(key));
            total += decoded_len(value.as_str());
        }
        if total > DATA_BYTES_MAX {
            errs.too_long(&object.at("[]"), DATA_BYTES_MAX);
        }
    }

    fn validate_update(&self, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        if old.bool("immutable") {
            keep_immutable(new, old, &["data", "binaryData"], errs);
        }
    }

    fn columns(&self) -> Cow<'_, [Column<'_>]> {
        COLUMNS.into()
    }
}

/// Once `immutable` is set it stays, and so do these fields.
pub(super) fn keep_immutable(new: &Node<'_>, old: &Node<'_>, fields: &[&'static str], errs: &mut Errors) {
    if !new.bool("immutable") {
        errs.forbidden(&new.get("immutable"), IMMUTABLE);
    }
    for field in fields {
        if !new.get(field).same(&old.get(field)) {
            errs.forbidden(&new.get(field), IMMUTABLE);
        }
    }
}

/// How many bytes canonical base64 stands for.
pub(super) fn decoded_len(text: &str) -> usize {
    text.len() / 4 * 3 - text.bytes().rev().take_while(|byte| *byte == b'=').count()
}

pub(super) fn count(object: &Value, field: &str) -> usize {
    object.get(field).and_then(Value::as_object).map_or(0, |fields| fields.len())
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{columns, create, create_fails, update_fails};
    use super::*;

    #[test]
    fn a_map_is_kept_as_it_is() {
        let object = create(
            "v1",
            "configmaps",
            json!({"metadata": {"name": "c"}, "data": {"a": "1"}, "binaryData": {"b": "/w=="}}),
        );
        assert_eq!(object["data"], json!({"a": "1"}));
        assert_eq!(object["binaryData"], json!({"b": "/w=="}));
        assert_eq!(columns("v1", "configmaps", &object), json!(["c", 2, "<unknown>"]));
    }

    #[test]
    fn keys_are_simple_and_stand_once() {
        let long = "a".repeat(254);
        create_fails(
            "v1",
            "configmaps",
            json!({"metadata": {"name": "c"}, "data": {"a b": "1"}}),
            "data[a b]: Invalid value: \"a b\": a valid config key must consist of alphanumeric characters, '-', '_' or '.' \
             (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')",
        );
        create_fails(
            "v1",
            "configmaps",
            json!({"metadata": {"name": "c"}, "data": {long.as_str(): ""}}),
            &format!("data[{long}]: Invalid value: \"{long}\": must be no more than 253 characters"),
        );
        create_fails(
            "v1",
            "configmaps",
            json!({"metadata": {"name": "c"}, "data": {"a": ""}, "binaryData": {"a": ""}}),
            "data[a]: Invalid value: \"a\": duplicate of key present in binaryData",
        );
    }

    #[test]
    fn all_values_together_are_bounded() {
        let big = "x".repeat(DATA_BYTES_MAX + 1);
        create_fails(
            "v1",
            "configmaps",
            json!({"metadata": {"name": "c"}, "data": {"a": big}}),
            "[]: Too long: may not be more than 1048576 bytes",
        );
    }

    #[test]
    fn an_immutable_map_can_neither_change_nor_thaw() {
        let old = json!({"metadata": {"name": "c"}, "immutable": true, "data": {"a": "1"}});
        let new = json!({"metadata": {"name": "c"}, "data": {"a": "2"}});
        update_fails(
            "v1",
            "configmaps",
            old,
            new,
            "[immutable: Forbidden: field is immutable when `immutable` is set, \
             data: Forbidden: field is immutable when `immutable` is set]",
        );
    }
}
