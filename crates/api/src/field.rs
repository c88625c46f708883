//! Field paths and field errors: how validation names a place in an object and what is wrong there.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

use crate::quote::{escape_html, quote};

/// The way from the root of an object to one field. It lives on the stack and borrows its parent, so walking a valid
/// object allocates nothing; text is made only once there is an error to report.
#[derive(Debug, Clone, Copy)]
pub struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    element: Element<'a>,
}

#[derive(Debug, Clone, Copy)]
enum Element<'a> {
    /// No path at all, which prints as `<nil>` and vanishes from its children.
    Nil,
    Name(&'a str),
    Index(usize),
    Key(&'a str),
}

impl<'a> Path<'a> {
    /// A path that starts with this field.
    pub const fn root(name: &'a str) -> Self {
        Self { parent: None, element: Element::Name(name) }
    }

    /// No path: prints as `<nil>`, as upstream does where an error belongs to no field. Its children are roots.
    pub const fn nil() -> Self {
        Self { parent: None, element: Element::Nil }
    }

    /// A field of this one: `.name`.
    pub const fn child<'b>(&'b self, name: &'b str) -> Path<'b> {
        Path { parent: Some(self), element: Element::Name(name) }
    }

    /// An item of this list: `[0]`.
    pub const fn index<'b>(&'b self, index: usize) -> Path<'b> {
        Path { parent: Some(self), element: Element::Index(index) }
    }

    /// An entry of this map: `[key]`.
    pub const fn key<'b>(&'b self, key: &'b str) -> Path<'b> {
        Path { parent: Some(self), element: Element::Key(key) }
    }

    const fn is_nil(&self) -> bool {
        matches!(self.element, Element::Nil)
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parent = self.parent.filter(|parent| !parent.is_nil());
        if let Some(parent) = parent {
            fmt::Display::fmt(parent, formatter)?;
        }
        match self.element {
            Element::Nil => formatter.write_str("<nil>"),
            Element::Name("") => formatter.write_str("[]"),
            Element::Name(name) if parent.is_none() => formatter.write_str(name),
            Element::Name(name) => write!(formatter, ".{name}"),
            Element::Index(index) => write!(formatter, "[{index}]"),
            Element::Key(key) => write!(formatter, "[{key}]"),
        }
    }
}

/// What is wrong with a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FieldErrorKind {
    /// The value names something that does not exist.
    NotFound,
    /// A value is missing.
    Required,
    /// A value that must be unique is there twice.
    Duplicate,
    /// The value is malformed or out of bounds.
    Invalid,
    /// The value is none of the allowed ones.
    NotSupported,
    /// The value is well-formed but not allowed here and now.
    Forbidden,
    /// The value has too many bytes or characters.
    TooLong,
    /// The list has too many items.
    TooMany,
    /// The list has too few items.
    TooFew,
    /// Not the user's fault.
    Internal,
    /// The value has the wrong type.
    TypeInvalid,
    /// The value has too few characters.
    TooShort,
}

impl FieldErrorKind {
    /// The `reason` of a cause in a Status.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::NotFound => "FieldValueNotFound",
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::TooFew => "FieldValueTooFew",
            Self::Internal => "InternalError",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::TooShort => "FieldValueTooShort",
        }
    }

    /// Whether the message shows the value.
    const fn shows_value(self) -> bool {
        match self {
            Self::Required | Self::Forbidden | Self::TooLong | Self::TooShort | Self::Internal => false,
            Self::NotFound
            | Self::Duplicate
            | Self::Invalid
            | Self::NotSupported
            | Self::TooMany
            | Self::TooFew
            | Self::TypeInvalid => true,
        }
    }
}

impl fmt::Display for FieldErrorKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::NotFound => "Not found",
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::TooFew => "Too few",
            Self::Internal => "Internal error",
            Self::TooShort => "Too short",
        })
    }
}

