//! Formats of strings and numbers that are checked; others are taken for comments.

use serde_json::Value;

use crate::edit::Edit;
use crate::node::Node;

use super::schema::children;

const STRINGS: &[&str] = &[
    "bsonobjectid",
    "uri",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "cidr",
    "mac",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
    "isbn",
    "isbn10",
    "isbn13",
    "creditcard",
    "ssn",
    "hexcolor",
    "rgbcolor",
    "byte",
    "password",
    "date",
    "duration",
    "datetime",
    "k8sshortname",
    "k8slongname",
];

/// The formats in the schemas of a definition that are not checked. Equal schemas of several versions count once.
pub(super) fn unrecognized(spec: &Node<'_>) -> Vec<String> {
    let schemas: Vec<&Value> = spec.items("versions").map(|version| version.get("schema").json()).collect();
    let shared = schemas.windows(2).all(|pair| pair[0] == pair[1]);
    let mut found = Vec::new();
    for schema in schemas.iter().take(if shared { 1 } else { schemas.len() }) {
        collect(&schema["openAPIV3Schema"], &mut found);
    }
    found
}

fn collect(schema: &Value, found: &mut Vec<String>) {
    let format = schema.text("format");
    if !format.is_empty() && !is_checked(schema.text("type"), format) {
        found.push(format.to_owned());
    }
    children(schema).for_each(|child| collect(child, found));
}

fn is_checked(ty: &str, format: &str) -> bool {
    match ty {
        "" | "string" => STRINGS.contains(&format.replace('-', "").as_str()),
        "integer" => matches!(format, "int32" | "int64"),
        "number" => matches!(format, "float" | "double"),
        _ => false,
    }
}
