//! Nodes that tell how they are for as long as they live, and pods on them.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

use futures_util::future::BoxFuture;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use setpoint_testkit::{ControlPlane, Limits, State};

/// How often a node tells that it lives.
const BEAT: Duration = Duration::from_secs(20);

/// Short enough that heartbeats, which go on all the time, don't make tests slow.
pub fn limits() -> Limits {
    Limits { quiet: Duration::from_secs(150), still: Duration::from_secs(120), ..Limits::default() }
}

/// Those nodes that live.
#[derive(Default)]
pub struct Living(Mutex<BTreeSet<String>>);

impl Living {
    pub fn set(&self, name: &str, lives: bool) {
        let mut names = self.0.lock().unwrap();
        match lives {
            true => names.insert(name.to_owned()),
            false => names.remove(name),
        };
    }
}

/// Lets nodes tell how they are: their lease, that they are ready, and that their pods are. What is so is looked up beside
/// the server, since this goes on all the time.
pub fn live(plane: &ControlPlane) -> BoxFuture<'_, ()> {
    Box::pin(async move {
        let leases: Api<Lease> = Api::namespaced(plane.client(), "kube-node-lease");
        loop {
            let names: Vec<_> = plane.outside::<Living>().0.lock().unwrap().iter().cloned().collect();
            for name in &names {
                let renewed = Patch::Merge(json!({"spec": {"renewTime": plane.clock().micro_time()}}));
                leases.patch(name, &PatchParams::default(), &renewed).await.unwrap();
            }
            let state = plane.state();
            for name in &names {
                tell(plane, &state, name).await;
            }
            tokio::time::sleep(BEAT).await;
        }
    })
}

/// Says that a node and its pods are ready, if that isn't said.
async fn tell(plane: &ControlPlane, state: &State, name: &str) {
    let Some(node) = state.object("", "nodes", "", name) else { return };
    if condition(&node, "Ready") != "True" {
        say(plane, name, "Ready", "True").await;
    }
    let here = state.objects("", "pods").into_iter().filter(|pod| pod["spec"]["nodeName"] == name);
    for pod in here.filter(|pod| pod["metadata"]["deletionTimestamp"].is_null() && condition(pod, "Ready") != "True") {
        run(plane, pod["metadata"]["name"].as_str().unwrap_or("")).await;
    }
}

async fn run(plane: &ControlPlane, name: &str) {
    let pods: Api<Pod> = Api::namespaced(plane.client(), "default");
    let ready = json!({"status": {"phase": "Running", "conditions": [
        {"type": "Ready", "status": "True", "lastTransitionTime": plane.clock().time()}]}});
    pods.patch_status(name, &PatchParams::default(), &Patch::Strategic(ready)).await.unwrap();
}

/// Makes a node that is ready.
pub async fn make(plane: &ControlPlane, name: &str, more: Value) {
    let nodes: Api<Node> = Api::all(plane.client());
    let mut node = json!({"metadata": {"name": name}});
    merge(&mut node, more);
    nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
    say(plane, name, "Ready", "True").await;
    let leases: Api<Lease> = Api::namespaced(plane.client(), "kube-node-lease");
    let lease = json!({"metadata": {"name": name}, "spec": {"holderIdentity": name, "leaseDurationSeconds": 40}});
    // A node that comes back finds its lease.
    let _ = leases.create(&PostParams::default(), &serde_json::from_value(lease).unwrap()).await;
    plane.outside::<Living>().set(name, true);
}

/// Says something about a node.
pub async fn say(plane: &ControlPlane, name: &str, kind: &str, status: &str) {
    let nodes: Api<Node> = Api::all(plane.client());
    let time = plane.clock().time();
    let said = json!({"status": {"conditions": [{"type": kind, "status": status, "reason": "Said", "message": "said",
        "lastHeartbeatTime": time, "lastTransitionTime": time}]}});
    nodes.patch_status(name, &PatchParams::default(), &Patch::Strategic(said)).await.unwrap();
}

/// Changes a node.
pub async fn change(plane: &ControlPlane, name: &str, patch: Value) {
    let nodes: Api<Node> = Api::all(plane.client());
    nodes.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

/// Makes a pod that runs on a node and goes at once when it is deleted.
pub async fn place(plane: &ControlPlane, name: &str, node: &str, more: Value) {
    let pods: Api<Pod> = Api::namespaced(plane.client(), "default");
    let spec =
        json!({"nodeName": node, "terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "i"}]});
    let mut pod = json!({"metadata": {"name": name}, "spec": spec});
    merge(&mut pod, more);
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    run(plane, name).await;
}

/// The taints of a node, as `key:effect`, without the usual prefix.
pub fn taints(node: &Value) -> Vec<String> {
    let text = |taint: &Value, name: &str| taint[name].as_str().unwrap_or("").replace("node.kubernetes.io/", "");
    let taints = node["spec"]["taints"].as_array().into_iter().flatten();
    taints.map(|taint| format!("{}:{}", text(taint, "key"), text(taint, "effect"))).collect()
}

/// The status of a condition.
pub fn condition<'a>(object: &'a Value, kind: &str) -> &'a str {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.filter(|said| said["type"] == kind).find_map(|said| said["status"].as_str()).unwrap_or("")
}

fn merge(value: &mut Value, more: Value) {
    match (value, more) {
        (Value::Object(fields), Value::Object(more)) => {
            more.into_iter().for_each(|(name, value)| merge(fields.entry(name).or_insert(Value::Null), value));
        }
        (value, more) => *value = more,
    }
}

/// An object in which the order of taints, which is of no concern, is always the same.
pub fn with_sorted_taints(mut object: Value) -> Value {
    if let Some(taints) = object.pointer_mut("/spec/taints").and_then(Value::as_array_mut) {
        taints.sort_by_key(ToString::to_string);
    }
    object
}
