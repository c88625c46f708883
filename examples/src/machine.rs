//! Machines of a cloud: reality is outside of the cluster, and calls to it fail, get lost, and take their time.
//!
//! ```text
//! Pending ──▶ Provisioning ──▶ Running ◀──▶ Updating        Terminating
//!    ▲             │              │            │               ▲
//!    └── Failed ◀──┴──────────────┴────────────┘       (deleted, from any)
//! ```
//!
//! - The finalizer is there before the first call to the cloud: nothing made there is ever forgotten.
//! - Every call carries the uid of its Machine as token: made twice, it still is one machine.
//! - A run never waits: it asks how far an operation is, and comes back later.
//! - The Machine is read from the API server rather than from a cache: one that is behind may show a Machine that is gone,
//!   and nobody would clean up what was made for it.

mod cloud;
mod memory_cloud;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Patch, PatchParams};
use kube::{Api, CustomResource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use setpoint_runtime::cache::Informer;
use setpoint_runtime::conditions::{self, State, Verdict};
use setpoint_runtime::config::Settings;
use setpoint_runtime::controller::{Action, Context, Controller, Error, Next, Phases};
use setpoint_runtime::manager::{Manager, ManagerError};
use setpoint_runtime::{Key, finalizers};

use crate::program;

pub use cloud::{Cloud, CloudError, CloudMachine, Form, Stage};
pub use memory_cloud::{BROKEN_IMAGE, MemoryCloud};

/// Keeps a Machine until the cloud has none for it.
pub const FINALIZER: &str = "example.com/machine";

/// How often it asks how far an operation is.
const ASK_AGAIN: Duration = Duration::from_secs(5);

/// How often it looks whether a machine is still there: nobody tells.
const LOOK_AGAIN: Duration = Duration::from_secs(300);

/// What should be.
#[expect(clippy::duplicated_attributes, reason = "two columns of the same type")]
#[derive(CustomResource, Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[kube(group = "example.com", version = "v1", kind = "Machine", namespaced, status = "MachineStatus")]
#[kube(printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"))]
#[kube(printcolumn(name = "Address", type_ = "string", json_path = ".status.address"))]
pub struct MachineSpec {
    /// What it runs.
    pub image: String,
    /// How many cores it has.
    pub cores: u32,
}

/// What is.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineStatus {
    /// Where it is in its life.
    pub phase: Option<String>,
    /// The cloud's name for it.
    pub id: Option<String>,
    /// Where it can be reached.
    pub address: Option<String>,
    /// `Ready` says whether it runs as it should.
    #[serde(default)]
    pub conditions: Vec<Condition>,
    /// The generation of the spec that all of this is about.
    pub observed_generation: Option<i64>,
}

/// Adds the controller of the machines of a cloud to a manager.
pub fn add_to<C: Cloud>(manager: &Manager, settings: &Settings, cloud: Arc<C>) -> Result<(), ManagerError> {
    let machines: Informer<Machine> = program::informer(manager, settings);
    let phases = Arc::new(phases(cloud));
    let controller = Controller::builder("machine", manager.client().clone(), manager.clock(), &machines)
        .options(settings.controller_options())
        .build(move |context: Context, key: Key| reconcile(context, phases.clone(), key));
    manager.add_controller(&[], controller)
}

fn phases<C: Cloud>(cloud: Arc<C>) -> Phases<Machine> {
    let current = |machine: &Machine| match machine.metadata.deletion_timestamp {
        Some(_) => Some("Terminating".to_owned()),
        None => machine.status.as_ref()?.phase.clone(),
    };
    Phases::new("Pending", current)
        .phase("Pending", pending)
        .phase("Provisioning", with(&cloud, provisioning))
        .phase("Running", with(&cloud, running))
        .phase("Updating", with(&cloud, updating))
        .phase("Failed", with(&cloud, failed))
        .phase("Terminating", with(&cloud, terminating))
        .record(record)
}

/// A phase that calls the cloud.
fn with<C, S, F>(cloud: &Arc<C>, step: S) -> impl Fn(Context, Arc<Machine>) -> F + Send + Sync + use<C, S, F>
where
    C: Cloud,
    S: Fn(Arc<C>, Context, Arc<Machine>) -> F + Send + Sync,
{
    let cloud = cloud.clone();
    move |context, machine| step(cloud.clone(), context, machine)
}

async fn reconcile(context: Context, phases: Arc<Phases<Machine>>, key: Key) -> Result<Action, Error> {
    let api: Api<Machine> = Api::namespaced(context.client().clone(), key.namespace().unwrap_or_default());
    match api.get_opt(key.name()).await? {
        Some(machine) => phases.run(context, Arc::new(machine)).await,
        None => Ok(Action::done()),
    }
}

/// Nothing is made in the cloud before the finalizer is there.
async fn pending(context: Context, machine: Arc<Machine>) -> Result<Next, Error> {
    match finalizers::phase(&*machine, FINALIZER) {
        finalizers::Phase::Add => {
            finalizers::add(&api(&context, &machine), &machine, FINALIZER).await?;
            // The change wakes it again.
            Ok(Next::Stay(Action::done()))
        }
        _ => Ok(Next::Go("Provisioning")),
    }
}

