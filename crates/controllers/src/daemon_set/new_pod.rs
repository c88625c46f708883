//! The pod of a DaemonSet on a node.

use k8s_openapi::api::core::v1::{
    Affinity, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec, PodTemplateSpec,
    Toleration,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use crate::pod_control::from_template;
use crate::revisions::REVISION_LABEL;

/// The label of a pod with the generation of the template that it was made from, as old clients know it.
pub const GENERATION_LABEL: &str = "pod-template-generation";

/// What each of these pods bears: it belongs to its node, whatever the node is like.
const BORNE: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];

/// What pods that use the node's own network bear, too: they may be what brings the network.
const BORNE_BY_HOST_NETWORK: (&str, &str) = ("node.kubernetes.io/network-unavailable", "NoSchedule");

/// The template of a set's pods: with labels of their revision, and with what all pods of DaemonSets bear.
pub fn complete(template: &PodTemplateSpec, hash: &str, generation: Option<&str>) -> PodTemplateSpec {
    let mut template = template.clone();
    let labels = template.metadata.get_or_insert_default().labels.get_or_insert_default();
    labels.insert(REVISION_LABEL.to_owned(), hash.to_owned());
    if let Some(generation) = generation {
        labels.insert(GENERATION_LABEL.to_owned(), generation.to_owned());
    }
    tolerate(template.spec.get_or_insert_default());
    template
}

/// Adds what all pods of DaemonSets bear.
pub fn tolerate(spec: &mut PodSpec) {
    let host_network = spec.host_network.unwrap_or(false).then_some(BORNE_BY_HOST_NETWORK);
    let tolerations = spec.tolerations.get_or_insert_default();
    for (key, effect) in BORNE.into_iter().chain(host_network) {
        let toleration = Toleration {
            key: Some(key.to_owned()),
            operator: Some("Exists".to_owned()),
            effect: Some(effect.to_owned()),
            ..Toleration::default()
        };
        // One of the same sort gives way: for how long it was borne doesn't count any more.
        let is_same = |other: &&mut Toleration| {
            let sort =
                |one: &Toleration| (one.key.clone(), one.effect.clone(), one.operator.clone(), one.value.clone());
            sort(other) == sort(&toleration)
        };
        match tolerations.iter_mut().find(is_same) {
            Some(other) => *other = toleration,
            None => tolerations.push(toleration),
        }
    }
}

/// The pod on a node. The scheduler binds it: its affinity leaves but one choice.
pub fn new_pod(template: &PodTemplateSpec, set: &str, owner: OwnerReference, node: &str) -> Pod {
    let mut pod = from_template(template, set, owner);
    let named = NodeSelectorRequirement {
        key: "metadata.name".to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![node.to_owned()]),
    };
    let term = NodeSelectorTerm { match_fields: Some(vec![named]), ..NodeSelectorTerm::default() };
    let spec = pod.spec.get_or_insert_default();
    let affinity: &mut Affinity = spec.affinity.get_or_insert_default();
    let affinity: &mut NodeAffinity = affinity.node_affinity.get_or_insert_default();
    affinity.required_during_scheduling_ignored_during_execution =
        Some(NodeSelector { node_selector_terms: vec![term] });
    pod
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_is_for_one_node_and_bears_what_may_befall_it() {
        let template = json!({"metadata": {"labels": {"app": "log"}}, "spec": {"containers": [],
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]}}},
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute",
                "tolerationSeconds": 5}]}});
        let template = complete(&serde_json::from_value(template).unwrap(), "abc", Some("3"));
        let pod = serde_json::to_value(new_pod(&template, "log", OwnerReference::default(), "node-1")).unwrap();
        assert_eq!(pod["metadata"]["generateName"], "log-");
        assert_eq!(
            pod["metadata"]["labels"],
            json!({"app": "log", "controller-revision-hash": "abc", "pod-template-generation": "3"})
        );
        let required = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution";
        assert_eq!(
            pod.pointer(required),
            Some(&json!({"nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}]}))
        );
        let tolerations = pod["spec"]["tolerations"].as_array().unwrap();
        assert_eq!(tolerations.len(), 6);
        let first = json!({"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"});
        assert_eq!(tolerations[0], first, "it stays as long as its node does");
    }
}
