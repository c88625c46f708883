//! DaemonSets: one pod on every node that should have one.

mod act;
mod backoff;
mod eligible;
mod history;
mod new_pod;
mod plan;
mod status;
mod update;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, DaemonSetSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use k8s_openapi::jiff::Timestamp;
use setpoint_api::labels::Selector;
use setpoint_runtime::Key;
use setpoint_runtime::cache::{Cached, Informer};
use setpoint_runtime::controller::{Action, Context, Error, Predicate};
use setpoint_runtime::events::{self, Recorder};
use setpoint_runtime::manager::ManagerError;

use crate::Wiring;
use crate::claim::Claim;
use crate::node::Node;
use crate::pod::{self, Pod};
use crate::revisions;
use crate::selector;
use crate::wake::owner_or_adopters;
use crate::wiring::warning;
use act::Act;
use backoff::Backoff;
use eligible::{Eligible, Placement};
use plan::{Desired, Pods, Strategy, plan};

/// Workers unless the settings say otherwise; same as kube-controller-manager.
const WORKERS: usize = 2;

/// The annotation with the generation of the template, as old clients know it.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// Adds the controller.
pub fn add(wiring: &Wiring<'_>) -> Result<(), ManagerError> {
    let desk = wiring.desk("daemonset-controller")?;
    let caches = Caches {
        sets: wiring.informer(),
        pods: wiring.pods(),
        nodes: wiring.informer(),
        revisions: revisions::indexed(wiring.informer()),
    };
    let (recorder, backoff) = (desk.recorder.clone(), Backoff::default());
    let all_sets = {
        let sets = caches.sets.lister();
        move |_: &Node| sets.snapshot().iter().map(|set| Cached::key(&**set)).collect()
    };
    let is_placement = |old: Option<&Node>, new: &Node| {
        old.is_none_or(|old| !old.same_labels(new) || old.spec.taints != new.spec.taints)
    };
    let controller = desk
        .controller(&caches.sets, WORKERS)
        .watches(&caches.pods, owner_or_adopters(&caches.sets, selection))
        .watches(&caches.revisions, owner_or_adopters(&caches.sets, selection))
        .watches_where(&caches.nodes, Predicate::new(is_placement), all_sets)
        .build(move |context: Context, key: Key| {
            reconcile(context, caches.clone(), recorder.clone(), backoff.clone(), key)
        });
    desk.run(controller)
}

#[derive(Clone)]
struct Caches {
    sets: Informer<DaemonSet>,
    pods: Informer<Pod>,
    nodes: Informer<Node>,
    revisions: Informer<ControllerRevision>,
}

fn selection(set: &DaemonSet) -> Selector {
    let selector = set.spec.as_ref().map(|spec| &spec.selector);
    selector::read(selector).unwrap_or_else(|_| Selector::nothing())
}

