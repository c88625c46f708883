//! Protobuf in: what kubectl and client-go send for built-in kinds, read as the JSON that it stands for.
//!
//! The field numbers are the table `facts/protobuf-fields.tsv`; how a field looks in JSON is known to the type. A message whose
//! field is no field of the type is one that JSON shows inline.

use std::collections::HashMap;
use std::fmt;
use std::sync::LazyLock;

use serde_json::{Map, Number, Value, json};
use setpoint_api::time::Timestamp;

use crate::base64;
use crate::types::{Shape, TypeRef};

/// Every message of ours begins with this.
pub const MAGIC: [u8; 4] = *b"k8s\0";

/// Deepest nesting of messages; types nest far less, and only JSON schemas without end.
const NESTING_MAX: usize = 120;

/// What a body says that it is, and the bytes of its object.
#[derive(Debug, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// `apps/v1`; may be empty.
    pub api_version: String,
    /// `Deployment`; may be empty.
    pub kind: String,
    /// The object's message.
    pub raw: &'a [u8],
}

/// Not a message of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProtobufError(String);

impl fmt::Display for ProtobufError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for ProtobufError {}

fn broken(what: &str) -> ProtobufError {
    ProtobufError(format!("proto: {what}"))
}

type Result<T> = std::result::Result<T, ProtobufError>;

/// Opens the envelope that every body is in.
pub fn open(bytes: &[u8]) -> Result<Envelope<'_>> {
    let Some(rest) = bytes.strip_prefix(&MAGIC) else {
        let why = "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]";
        return Err(ProtobufError(why.to_owned()));
    };
    let mut envelope = Envelope { api_version: String::new(), kind: String::new(), raw: &[] };
    for field in Fields(rest) {
        match field? {
            (1, Wire::Bytes(meta)) => {
                for field in Fields(meta) {
                    match field? {
                        (1, Wire::Bytes(text)) => envelope.api_version = utf8(text)?,
                        (2, Wire::Bytes(text)) => envelope.kind = utf8(text)?,
                        _ => {}
                    }
                }
            }
            (2, Wire::Bytes(raw)) => envelope.raw = raw,
            _ => {}
        }
    }
    Ok(envelope)
}

/// Reads the message of an object of a built-in type.
pub fn read(raw: &[u8], ty: TypeRef<'_>) -> Result<Value> {
    let message = message_of(ty.get().name).ok_or_else(|| broken("the kind has no protobuf form"))?;
    let mut fields = Map::new();
    read_fields(raw, message, ty, &mut fields, 0)?;
    Ok(Value::Object(fields))
}

/// A message: its fields by number.
struct Message {
    package: &'static str,
    fields: HashMap<u32, MessageField>,
}

struct MessageField {
    name: &'static str,
    repeated: bool,
    ty: FieldType,
}

enum FieldType {
    Text,
    Bytes,
    Flag,
    Whole,
    Double,
    Message(&'static str),
    /// Values of a map; keys are texts.
    Map(&'static str),
}

static MESSAGES: LazyLock<HashMap<&'static str, Message>> = LazyLock::new(|| {
    let mut messages: HashMap<&'static str, Message> = HashMap::new();
    for line in include_str!("../facts/protobuf-fields.tsv").lines().skip(1) {
        let columns: Vec<&'static str> = line.split('\t').collect();
        let [name, field, number, label, ty] = columns[..] else { continue };
        let (Ok(number), Some((package, _))) = (number.parse(), name.rsplit_once('.')) else { continue };
        let message = messages.entry(name).or_insert_with(|| Message { package, fields: HashMap::new() });
        message.fields.insert(number, MessageField { name: field, repeated: label == "repeated", ty: field_type(ty) });
    }
    messages
});

fn field_type(ty: &'static str) -> FieldType {
    match ty {
        "string" => FieldType::Text,
        "bytes" => FieldType::Bytes,
        "bool" => FieldType::Flag,
        "int32" | "int64" | "uint32" | "uint64" => FieldType::Whole,
        "double" => FieldType::Double,
        _ => match ty.strip_prefix("string->") {
            Some(value) => FieldType::Map(value),
            None => FieldType::Message(ty),
        },
    }
}

