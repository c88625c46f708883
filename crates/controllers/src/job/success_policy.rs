//! When an indexed Job counts as done although not all of its indexes are.

use k8s_openapi::api::batch::v1::SuccessPolicy;

use super::indexes::Indexes;

/// What is said if a rule of the policy is met.
pub fn met(policy: Option<&SuccessPolicy>, completions: i64, succeeded: &Indexes) -> Option<String> {
    if succeeded.is_empty() {
        return None;
    }
    let at = policy?.rules.iter().position(|rule| {
        let count = rule.succeeded_count.map(i64::from);
        match &rule.succeeded_indexes {
            Some(text) => {
                let wanted = Indexes::parse(text, completions);
                let reached = wanted.overlap(succeeded);
                !wanted.is_empty() && (reached == wanted.total() || count.is_some_and(|count| reached >= count))
            }
            None => count.is_some_and(|count| succeeded.total() >= count),
        }
    })?;
    Some(format!("Matched rules at index {at}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_first_rule_that_is_met_is_named() {
        for (rules, succeeded, expected) in [
            (json!([{"succeededIndexes": "0-2"}]), "0-1", None),
            (json!([{"succeededIndexes": "0-2"}]), "0-2,5", Some("Matched rules at index 0")),
            (json!([{"succeededIndexes": "0-2", "succeededCount": 2}]), "1-2", Some("Matched rules at index 0")),
            (json!([{"succeededIndexes": "7"}, {"succeededCount": 1}]), "3", Some("Matched rules at index 1")),
            (json!([{"succeededIndexes": "nonsense"}]), "0-9", None),
            (json!([{"succeededCount": 0}]), "", None),
        ] {
            let policy: SuccessPolicy = serde_json::from_value(json!({ "rules": rules })).unwrap();
            let said = met(Some(&policy), 10, &Indexes::parse(succeeded, 10));
            assert_eq!(said.as_deref(), expected, "{rules} {succeeded}");
        }
        assert_eq!(met(None, 10, &Indexes::parse("0-9", 10)), None);
    }
}
