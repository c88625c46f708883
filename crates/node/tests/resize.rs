//! Pods on simulated nodes that are given more or less while they run.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use setpoint_node::simulated::{Options, add_to};
use setpoint_runtime::manager::{Manager, ManagerOptions};
use setpoint_testkit::ControlPlane;

/// A plane with a scheduler and one node that has four processors.
async fn start() -> ControlPlane {
    let plane = ControlPlane::start().await;
    plane.let_pods_into("default").await;
    let manager = Manager::new(plane.client(), plane.clock(), plane.chance(), ManagerOptions::default()).unwrap();
    add_to(&manager, &plane.client(), Options { cpu: "4".to_owned(), ..Options::default() }).unwrap();
    setpoint_scheduler::add_to(&manager, &plane.client(), "test").unwrap();
    tokio::spawn(async move { manager.run(std::future::pending()).await });
    plane.advance(Duration::from_secs(1)).await;
    // Nobody runs here who would find out that the node is ready.
    let nodes: Api<Node> = Api::all(plane.client());
    let ready = Patch::Merge(json!({"spec": {"taints": null}}));
    nodes.patch("simulated-0", &PatchParams::default(), &ready).await.unwrap();
    plane.advance(Duration::from_secs(1)).await;
    plane
}

fn container(cpu: &str, policy: &str) -> Value {
    json!({"name": "c", "image": "nginx", "resources": {"requests": {"cpu": cpu}, "limits": {"memory": "1Gi"}},
        "resizePolicy": [{"resourceName": "cpu", "restartPolicy": policy}]})
}

async fn make(plane: &ControlPlane, name: &str, container: Value) {
    let pods: Api<Pod> = Api::default_namespaced(plane.client());
    let pod = json!({"metadata": {"name": name}, "spec": {"containers": [container]}});
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    plane.advance(Duration::from_secs(2)).await;
}

async fn resize(plane: &ControlPlane, name: &str, cpu: &str) {
    let pods: Api<Pod> = Api::default_namespaced(plane.client());
    let patch = json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}});
    pods.patch_resize(name, &PatchParams::default(), &Patch::Strategic(patch)).await.unwrap();
}

fn pod(plane: &ControlPlane, name: &str) -> Value {
    plane.state().object("", "pods", "default", name).unwrap_or_default()
}

/// What is set aside for a pod, what it has, how often it was started again, and its condition about it.
fn told(plane: &ControlPlane, name: &str) -> Value {
    let pod = pod(plane, name);
    let status = &pod["status"]["containerStatuses"][0];
    let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let resize = conditions.iter().find(|it| it["type"].as_str().is_some_and(|it| it.starts_with("PodResize")));
    let resize = resize.map(|it| {
        assert_eq!(it["observedGeneration"], pod["metadata"]["generation"], "{it}");
        json!([it["type"], it["reason"]])
    });
    assert_eq!(pod["status"]["observedGeneration"], pod["metadata"]["generation"]);
    json!([status["allocatedResources"]["cpu"], status["resources"]["requests"]["cpu"], status["restartCount"], resize])
}