/// The message of a type, by its OpenAPI name.
fn message_of(openapi: &str) -> Option<&'static Message> {
    let rest = openapi.strip_prefix("io.k8s")?;
    MESSAGES.get(format!("k8s.io{}", rest.replace('-', "_")).as_str())
}

/// Those without a field have no line in the table: `subresources.status` of a definition is one.
static WITHOUT_FIELDS: LazyLock<Message> = LazyLock::new(|| Message { package: "", fields: HashMap::new() });

/// A message by the name that a field of `package` gives it.
fn resolve(package: &str, name: &str) -> &'static Message {
    let found = match name.strip_prefix('.') {
        Some(absolute) => MESSAGES.get(absolute),
        None => MESSAGES.get(format!("{package}.{name}").as_str()),
    };
    found.unwrap_or(&WITHOUT_FIELDS)
}

fn read_fields(
    bytes: &[u8],
    message: &'static Message,
    ty: TypeRef<'_>,
    out: &mut Map<String, Value>,
    depth: usize,
) -> Result<()> {
    if depth > NESTING_MAX {
        return Err(broken("messages are nested too deeply"));
    }
    for field in Fields(bytes) {
        let (number, wire) = field?;
        let Some(field) = message.fields.get(&number) else { continue };
        let Some(name) = json_name(field.name, ty) else {
            if let (FieldType::Message(inner), Wire::Bytes(bytes)) = (&field.ty, wire) {
                read_fields(bytes, resolve(message.package, inner), ty, out, depth + 1)?;
            }
            continue;
        };
        let Some(child) = ty.child(&name) else { continue };
        match &field.ty {
            FieldType::Map(value) => {
                let entries = out.entry(name).or_insert_with(|| json!({}));
                let (key, value) = read_entry(wire, message.package, value, child, depth)?;
                if let Some(entries) = entries.as_object_mut() {
                    entries.insert(key, value);
                }
            }
            _ if field.repeated => {
                let item = child.item().unwrap_or(child);
                let value = read_value(wire, &field.ty, message.package, item, depth)?;
                if let Some(items) = out.entry(name).or_insert_with(|| json!([])).as_array_mut() {
                    items.push(value);
                }
            }
            _ => {
                let value = read_value(wire, &field.ty, message.package, child, depth)?;
                out.insert(name, value);
            }
        }
    }
    Ok(())
}

fn read_entry(
    wire: Wire<'_>,
    package: &str,
    value: &'static str,
    ty: TypeRef<'_>,
    depth: usize,
) -> Result<(String, Value)> {
    let Wire::Bytes(entry) = wire else { return Err(broken("a map entry that is no message")) };
    let value_type = ty.child("").unwrap_or(ty);
    let kind = field_type(value);
    let (mut key, mut read) = (String::new(), None);
    for field in Fields(entry) {
        match field? {
            (1, Wire::Bytes(text)) => key = utf8(text)?,
            (2, wire) => read = Some(read_value(wire, &kind, package, value_type, depth)?),
            _ => {}
        }
    }
    let empty = match kind {
        FieldType::Text | FieldType::Bytes => json!(""),
        _ => Value::Null,
    };
    Ok((key, read.unwrap_or(empty)))
}

fn read_value(wire: Wire<'_>, kind: &FieldType, package: &str, ty: TypeRef<'_>, depth: usize) -> Result<Value> {
    Ok(match (kind, wire) {
        (FieldType::Text, Wire::Bytes(text)) => Value::String(utf8(text)?),
        (FieldType::Bytes, Wire::Bytes(bytes)) => Value::String(base64::encode(bytes)),
        (FieldType::Flag, Wire::Varint(number)) => Value::Bool(number != 0),
        (FieldType::Whole, Wire::Varint(number)) => Value::from(number as i64),
        (FieldType::Double, Wire::Fixed64(bits)) => {
            Number::from_f64(f64::from_bits(bits)).map_or(Value::Null, Value::Number)
        }
        (FieldType::Message(name), Wire::Bytes(bytes)) => read_message(bytes, resolve(package, name), ty, depth)?,
        _ => return Err(broken("a field of the wrong wire type")),
    })
}

