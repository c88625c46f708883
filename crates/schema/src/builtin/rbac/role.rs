//! Role: what may be done in one namespace.

use super::NAMES;
use crate::behaviour::Behaviour;
use crate::errors::Errors;
use crate::kind::Kind;
use crate::metadata;
use crate::name_rule::NameRule;
use crate::node::Node;

/// The decisions of Role.
#[derive(Debug)]
pub struct Role;

impl Behaviour for Role {
    fn validate(&self, object: &Node<'_>, errs: &mut Errors) {
        for rule in object.items("rules") {
            validate_rule(&rule, Reach::Namespace, errs);
        }
    }

    fn check_update(&self, kind: &Kind, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        self.check_create(kind, new, errs);
        metadata::validate_update(new, old, errs);
    }

    fn name_rule(&self) -> NameRule {
        NAMES
    }

    fn allow_create_on_update(&self) -> bool {
        true
    }
}

/// Where a rule holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    Namespace,
    Cluster,
}

/// A rule is about resources or about other URLs, never both, and has verbs.
pub(super) fn validate_rule(rule: &Node<'_>, reach: Reach, errs: &mut Errors) {
    if rule.count("verbs") == 0 {
        errs.required(&rule.get("verbs"), "verbs must contain at least one value");
    }
    let urls = rule.get("nonResourceURLs");
    if !urls.is_empty() {
        if reach == Reach::Namespace {
            errs.invalid_here(&urls, "namespaced rules cannot apply to non-resource URLs");
        }
        if ["apiGroups", "resources", "resourceNames"].iter().any(|field| rule.count(field) > 0) {
            errs.invalid_here(&urls, "rules cannot apply to both regular resources and non-resource URLs");
        }
        return;
    }
    if rule.count("apiGroups") == 0 {
        errs.required(&rule.get("apiGroups"), "resource rules must supply at least one api group");
    }
    if rule.count("resources") == 0 {
        errs.required(&rule.get("resources"), "resource rules must supply at least one resource");
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{create, create_fails};
    use serde_json::json;

    const V1: &str = "rbac.authorization.k8s.io/v1";

    #[test]
    fn a_role_may_have_colons_in_its_name_and_no_rules() {
        create(V1, "roles", json!({"metadata": {"name": "system:a"}}));
    }

    #[test]
    fn a_rule_names_groups_and_resources() {
        create_fails(
            V1,
            "roles",
            json!({"metadata": {"name": "x"}, "rules": [{}]}),
            "[rules[0].verbs: Required value: verbs must contain at least one value, rules[0].apiGroups: Required value: \
             resource rules must supply at least one api group, rules[0].resources: Required value: resource rules must \
             supply at least one resource]",
        );
    }

    #[test]
    fn a_role_is_not_about_urls() {
        let rule = json!({"verbs": ["get"], "nonResourceURLs": ["/x"]});
        create_fails(
            V1,
            "roles",
            json!({"metadata": {"name": "x"}, "rules": [rule]}),
            "rules[0].nonResourceURLs: Invalid value: [\"/x\"]: namespaced rules cannot apply to non-resource URLs",
        );
        create(V1, "clusterroles", json!({"metadata": {"name": "x"}, "rules": [rule]}));
    }
}
