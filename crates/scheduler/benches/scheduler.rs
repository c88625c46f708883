//! Figures of the scheduler, one line each: decisions alone, by the number of nodes and by what pods ask for, and pods bound
//! through an API server in this process, all on one thread. Run by `make bench`.

use std::future::pending;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use k8s_openapi::api::core::v1::{Node, Pod, ServiceAccount};
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use setpoint_runtime::manager::{Manager, ManagerOptions};
use setpoint_scheduler::{DEFAULT, Profile, Simulation};
use setpoint_testkit::ControlPlane;

/// How many pods are scheduled in each run.
const PODS: usize = 20_000;

fn main() {
    for nodes in [100, 1_000, 10_000] {
        decisions(nodes, "plain", |_| json!({}));
    }
    for nodes in [1_000, 10_000] {
        decisions(nodes, "spread over zones", spread);
        decisions(nodes, "away from their like", away);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    for nodes in [100, 1_000, 10_000] {
        runtime.block_on(bindings(nodes, PODS.min(100 * nodes)));
    }
}

/// Pods that are all there before the first is looked at.
fn decisions(nodes: usize, name: &str, more: fn(usize) -> Value) {
    let mut simulation = Simulation::new(vec![Profile::named(DEFAULT)]);
    for number in 0..nodes {
        simulation.see_node(node(number)).expect("a node");
    }
    let pods = PODS.min(100 * nodes);
    for number in 0..pods {
        let mut pod = pod(number, &more(number));
        pod["metadata"]["uid"] = json!(format!("uid-{number}"));
        simulation.see_pod(pod).expect("a pod");
    }
    let start = Instant::now();
    let (mut bound, mut refused) = (0, 0);
    while let Some(decision) = simulation.decide() {
        match decision.node {
            Ok(_) => bound += 1,
            Err(_) => refused += 1,
        }
    }
    let rate = (bound + refused) as f64 / start.elapsed().as_secs_f64();
    println!("decisions, {name}, {nodes} nodes: {rate:.0} pods/s ({bound} bound, {refused} refused)");
}

/// From the moment that all pods are there and the scheduler starts, until all are bound.
async fn bindings(nodes: usize, pods: usize) {
    let plane = ControlPlane::start().await;
    let accounts: Api<ServiceAccount> = Api::default_namespaced(plane.client());
    let account = serde_json::from_value(json!({"metadata": {"name": "default"}})).expect("an account");
    accounts.create(&PostParams::default(), &account).await.expect("an account is made");
    let all: Api<Node> = Api::all(plane.client());
    let make = async |number: usize| {
        let object = node(number);
        all.create(&PostParams::default(), &serde_json::from_value(object).expect("a node")).await.expect("a node");
        // A new node is tainted until a controller has seen that it is ready; here nobody does.
        let taints = Patch::Merge(json!({"spec": {"taints": null}}));
        all.patch(&format!("node-{number:05}"), &PatchParams::default(), &taints).await.expect("a node");
    };
    stream::iter((0..nodes).map(make)).buffer_unordered(64).for_each(async |()| {}).await;
    let all: Api<Pod> = Api::default_namespaced(plane.client());
    let make = async |number: usize| {
        let object = serde_json::from_value(pod(number, &json!({}))).expect("a pod");
        all.create(&PostParams::default(), &object).await.expect("a pod is made");
    };
    stream::iter((0..pods).map(make)).buffer_unordered(256).for_each(async |()| {}).await;
    let manager = Manager::new(plane.client(), plane.clock(), plane.chance(), ManagerOptions::default());
    let manager = manager.expect("a manager without election");
    setpoint_scheduler::add_to(&manager, &plane.client(), "bench").expect("a scheduler");
    let runs = manager.clone();
    let running = tokio::spawn(async move { runs.run(pending()).await.expect("it runs on") });
    while !manager.ready().report(&[]).0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let start = Instant::now();
    while unbound(&all).await > 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let rate = pods as f64 / start.elapsed().as_secs_f64();
    println!("pods bound through the API, {nodes} nodes: {rate:.0} pods/s ({pods} pods)");
    running.abort();
}

async fn unbound(pods: &Api<Pod>) -> usize {
    let params = kube::api::ListParams::default().fields("spec.nodeName=").limit(1);
    pods.list_metadata(&params).await.expect("a list").items.len()
}

fn node(number: usize) -> Value {
    let name = format!("node-{number:05}");
    let zone = format!("zone-{}", number % 3);
    let resources = json!({"cpu": "64", "memory": "256Gi", "pods": "250"});
    json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone}},
        "status": {"allocatable": resources, "capacity": resources},
    })
}

fn pod(number: usize, more: &Value) -> Value {
    let requests = json!({"cpu": "100m", "memory": "128Mi"});
    let mut spec = json!({"containers": [{"name": "c", "image": "a", "resources": {"requests": requests}}]});
    if let (Some(spec), Some(more)) = (spec.as_object_mut(), more.as_object()) {
        spec.extend(more.clone());
    }
    let labels = json!({"app": format!("app-{}", number / 100)});
    json!({"metadata": {"name": format!("pod-{number:06}"), "namespace": "default", "labels": labels}, "spec": spec})
}

fn spread(number: usize) -> Value {
    json!({"topologySpreadConstraints": [{
        "maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": format!("app-{}", number / 100)}},
    }]})
}

fn away(number: usize) -> Value {
    json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": format!("app-{}", number / 100)}},
    }]}}})
}
