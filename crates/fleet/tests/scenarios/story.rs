//! What the scenarios of the fleet share: they are told as stories.

use futures_util::future::BoxFuture;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Resource};
use serde_json::{Value, json};
use setpoint_fleet::kinds::{self, Firmware, GROUP, Vehicle};
use setpoint_testkit::{ControlPlane, Process, Scenario, State};

use crate::garage::{Fate, Garage, hub};
use crate::process::controllers;

/// What users do with a fleet, and what must have come of it.
pub struct Story {
    pub name: &'static str,
    pub drive: for<'a> fn(&'a ControlPlane) -> BoxFuture<'a, ()>,
    pub invariant: fn(&State) -> Result<(), String>,
    pub outcome: fn(&State) -> Result<(), String>,
}

impl Scenario for Story {
    fn name(&self) -> &'static str {
        self.name
    }

    fn prepare<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async { kinds::install(&plane.client()).await.unwrap() })
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        controllers(process)
    }

    fn world<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(hub(plane))
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        (self.drive)(plane)
    }

    fn invariant(&self, state: &State) -> Result<(), String> {
        (self.invariant)(state)
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        state.outside::<Garage>().flashes()?;
        (self.outcome)(state)
    }

    /// Names of tasks follow from identities; who wrote first, and so the order of conditions, doesn't count.
    fn view(&self, mut object: Value) -> Option<Value> {
        if object["kind"] == "Vehicle" {
            object["metadata"].as_object_mut()?.remove("managedFields");
            // Where one that has arrived came from tells how far it had got with an earlier wish when the last one reached it.
            let has_arrived = object["status"]["phase"] == "UpToDate";
            let passing = ["/status/task/id", "/status/progress/taskId"].into_iter();
            for pointer in passing.chain(has_arrived.then_some("/status/task/fromVersion")) {
                if let Some(value) = object.pointer_mut(pointer) {
                    *value = Value::Null;
                }
            }
            if let Some(conditions) = object.pointer_mut("/status/conditions").and_then(Value::as_array_mut) {
                conditions.sort_by_key(|condition| condition["type"].to_string());
            }
        }
        Some(object)
    }
}

pub fn always(_: &State) -> Result<(), String> {
    Ok(())
}

pub async fn release(plane: &ControlPlane, versions: &[&str]) {
    for version in versions {
        // Each has a digest of its own.
        let image = json!({"url": "https://firmware.example", "size": 1000, "sha256": format!("{:0>64}", version.replace('.', ""))});
        let spec = json!({"version": version, "hardwareIds": ["ecu-1"], "artifacts": [image]});
        create::<Firmware>(plane, json!({"metadata": {"name": kinds::firmware_name(version)}, "spec": spec})).await;
    }
}

/// A vehicle that runs and should run a version.
pub async fn vehicle(plane: &ControlPlane, name: &str, version: &str, labels: Value, online: bool, fates: &[Fate]) {
    plane.outside::<Garage>().park(name, version, online, fates);
    let spec = json!({"hardwareId": "ecu-1", "firmwareVersion": version});
    create::<Vehicle>(plane, json!({"metadata": {"name": name, "labels": labels}, "spec": spec})).await;
}

pub async fn wish(plane: &ControlPlane, name: &str, spec: Value) {
    let api: Api<Vehicle> = Api::default_namespaced(plane.client());
    api.patch(name, &PatchParams::default(), &Patch::Merge(json!({ "spec": spec }))).await.unwrap();
}

pub async fn create<K>(plane: &ControlPlane, mut object: Value)
where
    K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
        + Clone
        + serde::Serialize
        + serde::de::DeserializeOwned
        + std::fmt::Debug,
{
    object["apiVersion"] = K::api_version(&()).into();
    object["kind"] = K::kind(&()).into();
    let api: Api<K> = Api::default_namespaced(plane.client());
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
}

pub fn get(state: &State, plural: &str, name: &str) -> Value {
    state.object(GROUP, plural, "default", name).unwrap_or_default()
}

/// Compares what a vehicle says: phase, version, attempt.
pub fn expect_vehicle(state: &State, name: &str, phase: &str, version: &str, attempt: i64) -> Result<(), String> {
    let status = get(state, "vehicles", name)["status"].clone();
    let found = (&status["phase"], &status["firmwareVersion"], status["task"]["attempt"].as_i64().unwrap_or(0));
    if found == (&json!(phase), &json!(version), attempt) {
        return Ok(());
    }
    Err(format!("{name} is {} with {} at attempt {}: {status}", found.0, found.1, found.2))
}