/// The offending value, in the form in which the message shows it.
#[derive(Debug, Clone, PartialEq)]
pub enum BadValue {
    /// Not shown.
    Omitted,
    /// A string: quoted as Go quotes it.
    Text(String),
    /// A whole number.
    Int(i64),
    /// A floating-point number.
    Float(f64),
    /// A boolean.
    Bool(bool),
    /// Anything else, already as JSON text.
    Json(String),
}

impl BadValue {
    /// Shows the value as JSON whatever it is. Upstream does so for strings of a named type, whose quoting then differs
    /// from that of plain strings in `<`, `>` and `&`.
    pub fn json(value: &Value) -> Self {
        Self::encode(value)
    }

    /// Shows a structure as JSON, its fields in the order of their declaration as Go does.
    pub fn encode(value: &impl Serialize) -> Self {
        match serde_json::to_string(value) {
            Ok(json) => Self::Json(escape_html(&json)),
            // Only a map with keys that are no strings gets here; the message is worth more than the value.
            Err(_) => Self::Omitted,
        }
    }
}

impl fmt::Display for BadValue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Omitted => formatter.write_str("<value omitted>"),
            Self::Text(text) => formatter.write_str(&quote(text)),
            Self::Int(number) => write!(formatter, "{number}"),
            Self::Float(number) => formatter.write_str(&go_float(*number)),
            Self::Bool(flag) => write!(formatter, "{flag}"),
            Self::Json(json) => formatter.write_str(json),
        }
    }
}

impl From<&str> for BadValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<&String> for BadValue {
    fn from(text: &String) -> Self {
        Self::Text(text.clone())
    }
}

impl From<String> for BadValue {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<i64> for BadValue {
    fn from(number: i64) -> Self {
        Self::Int(number)
    }
}

impl From<i32> for BadValue {
    fn from(number: i32) -> Self {
        Self::Int(number.into())
    }
}

impl From<f64> for BadValue {
    fn from(number: f64) -> Self {
        Self::Float(number)
    }
}

impl From<bool> for BadValue {
    fn from(flag: bool) -> Self {
        Self::Bool(flag)
    }
}

impl From<&Value> for BadValue {
    fn from(value: &Value) -> Self {
        match value {
            Value::String(text) => Self::Text(text.clone()),
            Value::Bool(flag) => Self::Bool(*flag),
            Value::Number(number) => match (number.as_i64(), number.as_f64()) {
                (Some(integer), _) => Self::Int(integer),
                (None, Some(float)) => Self::Float(float),
                (None, None) => Self::Json(number.to_string()),
            },
            Value::Null | Value::Array(_) | Value::Object(_) => Self::json(value),
        }
    }
}

/// One thing wrong with one field of an object.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldError {
    /// What is wrong.
    pub kind: FieldErrorKind,
    /// The path of the field.
    pub field: String,
    /// The value found there.
    pub bad_value: BadValue,
    /// What would be right; may be empty.
    pub detail: String,
}

impl FieldError {
    fn new(kind: FieldErrorKind, path: &Path<'_>, bad_value: BadValue, detail: impl Into<String>) -> Self {
        Self { kind, field: path.to_string(), bad_value, detail: detail.into() }
    }

    /// The value names something that does not exist.
    pub fn not_found(path: &Path<'_>, value: impl Into<BadValue>) -> Self {
        Self::new(FieldErrorKind::NotFound, path, value.into(), "")
    }

    /// A value is missing.
    pub fn required(path: &Path<'_>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Required, path, BadValue::from(""), detail)
    }

    /// The value is there twice.
    pub fn duplicate(path: &Path<'_>, value: impl Into<BadValue>) -> Self {
        Self::new(FieldErrorKind::Duplicate, path, value.into(), "")
    }

    /// The value is malformed or out of bounds.
    pub fn invalid(path: &Path<'_>, value: impl Into<BadValue>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Invalid, path, value.into(), detail)
    }

    /// The value has the wrong type.
    pub fn type_invalid(path: &Path<'_>, value: impl Into<BadValue>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::TypeInvalid, path, value.into(), detail)
    }

