//! Carries out what the plan says.

use std::sync::Arc;

use futures_util::future::join_all;
use k8s_openapi::api::batch::v1::{Job, JobStatus};
use k8s_openapi::api::core::v1::Pod as ApiPod;
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use setpoint_runtime::controller::{Context, Error};
use setpoint_runtime::retry;
use setpoint_runtime::slow_start::slow_start;

use super::member::{Member, TRACKING};
use super::new_pod;
use super::plan::{Making, Observed};
use super::spec::Spec;
use crate::claim::reference_to;
use crate::pod::Pod;
use crate::pod_control::{PodControl, is_namespace_terminating};

/// What came of changing pods.
#[derive(Default)]
pub struct Done {
    pub made: i32,
    pub removed: i32,
    pub removed_ready: i32,
    pub error: Option<kube::Error>,
}

impl Done {
    fn removed(pods: &[Arc<Pod>], answers: Vec<Result<(), kube::Error>>) -> Done {
        let mut done = Done::default();
        for (pod, answer) in pods.iter().zip(answers) {
            match answer {
                Ok(()) => {
                    done.removed += 1;
                    done.removed_ready += i32::from(pod.is_ready());
                }
                Err(error) => done.error = done.error.or(Some(error)),
            }
        }
        done
    }
}

/// Pods are made and removed only by the newest version of the Job: a cache that is behind would do what was done before.
pub async fn ensure_current(context: &Context, job: &Job) -> Result<(), Error> {
    let (namespace, name) = place(job);
    let api: Api<Job> = Api::namespaced(context.client().clone(), namespace);
    let live = api.get_metadata(name).await?;
    match live.metadata.resource_version == job.metadata.resource_version && live.metadata.uid == job.metadata.uid {
        true => Ok(()),
        false => Err(Error::conflict(format!("{namespace}/{name} is newer than the cache"))),
    }
}

/// Makes pods, few at first.
pub async fn make(
    control: &PodControl<'_>,
    job: &Job,
    spec: &Spec<'_>,
    observed: &Observed,
    making: &Making,
) -> Result<Done, Error> {
    let owner = reference_to(job)?;
    let (count, index_at) = match making {
        Making::Plain(count) => (*count, None),
        Making::Indexed(indexes) => (indexes.len(), Some(indexes)),
    };
    let plain = new_pod::plain(job, owner.clone()).ok_or_else(|| Error::terminal("a Job without a template"))?;
    let create = |at: usize| {
        let index = index_at.and_then(|indexes| indexes.get(at).copied());
        let before = index.and_then(|index| observed.kept.get(&index));
        let pod = index.and_then(|index| new_pod::indexed(job, spec, owner.clone(), index, before));
        let pod = pod.unwrap_or_else(|| plain.clone());
        async move {
            match control.create(&pod).await {
                Err(error) if !is_namespace_terminating(&error) => Err(error),
                _ => Ok(()),
            }
        }
    };
    let (made, error) = slow_start(count, 1, create).await;
    Ok(Done { made: i32::try_from(made).unwrap_or(i32::MAX), error, ..Done::default() })
}

/// Deletes pods that are still to be counted.
pub async fn end(control: &PodControl<'_>, pods: &[Arc<Pod>]) -> Done {
    let answers = join_all(pods.iter().map(|pod| control.delete(pod))).await;
    Done::removed(pods, answers)
}

/// Removes pods that are not to be counted: they are let go first.
pub async fn remove(client: &Client, control: &PodControl<'_>, pods: &[Arc<Pod>]) -> Done {
    let answers = join_all(pods.iter().map(|pod| async move {
        release(client, pod).await?;
        control.delete(pod).await
    }));
    Done::removed(pods, answers.await)
}

/// Takes finalizers away; says from which pods it is gone, and the first error.
pub async fn release_all(client: &Client, pods: &[Arc<Pod>]) -> (Vec<Arc<Pod>>, Option<kube::Error>) {
    let answers = join_all(pods.iter().map(|pod| release(client, pod))).await;
    let (mut released, mut error) = (Vec::new(), None);
    for (pod, answer) in pods.iter().zip(answers) {
        match answer {
            Ok(()) => released.push(pod.clone()),
            Err(found) => error = error.or(Some(found)),
        }
    }
    (released, error)
}

async fn release(client: &Client, pod: &Pod) -> Result<(), kube::Error> {
    if !pod.is_tracked() {
        return Ok(());
    }
    let api: Api<ApiPod> = Api::namespaced(client.clone(), &pod.metadata.namespace);
    let metadata = json!({"uid": pod.metadata.uid, "$deleteFromPrimitiveList/finalizers": [TRACKING]});
    let patch = Patch::Strategic(json!({ "metadata": metadata }));
    match api.patch_metadata(&pod.metadata.name, &PatchParams::default(), &patch).await {
        // Gone, or another pod of the same name.
        Err(error) if retry::is_not_found(&error) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 422 => Ok(()),
        other => other.map(drop),
    }
}

/// Writes a status and returns the Job as it is then.
pub async fn write_status(client: &Client, job: &Job, status: JobStatus) -> Result<Job, kube::Error> {
    let (namespace, name) = place(job);
    let api: Api<Job> = Api::namespaced(client.clone(), namespace);
    let job = Job { status: Some(status), ..job.clone() };
    api.replace_status(name, &PostParams::default(), &job).await
}

fn place(job: &Job) -> (&str, &str) {
    (job.metadata.namespace.as_deref().unwrap_or_default(), job.metadata.name.as_deref().unwrap_or_default())
}
