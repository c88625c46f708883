//! A document under a type: what Go's decoder would make of it, what it would complain about, and the form in which Go
//! would print the result.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::ops::Range;

use serde_json::{Map, Value};
use setpoint_api::{Quantity, quote, time};

use crate::base64;
use crate::emptied::Emptied;
use crate::json::{Json, go_number};
use crate::normal::{normalize, zero};
use crate::types::{Field, Shape, TypeRef};

/// Most strict complaints that are kept, as upstream.
const STRICT_MAX: usize = 100;
/// Most empty lists and maps that are remembered for error messages; nobody reads more.
const EMPTIED_MAX: usize = 100;

/// A document that fits its type.
#[derive(Debug, PartialEq)]
pub struct Decoded {
    /// What [`strict`](Self::strict) says, as Go's conversion of what a strategic patch made says it: it doesn't tell which entry of a map
    /// something is in, and what it tells is sorted.
    pub converted: Vec<String>,
    /// The value in normal form, without unknown fields.
    pub value: Value,
    /// What strict decoding would refuse, in document order: `unknown field "spec.x"`, `duplicate field "data.a"`.
    pub strict: Vec<String>,
    /// Lists and maps that were given empty; the normal form has none.
    pub emptied: Vec<Emptied>,
}

/// A document that doesn't fit its type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DecodeError {
    /// A value of the wrong type.
    Type {
        /// What was found: `string`, `number 1.5` ...
        found: String,
        /// Go struct whose field it is; empty outside of any.
        owner: String,
        /// Fields from the root, joined by dots.
        field: String,
        /// Go type that was expected.
        expected: String,
    },
    /// A value that its type can't read.
    Value(String),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::Type { found, owner, field, expected } if owner.is_empty() && field.is_empty() => {
                write!(formatter, "json: cannot unmarshal {found} into Go value of type {expected}")
            }
            DecodeError::Type { found, owner, field, expected } => {
                write!(
                    formatter,
                    "json: cannot unmarshal {found} into Go struct field {owner}.{field} of type {expected}"
                )
            }
            DecodeError::Value(message) => formatter.write_str(message),
        }
    }
}

impl std::error::Error for DecodeError {}

/// Reads a document as a value of a built-in type, in normal form.
pub fn decode(json: Json<'_>, ty: TypeRef<'_>) -> Result<Decoded, DecodeError> {
    let mut decoder = Decoder::default();
    let value = decoder.run(json, ty)?;
    let mut value = value.unwrap_or_else(|| zero(ty));
    normalize(&mut value, ty);
    decoder.converted.sort();
    Ok(Decoded { value, strict: decoder.strict, converted: decoder.converted, emptied: decoder.emptied })
}

/// Reads a document of no known type, as for custom kinds; only doubled fields are complained about.
pub fn decode_untyped(json: Json<'_>) -> Result<Decoded, DecodeError> {
    let mut decoder = Decoder::default();
    let value = decoder.untyped(json);
    match decoder.saved {
        Some(error) => Err(error),
        None => Ok(Decoded { value, strict: decoder.strict, converted: Vec::new(), emptied: Vec::new() }),
    }
}

/// Walks a document and its type together. A wrong type is remembered and the walk goes on, as in Go, because a later
/// error of a type with its own reader comes first.
#[derive(Default)]
struct Decoder<'s> {
    saved: Option<DecodeError>,
    strict: Vec<String>,
    converted: Vec<String>,
    emptied: Vec<Emptied>,
    seen: HashSet<String>,
    /// Go struct whose field is being read.
    owner: &'s str,
    /// Fields from the root.
    fields: Vec<&'s Field>,
    /// Path from the root, as strict complaints name it.
    path: String,
    /// Where in the path keys of maps are.
    keys: Vec<Range<usize>>,
    /// Inside a type with its own reader, nothing is complained about.
    quiet: bool,
}

type Step = Result<Option<Value>, DecodeError>;

