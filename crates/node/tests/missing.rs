//! Pods on simulated nodes that refer to ConfigMaps and Secrets which are not there.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::Client;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};
use setpoint_node::simulated::{Options, add_to};
use setpoint_runtime::manager::{Manager, ManagerOptions};
use setpoint_testkit::ControlPlane;

/// A plane with one node; how many ConfigMaps and Secrets it has read.
async fn start() -> (ControlPlane, Arc<AtomicUsize>) {
    let plane = ControlPlane::start().await;
    plane.let_pods_into("default").await;
    let reads = Arc::new(AtomicUsize::new(0));
    let (counted, inner) = (Arc::clone(&reads), plane.client());
    let client = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let path = request.uri().path();
        if path.contains("/configmaps/") || path.contains("/secrets/") {
            counted.fetch_add(1, Ordering::Relaxed);
        }
        let inner = inner.clone();
        async move { inner.send(request).await }
    });
    let client = Client::new(client, "default");
    let manager = Manager::new(client.clone(), plane.clock(), plane.chance(), ManagerOptions::default()).unwrap();
    add_to(&manager, &client, Options::default()).unwrap();
    tokio::spawn(async move { manager.run(std::future::pending()).await });
    plane.advance(Duration::from_secs(1)).await;
    (plane, reads)
}

async fn bind(plane: &ControlPlane, name: &str, spec: Value) {
    let mut spec = spec;
    spec["nodeName"] = json!("simulated-0");
    let pods: Api<Pod> = Api::default_namespaced(plane.client());
    let pod = json!({"metadata": {"name": name}, "spec": spec});
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    plane.advance(Duration::from_secs(1)).await;
}

async fn map(plane: &ControlPlane, name: &str, key: &str) {
    let maps: Api<ConfigMap> = Api::default_namespaced(plane.client());
    let map = json!({"metadata": {"name": name}, "data": {key: "x"}});
    maps.create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap();
}

async fn secret(plane: &ControlPlane, name: &str, key: &str) {
    let secrets: Api<Secret> = Api::default_namespaced(plane.client());
    let secret = json!({"metadata": {"name": name}, "stringData": {key: "x"}});
    secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
}

