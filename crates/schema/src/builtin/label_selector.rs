//! Label selectors inside objects: read from a place, checked there, and compared with labels.

use serde_json::Value;
use setpoint_api::Path;
use setpoint_api::labels::{LabelSelector, ValueRules};

use crate::errors::Errors;
use crate::node::Node;

/// The selector at this place; an absent one is empty. None only if the value doesn't have the shape of a selector,
/// which decoding has ruled out.
pub fn read(at: &Node<'_>) -> Option<LabelSelector> {
    match at.value() {
        None => Some(LabelSelector::default()),
        Some(value) => serde_json::from_value(value.clone()).ok(),
    }
}

/// What is wrong with the selector at this place. An absent one is good.
pub fn validate(at: &Node<'_>, values: ValueRules, errs: &mut Errors) {
    if !at.is_set() {
        return;
    }
    if let Some(selector) = read(at) {
        errs.extend(selector.validate(values, &Path::root(&at.path())));
    }
}

/// Whether the selector at this place is there and selects something in particular.
pub fn is_empty(at: &Node<'_>) -> bool {
    at.value().is_none_or(|value| {
        ["matchLabels", "matchExpressions"].iter().all(|name| match value.get(name) {
            Some(Value::Object(labels)) => labels.is_empty(),
            Some(Value::Array(expressions)) => expressions.is_empty(),
            _ => true,
        })
    })
}

/// Whether the selector at this place selects these labels. A selector that can't be understood selects nothing.
pub fn matches(at: &Node<'_>, labels: &Node<'_>) -> bool {
    let Some(Ok(selector)) = read(at).map(|selector| selector.selector()) else { return false };
    let labels: std::collections::BTreeMap<String, String> =
        labels.clone().into_entries().map(|(key, value)| (key.to_owned(), value.as_str().to_owned())).collect();
    selector.matches(&labels)
}
