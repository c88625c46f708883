//! The kubelet plays what it is told.

use kube::api::DeleteParams;

use super::*;

fn pod(name: &str, annotations: Value) -> Pod {
    let pod = json!({
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"containers": [{"name": "main", "image": "main:1"}], "restartPolicy": "Never"},
    });
    serde_json::from_value(pod).unwrap()
}

async fn plane_with(kubelet: Kubelet) -> (ControlPlane, Api<Pod>) {
    let plane = ControlPlane::start().await;
    plane.let_pods_into("default").await;
    tokio::spawn(kubelet.run(&plane));
    let pods = Api::default_namespaced(plane.client());
    (plane, pods)
}

/// Phase, readiness, and the exit code of the container.
async fn seen(pods: &Api<Pod>, name: &str) -> (String, bool, Option<i32>) {
    let status = pods.get_status(name).await.unwrap().status.unwrap();
    let ready = status.conditions.iter().flatten().any(|one| one.type_ == "Ready" && one.status == "True");
    let container = status.container_statuses.iter().flatten().next();
    let ended = container.and_then(|container| container.state.as_ref()?.terminated.as_ref());
    (status.phase.unwrap(), ready, ended.map(|ended| ended.exit_code))
}

#[tokio::test(start_paused = true)]
async fn a_pod_becomes_what_its_annotation_says() {
    let (plane, pods) = plane_with(Kubelet::binding_to("node-1")).await;
    for (name, annotations, wanted) in [
        ("runs", json!({}), ("Running", true, None)),
        ("never-ready", json!({ OUTCOME: "never-ready" }), ("Running", false, None)),
        ("succeeds", json!({ OUTCOME: "succeeded" }), ("Succeeded", false, Some(0))),
        ("fails", json!({ OUTCOME: "failed:137" }), ("Failed", false, Some(137))),
    ] {
        pods.create(&PostParams::default(), &pod(name, annotations)).await.unwrap();
        plane.settle().await.unwrap();
        let (phase, ready, code) = wanted;
        assert_eq!(seen(&pods, name).await, (phase.to_owned(), ready, code), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_needs_time_to_start_and_its_grace_period_to_go() {
    let (plane, pods) = plane_with(Kubelet { startup: Duration::from_secs(30), ..Kubelet::binding_to("n") }).await;
    pods.create(&PostParams::default(), &pod("web", json!({}))).await.unwrap();
    plane.advance(Duration::from_secs(20)).await;
    assert_eq!(seen(&pods, "web").await, ("Pending".to_owned(), false, None));
    plane.advance(Duration::from_secs(20)).await;
    assert_eq!(seen(&pods, "web").await, ("Running".to_owned(), true, None));
    pods.delete("web", &DeleteParams::default().grace_period(60)).await.unwrap();
    plane.advance(Duration::from_secs(50)).await;
    assert_eq!(seen(&pods, "web").await, ("Running".to_owned(), true, None));
    plane.advance(Duration::from_secs(20)).await;
    assert!(pods.get_opt("web").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn pods_without_a_node_are_the_schedulers() {
    let (plane, pods) = plane_with(Kubelet::default()).await;
    pods.create(&PostParams::default(), &pod("web", json!({}))).await.unwrap();
    plane.settle().await.unwrap();
    assert_eq!(seen(&pods, "web").await, ("Pending".to_owned(), false, None));
}
