//! Pods as controllers see them: the few fields that they read, so that a hundred thousand fit into a small machine.

pub mod claims;
pub mod devices;
mod status;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Deserializer};
use setpoint_api::labels::Selector;
use setpoint_runtime::Key;
use setpoint_runtime::cache::{Cached, Informer, Owner, Pairs};

pub use claims::PodClaim;
pub use status::{Condition, ContainerStatus, PodStatus};

use crate::claim::Claimable;
use crate::node::Tolerations;

/// A pod.
#[derive(Clone, Debug, Deserialize)]
pub struct Pod {
    pub metadata: PodMeta,
    #[serde(default)]
    pub spec: PodSpec,
    #[serde(default)]
    pub status: PodStatus,
}

/// Who it is.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodMeta {
    pub name: Box<str>,
    pub namespace: Box<str>,
    pub uid: Box<str>,
    pub resource_version: Box<str>,
    pub generation: i64,
    pub creation_timestamp: Option<Time>,
    pub deletion_timestamp: Option<Time>,
    pub deletion_grace_period_seconds: Option<i64>,
    pub labels: Pairs,
    /// Those that controllers read.
    #[serde(deserialize_with = "read_annotations")]
    pub annotations: Pairs,
    pub owner_references: Box<[OwnerReference]>,
    pub finalizers: Box<[Box<str>]>,
}

/// What it should be.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    pub node_name: Box<str>,
    pub hostname: Box<str>,
    pub subdomain: Box<str>,
    /// Ports of containers that have a name.
    #[serde(rename = "containers", deserialize_with = "read_ports")]
    pub ports: Box<[NamedPort]>,
    /// The init containers that run as long as the pod does.
    #[serde(rename = "initContainers", deserialize_with = "read_sidecars")]
    pub sidecars: Box<[Sidecar]>,
    /// The node that its affinity leaves as the only choice; empty if there are others.
    #[serde(rename = "affinity", deserialize_with = "read_only_node")]
    pub only_node: Box<str>,
    pub tolerations: Tolerations,
    /// Its volumes that are claims.
    #[serde(rename = "volumes", deserialize_with = "claims::read")]
    pub claims: Box<[PodClaim]>,
    pub resource_claims: Box<[devices::DeviceClaim]>,
}

impl PodSpec {
    /// Whether a container of this name is an init container that runs as long as the pod does.
    pub fn is_sidecar(&self, name: &str) -> bool {
        self.sidecars.iter().any(|sidecar| &*sidecar.name == name)
    }

    /// Whether a volume is this claim.
    pub fn mounts(&self, volume: &str, claim: &str) -> bool {
        let is_it = |mounted: &PodClaim| match mounted {
            PodClaim::Named { volume: name, claim: of } => &**name == volume && &**of == claim,
            PodClaim::Own(_) => false,
        };
        self.claims.iter().any(is_it)
    }
}

/// A port of a container that has a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NamedPort {
    pub name: Box<str>,
    pub container_port: i32,
    pub protocol: Box<str>,
}

/// An init container that runs as long as the pod does.
#[derive(Clone, Debug, Default)]
pub struct Sidecar {
    pub name: Box<str>,
    pub ports: Box<[NamedPort]>,
}

/// The index of pods by the identity of their controller; pods without one are under [`orphans_of`] their namespace.
pub const BY_CONTROLLER: &str = "controller";

/// The index of pods by the name of their node; those that have none yet are under the empty name.
pub const BY_NODE: &str = "node";

/// What pods of a namespace that nobody controls are found under in [`BY_CONTROLLER`].
pub fn orphans_of(namespace: &str) -> String {
    format!("orphans/{namespace}")
}

/// The cache of pods with its indexes. Whoever asks first adds them.
pub fn indexed(pods: Informer<Pod>) -> Informer<Pod> {
    pods.add_index(BY_CONTROLLER, |pod| {
        let controller = pod.controller().map(|owner| owner.uid.to_owned());
        vec![controller.unwrap_or_else(|| orphans_of(&pod.metadata.namespace))]
    });
    pods.add_index(BY_NODE, |pod| vec![pod.spec.node_name.to_string()]);
    pods
}

