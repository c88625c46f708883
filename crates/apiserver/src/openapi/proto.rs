//! OpenAPI documents as protobuf, in the messages of the gnostic project, which older clients ask for.
//!
//! The JSON form is walked along tables of the messages' fields, so that both forms always say the same.

pub(super) mod v2;
pub(super) mod v3;

use serde_json::{Map, Value};

use crate::yaml_out;

/// How an object of the JSON form is written.
pub(super) enum Message {
    /// Known keys, each a field; keys beginning with `x-` go to the field for extensions.
    Fields { fields: &'static [(&'static str, u32, Kind)], extensions: Option<u32> },
    /// Free keys: each entry is a message with the name and the value.
    Entries { number: u32, value: &'static Message },
    /// One of several messages, each inside of wrappers with these field numbers.
    Choice(fn(&Value) -> (&'static [u32], &'static Message)),
    /// A string, number or flag inside of a message of its own.
    Leaf(fn(&Value, &mut Vec<u8>)),
}

/// How the value of a key is written.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Text,
    Texts,
    Flag,
    Integer,
    Double,
    One(&'static Message),
    Many(&'static Message),
}

/// Appends a value as a message.
pub(super) fn write(message: &Message, value: &Value, out: &mut Vec<u8>) {
    match message {
        Message::Fields { fields, extensions } => {
            let Some(map) = value.as_object() else { return };
            for (key, number, kind) in *fields {
                if let Some(value) = map.get(*key) {
                    write_field(*number, *kind, value, out);
                }
            }
            if let Some(number) = extensions {
                write_extensions(*number, map, out);
            }
        }
        Message::Entries { number, value: message } => {
            for (name, value) in value.as_object().into_iter().flatten() {
                entry(*number, name, out, |out| write(message, value, out));
            }
        }
        Message::Choice(choose) => {
            let (wrappers, message) = choose(value);
            wrapped(wrappers, message, value, out);
        }
        Message::Leaf(leaf) => leaf(value, out),
    }
}

fn wrapped(wrappers: &[u32], message: &Message, value: &Value, out: &mut Vec<u8>) {
    match wrappers {
        [] => write(message, value, out),
        [number, inner @ ..] => nested(*number, out, |out| wrapped(inner, message, value, out)),
    }
}

fn write_field(number: u32, kind: Kind, value: &Value, out: &mut Vec<u8>) {
    match (kind, value) {
        (Kind::Text, Value::String(value)) => text(number, value, out),
        (Kind::Texts, Value::Array(items)) => {
            items.iter().filter_map(Value::as_str).for_each(|item| text(number, item, out))
        }
        (Kind::Flag, Value::Bool(value)) => flag(number, *value, out),
        (Kind::Integer, Value::Number(value)) => {
            if let Some(value) = value.as_i64() {
                tag(number, 0, out);
                varint(value.cast_unsigned(), out);
            }
        }
        (Kind::Double, Value::Number(value)) => double(number, value.as_f64().unwrap_or(0.0), out),
        (Kind::One(message), value) => nested(number, out, |out| write(message, value, out)),
        (Kind::Many(message), Value::Array(items)) => {
            items.iter().for_each(|item| nested(number, out, |out| write(message, item, out)));
        }
        _ => {}
    }
}

fn write_extensions(number: u32, map: &Map<String, Value>, out: &mut Vec<u8>) {
    for (name, value) in map.iter().filter(|(name, _)| name.starts_with("x-")) {
        entry(number, name, out, |out| any(value, out));
    }
}

/// Any value: gnostic keeps it as YAML text.
pub(super) fn any(value: &Value, out: &mut Vec<u8>) {
    text(2, &yaml_out::write(value), out);
}

pub(super) fn text(number: u32, value: &str, out: &mut Vec<u8>) {
    tag(number, 2, out);
    varint(value.len() as u64, out);
    out.extend_from_slice(value.as_bytes());
}

pub(super) fn flag(number: u32, value: bool, out: &mut Vec<u8>) {
    tag(number, 0, out);
    out.push(u8::from(value));
}

pub(super) fn double(number: u32, value: f64, out: &mut Vec<u8>) {
    tag(number, 1, out);
    out.extend_from_slice(&value.to_le_bytes());
}

/// A message with a name and a value.
pub(super) fn entry(number: u32, name: &str, out: &mut Vec<u8>, value: impl FnOnce(&mut Vec<u8>)) {
    nested(number, out, |out| {
        text(1, name, out);
        nested(2, out, value);
    });
}

/// A message within a message.
pub(super) fn nested(number: u32, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let mut inner = Vec::new();
    write(&mut inner);
    tag(number, 2, out);
    varint(inner.len() as u64, out);
    out.append(&mut inner);
}

fn tag(number: u32, wire: u32, out: &mut Vec<u8>) {
    varint(u64::from(number << 3 | wire), out);
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn bytes(message: &Message, value: Value) -> Vec<u8> {
        let mut out = Vec::new();
        write(message, &value, &mut out);
        out
    }

    #[test]
    fn a_schema_is_written_with_gnostics_field_numbers() {
        let out = bytes(&v2::SCHEMA, json!({"type": "string", "format": "byte"}));
        assert_eq!(out, [b"\x12\x04byte".as_slice(), b"\xb2\x01\x08\x0a\x06string"].concat());
        let out = bytes(&v3::SCHEMA_OR_REFERENCE, json!({"$ref": "#/x"}));
        assert_eq!(out, b"\x12\x05\x0a\x03#/x");
    }

    #[test]
    fn extensions_are_yaml() {
        let out = bytes(&v2::SCHEMA, json!({"x-kubernetes-list-type": "map"}));
        assert_eq!(out, [b"\xfa\x01\x20\x0a\x16x-kubernetes-list-type".as_slice(), b"\x12\x06\x12\x04map\n"].concat());
    }

    #[test]
    fn long_lengths_take_several_bytes() {
        let out = bytes(&v2::SCHEMA, json!({"format": "x".repeat(300)}));
        assert_eq!(&out[..3], [0x12, 0xac, 0x02]);
    }
}
