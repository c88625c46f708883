//! A database: a Secret, a ConfigMap, a Service and a StatefulSet made of one object, through all phases of its life.
//!
//! ```text
//! Pending ──▶ Creating ──▶ Running ◀──▶ Updating        Terminating
//!                 │           │            │               ▲
//!                 └───────────┴──▶ Failed ◀┘       (deleted, from any)
//! ```
//!
//! Every phase is a function that may run again and again: it reads what is, makes it as it should be, and says where to go.
//! Objects are read from the API server rather than from a cache, because what is applied has no precondition: a cache
//! that is behind would bring back an old image, or the children of a database that is gone.

mod children;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Secret, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::NamespaceResourceScope;
use kube::{Api, CustomResource, ResourceExt};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;
use setpoint_runtime::cache::{self, Informer};
use setpoint_runtime::conditions::{self, State, Verdict};
use setpoint_runtime::config::Settings;
use setpoint_runtime::controller::{Action, Context, Controller, Error, Next, Phases, Predicate};
use setpoint_runtime::manager::{Manager, ManagerError};
use setpoint_runtime::{Key, finalizers, owners, retry};

use crate::program;

/// Keeps a database until its volumes are gone.
pub const FINALIZER: &str = "example.com/mariadb";

/// How often it looks whether what it deleted is gone.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// What should be.
#[expect(clippy::duplicated_attributes, reason = "two columns of the same type")]
#[derive(CustomResource, Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[kube(group = "example.com", version = "v1", kind = "MariaDB", plural = "mariadbs", namespaced)]
#[kube(status = "MariaDBStatus")]
#[kube(printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"))]
#[kube(printcolumn(name = "Image", type_ = "string", json_path = ".spec.image"))]
#[serde(rename_all = "camelCase")]
pub struct MariaDBSpec {
    /// The image of the server.
    pub image: String,
    /// How many servers.
    pub replicas: i32,
    /// How much each of them stores, such as `1Gi`.
    pub storage: String,
    /// Settings of the server: `max_connections: "100"`.
    #[serde(default)]
    pub config: BTreeMap<String, String>,
    /// Whether the volumes stay when the database goes.
    #[serde(default)]
    pub keep_data: bool,
}

/// What is.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MariaDBStatus {
    /// Where it is in its life.
    pub phase: Option<String>,
    /// `Ready` says whether all servers are as they should be.
    #[serde(default)]
    pub conditions: Vec<Condition>,
    /// The generation of the spec that all of this is about.
    pub observed_generation: Option<i64>,
}

/// Adds the controller to a manager. `password` makes the password of a new database.
pub fn add_to(
    manager: &Manager,
    settings: &Settings,
    password: impl Fn() -> String + Send + Sync + 'static,
) -> Result<(), ManagerError> {
    let databases: Informer<MariaDB> = program::informer(manager, settings);
    let phases = Arc::new(phases(Arc::new(password)));
    let controller = Controller::builder("mariadb", manager.client().clone(), manager.clock(), &databases)
        .options(settings.controller_options())
        .owns_where(&manager.informers().all::<Secret>(), changed())
        .owns_where(&manager.informers().all::<ConfigMap>(), changed())
        .owns_where(&manager.informers().all::<Service>(), changed())
        .owns_where(&manager.informers().all::<StatefulSet>(), changed())
        .build(move |context: Context, key: Key| reconcile(context, phases.clone(), key));
    manager.add_controller(&[], controller)
}

/// Children that change wake their owner, and those that go do so anyway. That one appears is no news: who made it knows.
fn changed<K: cache::Cached>() -> Predicate<K> {
    Predicate::new(|before, _| before.is_some())
}

type MakePassword = Arc<dyn Fn() -> String + Send + Sync>;

fn phases(password: MakePassword) -> Phases<MariaDB> {
    let current = |database: &MariaDB| match database.metadata.deletion_timestamp {
        Some(_) => Some("Terminating".to_owned()),
        None => database.status.as_ref()?.phase.clone(),
    };
    Phases::new("Pending", current)
        .phase("Pending", move |context, database| pending(context, database, password.clone()))
        .phase("Creating", settle)
        .phase("Running", running)
        .phase("Updating", settle)
        .phase("Failed", failed)
        .phase("Terminating", terminating)
        .record(record)
}

async fn reconcile(context: Context, phases: Arc<Phases<MariaDB>>, key: Key) -> Result<Action, Error> {
    let api: Api<MariaDB> = Api::namespaced(context.client().clone(), key.namespace().unwrap_or_default());
    match api.get_opt(key.name()).await? {
        Some(database) => phases.run(context, Arc::new(database)).await,
        None => Ok(Action::done()),
    }
}

/// Makes sure of the clean-up at the end, and of the one thing that is made once: the password.
async fn pending(context: Context, database: Arc<MariaDB>, password: MakePassword) -> Result<Next, Error> {
    if finalizers::phase(&*database, FINALIZER) == finalizers::Phase::Add {
        finalizers::add(&api::<MariaDB>(&context, &database), &database, FINALIZER).await?;
        // The change wakes it again.
        return Ok(Next::Stay(Action::done()));
    }
    let secrets: Api<Secret> = api(&context, &database);
    match secrets.get_opt(&children::secret_name(&database)).await? {
        Some(secret) if owners::is_controlled_by(&secret.metadata, &database.uid().unwrap_or_default()) => {}
        // Perhaps of an earlier database of this name, and about to go.
        Some(secret) => return Err(Error::transient(format!("the secret {} is not ours", secret.name_any()))),
        None => drop(secrets.create(&PostParams::default(), &children::secret(&database, &password())).await?),
    }
    Ok(Next::Go("Creating"))
}

