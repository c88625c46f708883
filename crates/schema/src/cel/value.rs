//! Values of expressions. What comes from an object is borrowed from its JSON and read as its schema says, when it is asked for.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use serde_json::Value as Json;
use setpoint_api::Quantity;

use super::EvalError;
use super::authorizer::{Decision, Handle, Resource};
use super::escape::unescape;
use super::reading::{ANY, Kind, Reading};
use super::semver::Semver;
use super::time::Instant;
use super::url::Url;

type Evaluated<T> = Result<T, EvalError>;

/// A value of an expression.
#[derive(Debug, Clone)]
pub enum Value<'a> {
    /// Nothing.
    Null,
    /// true or false.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A whole number that is not negative.
    Uint(u64),
    /// A floating-point number.
    Double(f64),
    /// A text.
    String(Text<'a>),
    /// Bytes.
    Bytes(Arc<[u8]>),
    /// A list.
    List(List<'a>),
    /// A map, or an object of a schema.
    Map(Map<'a>),
    /// A point in time.
    Timestamp(Instant),
    /// A span of time, in nanoseconds.
    Duration(i64),
    /// A type.
    Type(Arc<str>),
    /// A value or none.
    Optional(Option<Arc<Value<'a>>>),
    /// A value of one of the types that Kubernetes adds.
    Special(Arc<Special>),
    /// Data that was kept without being known.
    Preserved(&'a Json),
}

/// A text, of the object or made while evaluating.
#[derive(Debug, Clone)]
pub enum Text<'a> {
    /// Of the object or the expression.
    Borrowed(&'a str),
    /// Made while evaluating.
    Shared(Arc<str>),
}

/// A list, of the object or made while evaluating.
#[derive(Debug, Clone)]
pub enum List<'a> {
    /// Of the object, under the schema of the list.
    Json(&'a [Json], Reading<'a>),
    /// Made while evaluating; the schema is that of the list that it was made from, if it says that order doesn't matter.
    Items(Arc<Made<Value<'a>>>, Option<Reading<'a>>),
}

/// A map, of the object or made while evaluating.
#[derive(Debug, Clone)]
pub enum Map<'a> {
    /// Of the object, under its schema.
    Json(&'a serde_json::Map<String, Json>, Reading<'a>),
    /// Made while evaluating; each key is there once.
    Entries(Arc<Made<(Value<'a>, Value<'a>)>>),
}

/// The parts of a list or map that was made while evaluating, and how many parts they have in all. Parts are shared, so
/// what takes little memory may still take forever to go over.
#[derive(Debug, Clone)]
pub struct Made<T> {
    parts: Vec<T>,
    weight: u64,
}

impl<T: Weighed> Made<T> {
    pub(super) fn shared(parts: Vec<T>) -> Arc<Self> {
        let weight = parts.iter().fold(1, |weight: u64, part| weight.saturating_add(part.weight()));
        Arc::new(Self { parts, weight })
    }

    pub(super) fn extend(&mut self, parts: Vec<T>) {
        self.weight = parts.iter().fold(self.weight, |weight, part| weight.saturating_add(part.weight()));
        self.parts.extend(parts);
    }
}

impl<T> std::ops::Deref for Made<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.parts
    }
}

/// What has a number of parts in all.
pub trait Weighed {
    /// How many parts there are.
    fn weight(&self) -> u64;
}

impl Weighed for Value<'_> {
    fn weight(&self) -> u64 {
        match self {
            Value::List(List::Items(made, _)) => made.weight,
            Value::Map(Map::Entries(made)) => made.weight,
            Value::List(list) => 1 + list.len() as u64,
            Value::Map(map) => 1 + map.len() as u64,
            Value::Optional(Some(inner)) => inner.weight(),
            _ => 1,
        }
    }
}

impl Weighed for (Value<'_>, Value<'_>) {
    fn weight(&self) -> u64 {
        self.0.weight().saturating_add(self.1.weight())
    }
}

