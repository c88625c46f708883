//! Label selectors: which objects a user means, by their labels.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use crate::field::{BadValue, FieldError, Path, aggregate};
use crate::name;

mod label_selector;
mod parse;

pub use label_selector::{LabelSelector, LabelSelectorOperator, LabelSelectorRequirement, ValueRules};

/// Something that has labels.
pub trait Labels {
    /// The value of the label with this key, if there is one.
    fn get(&self, key: &str) -> Option<&str>;
}

impl Labels for BTreeMap<String, String> {
    fn get(&self, key: &str) -> Option<&str> {
        Self::get(self, key).map(String::as_str)
    }
}

impl Labels for HashMap<String, String> {
    fn get(&self, key: &str) -> Option<&str> {
        Self::get(self, key).map(String::as_str)
    }
}

impl<K: AsRef<str>, V: AsRef<str>> Labels for [(K, V)] {
    fn get(&self, key: &str) -> Option<&str> {
        self.iter().find(|(candidate, _)| candidate.as_ref() == key).map(|(_, value)| value.as_ref())
    }
}

/// All of some requirements, or nothing at all.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Selector {
    /// Sorted by key. `None` selects nothing.
    requirements: Option<Vec<Requirement>>,
}

impl Selector {
    /// Selects every object.
    pub const fn everything() -> Self {
        Self { requirements: Some(Vec::new()) }
    }

    /// Selects no object: what an absent `LabelSelector` means.
    pub const fn nothing() -> Self {
        Self { requirements: None }
    }

    /// Reads the form that stands in queries and on command lines: `app=web,tier in (a,b),!old`.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        parse::parse(text).map(Self::new)
    }

    /// Selects what meets all of these.
    pub fn new(mut requirements: Vec<Requirement>) -> Self {
        requirements.sort_by(|left, right| left.key.cmp(&right.key));
        Self { requirements: Some(requirements) }
    }

    /// Whether an object with these labels is meant.
    pub fn matches(&self, labels: &(impl Labels + ?Sized)) -> bool {
        self.requirements.as_ref().is_some_and(|all| all.iter().all(|requirement| requirement.matches(labels)))
    }

    /// Whether every object is meant.
    pub fn is_everything(&self) -> bool {
        self.requirements.as_ref().is_some_and(Vec::is_empty)
    }

    /// Whether no object can be meant. Contradictions are not looked for.
    pub fn is_nothing(&self) -> bool {
        self.requirements.is_none()
    }

    /// What is asked for, sorted by key. Empty for everything and for nothing.
    pub fn requirements(&self) -> &[Requirement] {
        self.requirements.as_deref().unwrap_or_default()
    }

    /// The one value that the label must have, if there is exactly one: for finding candidates by an index.
    pub fn exact_match(&self, key: &str) -> Option<&str> {
        let requirement = self.requirements().iter().find(|requirement| requirement.key == key)?;
        match (requirement.operator, requirement.values.as_slice()) {
            (Operator::Equals | Operator::DoubleEquals | Operator::In, [value]) => Some(value),
            _ => None,
        }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.requirements().iter().enumerate() {
            if index > 0 {
                formatter.write_str(",")?;
            }
            fmt::Display::fmt(requirement, formatter)?;
        }
        Ok(())
    }
}

/// How a requirement relates a label to its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operator {
    /// The label has one of the values.
    In,
    /// The label is absent or has none of the values.
    NotIn,
    /// `=`
    Equals,
    /// `==`, the same as `=` but printed as written.
    DoubleEquals,
    /// `!=`: absent or another value.
    NotEquals,
    /// The label is there.
    Exists,
    /// The label is not there.
    DoesNotExist,
    /// The label is a larger whole number.
    GreaterThan,
    /// The label is a smaller whole number.
    LessThan,
}

/// One condition on one label.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Requirement {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

impl Requirement {
    /// A condition, if the key and the values are good and fit the operator. Errors are at `path`.
    pub fn new(key: &str, operator: Operator, values: Vec<String>, path: &Path<'_>) -> Result<Self, SelectorError> {
        let mut errors = Vec::new();
        errors.extend(key_error(key, &path.child("key")));
        let values_path = path.child("values");
        errors.extend(value_count_error(operator, &values, &values_path));
        for (index, value) in values.iter().enumerate() {
            if matches!(operator, Operator::GreaterThan | Operator::LessThan) && parse_integer(value).is_none() {
                let detail = "for 'Gt', 'Lt' operators, the value must be an integer";
                errors.push(FieldError::invalid(&values_path.index(index), value, detail));
            }
        }
        for (index, value) in values.iter().enumerate() {
            let complaints = name::label_value(value);
            if !complaints.is_empty() {
                errors.push(FieldError::invalid(&values_path.index(index).key(key), value, complaints.join("; ")));
            }
        }
        match aggregate(&errors) {
            Some(message) => Err(SelectorError::new(message)),
            None => Ok(Self { key: key.to_owned(), operator, values }),
        }
    }