/// The phase of a pod, and how its first container is.
fn told(plane: &ControlPlane, name: &str) -> String {
    let status = plane.state().object("", "pods", "default", name).unwrap_or_default()["status"].clone();
    let container = &status["containerStatuses"][0];
    let waiting = &container["state"]["waiting"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let state = match container["state"]["running"].is_null() {
        false => "running".to_owned(),
        true => [text(&waiting["reason"]), text(&waiting["message"])].join(" ").trim().to_owned(),
    };
    format!("{}: {state}", text(&status["phase"]))
}

/// What was told of a pod as a warning: the reason, about what, and in which words.
fn warnings(plane: &ControlPlane, name: &str) -> Vec<String> {
    let mut events = plane.state().objects("", "events");
    events.retain(|event| event["involvedObject"]["name"] == name && event["type"] == "Warning");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let line = |event: &Value| {
        let about = text(&event["involvedObject"]["fieldPath"]);
        [text(&event["reason"]), about, text(&event["message"])].join(" ")
    };
    let mut told: Vec<String> = events.iter().map(line).collect();
    told.sort();
    told
}

fn from(kind: &str, name: &str) -> Value {
    json!({"containers": [{"name": "c", "image": "nginx", "envFrom": [{kind: {"name": name}}]}]})
}

#[tokio::test(start_paused = true)]
async fn a_container_waits_for_its_variables_and_starts_soon_once_they_are_there() {
    let (plane, reads) = start().await;
    bind(&plane, "a", from("configMapRef", "m")).await;
    assert_eq!(told(&plane, "a"), "Pending: CreateContainerConfigError configmap \"m\" not found");
    let failed = "Failed spec.containers{c} Error: configmap \"m\" not found";
    assert_eq!(warnings(&plane, "a"), [failed]);
    plane.advance(Duration::from_secs(600)).await;
    assert_eq!(told(&plane, "a"), "Pending: CreateContainerConfigError configmap \"m\" not found");
    let event = plane.state().objects("", "events").into_iter().find(|event| event["reason"] == "Failed").unwrap();
    let count = event["count"].as_u64().unwrap_or_default();
    assert!((20..=60).contains(&count), "it is told again and again, not all the time: {count}");
    assert!(reads.load(Ordering::Relaxed) < 80, "{} reads in ten minutes", reads.load(Ordering::Relaxed));
    map(&plane, "m", "k").await;
    plane.advance(Duration::from_secs(11)).await;
    assert_eq!(told(&plane, "a"), "Running: running");
    let before = reads.load(Ordering::Relaxed);
    plane.advance(Duration::from_secs(3600)).await;
    assert_eq!(reads.load(Ordering::Relaxed), before, "what runs is not looked for");
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_missing_is_named() {
    let (plane, _) = start().await;
    secret(&plane, "s", "there").await;
    let value = |key: &str, optional: bool| {
        json!({"containers": [{"name": "c", "image": "nginx", "env":
        [{"name": "V", "valueFrom": {"secretKeyRef": {"name": "s", "key": key, "optional": optional}}}]}]})
    };
    for (name, spec, expected) in [
        ("a", value("there", false), "Running: running"),
        ("b", value("gone", true), "Running: running"),
        ("c", value("gone", false), "Pending: CreateContainerConfigError couldn't find key gone in Secret default/s"),
    ] {
        bind(&plane, name, spec).await;
        assert_eq!(told(&plane, name), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_waits_for_its_volumes() {
    let (plane, _) = start().await;
    let mounts = json!([{"name": "one", "mountPath": "/1"}, {"name": "two", "mountPath": "/2"}]);
    let volumes = json!([{"name": "one", "secret": {"secretName": "s"}},
        {"name": "two", "projected": {"sources": [{"configMap": {"name": "m", "items": [{"key": "k", "path": "k"}]}}]}}]);
    bind(
        &plane,
        "a",
        json!({"volumes": volumes, "containers": [{"name": "c", "image": "nginx", "volumeMounts": mounts}]}),
    )
    .await;
    assert_eq!(told(&plane, "a"), "Pending: ContainerCreating");
    let one = "FailedMount  MountVolume.SetUp failed for volume \"one\" : secret \"s\" not found";
    let two = |why: &str| format!("FailedMount  MountVolume.SetUp failed for volume \"two\" : {why}");
    assert_eq!(warnings(&plane, "a"), [one.to_owned(), two("configmap \"m\" not found")]);
    secret(&plane, "s", "any").await;
    map(&plane, "m", "other").await;
    plane.advance(Duration::from_secs(130)).await;
    assert_eq!(told(&plane, "a"), "Pending: ContainerCreating");
    let last = two("configmap references non-existent config key: k");
    assert!(warnings(&plane, "a").contains(&last), "{:?}", warnings(&plane, "a"));
    let maps: Api<ConfigMap> = Api::default_namespaced(plane.client());
    maps.delete("m", &DeleteParams::default()).await.unwrap();
    map(&plane, "m", "k").await;
    plane.advance(Duration::from_secs(11)).await;
    assert_eq!(told(&plane, "a"), "Running: running");
}

#[tokio::test(start_paused = true)]
async fn a_container_that_starts_again_waits_too() {
    let (plane, _) = start().await;
    map(&plane, "m", "k").await;
    let container = json!({"name": "c", "image": "busybox", "command": ["sh", "-c", "sleep 30; exit 1"],
        "envFrom": [{"configMapRef": {"name": "m"}}]});
    bind(&plane, "a", json!({"containers": [container]})).await;
    assert_eq!(told(&plane, "a"), "Running: running");
    let maps: Api<ConfigMap> = Api::default_namespaced(plane.client());
    maps.delete("m", &DeleteParams::default()).await.unwrap();
    plane.advance(Duration::from_secs(60)).await;
    let status = |plane: &ControlPlane| {
        let pod = plane.state().object("", "pods", "default", "a").unwrap_or_default();
        pod["status"]["containerStatuses"][0].clone()
    };
    assert_eq!(told(&plane, "a"), "Running: CreateContainerConfigError configmap \"m\" not found");
    assert_eq!(status(&plane)["restartCount"], 0);
    assert_eq!(status(&plane)["lastState"]["terminated"]["exitCode"], 1);
    map(&plane, "m", "k").await;
    plane.advance(Duration::from_secs(11)).await;
    assert_eq!(told(&plane, "a"), "Running: running");
    assert_eq!(status(&plane)["restartCount"], 1);
}

#[tokio::test(start_paused = true)]
async fn many_pods_that_refer_to_the_same_read_it_once_in_a_while() {
    let (plane, reads) = start().await;
    secret(&plane, "s", "k").await;
    let pods: Api<Pod> = Api::default_namespaced(plane.client());
    for number in 0..100 {
        let mut spec = from("secretRef", "s");
        spec["nodeName"] = json!("simulated-0");
        let pod = json!({"metadata": {"name": format!("p-{number}")}, "spec": spec});
        pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    }
    plane.advance(Duration::from_secs(5)).await;
    assert_eq!((0..100).filter(|number| told(&plane, &format!("p-{number}")) == "Running: running").count(), 100);
    assert!(reads.load(Ordering::Relaxed) <= 64, "{} reads for 100 pods", reads.load(Ordering::Relaxed));
}
