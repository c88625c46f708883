//! Parts of schemas that many fields share.

use schemars::{Schema, SchemaGenerator, json_schema};

/// What a version may look like.
pub const VERSION: &str = r"^[0-9A-Za-z]([0-9A-Za-z.+_-]{0,61}[0-9A-Za-z])?$";

/// `[DAYS ]HH:MM-HH:MM[ ZONE]`; see `windows`.
const WINDOW: &str = r"^((Mon|Tue|Wed|Thu|Fri|Sat|Sun)([,-](Mon|Tue|Wed|Thu|Fri|Sat|Sun))* )?([01][0-9]|2[0-3]):[0-5][0-9]-(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)( [A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*)?$";

/// A span such as `90s`, `10m`, `1h30m`.
const SPAN: &str = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$";

const SHARE: &str = "^(100|[0-9]{1,2})%$";

pub fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "date-time"})
}

pub fn optional_time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "date-time", "nullable": true})
}

pub fn span(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "pattern": SPAN, "maxLength": 32})
}

pub fn optional_span(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "pattern": SPAN, "maxLength": 32, "nullable": true})
}

pub fn window(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "pattern": WINDOW, "maxLength": 100, "nullable": true})
}

/// A number, or a share such as `10%`.
pub fn share(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"x-kubernetes-int-or-string": true, "pattern": SHARE, "minimum": 0})
}

/// The same where it may be left out.
pub fn optional_share(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = share(generator);
    schema.insert("nullable".to_owned(), true.into());
    schema
}

/// Which objects are meant, by their labels.
pub fn selector(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "nullable": true,
        "properties": {
            "matchLabels": {
                "description": "Labels with the values that they must have.",
                "type": "object",
                "additionalProperties": {"type": "string"},
            },
            "matchExpressions": {
                "description": "Requirements, all of which must hold.",
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": {"type": "string", "description": "The label."},
                        "operator": {"type": "string", "enum": ["In", "NotIn", "Exists", "DoesNotExist"]},
                        "values": {"type": "array", "items": {"type": "string"}},
                    },
                },
            },
        },
    })
}

/// One condition for each type; those who write some don't touch the others.
pub fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 16,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["type", "status", "lastTransitionTime", "reason", "message"],
            "properties": {
                "type": {"type": "string", "maxLength": 316, "description": "What it is about."},
                "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
                "reason": {"type": "string", "maxLength": 1024, "description": "Why, in one word."},
                "message": {"type": "string", "maxLength": 32768, "description": "Why, in a sentence."},
                "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
                "lastTransitionTime": {"type": "string", "format": "date-time"},
            },
        },
    })
}
