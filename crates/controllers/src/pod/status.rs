//! How a pod is.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Deserializer};

use super::devices::DeviceClaimStatus;

/// How it is.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    pub phase: Box<str>,
    pub reason: Box<str>,
    pub conditions: Box<[Condition]>,
    pub container_statuses: Box<[ContainerStatus]>,
    pub init_container_statuses: Box<[ContainerStatus]>,
    pub start_time: Option<Time>,
    #[serde(rename = "podIPs", deserialize_with = "read_addresses")]
    pub addresses: Box<[Box<str>]>,
    /// What it is told of the claims of devices that were made for it.
    #[serde(rename = "resourceClaimStatuses")]
    pub resource_claims: Box<[DeviceClaimStatus]>,
}

/// What is said about one side of it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    #[serde(rename = "type")]
    pub kind: Box<str>,
    pub status: Box<str>,
    pub last_transition_time: Option<Time>,
}

/// How one of its containers is.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStatus {
    pub name: Box<str>,
    pub restart_count: i32,
    pub state: ContainerState,
}

/// What a container does now; only its end is of interest.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ContainerState {
    pub terminated: Option<Box<Terminated>>,
}

/// How and when a container ended.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Terminated {
    pub exit_code: i32,
    pub finished_at: Option<Time>,
}

impl PodStatus {
    /// The condition of a type.
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| &*condition.kind == kind)
    }
}

fn read_addresses<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Box<[Box<str>]>, D::Error> {
    #[derive(Deserialize)]
    struct Address {
        #[serde(default)]
        ip: Box<str>,
    }
    let all = Option::<Vec<Address>>::deserialize(deserializer)?.unwrap_or_default();
    Ok(all.into_iter().map(|address| address.ip).collect())
}
