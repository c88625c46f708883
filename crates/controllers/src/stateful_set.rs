//! StatefulSets: pods with a name, an order and claims of their own.

mod act;
mod claims;
mod identity;
mod plan;
mod status;

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use setpoint_api::labels::Selector;
use setpoint_runtime::Key;
use setpoint_runtime::cache::{Cached, Informer};
use setpoint_runtime::controller::{Action, Context, Error};
use setpoint_runtime::events::Recorder;
use setpoint_runtime::manager::ManagerError;

use crate::Wiring;
use crate::claim::Claim;
use crate::pod::{self, Pod};
use crate::revisions::{self, HASH_LABEL, History, name_of};
use crate::selector;
use crate::wake::owner_or_adopters;
use act::Act;
use claims::Claims;
use plan::{Desired, plan};

/// Workers unless the settings say otherwise; same as kube-controller-manager.
const WORKERS: usize = 5;

/// Adds the controller.
pub fn add(wiring: &Wiring<'_>) -> Result<(), ManagerError> {
    let desk = wiring.desk("statefulset-controller")?;
    let caches = Caches {
        sets: wiring.informer(),
        pods: wiring.pods(),
        claims: wiring.informer(),
        revisions: revisions::indexed(wiring.informer()),
    };
    let recorder = desk.recorder.clone();
    let controller = desk
        .controller(&caches.sets, WORKERS)
        .watches(&caches.pods, owner_or_adopters(&caches.sets, selection))
        .watches(&caches.revisions, owner_or_adopters(&caches.sets, selection))
        .watches(&caches.claims, claims::sets_of(&caches.sets))
        .build(move |context: Context, key: Key| reconcile(context, caches.clone(), recorder.clone(), key));
    desk.run(controller)
}

#[derive(Clone)]
struct Caches {
    sets: Informer<StatefulSet>,
    pods: Informer<Pod>,
    claims: Informer<PersistentVolumeClaim>,
    revisions: Informer<ControllerRevision>,
}

fn selection(set: &StatefulSet) -> Selector {
    let selector = set.spec.as_ref().map(|spec| &spec.selector);
    selector::read(selector).unwrap_or_else(|_| Selector::nothing())
}

async fn reconcile(context: Context, caches: Caches, recorder: Recorder, key: Key) -> Result<Action, Error> {
    let Some(set) = context.read(&caches.sets, &key) else { return Ok(Action::done()) };
    let Some(spec) = &set.spec else { return Ok(Action::done()) };
    // A selector that can't be read doesn't get better by trying again.
    let Ok(selector) = selector::read(Some(&spec.selector)) else { return Ok(Action::done()) };
    let history = History { owner: &*set, selector: &selector, template: &spec.template, hash_label: HASH_LABEL };
    let mut revisions = history.claimed(&context, &caches.revisions).await?;
    let pods = claimed(&context, &caches, &set, &selector).await?;

    let old = set.status.clone().unwrap_or_default();
    let annotations = || ObjectMeta { annotations: set.metadata.annotations.clone(), ..ObjectMeta::default() };
    let latest = history.latest(&context, &mut revisions, old.collision_count.unwrap_or(0), annotations).await?;
    let known = revisions.iter().find(|revision| Some(name_of(revision)) == old.current_revision.as_deref());
    let current = known.unwrap_or(&latest.revision).clone();

    let now = context.clock().wall();
    let desired = Desired::of(&set, spec, name_of(&current), name_of(&latest.revision));
    let claims = Claims { set: &set, spec, cached: caches.claims.lister() };
    let plan = plan(&desired, &pods, &claims, now);
    let status = status::status(&set, &desired, &plan, latest.collisions);

    let acted = Act {
        context: &context,
        recorder: &recorder,
        set: &set,
        spec,
        claims: &claims,
        current: &current,
        update: &latest.revision,
    };
    let done = acted.carry_out(&plan).await;
    let written = acted.write_status(&old, status).await;
    done?;
    written?;

    let is_used = |revision: &ControllerRevision| {
        let name = name_of(revision);
        let is_of_pod = |pod: &Arc<Pod>| pod.metadata.labels.get(revisions::REVISION_LABEL) == Some(name);
        name == name_of(&current) || name == name_of(&latest.revision) || pods.iter().any(is_of_pod)
    };
    for revision in revisions::surplus(&revisions, is_used, spec.revision_history_limit) {
        history.delete(&context, revision).await?;
    }
    Ok(match plan.next_check {
        Some(moment) => Action::requeue_after(context.clock().until(moment)),
        None => Action::done(),
    })
}

/// The set's pods, now that orphans that fit are adopted and others are let go.
async fn claimed(
    context: &Context,
    caches: &Caches,
    set: &StatefulSet,
    selector: &Selector,
) -> Result<Vec<Arc<Pod>>, Error> {
    let key = Cached::key(set);
    let namespace = key.namespace().unwrap_or_default();
    let snapshot = caches.pods.lister().snapshot();
    let own = snapshot.by_index(pod::BY_CONTROLLER, Cached::uid(set));
    let orphans = pod::orphans_of(namespace);
    let candidates: Vec<_> = own.chain(snapshot.by_index(pod::BY_CONTROLLER, &orphans)).cloned().collect();
    let claim = Claim { owner: set, selector, finalizer: None };
    let is_member = |pod: &Pod| identity::ordinal_of(key.name(), &pod.metadata.name).is_some();
    claim.settle_where(context, candidates, is_member).await
}
