//! A schema as expressions see it: the types, and the sizes that bound what an expression may cost.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value as Json;

use super::escape::escape;
use super::types::Type;
use crate::edit::Edit;

/// Largest request that is taken to exist when sizes are guessed. As upstream.
const REQUEST_BYTES_MAX: i64 = 3 * 1024 * 1024;
const DURATION_BYTES_MAX: i64 = 32;
const DATE_TIME_BYTES_MAX: i64 = 32;
const DATE_BYTES: i64 = 12;

/// A schema as expressions are checked against it. Needed until they are compiled; evaluating them needs a
/// [`Reading`](super::Reading) only.
#[derive(Debug)]
pub struct Declared {
    pub(super) ty: Type,
    pub(super) inside: Inside,
    /// Whether expressions can see values of it at all.
    pub(super) visible: bool,
    /// The most characters, items or entries.
    pub(super) size_max: u64,
    /// The shortest JSON text.
    json_min: i64,
}

/// What is inside of values.
#[derive(Debug)]
pub(super) enum Inside {
    Nothing,
    List(Arc<Declared>),
    Map(Arc<Declared>),
    Object(BTreeMap<String, Arc<Declared>>),
}

impl Declared {
    /// A whole object: its fields, and what every object has.
    pub fn root(schema: &Json) -> Arc<Self> {
        Arc::new(Self::of(schema, "selfType", true))
    }

    /// A part of an object, or an object of its own inside of another.
    pub fn part(schema: &Json, is_object: bool) -> Arc<Self> {
        Arc::new(Self::of(schema, "selfType", is_object))
    }

    /// The type of its values.
    pub fn ty(&self) -> &Type {
        &self.ty
    }

    /// Whether expressions can see its values.
    pub fn is_visible(&self) -> bool {
        self.visible
    }

    /// The schema of a property, by its own name.
    pub fn property(&self, name: &str) -> Option<&Arc<Self>> {
        match &self.inside {
            Inside::Object(properties) => properties.get(name),
            _ => None,
        }
    }

    /// The schema of the items of a list or the values of a map.
    pub fn items(&self) -> Option<&Arc<Self>> {
        match &self.inside {
            Inside::List(inner) | Inside::Map(inner) => Some(inner),
            Inside::Nothing | Inside::Object(_) => None,
        }
    }

    /// How often a value of this schema can be in one request.
    pub fn cardinality_max(&self) -> u64 {
        (REQUEST_BYTES_MAX / (self.json_min + 1)).unsigned_abs()
    }

    /// The most entries or items that a value can have.
    pub fn size_max(&self) -> u64 {
        self.size_max
    }

    fn new(ty: Type, inside: Inside, size_max: i64, json_min: i64) -> Self {
        Self { ty, inside, visible: true, size_max: size_max.max(0).unsigned_abs(), json_min }
    }

    fn scalar(ty: Type, size_max: i64, json_min: i64) -> Self {
        Self::new(ty, Inside::Nothing, size_max, json_min)
    }

    fn of(schema: &Json, name: &str, is_resource: bool) -> Self {
        let length = schema.get("maxLength").and_then(Json::as_i64).map(|length| length.max(0));
        if schema.flag("x-kubernetes-int-or-string") {
            let size = length.map_or(REQUEST_BYTES_MAX - 2, |length| length * 4);
            return Self::scalar(Type::Dyn, size, 1);
        }
        match schema.text("type") {
            "array" => Self::list(schema, name),
            "object" => match schema.get("additionalProperties").filter(|inner| inner.is_object()) {
                Some(values) if !is_resource => Self::map(schema, values, name),
                _ => Self::object(schema, name, is_resource),
            },
            "string" => match schema.text("format") {
                "byte" => Self::scalar(Type::Bytes, length.unwrap_or(REQUEST_BYTES_MAX - 2), 2),
                "duration" => Self::scalar(Type::Duration, DURATION_BYTES_MAX, 3),
                "date" => Self::scalar(Type::Timestamp, DATE_BYTES, DATE_BYTES),
                "date-time" => Self::scalar(Type::Timestamp, DATE_TIME_BYTES_MAX, 21),
                _ => {
                    let allowed = schema.get("enum").and_then(Json::as_array).filter(|all| !all.is_empty());
                    let longest =
                        allowed.map(|all| all.iter().map(|text| text.as_str().map_or(0, str::len)).max().unwrap_or(0));
                    let size = match (length, longest) {
                        (Some(length), _) => length * 4,
                        (None, Some(longest)) => i64::try_from(longest).unwrap_or(i64::MAX),
                        (None, None) => REQUEST_BYTES_MAX - 2,
                    };
                    Self::scalar(Type::String, size, 2)
                }
            },
            "boolean" => Self::scalar(Type::Bool, 0, 4),
            "number" => Self::scalar(Type::Double, 0, 1),
            "integer" => Self::scalar(Type::Int, 0, 1),
            _ => Self { visible: false, ..Self::scalar(Type::Dyn, 0, 0) },
        }
    }