async fn provisioning<C: Cloud>(cloud: Arc<C>, context: Context, machine: Arc<Machine>) -> Result<Next, Error> {
    let Some(found) = cloud.find(&token(&machine)).await? else {
        cloud.create(&token(&machine), &form(&machine)).await?;
        return Ok(Next::Stay(Action::requeue_after(ASK_AGAIN)));
    };
    follow(&context, &machine, &found).await
}

async fn running<C: Cloud>(cloud: Arc<C>, context: Context, machine: Arc<Machine>) -> Result<Next, Error> {
    match cloud.find(&token(&machine)).await? {
        // Somebody took it away: it is made again.
        None => Ok(Next::Go("Provisioning")),
        Some(found) if found.form != form(&machine) => Ok(Next::Go("Updating")),
        Some(found) => match follow(&context, &machine, &found).await? {
            Next::Go("Running") if is_observed(&machine) => Ok(Next::Stay(Action::requeue_after(LOOK_AGAIN))),
            next => Ok(next),
        },
    }
}

async fn updating<C: Cloud>(cloud: Arc<C>, context: Context, machine: Arc<Machine>) -> Result<Next, Error> {
    match cloud.find(&token(&machine)).await? {
        None => Ok(Next::Go("Provisioning")),
        // A change under way is waited for: the cloud takes one at a time.
        Some(found) if found.stage == Stage::Running && found.form != form(&machine) => {
            cloud.change(&token(&machine), &form(&machine)).await?;
            Ok(Next::Stay(Action::requeue_after(ASK_AGAIN)))
        }
        Some(found) => follow(&context, &machine, &found).await,
    }
}

/// A broken machine stays, to be looked at, until the user asks for something else: then it is replaced.
async fn failed<C: Cloud>(cloud: Arc<C>, _: Context, machine: Arc<Machine>) -> Result<Next, Error> {
    match cloud.find(&token(&machine)).await? {
        None => Ok(Next::Go("Pending")),
        Some(found) if found.stage == Stage::Broken && found.form == form(&machine) => {
            Ok(Next::Stay(Action::requeue_after(LOOK_AGAIN)))
        }
        Some(_) => {
            cloud.delete(&token(&machine)).await?;
            Ok(Next::Stay(Action::requeue_after(ASK_AGAIN)))
        }
    }
}

async fn terminating<C: Cloud>(cloud: Arc<C>, context: Context, machine: Arc<Machine>) -> Result<Next, Error> {
    if finalizers::phase(&*machine, FINALIZER) != finalizers::Phase::CleanUp {
        return Ok(Next::Stay(Action::done()));
    }
    match cloud.find(&token(&machine)).await? {
        Some(found) => {
            if found.stage != Stage::Deleting {
                cloud.delete(&token(&machine)).await?;
            }
            Ok(Next::Stay(Action::requeue_after(ASK_AGAIN)))
        }
        None => {
            finalizers::remove(&api(&context, &machine), &machine, FINALIZER).await?;
            Ok(Next::Stay(Action::done()))
        }
    }
}

/// Where a machine goes by what the cloud says of it.
async fn follow(context: &Context, machine: &Machine, found: &CloudMachine) -> Result<Next, Error> {
    let status = machine.status.clone().unwrap_or_default();
    if status.id.as_deref() != Some(&found.id) || status.address != found.address {
        patch_status(context, machine, json!({"id": found.id, "address": found.address})).await?;
        // The change wakes it again.
        return Ok(Next::Stay(Action::done()));
    }
    Ok(match found.stage {
        Stage::Running => Next::Go("Running"),
        Stage::Broken => Next::Go("Failed"),
        Stage::Working | Stage::Deleting => Next::Stay(Action::requeue_after(ASK_AGAIN)),
    })
}

/// Writes the phase down, with what it means for users.
async fn record(context: Context, machine: Arc<Machine>, phase: &'static str) -> Result<(), Error> {
    let (state, message) = match phase {
        "Running" => (State::True, "it runs as it should"),
        "Failed" => (State::False, "the cloud says that it is broken; change the spec to have another"),
        _ => (State::False, "the cloud is working on it"),
    };
    let generation = machine.metadata.generation.unwrap_or_default();
    let mut all = machine.status.clone().unwrap_or_default().conditions;
    conditions::set(&mut all, Verdict::new("Ready", state, phase, message).observed(generation), context.clock());
    patch_status(&context, &machine, json!({"phase": phase, "conditions": all, "observedGeneration": generation})).await
}

async fn patch_status(context: &Context, machine: &Machine, status: Value) -> Result<(), Error> {
    // Only what was read may be followed by this.
    let metadata = json!({"uid": machine.uid(), "resourceVersion": machine.resource_version()});
    let patch = Patch::Merge(json!({"metadata": metadata, "status": status}));
    api(context, machine).patch_status(&machine.name_any(), &PatchParams::default(), &patch).await?;
    Ok(())
}

fn is_observed(machine: &Machine) -> bool {
    machine.status.as_ref().and_then(|status| status.observed_generation) == machine.metadata.generation
}

/// What the cloud knows a Machine by. Its uid: another Machine of the same name is another machine.
fn token(machine: &Machine) -> String {
    machine.uid().unwrap_or_default()
}

fn form(machine: &Machine) -> Form {
    Form { image: machine.spec.image.clone(), cores: machine.spec.cores }
}

fn api(context: &Context, machine: &Machine) -> Api<Machine> {
    Api::namespaced(context.client().clone(), &machine.namespace().unwrap_or_default())
}
