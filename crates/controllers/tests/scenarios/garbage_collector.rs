//! What nobody owns goes, and nothing else.

mod random;
mod strange;

use futures_util::future::BoxFuture;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use setpoint_testkit::{ControlPlane, Process, Scenario, State};

use crate::owned::{DEFINITIONS, MAPS, Objects, SECRETS, WIDGETS, blocking, owner, widgets, with};
use crate::process::{controllers_of, exhaust};

const COLLECTOR: &str = "garbage-collector-controller";
const RESOURCES: &[&str] = &["configmaps", "secrets", "clusterroles", "customresourcedefinitions", "widgets"];

fn collector(process: Process) -> BoxFuture<'static, ()> {
    controllers_of(process, COLLECTOR, RESOURCES)
}

/// The names of the objects of a resource in `default`, each with the names of its owners.
fn names(state: &State, group: &str, plural: &str) -> Vec<String> {
    let all = state.objects(group, plural);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let owners = |object: &Value| -> Vec<String> {
        let owners = object["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
        owners.iter().map(|owner| text(&owner["name"])).collect()
    };
    let described = all.iter().map(|object| match owners(object) {
        owners if owners.is_empty() => text(&object["metadata"]["name"]),
        owners => format!("{} of {}", text(&object["metadata"]["name"]), owners.join(" and ")),
    });
    described.collect()
}

fn expect(found: Vec<String>, expected: &[&str]) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err(format!("there are {found:?}, not {expected:?}")) }
}

/// An owner goes in the background; what others own too stays, and what it owned through others goes with it.
struct Background;

impl Scenario for Background {
    fn name(&self) -> &'static str {
        "garbage_collector::background"
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        collector(process)
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            let objects = Objects::on(plane);
            let first = objects.make(MAPS, "first", &[]).await;
            let second = objects.make(MAPS, "second", &[]).await;
            let child = objects.make(SECRETS, "child", &[owner(&first)]).await;
            objects.make(MAPS, "grandchild", &[owner(&child)]).await;
            objects.make(SECRETS, "shared", &[owner(&first), owner(&second)]).await;
            plane.settle().await.unwrap();
            objects.delete(MAPS, "first", &DeleteParams::background()).await;
        })
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        expect(names(state, "", "configmaps"), &["second"])?;
        expect(names(state, "", "secrets"), &["shared of second"])
    }
}

/// A circle goes in the foreground: all of it, although each waits for the next.
struct ForegroundCircle;

impl Scenario for ForegroundCircle {
    fn name(&self) -> &'static str {
        "garbage_collector::a_circle_goes_in_the_foreground"
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        collector(process)
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            let objects = Objects::on(plane);
            let first = objects.make(MAPS, "first", &[]).await;
            let second = objects.make(SECRETS, "second", &[blocking(&first)]).await;
            objects.make(SECRETS, "third", &[blocking(&second)]).await;
            let references = json!({"metadata": {"ownerReferences": [blocking(&second)]}});
            objects.patch(MAPS, "first", references).await;
            plane.settle().await.unwrap();
            objects.delete(MAPS, "first", &DeleteParams::foreground()).await;
        })
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        expect(names(state, "", "configmaps"), &[])?;
        expect(names(state, "", "secrets"), &[])
    }
}

/// In the foreground an owner outlives what it waits for.
struct Foreground;

impl Scenario for Foreground {
    fn name(&self) -> &'static str {
        "garbage_collector::in_the_foreground_the_owner_goes_last"
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        collector(process)
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            let objects = Objects::on(plane);
            let top = objects.make(MAPS, "top", &[]).await;
            let other = objects.make(MAPS, "other", &[]).await;
            let middle = objects.make(SECRETS, "middle", &[blocking(&top)]).await;
            objects.make(SECRETS, "leaf", &[blocking(&middle)]).await;
            objects.make(SECRETS, "shared", &[blocking(&top), blocking(&other)]).await;
            plane.settle().await.unwrap();
            objects.delete(MAPS, "top", &DeleteParams::foreground()).await;
        })
    }

    fn invariant(&self, state: &State) -> Result<(), String> {
        let is_there = |plural: &str, name: &str| state.object("", plural, "default", name).is_some();
        match (is_there("configmaps", "top"), is_there("secrets", "middle"), is_there("secrets", "leaf")) {
            (false, true, _) if is_there("configmaps", "other") => Err("top went before middle".to_owned()),
            (_, false, true) => Err("middle went before leaf".to_owned()),
            _ => Ok(()),
        }
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        expect(names(state, "", "configmaps"), &["other"])?;
        expect(names(state, "", "secrets"), &["shared of other"])
    }
}