impl<'s> Decoder<'s> {
    fn run(&mut self, json: Json<'_>, ty: TypeRef<'s>) -> Step {
        let value = self.value(json, ty)?;
        match self.saved.take() {
            Some(error) => Err(error),
            None => Ok(value),
        }
    }

    /// None for null: whatever the type, it leaves the zero value.
    fn value(&mut self, json: Json<'_>, ty: TypeRef<'s>) -> Step {
        if matches!(json, Json::Null) && !matches!(ty.shape(), Shape::SchemaOrBool(_)) {
            return Ok(None);
        }
        match (ty.shape(), json) {
            (Shape::Struct(_), Json::Object(fields)) => self.object(fields, ty),
            (Shape::Map(map), Json::Object(fields)) => self.map(fields, ty.to(map.value)),
            (Shape::List(list), Json::Array(items)) => self.list(items, ty.to(list.item)),
            (Shape::String, Json::String(text)) => Ok(Some(Value::String(text.into_owned()))),
            (Shape::Bool, Json::Bool(flag)) => Ok(Some(flag.into())),
            (Shape::Int32, Json::Number(text)) => self.whole(&text, i32::MIN.into(), i32::MAX.into(), ty),
            (Shape::Int64, Json::Number(text)) => self.whole(&text, i64::MIN, i64::MAX, ty),
            (Shape::Float, Json::Number(text)) => match go_number(&text) {
                Some(number) => Ok(Some(Value::Number(number))),
                None => self.wrong(format!("number {text}"), ty),
            },
            (Shape::Bytes, Json::String(text)) => self.bytes(&text),
            (Shape::Bytes, Json::Array(items)) => self.byte_list(items),
            (Shape::Quantity, json) => quantity(json).map(Some),
            (Shape::Time, json) => self.time(json, time::normalize),
            (Shape::MicroTime, json) => self.time(json, time::normalize_micro),
            (Shape::IntOrString, json) => self.int_or_string(json),
            (Shape::Raw | Shape::Json | Shape::FieldsV1, json) => Ok(Some(json.into_value())),
            (Shape::SchemaOrBool(id), json) => self.schema_or_bool(json, ty.to(*id)),
            (Shape::SchemaOrList(id), json) => self.schema_or_list(json, ty.to(*id)),
            (Shape::SchemaOrStrings(id), json) => self.schema_or_strings(json, ty.to(*id)),
            (_, json) => self.wrong(json.kind().to_owned(), ty),
        }
    }

    fn object(&mut self, members: Vec<(Cow<'_, str>, Json<'_>)>, ty: TypeRef<'s>) -> Step {
        let mut map = Map::new();
        let mut seen: Vec<&str> = Vec::new();
        let (owner_before, path_before) = (self.owner, self.path.len());
        for (key, json) in members {
            let Some(field) = ty.field(&key) else {
                self.complain("unknown field", &key);
                continue;
            };
            match seen.contains(&&*field.name) {
                true => self.complain("duplicate field", &key),
                false => seen.push(&field.name),
            }
            self.owner = go_name(ty);
            self.fields.push(field);
            self.enter(&key);
            if let Some(value) = self.value(json, ty.to(field.ty))? {
                map.insert(key.into_owned(), value);
            }
            self.fields.pop();
            self.path.truncate(path_before);
        }
        self.owner = owner_before;
        Ok(Some(Value::Object(map)))
    }

    fn map(&mut self, members: Vec<(Cow<'_, str>, Json<'_>)>, value_type: TypeRef<'s>) -> Step {
        if members.is_empty() && self.emptied.len() < EMPTIED_MAX {
            self.emptied.push(Emptied::map(&self.path));
        }
        let mut map = Map::new();
        let path_before = self.path.len();
        for (key, json) in members {
            if map.contains_key(&*key) {
                self.complain("duplicate field", &key);
            }
            self.enter(&key);
            self.keys.push(path_before..self.path.len());
            let value = self.value(json, value_type)?;
            self.keys.pop();
            self.path.truncate(path_before);
            map.insert(key.into_owned(), value.unwrap_or(Value::Null));
        }
        Ok(Some(Value::Object(map)))
    }

