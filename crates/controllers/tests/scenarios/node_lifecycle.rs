//! Nodes fall silent, come back, and are marked.

use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use setpoint_testkit::{ControlPlane, Process, Scenario, State};

use crate::nodes::{self, Living, condition, taints};
use crate::process::{controllers, exhaust_with};

const CONTROLLER: &str = "node-lifecycle-controller";

fn expect(what: &str, got: impl std::fmt::Debug, right: bool) -> Result<(), String> {
    if right { Ok(()) } else { Err(format!("{what}: {got:?}")) }
}

/// Of two nodes one dies: it is unknown, its pods are not ready, and new ones stay away.
struct OneDies;

impl Scenario for OneDies {
    fn name(&self) -> &'static str {
        "node_lifecycle::a_node_that_falls_silent_is_marked"
    }

    fn prepare<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            plane.let_pods_into("default").await;
            for name in ["dies", "lives"] {
                nodes::make(plane, name, json!({"metadata": {"labels": {"kubernetes.io/os": "linux"}}})).await;
                nodes::place(plane, &format!("on-{name}"), name, json!({})).await;
            }
        })
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        controllers(process, CONTROLLER)
    }

    fn world<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        nodes::live(plane)
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            plane.advance(Duration::from_secs(30)).await;
            plane.outside::<Living>().set("dies", false);
        })
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        let of = |name: &str| state.object("", "nodes", "", name).unwrap_or_default();
        let pod = |name: &str| state.object("", "pods", "default", name).unwrap_or_default();
        let (dead, live) = (of("dies"), of("lives"));
        for kind in ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"] {
            expect(kind, condition(&dead, kind), condition(&dead, kind) == "Unknown")?;
        }
        let both = ["unreachable:NoSchedule", "unreachable:NoExecute"];
        let mut marked = taints(&dead);
        marked.sort_by(|one, other| other.cmp(one));
        expect("dead", &marked, marked == both)?;
        expect("live", taints(&live), taints(&live).is_empty() && condition(&live, "Ready") == "True")?;
        let readiness = (pod("on-dies"), pod("on-lives"));
        let readiness = (condition(&readiness.0, "Ready"), condition(&readiness.1, "Ready"));
        expect("pods", readiness, readiness == ("False", "True"))?;
        expect("labels", &live["metadata"]["labels"], live["metadata"]["labels"]["beta.kubernetes.io/os"] == "linux")
    }

    fn view(&self, object: Value) -> Option<Value> {
        Some(nodes::with_sorted_taints(object))
    }
}

#[test]
fn a_node_that_falls_silent_is_marked() {
    exhaust_with(&OneDies, 0, nodes::limits()).assert();
}

/// A node dies and comes back; another is cordoned for good and short of memory for a while.
struct OneComesBack;

impl Scenario for OneComesBack {
    fn name(&self) -> &'static str {
        "node_lifecycle::a_node_that_comes_back_is_as_before"
    }

    fn prepare<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            nodes::make(plane, "dies", json!({})).await;
            nodes::make(plane, "lives", json!({})).await;
        })
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        controllers(process, CONTROLLER)
    }

    fn world<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        nodes::live(plane)
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            nodes::change(plane, "lives", json!({"spec": {"unschedulable": true}})).await;
            nodes::say(plane, "lives", "MemoryPressure", "True").await;
            plane.outside::<Living>().set("dies", false);
            plane.advance(Duration::from_secs(150)).await;
            plane.outside::<Living>().set("dies", true);
            nodes::say(plane, "lives", "MemoryPressure", "False").await;
        })
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        let of = |name: &str| taints(&state.object("", "nodes", "", name).unwrap_or_default());
        expect("one that came back", of("dies"), of("dies").is_empty())?;
        expect("cordoned", of("lives"), of("lives") == ["unschedulable:NoSchedule"])
    }

    /// What a node never said is said to be unknown if it is thought dead, which is so in some runs only.
    fn view(&self, mut object: Value) -> Option<Value> {
        if object["kind"] == "Node" {
            object["status"].as_object_mut().map(|status| status.remove("conditions"));
        }
        Some(object)
    }
}

#[test]
fn a_node_that_comes_back_is_as_before() {
    exhaust_with(&OneComesBack, 0, nodes::limits()).assert();
}

/// All nodes die: nobody is sent away.
struct AllDie;

impl Scenario for AllDie {
    fn name(&self) -> &'static str {
        "node_lifecycle::nobody_is_sent_away_if_everything_is_down"
    }

    fn prepare<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            nodes::make(plane, "one", json!({})).await;
            nodes::make(plane, "two", json!({"metadata": {"labels": {"topology.kubernetes.io/zone": "b"}}})).await;
        })
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        controllers(process, CONTROLLER)
    }

    fn drive<'a>(&'a self, _plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {})
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        for name in ["one", "two"] {
            let node = state.object("", "nodes", "", name).unwrap_or_default();
            expect(name, taints(&node), taints(&node) == ["unreachable:NoSchedule"])?;
        }
        Ok(())
    }
}

#[test]
fn nobody_is_sent_away_if_everything_is_down() {
    exhaust_with(&AllDie, 0, nodes::limits()).assert();
}

/// Three nodes of four in a zone die at once: that is more likely the zone's fault than theirs, so sending their pods away stops. It may
/// have begun: when the first of them is missed the zone still seems well.
struct MostOfAZoneDies;

impl MostOfAZoneDies {
    const DYING: [&'static str; 3] = ["a", "b", "c"];
}

impl Scenario for MostOfAZoneDies {
    fn name(&self) -> &'static str {
        "node_lifecycle::pods_stay_if_most_of_a_zone_is_down"
    }

    fn prepare<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            for name in Self::DYING.into_iter().chain(["lives"]) {
                nodes::make(plane, name, json!({"metadata": {"labels": {"topology.kubernetes.io/zone": "z"}}})).await;
            }
        })
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        controllers(process, CONTROLLER)
    }

    fn world<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        nodes::live(plane)
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            plane.advance(Duration::from_secs(30)).await;
            for name in Self::DYING {
                plane.outside::<Living>().set(name, false);
            }
            // Far longer than it takes to send the pods of three nodes away at the usual rate.
            plane.advance(Duration::from_secs(300)).await;
        })
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        let of = |name: &str| taints(&state.object("", "nodes", "", name).unwrap_or_default());
        let has = |name: &str, taint: &str| of(name).iter().any(|found| found == taint);
        for name in Self::DYING {
            expect(name, of(name), has(name, "unreachable:NoSchedule"))?;
        }
        let left: Vec<_> = Self::DYING.into_iter().filter(|name| has(name, "unreachable:NoExecute")).collect();
        expect("sent away", &left, left.len() < Self::DYING.len())?;
        expect("lives", of("lives"), of("lives").is_empty())
    }

    /// Which node was missed first depends on when the controller looked.
    fn view(&self, mut object: Value) -> Option<Value> {
        if let Some(taints) = object.pointer_mut("/spec/taints").and_then(Value::as_array_mut) {
            taints.retain(|taint| taint["effect"] != "NoExecute");
        }
        Some(object)
    }
}

#[test]
fn pods_stay_if_most_of_a_zone_is_down() {
    exhaust_with(&MostOfAZoneDies, 0, nodes::limits()).assert();
}
