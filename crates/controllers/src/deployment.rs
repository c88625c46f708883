//! Deployments keep pods of a template, and replace them step by step when the template changes.
//!
//! Every template has a ReplicaSet of its own; a rollout moves pods from the old ones to the new one by changing their sizes.

mod act;
mod annotations;
mod bounds;
mod conditions;
mod family;
mod plan;
mod proportion;
mod rollback;
mod status;
mod template;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentStatus, ReplicaSet};
use setpoint_api::labels::Selector;
use setpoint_runtime::Key;
use setpoint_runtime::cache::{Cached, Informer};
use setpoint_runtime::controller::{Action, Context, Error, Predicate};
use setpoint_runtime::events::Recorder;
use setpoint_runtime::manager::ManagerError;

use crate::claim::{Claim, Claimable};
use crate::pod::{self, Pod};
use crate::wiring::MAX_RETRIES;
use crate::{Wiring, replica_set, selector};
use act::Hand;
use bounds::Bounds;
use family::Family;
use plan::{Way, Wishes};
use status::Report;

/// How many deployments are worked on at once.
const WORKERS: usize = 5;

/// Least time between two looks that only the clock asks for.
const LOOK_MIN: Duration = Duration::from_secs(1);

/// Adds the controller.
pub fn add(wiring: &Wiring<'_>) -> Result<(), ManagerError> {
    let desk = wiring.desk("deployment-controller")?.queue(|queue| queue.max_retries = Some(MAX_RETRIES));
    let caches =
        Caches { deployments: wiring.informer(), sets: replica_set::indexed(wiring.informer()), pods: wiring.pods() };
    // What a cache tells must not hold that cache itself, or neither would ever go.
    let (of_sets, of_pods) = (caches.deployments.clone(), (caches.deployments.clone(), caches.sets.clone()));
    let recorder = desk.recorder.clone();
    let controller = desk
        .controller(&caches.deployments, WORKERS)
        .watches_where(&caches.sets, Predicate::new(matters), move |set| keys_of_set(&of_sets, set))
        .watches_where(&caches.pods, Predicate::new(ends), move |pod| keys_of_pod(&of_pods.0, &of_pods.1, pod))
        .build(move |context: Context, key: Key| reconcile(context, caches.clone(), recorder.clone(), key));
    desk.run(controller)
}

#[derive(Clone)]
struct Caches {
    deployments: Informer<Deployment>,
    sets: Informer<ReplicaSet>,
    pods: Informer<Pod>,
}

async fn reconcile(context: Context, caches: Caches, recorder: Recorder, key: Key) -> Result<Action, Error> {
    let Some(deployment) = context.read(&caches.deployments, &key) else { return Ok(Action::done()) };
    let bounds = Bounds::of(&deployment);
    let hand = Hand { context: &context, recorder: &recorder, deployment: &deployment, bounds };
    let selector = selector::read(deployment.spec.as_ref().map(|spec| &spec.selector));
    let Ok(selector) = selector else { return Ok(Action::done()) };
    if selector.is_everything() {
        return refuse(&hand).await;
    }
    let claim = Claim { owner: &*deployment, selector: &selector, finalizer: None };
    let sets = claim.settle(&context, candidates(&caches.sets, &deployment)).await?;
    let now = context.clock().wall();
    let mut rollout =
        Rollout { family: Family::of(&deployment, sets), report: Report::new(&deployment, bounds, now), hand };
    let status = rollout.run(&caches.pods).await?;
    Ok(match status.and_then(|status| rollout.report.next_look(&status)) {
        // A look that should have been is no reason to look again and again.
        Some(moment) => Action::requeue_after(context.clock().until(moment).max(LOOK_MIN)),
        None => Action::done(),
    })
}

/// A deployment that selects everything would take all pods of its namespace.
async fn refuse(hand: &Hand<'_>) -> Result<Action, Error> {
    let note = "This deployment is selecting all pods. A non-empty selector is required.";
    hand.warn("SelectingAll", "Select", note.to_owned());
    let mut status = hand.deployment.status.clone().unwrap_or_default();
    if status.observed_generation < hand.deployment.metadata.generation {
        status.observed_generation = hand.deployment.metadata.generation;
        hand.write_status(&status, None).await?;
    }
    Ok(Action::done())
}

/// One run.
struct Rollout<'a> {
    hand: Hand<'a>,
    family: Family,
    report: Report<'a>,
}

