//! The greetings, with every fault at every point.

use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, CustomResourceExt};
use serde_json::{Value, json};
use setpoint_examples::configmap::{self, Greeting, GreetingSpec, TEXT};
use setpoint_runtime::config::Settings;
use setpoint_runtime::manager::{Manager, ManagerOptions};
use setpoint_runtime::owners;
use setpoint_testkit::{ControlPlane, Process, Scenario, State, exhaust};

/// A child is deleted, changed, and shared with somebody else.
struct Meddled;

impl Scenario for Meddled {
    fn name(&self) -> &'static str {
        "every_fault_leads_to_the_same_child"
    }

    fn prepare<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            let definitions: Api<CustomResourceDefinition> = Api::all(plane.client());
            definitions.create(&PostParams::default(), &Greeting::crd()).await.unwrap();
        })
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        Box::pin(run(process))
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            let greetings: Api<Greeting> = Api::default_namespaced(plane.client());
            let maps: Api<ConfigMap> = Api::default_namespaced(plane.client());
            let hello = Greeting::new("hello", GreetingSpec { text: "hello".to_owned() });
            greetings.create(&PostParams::default(), &hello).await.unwrap();
            plane.settle().await.unwrap();
            maps.delete("hello", &DeleteParams::default()).await.unwrap();
            plane.settle().await.unwrap();
            patch(&maps, json!({"data": {TEXT: "changed by hand", "other.txt": "somebody else's"}})).await;
            plane.settle().await.unwrap();
            patch(&greetings, json!({"spec": {"text": "good evening"}})).await;
        })
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        let child = state.object("", "configmaps", "default", "hello").unwrap_or_default();
        match child["data"] == json!({TEXT: "good evening", "other.txt": "somebody else's"}) {
            true => Ok(()),
            false => Err(format!("the child has {}", child["data"])),
        }
    }
}

async fn run(process: Process) {
    let stopped = process.stopped();
    let manager = Manager::new(process.client, process.clock, process.chance, ManagerOptions::default()).unwrap();
    configmap::add_to(&manager, &Settings::default()).unwrap();
    // A process that fails is started again by the kit.
    let _ = manager.run(stopped).await;
}

async fn patch<K: Clone + serde::de::DeserializeOwned + std::fmt::Debug>(api: &Api<K>, patch: Value) {
    api.patch("hello", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

#[test]
fn every_fault_leads_to_the_same_child() {
    exhaust(&Meddled).assert();
}

/// Somebody else's child, of the same name.
struct Foreign;

impl Scenario for Foreign {
    fn name(&self) -> &'static str {
        "the_child_of_another_owner_is_not_touched"
    }

    fn prepare<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            Meddled.prepare(plane).await;
            let maps: Api<ConfigMap> = Api::default_namespaced(plane.client());
            let named =
                |name: &str| -> ConfigMap { serde_json::from_value(json!({"metadata": {"name": name}})).unwrap() };
            let owner = maps.create(&PostParams::default(), &named("owner")).await.unwrap();
            let mut child = named("hello");
            let reference = owners::controller_reference(&owner).unwrap();
            owners::set_controller(&mut child.metadata, reference).unwrap();
            maps.create(&PostParams::default(), &child).await.unwrap();
        })
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        Box::pin(run(process))
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            let greetings: Api<Greeting> = Api::default_namespaced(plane.client());
            let hello = Greeting::new("hello", GreetingSpec { text: "hello".to_owned() });
            greetings.create(&PostParams::default(), &hello).await.unwrap();
        })
    }

    fn invariant(&self, state: &State) -> Result<(), String> {
        let child = state.object("", "configmaps", "default", "hello").unwrap_or_default();
        match &child["data"] {
            Value::Null => Ok(()),
            data => Err(format!("it has {data}")),
        }
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        self.invariant(state)
    }
}

#[test]
fn the_child_of_another_owner_is_not_touched() {
    exhaust(&Foreign).assert();
}
