//! The life of custom kinds: their definitions get names and conditions, and on their deletion the instances go first.
//!
//! Serving doesn't wait for any of this: [`crate::registry::Kinds`] derives what is served from the same definitions. What
//! runs here only writes down what is so, and starts from what is stored, never from an event.

pub(crate) mod api_services;
mod cleanup;
mod conditions;
mod definition;
mod names;
mod outline;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use setpoint_api::{GroupResource, Status};
use setpoint_store::{Selection, Store, WatchError, WatchRequest, Watcher};
use tokio::task::JoinSet;

use crate::call::{Call, System};
use crate::query::WriteOptions;
use crate::registry::{DEFINITIONS, Registry};
use crate::server::Inner;
use crate::verbs;

pub(crate) use cleanup::mark_deleted;
pub(crate) use definition::{Definition, settle};

/// Holds a definition until its instances are gone.
pub(crate) const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Pause before what failed is tried again: the disk may be full, or another server was faster.
pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Keeps definitions in order until the server stops.
pub(crate) async fn run(server: Arc<Inner>) {
    server.until_stopped(keep(&server)).await;
}

async fn keep(server: &Arc<Inner>) {
    let mut cleaning: JoinSet<String> = JoinSet::new();
    let mut under_way: HashSet<String> = HashSet::new();
    loop {
        let mut changed = match (follow(&server.store, &DEFINITIONS), follow(&server.store, &api_services::RESOURCE)) {
            (Ok(definitions), Ok(services)) => [definitions, services],
            _ => return,
        };
        let registry = server.kinds.current(&server.store);
        let done = tell(server, &registry).await.and(api_services::align(server, &registry).await);
        for definition in registry.definitions().iter().filter(|definition| definition.has_cleanup) {
            if under_way.insert(definition.uid.clone()) {
                cleaning.spawn(cleanup::run(Arc::clone(server), definition.name.clone(), definition.uid.clone()));
            }
        }
        if let Err(status) = &done {
            tracing::warn!(error = %status.message, "definitions of custom kinds could not be kept in order yet");
        }
        let [definitions, services] = &mut changed;
        tokio::select! {
            result = definitions.next() => if matches!(result, Err(WatchError::Closed)) { return },
            _ = services.next() => {}
            Some(Ok(uid)) = cleaning.join_next() => drop(under_way.remove(&uid)),
            () = tokio::time::sleep(RETRY_AFTER), if done.is_err() => {}
        }
    }
}

/// A watcher of all that changes from now on.
pub(crate) fn follow(store: &Store, resource: &GroupResource) -> Result<Watcher, WatchError> {
    let (selection, from) = (Selection::everything(), store.snapshot().revision());
    store.watch(WatchRequest { resource: resource.clone(), namespace: None, selection, from })
}

/// Writes the status of each definition that doesn't say what is so.
async fn tell(server: &Inner, registry: &Registry) -> Result<(), Box<Status>> {
    for definition in registry.definitions().iter().filter(|definition| !definition.is_told()) {
        let now = server.clock.timestamp();
        let mut write = |object: &mut Value| {
            // Names are given in view of all definitions: one that changed meanwhile is judged anew.
            let same = object["metadata"]["resourceVersion"] == definition.object.revision().to_string();
            if same {
                definition.tell(object, &now);
            }
        };
        ignore_gone(change_status(server, &DEFINITIONS, &definition.name, &mut write).await)?;
    }
    Ok(())
}

/// Changes an object through its status, as every controller does.
pub(crate) async fn change_status(
    server: &Inner,
    resource: &GroupResource,
    name: &str,
    change: &mut (dyn FnMut(&mut Value) + Send),
) -> Result<(), Box<Status>> {
    let served = server.registry.find(&resource.group, "v1", &resource.resource).expect("a built-in kind");
    let system = System::default();
    let mut call = Call::of_system(server, served, &system, None, Some(name), Some("status"));
    let mut make = |_: &mut Call<'_>, old: &Value| {
        let mut new = old.clone();
        change(&mut new);
        Ok(new)
    };
    verbs::change(&mut call, &WriteOptions::of_system(), &mut make).await.map(|_| ())
}

pub(crate) fn ignore_gone(result: Result<(), Box<Status>>) -> Result<(), Box<Status>> {
    match result {
        Err(status) if matches!(&*status.reason, "NotFound" | "Conflict") => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests;
