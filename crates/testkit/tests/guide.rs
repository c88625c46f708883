//! The code of `docs/guide/testkit.md`, so that it is compiled and run; that the page shows this very code is a test of all pages.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use setpoint_testkit::{ControlPlane, Fault, Plan, Process};

#[tokio::test(start_paused = true)]
async fn a_namespace_is_there() {
    let plane = ControlPlane::start().await;
    let namespaces = kube::Api::<Namespace>::all(plane.client());
    assert!(namespaces.get("default").await.is_ok());
}

async fn deploy(plane: &ControlPlane, name: &str) {
    let deployment = json!({
        "metadata": {"name": name},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": name}}, "template": {
            "metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": name, "image": name}]}}},
    });
    let deployments: Api<Deployment> = Api::default_namespaced(plane.client());
    deployments.create(&PostParams::default(), &serde_json::from_value(deployment).unwrap()).await.unwrap();
}

async fn running(plane: &ControlPlane) -> usize {
    let pods: Api<Pod> = Api::default_namespaced(plane.client());
    pods.list(&ListParams::default().fields("status.phase=Running")).await.unwrap().items.len()
}

#[tokio::test(start_paused = true)]
async fn the_rest_of_kubernetes_is_there_on_request() {
    let plane = ControlPlane::start().await;
    plane.run_controllers("*").await; // all; "deployment,replicaset" for two, "*,-job" for all but one
    plane.run_scheduler().await;
    plane.simulated_nodes(3).await; // node-0, node-1, node-2: they register, send heartbeats and run the pods that they get
    deploy(&plane, "web").await; // a Deployment of yours
    plane.settle().await.unwrap(); // its pods run
    assert_eq!(running(&plane).await, 3);
    plane.stop_controllers("replicaset").await; // nobody replaces pods now
    plane.simulated_nodes(2).await; // node-2 falls silent, as if its power were cut
}

/// Makes five maps, one after the other, and is at rest once they are there.
async fn my_operator(process: Process) {
    let stopped = process.stopped();
    let maps: Api<ConfigMap> = Api::default_namespaced(process.client);
    for name in ["a", "b", "c", "d", "e"] {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        let params = PatchParams::apply("my-operator");
        // What is refused now is tried again.
        while maps.patch(name, &params, &Patch::Apply(map.clone())).await.is_err() {}
    }
    stopped.await;
}

async fn story(plane: &ControlPlane) {
    plane.settle().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_plan_breaks_a_test_of_any_form() {
    let plane = ControlPlane::start().await;
    let plan = Plan::of([Fault::CrashAfterWrite(3), Fault::FailCall(7, 409)]); // or Plan::drawn(seed, 20): among the first twenty writes, calls and events
    tokio::select! {
        () = plane.run_with(plan, |process| Box::pin(my_operator(process))) => {}
        () = story(&plane) => {}
    }
    let (state, names) = (plane.state(), ["a", "b", "c", "d", "e"]);
    let is_there = |name: &&str| state.object("", "configmaps", "default", name).is_some();
    assert!(names.iter().all(is_there), "it died after the third, began anew, and was refused once");
}