/// Values of the types that Kubernetes adds.
#[derive(Debug, Clone, PartialEq)]
pub enum Special {
    /// An amount.
    Quantity(Quantity),
    /// An address.
    Ip(IpAddr),
    /// An address and how many of its bits count.
    Cidr(IpAddr, u8),
    /// A location.
    Url(Url),
    /// A version.
    Semver(Semver),
    /// A format by its name.
    Format(&'static str),
    /// Who knows what somebody may do.
    Authorizer(Handle),
    /// The question whether somebody may do something with a path.
    PathCheck(Handle, Box<str>),
    /// A question about a group of resources, still to be narrowed.
    GroupCheck(Handle, Box<str>),
    /// The question whether somebody may do something with a resource.
    ResourceCheck(Handle, Resource),
    /// An answer.
    Decision(Decision),
}

impl<'a> Value<'a> {
    /// A text made while evaluating.
    pub fn text(text: impl Into<Arc<str>>) -> Self {
        Self::String(Text::Shared(text.into()))
    }

    /// A list made while evaluating.
    pub fn list(items: Vec<Value<'a>>) -> Self {
        Self::List(List::Items(Made::shared(items), None))
    }

    /// A map made while evaluating; each key must be there once.
    pub fn map(entries: Vec<(Value<'a>, Value<'a>)>) -> Self {
        Self::Map(Map::Entries(Made::shared(entries)))
    }

    pub(super) fn special(special: Special) -> Self {
        Self::Special(Arc::new(special))
    }

    pub(super) fn some(value: Value<'a>) -> Self {
        Self::Optional(Some(Arc::new(value)))
    }

    /// JSON of which nothing is known beforehand.
    pub fn from_json(json: &'a Json) -> Evaluated<Self> {
        Self::under(json, ANY)
    }

    /// JSON as its schema says it is to be read.
    pub fn under(json: &'a Json, reading: Reading<'a>) -> Evaluated<Self> {
        let wrong = |what: &str| Err(EvalError::failed(format!("invalid data, expected {what}")));
        match (reading.kind(), json) {
            (Kind::Any, _) => Ok(Self::plain(json)),
            (_, Json::Null) if reading.is_nullable() => Ok(Self::Null),
            (_, Json::Null) => Err(EvalError::failed("invalid data, got null for schema with nullable=false")),
            (Kind::String, Json::String(text)) => Ok(Self::String(Text::Borrowed(text))),
            (Kind::Bool, Json::Bool(value)) => Ok(Self::Bool(*value)),
            (Kind::Int, Json::Number(number)) => match number.as_i64() {
                Some(number) => Ok(Self::Int(number)),
                None => wrong("int, got float64"),
            },
            (Kind::Double, Json::Number(number)) => Ok(Self::Double(number.as_f64().unwrap_or(f64::NAN))),
            (Kind::Object | Kind::Map, Json::Object(map)) => Ok(Self::Map(Map::Json(map, reading))),
            (Kind::List(_), Json::Array(items)) => Ok(Self::List(List::Json(items, reading))),
            (Kind::IntOrString, Json::String(text)) => Ok(Self::String(Text::Borrowed(text))),
            (Kind::IntOrString, Json::Number(number)) if number.is_i64() => {
                Ok(Self::Int(number.as_i64().unwrap_or_default()))
            }
            (Kind::Preserved, _) => Ok(Self::Preserved(json)),
            (kind @ (Kind::Bytes | Kind::Duration | Kind::Date | Kind::DateTime), Json::String(text)) => {
                Self::formatted(text, kind)
            }
            (Kind::IntOrString, _) => wrong("XIntOrString value to be either a string or integer"),
            (Kind::Object | Kind::Map, _) => wrong("a map for the provided schema with type=object"),
            (Kind::List(_), _) => wrong("an array for the provided schema with type=array"),
            (Kind::Bool, other) => wrong(&format!("bool, got {}", go_type(other))),
            (Kind::Int, other) => wrong(&format!("int, got {}", go_type(other))),
            (Kind::Double, other) => wrong(&format!("float, got {}", go_type(other))),
            (_, other) => wrong(&format!("string, got {}", go_type(other))),
        }
    }

