//! Subresources and reviews through the whole server.

use serde_json::{Value, json};
use setpoint_schema::Edit;

use crate::testing::Server;

const PODS: &str = "/api/v1/namespaces/default/pods";

#[tokio::test]
async fn a_pod_is_assigned_once() {
    let server = Server::start().await;
    server.pod("p").await;
    let binding =
        json!({"metadata": {"name": "p", "annotations": {"a": "b"}}, "target": {"kind": "Node", "name": "n"}});
    server.done("POST", &format!("{PODS}/p/binding"), binding.clone()).await;
    let pod = server.done("GET", &format!("{PODS}/p"), Value::Null).await;
    assert_eq!((pod["spec"].text("nodeName"), pod["metadata"]["annotations"].text("a")), ("n", "b"));
    assert_eq!(pod["status"]["conditions"][0].text("type"), "PodScheduled");
    let (code, message) = server.refused("POST", &format!("{PODS}/p/binding"), binding).await;
    let expected = "Operation cannot be fulfilled on pods/binding \"p\": pod p is already assigned to node \"n\"";
    assert_eq!((code, &*message), (409, expected));
}

#[tokio::test]
async fn a_budget_is_asked_before_an_eviction() {
    let server = Server::start().await;
    for name in ["a", "b"] {
        server.pod(name).await;
        let running = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        server.done("PATCH", &format!("{PODS}/{name}/status"), running).await;
    }
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let budget =
        json!({"metadata": {"name": "budget"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}});
    server.done("POST", budgets, budget).await;
    let status = json!({"status": {
        "observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2,
    }});
    server.done("PATCH", &format!("{budgets}/budget/status"), status).await;
    let evict = |name: &str| json!({"metadata": {"name": name}});
    server.done("POST", &format!("{PODS}/a/eviction"), evict("a")).await;
    let budget = server.done("GET", &format!("{budgets}/budget"), Value::Null).await;
    assert_eq!(budget["status"].number("disruptionsAllowed"), Some(0));
    assert!(budget["status"]["disruptedPods"].has("a"));
    let (code, message) = server.refused("POST", &format!("{PODS}/b/eviction"), evict("b")).await;
    assert_eq!((code, &*message), (429, "Cannot evict pod as it would violate the pod's disruption budget."));
}

#[tokio::test]
async fn a_scale_changes_the_size_and_nothing_else() {
    let server = Server::start().await;
    let sets = "/apis/apps/v1/namespaces/default/replicasets";
    let set = json!({"metadata": {"name": "r"}, "spec": {
        "selector": {"matchLabels": {"app": "a"}},
        "template": {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    }});
    server.done("POST", sets, set).await;
    let scale = server.done("PATCH", &format!("{sets}/r/scale"), json!({"spec": {"replicas": 4}})).await;
    assert_eq!((scale.text("kind"), scale["status"].text("selector")), ("Scale", "app=a"));
    let set = server.done("GET", &format!("{sets}/r"), Value::Null).await;
    assert_eq!((set["spec"].number("replicas"), set["metadata"].number("generation")), (Some(4), Some(2)));
    let (code, _) = server.refused("PATCH", &format!("{sets}/r/scale"), json!({"spec": {"replicas": -1}})).await;
    assert_eq!(code, 422);
}

#[tokio::test]
async fn events_of_both_groups_are_the_same_objects() {
    let server = Server::start().await;
    let event = json!({
        "metadata": {"name": "e"}, "eventTime": "2024-01-01T00:00:00.000000Z", "action": "Did", "reason": "Because",
        "reportingController": "example.com/c", "reportingInstance": "i", "note": "text", "type": "Normal",
        "regarding": {"kind": "Pod", "name": "p", "namespace": "default"},
    });
    let path = "/apis/events.k8s.io/v1/namespaces/default/events";
    let made = server.done("POST", path, event).await;
    assert_eq!((made.text("apiVersion"), made.text("note")), ("events.k8s.io/v1", "text"));
    let core = server.done("GET", "/api/v1/namespaces/default/events/e", Value::Null).await;
    assert_eq!((core.text("apiVersion"), core.text("message")), ("v1", "text"));
    let listed = server.done("GET", &format!("{path}?fieldSelector=regarding.name%3Dp"), Value::Null).await;
    assert_eq!(listed["items"][0].text("note"), "text");
    let none = server.done("GET", &format!("{path}?fieldSelector=regarding.name%3Dq"), Value::Null).await;
    assert_eq!(none["items"], json!([]));
}

#[tokio::test]
async fn reviews_say_who_someone_is_and_what_they_may_do() {
    let server = Server::start().await;
    let asked = json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let own = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    assert_eq!(server.done("POST", own, asked).await["status"], json!({"allowed": true}));
    let me = server.done("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", json!({})).await;
    assert_eq!(me["status"]["userInfo"].text("username"), "admin");
    let other = json!({"spec": {"user": "x", "resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let answer = server.done("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", other).await;
    assert_eq!(answer["status"], json!({"allowed": false}));
}
