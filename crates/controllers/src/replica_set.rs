//! ReplicaSets keep so many pods of one template.

mod act;
mod kind;
mod plan;
mod status;
mod victims;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::ReplicaSet;
use setpoint_runtime::Key;
use setpoint_runtime::cache::{Cached, Informer};
use setpoint_runtime::controller::{Action, Context, Error, Predicate};
use setpoint_runtime::events::Recorder;
use setpoint_runtime::manager::ManagerError;

use crate::Wiring;
use crate::claim::Claim;
use crate::pod::{self, Pod};
use act::Hand;
pub use kind::Replicated;

/// How many sets are worked on at once.
const WORKERS: usize = 5;

/// The index of sets by the identity of their controller; sets without one are under [`orphans_of`] their namespace.
pub const BY_CONTROLLER: &str = "controller";

/// What sets of a namespace that nobody controls are found under in [`BY_CONTROLLER`].
pub fn orphans_of(namespace: &str) -> String {
    format!("orphans/{namespace}")
}

/// Adds the controller of ReplicaSets.
pub fn add(wiring: &Wiring<'_>) -> Result<(), ManagerError> {
    add_for::<ReplicaSet>(wiring, "replicaset-controller")
}

/// The cache of sets with its index. Whoever asks first adds it.
pub fn indexed<S: Replicated>(sets: Informer<S>) -> Informer<S> {
    sets.add_index(BY_CONTROLLER, |set| {
        let orphan = || orphans_of(set.key().namespace().unwrap_or_default());
        vec![set.controller().map_or_else(orphan, |owner| owner.uid.to_owned())]
    });
    sets
}

/// Adds the controller of a kind of sets.
pub fn add_for<S: Replicated>(wiring: &Wiring<'_>, name: &'static str) -> Result<(), ManagerError> {
    let desk = wiring.desk(name)?;
    let caches = Caches { sets: indexed(wiring.informer::<S>()), pods: wiring.pods() };
    let (sets, recorder) = (caches.sets.clone(), desk.recorder.clone());
    let controller = desk
        .controller(&caches.sets, WORKERS)
        .watches_where(&caches.pods, Predicate::new(matters), move |pod| keys_of(&sets, pod))
        .build(move |context: Context, key: Key| reconcile(context, caches.clone(), recorder.clone(), key));
    desk.run(controller)
}

struct Caches<S> {
    sets: Informer<S>,
    pods: Informer<Pod>,
}

impl<S> Clone for Caches<S> {
    fn clone(&self) -> Self {
        Self { sets: self.sets.clone(), pods: self.pods.clone() }
    }
}

async fn reconcile<S: Replicated>(
    context: Context,
    caches: Caches<S>,
    recorder: Recorder,
    key: Key,
) -> Result<Action, Error> {
    let Some(set) = context.read(&caches.sets, &key) else { return Ok(Action::done()) };
    // A selector that can't be read selects no pods; a user has to change it.
    let Ok(selector) = set.selector() else { return Ok(Action::done()) };
    let candidates = candidates(&caches.pods, &*set);
    let claim = Claim { owner: &*set, selector: &selector, finalizer: None };
    let terminating = candidates.iter().filter(|pod| pod.is_terminating() && claim.is_own(&***pod)).count();
    let active = candidates.into_iter().filter(|pod| pod.is_active());
    let active = claim.settle(&context, active).await?;
    let hand = Hand { context: &context, recorder: &recorder, set: &*set };
    let now = context.clock().wall();
    let todo = plan::plan(set.replicas(), &active, || related(&caches, &*set), now);
    let failure = if set.is_deleting() { None } else { hand.carry_out(todo).await.err() };

    let observed = status::Observed { active: &active, terminating, failure: failure.as_ref(), now };
    let status = status::status(&*set, &observed);
    hand.write_status(&status).await?;
    if let Some(error) = failure {
        return Err(error.into());
    }
    Ok(match plan::next_look(set.min_ready_seconds(), &active, now) {
        Some(moment) => Action::requeue_after(context.clock().until(moment)),
        None if status.ready_replicas != status.available_replicas => {
            Action::requeue_after(Duration::from_secs(u64::try_from(set.min_ready_seconds()).unwrap_or(0).max(1)))
        }
        None => Action::done(),
    })
}

/// The pods that the set controls, and those of its namespace that nobody does.
fn candidates<S: Replicated>(pods: &Informer<Pod>, set: &S) -> Vec<Arc<Pod>> {
    let pods = pods.lister().snapshot();
    let orphans = pod::orphans_of(set.key().namespace().unwrap_or_default());
    let own = pods.by_index(pod::BY_CONTROLLER, Cached::uid(set));
    own.chain(pods.by_index(pod::BY_CONTROLLER, &orphans)).cloned().collect()
}

/// How many active pods each node has of all sets that have the same controller as this one.
fn related<S: Replicated>(caches: &Caches<S>, set: &S) -> HashMap<Box<str>, usize> {
    let mut on_node = HashMap::new();
    let Some(controller) = Cached::controller(set) else { return on_node };
    let (sets, pods) = (caches.sets.lister().snapshot(), caches.pods.lister().snapshot());
    for sibling in sets.by_index(BY_CONTROLLER, controller.uid) {
        for pod in pods.by_index(pod::BY_CONTROLLER, Cached::uid(&**sibling)).filter(|pod| pod.is_active()) {
            *on_node.entry(pod.spec.node_name.clone()).or_default() += 1;
        }
    }
    on_node
}

/// Whether a change of a pod can change what a set does or says. Pods that nobody controls matter when they may be adopted.
fn matters(old: Option<&Pod>, new: &Pod) -> bool {
    let Some(old) = old else { return true };
    let uid = |pod: &Pod| pod.controller_reference().map(|owner| owner.uid.clone());
    let facts = |pod: &Pod| (pod.is_deleting(), pod.has_ended(), pod.is_ready(), pod.ready_since());
    let (before, now) = (uid(old), uid(new));
    before != now || !old.same_labels(new) || (now.is_some() && facts(old) != facts(new))
}

/// The set that controls a pod, or all sets that would adopt it.
fn keys_of<S: Replicated>(sets: &Informer<S>, pod: &Pod) -> Vec<Key> {
    let namespace = &*pod.metadata.namespace;
    if let Some(owner) = pod.controller_reference() {
        let is_set = owner.kind == S::kind(&()) && owner.api_version == S::api_version(&());
        return if is_set { vec![Key::namespaced(namespace, &owner.name)] } else { Vec::new() };
    }
    let sets = sets.lister().snapshot();
    let selects = |set: &&Arc<S>| {
        set.selector().is_ok_and(|selector| !selector.is_everything() && selector.matches(&pod.metadata.labels))
    };
    sets.namespace(namespace).filter(selects).map(|set| set.key()).collect()
}
