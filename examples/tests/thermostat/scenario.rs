//! A room, what its users want, and what must hold.

use futures_util::future::BoxFuture;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, CustomResourceExt};
use serde_json::json;
use setpoint_examples::thermostat::{self, Thermostat, ThermostatSpec};
use setpoint_runtime::config::Settings;
use setpoint_runtime::manager::{Manager, ManagerOptions};
use setpoint_testkit::{ControlPlane, Process, Scenario, State};

/// A room is heated, and before it is warm enough somebody wants it cooler.
pub struct ColderAfterAll;

impl Scenario for ColderAfterAll {
    fn name(&self) -> &'static str {
        "every_fault_leads_to_the_same_room"
    }

    fn prepare<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            let definitions: Api<CustomResourceDefinition> = Api::all(plane.client());
            definitions.create(&PostParams::default(), &Thermostat::crd()).await.unwrap();
        })
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let stopped = process.stopped();
            let manager = Manager::new(process.client, process.clock, process.chance, ManagerOptions::default());
            let manager = manager.unwrap();
            thermostat::add_to(&manager, &Settings::default()).unwrap();
            // A process that fails is started again by the kit.
            let _ = manager.run(stopped).await;
        })
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            let api: Api<Thermostat> = Api::default_namespaced(plane.client());
            let wanted = Thermostat::new("kitchen", ThermostatSpec { target: 19 });
            api.create(&PostParams::default(), &wanted).await.unwrap();
            plane.advance(std::time::Duration::from_secs(150)).await;
            let colder = Patch::Merge(json!({"spec": {"target": 16}}));
            api.patch("kitchen", &PatchParams::default(), &colder).await.unwrap();
        })
    }

    /// The room is never warmer than anybody ever wanted.
    fn invariant(&self, state: &State) -> Result<(), String> {
        match temperature(state) {
            Some(degrees) if !(thermostat::AT_FIRST..=19).contains(&i32::try_from(degrees).unwrap_or(i32::MAX)) => {
                Err(format!("it is {degrees} degrees"))
            }
            _ => Ok(()),
        }
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        match temperature(state) {
            Some(16) => Ok(()),
            other => Err(format!("{other:?} degrees instead of 16")),
        }
    }
}

fn temperature(state: &State) -> Option<i64> {
    state.object("example.com", "thermostats", "default", "kitchen")?["status"]["temperature"].as_i64()
}