/// A message as the JSON that its type is written as.
fn read_message(bytes: &[u8], message: &'static Message, ty: TypeRef<'_>, depth: usize) -> Result<Value> {
    match ty.shape() {
        Shape::Quantity => text_field(bytes, 1).map(Value::String),
        Shape::IntOrString => {
            let text = number_field(bytes, 1)? == 1;
            if text { text_field(bytes, 3).map(Value::String) } else { Ok(Value::from(number_field(bytes, 2)? as i32)) }
        }
        Shape::Time | Shape::MicroTime => time(bytes, matches!(ty.shape(), Shape::MicroTime)),
        Shape::Raw | Shape::Json | Shape::FieldsV1 => raw_json(bytes),
        Shape::SchemaOrBool(schema) => match bytes_field(bytes, 2)? {
            Some(inner) => read_nested(inner, ty.to(*schema), depth),
            None => Ok(Value::Bool(number_field(bytes, 1)? != 0)),
        },
        Shape::SchemaOrList(schema) => alternatives(bytes, ty.to(*schema), depth, read_nested),
        Shape::SchemaOrStrings(schema) => {
            alternatives(bytes, ty.to(*schema), depth, |item, _, _| utf8(item).map(Value::String))
        }
        Shape::List(_) => {
            // A named list, such as the values of an extra: its message holds the items.
            let item = ty.item().unwrap_or(ty);
            let mut items = Vec::new();
            for field in Fields(bytes) {
                if let (1, wire) = field? {
                    items.push(read_value(wire, &FieldType::Text, message.package, item, depth)?);
                }
            }
            Ok(Value::Array(items))
        }
        _ => {
            let mut fields = Map::new();
            read_fields(bytes, message, ty, &mut fields, depth + 1)?;
            Ok(Value::Object(fields))
        }
    }
}

fn read_nested(bytes: &[u8], ty: TypeRef<'_>, depth: usize) -> Result<Value> {
    let message = message_of(ty.get().name).ok_or_else(|| broken("a field of unknown type"))?;
    let mut fields = Map::new();
    read_fields(bytes, message, ty, &mut fields, depth + 1)?;
    Ok(Value::Object(fields))
}

/// Either one schema (field 1) or a list (field 2).
fn alternatives(
    bytes: &[u8],
    ty: TypeRef<'_>,
    depth: usize,
    read: impl Fn(&[u8], TypeRef<'_>, usize) -> Result<Value>,
) -> Result<Value> {
    if let Some(schema) = bytes_field(bytes, 1)? {
        return read_nested(schema, ty, depth);
    }
    let mut items = Vec::new();
    for field in Fields(bytes) {
        if let (2, Wire::Bytes(item)) = field? {
            items.push(read(item, ty, depth)?);
        }
    }
    Ok(Value::Array(items))
}

/// Seconds and nanoseconds since 1970; the zero time of Go is no time.
fn time(bytes: &[u8], micro: bool) -> Result<Value> {
    const GO_ZERO: i64 = -62_135_596_800;
    let seconds = number_field(bytes, 1)?;
    let nanoseconds = u32::try_from(number_field(bytes, 2)?).unwrap_or(0).min(999_999_999);
    if bytes.is_empty() || seconds == GO_ZERO {
        return Ok(Value::Null);
    }
    let stamp = Timestamp { seconds, nanoseconds };
    Ok(Value::String(if micro { stamp.to_rfc3339_micro() } else { stamp.to_rfc3339() }))
}

fn raw_json(bytes: &[u8]) -> Result<Value> {
    match bytes_field(bytes, 1)? {
        None | Some([]) => Ok(Value::Null),
        Some(raw) => {
            crate::json::parse(raw).map(crate::json::Json::into_value).map_err(|e| ProtobufError(e.to_string()))
        }
    }
}

/// What a field is called in JSON; `None` for one that JSON shows inline.
fn json_name(name: &str, ty: TypeRef<'_>) -> Option<String> {
    if ty.field(name).is_some() || matches!(ty.shape(), Shape::Map(_)) {
        return Some(name.to_owned());
    }
    let kebab: String = name
        .chars()
        .flat_map(|c| if c.is_ascii_uppercase() { vec!['-', c.to_ascii_lowercase()] } else { vec![c] })
        .collect();
    let dollar = format!("${name}");
    let same = |field: &&crate::types::Field| {
        field.name.eq_ignore_ascii_case(name) || field.name == kebab || field.name == dollar
    };
    ty.fields().iter().find(same).map(|field| field.name.to_string())
}

fn utf8(bytes: &[u8]) -> Result<String> {
    String::from_utf8(bytes.to_vec()).map_err(|_| broken("a text that is not UTF-8"))
}

fn text_field(bytes: &[u8], number: u32) -> Result<String> {
    bytes_field(bytes, number)?.map_or(Ok(String::new()), utf8)
}

fn bytes_field(bytes: &[u8], number: u32) -> Result<Option<&[u8]>> {
    let mut found = None;
    for field in Fields(bytes) {
        if let (at, Wire::Bytes(value)) = field?
            && at == number
        {
            found = Some(value);
        }
    }
    Ok(found)
}

fn number_field(bytes: &[u8], number: u32) -> Result<i64> {
    let mut found = 0;
    for field in Fields(bytes) {
        if let (at, Wire::Varint(value)) = field?
            && at == number
        {
            found = value as i64;
        }
    }
    Ok(found)
}

/// The value of a field on the wire.
enum Wire<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Fixed32,
}

