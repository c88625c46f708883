//! PodDisruptionBudgets: how many of some pods may go at the moment. The API server asks it before it evicts one.

mod plan;
mod scale;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Api, PostParams};
use setpoint_api::labels::Selector;
use setpoint_runtime::Key;
use setpoint_runtime::cache::{Cached, Informer};
use setpoint_runtime::controller::{Action, Context, Error, Predicate};
use setpoint_runtime::events::{self, Recorder};
use setpoint_runtime::manager::ManagerError;
use setpoint_runtime::retry;

use crate::Wiring;
use crate::claim::Claimable;
use crate::pod::Pod;
use crate::selector;
use crate::wiring::{normal, warning};
use plan::{Found, Outlook};
use scale::{Owners, ScaleError};

/// When a budget whose pods could not be counted is looked at again: what it hangs on may be of a kind that nobody follows.
const TRY_AGAIN: Duration = Duration::from_secs(60);

/// Adds the controller.
pub fn add(wiring: &Wiring<'_>) -> Result<(), ManagerError> {
    let desk = wiring.desk("disruption-controller")?;
    let caches = Caches { budgets: wiring.informer(), pods: wiring.pods(), owners: Owners::new(wiring) };
    let recorder = desk.recorder.clone();
    let selecting = {
        let budgets = caches.budgets.lister();
        move |pod: &Pod| {
            let snapshot = budgets.snapshot();
            let in_namespace = snapshot.namespace(&pod.metadata.namespace);
            in_namespace.filter(|one| pod.is_selected(&selection(one))).map(|one| Cached::key(&**one)).collect()
        }
    };
    let owners = &caches.owners;
    let controller = desk
        .controller(&caches.budgets, 1)
        .watches(&caches.pods, selecting)
        .watches_where(&owners.deployments, Predicate::generation_changed(), near(&caches.budgets))
        .watches_where(&owners.replica_sets, Predicate::generation_changed(), near(&caches.budgets))
        .watches_where(&owners.replication_controllers, Predicate::generation_changed(), near(&caches.budgets))
        .watches_where(&owners.stateful_sets, Predicate::generation_changed(), near(&caches.budgets))
        .build(move |context: Context, key: Key| reconcile(context, caches.clone(), recorder.clone(), key));
    desk.run(controller)
}

#[derive(Clone)]
struct Caches {
    budgets: Informer<PodDisruptionBudget>,
    pods: Informer<Pod>,
    owners: Owners,
}

/// All budgets in the namespace of an owner of pods: its scale counts for theirs.
fn near<O: Cached>(
    budgets: &Informer<PodDisruptionBudget>,
) -> impl Fn(&O) -> Vec<Key> + Send + Sync + 'static + use<O> {
    let budgets = budgets.lister();
    move |owner| {
        let snapshot = budgets.snapshot();
        snapshot.namespace(owner.key().namespace().unwrap_or_default()).map(|one| Cached::key(&**one)).collect()
    }
}

fn selection(budget: &PodDisruptionBudget) -> Selector {
    let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    selector::read(selector).unwrap_or_else(|_| Selector::nothing())
}

async fn reconcile(context: Context, caches: Caches, recorder: Recorder, key: Key) -> Result<Action, Error> {
    let Some(budget) = context.read(&caches.budgets, &key) else { return Ok(Action::done()) };
    let about = || events::reference(&*budget);
    let snapshot = caches.pods.lister().snapshot();
    let spec = budget.spec.clone().unwrap_or_default();
    let found = match selector::read(spec.selector.as_ref()) {
        Err(error) => {
            let error = error.to_string();
            warning(&recorder, about(), "NoPods", "Sync", format!("Failed to get pods: {error}"));
            Err(error)
        }
        Ok(selector) => {
            let in_namespace = snapshot.namespace(key.namespace().unwrap_or_default());
            let pods: Vec<_> = in_namespace.filter(|pod| pod.is_selected(&selector)).cloned().collect();
            if pods.is_empty() {
                normal(&recorder, about(), "NoPods", "Sync", "No matching pods found".to_owned());
            }
            count(&context, &caches.owners, &budget, pods, &recorder).await?
        }
    };
    let now = context.clock().wall();
    let (status, next_check) = match &found {
        Ok(found) => {
            let Outlook { status, overdue, next_check } = plan::outlook(&budget, found, now);
            for pod in overdue {
                let namespace = key.namespace().unwrap_or_default();
                let note = format!("Pod was expected by PDB {namespace}/{namespace} to be deleted but it wasn't");
                warning(&recorder, plan::reference(&pod), "NotDeleted", "Sync", note);
            }
            (status, next_check.map(|moment| context.clock().until(moment)))
        }
        Err(why) => (plan::failed(&budget, why, now), Some(TRY_AGAIN)),
    };
    write(&context, &budget, status).await?;
    Ok(next_check.map_or(Action::done(), Action::requeue_after))
}

/// What there is of the pods of a budget, or why that can't be told.
async fn count(
    context: &Context,
    owners: &Owners,
    budget: &PodDisruptionBudget,
    pods: Vec<Arc<Pod>>,
    recorder: &Recorder,
) -> Result<Result<Found, String>, Error> {
    let spec = budget.spec.clone().unwrap_or_default();
    if !plan::counts_scale(&spec) {
        return Ok(Ok(Found { scale: 0, pods }));
    }
    match owners.scale_of(context, &pods).await {
        Ok(scale) => {
            if pods.iter().any(|pod| pod.controller().is_none()) {
                warning(recorder, events::reference(budget), "UnmanagedPods", "Sync", plan::unmanaged(&spec));
            }
            Ok(Ok(Found { scale, pods }))
        }
        Err(ScaleError::Unknown(why)) => {
            let note = format!("Failed to calculate the number of expected pods: {why}");
            warning(recorder, events::reference(budget), "CalculateExpectedPodCountFailed", "Sync", note);
            Ok(Err(why))
        }
        Err(ScaleError::Api(error)) => Err(error),
    }
}

/// Writes the status if it says something new. The version of the budget counts: an eviction may have spent of it meanwhile.
async fn write(
    context: &Context,
    budget: &PodDisruptionBudget,
    status: Option<k8s_openapi::api::policy::v1::PodDisruptionBudgetStatus>,
) -> Result<(), Error> {
    let Some(status) = status else { return Ok(()) };
    let namespace = budget.metadata.namespace.as_deref().unwrap_or_default();
    let api: Api<PodDisruptionBudget> = Api::namespaced(context.client().clone(), namespace);
    let new = PodDisruptionBudget { status: Some(status), ..budget.clone() };
    match api.replace_status(budget.metadata.name.as_deref().unwrap_or_default(), &PostParams::default(), &new).await {
        Err(error) if retry::is_not_found(&error) => Ok(()),
        other => Ok(other.map(drop)?),
    }
}
