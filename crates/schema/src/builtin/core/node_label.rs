//! Labels of nodes that have been replaced by others.

use crate::node::Node;

const DEPRECATED: [(&str, &str); 8] = [
    ("beta.kubernetes.io/arch", "deprecated since v1.14; use \"kubernetes.io/arch\" instead"),
    ("beta.kubernetes.io/os", "deprecated since v1.14; use \"kubernetes.io/os\" instead"),
    (
        "failure-domain.beta.kubernetes.io/region",
        "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead",
    ),
    ("failure-domain.beta.kubernetes.io/zone", "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead"),
    ("beta.kubernetes.io/instance-type", "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead"),
    ("app.kubernetes.io/created-by", "deprecated since v1.9"),
    ("scheduler.alpha.kubernetes.io/preferAvoidPods", "deprecated since v1.22; use Taints and Tolerations instead"),
    ("node-role.kubernetes.io/master", "use \"node-role.kubernetes.io/control-plane\" instead"),
];

/// What to say about a label that is no longer the way.
pub fn deprecated(label: &str) -> Option<&'static str> {
    DEPRECATED.iter().find(|(old, _)| *old == label).map(|(_, message)| *message)
}

/// Warnings about the labels that a label selector for nodes names.
pub fn selector_warnings(selector: &Node<'_>) -> Vec<String> {
    let expressions = selector.items("matchExpressions").filter_map(|expression| {
        let key = expression.str("key");
        deprecated(key).map(|message| format!("{}: {key} is {message}", expression.get("key").path()))
    });
    let labels = selector.entries("matchLabels").filter_map(|(label, _)| {
        let path = selector.get("matchLabels").at_child(label).path();
        deprecated(label).map(|message| format!("{path}: {message}"))
    });
    expressions.chain(labels).collect()
}

/// Warnings about the labels that a term of a node selector names.
pub fn term_warnings(term: &Node<'_>) -> Vec<String> {
    let keys = term.items("matchExpressions").map(|expression| expression.get("key"));
    keys.filter_map(|key| {
        deprecated(key.as_str()).map(|message| format!("{}: {} is {message}", key.path(), key.as_str()))
    })
    .collect()
}
