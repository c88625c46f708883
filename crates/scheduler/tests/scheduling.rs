//! The scheduler on a whole control plane, with virtual time.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod, ServiceAccount};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use setpoint_runtime::manager::{Manager, ManagerOptions};
use setpoint_testkit::ControlPlane;

async fn start() -> ControlPlane {
    let plane = ControlPlane::start().await;
    let accounts: Api<ServiceAccount> = Api::default_namespaced(plane.client());
    let account = serde_json::from_value(json!({"metadata": {"name": "default"}})).unwrap();
    accounts.create(&PostParams::default(), &account).await.unwrap();
    let manager = Manager::new(plane.client(), plane.clock(), plane.chance(), ManagerOptions::default()).unwrap();
    setpoint_scheduler::add_to(&manager, &plane.client(), "test").unwrap();
    tokio::spawn(async move { manager.run(std::future::pending()).await });
    plane
}

async fn node(plane: &ControlPlane, name: &str, cpu: &str, spec: Value) {
    let resources = json!({"cpu": cpu, "memory": "8Gi", "pods": "110"});
    let node = json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"allocatable": resources, "capacity": resources}});
    let nodes: Api<Node> = Api::all(plane.client());
    nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
    // A new node is tainted until a controller has seen that it is ready; here nobody does.
    let taints = Patch::Merge(json!({"spec": {"taints": spec["taints"]}}));
    nodes.patch(name, &PatchParams::default(), &taints).await.unwrap();
}

async fn pod(plane: &ControlPlane, name: &str, cpu: &str, more: Value) {
    let mut spec = json!({"containers": [{"name": "c", "image": "a", "resources": {"requests": {"cpu": cpu}}}]});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let pod = json!({"metadata": {"name": name}, "spec": spec});
    let pods: Api<Pod> = Api::default_namespaced(plane.client());
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
}

/// The node of a pod, or why it has none.
fn place(plane: &ControlPlane, name: &str) -> String {
    let pod = plane.state().object("", "pods", "default", name).unwrap_or_default();
    match pod["spec"]["nodeName"].as_str() {
        Some(node) => node.to_owned(),
        None => pod["status"]["conditions"][0]["message"].as_str().unwrap_or_default().to_owned(),
    }
}

async fn settled(plane: &ControlPlane) {
    plane.advance(Duration::from_secs(30)).await;
}

#[tokio::test(start_paused = true)]
async fn pods_go_where_there_is_room_and_wait_until_there_is() {
    let plane = start().await;
    pod(&plane, "early", "1", json!({})).await;
    settled(&plane).await;
    assert_eq!(place(&plane, "early"), "no nodes available to schedule pods");
    node(&plane, "small", "2", json!({})).await;
    node(&plane, "tainted", "8", json!({"taints": [{"key": "a", "effect": "NoSchedule"}]})).await;
    settled(&plane).await;
    assert_eq!(place(&plane, "early"), "small");
    pod(&plane, "second", "1", json!({})).await;
    pod(&plane, "third", "1", json!({})).await;
    settled(&plane).await;
    assert_eq!(place(&plane, "second"), "small");
    let why = "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s). no new claims to deallocate, \
        preemption: 0/2 nodes are available: 1 No preemption victims found for incoming pod, 1 Preemption is not helpful for scheduling.";
    assert_eq!(place(&plane, "third"), why);
    let pods: Api<Pod> = Api::default_namespaced(plane.client());
    pods.delete("second", &DeleteParams::default().grace_period(0)).await.unwrap();
    settled(&plane).await;
    assert_eq!(place(&plane, "third"), "small");
    pod(&plane, "tolerant", "1", json!({"tolerations": [{"key": "a", "operator": "Exists"}]})).await;
    settled(&plane).await;
    assert_eq!(place(&plane, "tolerant"), "tainted");
}

#[tokio::test(start_paused = true)]
async fn selectors_cordons_and_ports_are_obeyed() {
    let plane = start().await;
    node(&plane, "one", "8", json!({})).await;
    node(&plane, "two", "8", json!({})).await;
    pod(&plane, "chosen", "1", json!({"nodeSelector": {"kubernetes.io/hostname": "two"}})).await;
    pod(&plane, "nowhere", "1", json!({"nodeSelector": {"a": "b"}})).await;
    settled(&plane).await;
    assert_eq!(place(&plane, "chosen"), "two");
    assert_eq!(
        place(&plane, "nowhere"),
        "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector. no new claims to deallocate, \
        preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
    );
    let nodes: Api<Node> = Api::all(plane.client());
    let cordon = |on: bool| Patch::Merge(json!({"spec": {"unschedulable": on}}));
    nodes.patch("one", &PatchParams::default(), &cordon(true)).await.unwrap();
    let port =
        || json!({"containers": [{"name": "c", "image": "a", "ports": [{"containerPort": 80, "hostPort": 80}]}]});
    pod(&plane, "first-port", "1", port()).await;
    settled(&plane).await;
    pod(&plane, "second-port", "1", port()).await;
    settled(&plane).await;
    assert_eq!(place(&plane, "first-port"), "two");
    let why = "0/2 nodes are available: 1 node(s) didn't have free ports for the requested pod ports, 1 node(s) were unschedulable. \
        no new claims to deallocate, preemption: 0/2 nodes are available: 1 No preemption victims found for incoming pod, \
        1 Preemption is not helpful for scheduling.";
    assert_eq!(place(&plane, "second-port"), why);
    nodes.patch("one", &PatchParams::default(), &cordon(false)).await.unwrap();
    settled(&plane).await;
    assert_eq!(place(&plane, "second-port"), "one");
}

#[tokio::test(start_paused = true)]
async fn pods_with_gates_and_those_of_other_schedulers_are_left_alone() {
    let plane = start().await;
    pod(&plane, "gated", "1", json!({"schedulingGates": [{"name": "wait"}]})).await;
    pod(&plane, "foreign", "1", json!({"schedulerName": "another"})).await;
    node(&plane, "one", "8", json!({})).await;
    settled(&plane).await;
    assert_eq!(place(&plane, "gated"), "Scheduling is blocked due to non-empty scheduling gates");
    assert_eq!(place(&plane, "foreign"), "");
    let pods: Api<Pod> = Api::default_namespaced(plane.client());
    let open = Patch::Merge(json!({"spec": {"schedulingGates": []}}));
    pods.patch("gated", &PatchParams::default(), &open).await.unwrap();
    settled(&plane).await;
    assert_eq!(place(&plane, "gated"), "one");
}
