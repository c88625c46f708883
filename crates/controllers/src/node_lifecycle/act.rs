//! Writes what a node, and its pods, have to say.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use setpoint_runtime::retry;

use crate::node::{Node, Taint};
use crate::pod::Pod;

/// Writes conditions, if the node is as it was read.
pub async fn say(client: &Client, node: &Node, conditions: &[Value]) -> Result<(), kube::Error> {
    let patch = Patch::Strategic(json!({
        "metadata": {"uid": node.metadata.uid, "resourceVersion": node.metadata.resource_version},
        "status": {"conditions": conditions},
    }));
    let api: Api<core::Node> = Api::all(client.clone());
    gone_is_fine(api.patch_status(&node.metadata.name, &PatchParams::default(), &patch).await.map(drop))
}

/// Writes taints and labels, if the node is as it was read: taints are one list, so another's would be lost.
pub async fn mark(
    client: &Client,
    node: &Node,
    taints: Option<Vec<Taint>>,
    labels: &BTreeMap<&'static str, String>,
) -> Result<(), kube::Error> {
    let mut patch = json!({"metadata": {"uid": node.metadata.uid, "resourceVersion": node.metadata.resource_version}});
    if !labels.is_empty() {
        patch["metadata"]["labels"] = json!(labels);
    }
    if let Some(taints) = taints {
        patch["spec"]["taints"] = if taints.is_empty() { Value::Null } else { json!(taints) };
    }
    let api: Api<core::Node> = Api::all(client.clone());
    gone_is_fine(api.patch_metadata(&node.metadata.name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop))
}

/// Says of a pod that it takes no traffic; false if it is gone.
pub async fn not_ready(client: &Client, pod: &Pod, since: &Time) -> Result<bool, kube::Error> {
    let condition = json!({"type": "Ready", "status": "False", "lastTransitionTime": since});
    let patch = Patch::Strategic(json!({
        "metadata": {"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version},
        "status": {"conditions": [condition]},
    }));
    let api: Api<core::Pod> = Api::namespaced(client.clone(), &pod.metadata.namespace);
    match api.patch_status(&pod.metadata.name, &PatchParams::default(), &patch).await {
        Ok(_) => Ok(true),
        Err(error) if retry::is_not_found(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

fn gone_is_fine(answer: Result<(), kube::Error>) -> Result<(), kube::Error> {
    match answer {
        Err(error) if retry::is_not_found(&error) => Ok(()),
        other => other,
    }
}
