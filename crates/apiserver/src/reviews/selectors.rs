//! The selectors of an access review: what of them can't be read is passed over, and told.

use serde_json::Value;
use setpoint_api::labels::{LabelSelectorOperator, Requirement};
use setpoint_api::{Path, fields, labels};
use setpoint_schema::Edit;

/// What the review says of selectors that were passed over; empty if all could be read.
pub(super) fn ignored(attributes: &Value) -> String {
    let told = [("fieldSelector", unread_fields(attributes)), ("labelSelector", unread_labels(attributes))];
    let told = told.into_iter().filter_map(|(name, unread)| {
        let how = match unread {
            Unread::Nothing => return None,
            Unread::Part => "partially ignored",
            Unread::All => "ignored",
        };
        Some(format!("spec.resourceAttributes.{name} {how} due to parse error"))
    });
    told.collect::<Vec<_>>().join("; ")
}

/// How much of a selector can't be read.
enum Unread {
    Nothing,
    Part,
    All,
}

impl Unread {
    /// Of conditions, each of which can be read or not.
    fn of(readable: impl Iterator<Item = bool>) -> Unread {
        let (good, bad): (Vec<bool>, Vec<bool>) = readable.partition(|it| *it);
        match (good.is_empty(), bad.is_empty()) {
            (_, true) => Unread::Nothing,
            (false, false) => Unread::Part,
            (true, false) => Unread::All,
        }
    }
}

fn unread_fields(attributes: &Value) -> Unread {
    let selector = &attributes["fieldSelector"];
    match selector["requirements"].as_array().filter(|all| !all.is_empty()) {
        Some(all) => Unread::of(all.iter().map(|it| {
            let values = it["values"].as_array().map_or(0, Vec::len);
            matches!(it.text("operator"), "In" | "NotIn") && values == 1
        })),
        None => Unread::of(std::iter::once(fields::Selector::parse(selector.text("rawSelector")).is_ok())),
    }
}

fn unread_labels(attributes: &Value) -> Unread {
    let selector = &attributes["labelSelector"];
    match selector["requirements"].as_array().filter(|all| !all.is_empty()) {
        Some(all) => Unread::of(all.iter().map(is_readable)),
        None => Unread::of(std::iter::once(labels::Selector::parse(selector.text("rawSelector")).is_ok())),
    }
}

fn is_readable(requirement: &Value) -> bool {
    let Some(operator) = LabelSelectorOperator::parse(requirement.text("operator")) else { return false };
    let values = requirement["values"].as_array().into_iter().flatten();
    let values = values.filter_map(Value::as_str).map(str::to_owned).collect();
    Requirement::new(requirement.text("key"), operator.into(), values, &Path::root("")).is_ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selectors_that_cannot_be_read_are_told() {
        let good = json!({"key": "a", "operator": "In", "values": ["b"]});
        let bad = json!({"key": "a", "operator": "Like", "values": ["b"]});
        for (selectors, expected) in [
            (json!({"fieldSelector": {"requirements": [good]}, "labelSelector": {"requirements": [good]}}), ""),
            (
                json!({"fieldSelector": {"rawSelector": "a"}}),
                "spec.resourceAttributes.fieldSelector ignored due to parse error",
            ),
            (
                json!({"fieldSelector": {"requirements": [good, bad]}}),
                "spec.resourceAttributes.fieldSelector partially ignored due to parse error",
            ),
            (
                json!({"fieldSelector": {"requirements": [bad]}, "labelSelector": {"requirements": [good, bad]}}),
                "spec.resourceAttributes.fieldSelector ignored due to parse error; \
                 spec.resourceAttributes.labelSelector partially ignored due to parse error",
            ),
        ] {
            assert_eq!(ignored(&selectors), expected, "{selectors}");
        }
    }
}