    fn list(&mut self, items: Vec<Json<'_>>, item_type: TypeRef<'s>) -> Step {
        if items.is_empty() && self.emptied.len() < EMPTIED_MAX {
            self.emptied.push(Emptied::list(&self.path));
        }
        let path_before = self.path.len();
        let mut list = Vec::with_capacity(items.len());
        for (index, json) in items.into_iter().enumerate() {
            self.path.push_str(&format!("[{index}]"));
            list.push(self.value(json, item_type)?.unwrap_or(Value::Null));
            self.path.truncate(path_before);
        }
        Ok(Some(Value::Array(list)))
    }

    fn whole(&mut self, text: &str, min: i64, max: i64, ty: TypeRef<'s>) -> Step {
        match text.parse::<i64>() {
            Ok(number) if (min..=max).contains(&number) => Ok(Some(number.into())),
            _ => self.wrong(format!("number {text}"), ty),
        }
    }

    fn bytes(&mut self, text: &str) -> Step {
        match base64::decode(text) {
            Ok(bytes) => Ok(Some(base64::encode(&bytes).into())),
            Err(error) => {
                self.save(DecodeError::Value(error.to_string()));
                Ok(None)
            }
        }
    }

    /// Bytes one by one, which Go takes as well.
    fn byte_list(&mut self, items: Vec<Json<'_>>) -> Step {
        let mut bytes = Vec::with_capacity(items.len());
        for item in items {
            let byte = match &item {
                Json::Null => Some(0),
                Json::Number(text) => text.parse().ok(),
                _ => None,
            };
            let found = || match &item {
                Json::Number(text) => format!("number {text}"),
                other => other.kind().to_owned(),
            };
            match byte {
                Some(byte) => bytes.push(byte),
                None => self.save(self.type_error(found(), "uint8")),
            }
        }
        Ok(Some(base64::encode(&bytes).into()))
    }

    fn time(&mut self, json: Json<'_>, normal: fn(&str) -> Result<String, time::TimeError>) -> Step {
        let Json::String(text) = json else { return Err(self.type_error(json.kind().to_owned(), "string")) };
        let text = normal(&text).map_err(|error| DecodeError::Value(error.to_string()))?;
        // The zero time prints as null.
        Ok(if text.starts_with("0001-01-01T00:00:00") { None } else { Some(text.into()) })
    }

    fn int_or_string(&mut self, json: Json<'_>) -> Step {
        match json {
            Json::String(text) => Ok(Some(Value::String(text.into_owned()))),
            Json::Number(text) => match text.parse::<i32>() {
                Ok(number) => Ok(Some(number.into())),
                Err(_) => Err(self.type_error(format!("number {text}"), "int32")),
            },
            other => Err(self.type_error(other.kind().to_owned(), "int32")),
        }
    }

    fn schema_or_bool(&mut self, json: Json<'_>, schema: TypeRef<'s>) -> Step {
        match json {
            Json::Bool(flag) => Ok(Some(flag.into())),
            json @ Json::Object(_) => self.apart(json, schema),
            // A pointer takes null for nil before its type is asked.
            Json::Null => Ok(None),
            _ => Err(DecodeError::Value("boolean or JSON schema expected".to_owned())),
        }
    }

    fn schema_or_list(&mut self, json: Json<'_>, schema: TypeRef<'s>) -> Step {
        match json {
            json @ Json::Object(_) => self.apart(json, schema),
            Json::Array(items) => {
                let items = items.into_iter().map(|item| self.apart(item, schema));
                let items = items.map(|item| item.map(|i| i.unwrap_or(Value::Null))).collect::<Result<_, _>>()?;
                Ok(Some(Value::Array(items)))
            }
            _ => Ok(None),
        }
    }

    fn schema_or_strings(&mut self, json: Json<'_>, schema: TypeRef<'s>) -> Step {
        match json {
            json @ Json::Object(_) => self.apart(json, schema),
            Json::Array(items) => {
                let texts = items.into_iter().map(|item| match item {
                    Json::String(text) => Ok(Value::String(text.into_owned())),
                    Json::Null => Ok("".into()),
                    other => Err(self.type_error(other.kind().to_owned(), "string")),
                });
                Ok(Some(Value::Array(texts.collect::<Result<_, _>>()?)))
            }
            _ => Ok(None),
        }
    }

