//! The machines, with every fault at every point: those of the API server, and those of the cloud.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, CustomResourceExt};
use serde_json::{Value, json};
use setpoint_examples::machine::{
    self, BROKEN_IMAGE, Cloud, CloudError, CloudMachine, Form, Machine, MachineSpec, MemoryCloud,
};
use setpoint_runtime::config::Settings;
use setpoint_runtime::manager::{Manager, ManagerOptions};
use setpoint_testkit::{Broken, ControlPlane, Process, Scenario, State, exhaust};

/// The way from the process to the cloud, with the faults of the run on it.
struct Faulty {
    process: Process,
    cloud: Arc<MemoryCloud>,
}

fn lost(broken: Broken) -> CloudError {
    CloudError(broken.to_string())
}

impl Cloud for Faulty {
    async fn find(&self, token: &str) -> Result<Option<CloudMachine>, CloudError> {
        self.process.read(self.cloud.find(token)).await.map_err(lost)?
    }

    async fn create(&self, token: &str, form: &Form) -> Result<(), CloudError> {
        self.process.write(self.cloud.create(token, form)).await.map_err(lost)?
    }

    async fn change(&self, token: &str, form: &Form) -> Result<(), CloudError> {
        self.process.write(Cloud::change(&*self.cloud, token, form)).await.map_err(lost)?
    }

    async fn delete(&self, token: &str) -> Result<(), CloudError> {
        self.process.write(self.cloud.delete(token)).await.map_err(lost)?
    }
}

/// What a user does with a machine, and what the cloud must have seen in the end.
struct Story {
    name: &'static str,
    drive: for<'a> fn(&'a ControlPlane, Api<Machine>) -> BoxFuture<'a, ()>,
    phase: Option<&'static str>,
    /// How many machines the cloud made.
    made: RangeInclusive<u32>,
}

impl Scenario for Story {
    fn name(&self) -> &'static str {
        self.name
    }

    fn prepare<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            let definitions: Api<CustomResourceDefinition> = Api::all(plane.client());
            definitions.create(&PostParams::default(), &Machine::crd()).await.unwrap();
        })
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let (stopped, cloud) = (process.stopped(), process.outside::<MemoryCloud>());
            let (client, chance) = (process.client.clone(), process.chance.clone());
            let manager = Manager::new(client, process.clock, chance, ManagerOptions::default()).unwrap();
            machine::add_to(&manager, &Settings::default(), Arc::new(Faulty { process, cloud })).unwrap();
            // A process that fails is started again by the kit.
            let _ = manager.run(stopped).await;
        })
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        (self.drive)(plane, Api::default_namespaced(plane.client()))
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        let cloud = state.outside::<MemoryCloud>();
        let machine = state.object("example.com", "machines", "default", "web");
        let phase = machine.as_ref().and_then(|machine| machine["status"]["phase"].as_str());
        let uid = machine.as_ref().and_then(|machine| machine["metadata"]["uid"].as_str());
        let tokens = cloud.tokens();
        match () {
            () if phase != self.phase => Err(format!("the phase is {phase:?}")),
            () if cloud.most() > 1 => Err(format!("there were {} machines for one Machine", cloud.most())),
            () if !self.made.contains(&cloud.made()) => Err(format!("{} machines were made", cloud.made())),
            () if tokens != Vec::from_iter(uid) => Err(format!("the cloud has machines of {tokens:?}")),
            () => Ok(()),
        }
    }
}

async fn create(api: &Api<Machine>, image: &str) {
    let machine = Machine::new("web", MachineSpec { image: image.to_owned(), cores: 2 });
    api.create(&PostParams::default(), &machine).await.unwrap();
}

async fn set(api: &Api<Machine>, spec: Value) {
    api.patch("web", &PatchParams::default(), &Patch::Merge(json!({ "spec": spec }))).await.unwrap();
}

#[test]
fn a_machine_lives_and_goes_and_leaves_nothing_in_the_cloud() {
    let story = Story {
        name: "a_machine_lives_and_goes_and_leaves_nothing_in_the_cloud",
        drive: |plane, api| {
            Box::pin(async move {
                plane.outside::<MemoryCloud>().refuse_next(1);
                create(&api, "web:1").await;
                plane.settle().await.unwrap();
                set(&api, json!({"image": "web:2", "cores": 4})).await;
                plane.settle().await.unwrap();
                api.delete("web", &DeleteParams::default()).await.unwrap();
            })
        },
        phase: None,
        made: 1..=1,
    };
    exhaust(&story).assert();
}

#[test]
fn a_machine_that_is_deleted_while_it_is_made_leaves_nothing_in_the_cloud() {
    let story = Story {
        name: "a_machine_that_is_deleted_while_it_is_made_leaves_nothing_in_the_cloud",
        drive: |plane, api| {
            Box::pin(async move {
                create(&api, "web:1").await;
                // Late enough for every fault to have passed, early enough for the cloud to be at work.
                plane.advance(Duration::from_secs(3)).await;
                api.delete("web", &DeleteParams::default()).await.unwrap();
            })
        },
        phase: None,
        // Whether it was made at all before it was deleted is a matter of time; that nothing is left is not.
        made: 0..=1,
    };
    exhaust(&story).assert();
}

#[test]
fn a_broken_machine_is_replaced_and_a_lost_one_made_again() {
    let story = Story {
        name: "a_broken_machine_is_replaced_and_a_lost_one_made_again",
        drive: |plane, api| {
            Box::pin(async move {
                create(&api, BROKEN_IMAGE).await;
                plane.settle().await.unwrap();
                set(&api, json!({"image": "web:1"})).await;
                plane.settle().await.unwrap();
                plane.outside::<MemoryCloud>().lose_all();
                plane.advance(Duration::from_secs(600)).await;
            })
        },
        phase: Some("Running"),
        made: 3..=3,
    };
    exhaust(&story).assert();
}
