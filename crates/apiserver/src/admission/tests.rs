//! Admission through the whole server.

use serde_json::{Value, json};
use setpoint_schema::Edit;

use crate::testing::Server;

const PODS: &str = "/api/v1/namespaces/default/pods";

#[tokio::test(start_paused = true)]
async fn a_pod_needs_a_service_account() {
    let server = Server::start().await;
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let (code, message) = server.refused("POST", PODS, pod).await;
    let expected = "pods \"p\" is forbidden: error looking up service account default/default: serviceaccount \"default\" not found";
    assert_eq!((code, &*message), (403, expected));
}

#[tokio::test]
async fn a_pod_gets_its_token_tolerations_and_priority() {
    let server = Server::start().await;
    let pod = server.pod("p").await;
    let spec = &pod["spec"];
    assert_eq!((spec.text("serviceAccountName"), spec.number("priority")), ("default", Some(0)));
    let volume = spec["volumes"][0].text("name");
    assert!(volume.starts_with("kube-api-access-"), "{volume}");
    assert_eq!(spec["containers"][0]["volumeMounts"][0].text("name"), volume);
    let keys: Vec<&str> = spec["tolerations"].as_array().unwrap().iter().map(|t| t.text("key")).collect();
    assert_eq!(keys, ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]);
}

#[tokio::test]
async fn the_class_of_a_pod_decides_its_priority() {
    let server = Server::start().await;
    server.pod("other").await;
    let pod = |spec: Value| {
        let mut pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        spec.as_object().unwrap().iter().for_each(|(field, value)| pod["spec"].set(field, value.clone()));
        pod
    };
    let (code, message) = server.refused("POST", PODS, pod(json!({"priorityClassName": "none"}))).await;
    assert_eq!((code, &*message), (403, "pods \"p\" is forbidden: no PriorityClass with name none was found"));
    let (code, _) = server.refused("POST", PODS, pod(json!({"priority": 5}))).await;
    assert_eq!(code, 403);
    let made = server.done("POST", PODS, pod(json!({"priorityClassName": "system-node-critical"}))).await;
    assert_eq!(made["spec"].number("priority"), Some(2_000_001_000));
}

#[tokio::test]
async fn the_systems_namespaces_are_not_deleted() {
    let server = Server::start().await;
    let (code, message) = server.refused("DELETE", "/api/v1/namespaces/kube-system", Value::Null).await;
    assert_eq!((code, &*message), (403, "namespaces \"kube-system\" is forbidden: this namespace may not be deleted"));
}

#[tokio::test]
async fn a_claim_gets_the_newest_default_class_and_is_protected() {
    let server = Server::start().await;
    let class = json!({
        "metadata": {"name": "fast", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": "example.com/disk",
    });
    server.done("POST", "/apis/storage.k8s.io/v1/storageclasses", class).await;
    let claim = json!({
        "metadata": {"name": "c"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    let claim = server.done("POST", "/api/v1/namespaces/default/persistentvolumeclaims", claim).await;
    assert_eq!(claim["spec"].text("storageClassName"), "fast");
    assert_eq!(claim["metadata"]["finalizers"], json!(["kubernetes.io/pvc-protection"]));
}
