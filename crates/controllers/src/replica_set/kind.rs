//! What kinds of sets have in common, in the words of ReplicaSet.

use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetStatus};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use kube::Resource;
use kube::core::NamespaceResourceScope;
use serde::Serialize;
use setpoint_api::labels::{Selector, SelectorError};
use setpoint_runtime::cache::Cached;

use crate::selector;

/// A set of pods of one template.
pub trait Replicated:
    Cached<Kind = Self> + Resource<DynamicType = (), Scope = NamespaceResourceScope> + Serialize + Clone + std::fmt::Debug
{
    /// Whether its status says how many pods are about to go.
    const COUNTS_TERMINATING: bool;

    /// How many pods there should be.
    fn replicas(&self) -> i32;

    /// How long a pod must have been ready to count as available.
    fn min_ready_seconds(&self) -> i32;

    /// Which pods are its own.
    fn selector(&self) -> Result<Selector, SelectorError>;

    /// What its pods are like.
    fn template(&self) -> Option<&PodTemplateSpec>;

    /// What it says of itself.
    fn status(&self) -> ReplicaSetStatus;

    /// The same with another status.
    fn with_status(&self, status: ReplicaSetStatus) -> Self;
}

impl Replicated for ReplicaSet {
    const COUNTS_TERMINATING: bool = true;

    fn replicas(&self) -> i32 {
        self.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
    }

    fn min_ready_seconds(&self) -> i32 {
        self.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or(0)
    }

    fn selector(&self) -> Result<Selector, SelectorError> {
        selector::read(self.spec.as_ref().map(|spec| &spec.selector))
    }

    fn template(&self) -> Option<&PodTemplateSpec> {
        self.spec.as_ref()?.template.as_ref()
    }

    fn status(&self) -> ReplicaSetStatus {
        self.status.clone().unwrap_or_default()
    }

    fn with_status(&self, status: ReplicaSetStatus) -> Self {
        Self { status: Some(status), ..self.clone() }
    }
}