/// Dependents are let go before their owner goes.
struct Orphans;

impl Scenario for Orphans {
    fn name(&self) -> &'static str {
        "garbage_collector::orphans_stay"
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        collector(process)
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            let objects = Objects::on(plane);
            let first = objects.make(MAPS, "first", &[]).await;
            let second = objects.make(MAPS, "second", &[]).await;
            objects.make(SECRETS, "child", &[blocking(&first)]).await;
            objects.make(SECRETS, "shared", &[owner(&first), owner(&second)]).await;
            plane.settle().await.unwrap();
            objects.delete(MAPS, "first", &DeleteParams::orphan()).await;
        })
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        expect(names(state, "", "configmaps"), &["second"])?;
        expect(names(state, "", "secrets"), &["child", "shared of second"])
    }
}

/// A kind is defined while the collector runs; its objects own, and are owned.
struct NewKind;

impl Scenario for NewKind {
    fn name(&self) -> &'static str {
        "garbage_collector::a_new_kind_is_collected_at_once"
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        collector(process)
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            let objects = Objects::on(plane);
            objects.make_with(DEFINITIONS, widgets()).await;
            plane.settle().await.unwrap();
            let widget = |name: &str, owners: &[Value]| {
                let metadata = json!({"name": name, "ownerReferences": owners});
                json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata})
            };
            let first = objects.make_with(WIDGETS, widget("first", &[])).await;
            let second = objects.make_with(WIDGETS, widget("second", &[])).await;
            objects.make_with(WIDGETS, widget("shared", &[owner(&first), owner(&second)])).await;
            objects.make_with(WIDGETS, widget("child", &[owner(&first)])).await;
            objects.make(MAPS, "map", &[owner(&first)]).await;
            plane.settle().await.unwrap();
            objects.delete(WIDGETS, "first", &DeleteParams::background()).await;
        })
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        expect(names(state, "example.com", "widgets"), &["second", "shared of second"])?;
        expect(names(state, "", "configmaps"), &[])
    }
}

/// A dependent with a finalizer that nobody takes away holds its owner, and only it.
struct Held;

impl Scenario for Held {
    fn name(&self) -> &'static str {
        "garbage_collector::a_finalizer_that_never_goes_holds_its_owner"
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        collector(process)
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            let objects = Objects::on(plane);
            let top = objects.make(MAPS, "top", &[]).await;
            let metadata = json!({"name": "held", "ownerReferences": [blocking(&top)]});
            let metadata = with(metadata, "finalizers", json!(["example.com/hold"]));
            objects.make_with(SECRETS, json!({"metadata": metadata})).await;
            objects.make(SECRETS, "free", &[blocking(&top)]).await;
            plane.settle().await.unwrap();
            objects.delete(MAPS, "top", &DeleteParams::foreground()).await;
        })
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        expect(names(state, "", "configmaps"), &["top"])?;
        expect(names(state, "", "secrets"), &["held of top"])?;
        let top = state.object("", "configmaps", "default", "top").unwrap_or_default();
        match top["metadata"]["finalizers"] == json!(["foregroundDeletion"]) {
            true => Ok(()),
            false => Err(format!("top is {top}")),
        }
    }
}

#[test]
fn background() {
    exhaust(&Background).assert();
}

#[test]
fn a_circle_goes_in_the_foreground() {
    exhaust(&ForegroundCircle).assert();
}

#[test]
fn in_the_foreground_the_owner_goes_last() {
    exhaust(&Foreground).assert();
}

#[test]
fn orphans_stay() {
    exhaust(&Orphans).assert();
}

#[test]
fn a_new_kind_is_collected_at_once() {
    exhaust(&NewKind).assert();
}

#[test]
fn a_finalizer_that_never_goes_holds_its_owner() {
    exhaust(&Held).assert();
}