/// Makes the children as they should be, and waits until all servers run with that.
async fn settle(context: Context, database: Arc<MariaDB>) -> Result<Next, Error> {
    if !has_secret(&context, &database).await? {
        return Ok(Next::Go("Failed"));
    }
    match apply_children(&context, &database).await? {
        true => Ok(Next::Go("Running")),
        false => Ok(Next::Stay(Action::done())),
    }
}

/// Puts right what others changed, and notices what users want otherwise.
async fn running(context: Context, database: Arc<MariaDB>) -> Result<Next, Error> {
    if !has_secret(&context, &database).await? {
        return Ok(Next::Go("Failed"));
    }
    let observed = database.status.as_ref().and_then(|status| status.observed_generation);
    if observed != database.metadata.generation {
        return Ok(Next::Go("Updating"));
    }
    match apply_children(&context, &database).await? {
        true => Ok(Next::Stay(Action::done())),
        false => Ok(Next::Go("Updating")),
    }
}

/// Without its Secret nobody knows the password, and a new one would not open the database: it waits for the old one.
async fn failed(context: Context, database: Arc<MariaDB>) -> Result<Next, Error> {
    match has_secret(&context, &database).await? {
        true => Ok(Next::Go("Updating")),
        false => Ok(Next::Stay(Action::requeue_after(Duration::from_secs(60)))),
    }
}

/// Stops the servers, then deletes what they stored. The other children go with their owner.
async fn terminating(context: Context, database: Arc<MariaDB>) -> Result<Next, Error> {
    let done = Ok(Next::Stay(Action::done()));
    if finalizers::phase(&*database, FINALIZER) != finalizers::Phase::CleanUp {
        return done;
    }
    let sets: Api<StatefulSet> = api(&context, &database);
    let set = sets.get_opt(&database.name_any()).await?;
    let is_ours = |set: &StatefulSet| owners::is_controlled_by(&set.metadata, &database.uid().unwrap_or_default());
    if let Some(set) = set.filter(is_ours) {
        let preconditions = Some(Preconditions { uid: set.uid(), resource_version: None });
        let params = DeleteParams { preconditions, ..DeleteParams::foreground() };
        ignore_missing(sets.delete(&set.name_any(), &params).await)?;
        return Ok(Next::Stay(Action::requeue_after(LOOK_AGAIN)));
    }
    if !database.spec.keep_data {
        let claims: Api<PersistentVolumeClaim> = api(&context, &database);
        for claim in claims.list(&ListParams::default().labels(&children::selector(&database))).await? {
            ignore_missing(claims.delete(&claim.name_any(), &DeleteParams::background()).await)?;
        }
    }
    finalizers::remove(&api::<MariaDB>(&context, &database), &database, FINALIZER).await?;
    done
}

/// Writes the phase down, with what it means for users.
async fn record(context: Context, database: Arc<MariaDB>, phase: &'static str) -> Result<(), Error> {
    let (state, message) = match phase {
        "Running" => (State::True, "all servers are as they should be"),
        "Failed" => (State::False, "the secret with the password is gone; put it back"),
        _ => (State::False, "servers are being started or changed"),
    };
    let generation = database.metadata.generation.unwrap_or_default();
    let mut all = database.status.clone().unwrap_or_default().conditions;
    conditions::set(&mut all, Verdict::new("Ready", state, phase, message).observed(generation), context.clock());
    let patch = json!({
        // Only what was read may be followed by this phase.
        "metadata": {"uid": database.uid(), "resourceVersion": database.resource_version()},
        "status": {"phase": phase, "conditions": all, "observedGeneration": generation},
    });
    let api: Api<MariaDB> = api(&context, &database);
    api.patch_status(&database.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}

/// Makes all children but the Secret as they should be, and tells whether all servers run with that.
async fn apply_children(context: &Context, database: &MariaDB) -> Result<bool, Error> {
    apply(context, database, children::config(database)).await?;
    apply(context, database, children::service(database)).await?;
    let set: StatefulSet = apply(context, database, children::stateful_set(database)).await?;
    let (status, wanted) = (set.status.unwrap_or_default(), database.spec.replicas);
    Ok(status.observed_generation >= set.metadata.generation
        && status.updated_replicas.unwrap_or_default() == wanted
        && status.ready_replicas.unwrap_or_default() == wanted
        && status.replicas == wanted)
}

/// Applies a child, and gives it back as it is now.
async fn apply<K>(context: &Context, database: &MariaDB, mut child: K) -> Result<K, Error>
where
    K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned + Serialize,
{
    let owner = owners::controller_reference(database).ok_or_else(|| Error::terminal("a stored object has a uid"))?;
    owners::set_owner(child.meta_mut(), owner);
    let params = PatchParams::apply("mariadb").force();
    Ok(api(context, database).patch(&child.name_any(), &params, &Patch::Apply(&child)).await?)
}

async fn has_secret(context: &Context, database: &MariaDB) -> Result<bool, Error> {
    let secrets: Api<Secret> = api(context, database);
    Ok(secrets.get_opt(&children::secret_name(database)).await?.is_some())
}

/// The objects of a kind beside a database.
fn api<K>(context: &Context, database: &MariaDB) -> Api<K>
where
    K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    Api::namespaced(context.client().clone(), &database.namespace().unwrap_or_default())
}

fn ignore_missing<T>(answer: Result<T, kube::Error>) -> Result<(), kube::Error> {
    match answer {
        Err(error) if retry::is_not_found(&error) => Ok(()),
        answer => answer.map(drop),
    }
}
