//! Whole documents, put together from encoded parts so that no large tree is ever in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::definitions::{DELETE_OPTIONS, Definitions, Dialect};
use super::operations;
use super::proto::{self, Message};
use crate::registry::Served;

/// How a document is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Encoding {
    Json,
    Protobuf,
}

/// A document about these kinds.
pub(super) fn build(kinds: &[Arc<Served>], dialect: Dialect, encoding: Encoding) -> Vec<u8> {
    // Parsed for this document only: what is stored is kept once, as text.
    let stored: Vec<Option<Value>> = kinds.iter().map(|served| served.definition()).collect();
    let mut definitions = Definitions::new(dialect);
    for (served, stored) in kinds.iter().zip(&stored) {
        if let Some(stored) = stored {
            definitions.tell_definition(&served.kind, stored);
        }
    }
    let kinds = || kinds.iter().map(|served| &*served.kind);
    for kind in kinds() {
        definitions.tell_kind(DELETE_OPTIONS, &kind.group, &kind.version, "DeleteOptions");
    }
    let mut paths: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    for kind in kinds() {
        let mut items = Vec::new();
        operations::paths(kind, &mut definitions, &mut items);
        paths.extend(items.into_iter().map(|(path, item)| (path, encode(path_item(dialect), &item, encoding))));
    }
    let definitions = definitions.encode(|_, value| encode(schema(dialect), value, encoding));
    match encoding {
        Encoding::Json => as_json(dialect, &paths, &definitions),
        Encoding::Protobuf => as_protobuf(dialect, &paths, &definitions),
    }
}

fn encode(message: &Message, value: &Value, encoding: Encoding) -> Vec<u8> {
    match encoding {
        Encoding::Json => serde_json::to_vec(value).expect("a value is always encodable"),
        Encoding::Protobuf => {
            let mut out = Vec::new();
            proto::write(message, value, &mut out);
            out
        }
    }
}

fn path_item(dialect: Dialect) -> &'static Message {
    match dialect {
        Dialect::V2 => &proto::v2::PATH_ITEM,
        Dialect::V3 => &proto::v3::PATH_ITEM,
    }
}

fn schema(dialect: Dialect) -> &'static Message {
    match dialect {
        Dialect::V2 => &proto::v2::SCHEMA,
        Dialect::V3 => &proto::v3::SCHEMA_OR_REFERENCE,
    }
}

fn info() -> Value {
    json!({"title": "Kubernetes", "version": crate::GIT_VERSION})
}

fn bearer_token() -> Value {
    json!({"description": "Bearer Token authentication", "in": "header", "name": "authorization", "type": "apiKey"})
}

type Parts = BTreeMap<String, Vec<u8>>;

fn as_json(dialect: Dialect, paths: &Parts, definitions: &Parts) -> Vec<u8> {
    let (info, token) = (info(), bearer_token());
    let (head, middle, end) = match dialect {
        Dialect::V2 => (
            format!(
                r#"{{"swagger":"2.0","info":{info},"security":[{{"BearerToken":[]}}],"securityDefinitions":{{"BearerToken":{token}}},"paths":{{"#
            ),
            r#"},"definitions":{"#,
            "}}".to_owned(),
        ),
        Dialect::V3 => (
            format!(r#"{{"openapi":"3.0.0","info":{info},"paths":{{"#),
            r#"},"components":{"schemas":{"#,
            format!(r#"}},"securitySchemes":{{"BearerToken":{token}}}}}}}"#),
        ),
    };
    let mut out = head.into_bytes();
    entries(&mut out, paths);
    out.extend_from_slice(middle.as_bytes());
    entries(&mut out, definitions);
    out.extend_from_slice(end.as_bytes());
    out
}

fn entries(out: &mut Vec<u8>, parts: &Parts) {
    for (at, (name, bytes)) in parts.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        out.extend_from_slice(Value::from(&**name).to_string().as_bytes());
        out.push(b':');
        out.extend_from_slice(bytes);
    }
}

fn as_protobuf(dialect: Dialect, paths: &Parts, definitions: &Parts) -> Vec<u8> {
    let mut out = Vec::new();
    let named = |number: u32, parts: &Parts, out: &mut Vec<u8>| {
        parts.iter().for_each(|(name, bytes)| proto::entry(number, name, out, |out| out.extend_from_slice(bytes)));
    };
    match dialect {
        Dialect::V2 => {
            proto::text(1, "2.0", &mut out);
            proto::nested(2, &mut out, |out| proto::write(&proto::v2::INFO, &info(), out));
            proto::nested(8, &mut out, |out| named(2, paths, out));
            proto::nested(9, &mut out, |out| named(1, definitions, out));
            proto::nested(12, &mut out, |out| proto::entry(1, "BearerToken", out, |_| {}));
            proto::nested(13, &mut out, |out| {
                proto::entry(1, "BearerToken", out, |out| proto::write(&proto::v2::API_KEY, &bearer_token(), out));
            });
        }
        Dialect::V3 => {
            proto::text(1, "3.0.0", &mut out);
            proto::nested(2, &mut out, |out| proto::write(&proto::v3::INFO, &info(), out));
            proto::nested(4, &mut out, |out| named(1, paths, out));
            proto::nested(5, &mut out, |out| proto::nested(1, out, |out| named(1, definitions, out)));
        }
    }
    out
}
