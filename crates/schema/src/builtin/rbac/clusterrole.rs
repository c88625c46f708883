//! ClusterRole: what may be done everywhere, or a sum of other cluster roles.

use setpoint_api::BadValue;
use setpoint_api::labels::ValueRules;

use super::super::label_selector;
use super::NAMES;
use super::role::{Reach, validate_rule};
use crate::behaviour::Behaviour;
use crate::errors::Errors;
use crate::kind::Kind;
use crate::metadata;
use crate::name_rule::NameRule;
use crate::node::Node;

/// The decisions of ClusterRole.
#[derive(Debug)]
pub struct ClusterRole;

impl Behaviour for ClusterRole {
    fn validate(&self, object: &Node<'_>, errs: &mut Errors) {
        validate_with(object, ValueRules::Strict, errs);
    }

    fn check_update(&self, kind: &Kind, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        metadata::validate(new, kind.namespaced, self.name_rule(), errs);
        validate_with(new, values_allowed_before(old), errs);
        metadata::validate_update(new, old, errs);
    }

    fn name_rule(&self) -> NameRule {
        NAMES
    }

    fn allow_create_on_update(&self) -> bool {
        true
    }
}

fn validate_with(object: &Node<'_>, values: ValueRules, errs: &mut Errors) {
    for rule in object.items("rules") {
        validate_rule(&rule, Reach::Cluster, errs);
    }
    let aggregation = object.get("aggregationRule");
    if !aggregation.is_set() {
        return;
    }
    if aggregation.count("clusterRoleSelectors") == 0 {
        let detail = "at least one clusterRoleSelector required if aggregationRule is non-nil";
        errs.required(&aggregation.get("clusterRoleSelectors"), detail);
    }
    for selector in aggregation.items("clusterRoleSelectors") {
        label_selector::validate(&selector, values, errs);
        if label_selector::read(&selector).is_none_or(|read| read.selector().is_err()) {
            errs.invalid(&selector, BadValue::Json("null".into()), "invalid label selector.");
        }
    }
}

/// A role that was accepted when any value was allowed stays valid.
fn values_allowed_before(old: &Node<'_>) -> ValueRules {
    let mut found = Errors::new();
    for selector in old.get("aggregationRule").items("clusterRoleSelectors") {
        label_selector::validate(&selector, ValueRules::Strict, &mut found);
    }
    if found.is_empty() { ValueRules::Strict } else { ValueRules::Lenient }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::create_fails;
    use serde_json::json;

    #[test]
    fn an_aggregation_needs_selectors_that_can_be_read() {
        create_fails(
            "rbac.authorization.k8s.io/v1",
            "clusterroles",
            json!({"metadata": {"name": "x"}, "aggregationRule": {}}),
            "aggregationRule.clusterRoleSelectors: Required value: at least one clusterRoleSelector required if \
             aggregationRule is non-nil",
        );
        let selector = json!({"matchExpressions": [{"key": "a", "operator": "Near"}]});
        create_fails(
            "rbac.authorization.k8s.io/v1",
            "clusterroles",
            json!({"metadata": {"name": "x"}, "aggregationRule": {"clusterRoleSelectors": [selector]}}),
            "[aggregationRule.clusterRoleSelectors[0].matchExpressions[0].operator: Invalid value: \"Near\": not a valid \
             selector operator, aggregationRule.clusterRoleSelectors[0]: Invalid value: null: invalid label selector.]",
        );
    }
}