    /// The label's key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// How the label relates to the values.
    pub fn operator(&self) -> Operator {
        self.operator
    }

    /// The values, in the order given.
    pub fn values(&self) -> &[String] {
        &self.values
    }

    /// Whether an object with these labels meets the condition.
    pub fn matches(&self, labels: &(impl Labels + ?Sized)) -> bool {
        let actual = labels.get(&self.key);
        let listed = |value: &str| self.values.iter().any(|candidate| candidate == value);
        match self.operator {
            Operator::In | Operator::Equals | Operator::DoubleEquals => actual.is_some_and(listed),
            Operator::NotIn | Operator::NotEquals => !actual.is_some_and(listed),
            Operator::Exists => actual.is_some(),
            Operator::DoesNotExist => actual.is_none(),
            Operator::GreaterThan => self.numbers(actual).is_some_and(|(actual, bound)| actual > bound),
            Operator::LessThan => self.numbers(actual).is_some_and(|(actual, bound)| actual < bound),
        }
    }

    fn numbers(&self, actual: Option<&str>) -> Option<(i64, i64)> {
        Some((parse_integer(actual?)?, parse_integer(self.values.first()?)?))
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut values: Vec<_> = self.values.iter().map(String::as_str).collect();
        values.sort_unstable();
        let (key, values) = (&self.key, values.join(","));
        match self.operator {
            Operator::In => write!(formatter, "{key} in ({values})"),
            Operator::NotIn => write!(formatter, "{key} notin ({values})"),
            Operator::Equals => write!(formatter, "{key}={values}"),
            Operator::DoubleEquals => write!(formatter, "{key}=={values}"),
            Operator::NotEquals => write!(formatter, "{key}!={values}"),
            Operator::Exists => formatter.write_str(key),
            Operator::DoesNotExist => write!(formatter, "!{key}"),
            Operator::GreaterThan => write!(formatter, "{key}>{values}"),
            Operator::LessThan => write!(formatter, "{key}<{values}"),
        }
    }
}

/// Why a text is no selector, in the words of Kubernetes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelectorError {
    message: String,
}

impl SelectorError {
    fn new(message: impl Into<String>) -> Self {
        Self { message: message.into() }
    }
}

impl fmt::Display for SelectorError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for SelectorError {}

/// What is wrong with the labels at `path`, for all objects alike.
pub fn validate_labels(labels: &BTreeMap<String, String>, path: &Path<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (key, value) in labels {
        errors.extend(name::qualified_name(key).into_iter().map(|it| FieldError::invalid(path, key, it)));
        errors.extend(name::label_value(value).into_iter().map(|it| FieldError::invalid(path, value, it)));
    }
    errors
}

fn key_error(key: &str, path: &Path<'_>) -> Option<FieldError> {
    let complaints = name::qualified_name(key);
    (!complaints.is_empty()).then(|| FieldError::invalid(path, key, complaints.join("; ")))
}

fn value_count_error(operator: Operator, values: &[String], path: &Path<'_>) -> Option<FieldError> {
    let (good, detail) = match operator {
        Operator::In | Operator::NotIn => {
            (!values.is_empty(), "for 'in', 'notin' operators, values set can't be empty")
        }
        Operator::Equals | Operator::DoubleEquals | Operator::NotEquals => {
            (values.len() == 1, "exact-match compatibility requires one single value")
        }
        Operator::Exists | Operator::DoesNotExist => {
            (values.is_empty(), "values set must be empty for exists and does not exist")
        }
        Operator::GreaterThan | Operator::LessThan => {
            (values.len() == 1, "for 'Gt', 'Lt' operators, exactly one value is required")
        }
    };
    // No values at all is Go's nil slice, which is shown as null.
    let shown = if values.is_empty() { BadValue::Json("null".to_owned()) } else { BadValue::encode(&values) };
    (!good).then(|| FieldError::invalid(path, shown, detail))
}

/// A whole number as Go reads it: like Rust, a sign of either kind is taken.
fn parse_integer(text: &str) -> Option<i64> {
    text.parse().ok()
}

#[cfg(test)]
mod tests;
