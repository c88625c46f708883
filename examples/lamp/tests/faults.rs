use futures_util::future::BoxFuture;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, CustomResourceExt};
use lamp::{Lamp, LampSpec};
use serde_json::json;
use setpoint_runtime::manager::{Manager, ManagerOptions};
use setpoint_testkit::{ControlPlane, Process, Scenario, State, exhaust};

/// A lamp is made, and turned down later.
struct TurnedDown;

impl Scenario for TurnedDown {
    fn name(&self) -> &'static str {
        "every_fault_ends_with_a_dim_lamp"
    }

    fn prepare<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            let definitions: Api<CustomResourceDefinition> = Api::all(plane.client());
            definitions.create(&PostParams::default(), &Lamp::crd()).await.unwrap();
        })
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let stopped = process.stopped();
            let manager = Manager::new(process.client, process.clock, process.chance, ManagerOptions::default());
            let manager = manager.unwrap();
            lamp::add_to(&manager).unwrap();
            let _ = manager.run(stopped).await; // one that fails is started again
        })
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            let lamps: Api<Lamp> = Api::default_namespaced(plane.client());
            lamps.create(&PostParams::default(), &Lamp::new("desk", LampSpec { brightness: 80 })).await.unwrap();
            plane.settle().await.unwrap();
            let dim = Patch::Merge(json!({"spec": {"brightness": 10}}));
            lamps.patch("desk", &PatchParams::default(), &dim).await.unwrap();
        })
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        let lamp = state.object("example.com", "lamps", "default", "desk").unwrap_or_default();
        match lamp["status"]["brightness"].as_i64() {
            Some(10) => Ok(()),
            other => Err(format!("it burns at {other:?}")),
        }
    }
}

#[test]
fn every_fault_ends_with_a_dim_lamp() {
    let report = exhaust(&TurnedDown);
    report.assert();
    println!("{report}");
}