fn events(plane: &ControlPlane, name: &str) -> Vec<String> {
    let mut events = plane.state().objects("", "events");
    events.retain(|event| event["involvedObject"]["name"] == name);
    let reasons = events.iter().map(|event| event["reason"].as_str().unwrap_or_default().to_owned());
    let mut reasons: Vec<String> = reasons.filter(|reason| reason.starts_with("Resize")).collect();
    reasons.sort();
    reasons
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_given_more_and_less_without_a_restart() {
    let plane = start().await;
    make(&plane, "a", container("1", "NotRequired")).await;
    assert_eq!(told(&plane, "a"), json!(["1", "1", 0, null]));
    let limits = pod(&plane, "a")["status"]["containerStatuses"][0]["resources"]["limits"].clone();
    assert_eq!(limits, json!({"memory": "1Gi"}));
    for (before, after) in [("1", "3"), ("3", "500m")] {
        resize(&plane, "a", after).await;
        plane.advance(Duration::from_millis(500)).await;
        assert_eq!(told(&plane, "a"), json!([after, before, 0, ["PodResizeInProgress", null]]));
        plane.advance(Duration::from_secs(2)).await;
        assert_eq!(told(&plane, "a"), json!([after, after, 0, null]));
    }
    assert_eq!(events(&plane, "a"), ["ResizeCompleted", "ResizeCompleted", "ResizeStarted", "ResizeStarted"]);
    let note = |reason: &str| {
        let events = plane.state().objects("", "events");
        let found =
            events.iter().find(|event| event["reason"] == reason && event["message"].to_string().contains("500m"));
        found.map(|event| event["message"].as_str().unwrap_or_default().to_owned())
    };
    let resources = r#"{"limits":{"memory":"1Gi"},"requests":{"cpu":"500m","memory":"1Gi"}}"#;
    let expected =
        format!(r#"Pod resize completed: {{"containers":[{{"name":"c","resources":{resources}}}],"generation":3}}"#);
    assert_eq!(note("ResizeCompleted").as_deref(), Some(&*expected));
}

#[tokio::test(start_paused = true)]
async fn a_container_starts_again_if_its_policy_says_so() {
    let plane = start().await;
    make(&plane, "a", container("1", "RestartContainer")).await;
    plane.advance(Duration::from_secs(30)).await;
    resize(&plane, "a", "2").await;
    plane.advance(Duration::from_secs(3)).await;
    assert_eq!(told(&plane, "a"), json!(["2", "2", 1, null]));
    assert_eq!(pod(&plane, "a")["status"]["phase"], "Running");
    let status = pod(&plane, "a")["status"]["containerStatuses"][0].clone();
    assert_eq!((&status["ready"], &status["lastState"]["terminated"]["exitCode"]), (&json!(true), &json!(0)));
}

#[tokio::test(start_paused = true)]
async fn what_does_not_fit_waits_for_room() {
    let plane = start().await;
    make(&plane, "a", container("1", "NotRequired")).await;
    make(&plane, "b", container("2", "NotRequired")).await;
    resize(&plane, "a", "3").await;
    plane.advance(Duration::from_secs(2)).await;
    assert_eq!(told(&plane, "a"), json!(["1", "1", 0, ["PodResizePending", "Deferred"]]));
    let conditions = pod(&plane, "a")["status"]["conditions"].clone();
    let pending = conditions.as_array().unwrap().iter().find(|it| it["type"] == "PodResizePending").unwrap();
    let message = "Node didn't have enough resource: cpu, requested: 3000, used: 2000, capacity: 4000";
    assert_eq!(pending["message"], message);
    assert_eq!(events(&plane, "a"), ["ResizeDeferred"]);
    // The scheduler keeps free what it waits for: 1 of 4 is left for others, and that is 3 + 2 taken.
    make(&plane, "c", container("500m", "NotRequired")).await;
    assert!(pod(&plane, "c")["spec"]["nodeName"].is_null(), "there is no room for others before");
    let pods: Api<Pod> = Api::default_namespaced(plane.client());
    pods.delete("b", &DeleteParams::default().grace_period(0)).await.unwrap();
    plane.advance(Duration::from_secs(15)).await;
    assert_eq!(told(&plane, "a"), json!(["3", "3", 0, null]));
    assert_eq!(pod(&plane, "c")["spec"]["nodeName"], "simulated-0");
}

#[tokio::test(start_paused = true)]
async fn who_asks_for_less_again_waits_no_more() {
    let plane = start().await;
    make(&plane, "a", container("1", "NotRequired")).await;
    make(&plane, "b", container("2", "NotRequired")).await;
    resize(&plane, "a", "3").await;
    plane.advance(Duration::from_secs(2)).await;
    resize(&plane, "a", "1").await;
    plane.advance(Duration::from_secs(2)).await;
    assert_eq!(told(&plane, "a"), json!(["1", "1", 0, null]));
}

#[tokio::test(start_paused = true)]
async fn two_that_ask_at_once_are_not_both_given_the_same_room() {
    let plane = start().await;
    make(&plane, "a", container("1", "NotRequired")).await;
    make(&plane, "b", container("1", "NotRequired")).await;
    resize(&plane, "a", "2500m").await;
    resize(&plane, "b", "2500m").await;
    plane.advance(Duration::from_secs(3)).await;
    let given = ["a", "b"].into_iter().filter(|name| told(&plane, name)[0] == "2500m").count();
    assert_eq!(given, 1, "{} {}", told(&plane, "a"), told(&plane, "b"));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_asks_for_nothing_is_told_nothing_of_it() {
    let plane = start().await;
    make(&plane, "a", json!({"name": "c", "image": "nginx"})).await;
    let status = pod(&plane, "a")["status"]["containerStatuses"][0].clone();
    assert!(status["resources"].is_null() && status["allocatedResources"].is_null(), "{status}");
}
