//! The end of a definition: first its instances go, each with its finalizers respected, then it does itself.

use std::sync::Arc;

use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use setpoint_api::{GroupResource, Status};
use setpoint_schema::Edit;
use setpoint_store::{Object, Query, Selection};

use super::conditions::{Condition, ESTABLISHED, TERMINATING, is_true};
use super::{FINALIZER, RETRY_AFTER, change_status, follow, ignore_gone};
use crate::call::{Call, System};
use crate::registry::{DEFINITIONS, Served};
use crate::server::Inner;
use crate::{objects, verbs};

/// Deletes under way at a time: enough to share the syncs of the log, few enough to leave room to others.
const DELETES_AT_ONCE: usize = 64;

/// Marks a definition as being deleted. The kind has no grace time, and its generation stays.
pub(crate) fn mark_deleted(definition: &mut Value, now: &str) {
    let metadata = definition.ensure("metadata");
    metadata.set("deletionTimestamp", now);
    let mut finalizers = metadata.get("finalizers").and_then(Value::as_array).cloned().unwrap_or_default();
    if !finalizers.iter().any(|name| name == FINALIZER) {
        finalizers.push(json!(FINALIZER));
    }
    metadata.set("finalizers", finalizers);
    let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    Condition::new(TERMINATING, true, "InstanceDeletionPending", message).set(definition, now);
}

/// Brings a definition to its end. Returns its uid when there is no more to do, or to be called again.
pub(super) async fn run(server: Arc<Inner>, name: String, uid: String) -> String {
    loop {
        match end(&server, &name, &uid).await {
            Ok(()) => return uid,
            Err(status) => {
                tracing::warn!(definition = name, error = %status.message, "instances could not be deleted yet");
                tokio::time::sleep(RETRY_AFTER).await;
            }
        }
    }
}

async fn end(server: &Inner, name: &str, uid: &str) -> Result<(), Box<Status>> {
    let find = || {
        let object = server.store.snapshot().get(&DEFINITIONS, None, name)?;
        (object.facts().uid() == uid).then(|| objects::value(&object))
    };
    let Some(definition) = find() else { return Ok(()) };
    let last = if is_true(&definition, ESTABLISHED) {
        let message = "CustomResource deletion is in progress";
        set(server, name, Condition::new(TERMINATING, true, "InstanceDeletionInProgress", message)).await?;
        if let Err(status) = remove_instances(server, name, &definition).await {
            let message = format!("could not issue all deletes: {}", status.message);
            set(server, name, Condition::new(TERMINATING, true, "InstanceDeletionFailed", message)).await?;
            return Err(status);
        }
        Condition::new(TERMINATING, false, "InstanceDeletionCompleted", "removed all instances")
    } else {
        Condition::new(TERMINATING, false, "NeverEstablished", "resource was never established")
    };
    let now = server.clock.timestamp();
    let mut let_go = |object: &mut Value| {
        if object["metadata"].text("uid") != uid {
            return;
        }
        last.set(object, &now);
        if let Some(finalizers) = object.ensure("metadata").get_mut("finalizers").and_then(Value::as_array_mut) {
            finalizers.retain(|name| name != FINALIZER);
        }
    };
    ignore_gone(change_status(server, &DEFINITIONS, name, &mut let_go).await)
}

async fn set(server: &Inner, name: &str, condition: Condition) -> Result<(), Box<Status>> {
    let now = server.clock.timestamp();
    ignore_gone(change_status(server, &DEFINITIONS, name, &mut |object| condition.set(object, &now)).await)
}

/// Deletes all instances, and waits until the last is gone: others may hold them by finalizers.
async fn remove_instances(server: &Inner, name: &str, definition: &Value) -> Result<(), Box<Status>> {
    let spec = &definition["spec"];
    let resource = GroupResource::new(
        spec.text("group"),
        spec.find(&["names", "plural"]).map_or("", |p| p.as_str().unwrap_or("")),
    );
    loop {
        let Ok(mut changes) = follow(&server.store, &resource) else { return Ok(()) };
        let instances = instances(server, &resource);
        if instances.is_empty() {
            return Ok(());
        }
        let served = &served(server, &resource, name, definition)?;
        let mut deletes = stream::iter(instances.into_iter().map(|object| delete(server, served, object)))
            .buffer_unordered(DELETES_AT_ONCE);
        while let Some(result) = deletes.next().await {
            result?;
        }
        if server.store.snapshot().count(&resource, None) > 0 {
            let _ = changes.next().await;
        }
    }
}

/// The kind of the instances in the version in which they are stored, even if it isn't served: nothing has to be converted to be deleted.
fn served(
    server: &Inner,
    resource: &GroupResource,
    name: &str,
    definition: &Value,
) -> Result<Arc<Served>, Box<Status>> {
    let registry = server.kinds.current(&server.store);
    let stored = registry.definitions().iter().find(|known| known.name == name).map(|known| &*known.storage_version);
    let found = stored.and_then(|version| registry.find(&resource.group, version, &resource.resource));
    if let Some(served) = found {
        return Ok(Arc::clone(served));
    }
    let mut definition = definition.clone();
    let versions = definition.find_mut(&["spec", "versions"]).and_then(Value::as_array_mut);
    versions.into_iter().flatten().for_each(|version| version.set("served", true));
    let object = server.store.snapshot().get(&DEFINITIONS, None, name);
    let served = object.and_then(|object| Served::of_value(object, definition));
    served.map(Arc::new).ok_or_else(|| Box::new(Status::internal_error("unable to find a custom resource client")))
}

fn instances(server: &Inner, resource: &GroupResource) -> Vec<Arc<Object>> {
    let selection = Selection::everything();
    let query = Query { resource, namespace: None, selection: &selection, after: None, limit: None };
    server.store.snapshot().list(&query).items
}

async fn delete(server: &Inner, served: &Arc<Served>, object: Arc<Object>) -> Result<(), Box<Status>> {
    let value = objects::value(&object);
    let metadata = &value["metadata"];
    if metadata.has("deletionTimestamp") {
        return Ok(());
    }
    let (system, namespace) = (System::default(), Some(metadata.text("namespace")).filter(|name| !name.is_empty()));
    let mut call = Call::of_system(server, served, &system, namespace, None, None);
    ignore_gone(verbs::delete_plainly(&mut call, metadata.text("name")).await)
}
