//! DaemonSets: a pod on every node, and how they are replaced.

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use setpoint_testkit::{ControlPlane, State};

use crate::process::exhaust;

use crate::story::{Story, anything, create, expect, is_ready, patch, text};

const STORY: Story = Story {
    name: "",
    controllers: "daemonset-controller",
    node: Some("nowhere"),
    drive: |_| Box::pin(async {}),
    invariant: anything,
    outcome: anything,
};

fn log(more: Value) -> Value {
    let template = json!({"metadata": {"labels": {"app": "log"}}, "spec": {"terminationGracePeriodSeconds": 1, "automountServiceAccountToken": false,
        "containers": [{"name": "log", "image": "log:1"}]}});
    let mut set = json!({"metadata": {"name": "log"}, "spec": {
        "selector": {"matchLabels": {"app": "log"}}, "template": template}});
    let more = more.as_object().cloned().unwrap_or_default();
    set["spec"].as_object_mut().unwrap().extend(more);
    set
}

fn next_image() -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": "log", "image": "log:2"}]}}}})
}

async fn make_nodes(plane: &ControlPlane, names: &[&str]) {
    let nodes: Api<Node> = Api::all(plane.client());
    for name in names {
        let node = json!({"metadata": {"name": name, "labels": {"disk": "ssd"}}});
        nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
        // The server taints a node that has not said that it is ready.
        change_node(plane, name, json!({"spec": {"taints": null}})).await;
    }
}

async fn change_node(plane: &ControlPlane, name: &str, patch: Value) {
    let nodes: Api<Node> = Api::all(plane.client());
    nodes.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

/// The nodes of all pods, in order, with the tag of their image.
fn places(state: &State) -> Vec<String> {
    let place = |pod: &Value| {
        let image = text(pod, "/spec/containers/0/image");
        format!("{}:{}", text(pod, "/spec/nodeName"), image.trim_start_matches("log:"))
    };
    let mut places: Vec<_> = state.objects("", "pods").iter().map(place).collect();
    places.sort();
    places
}

fn are_at(state: &State, wanted: &[&str]) -> Result<(), String> {
    expect("pods", places(state), wanted.to_vec())?;
    let set = state.object("apps", "daemonsets", "default", "log").unwrap_or_default();
    let count = Some(wanted.len() as u64);
    for number in
        ["desiredNumberScheduled", "currentNumberScheduled", "numberReady", "numberAvailable", "updatedNumberScheduled"]
    {
        expect(number, set["status"][number].as_u64(), count)?;
    }
    Ok(())
}

#[test]
fn pods_follow_nodes_that_come_change_and_are_tainted() {
    let story = Story {
        name: "daemon_set::pods_follow_nodes_that_come_change_and_are_tainted",
        drive: |plane| {
            Box::pin(async {
                make_nodes(plane, &["a"]).await;
                let mut set = log(json!({}));
                set["spec"]["template"]["spec"]["nodeSelector"] = json!({"disk": "ssd"});
                create::<DaemonSet>(plane, set).await;
                plane.settle().await.unwrap();
                make_nodes(plane, &["b", "c"]).await;
                plane.settle().await.unwrap();
                are_at(&plane.state(), &["a:1", "b:1", "c:1"]).unwrap();
                change_node(plane, "a", json!({"metadata": {"labels": {"disk": "hdd"}}})).await;
                let taint = json!([{"key": "broken", "effect": "NoExecute"}]);
                change_node(plane, "b", json!({"spec": {"taints": taint}})).await;
                let taint = json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}]);
                change_node(plane, "c", json!({"spec": {"taints": taint}})).await;
            })
        },
        outcome: |state| are_at(state, &["c:1"]),
        ..STORY
    };
    exhaust(&story).assert();
}

/// Once the set was whole, one of two nodes has a pod that works.
fn one_works(state: &State) -> Result<(), String> {
    let set = state.object("apps", "daemonsets", "default", "log").unwrap_or_default();
    if set["metadata"]["generation"] != 2 || state.objects("", "pods").iter().any(is_ready) {
        return Ok(());
    }
    Err("no pod works".to_owned())
}

#[test]
fn an_update_replaces_one_pod_after_the_other() {
    let story = Story {
        name: "daemon_set::an_update_replaces_one_pod_after_the_other",
        drive: |plane| {
            Box::pin(async {
                make_nodes(plane, &["a", "b"]).await;
                create::<DaemonSet>(plane, log(json!({"revisionHistoryLimit": 0}))).await;
                plane.settle().await.unwrap();
                patch::<DaemonSet>(plane, "log", next_image()).await;
            })
        },
        invariant: one_works,
        outcome: |state| {
            are_at(state, &["a:2", "b:2"])?;
            let revisions = state.objects("apps", "controllerrevisions");
            expect("revisions", revisions.iter().map(|one| one["revision"].as_i64()).collect::<Vec<_>>(), vec![Some(2)])
        },
        ..STORY
    };
    exhaust(&story).assert();
}

#[test]
fn with_surge_every_node_always_has_a_pod_that_works() {
    let story = Story {
        name: "daemon_set::with_surge_every_node_always_has_a_pod_that_works",
        drive: |plane| {
            Box::pin(async {
                make_nodes(plane, &["a"]).await;
                let rolling = json!({"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}});
                create::<DaemonSet>(plane, log(json!({"updateStrategy": rolling, "minReadySeconds": 5}))).await;
                plane.settle().await.unwrap();
                patch::<DaemonSet>(plane, "log", next_image()).await;
            })
        },
        invariant: one_works,
        outcome: |state| are_at(state, &["a:2"]),
        ..STORY
    };
    exhaust(&story).assert();
}

#[test]
fn on_delete_a_pod_that_fails_comes_back_new() {
    let story = Story {
        name: "daemon_set::on_delete_a_pod_that_fails_comes_back_new",
        drive: |plane| {
            Box::pin(async {
                make_nodes(plane, &["a", "b"]).await;
                create::<DaemonSet>(plane, log(json!({"updateStrategy": {"type": "OnDelete"}}))).await;
                plane.settle().await.unwrap();
                patch::<DaemonSet>(plane, "log", next_image()).await;
                plane.settle().await.unwrap();
                let pods: Api<Pod> = Api::default_namespaced(plane.client());
                let of_a = plane.state().objects("", "pods").into_iter().find(|pod| pod["spec"]["nodeName"] == "a");
                let failed = Patch::Merge(json!({"status": {"phase": "Failed"}}));
                let name = text(&of_a.unwrap(), "/metadata/name");
                pods.patch_status(&name, &PatchParams::default(), &failed).await.unwrap();
            })
        },
        outcome: |state| expect("pods", places(state), vec!["a:2".to_owned(), "b:1".to_owned()]),
        ..STORY
    };
    exhaust(&story).assert();
}
