//! The form of a label selector inside objects: `matchLabels` and `matchExpressions`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Operator, Requirement, Selector, SelectorError, validate_labels};
use crate::field::{BadValue, FieldError, Path};
use crate::name;
use crate::quote::quote;

/// All of the labels and all of the expressions. Empty selects everything; an absent one selects nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LabelSelector {
    /// Labels that must have exactly these values.
    #[serde(default, deserialize_with = "null_is_empty", skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Further conditions.
    #[serde(default, deserialize_with = "null_is_empty", skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<LabelSelectorRequirement>,
}

/// One condition of a [`LabelSelector`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LabelSelectorRequirement {
    /// The label's key.
    #[serde(default)]
    pub key: String,
    /// How the label relates to the values. Text, so that validation can show what was written;
    /// [`LabelSelectorOperator::parse`] tells whether it is one.
    #[serde(default)]
    pub operator: String,
    /// The values, for the operators that take some.
    #[serde(default, deserialize_with = "null_is_empty", skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

/// The operators that objects may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LabelSelectorOperator {
    /// One of the values.
    In,
    /// None of the values.
    NotIn,
    /// Any value.
    Exists,
    /// No such label.
    DoesNotExist,
}

impl LabelSelectorOperator {
    /// The operator of this name.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "In" => Some(Self::In),
            "NotIn" => Some(Self::NotIn),
            "Exists" => Some(Self::Exists),
            "DoesNotExist" => Some(Self::DoesNotExist),
            _ => None,
        }
    }
}

impl From<LabelSelectorOperator> for Operator {
    fn from(operator: LabelSelectorOperator) -> Self {
        match operator {
            LabelSelectorOperator::In => Self::In,
            LabelSelectorOperator::NotIn => Self::NotIn,
            LabelSelectorOperator::Exists => Self::Exists,
            LabelSelectorOperator::DoesNotExist => Self::DoesNotExist,
        }
    }
}

impl LabelSelector {
    /// The selector that this describes.
    pub fn selector(&self) -> Result<Selector, SelectorError> {
        let labels = self
            .match_labels
            .iter()
            .map(|(key, value)| Requirement::new(key, Operator::Equals, vec![value.clone()], &Path::nil()));
        let expressions = self.match_expressions.iter().map(LabelSelectorRequirement::requirement);
        labels.chain(expressions).collect::<Result<_, _>>().map(Selector::new)
    }

    /// What is wrong with the selector at `path`. Values may be `Lenient` only where an object that was accepted long ago
    /// must stay valid.
    pub fn validate(&self, values: ValueRules, path: &Path<'_>) -> Vec<FieldError> {
        let mut errors = validate_labels(&self.match_labels, &path.child("matchLabels"));
        let expressions = path.child("matchExpressions");
        for (index, requirement) in self.match_expressions.iter().enumerate() {
            errors.extend(requirement.validate(values, &expressions.index(index)));
        }
        errors
    }
}

/// How strictly the values of expressions are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueRules {
    /// Each must be a good label value.
    Strict,
    /// Anything goes.
    Lenient,
}

impl LabelSelectorRequirement {
    fn requirement(&self) -> Result<Requirement, SelectorError> {
        let Some(operator) = LabelSelectorOperator::parse(&self.operator) else {
            let message = format!("{} is not a valid label selector operator", quote(&self.operator));
            return Err(SelectorError::new(message));
        };
        Requirement::new(&self.key, operator.into(), self.values.clone(), &Path::nil())
    }

    /// What is wrong with the condition at `path`.
    pub fn validate(&self, rules: ValueRules, path: &Path<'_>) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let values = path.child("values");
        match LabelSelectorOperator::parse(&self.operator) {
            Some(LabelSelectorOperator::In | LabelSelectorOperator::NotIn) if self.values.is_empty() => {
                errors.push(FieldError::required(&values, "must be specified when `operator` is 'In' or 'NotIn'"));
            }
            Some(LabelSelectorOperator::Exists | LabelSelectorOperator::DoesNotExist) if !self.values.is_empty() => {
                let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                errors.push(FieldError::forbidden(&values, detail));
            }
            Some(_) => {}
            None => errors.push(FieldError::invalid(
                &path.child("operator"),
                BadValue::encode(&self.operator),
                "not a valid selector operator",
            )),
        }
        let key = path.child("key");
        errors.extend(name::qualified_name(&self.key).into_iter().map(|it| FieldError::invalid(&key, &self.key, it)));
        if rules == ValueRules::Strict {
            for (index, value) in self.values.iter().enumerate() {
                let at = values.index(index);
                errors.extend(name::label_value(value).into_iter().map(|it| FieldError::invalid(&at, value, it)));
            }
        }
        errors
    }
}

/// Go reads an explicit null as the empty list or map.
fn null_is_empty<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}
