//! What a schema asks of values beyond their type: bounds, patterns, enumerations, combinations, rules in CEL.

use std::sync::OnceLock;

use serde_json::Value;

use super::tree::JsonType;
use crate::edit::Edit;
use crate::regexp::Regexp;

/// The rules for values of one schema, by what they are about.
#[derive(Debug, Default)]
pub(super) struct Rules {
    /// The format, if it is one that is checked.
    pub(super) format: Option<Box<str>>,
    /// For numbers.
    pub(super) numbers: Option<Box<Numbers>>,
    /// For texts.
    pub(super) texts: Option<Box<Texts>>,
    /// For the number of items.
    pub(super) items: Option<Box<Counts>>,
    /// For the number of fields.
    pub(super) fields: Option<Box<Counts>>,
    /// Fields that must be there.
    pub(super) required: Box<[Box<str>]>,
    /// All values that are allowed; empty for any.
    pub(super) allowed: Box<[Value]>,
    /// `allOf` and its relatives.
    pub(super) combinations: Option<Box<Combinations>>,
}

/// Bounds of a number.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Numbers {
    pub(super) maximum: Option<f64>,
    pub(super) exclusive_maximum: bool,
    pub(super) minimum: Option<f64>,
    pub(super) exclusive_minimum: bool,
    pub(super) multiple_of: Option<f64>,
}

/// Bounds of a text.
#[derive(Debug, Default)]
pub(super) struct Texts {
    pub(super) max: Option<i64>,
    pub(super) min: Option<i64>,
    pub(super) pattern: Option<Pattern>,
}

/// A regular expression, compiled when it is first needed.
#[derive(Debug)]
pub(super) struct Pattern {
    pub(super) text: Box<str>,
    compiled: OnceLock<Option<Regexp>>,
}

impl Pattern {
    fn new(text: &str) -> Self {
        Self { text: text.into(), compiled: OnceLock::new() }
    }

    /// Whether it is found in a text. One that can't be compiled is found nowhere; definitions with such are refused.
    pub(super) fn matches(&self, text: &str) -> bool {
        let compiled = self.compiled.get_or_init(|| Regexp::new(&self.text).ok());
        compiled.as_ref().is_some_and(|compiled| compiled.is_match(text))
    }
}

/// Bounds of a count.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) max: Option<i64>,
    pub(super) min: Option<i64>,
    /// No item may be there twice.
    pub(super) unique: bool,
}

/// Schemas that a value is checked against, too.
#[derive(Debug, Default)]
pub(super) struct Combinations {
    pub(super) all_of: Box<[Nested]>,
    pub(super) any_of: Box<[Nested]>,
    pub(super) one_of: Box<[Nested]>,
    pub(super) not: Option<Nested>,
}

/// A schema that only restricts values of another.
#[derive(Debug)]
pub(super) struct Nested {
    pub(super) ty: JsonType,
    pub(super) nullable: bool,
    pub(super) rules: Rules,
    pub(super) properties: Box<[(Box<str>, Nested)]>,
    pub(super) additional: Option<Box<Nested>>,
    pub(super) items: Option<Box<Nested>>,
}

/// A rule in CEL.
#[derive(Debug)]
pub(super) struct Validation {
    pub(super) rule: Box<str>,
    pub(super) message: Box<str>,
    pub(super) message_expression: Box<str>,
    pub(super) reason: Box<str>,
    pub(super) field_path: Box<str>,
    pub(super) optional_old_self: bool,
}

