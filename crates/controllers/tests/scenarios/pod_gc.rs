//! Pods that nobody will end are taken away.

use std::time::Duration;

use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use setpoint_testkit::{ControlPlane, Process, Scenario, State};

use crate::nodes;
use crate::process::{controllers, controllers_with, exhaust};

const CONTROLLER: &str = "pod-garbage-collector-controller";

async fn delete_node(plane: &ControlPlane, name: &str) {
    Api::<Node>::all(plane.client()).delete(name, &DeleteParams::default()).await.unwrap();
}

fn pods(state: &State) -> Vec<String> {
    let names = state.objects("", "pods").into_iter();
    names.map(|pod| pod["metadata"]["name"].as_str().unwrap_or("").to_owned()).collect()
}

fn expect(got: &impl std::fmt::Debug, right: bool) -> Result<(), String> {
    if right { Ok(()) } else { Err(format!("{got:?}")) }
}

/// A node is deleted for good: its pods go. Another is there again after a moment: its pods stay.
struct NodesGo;

impl Scenario for NodesGo {
    fn name(&self) -> &'static str {
        "pod_gc::pods_go_with_their_node"
    }

    fn prepare<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            plane.let_pods_into("default").await;
            for name in ["goes", "blinks"] {
                nodes::make(plane, name, json!({})).await;
                nodes::place(plane, &format!("on-{name}"), name, json!({})).await;
            }
            let kept = json!({"metadata": {"finalizers": ["example.com/kept"]}, "spec": {"terminationGracePeriodSeconds": 30}});
            nodes::place(plane, "kept", "goes", kept).await;
        })
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        controllers(process, CONTROLLER)
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            delete_node(plane, "goes").await;
            delete_node(plane, "blinks").await;
            plane.advance(Duration::from_secs(5)).await;
            nodes::make(plane, "blinks", json!({})).await;
        })
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        expect(&pods(state), pods(state) == ["kept", "on-blinks"])?;
        let kept = state.object("", "pods", "default", "kept").unwrap_or_default();
        let said = kept["status"]["conditions"].as_array().into_iter().flatten();
        let said = said.into_iter().find(|said| said["type"] == "DisruptionTarget").cloned().unwrap_or_default();
        let right = said["message"] == "PodGC: node no longer exists" && kept["status"]["phase"] == "Failed";
        expect(&kept, right && kept["metadata"]["deletionGracePeriodSeconds"] == 0)
    }
}

#[test]
fn pods_go_with_their_node() {
    exhaust(&NodesGo).assert();
}

/// A node is off; somebody says so, and what was being deleted from it is gone. What wasn't stays.
struct OutOfService;

impl Scenario for OutOfService {
    fn name(&self) -> &'static str {
        "pod_gc::what_a_node_that_is_off_can_not_end_is_gone"
    }

    fn prepare<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            plane.let_pods_into("default").await;
            nodes::make(plane, "off", json!({})).await;
            for name in ["deleted-before", "deleted-after", "stays"] {
                nodes::place(plane, name, "off", json!({"spec": {"terminationGracePeriodSeconds": 86400}})).await;
            }
        })
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        controllers(process, CONTROLLER)
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            let pods: Api<Pod> = Api::namespaced(plane.client(), "default");
            pods.delete("deleted-before", &DeleteParams::default()).await.unwrap();
            nodes::change(
                plane,
                "off",
                json!({"spec": {"taints": [
                {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]}}),
            )
            .await;
            nodes::say(plane, "off", "Ready", "Unknown").await;
            plane.advance(Duration::from_secs(5)).await;
            pods.delete("deleted-after", &DeleteParams::default()).await.unwrap();
        })
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        expect(&pods(state), pods(state) == ["stays"])
    }
}

#[test]
fn what_a_node_that_is_off_can_not_end_is_gone() {
    exhaust(&OutOfService).assert();
}

/// Pods on a node that never was there go; those that wait for a node don't.
struct NeverPlaced;

impl Scenario for NeverPlaced {
    fn name(&self) -> &'static str {
        "pod_gc::pods_that_wait_for_a_node_stay"
    }

    fn prepare<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            plane.let_pods_into("default").await;
            nodes::place(plane, "nowhere", "no-such-node", json!({})).await;
            nodes::place(plane, "waits", "", json!({"spec": {"nodeName": Value::Null}})).await;
        })
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        controllers(process, CONTROLLER)
    }

    fn drive<'a>(&'a self, _plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {})
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        expect(&pods(state), pods(state) == ["waits"])
    }
}

#[test]
fn pods_that_wait_for_a_node_stay() {
    exhaust(&NeverPlaced).assert();
}

/// More pods have ended than are kept: evicted ones go first, then the oldest.
struct TooMany;

impl Scenario for TooMany {
    fn name(&self) -> &'static str {
        "pod_gc::of_pods_that_have_ended_the_youngest_are_kept"
    }

    fn prepare<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            plane.let_pods_into("default").await;
            nodes::make(plane, "node", json!({})).await;
            nodes::place(plane, "runs", "node", json!({})).await;
        })
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        controllers_with(process, CONTROLLER, "podGCController: {terminatedPodGCThreshold: 2}")
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            let pods: Api<Pod> = Api::namespaced(plane.client(), "default");
            for (name, status) in [
                ("first", json!({"phase": "Succeeded"})),
                ("second", json!({"phase": "Failed"})),
                ("evicted", json!({"phase": "Failed", "reason": "Evicted"})),
                ("third", json!({"phase": "Succeeded"})),
            ] {
                nodes::place(plane, name, "node", json!({})).await;
                let ended = Patch::Merge(json!({"status": status}));
                pods.patch_status(name, &PatchParams::default(), &ended).await.unwrap();
                plane.advance(Duration::from_secs(5)).await;
            }
        })
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        expect(&pods(state), pods(state) == ["runs", "second", "third"])
    }
}

#[test]
fn of_pods_that_have_ended_the_youngest_are_kept() {
    exhaust(&TooMany).assert();
}