/// The fields of a message, in order.
struct Fields<'a>(&'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Wire<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

impl<'a> Fields<'a> {
    fn field(&mut self) -> Result<(u32, Wire<'a>)> {
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).map_err(|_| broken("illegal tag"))?;
        let wire = match tag & 7 {
            0 => Wire::Varint(self.varint()?),
            1 => Wire::Fixed64(u64::from_le_bytes(self.take(8)?.try_into().expect("eight bytes"))),
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| broken("unexpected EOF"))?;
                Wire::Bytes(self.take(length)?)
            }
            5 => {
                self.take(4)?;
                Wire::Fixed32
            }
            _ => return Err(broken("illegal wireType")),
        };
        Ok((number, wire))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or_else(|| broken("unexpected EOF"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn varint(&mut self) -> Result<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(broken("integer overflow"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts;

    /// A field of bytes.
    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let mut out = vec![number << 3 | 2, u8::try_from(bytes.len()).unwrap()];
        out.extend_from_slice(bytes);
        out
    }

    #[test]
    fn a_config_map_is_read_as_its_json() {
        let metadata = [field(1, b"c"), field(3, b"default"), field(8, &[8, 0])].concat();
        let entry = [field(1, b"k"), field(2, b"v")].concat();
        let raw = [field(1, &metadata), field(2, &entry)].concat();
        let kind = [field(1, b"v1"), field(2, b"ConfigMap")].concat();
        let body = [MAGIC.to_vec(), field(1, &kind), field(2, &raw)].concat();
        let envelope = open(&body).unwrap();
        assert_eq!((&*envelope.api_version, &*envelope.kind), ("v1", "ConfigMap"));
        let object = read(envelope.raw, facts::kind_type("v1", "ConfigMap").unwrap()).unwrap();
        assert_eq!(object["data"], json!({"k": "v"}));
        assert_eq!(object["metadata"]["name"], "c");
    }

    #[test]
    fn inline_messages_ports_and_quantities_look_as_in_json() {
        let pod = facts::type_named("io.k8s.api.core.v1.Container").unwrap();
        let port = [field(1, b"/"), field(2, &[8, 1, 26, 4, b'h', b't', b't', b'p'])].concat();
        let handler = field(2, &port);
        let probe = field(1, &handler);
        let container = [field(1, b"a"), field(10, &probe)].concat();
        let object = read(&container, pod).unwrap();
        assert_eq!(object["livenessProbe"]["httpGet"], json!({"path": "/", "port": "http"}));
    }

    #[test]
    fn a_message_without_fields_is_an_empty_object() {
        let version = facts::type_named(
            "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionVersion",
        );
        let object = read(&[field(1, b"v1"), field(5, &field(1, b""))].concat(), version.unwrap()).unwrap();
        assert_eq!(object, json!({"name": "v1", "subresources": {"status": {}}}));
    }

    #[test]
    fn what_is_not_a_message_is_refused_and_never_panics() {
        assert!(open(b"x").unwrap_err().to_string().contains("expected prefix"));
        let ty = facts::kind_type("v1", "Pod").unwrap();
        for length in 0..64u8 {
            let bytes: Vec<u8> = (0..length).map(|i| i.wrapping_mul(37) ^ length).collect();
            let _ = read(&bytes, ty);
        }
        assert!(read(&[10, 200], ty).is_err());
    }
}
