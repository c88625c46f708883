//! A child that is created or patched: each greeting has a ConfigMap with its text.
//!
//! The child is shared: the controller writes its own key and leaves the others alone. What somebody else's controller owns
//! is not touched at all.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, CustomResource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use setpoint_runtime::cache::Informer;
use setpoint_runtime::config::Settings;
use setpoint_runtime::controller::{Action, Context, Controller, Error};
use setpoint_runtime::create_or_patch::create_or_patch;
use setpoint_runtime::manager::{Manager, ManagerError};
use setpoint_runtime::{Key, owners};

use crate::program;

/// The key of the ConfigMap that is the controller's; all others are anybody's.
pub const TEXT: &str = "greeting.txt";

/// A text to greet with.
#[derive(CustomResource, Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[kube(group = "example.com", version = "v1", kind = "Greeting", namespaced)]
#[kube(printcolumn(name = "Text", type_ = "string", json_path = ".spec.text"))]
pub struct GreetingSpec {
    /// The text, for the ConfigMap of the same name.
    pub text: String,
}

/// Adds the controller to a manager.
pub fn add_to(manager: &Manager, settings: &Settings) -> Result<(), ManagerError> {
    let greetings: Informer<Greeting> = program::informer(manager, settings);
    let maps: Informer<ConfigMap> = manager.informers().all();
    let cache = greetings.clone();
    let controller = Controller::builder("greeting", manager.client().clone(), manager.clock(), &greetings)
        .options(settings.controller_options())
        // Who changes or deletes the child wakes its owner, which puts it right again.
        .owns(&maps)
        .build(move |context: Context, key: Key| reconcile(context, cache.clone(), key));
    manager.add_controller(&[], controller)
}

async fn reconcile(context: Context, cache: Informer<Greeting>, key: Key) -> Result<Action, Error> {
    let Some(greeting) = context.read(&cache, &key) else { return Ok(Action::done()) };
    // A greeting that goes takes its child with it: the garbage collector follows the owner reference.
    let owner = owners::controller_reference(&*greeting).filter(|_| greeting.metadata.deletion_timestamp.is_none());
    let Some(owner) = owner else { return Ok(Action::done()) };
    let maps: Api<ConfigMap> = Api::namespaced(context.client().clone(), key.namespace().unwrap_or_default());
    let mut refused = None;
    let make = |map: &mut ConfigMap| match owners::set_controller(&mut map.metadata, owner) {
        Ok(()) => drop(map.data.get_or_insert_default().insert(TEXT.to_owned(), greeting.spec.text.clone())),
        Err(owned) => refused = Some(owned),
    };
    create_or_patch(&maps, &greeting.name_any(), make).await?;
    match refused {
        None => Ok(Action::done()),
        // Nobody tells when the name is free: it is tried again, ever more seldom.
        Some(owned) => Err(Error::transient(owned)),
    }
}
