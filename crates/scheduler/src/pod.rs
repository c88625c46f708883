//! A pod as the scheduler reads it.

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
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
    pub generation: i64,
    pub labels: Pairs,
    pub owner_references: Box<[Owner]>,
    pub deletion_timestamp: Option<serde::de::IgnoredAny>,
}

/// Who owns a pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Owner {
    pub uid: Box<str>,
    pub kind: Box<str>,
    pub name: Box<str>,
    pub controller: bool,
}

/// What it asks for. Written out again, the wishes are its class.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spec {
    pub node_name: Box<str>,
    pub scheduler_name: Box<str>,
    pub priority: i32,
    pub preemption_policy: Box<str>,
    pub scheduling_gates: Box<[serde::de::IgnoredAny]>,
    pub topology_spread_constraints: Option<Box<[core::TopologySpreadConstraint]>>,
    pub volumes: Box<[Volume]>,
    pub resource_claims: Box<[ResourceClaim]>,
    #[serde(flatten)]
    pub wishes: Wishes,
}

/// What it asks of a node, whatever else is there.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Wishes {
    #[serde(skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub node_selector: std::collections::BTreeMap<Box<str>, Box<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Box<Affinity>>,
    pub tolerations: Box<[core::Toleration]>,
    pub overhead: Written,
    pub resources: Requirements,
    pub containers: Box<[Container]>,
    pub init_containers: Box<[Container]>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Affinity {
    pub node_affinity: Option<core::NodeAffinity>,
    #[serde(skip_serializing)]
    pub pod_affinity: Option<core::PodAffinity>,
    #[serde(skip_serializing)]
    pub pod_anti_affinity: Option<core::PodAntiAffinity>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    #[serde(skip_serializing)]
    pub name: Box<str>,
    #[serde(skip_serializing)]
    pub image: Box<str>,
    pub resources: Requirements,
    #[serde(skip_serializing_if = "<[Port]>::is_empty")]
    pub ports: Box<[Port]>,
    #[serde(skip_serializing_if = "Option::is_none")]
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

/// A volume, as far as it is one of a claim.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Volume {
    pub name: Box<str>,
    pub persistent_volume_claim: Option<ClaimSource>,
    pub ephemeral: Option<serde::de::IgnoredAny>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimSource {
    pub claim_name: Box<str>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    pub phase: Box<str>,
    pub nominated_node_name: Box<str>,
    pub start_time: Option<Time>,
    pub conditions: Box<[Condition]>,
    pub container_statuses: Box<[ContainerStatus]>,
    pub init_container_statuses: Box<[ContainerStatus]>,
    pub resource_claim_statuses: Box<[ResourceClaim]>,
}

/// A claim of devices: what the pod calls it, and the name of the claim if there is one.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceClaim {
    pub name: Box<str>,
    pub resource_claim_name: Option<Box<str>>,
}

/// What a container has, once its node tells.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStatus {
    pub name: Box<str>,
    pub resources: Option<Requirements>,
    /// What is set aside for it.
    pub allocated_resources: Written,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Condition {
    #[serde(rename = "type")]
    pub kind: Box<str>,
    pub status: Box<str>,
    pub reason: Box<str>,
    pub message: Box<str>,
}

impl Container {
    /// Whether it starts with the init containers and goes on beside the others.
    pub fn is_sidecar(&self) -> bool {
        self.restart_policy.as_deref() == Some("Always")
    }
}

impl Pod {
    /// Whether it takes nothing any more.
    pub fn has_ended(&self) -> bool {
        matches!(&*self.status.phase, "Succeeded" | "Failed")
    }

    /// Whether it is on its way out.
    pub fn is_leaving(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// Whether it is on its way out to make room for another.
    pub fn is_preempted(&self) -> bool {
        let told = self.condition("DisruptionTarget");
        self.is_leaving() && told.is_some_and(|it| &*it.status == "True" && &*it.reason == "PreemptionByScheduler")
    }

    /// What its condition says about why it isn't scheduled.
    pub fn told(&self) -> &str {
        let condition = self.condition("PodScheduled").filter(|it| &*it.reason == "Unschedulable");
        condition.map_or("", |condition| &condition.message)
    }

    /// Who controls it.
    pub fn controller(&self) -> Option<&Owner> {
        self.metadata.owner_references.iter().find(|owner| owner.controller)
    }

    /// The names of its claims; with each, whether it comes and goes with the pod.
    pub fn claims(&self) -> Box<[(Box<str>, bool)]> {
        let claims = self.spec.volumes.iter().filter_map(|volume| match &volume.persistent_volume_claim {
            Some(claim) => Some((claim.claim_name.clone(), false)),
            None => {
                volume.ephemeral.is_some().then(|| (format!("{}-{}", self.metadata.name, volume.name).into(), true))
            }
        });
        claims.collect()
    }

    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.status.conditions.iter().find(|condition| &*condition.kind == kind)
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
