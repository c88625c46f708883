//! A pod as the scheduler reads it.

use k8s_openapi::api::core::v1 as core;
use serde::{Deserialize, Serialize};
use setpoint_runtime::Key;
use setpoint_runtime::cache::{Cached, Pairs};

use crate::resources::Written;

#[derive(Clone, Debug, Deserialize)]
pub struct Pod {
    pub metadata: Meta,
    #[serde(default)]
    pub spec: Spec,
    #[serde(default)]
    pub status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    pub name: Box<str>,
    pub namespace: Box<str>,
    pub uid: Box<str>,
    pub resource_version: Box<str>,
    pub labels: Pairs,
    pub deletion_timestamp: Option<serde::de::IgnoredAny>,
}

/// What it asks for. Written out again, the parts that choose nodes are its class.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spec {
    pub node_name: Box<str>,
    pub scheduler_name: Box<str>,
    pub priority: i32,
    pub scheduling_gates: Box<[serde::de::IgnoredAny]>,
    #[serde(flatten)]
    pub wishes: Wishes,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Wishes {
    pub node_selector: std::collections::BTreeMap<Box<str>, Box<str>>,
    pub affinity: Option<Box<core::Affinity>>,
    pub tolerations: Box<[core::Toleration]>,
    pub overhead: Written,
    pub containers: Box<[Container]>,
    pub init_containers: Box<[Container]>,
    pub host_network: bool,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    pub resources: Requirements,
    pub ports: Box<[Port]>,
    pub restart_policy: Option<Box<str>>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Requirements {
    pub requests: Written,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Port {
    pub host_port: i32,
    #[serde(rename = "hostIP")]
    pub host_ip: Box<str>,
    pub protocol: Box<str>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    pub phase: Box<str>,
    pub conditions: Box<[Condition]>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Condition {
    #[serde(rename = "type")]
    pub kind: Box<str>,
    pub reason: Box<str>,
    pub message: Box<str>,
}

impl Pod {
    /// Whether it takes nothing any more.
    pub fn has_ended(&self) -> bool {
        matches!(&*self.status.phase, "Succeeded" | "Failed")
    }

    /// What its condition says about why it isn't scheduled.
    pub fn told(&self) -> &str {
        let condition = self.status.conditions.iter().find(|condition| &*condition.kind == "PodScheduled");
        condition.filter(|it| &*it.reason == "Unschedulable").map_or("", |condition| &condition.message)
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
}
