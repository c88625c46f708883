//! Pods go from nodes whose taints they don't bear.

use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use setpoint_testkit::{ControlPlane, Process, Scenario, State};

use crate::nodes;
use crate::process::{controllers, exhaust_with};

const CONTROLLER: &str = "taint-eviction-controller";

fn bears(seconds: Option<i64>) -> Value {
    json!({"spec": {"tolerations": [{"key": "drill", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}]}})
}

async fn taint(plane: &ControlPlane, name: &str, taints: Value) {
    nodes::change(plane, name, json!({"spec": {"taints": taints}})).await;
}

fn drill() -> Value {
    json!([{"key": "drill", "effect": "NoExecute"}])
}

fn pods(state: &State) -> Vec<String> {
    let names = state.objects("", "pods").into_iter();
    names.map(|pod| pod["metadata"]["name"].as_str().unwrap_or("").to_owned()).collect()
}

/// A node is tainted: who doesn't bear it goes at once, who bears it for a minute goes then, who bears it stays.
struct Tainted;

impl Scenario for Tainted {
    fn name(&self) -> &'static str {
        "taint_eviction::pods_stay_as_long_as_they_bear_it"
    }

    fn prepare<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            plane.let_pods_into("default").await;
            nodes::make(plane, "n", json!({})).await;
            nodes::make(plane, "other", json!({})).await;
            nodes::place(plane, "stays", "n", bears(None)).await;
            nodes::place(plane, "goes-later", "n", bears(Some(60))).await;
            nodes::place(plane, "goes", "n", json!({"metadata": {"finalizers": ["example.com/kept"]}})).await;
            nodes::place(plane, "elsewhere", "other", json!({})).await;
        })
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        controllers(process, CONTROLLER)
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            taint(plane, "n", drill()).await;
            plane.advance(Duration::from_secs(20)).await;
            nodes::place(plane, "goes-later-too", "n", bears(Some(60))).await;
        })
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        let left = pods(state);
        if left != ["elsewhere", "goes", "stays"] {
            return Err(format!("{left:?}"));
        }
        let going = state.object("", "pods", "default", "goes").unwrap_or_default();
        let said = going["status"]["conditions"].as_array().into_iter().flatten();
        let said = said.into_iter().find(|said| said["type"] == "DisruptionTarget").cloned().unwrap_or_default();
        let right = said["reason"] == "DeletionByTaintManager" && going["metadata"]["deletionTimestamp"].is_string();
        if right { Ok(()) } else { Err(format!("{going}")) }
    }
}

#[test]
fn pods_stay_as_long_as_they_bear_it() {
    exhaust_with(&Tainted, 0, nodes::limits()).assert();
}

/// The taint goes before the time of a pod is over.
struct Spared;

impl Scenario for Spared {
    fn name(&self) -> &'static str {
        "taint_eviction::a_pod_is_spared_if_the_taint_goes"
    }

    fn prepare<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            plane.let_pods_into("default").await;
            nodes::make(plane, "n", json!({"spec": {"taints": drill()}})).await;
            nodes::place(plane, "spared", "n", bears(Some(900))).await;
        })
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        controllers(process, CONTROLLER)
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            plane.advance(Duration::from_secs(400)).await;
            taint(plane, "n", Value::Null).await;
            plane.advance(Duration::from_secs(900)).await;
        })
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        let left = pods(state);
        if left == ["spared"] { Ok(()) } else { Err(format!("{left:?}")) }
    }
}

#[test]
fn a_pod_is_spared_if_the_taint_goes() {
    exhaust_with(&Spared, 0, nodes::limits()).assert();
}

/// A node dies; five minutes later its pods are gone, those of the node that lives are not.
struct DeadNode;

impl Scenario for DeadNode {
    fn name(&self) -> &'static str {
        "taint_eviction::pods_leave_a_dead_node_after_five_minutes"
    }

    fn prepare<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            plane.let_pods_into("default").await;
            for name in ["dies", "lives"] {
                nodes::make(plane, name, json!({})).await;
                nodes::place(plane, &format!("on-{name}"), name, json!({})).await;
            }
            plane.outside::<nodes::Living>().set("dies", false);
        })
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        controllers(process, "node-lifecycle-controller,taint-eviction-controller")
    }

    fn world<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        nodes::live(plane)
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            plane.advance(Duration::from_secs(330)).await;
            assert_eq!(pods(&plane.state()), ["on-dies", "on-lives"], "they have five minutes");
            plane.advance(Duration::from_secs(300)).await;
        })
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        let left = pods(state);
        if left == ["on-lives"] { Ok(()) } else { Err(format!("{left:?}")) }
    }

    fn view(&self, object: Value) -> Option<Value> {
        Some(nodes::with_sorted_taints(object))
    }
}

#[test]
fn pods_leave_a_dead_node_after_five_minutes() {
    exhaust_with(&DeadNode, 0, nodes::limits()).assert();
}