    /// Reads a part whose type has its own reader: quietly, and its first error ends everything.
    fn apart(&mut self, json: Json<'_>, ty: TypeRef<'s>) -> Step {
        let mut inner = Decoder { quiet: true, ..Decoder::default() };
        inner.run(json, ty).map_err(|error| match error {
            DecodeError::Type { found, field, expected, .. } => {
                let outer = self.go_path();
                let field = if field.is_empty() { outer } else { format!("{outer}.{field}") };
                DecodeError::Type { found, owner: self.owner.to_owned(), field, expected }
            }
            other => other,
        })
    }

    fn untyped(&mut self, json: Json<'_>) -> Value {
        match json {
            Json::Number(text) => match go_number(&text) {
                Some(number) => Value::Number(number),
                None => {
                    let error = self.type_error(format!("number {text}"), "float64");
                    self.save(error);
                    Value::Null
                }
            },
            Json::Array(items) => {
                let before = self.path.len();
                let items = items.into_iter().enumerate().map(|(index, item)| {
                    self.path.push_str(&format!("[{index}]"));
                    let value = self.untyped(item);
                    self.path.truncate(before);
                    value
                });
                Value::Array(items.collect())
            }
            Json::Object(members) => {
                let before = self.path.len();
                let mut map = Map::new();
                for (key, json) in members {
                    if map.contains_key(&*key) {
                        self.complain("duplicate field", &key);
                    }
                    self.enter(&key);
                    let value = self.untyped(json);
                    self.path.truncate(before);
                    map.insert(key.into_owned(), value);
                }
                Value::Object(map)
            }
            scalar => scalar.into_value(),
        }
    }

    fn enter(&mut self, key: &str) {
        if !self.path.is_empty() {
            self.path.push('.');
        }
        self.path.push_str(key);
    }

    fn complain(&mut self, what: &str, key: &str) {
        if self.quiet || self.strict.len() >= STRICT_MAX {
            return;
        }
        let path = if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) };
        let complaint = format!("{what} {}", quote::quote(&path));
        if self.seen.insert(complaint.clone()) {
            self.strict.push(complaint);
            self.converted.push(format!("{what} \"{}\"", self.without_keys(path)));
        }
    }

    fn without_keys(&self, mut path: String) -> String {
        self.keys.iter().rev().for_each(|key| path.replace_range(key.clone(), ""));
        path
    }

    fn wrong(&mut self, found: String, ty: TypeRef<'s>) -> Step {
        let error = self.type_error(found, ty.get().go);
        self.save(error);
        Ok(None)
    }

    fn type_error(&self, found: String, expected: &str) -> DecodeError {
        DecodeError::Type { found, owner: self.owner.to_owned(), field: self.go_path(), expected: expected.to_owned() }
    }

    /// Fields from the root as Go names them: embedded structs count.
    fn go_path(&self) -> String {
        let names: Vec<String> = self.fields.iter().map(|f| format!("{}{}", f.published.embedded, f.name)).collect();
        names.join(".")
    }

    fn save(&mut self, error: DecodeError) {
        self.saved.get_or_insert(error);
    }
}

fn quantity(json: Json<'_>) -> Result<Value, DecodeError> {
    let text = match json {
        Json::String(text) | Json::Number(text) => text,
        other => other.into_value().to_string().into(),
    };
    match Quantity::parse(text.trim()) {
        Ok(quantity) => Ok(quantity.to_string().into()),
        Err(error) => Err(DecodeError::Value(error.to_string())),
    }
}

