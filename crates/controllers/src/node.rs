//! Nodes as controllers see them: labels, taints and conditions, shared by all that look at nodes.

mod taint;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;
use setpoint_runtime::Key;
use setpoint_runtime::cache::{Cached, Pairs};

pub use taint::{Effect, Taint, Toleration, Tolerations};

/// A node.
#[derive(Clone, Debug, Deserialize)]
pub struct Node {
    pub metadata: NodeMeta,
    #[serde(default)]
    pub spec: NodeSpec,
    #[serde(default)]
    pub status: NodeStatus,
}

/// Who it is.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeMeta {
    pub name: Box<str>,
    pub uid: Box<str>,
    pub resource_version: Box<str>,
    pub creation_timestamp: Option<Time>,
    pub deletion_timestamp: Option<Time>,
    pub labels: Pairs,
}

/// What it should be.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSpec {
    pub unschedulable: bool,
    pub taints: Box<[Taint]>,
}

/// How it is.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeStatus {
    pub conditions: Box<[NodeCondition]>,
}

/// What is said about one side of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeCondition {
    #[serde(rename = "type")]
    pub kind: Box<str>,
    pub status: Box<str>,
    pub last_heartbeat_time: Option<Time>,
    pub last_transition_time: Option<Time>,
}

impl Node {
    /// The condition of a type.
    pub fn condition(&self, kind: &str) -> Option<&NodeCondition> {
        self.status.conditions.iter().find(|condition| &*condition.kind == kind)
    }

    /// Whether it says that it can run pods.
    pub fn is_ready(&self) -> bool {
        self.condition("Ready").is_some_and(|ready| &*ready.status == "True")
    }

    /// When it was made.
    pub fn created_at(&self) -> Timestamp {
        self.metadata.creation_timestamp.as_ref().map_or(Timestamp::MIN, |time| time.0)
    }

    /// Where it stands: nodes of one zone fail together. Empty if it doesn't say.
    pub fn zone(&self) -> String {
        let label = |old: &str, new: &str| {
            let labels = &self.metadata.labels;
            labels.get(old).or_else(|| labels.get(new)).unwrap_or_default().to_owned()
        };
        let region = label("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region");
        let zone = label("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone");
        if region.is_empty() && zone.is_empty() { String::new() } else { format!("{region}:\0:{zone}") }
    }
}

impl Cached for Node {
    type Kind = core::Node;

    fn key(&self) -> Key {
        Key::cluster(&self.metadata.name)
    }

    fn resource_version(&self) -> &str {
        &self.metadata.resource_version
    }

    fn uid(&self) -> &str {
        &self.metadata.uid
    }

    fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    fn same_labels(&self, other: &Self) -> bool {
        self.metadata.labels == other.metadata.labels
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_zone_is_named_by_region_and_zone() {
        for (labels, zone) in [
            (json!({}), ""),
            (json!({"topology.kubernetes.io/zone": "a"}), ":\0:a"),
            (json!({"topology.kubernetes.io/region": "r", "topology.kubernetes.io/zone": "a"}), "r:\0:a"),
            (json!({"failure-domain.beta.kubernetes.io/zone": "old", "topology.kubernetes.io/zone": "a"}), ":\0:old"),
        ] {
            let node: Node = serde_json::from_value(json!({"metadata": {"name": "n", "labels": labels}})).unwrap();
            assert_eq!(node.zone(), zone, "{labels}");
        }
    }
}
