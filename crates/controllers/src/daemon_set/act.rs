//! Carries a plan out.

use std::sync::Arc;

use futures_util::future::join_all;
use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetStatus};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, PostParams};
use setpoint_runtime::cache::Cached;
use setpoint_runtime::controller::{Context, Error};
use setpoint_runtime::events::{self, Recorder};
use setpoint_runtime::retry;
use setpoint_runtime::slow_start::slow_start;

use super::backoff::{Backoff, Place};
use super::new_pod::new_pod;
use super::plan::{Plan, Why};
use super::status::is_same;
use crate::claim::reference_to;
use crate::pod::Pod;
use crate::pod_control::{PodControl, is_namespace_terminating};
use crate::wiring::{normal, warning};

/// Most pods that are made, and most that are deleted, in one run.
const BURST: usize = 250;

/// What a run acts with.
pub struct Act<'a> {
    pub context: &'a Context,
    pub recorder: &'a Recorder,
    pub backoff: &'a Backoff,
    pub set: &'a DaemonSet,
    pub template: &'a PodTemplateSpec,
}

impl Act<'_> {
    /// Makes and deletes pods. All deletions are tried, whatever becomes of the others.
    pub async fn carry_out(&self, plan: &Plan, now: Timestamp) -> Result<(), Error> {
        let pods =
            PodControl { client: self.context.client(), recorder: self.recorder, owner: events::reference(self.set) };
        let owner = reference_to(self.set)?;
        let name = self.set.metadata.name.as_deref().unwrap_or_default();
        let make = |at: usize| {
            let pod = new_pod(self.template, name, owner.clone(), &plan.create[at]);
            let pods = &pods;
            async move {
                match pods.create(&pod).await {
                    Err(error) if is_namespace_terminating(&error) => Ok(()),
                    other => other.map(drop),
                }
            }
        };
        let (_, failed) = slow_start(plan.create.len().min(BURST), 1, make).await;
        let doomed = plan.delete.iter().take(BURST);
        let deleted = join_all(doomed.map(|(pod, why)| {
            self.explain(pod, *why, now);
            pods.delete(pod)
        }));
        let failed = failed.or(deleted.await.into_iter().find_map(Result::err));
        failed.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Writes the status if it says something new.
    pub async fn write_status(&self, new: DaemonSetStatus) -> Result<(), Error> {
        if self.set.status.as_ref().is_some_and(|old| is_same(old, &new)) {
            return Ok(());
        }
        let meta = &self.set.metadata;
        let namespace = meta.namespace.as_deref().unwrap_or_default();
        let api: Api<DaemonSet> = Api::namespaced(self.context.client().clone(), namespace);
        let set = DaemonSet { status: Some(new), ..self.set.clone() };
        match api.replace_status(meta.name.as_deref().unwrap_or_default(), &PostParams::default(), &set).await {
            Err(error) if retry::is_not_found(&error) => Ok(()),
            other => Ok(other.map(drop)?),
        }
    }

    /// Where failures of this set's pods on a node are remembered.
    pub fn place(&self, node: &str) -> Place {
        let seen = self.set.status.as_ref().and_then(|status| status.observed_generation).unwrap_or(0);
        (Cached::uid(self.set).into(), seen, node.into())
    }

    /// Tells users why a pod that has ended is deleted.
    fn explain(&self, pod: &Arc<Pod>, why: Why, now: Timestamp) {
        let about = events::reference(self.set);
        let (place, node) = (format!("{}/{}", pod.metadata.namespace, pod.metadata.name), pod.target_node());
        match why {
            Why::Failed => {
                self.backoff.grow(self.place(node), now);
                let note = format!("Found failed daemon pod {place} on node {node}, will try to kill it");
                warning(self.recorder, about, "FailedDaemonPod", "DeletePod", note);
            }
            Why::Succeeded => {
                let note = format!("Found succeeded daemon pod {place} on node {node}, will try to delete it");
                normal(self.recorder, about, "SucceededDaemonPod", "DeletePod", note);
            }
            Why::Surplus => {}
        }
    }
}
