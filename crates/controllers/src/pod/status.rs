//! How a pod is.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Deserialize;

/// How it is.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    pub phase: Box<str>,
    pub conditions: Box<[Condition]>,
    pub container_statuses: Box<[ContainerStatus]>,
    pub init_container_statuses: Box<[ContainerStatus]>,
    pub start_time: Option<Time>,
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
}

impl PodStatus {
    /// The condition of a type.
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| &*condition.kind == kind)
    }
}
