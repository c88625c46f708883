//! ReplicaSets and ReplicationControllers: so many pods, whatever happens to them.

use futures_util::FutureExt;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Pod, ReplicationController};
use kube::api::{Api, DeleteParams, ListParams};
use serde_json::{Value, json};
use setpoint_testkit::{ControlPlane, State};

use crate::process::{exhaust, spawn};
use crate::story::{Story, anything, create, expect, patch, pods, template};

fn set(kind: &str, replicas: i32) -> Value {
    let (api_version, selector) = match kind {
        "ReplicaSet" => ("apps/v1", json!({"matchLabels": {"app": "web"}})),
        _ => ("v1", json!({"app": "web"})),
    };
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "web"},
        "spec": {"replicas": replicas, "selector": selector, "template": template("web:1")}})
}

async fn one_pod(plane: &ControlPlane) -> String {
    let pods: Api<Pod> = Api::default_namespaced(plane.client());
    let pod = pods.list(&ListParams::default()).await.unwrap().items.into_iter().next();
    pod.and_then(|pod| pod.metadata.name).expect("a pod")
}

async fn delete_one_pod(plane: &ControlPlane) {
    let pods: Api<Pod> = Api::default_namespaced(plane.client());
    pods.delete(&one_pod(plane).await, &DeleteParams::default()).await.unwrap();
}

fn status(state: &State, plural: &str) -> Value {
    let group = if plural == "replicasets" { "apps" } else { "" };
    state.object(group, plural, "default", "web").map(|set| set["status"].clone()).unwrap_or_default()
}

#[test]
fn pods_are_made_replaced_and_taken_away() {
    exhaust(&Story {
        name: "replica_set::pods_are_made_replaced_and_taken_away",
        controllers: "replicaset",
        drive: |plane| {
            async {
                plane.let_pods_into("default").await;
                create::<ReplicaSet>(plane, set("ReplicaSet", 2)).await;
                plane.settle().await.unwrap();
                delete_one_pod(plane).await;
                plane.settle().await.unwrap();
                patch::<ReplicaSet>(plane, "web", json!({"spec": {"replicas": 1}})).await;
            }
            .boxed()
        },
        node: Some("node-1"),
        invariant: anything,
        outcome: |state| {
            expect("pods", state.objects("", "pods").len(), 1)?;
            let wanted = json!({"replicas": 1, "fullyLabeledReplicas": 1, "readyReplicas": 1, "availableReplicas": 1,
                "terminatingReplicas": 0, "observedGeneration": 2});
            expect("status", status(state, "replicasets"), wanted)
        },
    })
    .assert();
}

#[test]
fn free_pods_are_adopted_and_strangers_are_let_go() {
    exhaust(&Story {
        name: "replica_set::free_pods_are_adopted_and_strangers_are_let_go",
        controllers: "replicaset",
        drive: |plane| {
            async {
                plane.let_pods_into("default").await;
                let mut pod = template("web:0");
                pod["apiVersion"] = json!("v1");
                pod["kind"] = json!("Pod");
                pod["metadata"]["name"] = json!("free");
                create::<Pod>(plane, pod).await;
                create::<ReplicaSet>(plane, set("ReplicaSet", 1)).await;
                plane.settle().await.unwrap();
                patch::<Pod>(plane, "free", json!({"metadata": {"labels": {"app": "other"}}})).await;
            }
            .boxed()
        },
        node: Some("node-1"),
        invariant: anything,
        outcome: |state| {
            let owned = |pod: &Value| pod["metadata"]["ownerReferences"][0]["kind"] == "ReplicaSet";
            let (own, free): (Vec<_>, Vec<_>) = pods(state).into_iter().partition(owned);
            expect("own pods", own.len(), 1)?;
            expect("free pods", free.len(), 1)?;
            expect("the free pod's owners", free[0]["metadata"]["ownerReferences"].clone(), Value::Null)?;
            expect("the free pod", free[0]["metadata"]["name"].clone(), "free")
        },
    })
    .assert();
}

