//! The revisions of a set: one for each template, with the hash that its pods carry.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, DaemonSetSpec};
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use setpoint_api::labels::Selector;
use setpoint_runtime::cache::Informer;
use setpoint_runtime::controller::{Context, Error};
use setpoint_runtime::retry;

use crate::pod::Pod;
use crate::revisions::{self, History, REVISION_LABEL, Revisions, data_of, holds, name_of};

/// The revisions of a set, now that the newest is that of its template.
pub struct Settled {
    /// What pods of the newest revision carry.
    pub hash: String,
    /// How often a name was taken.
    pub collisions: i32,
    current: String,
    revisions: Revisions,
}

/// Sees to the revisions of a set.
pub async fn settle(
    context: &Context,
    cache: &Informer<ControllerRevision>,
    set: &DaemonSet,
    spec: &DaemonSetSpec,
    selector: &Selector,
    pods: &[Arc<Pod>],
) -> Result<Settled, Error> {
    let history = history_of(set, spec, selector);
    let mut revisions = history.claimed(context, cache).await?;
    let collisions = set.status.as_ref().and_then(|status| status.collision_count).unwrap_or(0);
    let annotations = || ObjectMeta { annotations: set.metadata.annotations.clone(), ..ObjectMeta::default() };
    let latest = history.latest(context, &mut revisions, collisions, annotations).await?;
    let current = name_of(&latest.revision).to_owned();
    let hash = match hash_of(&latest.revision) {
        Some(hash) => hash.to_owned(),
        None => label(context, set, &latest.revision).await?,
    };
    let data = data_of(&spec.template);
    let twins: Vec<_> = revisions.iter().filter(|one| holds(one, &data) && name_of(one) != current).cloned().collect();
    for twin in &twins {
        merge(context, pods, twin, &hash).await?;
        history.delete(context, twin).await?;
    }
    revisions.retain(|one| !twins.iter().any(|twin| Arc::ptr_eq(twin, one)));
    Ok(Settled { hash, collisions: latest.collisions, current, revisions })
}

impl Settled {
    /// Deletes the oldest revisions that no pod is of, beyond the limit. Those that pods are of count.
    pub async fn forget_old(
        &self,
        context: &Context,
        set: &DaemonSet,
        spec: &DaemonSetSpec,
        selector: &Selector,
        pods: &[Arc<Pod>],
    ) -> Result<(), Error> {
        let limit =
            usize::try_from(spec.revision_history_limit.unwrap_or(revisions::HISTORY_LIMIT)).unwrap_or(usize::MAX);
        let old: Vec<_> = self.revisions.iter().filter(|one| name_of(one) != self.current).collect();
        let surplus = old.len().saturating_sub(limit);
        let is_used = |one: &ControllerRevision| {
            let hash = hash_of(one);
            hash.is_some() && pods.iter().any(|pod| pod.metadata.labels.get(REVISION_LABEL) == hash)
        };
        for revision in old.into_iter().filter(|one| !is_used(one)).take(surplus) {
            history_of(set, spec, selector).delete(context, revision).await?;
        }
        Ok(())
    }
}

fn history_of<'a>(set: &'a DaemonSet, spec: &'a DaemonSetSpec, selector: &'a Selector) -> History<'a, DaemonSet> {
    History { owner: set, selector, template: &spec.template, hash_label: REVISION_LABEL }
}

fn hash_of(revision: &ControllerRevision) -> Option<&str> {
    revision.metadata.labels.as_ref()?.get(REVISION_LABEL).map(String::as_str)
}

/// Gives a revision that came from elsewhere a hash: its name, which nobody else has.
async fn label(context: &Context, set: &DaemonSet, revision: &ControllerRevision) -> Result<String, Error> {
    let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
    let api: Api<ControllerRevision> = Api::namespaced(context.client().clone(), namespace);
    let name = name_of(revision);
    let patch = json!({"metadata": {"uid": revision.metadata.uid, "labels": {REVISION_LABEL: name}}});
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(name.to_owned())
}

/// Makes the pods of a revision that holds the same those of the one that is kept.
async fn merge(context: &Context, pods: &[Arc<Pod>], twin: &ControllerRevision, hash: &str) -> Result<(), Error> {
    let Some(old) = hash_of(twin) else { return Ok(()) };
    for pod in pods.iter().filter(|pod| pod.metadata.labels.get(REVISION_LABEL) == Some(old)) {
        let api: Api<core::Pod> = Api::namespaced(context.client().clone(), &pod.metadata.namespace);
        let patch = json!({"metadata": {"uid": &*pod.metadata.uid, "labels": {REVISION_LABEL: hash}}});
        match api.patch_metadata(&pod.metadata.name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Err(error) if retry::is_not_found(&error) => {}
            other => drop(other?),
        }
    }
    Ok(())
}
