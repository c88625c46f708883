//! Pods that the system takes away from their users: first they say why, then they are deleted.

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use serde_json::{Value, json};
use setpoint_runtime::retry;

use crate::pod::Pod;

/// Why a pod is taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Why {
    pub reason: &'static str,
    pub message: &'static str,
}

/// How a pod is taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// It is asked to end within its own time.
    InOrder,
    /// Nobody is there who could end it: it counts as failed and goes at once.
    AtOnce,
}

/// Takes a pod away; one that is gone, or that is another of the same name, is fine.
pub async fn remove(client: &Client, pod: &Pod, why: Option<Why>, how: How, now: &Time) -> Result<(), kube::Error> {
    let api: Api<core::Pod> = Api::namespaced(client.clone(), &pod.metadata.namespace);
    let name = &*pod.metadata.name;
    let answer = async {
        if let Some(status) = last_words(pod, why, how, now) {
            let patch = Patch::Strategic(json!({"metadata": {"uid": pod.metadata.uid}, "status": status}));
            api.patch_status(name, &PatchParams::default(), &patch).await?;
        }
        let uid = Some(pod.metadata.uid.to_string());
        let mut delete = DeleteParams {
            preconditions: Some(Preconditions { uid, resource_version: None }),
            ..DeleteParams::default()
        };
        if how == How::AtOnce {
            delete.grace_period_seconds = Some(0);
        }
        api.delete(name, &delete).await.map(drop)
    };
    match answer.await {
        Err(error) if retry::is_not_found(&error) || is_other_pod(&error) => Ok(()),
        other => other,
    }
}

/// What has to be said of a pod before it is deleted, if it isn't yet.
fn last_words(pod: &Pod, why: Option<Why>, how: How, now: &Time) -> Option<Value> {
    let mut status = json!({});
    let fails = how == How::AtOnce && !pod.has_ended();
    if fails {
        status["phase"] = json!("Failed");
        status["observedGeneration"] = json!(pod.metadata.generation);
    }
    let is_said = pod.status.condition("DisruptionTarget").is_some_and(|said| &*said.status == "True");
    // A pod that has ended by itself is not disturbed by its deletion.
    let is_disturbed = fails || how == How::InOrder;
    if let Some(why) = why.filter(|_| is_disturbed && !is_said) {
        status["conditions"] = json!([{
            "type": "DisruptionTarget",
            "status": "True",
            "observedGeneration": pod.metadata.generation,
            "reason": why.reason,
            "message": why.message,
            "lastProbeTime": null,
            "lastTransitionTime": now,
        }]);
    }
    (status != json!({})).then_some(status)
}

/// The uid isn't that of the pod: it is another of the same name.
fn is_other_pod(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let is_conflict = status.code == 409 || status.code == 422;
    is_conflict && status.message.to_ascii_lowercase().contains("uid")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_says_why_it_goes_once_and_fails_if_nobody_can_end_it() {
        let pod = |status: Value| -> Pod {
            serde_json::from_value(json!({"metadata": {"name": "p", "generation": 2}, "status": status})).unwrap()
        };
        let (why, now) = (Why { reason: "R", message: "M" }, Time("2026-01-01T00:00:00Z".parse().unwrap()));
        let running = pod(json!({"phase": "Running"}));
        let said = json!({"phase": "Running", "conditions": [{"type": "DisruptionTarget", "status": "True"}]});
        for (pod, why, how, words) in [
            (&running, Some(why), How::InOrder, &["conditions"][..]),
            (&running, Some(why), How::AtOnce, &["conditions", "observedGeneration", "phase"]),
            (&running, None, How::AtOnce, &["observedGeneration", "phase"]),
            (&pod(said), Some(why), How::InOrder, &[]),
            (&pod(json!({"phase": "Failed"})), Some(why), How::AtOnce, &[]),
            (&pod(json!({"phase": "Succeeded"})), None, How::AtOnce, &[]),
        ] {
            let spoken = last_words(pod, why, how, &now).unwrap_or(json!({}));
            let names: Vec<_> = spoken.as_object().unwrap().keys().map(String::as_str).collect();
            assert_eq!(names, words, "{:?} {how:?}", pod.status);
        }
    }
}