impl Rules {
    /// The rules in a schema whose values have this type.
    pub(super) fn read(schema: &Value, ty: JsonType) -> Result<Self, String> {
        let number = |name: &str| schema.get(name).and_then(Value::as_f64);
        let count = |name: &str| schema.get(name).and_then(Value::as_i64);
        let numbers = Numbers {
            maximum: number("maximum"),
            exclusive_maximum: schema.flag("exclusiveMaximum"),
            minimum: number("minimum"),
            exclusive_minimum: schema.flag("exclusiveMinimum"),
            multiple_of: number("multipleOf"),
        };
        let pattern = Some(schema.text("pattern")).filter(|text| !text.is_empty());
        let texts = Texts { max: count("maxLength"), min: count("minLength"), pattern: pattern.map(Pattern::new) };
        let items = Counts { max: count("maxItems"), min: count("minItems"), unique: schema.flag("uniqueItems") };
        let fields = Counts { max: count("maxProperties"), min: count("minProperties"), unique: false };
        let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let has_texts = texts.max.is_some() || texts.min.is_some() || texts.pattern.is_some();
        Ok(Self {
            format: format(schema, ty).map(Into::into),
            numbers: (numbers != Numbers::default()).then(|| Box::new(numbers)),
            texts: has_texts.then(|| Box::new(texts)),
            items: (items != Counts::default()).then(|| Box::new(items)),
            fields: (fields != Counts::default()).then(|| Box::new(fields)),
            required: required.map(Into::into).collect(),
            allowed: schema["enum"].as_array().cloned().unwrap_or_default().into_boxed_slice(),
            combinations: Combinations::read(schema)?.map(Box::new),
        })
    }

    /// Whether nothing is asked.
    pub(super) fn is_empty(&self) -> bool {
        self.format.is_none()
            && self.numbers.is_none()
            && self.texts.is_none()
            && self.items.is_none()
            && self.fields.is_none()
            && self.required.is_empty()
            && self.allowed.is_empty()
            && self.combinations.is_none()
    }
}

impl Combinations {
    fn read(schema: &Value) -> Result<Option<Self>, String> {
        let list = |name: &str| -> Result<Box<[Nested]>, String> {
            schema[name].as_array().into_iter().flatten().map(Nested::read).collect()
        };
        let not = schema.get("not").filter(|not| not.is_object()).map(Nested::read).transpose()?;
        let found = Self { all_of: list("allOf")?, any_of: list("anyOf")?, one_of: list("oneOf")?, not };
        let empty =
            found.all_of.is_empty() && found.any_of.is_empty() && found.one_of.is_empty() && found.not.is_none();
        Ok(if empty { None } else { Some(found) })
    }
}

impl Nested {
    /// The restrictions in a schema.
    pub(super) fn read(schema: &Value) -> Result<Self, String> {
        let ty = JsonType::of(schema);
        let mut properties = Vec::new();
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            properties.push((name.as_str().into(), Self::read(property)?));
        }
        let inner = |name: &str| -> Result<Option<Box<Self>>, String> {
            let inner = schema.get(name).filter(|inner| inner.is_object());
            inner.map(|inner| Self::read(inner).map(Box::new)).transpose()
        };
        Ok(Self {
            ty,
            nullable: schema.flag("nullable"),
            rules: Rules::read(schema, ty)?,
            properties: properties.into_boxed_slice(),
            additional: inner("additionalProperties")?,
            items: inner("items")?,
        })
    }
}

impl Validation {
    /// The rules in CEL of a schema.
    pub(super) fn read_all(schema: &Value) -> Box<[Self]> {
        let rules = schema["x-kubernetes-validations"].as_array().into_iter().flatten();
        let rules = rules.map(|rule| Self {
            rule: rule.text("rule").into(),
            message: rule.text("message").into(),
            message_expression: rule.text("messageExpression").into(),
            reason: rule.text("reason").into(),
            field_path: rule.text("fieldPath").into(),
            optional_old_self: rule.flag("optionalOldSelf"),
        });
        rules.collect()
    }
}

/// The format of a schema, if it is one that is checked.
fn format(schema: &Value, ty: JsonType) -> Option<&str> {
    let format = schema.text("format");
    let known = match ty {
        JsonType::Any | JsonType::String | JsonType::IntOrString => super::format::is_known(format),
        JsonType::Integer => matches!(format, "int32" | "int64"),
        JsonType::Number => matches!(format, "float" | "double"),
        JsonType::Object | JsonType::Array | JsonType::Boolean => false,
    };
    known.then_some(format)
}
