//! APIService objects: one for each group version that is served here, so that clients find all of them in one place.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};
use setpoint_api::{GroupResource, Status};
use setpoint_schema::Edit;
use setpoint_store::{Object, Query, Selection};

use crate::call::{Call, System};
use crate::discovery::groups;
use crate::query::WriteOptions;
use crate::registry::Registry;
use crate::server::Inner;
use crate::{objects, verbs};

/// Where they are stored.
pub(super) static RESOURCE: LazyLock<GroupResource> =
    LazyLock::new(|| GroupResource::new("apiregistration.k8s.io", "apiservices"));

/// Says that an object is kept in order by the server.
pub(crate) const MANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";

/// Groups of custom kinds come after all others.
const CUSTOM_GROUP_PRIORITY: i64 = 1000;

/// Versions of a custom group are told apart by their names.
const CUSTOM_VERSION_PRIORITY: i64 = 100;

/// Makes the objects that are missing, and removes those of custom groups that are no more.
pub(super) async fn align(server: &Inner, registry: &Registry) -> Result<(), Box<Status>> {
    let wanted = wanted(registry);
    let found = found(server);
    for (name, object) in wanted.iter().filter(|(name, _)| !found.contains_key(*name)) {
        ignore(create(server, name, object.clone()).await, "AlreadyExists")?;
    }
    let stale = found.iter().filter(|(name, object)| !wanted.contains_key(*name) && is_ours(object));
    for (name, _) in stale {
        let (served, system) = (served(server), System::default());
        let mut call = Call::of_system(server, served, &system, None, None, None);
        ignore(verbs::delete_plainly(&mut call, name).await, "NotFound")?;
    }
    Ok(())
}

fn served(server: &Inner) -> &Arc<crate::registry::Served> {
    server.registry.find(&RESOURCE.group, "v1", &RESOURCE.resource).expect("a built-in kind")
}

fn is_ours(object: &Arc<Object>) -> bool {
    object.facts().label(MANAGED) == Some("true")
}

fn found(server: &Inner) -> BTreeMap<String, Arc<Object>> {
    let selection = Selection::everything();
    let query = Query { resource: &RESOURCE, namespace: None, selection: &selection, after: None, limit: None };
    let items = server.store.snapshot().list(&query).items;
    items.into_iter().map(|object| (objects::value(&object)["metadata"].text("name").to_owned(), object)).collect()
}

/// What should be there for the custom groups.
fn wanted(registry: &Registry) -> BTreeMap<String, Value> {
    let mut wanted = BTreeMap::new();
    for group in groups(registry) {
        for version in group.versions.iter().filter(|version| !registry.has_builtin_version(&group.name, version)) {
            wanted.insert(format!("{version}.{}", group.name), object(&group.name, version));
        }
    }
    wanted
}

fn object(group: &str, version: &str) -> Value {
    json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": format!("{version}.{group}"), "labels": {MANAGED: "true"}},
        "spec": {
            "group": group, "version": version, "groupPriorityMinimum": CUSTOM_GROUP_PRIORITY,
            "versionPriority": CUSTOM_VERSION_PRIORITY,
        },
    })
}

async fn create(server: &Inner, name: &str, mut object: Value) -> Result<(), Box<Status>> {
    let (served, system) = (served(server), System::default());
    served.kind.behaviour.default(&mut object);
    let mut call = Call::of_system(server, served, &system, None, Some(name), None);
    verbs::insert(&mut call, object, &WriteOptions::of_system()).await.map(|_| ())
}

fn ignore(result: Result<(), Box<Status>>, reason: &str) -> Result<(), Box<Status>> {
    match result {
        Err(status) if status.reason == reason => Ok(()),
        result => result,
    }
}