impl Pod {
    /// Whether it neither has ended nor is being deleted.
    pub fn is_active(&self) -> bool {
        !self.has_ended() && !self.is_deleting()
    }

    /// Whether its containers have ended for good.
    pub fn has_ended(&self) -> bool {
        matches!(&*self.status.phase, "Succeeded" | "Failed")
    }

    /// Whether it is being deleted while containers of it may run.
    pub fn is_terminating(&self) -> bool {
        !self.has_ended() && self.is_deleting()
    }

    /// Whether it takes traffic.
    pub fn is_ready(&self) -> bool {
        self.status.condition("Ready").is_some_and(|ready| &*ready.status == "True")
    }

    /// Since when it takes traffic.
    pub fn ready_since(&self) -> Option<Timestamp> {
        let ready = self.status.condition("Ready").filter(|ready| &*ready.status == "True")?;
        ready.last_transition_time.as_ref().map(|time| time.0)
    }

    /// Whether it has taken traffic for so many seconds.
    pub fn is_available(&self, min_ready_seconds: i32, now: Timestamp) -> bool {
        self.available_at(min_ready_seconds).is_some_and(|moment| moment <= now)
    }

    /// When it will have taken traffic for so many seconds; none if it takes none now.
    pub fn available_at(&self, min_ready_seconds: i32) -> Option<Timestamp> {
        if !self.is_ready() {
            return None;
        }
        if min_ready_seconds <= 0 {
            return Some(Timestamp::MIN);
        }
        let wait = k8s_openapi::jiff::SignedDuration::from_secs(i64::from(min_ready_seconds));
        self.ready_since()?.checked_add(wait).ok()
    }

    /// When it was made.
    pub fn created_at(&self) -> Timestamp {
        self.metadata.creation_timestamp.as_ref().map_or(Timestamp::MIN, |time| time.0)
    }

    /// The node that it is on, or must come to; empty if that is open.
    pub fn target_node(&self) -> &str {
        if self.spec.node_name.is_empty() { &self.spec.only_node } else { &self.spec.node_name }
    }

    /// What events about it point to.
    pub fn reference(&self) -> core::ObjectReference {
        let text = |text: &str| Some(text.to_owned());
        let meta = &self.metadata;
        core::ObjectReference {
            api_version: text("v1"),
            kind: text("Pod"),
            namespace: text(&meta.namespace),
            name: text(&meta.name),
            uid: text(&meta.uid),
            resource_version: text(&meta.resource_version),
            field_path: None,
        }
    }

    /// The reference to the controller that it has.
    pub fn controller_reference(&self) -> Option<&OwnerReference> {
        self.metadata.owner_references.iter().find(|owner| owner.controller == Some(true))
    }
}

impl Claimable for Pod {
    fn is_selected(&self, selector: &Selector) -> bool {
        selector.matches(&self.metadata.labels)
    }
}

impl Cached for Pod {
    type Kind = core::Pod;

    fn key(&self) -> Key {
        Key::namespaced(&self.metadata.namespace, &self.metadata.name)
    }

    fn resource_version(&self) -> &str {
        &self.metadata.resource_version
    }

    fn uid(&self) -> &str {
        &self.metadata.uid
    }

    fn generation(&self) -> Option<i64> {
        Some(self.metadata.generation)
    }

    fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    fn controller(&self) -> Option<Owner<'_>> {
        let owner = self.controller_reference()?;
        Some(Owner { api_version: &owner.api_version, kind: &owner.kind, name: &owner.name, uid: &owner.uid })
    }

    fn same_labels(&self, other: &Self) -> bool {
        self.metadata.labels == other.metadata.labels
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireContainer {
    #[serde(default)]
    name: Box<str>,
    #[serde(default)]
    restart_policy: Box<str>,
    #[serde(default)]
    ports: Vec<NamedPort>,
}

fn read_ports<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Box<[NamedPort]>, D::Error> {
    let all = Option::<Vec<WireContainer>>::deserialize(deserializer)?.unwrap_or_default();
    Ok(all.into_iter().flat_map(|container| container.ports).filter(|port| !port.name.is_empty()).collect())
}

/// Init containers that are started again whenever they end.
fn read_sidecars<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Box<[Sidecar]>, D::Error> {
    let all = Option::<Vec<WireContainer>>::deserialize(deserializer)?.unwrap_or_default();
    let sidecars = all.into_iter().filter(|container| &*container.restart_policy == "Always");
    let named = |ports: Vec<NamedPort>| ports.into_iter().filter(|port| !port.name.is_empty()).collect();
    Ok(sidecars.map(|container| Sidecar { name: container.name, ports: named(container.ports) }).collect())
}

/// Annotations of the system, without the largest of them.
fn read_annotations<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Pairs, D::Error> {
    let all = Pairs::deserialize(deserializer)?;
    Ok(all.only(|name| {
        let domain = name.split_once('/').map_or("", |(domain, _)| domain);
        domain.ends_with("kubernetes.io") && domain != "kubectl.kubernetes.io"
    }))
}

/// The one node that an affinity names, as that of a DaemonSet's pod does.
fn read_only_node<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Box<str>, D::Error> {
    let affinity = Option::<core::Affinity>::deserialize(deserializer)?.unwrap_or_default();
    let required = affinity.node_affinity.and_then(|node| node.required_during_scheduling_ignored_during_execution);
    let terms = required.iter().flat_map(|required| &required.node_selector_terms);
    let mut fields = terms.flat_map(|term| term.match_fields.iter().flatten());
    let named = fields.find(|field| field.key == "metadata.name" && field.operator == "In");
    let values = named.and_then(|field| field.values.as_deref()).unwrap_or_default();
    Ok(if let [node] = values { node.as_str().into() } else { Box::default() })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(status: serde_json::Value) -> Pod {
        let metadata = json!({"name": "web-1", "namespace": "shop", "uid": "u"});
        serde_json::from_value(json!({"metadata": metadata, "status": status})).unwrap()
    }

    #[test]
    fn a_pod_is_available_when_it_was_ready_for_long_enough() {
        let ready = |status: &str| {
            json!({"phase": "Running", "conditions": [
            {"type": "Ready", "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z"}]})
        };
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        for (status, seconds, now, available) in [
            ("True", 0, "2026-01-01T00:00:00Z", true),
            ("True", 10, "2026-01-01T00:00:09Z", false),
            ("True", 10, "2026-01-01T00:00:10Z", true),
            ("False", 0, "2026-01-01T00:00:10Z", false),
        ] {
            assert_eq!(pod(ready(status)).is_available(seconds, at(now)), available, "{status} {seconds} {now}");
        }
    }

    #[test]
    fn a_pod_that_is_deleted_terminates_until_it_has_ended() {
        for (phase, is_terminating) in [("Pending", true), ("Running", true), ("Succeeded", false), ("Failed", false)] {
            let mut going = pod(json!({"phase": phase}));
            assert!(!going.is_terminating(), "{phase}");
            going.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
            assert_eq!(going.is_terminating(), is_terminating, "{phase}");
        }
    }

    #[test]
    fn only_annotations_of_the_system_are_kept() {
        let annotations = json!({"a": "1", "kubectl.kubernetes.io/last-applied-configuration": "{}",
            "controller.kubernetes.io/pod-deletion-cost": "7"});
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "a", "annotations": annotations}})).unwrap();
        let kept: Vec<_> = pod.metadata.annotations.iter().collect();
        assert_eq!(kept, [("controller.kubernetes.io/pod-deletion-cost", "7")]);
    }
}
