//! The scheduler in the test kit: whatever breaks, every pod ends on one node, and no node has more than it holds.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use setpoint_runtime::election::ElectionConfig;
use setpoint_runtime::manager::{Manager, ManagerOptions};
use setpoint_testkit::{ControlPlane, Limits, Process, Scenario, State, exhaust_with};

/// Faults that are tried; all of them if `SETPOINT_ALL_FAULTS` is set.
const POINTS: usize = 24;

/// Pods come while there is room for some of them, and the others follow when there is more.
struct Filling;

impl Scenario for Filling {
    fn name(&self) -> &'static str {
        "pods_end_on_one_node_whatever_breaks"
    }

    fn prepare<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        async {
            plane.let_pods_into("default").await;
            node(plane, "one", "2").await;
            node(plane, "two", "1").await;
        }
        .boxed()
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        let stopped = process.stopped();
        async move {
            let options = ManagerOptions::default();
            let manager = Manager::new(process.client.clone(), process.clock, process.chance, options);
            let manager = manager.expect("a manager without election");
            setpoint_scheduler::add_to(&manager, &process.client, "test").expect("a scheduler");
            manager.run(stopped).await.expect("it runs until it is stopped");
        }
        .boxed()
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        async {
            let pods: Api<Pod> = Api::default_namespaced(plane.client());
            for number in 0..5 {
                pods.create(&PostParams::default(), &pod(number)).await.expect("a pod");
            }
            plane.settle().await.expect("quiet");
            node(plane, "three", "1").await;
            plane.settle().await.expect("quiet");
            // The one that is left waits until another leaves.
            pods.delete("pod-0", &DeleteParams::default().grace_period(0)).await.ok();
        }
        .boxed()
    }

    fn invariant(&self, state: &State) -> Result<(), String> {
        let mut taken: BTreeMap<String, usize> = BTreeMap::new();
        for pod in state.objects("", "pods") {
            if let Some(node) = pod["spec"]["nodeName"].as_str() {
                *taken.entry(node.to_owned()).or_default() += 1;
            }
        }
        for (node, room) in [("one", 2), ("two", 1), ("three", 1)] {
            let taken = taken.get(node).copied().unwrap_or_default();
            if taken > room {
                return Err(format!("{taken} pods on {node}, which has room for {room}"));
            }
        }
        Ok(())
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        let pods = state.objects("", "pods");
        match pods.iter().find(|pod| pod["spec"]["nodeName"].is_null()) {
            Some(pod) => Err(format!("{} is on no node", pod["metadata"]["name"])),
            None if pods.len() == 4 => Ok(()),
            None => Err(format!("{} pods instead of 4", pods.len())),
        }
    }

    fn view(&self, object: Value) -> Option<Value> {
        // Which pod gets which node depends on when it was seen; that all have one is the outcome.
        (object["kind"] != "Pod" && object["kind"] != "Event").then_some(object)
    }
}

async fn node(plane: &ControlPlane, name: &str, cpu: &str) {
    let resources = json!({"cpu": cpu, "memory": "8Gi", "pods": "110"});
    let node = json!({"metadata": {"name": name}, "status": {"allocatable": resources, "capacity": resources}});
    let nodes: Api<Node> = Api::all(plane.client());
    nodes.create(&PostParams::default(), &serde_json::from_value(node).expect("a node")).await.expect("a node");
    let taints = Patch::Merge(json!({"spec": {"taints": null}}));
    nodes.patch(name, &PatchParams::default(), &taints).await.expect("a node without taints");
}

fn pod(number: usize) -> Pod {
    let requests = json!({"cpu": "1"});
    let spec = json!({"containers": [{"name": "c", "image": "a", "resources": {"requests": requests}}]});
    serde_json::from_value(json!({"metadata": {"name": format!("pod-{number}")}, "spec": spec})).expect("a pod")
}

#[test]
fn pods_end_on_one_node_whatever_breaks() {
    let points = if std::env::var_os("SETPOINT_ALL_FAULTS").is_some() { usize::MAX } else { POINTS };
    exhaust_with(&Filling, 0, Limits { points, ..Limits::default() }).assert();
}

/// Two schedulers of which one leads: if it loses its lease, or dies, the other goes on, and between them they neither bind a pod twice
/// nor fill a node beyond what it holds.
struct Two(Filling);

async fn elected(process: &Process, name: &'static str, stopped: impl Future<Output = ()>) {
    let election = Some(ElectionConfig::new("kube-system", "kube-scheduler", name));
    let options = ManagerOptions { election, ..ManagerOptions::default() };
    let manager = Manager::new(process.client.clone(), process.clock, process.chance.fork(name), options);
    let manager = manager.expect("a manager with an election");
    setpoint_scheduler::add_to(&manager, &process.client, name).expect("a scheduler");
    // One that has lost its lease ends; the kit starts both again.
    let _ = manager.run(stopped).await;
}

impl Scenario for Two {
    fn name(&self) -> &'static str {
        "two_schedulers_are_as_one_whatever_breaks"
    }

    fn prepare<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        self.0.prepare(plane)
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        async move {
            let (one, other) = (process.stopped(), process.stopped());
            tokio::join!(elected(&process, "one", one), elected(&process, "other", other));
        }
        .boxed()
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        self.0.drive(plane)
    }

    fn invariant(&self, state: &State) -> Result<(), String> {
        self.0.invariant(state)
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        self.0.outcome(state)
    }

    fn view(&self, object: Value) -> Option<Value> {
        // Who leads in the end, and since when, is another in each run.
        self.0.view(object).filter(|object| object["kind"] != "Lease")
    }
}

/// Leases are renewed all the time, which makes a quiet hour long: fewer faults, and less time after them.
const POINTS_OF_TWO: usize = 8;

#[test]
fn two_schedulers_are_as_one_whatever_breaks() {
    let points = if std::env::var_os("SETPOINT_ALL_FAULTS").is_some() { usize::MAX } else { POINTS_OF_TWO };
    let (quiet, still) = (Duration::from_secs(60), Duration::from_secs(120));
    exhaust_with(&Two(Filling), 0, Limits { points, quiet, still, ..Limits::default() }).assert();
}
