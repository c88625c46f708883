//! Binding: the wish that a pod run on a node. Never stored: it changes the pod.

use crate::behaviour::Behaviour;
use crate::errors::Errors;
use crate::kind::Kind;
use crate::node::Node;

/// The decisions of Binding.
#[derive(Debug)]
pub struct Binding;

impl Behaviour for Binding {
    fn validate(&self, object: &Node<'_>, errs: &mut Errors) {
        let target = object.get("target");
        if !matches!(target.str("kind"), "" | "Node") {
            errs.not_supported(&target.get("kind"), target.str("kind"), &["Node", "<empty>"]);
        }
        if target.str("name").is_empty() {
            errs.required(&target.get("name"), "");
        }
    }

    /// The pod's metadata counts, not that of the wish.
    fn check_create(&self, _kind: &Kind, object: &Node<'_>, errs: &mut Errors) {
        self.validate(object, errs);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::testing::create_fails;

    #[test]
    fn a_pod_is_bound_to_a_node() {
        create_fails(
            "v1",
            "bindings",
            json!({"metadata": {"name": "p"}, "target": {"kind": "Pod"}}),
            "[target.kind: Unsupported value: \"Pod\": supported values: \"Node\", \"<empty>\", target.name: Required value]",
        );
    }
}
