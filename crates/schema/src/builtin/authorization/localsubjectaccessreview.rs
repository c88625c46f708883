//! LocalSubjectAccessReview: may somebody do this in one namespace?

use super::attributes::{shown, validate_attributes, validate_metadata, validate_selectors, validate_subject};
use crate::behaviour::Behaviour;
use crate::errors::Errors;
use crate::kind::Kind;
use crate::node::Node;

/// The decisions of LocalSubjectAccessReview.
#[derive(Debug)]
pub struct LocalSubjectAccessReview;

impl Behaviour for LocalSubjectAccessReview {
    fn check_create(&self, _kind: &Kind, object: &Node<'_>, errs: &mut Errors) {
        let spec = object.get("spec");
        validate_attributes(&spec, errs);
        validate_subject(&spec, errs);
        validate_selectors(&spec, errs);
        validate_metadata(object, &["namespace"], "must be empty except for namespace", errs);
        let resource = spec.get("resourceAttributes");
        let namespace = resource.get("namespace");
        if resource.is_set() && namespace.as_str() != object.get("metadata").str("namespace") {
            errs.invalid(&namespace, namespace.as_str(), "must match metadata.namespace");
        }
        let other = spec.get("nonResourceAttributes");
        if other.is_set() {
            errs.invalid(&other, shown(&other), "disallowed on this kind of request");
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::builtin::testing::find;
    use crate::errors::Errors;
    use serde_json::{Value, json};
    use setpoint_api::field::aggregate;

    fn refused(plural: &str, body: Value) -> Option<String> {
        let kind = find("authorization.k8s.io/v1", plural);
        let mut errs = Errors::new();
        kind.behaviour.check_create(kind, &kind.node(&body), &mut errs);
        aggregate(&errs.into_vec())
    }

    #[test]
    fn a_review_asks_one_thing_about_somebody() {
        let resource = json!({"namespace": "n", "verb": "get", "resource": "pods"});
        for (plural, body, expected) in [
            ("subjectaccessreviews", json!({"spec": {"user": "u", "resourceAttributes": resource}}), None),
            (
                "subjectaccessreviews",
                json!({"spec": {}}),
                Some(
                    "[spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or \
                     resourceAttributes must be specified, spec.user: Invalid value: \"\": at least one of user or group \
                     must be specified]",
                ),
            ),
            (
                "selfsubjectaccessreviews",
                json!({"spec": {"resourceAttributes": resource, "nonResourceAttributes": {"path": "/", "verb": "get"}}}),
                Some(
                    "spec.nonResourceAttributes: Invalid value: {\"Path\":\"/\",\"Verb\":\"get\"}: cannot be specified in \
                     combination with resourceAttributes",
                ),
            ),
            (
                "localsubjectaccessreviews",
                json!({"metadata": {"namespace": "m"}, "spec": {"user": "u", "resourceAttributes": resource}}),
                Some("spec.resourceAttributes.namespace: Invalid value: \"n\": must match metadata.namespace"),
            ),
            (
                "selfsubjectaccessreviews",
                json!({"metadata": {"name": "x"}, "spec": {"resourceAttributes": resource}}),
                Some("metadata: Invalid value: {\"name\":\"x\"}: must be empty"),
            ),
        ] {
            assert_eq!(refused(plural, body).as_deref(), expected, "{plural}");
        }
    }
}
