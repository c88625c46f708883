//! Which nodes a DaemonSet has a pod on.

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, PodSpec};
use setpoint_api::Path;
use setpoint_api::labels::{Operator, Requirement};

use crate::node::{Effect, Node, Taint, Toleration};

/// Whether a node should have a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eligible {
    /// It should.
    Yes,
    /// One that is there may stay; a new one has no business here.
    Stay,
    /// It must not.
    No,
}

/// What a template asks of nodes.
pub struct Placement {
    spec: PodSpec,
    tolerations: Vec<Toleration>,
}

impl Placement {
    /// The placement of pods of this template, which has the tolerations that all pods of DaemonSets have.
    pub fn of(spec: PodSpec) -> Placement {
        let text = |text: &Option<String>| text.as_deref().unwrap_or_default().into();
        let tolerations = spec.tolerations.iter().flatten().map(|one| Toleration {
            key: text(&one.key),
            operator: text(&one.operator),
            value: text(&one.value),
            effect: text(&one.effect),
            toleration_seconds: one.toleration_seconds,
        });
        Placement { tolerations: tolerations.collect(), spec }
    }

    /// Whether a node should have a pod.
    pub fn on(&self, node: &Node) -> Eligible {
        let name = self.spec.node_name.as_deref().unwrap_or_default();
        if !(name.is_empty() || name == &*node.metadata.name) || !self.is_selected(node) {
            return Eligible::No;
        }
        let is_barred = |effects: &[Effect]| {
            let mut taints = node.spec.taints.iter().filter(|taint| effects.contains(&taint.effect));
            taints.any(|taint: &Taint| !self.tolerations.iter().any(|toleration| toleration.bears(taint)))
        };
        match () {
            () if is_barred(&[Effect::NoExecute]) => Eligible::No,
            () if is_barred(&[Effect::NoSchedule]) => Eligible::Stay,
            () => Eligible::Yes,
        }
    }

    fn is_selected(&self, node: &Node) -> bool {
        let mut labels = self.spec.node_selector.iter().flatten();
        if !labels.all(|(key, value)| node.metadata.labels.get(key) == Some(value)) {
            return false;
        }
        let affinity = self.spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
        let required = affinity.and_then(|node| node.required_during_scheduling_ignored_during_execution.as_ref());
        required.is_none_or(|required| required.node_selector_terms.iter().any(|term| is_met(term, node)))
    }
}

/// Whether a node meets all of a term; an empty term is met by none, nor is one that can't be read.
fn is_met(term: &NodeSelectorTerm, node: &Node) -> bool {
    let (labels, fields) = (term.match_expressions.iter().flatten(), term.match_fields.iter().flatten());
    if labels.clone().count() + fields.clone().count() == 0 {
        return false;
    }
    labels.into_iter().all(|one| has_label(one, node)) && fields.into_iter().all(|one| has_name(one, node))
}

fn has_label(requirement: &NodeSelectorRequirement, node: &Node) -> bool {
    let operator = match &*requirement.operator {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        "Gt" => Operator::GreaterThan,
        "Lt" => Operator::LessThan,
        _ => return false,
    };
    let values = requirement.values.clone().unwrap_or_default();
    let requirement = Requirement::new(&requirement.key, operator, values, &Path::nil());
    requirement.is_ok_and(|requirement| requirement.matches(&node.metadata.labels))
}

/// The one field of nodes that can be asked for is their name.
fn has_name(requirement: &NodeSelectorRequirement, node: &Node) -> bool {
    let [value] = requirement.values.as_deref().unwrap_or_default() else { return false };
    let is_named = requirement.key == "metadata.name" && **value == *node.metadata.name;
    match &*requirement.operator {
        "In" => is_named,
        "NotIn" => !is_named,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[track_caller]
    fn check(spec: Value, taints: Value, expected: Eligible) {
        let mut spec_with_containers = spec.clone();
        spec_with_containers["containers"] = json!([]);
        let mut spec_read: PodSpec = serde_json::from_value(spec_with_containers).unwrap();
        super::super::new_pod::tolerate(&mut spec_read);
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": "one", "labels": {"disk": "ssd", "cores": "8"}}, "spec": {"taints": taints}}))
        .unwrap();
        assert_eq!(Placement::of(spec_read).on(&node), expected, "{spec} {taints}");
    }

    #[test]
    fn a_node_is_eligible_by_its_name_and_labels() {
        let none = || json!([]);
        check(json!({}), none(), Eligible::Yes);
        check(json!({"nodeName": "one"}), none(), Eligible::Yes);
        check(json!({"nodeName": "two"}), none(), Eligible::No);
        check(json!({"nodeSelector": {"disk": "ssd"}}), none(), Eligible::Yes);
        check(json!({"nodeSelector": {"disk": "ssd", "gpu": "yes"}}), none(), Eligible::No);
        let terms = |terms: Value| {
            json!({"affinity": {"nodeAffinity":
                {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}})
        };
        let labels = |key: &str, operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        let fields = |operator: &str, values: &[&str]| json!({"matchFields": [{"key": "metadata.name", "operator": operator, "values": values}]});
        for (term, expected) in [
            (labels("disk", "In", &["ssd", "nvme"]), Eligible::Yes),
            (labels("disk", "NotIn", &["ssd"]), Eligible::No),
            (labels("disk", "Exists", &[]), Eligible::Yes),
            (labels("gpu", "DoesNotExist", &[]), Eligible::Yes),
            (labels("cores", "Gt", &["4"]), Eligible::Yes),
            (labels("cores", "Lt", &["4"]), Eligible::No),
            (labels("cores", "About", &["8"]), Eligible::No),
            (fields("In", &["one"]), Eligible::Yes),
            (fields("NotIn", &["one"]), Eligible::No),
            (fields("In", &["one", "two"]), Eligible::No),
            (json!({}), Eligible::No),
        ] {
            check(terms(json!([term])), none(), expected);
        }
        check(terms(json!([labels("disk", "In", &["hdd"]), fields("In", &["one"])])), none(), Eligible::Yes);
        check(terms(json!([])), none(), Eligible::No);
    }

    #[test]
    fn taints_bar_new_pods_or_all() {
        let taint = |key: &str, effect: &str| json!([{"key": key, "effect": effect}]);
        check(json!({}), taint("dedicated", "NoSchedule"), Eligible::Stay);
        check(json!({}), taint("dedicated", "NoExecute"), Eligible::No);
        check(json!({}), taint("dedicated", "PreferNoSchedule"), Eligible::Yes);
        check(json!({"tolerations": [{"operator": "Exists"}]}), taint("dedicated", "NoExecute"), Eligible::Yes);
        // What every pod of a DaemonSet bears.
        check(json!({}), taint("node.kubernetes.io/not-ready", "NoExecute"), Eligible::Yes);
        check(json!({}), taint("node.kubernetes.io/unreachable", "NoExecute"), Eligible::Yes);
        check(json!({}), taint("node.kubernetes.io/unschedulable", "NoSchedule"), Eligible::Yes);
        check(json!({}), taint("node.kubernetes.io/memory-pressure", "NoSchedule"), Eligible::Yes);
        check(json!({}), taint("node.kubernetes.io/network-unavailable", "NoSchedule"), Eligible::Stay);
        check(
            json!({"hostNetwork": true}),
            taint("node.kubernetes.io/network-unavailable", "NoSchedule"),
            Eligible::Yes,
        );
    }
}
