//! Secret: keys and values that are not for everyone.

use std::borrow::Cow;

use serde_json::{Value, json};
use setpoint_api::name;

use super::configmap::{DATA_BYTES_MAX, count, decoded_len, keep_immutable};
use crate::base64;
use crate::behaviour::Behaviour;
use crate::columns::{Column, field};
use crate::edit::Edit;
use crate::errors::Errors;
use crate::json;
use crate::node::Node;
use crate::selectable::{Selectable, as_text};

const SECRET: &str = "io.k8s.api.core.v1.Secret";

const COLUMNS: &[Column<'static>] = &[
    Column::NAME,
    Column::new("Type", "string", |object, _| field(object, &["type"])).about_field(SECRET, "type"),
    Column::new("Data", "string", |object, _| json!(count(object, "data"))).about_field(SECRET, "data"),
    Column::AGE,
];

static SELECTABLE: [Selectable; 1] = [Selectable::new("type", |object| as_text(object.get("type")))];

/// The decisions of Secret.
#[derive(Debug)]
pub struct Secret;

impl Behaviour for Secret {
    fn default(&self, object: &mut Value) {
        object.default_to("type", "Opaque");
        move_string_data(object);
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, _context: &crate::Context) {
        new.default_to("type", old.text("type"));
    }

    fn validate(&self, object: &Node<'_>, errs: &mut Errors) {
        let data = object.get("data");
        let mut total = 0;
        for (key, value) in object.entries("data") {
            errs.invalid_each(&value, key, name::config_map_key(key));
            total += decoded_len(value.as_str());
        }
        if total > DATA_BYTES_MAX {
            errs.too_long(&data, DATA_BYTES_MAX);
        }
        validate_type(object, &data, errs);
    }

    fn validate_update(&self, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        errs.immutable(&new.get("type"), &old.get("type"));
        if old.bool("immutable") {
            keep_immutable(new, old, &["data"], errs);
        }
    }

    fn selectable(&self) -> &[Selectable] {
        &SELECTABLE
    }

    fn columns(&self) -> Cow<'_, [Column<'_>]> {
        COLUMNS.into()
    }
}

/// `stringData` is a way to write `data`, and is never kept.
fn move_string_data(object: &mut Value) {
    let Some(Value::Object(texts)) = object.remove("stringData") else { return };
    for (key, text) in texts {
        let encoded = base64::encode(text.as_str().unwrap_or("").as_bytes());
        object.ensure("data").set(&key, encoded);
    }
}

/// Well-known types have keys of their own.
fn validate_type(object: &Node<'_>, data: &Node<'_>, errs: &mut Errors) {
    let present = |key: &'static str| data.json().get(key).is_some();
    match object.str("type") {
        "kubernetes.io/service-account-token" => {
            let annotations = object.get("metadata").get("annotations");
            let account = annotations.entry("kubernetes.io/service-account.name");
            if account.as_str().is_empty() {
                errs.required(&account, "");
            }
        }
        "kubernetes.io/dockercfg" => validate_json(&data.entry(".dockercfg"), present(".dockercfg"), errs),
        "kubernetes.io/dockerconfigjson" => {
            validate_json(&data.entry(".dockerconfigjson"), present(".dockerconfigjson"), errs);
        }
        "kubernetes.io/basic-auth" if !present("username") && !present("password") => {
            errs.required(&data.entry("username"), "");
            errs.required(&data.entry("password"), "");
        }
        "kubernetes.io/ssh-auth" if data.entry("ssh-privatekey").is_empty() => {
            errs.required(&data.entry("ssh-privatekey"), "");
        }
        "kubernetes.io/tls" => {
            for key in ["tls.crt", "tls.key"].into_iter().filter(|key| !present(key)) {
                errs.required(&data.entry(key), "");
            }
        }
        _ => {}
    }
}

/// The value must hold a JSON object. It is not shown: it is secret.
fn validate_json(at: &Node<'_>, present: bool, errs: &mut Errors) {
    if !present {
        return errs.required(at, "");
    }
    let bytes = base64::decode(at.as_str()).unwrap_or_default();
    let problem = match json::parse(&bytes) {
        Err(error) => error.to_string(),
        Ok(json::Json::Object(_) | json::Json::Null) => return,
        Ok(other) => format!("json: cannot unmarshal {} into Go value of type map[string]interface {{}}", other.kind()),
    };
    errs.invalid(at, "<secret contents redacted>", problem);
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{create, create_fails, selected, update_fails};
    use super::*;

    fn secret(kind: &str, data: Value) -> Value {
        json!({"metadata": {"name": "s"}, "type": kind, "data": data})
    }

    #[test]
    fn text_data_becomes_data_and_the_type_is_opaque() {
        let body = json!({"metadata": {"name": "s"}, "data": {"a": "MQ==", "b": "Mg=="}, "stringData": {"a": "x"}});
        let object = create("v1", "secrets", body);
        assert_eq!(object["data"], json!({"a": "eA==", "b": "Mg=="}));
        assert_eq!(object["type"], "Opaque");
        assert!(object.get("stringData").is_none());
        assert_eq!(selected("v1", "secrets", &object, "type"), "Opaque");
    }

    #[test]
    fn well_known_types_need_their_keys() {
        for (kind, data, expected) in [
            ("kubernetes.io/tls", json!({}), "[data[tls.crt]: Required value, data[tls.key]: Required value]"),
            ("kubernetes.io/ssh-auth", json!({"ssh-privatekey": ""}), "data[ssh-privatekey]: Required value"),
            ("kubernetes.io/basic-auth", json!({}), "[data[username]: Required value, data[password]: Required value]"),
            ("kubernetes.io/dockercfg", json!({}), "data[.dockercfg]: Required value"),
            (
                "kubernetes.io/dockerconfigjson",
                json!({".dockerconfigjson": "eA=="}),
                "data[.dockerconfigjson]: Invalid value: \"<secret contents redacted>\": \
                 invalid character 'x' looking for beginning of value",
            ),
            (
                "kubernetes.io/service-account-token",
                json!({}),
                "metadata.annotations[kubernetes.io/service-account.name]: Required value",
            ),
        ] {
            create_fails("v1", "secrets", secret(kind, data), expected);
        }
    }

    #[test]
    fn the_type_stays() {
        update_fails(
            "v1",
            "secrets",
            secret("a", json!({})),
            secret("b", json!({})),
            "type: Invalid value: \"b\": field is immutable",
        );
    }
}