async fn reconcile(
    context: Context,
    caches: Caches,
    recorder: Recorder,
    backoff: Backoff,
    key: Key,
) -> Result<Action, Error> {
    let Some(set) = context.read(&caches.sets, &key) else { return Ok(Action::done()) };
    let Some(spec) = &set.spec else { return Ok(Action::done()) };
    // A selector that can't be read doesn't get better by trying again.
    let Ok(selector) = selector::read(Some(&spec.selector)) else { return Ok(Action::done()) };
    if selector.is_everything() {
        let note = "This daemon set is selecting all pods. A non-empty selector is required.".to_owned();
        warning(&recorder, events::reference(&*set), "SelectingAll", "Select", note);
        return Ok(Action::done());
    }
    if Cached::is_deleting(&*set) {
        // Its revisions may be gone already, so nothing that could be said of it would be sure.
        return Ok(Action::done());
    }
    let pods = claimed(&context, &caches, &set, &selector).await?;
    let history = history::settle(&context, &caches.revisions, &set, spec, &selector, &pods).await?;

    let now = context.clock().wall();
    let generation = set.metadata.annotations.as_ref().and_then(|all| all.get(TEMPLATE_GENERATION));
    let generation = generation.filter(|text| text.parse::<i64>().is_ok()).map(String::as_str);
    let template = new_pod::complete(&spec.template, &history.hash, generation);
    let placement = Placement::of(template.spec.clone().unwrap_or_default());
    let snapshot = caches.nodes.lister().snapshot();
    let nodes = snapshot.iter().map(|node| (&*node.metadata.name, placement.on(node))).collect();
    let grouped = Pods::group(&pods);
    let desired = Desired {
        hash: &history.hash,
        generation,
        min_ready_seconds: spec.min_ready_seconds.unwrap_or(0),
        update: strategy(spec, &nodes),
    };

    let act = Act { context: &context, recorder: &recorder, backoff: &backoff, set: &set, template: &template };
    let mut plan = plan(&desired, &nodes, &grouped, |node| backoff.until(&act.place(node), now), now);
    if plan.create.is_empty() && plan.delete.is_empty() {
        // Nodes that lack a pod, or have one too many, come first: what is replaced is decided when that is seen to.
        let held = plan.next_check;
        plan = update::update(&desired, &nodes, &grouped, now);
        plan.next_check = held;
    }
    let done = act.carry_out(&plan, now).await;
    let status = status::status(&set, &desired, &nodes, &grouped, history.collisions, now);
    let written = act.write_status(status).await;
    done?;
    written?;
    history.forget_old(&context, &set, spec, &selector, &pods).await?;
    let checks = pods.iter().filter_map(|pod| pod.available_at(desired.min_ready_seconds)).chain(plan.next_check);
    Ok(next_run(&context, checks.filter(|moment| *moment > now).min()))
}

fn next_run(context: &Context, moment: Option<Timestamp>) -> Action {
    moment.map_or(Action::done(), |moment| Action::requeue_after(context.clock().until(moment)))
}

/// How many pods may be too many or too few, given the nodes that should have one.
fn strategy(spec: &DaemonSetSpec, nodes: &BTreeMap<&str, Eligible>) -> Strategy {
    let strategy = spec.update_strategy.as_ref();
    if strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("OnDelete") {
        return Strategy::OnDelete;
    }
    let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
    let all = nodes.values().filter(|eligible| **eligible == Eligible::Yes).count();
    let max_surge = rolling.and_then(|rolling| rolling.max_surge.as_ref());
    let unavailable = share(rolling.and_then(|rolling| rolling.max_unavailable.as_ref()), all);
    let surge = share(max_surge, all);
    let unavailable = if surge == 0 { unavailable.max(1) } else { unavailable };
    Strategy::Rolling { surge, unavailable, may_surge: share(max_surge, 1) > 0 }
}

/// A number, or a share of all, rounded up; what can't be read is none.
fn share(amount: Option<&IntOrString>, all: usize) -> usize {
    match amount {
        None => 0,
        Some(IntOrString::Int(amount)) => usize::try_from(*amount).unwrap_or(0),
        Some(IntOrString::String(text)) => {
            let percent = text.strip_suffix('%').and_then(|percent| percent.parse::<u32>().ok()).unwrap_or(0);
            all.saturating_mul(percent as usize).div_ceil(100)
        }
    }
}

/// The set's pods, now that orphans are adopted and others are let go.
async fn claimed(
    context: &Context,
    caches: &Caches,
    set: &DaemonSet,
    selector: &Selector,
) -> Result<Vec<Arc<Pod>>, Error> {
    let snapshot = caches.pods.lister().snapshot();
    let own = snapshot.by_index(pod::BY_CONTROLLER, Cached::uid(set));
    let orphans = pod::orphans_of(set.metadata.namespace.as_deref().unwrap_or_default());
    let candidates: Vec<_> = own.chain(snapshot.by_index(pod::BY_CONTROLLER, &orphans)).cloned().collect();
    Claim { owner: set, selector, finalizer: None }.settle(context, candidates).await
}