    fn list(schema: &Json, name: &str) -> Self {
        let inner = &schema["items"];
        let items = Self::of(inner, &format!("{name}.@idx"), inner.flag("x-kubernetes-embedded-resource"));
        let given = schema.get("maxItems").and_then(Json::as_i64);
        let size = given.unwrap_or((REQUEST_BYTES_MAX - 2) / (items.json_min + 1));
        let (ty, visible) = (Type::list(items.ty.clone()), items.visible);
        Self { visible, ..Self::new(ty, Inside::List(Arc::new(items)), size, 2) }
    }

    fn map(schema: &Json, values: &Json, name: &str) -> Self {
        let embedded = values.flag("x-kubernetes-embedded-resource");
        let values = Self::of(values, &format!("{name}.@elem"), embedded);
        let given = schema.get("maxProperties").and_then(Json::as_i64);
        let size = given.unwrap_or((REQUEST_BYTES_MAX - 2) / (values.json_min + 6));
        let (ty, visible) = (Type::map(Type::String, values.ty.clone()), values.visible);
        Self { visible, ..Self::new(ty, Inside::Map(Arc::new(values)), size, 2) }
    }

    fn object(schema: &Json, name: &str, is_resource: bool) -> Self {
        let mut properties = BTreeMap::new();
        for (field, inner) in schema["properties"].as_object().into_iter().flatten() {
            let inside = format!("{name}.{}", escape(field).unwrap_or_default());
            let embedded = inner.flag("x-kubernetes-embedded-resource");
            properties.insert(field.clone(), Arc::new(Self::of(inner, &inside, embedded)));
        }
        if is_resource && !knows_metadata(schema) {
            let text = serde_json::json!({"type": "string"});
            let metadata = serde_json::json!({"type": "object", "properties": {"name": text, "generateName": text}});
            for (field, inner) in [("kind", &text), ("apiVersion", &text), ("metadata", &metadata)] {
                let declared = Self::of(inner, &format!("{name}.{field}"), false);
                properties.insert(field.to_owned(), Arc::new(declared));
            }
        }
        let required: Vec<&str> =
            schema["required"].as_array().into_iter().flatten().filter_map(Json::as_str).collect();
        let mut json_min = 2;
        let mut fields = Vec::new();
        for (field, declared) in properties.iter().filter(|(_, declared)| declared.visible) {
            if let Some(escaped) = escape(field) {
                fields.push((escaped.into_owned(), declared.ty.clone()));
            }
            if required.contains(&field.as_str()) && !schema["properties"][field].has("default") {
                json_min += i64::try_from(field.len()).unwrap_or(i64::MAX) + declared.json_min + 4;
            }
        }
        // The sizes of objects are lost when upstream names their types.
        Self::new(Type::object(name, fields), Inside::Object(properties), 0, json_min)
    }
}

/// Whether a schema describes all that every object has.
pub(crate) fn knows_metadata(schema: &Json) -> bool {
    let ty = |path: &[&str]| path.iter().fold(schema, |inner, field| &inner["properties"][field]).text("type");
    ty(&["kind"]) == "string"
        && ty(&["apiVersion"]) == "string"
        && ty(&["metadata"]) == "object"
        && ty(&["metadata", "name"]) == "string"
        && ty(&["metadata", "generateName"]) == "string"
}