    fn plain(json: &'a Json) -> Self {
        match json {
            Json::Null => Self::Null,
            Json::Bool(value) => Self::Bool(*value),
            Json::Number(number) => match number.as_i64() {
                Some(number) => Self::Int(number),
                None => Self::Double(number.as_f64().unwrap_or(f64::NAN)),
            },
            Json::String(text) => Self::String(Text::Borrowed(text)),
            Json::Array(items) => Self::List(List::Json(items, ANY)),
            Json::Object(map) => Self::Map(Map::Json(map, ANY)),
        }
    }

    fn formatted(text: &str, kind: Kind<'_>) -> Evaluated<Self> {
        match kind {
            Kind::Bytes => super::base64::decode(text)
                .map(|bytes| Self::Bytes(bytes.into()))
                .ok_or_else(|| EvalError::failed(format!("Invalid byte formatted string {text}: illegal base64 data"))),
            Kind::Duration => super::time::schema_duration(text).map(Self::Duration).ok_or_else(|| {
                EvalError::failed(format!("Invalid duration {text}: unable to parse {text} as duration"))
            }),
            Kind::Date => Instant::parse_date(text)
                .map(Self::Timestamp)
                .ok_or_else(|| EvalError::failed(format!("Invalid date formatted string {text}"))),
            _ => Instant::parse_lenient(text)
                .map(Self::Timestamp)
                .ok_or_else(|| EvalError::failed(format!("Invalid date-time formatted string {text}"))),
        }
    }

    /// The name of its type.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::String(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Timestamp(_) => "google.protobuf.Timestamp",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Type(_) => "type",
            Self::Optional(_) => "optional_type",
            Self::Preserved(_) => "unknown",
            Self::Special(special) => match &**special {
                Special::Quantity(_) => "kubernetes.Quantity",
                Special::Ip(_) => "net.IP",
                Special::Cidr(..) => "net.CIDR",
                Special::Url(_) => "kubernetes.URL",
                Special::Semver(_) => "kubernetes.Semver",
                Special::Format(_) => "kubernetes.NamedFormat",
                Special::Authorizer(_) => "kubernetes.authorization.Authorizer",
                Special::PathCheck(..) => "kubernetes.authorization.PathCheck",
                Special::GroupCheck(..) => "kubernetes.authorization.GroupCheck",
                Special::ResourceCheck(..) => "kubernetes.authorization.ResourceCheck",
                Special::Decision(_) => "kubernetes.authorization.Decision",
            },
        }
    }

    /// Its text, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text.as_str()),
            _ => None,
        }
    }

    /// true or false, if it is one.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// The number of its characters, bytes, items or entries; 1 for all else.
    pub(super) fn size(&self) -> u64 {
        match self {
            Self::String(text) => text.as_str().chars().count() as u64,
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::List(list) => list.len() as u64,
            Self::Map(map) => map.len() as u64,
            Self::Optional(Some(inner)) => inner.size(),
            Self::Special(special) => match &**special {
                Special::Ip(ip) => address_bytes(ip),
                Special::Cidr(ip, bits) => {
                    let _ = ip;
                    u64::from(bits.div_ceil(8))
                }
                _ => 1,
            },
            _ => 1,
        }
    }
}

fn address_bytes(ip: &IpAddr) -> u64 {
    if ip.is_ipv4() { 4 } else { 16 }
}

/// What Go calls the type of a value that was read from JSON.
fn go_type(json: &Json) -> &'static str {
    match json {
        Json::Null => "<nil>",
        Json::Bool(_) => "bool",
        Json::Number(number) if number.is_i64() => "int64",
        Json::Number(_) => "float64",
        Json::String(_) => "string",
        Json::Array(_) => "[]interface {}",
        Json::Object(_) => "map[string]interface {}",
    }
}