/// `v1.PodSpec` → `PodSpec`.
fn go_name(ty: TypeRef<'_>) -> &str {
    ty.get().go.rsplit('.').next().unwrap_or("")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::facts::kind_type;
    use crate::json::parse;

    fn read(group_version: &str, kind: &str, text: &str) -> Result<Decoded, DecodeError> {
        decode(parse(text.as_bytes()).unwrap(), kind_type(group_version, kind).unwrap())
    }

    #[track_caller]
    fn fails(group_version: &str, kind: &str, text: &str, expected: &str) {
        assert_eq!(read(group_version, kind, text).unwrap_err().to_string(), expected);
    }

    #[test]
    fn a_wrong_type_is_named_as_go_names_it() {
        for (group_version, kind, text, expected) in [
            ("v1", "ConfigMap", r#"{"data":{"a":1}}"#, "number into Go struct field ConfigMap.data of type string"),
            (
                "v1",
                "ConfigMap",
                r#"{"data":[]}"#,
                "array into Go struct field ConfigMap.data of type map[string]string",
            ),
            (
                "v1",
                "ConfigMap",
                r#"{"metadata":"x"}"#,
                "string into Go struct field ConfigMap.metadata of type v1.ObjectMeta",
            ),
            ("v1", "ConfigMap", r#"[]"#, "array into Go value of type v1.ConfigMap"),
            ("v1", "Secret", r#"{"data":{"a":1}}"#, "number into Go struct field Secret.data of type []uint8"),
            ("v1", "Secret", r#"{"data":{"a":["x"]}}"#, "string into Go struct field Secret.data of type uint8"),
            ("v1", "Secret", r#"{"data":{"a":[256]}}"#, "number 256 into Go struct field Secret.data of type uint8"),
            (
                "v1",
                "ServiceAccount",
                r#"{"secrets":["x"]}"#,
                "string into Go struct field ServiceAccount.secrets of type v1.ObjectReference",
            ),
            (
                "apps/v1",
                "Deployment",
                r#"{"spec":{"replicas":"3"}}"#,
                "string into Go struct field DeploymentSpec.spec.replicas of type int32",
            ),
            (
                "apps/v1",
                "Deployment",
                r#"{"spec":{"replicas":1.5}}"#,
                "number 1.5 into Go struct field DeploymentSpec.spec.replicas of type int32",
            ),
            (
                "apps/v1",
                "Deployment",
                r#"{"spec":{"replicas":4294967296}}"#,
                "number 4294967296 into Go struct field DeploymentSpec.spec.replicas of type int32",
            ),
            (
                "v1",
                "Pod",
                r#"{"spec":{"containers":[{"ports":[{"containerPort":"x"}]}]}}"#,
                "string into Go struct field ContainerPort.spec.containers.ports.containerPort of type int32",
            ),
            (
                "v1",
                "Pod",
                r#"{"spec":{"volumes":[{"hostPath":1}]}}"#,
                "number into Go struct field Volume.spec.volumes.VolumeSource.hostPath of type v1.HostPathVolumeSource",
            ),
            (
                "v1",
                "Service",
                r#"{"spec":{"ports":[{"targetPort":true}]}}"#,
                "bool into Go struct field ServicePort.spec.ports.targetPort of type int32",
            ),
        ] {
            fails(group_version, kind, text, &format!("json: cannot unmarshal {expected}"));
        }
    }

    #[test]
    fn the_first_wrong_type_wins_and_a_value_that_can_not_be_read_wins_over_it() {
        fails(
            "v1",
            "ConfigMap",
            r#"{"immutable":"x","data":1}"#,
            "json: cannot unmarshal string into Go struct field ConfigMap.immutable of type bool",
        );
        fails("v1", "Secret", r#"{"data":{"a":"!"}}"#, "illegal base64 data at input byte 0");
        fails(
            "v1",
            "ConfigMap",
            r#"{"immutable":"x","metadata":{"creationTimestamp":"x"}}"#,
            "parsing time \"x\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"x\" as \"2006\"",
        );
    }

    #[test]
    fn unknown_and_doubled_fields_are_told_in_document_order() {
        let text = r#"{"bogus":{"a":1,"a":2},"data":{"a":"1","a":"2"},"Kind":"x","metadata":{"extra":1,"name":"a","name":"b"}}"#;
        let decoded = read("v1", "ConfigMap", text).unwrap();
        assert_eq!(
            decoded.strict,
            [
                r#"unknown field "bogus""#,
                r#"duplicate field "data.a""#,
                r#"unknown field "Kind""#,
                r#"unknown field "metadata.extra""#,
                r#"duplicate field "metadata.name""#
            ]
        );
        assert_eq!(decoded.value, json!({"data": {"a": "2"}, "metadata": {"name": "b"}}));
        let text = r#"{"template":{"spec":{"containers":[{"env":[{"valeu":1}]}]}}}"#;
        let strict = read("v1", "PodTemplate", text).unwrap().strict;
        assert_eq!(strict, [r#"unknown field "template.spec.containers[0].env[0].valeu""#]);
    }

    #[test]
    fn converted_complaints_are_sorted_and_name_no_entries_of_maps() {
        let text =
            r#"{"bogus":1,"spec":{"versions":[{"x":1,"schema":{"openAPIV3Schema":{"properties":{"a":{"b":1}}}}}]}}"#;
        let decoded = read("apiextensions.k8s.io/v1", "CustomResourceDefinition", text).unwrap();
        let schema = "spec.versions[0].schema.openAPIV3Schema.properties";
        assert_eq!(decoded.strict[2], format!("unknown field \"{schema}.a.b\""));
        let expected = ["bogus".to_owned(), format!("{schema}.b"), "spec.versions[0].x".to_owned()];
        assert_eq!(decoded.converted, expected.map(|path| format!("unknown field \"{path}\"")));
    }

    #[test]
    fn complaints_are_bounded() {
        let fields: Vec<String> = (0..1000).map(|n| format!("\"x{n}\":1")).collect();
        let decoded = read("v1", "ConfigMap", &format!("{{{}}}", fields.join(","))).unwrap();
        assert_eq!(decoded.strict.len(), STRICT_MAX);
    }

    #[test]
    fn values_are_canonical() {
        let text = r#"{"metadata":{"creationTimestamp":"2024-01-01T02:00:00.5+02:00"},"data":{"a":"YQ==\n"}}"#;
        let value = read("v1", "Secret", text).unwrap().value;
        assert_eq!(value, json!({"metadata": {"creationTimestamp": "2024-01-01T00:00:00Z"}, "data": {"a": "YQ=="}}));
        let text = r#"{"spec":{"hard":{"cpu":"1000m","memory":1024,"pods":"1e3"}}}"#;
        let value = read("v1", "ResourceQuota", text).unwrap().value;
        assert_eq!(value["spec"]["hard"], json!({"cpu": "1", "memory": "1024", "pods": "1e3"}));
    }

    #[test]
    fn schemas_within_schemas_are_read_quietly() {
        let text = r#"{"spec":{"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":
            {"type":"object","additionalProperties":{"type":"string","bogus":1},"items":[{"minimum":1.0}],"bogus":1}}}]}}"#;
        let decoded = read("apiextensions.k8s.io/v1", "CustomResourceDefinition", text).unwrap();
        assert_eq!(decoded.strict, [r#"unknown field "spec.versions[0].schema.openAPIV3Schema.bogus""#]);
        let schema = &decoded.value["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let expected = json!({"type": "object", "additionalProperties": {"type": "string"}, "items": [{"minimum": 1}]});
        assert_eq!(schema, &expected);
    }

    #[test]
    fn untyped_documents_tell_doubled_fields_with_their_path() {
        let decoded = decode_untyped(parse(br#"{"spec":{"l":[{"v":1,"v":2.0}]}}"#).unwrap()).unwrap();
        assert_eq!(decoded.strict, [r#"duplicate field "spec.l[0].v""#]);
        assert_eq!(decoded.value, json!({"spec": {"l": [{"v": 2}]}}));
        let error = decode_untyped(parse(b"1e400").unwrap()).unwrap_err();
        assert_eq!(error.to_string(), "json: cannot unmarshal number 1e400 into Go value of type float64");
    }
}
