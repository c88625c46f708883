//! The messages of `openapi.v2`.

use serde_json::Value;

use super::{Kind, Message, flag, text};

pub(in crate::openapi) static INFO: Message =
    Message::Fields { fields: &[("title", 1, Kind::Text), ("version", 2, Kind::Text)], extensions: None };

pub(in crate::openapi) static PATH_ITEM: Message = Message::Fields {
    fields: &[
        ("get", 2, Kind::One(&OPERATION)),
        ("put", 3, Kind::One(&OPERATION)),
        ("post", 4, Kind::One(&OPERATION)),
        ("delete", 5, Kind::One(&OPERATION)),
        ("patch", 8, Kind::One(&OPERATION)),
        ("parameters", 9, Kind::Many(&PARAMETER)),
    ],
    extensions: Some(10),
};

static OPERATION: Message = Message::Fields {
    fields: &[
        ("tags", 1, Kind::Texts),
        ("description", 3, Kind::Text),
        ("operationId", 5, Kind::Text),
        ("produces", 6, Kind::Texts),
        ("consumes", 7, Kind::Texts),
        ("parameters", 8, Kind::Many(&PARAMETER)),
        ("responses", 9, Kind::One(&RESPONSES)),
        ("schemes", 10, Kind::Texts),
    ],
    extensions: Some(13),
};

static PARAMETER: Message = Message::Choice(|value| match value["in"].as_str() {
    Some("body") => (&[1, 1], &BODY_PARAMETER),
    Some("path") => (&[1, 2, 4], &PATH_PARAMETER),
    _ => (&[1, 2, 3], &QUERY_PARAMETER),
});

static BODY_PARAMETER: Message = Message::Fields {
    fields: &[
        ("description", 1, Kind::Text),
        ("name", 2, Kind::Text),
        ("in", 3, Kind::Text),
        ("required", 4, Kind::Flag),
        ("schema", 5, Kind::One(&SCHEMA)),
    ],
    extensions: Some(6),
};

static QUERY_PARAMETER: Message = Message::Fields {
    fields: &[
        ("required", 1, Kind::Flag),
        ("in", 2, Kind::Text),
        ("description", 3, Kind::Text),
        ("name", 4, Kind::Text),
        ("type", 6, Kind::Text),
        ("uniqueItems", 20, Kind::Flag),
    ],
    extensions: Some(23),
};

static PATH_PARAMETER: Message = Message::Fields {
    fields: &[
        ("required", 1, Kind::Flag),
        ("in", 2, Kind::Text),
        ("description", 3, Kind::Text),
        ("name", 4, Kind::Text),
        ("type", 5, Kind::Text),
        ("uniqueItems", 19, Kind::Flag),
    ],
    extensions: Some(22),
};

static RESPONSES: Message = Message::Entries { number: 1, value: &RESPONSE_VALUE };

static RESPONSE_VALUE: Message = Message::Choice(|_| (&[1], &RESPONSE));

static RESPONSE: Message = Message::Fields {
    fields: &[("description", 1, Kind::Text), ("schema", 2, Kind::One(&SCHEMA_ITEM))],
    extensions: Some(5),
};

static SCHEMA_ITEM: Message = Message::Choice(|_| (&[1], &SCHEMA));

pub(in crate::openapi) static SCHEMA: Message = Message::Fields {
    fields: &[
        ("$ref", 1, Kind::Text),
        ("format", 2, Kind::Text),
        ("title", 3, Kind::Text),
        ("description", 4, Kind::Text),
        ("default", 5, Kind::One(&ANY)),
        ("maximum", 7, Kind::Double),
        ("minimum", 9, Kind::Double),
        ("maxLength", 11, Kind::Integer),
        ("minLength", 12, Kind::Integer),
        ("pattern", 13, Kind::Text),
        ("maxItems", 14, Kind::Integer),
        ("minItems", 15, Kind::Integer),
        ("required", 19, Kind::Texts),
        ("enum", 20, Kind::Many(&ANY)),
        ("additionalProperties", 21, Kind::One(&ADDITIONAL_PROPERTIES)),
        ("type", 22, Kind::One(&TYPE)),
        ("items", 23, Kind::One(&ITEMS)),
        ("allOf", 24, Kind::Many(&SCHEMA)),
        ("properties", 25, Kind::One(&PROPERTIES)),
    ],
    extensions: Some(31),
};

static ANY: Message = Message::Leaf(super::any);

static TYPE: Message = Message::Leaf(|value, out| {
    if let Some(name) = value.as_str() {
        text(1, name, out);
    }
});

static ITEMS: Message = Message::Choice(|_| (&[1], &SCHEMA));

static PROPERTIES: Message = Message::Entries { number: 1, value: &SCHEMA };

static ADDITIONAL_PROPERTIES: Message = Message::Choice(|value| match value {
    Value::Bool(_) => (&[], &BOOLEAN),
    _ => (&[1], &SCHEMA),
});

static BOOLEAN: Message = Message::Leaf(|value, out| flag(2, value == true, out));

/// The scheme of `securityDefinitions`.
pub(in crate::openapi) static API_KEY: Message = Message::Choice(|_| (&[2], &API_KEY_SECURITY));

static API_KEY_SECURITY: Message = Message::Fields {
    fields: &[("type", 1, Kind::Text), ("name", 2, Kind::Text), ("in", 3, Kind::Text), ("description", 4, Kind::Text)],
    extensions: None,
};