impl Text<'_> {
    /// The text.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Shared(text) => text,
        }
    }
}

impl<'a> List<'a> {
    /// How many items it has.
    pub fn len(&self) -> usize {
        match self {
            Self::Json(items, _) => items.len(),
            Self::Items(items, _) => items.len(),
        }
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The item at a place that is there.
    pub fn get(&self, place: usize) -> Evaluated<Value<'a>> {
        match self {
            Self::Json(items, reading) => {
                let item =
                    items.get(place).ok_or_else(|| EvalError::failed(format!("index out of bounds: {place}")))?;
                Value::under(item, reading.items().unwrap_or(ANY))
            }
            Self::Items(items, _) => {
                items.get(place).cloned().ok_or_else(|| EvalError::failed(format!("index out of bounds: {place}")))
            }
        }
    }

    /// All items.
    pub fn items(&self) -> Evaluated<Vec<Value<'a>>> {
        (0..self.len()).map(|place| self.get(place)).collect()
    }

    /// The schema that says that order doesn't matter.
    pub(super) fn unordered(&self) -> Option<Reading<'a>> {
        let reading = match self {
            Self::Json(_, reading) => *reading,
            Self::Items(_, reading) => (*reading)?,
        };
        reading.unordered().is_some().then_some(reading)
    }

    /// Whether it comes from the object, which is compared more strictly.
    pub(super) fn is_of_object(&self) -> bool {
        matches!(self, Self::Json(..) | Self::Items(_, Some(_)))
    }
}

impl<'a> Map<'a> {
    /// How many entries it has.
    pub fn len(&self) -> usize {
        match self {
            Self::Json(map, _) => map.len(),
            Self::Entries(entries) => entries.len(),
        }
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of a key, if it is there.
    pub fn find(&self, key: &Value<'_>) -> Evaluated<Option<Value<'a>>> {
        match self {
            Self::Json(_, reading) => match key.as_str() {
                Some(key) => self.find_text(key),
                None if reading.is_any() => Ok(None),
                None => Err(EvalError::no_such_overload()),
            },
            Self::Entries(entries) => Ok(entries
                .iter()
                .find(|(known, _)| super::equality::same_key(known, key))
                .map(|(_, value)| value.clone())),
        }
    }

    /// The value of a text as key, if it is there. A null is no property.
    pub fn find_text(&self, key: &str) -> Evaluated<Option<Value<'a>>> {
        match self {
            Self::Json(map, reading) => {
                let (json, inner) = match reading.kind() {
                    Kind::Object => {
                        let Some(name) = unescape(key) else { return Ok(None) };
                        match map.get(&*name) {
                            None | Some(Json::Null) => return Ok(None),
                            Some(json) => match reading.property(&name) {
                                Some(inner) => (json, inner),
                                None => return Ok(None),
                            },
                        }
                    }
                    _ => match map.get(key) {
                        Some(json) => (json, reading.items().unwrap_or(ANY)),
                        None => return Ok(None),
                    },
                };
                Value::under(json, inner).map(Some)
            }
            Self::Entries(entries) => {
                Ok(entries.iter().find(|(known, _)| known.as_str() == Some(key)).map(|(_, value)| value.clone()))
            }
        }
    }

    /// All keys, as expressions write them.
    pub fn keys(&self) -> Vec<Value<'a>> {
        match self {
            Self::Json(map, reading) => {
                if reading.kind() != Kind::Object {
                    return map.keys().map(|key| Value::String(Text::Borrowed(key))).collect();
                }
                let known = map.keys().filter(|key| reading.property(key).is_some());
                known
                    .map(|key| match super::escape::escape(key) {
                        Some(Cow::Owned(escaped)) => Value::text(escaped),
                        _ => Value::String(Text::Borrowed(key)),
                    })
                    .collect()
            }
            Self::Entries(entries) => entries.iter().map(|(key, _)| key.clone()).collect(),
        }
    }
}
