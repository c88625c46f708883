//! The selectors of objects, ready to be asked.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use setpoint_api::labels::{self, Selector, SelectorError};

/// What a selector in an object means: an empty one is everything, an absent one nothing. An error if it can't be read, which
/// validation has ruled out unless the object is older than the rule.
pub fn read(selector: Option<&LabelSelector>) -> Result<Selector, SelectorError> {
    let Some(selector) = selector else { return Ok(Selector::nothing()) };
    let expressions = selector.match_expressions.iter().flatten().map(|expression| labels::LabelSelectorRequirement {
        key: expression.key.clone(),
        operator: expression.operator.clone(),
        values: expression.values.clone().unwrap_or_default(),
    });
    let match_labels = selector.match_labels.clone().unwrap_or_default();
    labels::LabelSelector { match_labels, match_expressions: expressions.collect() }.selector()
}

/// A selector as Go prints it, which is how users read it in messages.
pub fn as_printed(selector: &LabelSelector) -> String {
    let labels = selector.match_labels.iter().flatten().map(|(key, value)| format!("{key}: {value},"));
    let expressions = selector.match_expressions.iter().flatten().map(|one| {
        let values = one.values.clone().unwrap_or_default().join(" ");
        format!("LabelSelectorRequirement{{Key:{},Operator:{},Values:[{values}],}},", one.key, one.operator)
    });
    let (labels, expressions): (String, String) = (labels.collect(), expressions.collect());
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    #[test]
    fn absent_is_nothing_empty_is_everything_and_odd_is_an_error() {
        let web = BTreeMap::from([("app".to_owned(), "web".to_owned())]);
        let matches = |value: serde_json::Value| {
            let selector: Option<LabelSelector> = serde_json::from_value(value).unwrap();
            read(selector.as_ref()).ok().map(|selector| selector.matches(&web))
        };
        assert_eq!(matches(json!(null)), Some(false));
        assert_eq!(matches(json!({})), Some(true));
        assert_eq!(matches(json!({"matchLabels": {"app": "web"}})), Some(true));
        assert_eq!(
            matches(json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]})),
            Some(false)
        );
        assert_eq!(matches(json!({"matchExpressions": [{"key": "app", "operator": "Like"}]})), None);
    }
}
