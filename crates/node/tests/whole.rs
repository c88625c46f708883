//! Simulated nodes with controllers and a scheduler: nodes that die, flap, lose their pods, and what becomes of these.

use std::time::Duration;

use futures_util::future::BoxFuture;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use setpoint_controllers::{Choice, Wiring};
use setpoint_node::simulated;
use setpoint_runtime::clock::{Chance, Clock};
use setpoint_runtime::config::Config;
use setpoint_runtime::manager::{Manager, ManagerOptions};
use setpoint_testkit::{ControlPlane, State};
use tokio::task::JoinHandle;

const CONTROLLERS: &str = "deployment,replicaset,nodelifecycle,taint-eviction,podgc";

fn nodes(manager: &Manager, client: &Client, count: usize) {
    let options = simulated::Options { count, ..simulated::Options::default() };
    simulated::add_to(manager, client, options).expect("nodes are added once");
}

fn manager(client: &Client, clock: Clock, chance: Chance) -> Manager {
    Manager::new(client.clone(), clock, chance, ManagerOptions::default()).expect("a manager without election")
}

/// Controllers and a scheduler, without faults, for as long as the plane is there.
fn others(plane: &ControlPlane) -> BoxFuture<'static, ()> {
    let (client, clock, chance) = (plane.client(), plane.clock(), plane.chance());
    Box::pin(async move {
        let manager = manager(&client, clock, chance);
        let client_of = |_: &str| client.clone();
        let config = Config::default();
        let wiring = Wiring {
            manager: &manager,
            client_of: &client_of,
            config: &config,
            instance: "test",
            root_ca: None,
            tokens: None,
            signer: None,
        };
        setpoint_controllers::add_to(&wiring, &Choice::parse(CONTROLLERS).expect("controllers that there are"))
            .unwrap();
        setpoint_scheduler::add_to(&manager, &client, "test").unwrap();
        manager.run(std::future::pending()).await.unwrap();
    })
}

fn deployment() -> Value {
    let leave_at_once =
        |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0});
    json!({"metadata": {"name": "web"}, "spec": {
        "replicas": 3, "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {
            "tolerations": [leave_at_once("node.kubernetes.io/unreachable"), leave_at_once("node.kubernetes.io/not-ready")],
            "containers": [{"name": "web", "image": "nginx"}],
        }},
    }})
}

async fn deploy(plane: &ControlPlane) {
    let api: Api<Deployment> = Api::default_namespaced(plane.client());
    api.create(&PostParams::default(), &serde_json::from_value(deployment()).unwrap()).await.unwrap();
}

async fn annotate(plane: &ControlPlane, node: &str, name: &str, value: Value) {
    let api: Api<Node> = Api::all(plane.client());
    let patch =
        Patch::Merge(json!({"metadata": {"annotations": {format!("{}{name}", simulated::ANNOTATIONS): value}}}));
    api.patch(node, &PatchParams::default(), &patch).await.unwrap();
}

/// The nodes of the pods that live and are ready, in order.
fn ready_on(state: &State) -> Vec<String> {
    let is_ready = |pod: &Value| {
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|it| it["type"] == "Ready" && it["status"] == "True")
    };
    let pods = state.objects("", "pods");
    let living = pods.iter().filter(|pod| pod["metadata"].get("deletionTimestamp").is_none() && is_ready(pod));
    let mut found: Vec<String> =
        living.map(|pod| pod["spec"]["nodeName"].as_str().unwrap_or_default().to_owned()).collect();
    found.sort();
    found
}

/// A process with three nodes.
fn spawn_nodes(plane: &ControlPlane) -> JoinHandle<()> {
    let manager = manager(&plane.client(), plane.clock(), plane.chance());
    nodes(&manager, &plane.client(), 3);
    tokio::spawn(async move { manager.run(std::future::pending()).await.unwrap() })
}

/// A plane on which a deployment of three begins to run.
async fn deployed() -> (ControlPlane, JoinHandle<()>) {
    let plane = ControlPlane::start().await;
    plane.let_pods_into("default").await;
    tokio::spawn(others(&plane));
    let nodes = spawn_nodes(&plane);
    plane.advance(Duration::from_secs(5)).await;
    deploy(&plane).await;
    (plane, nodes)
}