impl Rollout<'_> {
    /// Does the next step, and says how it is; that is returned if progress has to be looked at again.
    async fn run(&mut self, pods: &Informer<Pod>) -> Result<Option<DeploymentStatus>, Error> {
        let deployment = self.hand.deployment;
        let wishes = Wishes {
            is_deleting: deployment.is_deleting(),
            is_paused: deployment.spec.as_ref().and_then(|spec| spec.paused) == Some(true),
            roll_back_to: rollback::wanted(deployment),
        };
        if !wishes.is_deleting {
            self.report.note_pause();
        }
        self.refresh_new();
        let way = plan::way(wishes, &self.hand.bounds, &self.family);
        let has_moved = match way {
            Way::Watch => true,
            Way::Scale => {
                plan::scale(&self.hand.bounds, &mut self.family);
                !wishes.is_paused || wishes.roll_back_to.is_some()
            }
            Way::RollBack(revision) => {
                return self.roll_back(revision).await.map(|()| None);
            }
            Way::Recreate => self.recreate(pods).await?,
            Way::Roll => {
                if !self.hand.make_new(&mut self.family, &mut self.report).await? {
                    return Ok(None);
                }
                plan::roll(&self.hand.bounds, &mut self.family)
            }
        };
        self.hand.write_sets(&self.family).await?;
        if !has_moved && (wishes.is_paused || self.report.was_complete()) {
            let limit = deployment.spec.as_ref().and_then(|spec| spec.revision_history_limit);
            self.hand.forget(plan::surplus_history(limit, &self.family)).await?;
        }
        let status = match way {
            Way::Recreate | Way::Roll => self.report.rollout(&self.family),
            Way::Watch | Way::Scale | Way::RollBack(_) => self.report.counts(&self.family),
        };
        let revision = self.family.new.as_ref().and_then(|new| new.annotations.get(annotations::REVISION));
        self.hand.write_status(&status, revision.map(String::as_str)).await?;
        Ok(matches!(way, Way::Recreate | Way::Roll).then_some(status))
    }

    /// Gives the set of the template what it gets from the deployment beside its size.
    fn refresh_new(&mut self) {
        let revision = self.family.next_revision();
        let Some(new) = &mut self.family.new else { return };
        let given = self.hand.deployment.metadata.annotations.clone().unwrap_or_default();
        annotations::refresh(&mut new.annotations, &given, revision);
        let spec = self.hand.deployment.spec.as_ref();
        new.min_ready_seconds = spec.and_then(|spec| spec.min_ready_seconds).unwrap_or(0);
        self.report.note_found(new.name());
    }

    /// All old pods go before new ones come; whether there was something to do.
    async fn recreate(&mut self, pods: &Informer<Pod>) -> Result<bool, Error> {
        let bounds = self.hand.bounds;
        if plan::empty_old(&bounds, &mut self.family) || has_old_pods(pods, &self.family) {
            return Ok(true);
        }
        if !self.hand.make_new(&mut self.family, &mut self.report).await? {
            return Ok(true);
        }
        let new = self.family.new.as_mut().filter(|new| new.replicas != bounds.replicas);
        Ok(new.map(|new| new.resize(bounds.replicas, &bounds)).is_some())
    }

    async fn roll_back(&mut self, revision: i64) -> Result<(), Error> {
        if !self.hand.make_new(&mut self.family, &mut self.report).await? {
            return Ok(());
        }
        self.hand.roll_back(rollback::rollback(self.hand.deployment, &self.family, revision)).await
    }
}

/// Whether pods of old sets may still run.
fn has_old_pods(pods: &Informer<Pod>, family: &Family) -> bool {
    let pods = pods.lister().snapshot();
    family.old.iter().any(|old| {
        old.actual() > 0 || pods.by_index(pod::BY_CONTROLLER, Cached::uid(&*old.set)).any(|pod| !pod.has_ended())
    })
}

/// The sets that the deployment controls, and those of its namespace that nobody does.
fn candidates(sets: &Informer<ReplicaSet>, deployment: &Deployment) -> Vec<Arc<ReplicaSet>> {
    let sets = sets.lister().snapshot();
    let orphans = replica_set::orphans_of(deployment.metadata.namespace.as_deref().unwrap_or_default());
    let own = sets.by_index(replica_set::BY_CONTROLLER, Cached::uid(deployment));
    own.chain(sets.by_index(replica_set::BY_CONTROLLER, &orphans)).cloned().collect()
}

impl Claimable for ReplicaSet {
    fn is_selected(&self, selector: &Selector) -> bool {
        selector.matches(self.metadata.labels.as_ref().unwrap_or(&std::collections::BTreeMap::new()))
    }
}

/// Whether a change of a set can change what a deployment does: sets that nobody controls matter when they may be adopted.
fn matters(old: Option<&ReplicaSet>, new: &ReplicaSet) -> bool {
    let Some(old) = old else { return true };
    Cached::controller(new).is_some() || Cached::controller(old).is_some() || !old.same_labels(new)
}

/// The deployment that controls a set, or all that would adopt it.
fn keys_of_set(deployments: &Informer<Deployment>, set: &ReplicaSet) -> Vec<Key> {
    let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
    if let Some(owner) = Cached::controller(set) {
        let is_deployment = owner.kind == "Deployment" && owner.api_version == "apps/v1";
        return if is_deployment { vec![Key::namespaced(namespace, owner.name)] } else { Vec::new() };
    }
    let deployments = deployments.lister().snapshot();
    let selects = |deployment: &&Arc<Deployment>| {
        let selector = selector::read(deployment.spec.as_ref().map(|spec| &spec.selector));
        selector.is_ok_and(|selector| !selector.is_everything() && set.is_selected(&selector))
    };
    deployments.namespace(namespace).filter(selects).map(|deployment| Cached::key(&**deployment)).collect()
}

/// Pods matter to deployments that wait until all old ones are gone.
fn ends(old: Option<&Pod>, new: &Pod) -> bool {
    old.is_some_and(|old| old.has_ended() != new.has_ended())
}

/// The deployment of a pod's set, if it waits for pods to go.
fn keys_of_pod(deployments: &Informer<Deployment>, sets: &Informer<ReplicaSet>, pod: &Pod) -> Vec<Key> {
    let key = |pod: &Pod| {
        let owner = pod.controller_reference().filter(|owner| owner.kind == "ReplicaSet")?;
        let set = sets.lister().get(Key::namespaced(&pod.metadata.namespace, &owner.name).as_str())?;
        let key = Key::namespaced(&pod.metadata.namespace, Cached::controller(&*set)?.name);
        let deployment = deployments.lister().get(key.as_str())?;
        (!Bounds::of(&deployment).is_rolling).then_some(key)
    };
    key(pod).into_iter().collect()
}
