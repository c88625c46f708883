//! What a Job wants, with what it leaves open filled in.

use k8s_openapi::api::batch::v1::{Job, PodFailurePolicy, SuccessPolicy};

use super::failure_policy::{Consequence, consequence};
use super::member::Member;
use crate::pod::Pod;

/// What this controller is called in `spec.managedBy`.
const THIS: &str = "kubernetes.io/job-controller";

/// What a Job wants.
pub struct Spec<'a> {
    pub parallelism: i32,
    pub completions: Option<i32>,
    pub backoff_limit: i32,
    pub backoff_limit_per_index: Option<i32>,
    pub max_failed_indexes: Option<i32>,
    pub is_indexed: bool,
    pub is_suspended: bool,
    pub active_deadline_seconds: Option<i64>,
    /// Whether pods restart their containers themselves.
    pub restarts_containers: bool,
    /// Whether a pod is replaced only once it has ended.
    pub replaces_only_failed: bool,
    pub failure_policy: Option<&'a PodFailurePolicy>,
    pub success_policy: Option<&'a SuccessPolicy>,
}

impl<'a> Spec<'a> {
    /// None if it can't be understood.
    pub fn of(job: &'a Job) -> Option<Spec<'a>> {
        let spec = job.spec.as_ref()?;
        let is_indexed = match spec.completion_mode.as_deref() {
            None | Some("NonIndexed") => false,
            Some("Indexed") => true,
            Some(_) => return None,
        };
        let pod = spec.template.spec.as_ref()?;
        Some(Spec {
            parallelism: spec.parallelism.unwrap_or(1).max(0),
            completions: if is_indexed { Some(spec.completions.unwrap_or(1)) } else { spec.completions },
            backoff_limit: spec.backoff_limit.unwrap_or(6),
            backoff_limit_per_index: spec.backoff_limit_per_index.filter(|_| is_indexed),
            max_failed_indexes: spec.max_failed_indexes,
            is_indexed,
            is_suspended: spec.suspend == Some(true),
            active_deadline_seconds: spec.active_deadline_seconds,
            restarts_containers: pod.restart_policy.as_deref() == Some("OnFailure"),
            replaces_only_failed: spec.pod_failure_policy.is_some()
                || spec.pod_replacement_policy.as_deref() == Some("Failed"),
            failure_policy: spec.pod_failure_policy.as_ref(),
            success_policy: spec.success_policy.as_ref(),
        })
    }

    /// The number of indexes; of a Job without indexes nobody asks.
    pub fn indexes(&self) -> i64 {
        i64::from(self.completions.unwrap_or_default())
    }

    /// Whether a pod has failed. One that is deleted before it ends counts too, because it may never get to say how it ended,
    /// unless the Job waits for that.
    pub fn is_failed(&self, pod: &Pod) -> bool {
        match &*pod.status.phase {
            "Failed" => true,
            "Succeeded" => false,
            _ => !self.replaces_only_failed && pod.metadata.deletion_timestamp.is_some(),
        }
    }

    /// What follows from a pod's failure.
    pub fn consequence(&self, pod: &Pod) -> Consequence {
        consequence(self.failure_policy, pod)
    }

    /// The index of a pod, if it is one of this Job's.
    pub fn index_of(&self, pod: &Pod) -> Option<i64> {
        pod.index().filter(|index| *index < self.indexes())
    }

    /// Whether a pod can be counted: in an indexed Job it needs an index.
    pub fn is_countable(&self, pod: &Pod) -> bool {
        !self.is_indexed || self.index_of(pod).is_some()
    }
}

/// Whether somebody else looks after the Job.
pub fn is_managed_elsewhere(job: &Job) -> bool {
    let manager = job.spec.as_ref().and_then(|spec| spec.managed_by.as_deref());
    manager.is_some_and(|name| name != THIS)
}