#[tokio::test(start_paused = true)]
async fn a_deployment_runs_on_all_nodes_though_their_process_dies_meanwhile() {
    for millis in [0, 1, 2, 5, 10, 1_000] {
        let (plane, first) = deployed().await;
        plane.advance(Duration::from_millis(millis)).await;
        first.abort();
        plane.advance(Duration::from_secs(1)).await;
        spawn_nodes(&plane);
        plane.advance(Duration::from_secs(20)).await;
        assert_eq!(ready_on(&plane.state()), ["simulated-0", "simulated-1", "simulated-2"], "killed after {millis} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn the_pods_of_a_node_that_dies_are_replaced_on_others() {
    let (plane, _nodes) = deployed().await;
    plane.advance(Duration::from_secs(5)).await;
    annotate(&plane, "simulated-1", "heartbeat", json!("stopped")).await;
    plane.advance(Duration::from_secs(90)).await;
    let found = ready_on(&plane.state());
    assert!(found.len() == 3 && found.iter().all(|node| node != "simulated-1"), "pods are ready on {found:?}");
}

#[tokio::test(start_paused = true)]
async fn lost_containers_start_again_on_their_node() {
    let (plane, _nodes) = deployed().await;
    plane.advance(Duration::from_secs(5)).await;
    let lost = plane.clock().wall().to_string();
    plane.advance(Duration::from_secs(2)).await;
    annotate(&plane, "simulated-2", "pods-lost-at", json!(lost)).await;
    plane.advance(Duration::from_secs(30)).await;
    assert_eq!(ready_on(&plane.state()), ["simulated-0", "simulated-1", "simulated-2"]);
    for pod in plane.state().objects("", "pods") {
        let wanted = i64::from(pod["spec"]["nodeName"] == "simulated-2");
        assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], wanted, "{}", pod["status"]);
    }
}

/// The node of a plane without faults.
async fn start(plane: &ControlPlane) {
    plane.let_pods_into("default").await;
    let manager = manager(&plane.client(), plane.clock(), plane.chance());
    nodes(&manager, &plane.client(), 1);
    tokio::spawn(async move { manager.run(std::future::pending()).await });
    plane.advance(Duration::from_secs(1)).await;
}

async fn bind(plane: &ControlPlane, name: &str, spec: Value) {
    let mut spec = spec;
    spec["nodeName"] = json!("simulated-0");
    let pods: Api<Pod> = Api::default_namespaced(plane.client());
    let pod = json!({"metadata": {"name": name}, "spec": spec});
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_node_takes_no_pod_that_does_not_fit() {
    let plane = ControlPlane::start().await;
    start(&plane).await;
    let port = |port: u16| json!({"containers": [{"name": "c", "image": "a", "ports": [{"containerPort": port, "hostPort": port}]}]});
    let asking = |cpu: &str, memory: &str| json!({"containers": [{"name": "c", "image": "a", "resources": {"requests": {"cpu": cpu, "memory": memory}}}]});
    bind(&plane, "first", port(8080)).await;
    bind(&plane, "large", asking("7", "1Gi")).await;
    plane.advance(Duration::from_secs(1)).await;
    bind(&plane, "second", port(8080)).await;
    bind(&plane, "other", port(8081)).await;
    bind(&plane, "larger", asking("2", "1Gi")).await;
    bind(&plane, "wide", asking("1", "40Gi")).await;
    plane.advance(Duration::from_secs(1)).await;
    let refused = |reason: &str, message: &str| json!(["Failed", reason, format!("Pod was rejected: {message}")]);
    for (name, expected) in [
        ("first", json!(["Running", null, null])),
        ("large", json!(["Running", null, null])),
        ("other", json!(["Running", null, null])),
        (
            "second",
            refused(
                "NodePorts",
                "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports",
            ),
        ),
        (
            "larger",
            refused("OutOfcpu", "Node didn't have enough resource: cpu, requested: 2000, used: 7000, capacity: 8000"),
        ),
        (
            "wide",
            refused(
                "OutOfmemory",
                "Node didn't have enough resource: memory, requested: 42949672960, used: 1073741824, capacity: 34359738368",
            ),
        ),
    ] {
        let status = plane.state().object("", "pods", "default", name).unwrap_or_default()["status"].clone();
        assert_eq!(json!([status["phase"], status["reason"], status["message"]]), expected, "{name}: {status}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_flaps_when_it_is_told_to_and_says_when_it_is_not_ready() {
    let plane = ControlPlane::start().await;
    start(&plane).await;
    let renewed = |plane: &ControlPlane| {
        let lease = plane.state().object("coordination.k8s.io", "leases", "kube-node-lease", "simulated-0");
        lease.unwrap_or_default()["spec"]["renewTime"].clone()
    };
    annotate(&plane, "simulated-0", "heartbeat", json!("flapping")).await;
    let (mut silent, mut last) = (0, renewed(&plane));
    for _ in 0..20 {
        plane.advance(Duration::from_secs(12)).await;
        let next = renewed(&plane);
        silent += i32::from(next == last);
        last = next;
    }
    assert!((6..=12).contains(&silent), "silent in {silent} of 20 looks");
    annotate(&plane, "simulated-0", "heartbeat", Value::Null).await;
    annotate(&plane, "simulated-0", "ready", json!("false")).await;
    plane.advance(Duration::from_secs(12)).await;
    let ready = |plane: &ControlPlane| {
        let node = plane.state().object("", "nodes", "", "simulated-0").unwrap_or_default();
        let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.into_iter().find(|it| it["type"] == "Ready").unwrap_or_default()["status"].clone()
    };
    assert_eq!(ready(&plane), "False");
    annotate(&plane, "simulated-0", "ready", Value::Null).await;
    plane.advance(Duration::from_secs(12)).await;
    assert_eq!(ready(&plane), "True");
}