    /// The value is none of `supported`, which are shown in the order given.
    pub fn not_supported(path: &Path<'_>, value: impl Into<BadValue>, supported: &[impl AsRef<str>]) -> Self {
        let quoted: Vec<_> = supported.iter().map(|value| quote(value.as_ref())).collect();
        let detail = if quoted.is_empty() { String::new() } else { format!("supported values: {}", quoted.join(", ")) };
        Self::new(FieldErrorKind::NotSupported, path, value.into(), detail)
    }

    /// The value is not allowed here and now.
    pub fn forbidden(path: &Path<'_>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Forbidden, path, BadValue::from(""), detail)
    }

    /// More than `max` bytes. The value itself is not shown.
    pub fn too_long(path: &Path<'_>, max: usize) -> Self {
        let detail = format!("may not be more than {}", counted(max, "byte"));
        Self::new(FieldErrorKind::TooLong, path, BadValue::Omitted, detail)
    }

    /// More than `max` characters. The value itself is not shown.
    pub fn too_long_characters(path: &Path<'_>, max: usize) -> Self {
        let detail = format!("may not be more than {}", counted(max, "character"));
        Self::new(FieldErrorKind::TooLong, path, BadValue::Omitted, detail)
    }

    /// Fewer than `min` characters.
    pub fn too_short(path: &Path<'_>, value: &str, min: usize) -> Self {
        let detail = format!("must be at least {}", counted(min, "character"));
        Self::new(FieldErrorKind::TooShort, path, value.into(), detail)
    }

    /// More than `max` items in a list that has `actual` of them, if that is known.
    pub fn too_many(path: &Path<'_>, actual: Option<usize>, max: usize) -> Self {
        let shown = actual.map_or(BadValue::Omitted, |count| BadValue::Json(count.to_string()));
        Self::new(FieldErrorKind::TooMany, path, shown, format!("must have at most {}", counted(max, "item")))
    }

    /// Fewer than `min` items in a list that has `actual` of them.
    pub fn too_few(path: &Path<'_>, actual: usize, min: usize) -> Self {
        let shown = BadValue::Json(actual.to_string());
        Self::new(FieldErrorKind::TooFew, path, shown, format!("must have at least {}", counted(min, "item")))
    }

    /// Not the user's fault.
    pub fn internal(path: &Path<'_>, cause: impl fmt::Display) -> Self {
        Self::new(FieldErrorKind::Internal, path, BadValue::Omitted, cause.to_string())
    }

    /// The same error at another place: for validation of a part that does not know where it stands.
    #[must_use]
    pub fn at(mut self, field: impl Into<String>) -> Self {
        self.field = field.into();
        self
    }

    /// The message without the field.
    pub fn body(&self) -> String {
        let mut body = self.kind.to_string();
        if self.kind.shows_value() && self.bad_value != BadValue::Omitted {
            body = format!("{body}: {}", self.bad_value);
        }
        if !self.detail.is_empty() {
            body = format!("{body}: {}", self.detail);
        }
        body
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.field, self.body())
    }
}

impl std::error::Error for FieldError {}

/// All errors in one text, each once: `a`, or `[a, b]`. `None` if there are none.
pub fn aggregate(errors: &[FieldError]) -> Option<String> {
    let mut messages: Vec<String> = Vec::with_capacity(errors.len());
    let mut seen = std::collections::HashSet::with_capacity(errors.len());
    for message in errors.iter().map(ToString::to_string) {
        if seen.insert(message.clone()) {
            messages.push(message);
        }
    }
    match messages.as_slice() {
        [] => None,
        [only] => Some(only.clone()),
        _ => Some(format!("[{}]", messages.join(", "))),
    }
}

fn counted(count: usize, unit: &str) -> String {
    if count == 1 { format!("{count} {unit}") } else { format!("{count} {unit}s") }
}

/// A floating-point number as Go prints it with `%v`: shortest digits, an exponent from 1e21 up and below 1e-4.
fn go_float(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let scientific = format!("{number:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    match exponent.parse::<i32>() {
        Ok(power) if !(-4..21).contains(&power) => {
            let sign = if power < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", power.unsigned_abs())
        }
        _ => number.to_string(),
    }
}

#[cfg(test)]
mod tests;
