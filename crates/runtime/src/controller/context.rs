//! What a run has at hand.

use std::sync::Arc;

use kube::Client;

use super::recorder::{Access, Recorder, Verb};
use crate::Key;
use crate::cache::{Cached, Informer};
use crate::clock::Clock;
use crate::queue::Causes;

/// What a run has at hand. Clones are of the same run.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kube::Api;
/// use kube::api::{Patch, PatchParams};
/// use setpoint_runtime::Key;
/// use setpoint_runtime::cache::Informer;
/// use setpoint_runtime::controller::{Action, Context, Error};
///
/// async fn reconcile(context: Context, maps: Informer<ConfigMap>, key: Key) -> Result<Action, Error> {
///     // From the cache; its version is in the trace of this run.
///     let Some(_map) = context.read(&maps, &key) else { return Ok(Action::done()) };
///     // To the server; the next run of this key waits until the cache has seen it.
///     let api: Api<ConfigMap> = Api::namespaced(context.client().clone(), key.namespace().unwrap_or_default());
///     let seen = serde_json::json!({"metadata": {"annotations": {"seen": context.clock().time().0.to_string()}}});
///     api.patch(key.name(), &PatchParams::default(), &Patch::Merge(seen)).await?;
///     Ok(Action::done())
/// }
/// ```
#[derive(Clone)]
pub struct Context {
    pub(super) client: Client,
    pub(super) recorder: Recorder,
    pub(super) clock: Clock,
    pub(super) causes: Causes,
    pub(super) attempt: u32,
}

impl Context {
    /// The client to read and write with. What goes through it is in the trace, and the next run of the key waits until
    /// the caches have seen what was written.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Reads an object from a cache and leaves its version in the trace.
    #[must_use]
    pub fn read<K: Cached>(&self, informer: &Informer<K>, key: &Key) -> Option<Arc<K>> {
        let object = informer.lister().get(key.as_str());
        let target = informer.target();
        self.recorder.note(Access {
            verb: Verb::Get,
            group: target.api_version.rsplit_once('/').map_or(String::new(), |(group, _)| group.to_owned()),
            plural: target.plural.clone(),
            subresource: None,
            key: key.clone(),
            code: if object.is_some() { 200 } else { 404 },
            resource_version: object.as_ref().map(|object| object.resource_version().to_owned()),
            uid: None,
            gone: false,
            answer: None,
        });
        object
    }

    /// The time of day.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Why it runs. For logs and traces: what to do follows from state, never from causes.
    #[must_use]
    pub fn causes(&self) -> &Causes {
        &self.causes
    }

    /// How many runs of this key failed in a row before this one.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }
}