#[test]
fn a_refusal_is_said_and_taken_back() {
    exhaust(&Story {
        name: "replica_set::a_refusal_is_said_and_taken_back",
        controllers: "replicaset",
        drive: |plane| {
            async {
                // Nothing can be made without the service account.
                create::<ReplicaSet>(plane, set("ReplicaSet", 1)).await;
                plane.advance(std::time::Duration::from_secs(5)).await;
                plane.let_pods_into("default").await;
            }
            .boxed()
        },
        node: Some("node-1"),
        invariant: anything,
        outcome: |state| {
            expect("pods", pods(state).len(), 1)?;
            expect("conditions", status(state, "replicasets")["conditions"].clone(), Value::Null)
        },
    })
    .assert();
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_told_in_a_condition_and_an_event() {
    let plane = ControlPlane::start().await;
    let _controllers = spawn(&plane, "replicaset");
    create::<ReplicaSet>(&plane, set("ReplicaSet", 3)).await;
    plane.advance(std::time::Duration::from_secs(5)).await;
    let said = status(&plane.state(), "replicasets")["conditions"][0].clone();
    let facts = ["type", "status", "reason", "lastTransitionTime"].map(|name| said[name].as_str().unwrap_or_default());
    assert_eq!(facts, ["ReplicaFailure", "True", "FailedCreate", "2026-01-01T00:00:00Z"]);
    let why = said["message"].as_str().unwrap_or_default();
    assert!(why.ends_with(
        "is forbidden: error looking up service account default/default: serviceaccount \"default\" not found"
    ));
    // Events of both API groups are the same objects, stored in the words of the older one.
    let events = plane.state().objects("", "events");
    let note = format!("Error creating: {why}");
    let is_told =
        |event: &Value| event["reason"] == "FailedCreate" && (event["message"] == note || event["note"] == note);
    assert!(events.iter().any(is_told), "{events:?}");
}

#[test]
fn available_is_who_was_ready_for_long_enough() {
    exhaust(&Story {
        name: "replica_set::available_is_who_was_ready_for_long_enough",
        controllers: "replicaset",
        drive: |plane| {
            async {
                plane.let_pods_into("default").await;
                let mut set = set("ReplicaSet", 1);
                set["spec"]["minReadySeconds"] = json!(600);
                create::<ReplicaSet>(plane, set).await;
                // The pod is ready after two seconds.
                plane.advance(std::time::Duration::from_secs(400)).await;
                let said = status(&plane.state(), "replicasets");
                assert_eq!((&said["readyReplicas"], &said["availableReplicas"]), (&json!(1), &Value::Null));
                plane.advance(std::time::Duration::from_secs(600)).await;
            }
            .boxed()
        },
        node: Some("node-1"),
        invariant: anything,
        outcome: |state| expect("available", status(state, "replicasets")["availableReplicas"].clone(), 1),
    })
    .assert();
}

#[test]
fn replication_controllers_do_the_same() {
    exhaust(&Story {
        name: "replica_set::replication_controllers_do_the_same",
        controllers: "replicationcontroller",
        drive: |plane| {
            async {
                plane.let_pods_into("default").await;
                create::<ReplicationController>(plane, set("ReplicationController", 2)).await;
                plane.settle().await.unwrap();
                delete_one_pod(plane).await;
                plane.settle().await.unwrap();
                patch::<ReplicationController>(plane, "web", json!({"spec": {"replicas": 1}})).await;
            }
            .boxed()
        },
        node: Some("node-1"),
        invariant: anything,
        outcome: |state| {
            expect("pods", state.objects("", "pods").len(), 1)?;
            let wanted = json!({"replicas": 1, "fullyLabeledReplicas": 1, "readyReplicas": 1, "availableReplicas": 1,
                "observedGeneration": 2});
            expect("status", status(state, "replicationcontrollers"), wanted)
        },
    })
    .assert();
}

#[test]
fn a_replication_controller_adopts_free_pods_and_lets_strangers_go() {
    exhaust(&Story {
        name: "replica_set::a_replication_controller_adopts_free_pods_and_lets_strangers_go",
        controllers: "replicationcontroller",
        drive: |plane| {
            async {
                plane.let_pods_into("default").await;
                let mut pod = template("web:0");
                pod["metadata"]["name"] = json!("free");
                create::<Pod>(plane, pod).await;
                create::<ReplicationController>(plane, set("ReplicationController", 1)).await;
                plane.settle().await.unwrap();
                assert_eq!(pods(&plane.state()).len(), 1, "it has taken the free one");
                patch::<Pod>(plane, "free", json!({"metadata": {"labels": {"app": "other"}}})).await;
            }
            .boxed()
        },
        node: Some("node-1"),
        invariant: anything,
        outcome: |state| {
            let owned = |pod: &Value| pod["metadata"]["ownerReferences"][0]["kind"] == "ReplicationController";
            let (own, free): (Vec<_>, Vec<_>) = pods(state).into_iter().partition(owned);
            expect("own and free pods", (own.len(), free.len()), (1, 1))?;
            expect("the free pod", free[0]["metadata"]["name"].clone(), "free")
        },
    })
    .assert();
}

#[test]
fn a_replication_controller_says_what_is_refused_and_takes_it_back() {
    exhaust(&Story {
        name: "replica_set::a_replication_controller_says_what_is_refused_and_takes_it_back",
        controllers: "replicationcontroller",
        drive: |plane| {
            async {
                create::<ReplicationController>(plane, set("ReplicationController", 1)).await;
                plane.advance(std::time::Duration::from_secs(5)).await;
                plane.let_pods_into("default").await;
            }
            .boxed()
        },
        node: Some("node-1"),
        invariant: anything,
        outcome: |state| {
            expect("pods", pods(state).len(), 1)?;
            expect("conditions", status(state, "replicationcontrollers")["conditions"].clone(), Value::Null)
        },
    })
    .assert();
}
