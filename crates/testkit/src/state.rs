//! All objects at one moment.

use std::sync::Arc;

use serde_json::Value;
use setpoint_api::{GroupResource, Revision};
use setpoint_store::{Key, Object, Query, Selection, Snapshot};

use crate::outside::Outside;
use crate::picture::Picture;

/// All objects at one moment.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
/// use setpoint_testkit::ControlPlane;
///
/// let state = ControlPlane::start().await.state();
/// assert!(state.object("", "namespaces", "", "default").is_some());
/// assert_eq!(state.objects("apps", "deployments").len(), 0);
/// # });
/// ```
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

    /// Pictures of two ends of runs that were the same until a revision, without what neither of them has touched since: that is most
    /// of what there is, and the same in both.
    pub(crate) fn pictures(
        &self,
        other: &State,
        since: Revision,
        view: &dyn Fn(Value) -> Option<Value>,
    ) -> [Picture; 2] {
        [self.picture(other, since, view), other.picture(self, since, view)]
    }

    fn picture(&self, other: &State, since: Revision, view: &dyn Fn(Value) -> Option<Value>) -> Picture {
        let is_old = |object: &Arc<Object>| object.revision() <= since;
        let is_untouched = |key: &Key, object: &Arc<Object>| {
            is_old(object)
                && other.snapshot.get(key.resource(), key.namespace(), key.name()).is_some_and(|it| is_old(&it))
        };
        let all = self.snapshot.in_order().into_iter();
        let counts = all.filter(|(key, object)| !is_passing(key.resource()) && !is_untouched(key, object));
        let read = counts.filter_map(|(key, object)| {
            Some((key.resource().to_string(), serde_json::from_slice(object.json()).ok()?))
        });
        Picture::of(read.collect(), view)
    }
}

/// Objects that tell what happened, not what is, and the server's own records.
fn is_passing(resource: &GroupResource) -> bool {
    matches!(
        (&*resource.group, &*resource.resource),
        ("", "events") | ("coordination.k8s.io", "leases") | ("events.k8s.io", "events") | ("setpoint.internal", _)
    )
}
