//! All objects at one moment.

use std::sync::Arc;

use serde_json::Value;
use setpoint_api::GroupResource;
use setpoint_store::{Query, Selection, Snapshot};

use crate::outside::Outside;
use crate::picture::Picture;

/// All objects at one moment.
#[derive(Clone)]
pub struct State {
    snapshot: Snapshot,
    outside: Outside,
}

impl State {
    pub(crate) fn new(snapshot: Snapshot, outside: Outside) -> State {
        State { snapshot, outside }
    }

    /// What is outside of the cluster, as it is now: it has no earlier states, so rules about its past are its own to note.
    pub fn outside<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        self.outside.get()
    }

    /// The objects of a resource, by namespace and name: `objects("apps", "deployments")`.
    pub fn objects(&self, group: &str, plural: &str) -> Vec<Value> {
        self.of(&GroupResource::new(group, plural))
    }

    /// One object; the namespace of a cluster-wide one is empty.
    pub fn object(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        let namespace = Some(namespace).filter(|namespace| !namespace.is_empty());
        let object = self.snapshot.get(&GroupResource::new(group, plural), namespace, name)?;
        serde_json::from_slice(object.json()).ok()
    }

    fn of(&self, resource: &GroupResource) -> Vec<Value> {
        let selection = Selection::everything();
        let query = Query { resource, namespace: None, selection: &selection, after: None, limit: None };
        let items = self.snapshot.list(&query).items;
        items.iter().filter_map(|object| serde_json::from_slice(object.json()).ok()).collect()
    }

    /// Every object that counts when two states are compared.
    pub(crate) fn picture(&self, view: impl Fn(Value) -> Option<Value>) -> Picture {
        let resources = self.snapshot.counts().into_keys().filter(|resource| !is_passing(resource));
        let objects = resources.flat_map(|resource| {
            let objects = self.of(&resource);
            objects.into_iter().map(move |object| (resource.to_string(), object))
        });
        Picture::of(objects.collect(), view)
    }
}

/// Objects that tell what happened, not what is, and the server's own records.
fn is_passing(resource: &GroupResource) -> bool {
    matches!(
        (&*resource.group, &*resource.resource),
        ("", "events") | ("coordination.k8s.io", "leases") | ("events.k8s.io", "events") | ("setpoint.internal", _)
    )
}
