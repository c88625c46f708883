//! The messages of `openapi.v3`.

use serde_json::Value;

use super::{Kind, Message, double, flag, text};

pub(in crate::openapi) static INFO: Message =
    Message::Fields { fields: &[("title", 1, Kind::Text), ("version", 6, Kind::Text)], extensions: None };

pub(in crate::openapi) static PATH_ITEM: Message = Message::Fields {
    fields: &[
        ("get", 4, Kind::One(&OPERATION)),
        ("put", 5, Kind::One(&OPERATION)),
        ("post", 6, Kind::One(&OPERATION)),
        ("delete", 7, Kind::One(&OPERATION)),
        ("patch", 10, Kind::One(&OPERATION)),
        ("parameters", 13, Kind::Many(&PARAMETER)),
    ],
    extensions: Some(14),
};

static OPERATION: Message = Message::Fields {
    fields: &[
        ("tags", 1, Kind::Texts),
        ("description", 3, Kind::Text),
        ("operationId", 5, Kind::Text),
        ("parameters", 6, Kind::Many(&PARAMETER)),
        ("requestBody", 7, Kind::One(&REQUEST_BODY)),
        ("responses", 8, Kind::One(&RESPONSES)),
    ],
    extensions: Some(13),
};

static PARAMETER: Message = Message::Choice(|_| (&[1], &PARAMETER_FIELDS));

static PARAMETER_FIELDS: Message = Message::Fields {
    fields: &[
        ("name", 1, Kind::Text),
        ("in", 2, Kind::Text),
        ("description", 3, Kind::Text),
        ("required", 4, Kind::Flag),
        ("schema", 10, Kind::One(&SCHEMA_OR_REFERENCE)),
    ],
    extensions: Some(14),
};

static REQUEST_BODY: Message = Message::Choice(|_| (&[1], &REQUEST_BODY_FIELDS));

static REQUEST_BODY_FIELDS: Message = Message::Fields {
    fields: &[("content", 2, Kind::One(&MEDIA_TYPES)), ("required", 3, Kind::Flag)],
    extensions: Some(4),
};

static MEDIA_TYPES: Message = Message::Entries { number: 1, value: &MEDIA_TYPE };

static MEDIA_TYPE: Message =
    Message::Fields { fields: &[("schema", 1, Kind::One(&SCHEMA_OR_REFERENCE))], extensions: Some(5) };

static RESPONSES: Message = Message::Entries { number: 2, value: &RESPONSE };

static RESPONSE: Message = Message::Choice(|_| (&[1], &RESPONSE_FIELDS));

static RESPONSE_FIELDS: Message = Message::Fields {
    fields: &[("description", 1, Kind::Text), ("content", 3, Kind::One(&MEDIA_TYPES))],
    extensions: Some(5),
};

pub(in crate::openapi) static SCHEMA_OR_REFERENCE: Message = Message::Choice(|value| match value.get("$ref") {
    Some(_) => (&[2], &REFERENCE),
    None => (&[1], &SCHEMA),
});

static REFERENCE: Message = Message::Fields { fields: &[("$ref", 1, Kind::Text)], extensions: None };

static SCHEMA: Message = Message::Fields {
    fields: &[
        ("nullable", 1, Kind::Flag),
        ("title", 9, Kind::Text),
        ("maximum", 11, Kind::Double),
        ("minimum", 13, Kind::Double),
        ("maxLength", 15, Kind::Integer),
        ("minLength", 16, Kind::Integer),
        ("pattern", 17, Kind::Text),
        ("maxItems", 18, Kind::Integer),
        ("minItems", 19, Kind::Integer),
        ("uniqueItems", 20, Kind::Flag),
        ("required", 23, Kind::Texts),
        ("enum", 24, Kind::Many(&ANY)),
        ("type", 25, Kind::Text),
        ("allOf", 26, Kind::Many(&SCHEMA_OR_REFERENCE)),
        ("oneOf", 27, Kind::Many(&SCHEMA_OR_REFERENCE)),
        ("anyOf", 28, Kind::Many(&SCHEMA_OR_REFERENCE)),
        ("items", 30, Kind::One(&ITEMS)),
        ("properties", 31, Kind::One(&PROPERTIES)),
        ("additionalProperties", 32, Kind::One(&ADDITIONAL_PROPERTIES)),
        ("default", 33, Kind::One(&DEFAULT)),
        ("description", 34, Kind::Text),
        ("format", 35, Kind::Text),
    ],
    extensions: Some(36),
};

static ANY: Message = Message::Leaf(super::any);

static ITEMS: Message = Message::Choice(|_| (&[1], &SCHEMA_OR_REFERENCE));

static PROPERTIES: Message = Message::Entries { number: 1, value: &SCHEMA_OR_REFERENCE };

static ADDITIONAL_PROPERTIES: Message = Message::Choice(|value| match value {
    Value::Bool(_) => (&[], &BOOLEAN),
    _ => (&[1], &SCHEMA_OR_REFERENCE),
});

static BOOLEAN: Message = Message::Leaf(|value, out| flag(2, value == true, out));

/// There are only defaults of these three types: for others the message stays empty.
static DEFAULT: Message = Message::Leaf(|value, out| match value {
    Value::Number(number) => double(1, number.as_f64().unwrap_or(0.0), out),
    Value::Bool(value) => flag(2, *value, out),
    Value::String(value) => text(3, value, out),
    Value::Null | Value::Array(_) | Value::Object(_) => {}
});
