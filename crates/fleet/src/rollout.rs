//! Brings a firmware to many vehicles, step by step, and never to more at once than the budgets allow.
//!
//! - All that it does to a vehicle is to write `spec.firmwareVersion`, by server-side apply as `rollout/NAME`.
//! - Who belongs to a step is computed from identities, where a vehicle stands is counted from what it says: the status of a rollout has
//!   counts, and where it is.
//! - Before anybody is told, the API server itself is asked who is without a confirmed firmware. So the budget holds also for a process that
//!   has just taken over, or whose caches are behind.

mod act;
pub mod back;
pub mod pick;
pub mod plan;
pub mod tally;
pub mod terms;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use setpoint_api::labels::Selector;
use setpoint_runtime::Key;
use setpoint_runtime::cache::Informer;
use setpoint_runtime::conditions::{self, State, Verdict};
use setpoint_runtime::controller::{Action, Context, Error, Predicate};
use setpoint_runtime::events::Recorder;
use setpoint_runtime::manager::ManagerError;
use setpoint_runtime::queue::WorkQueue;

use crate::kinds::{Firmware, Rollout, RolloutStatus, firmware_name};
use crate::view::VehicleView;
use crate::wiring::{Wiring, reference, warn};
use pick::{Budget, Unconfirmed};
use plan::{Act, Case, Course, Decision};
use tally::{Facts, Tally};
use terms::Terms;

/// Its name.
pub const NAME: &str = "rollout-controller";

/// What vehicles report within this time is looked at together: a look goes over all vehicles.
const BATCH: Duration = Duration::from_secs(1);

/// When to look again after vehicles had changed in between: the cache has to see it first.
const AGAIN: Duration = Duration::from_secs(1);

#[derive(Clone)]
struct Caches {
    rollouts: Informer<Rollout>,
    firmwares: Informer<Firmware>,
    vehicles: Informer<VehicleView>,
    recorder: Recorder,
    /// The controller's own: a younger rollout takes vehicles from older ones, and gives them back when it goes. A handler of the cache of
    /// rollouts could tell, but would hold the cache that holds it.
    queue: Arc<OnceLock<WorkQueue<Key>>>,
}

impl Caches {
    /// Wakes the other rollouts of a namespace.
    fn wake_others(&self, key: &Key) {
        let others = active(&self.rollouts, key.namespace().unwrap_or_default());
        for other in others.into_iter().filter(|other| other != key) {
            if let Some(queue) = self.queue.get() {
                queue.add(other);
            }
        }
    }
}

pub(crate) fn add(wiring: &Wiring<'_>) -> Result<(), ManagerError> {
    let desk = wiring.desk(NAME)?;
    let (rollouts, firmwares, vehicles) = (wiring.rollouts(), wiring.firmwares(), wiring.vehicles());
    let caches = Caches {
        rollouts: rollouts.clone(),
        firmwares: firmwares.clone(),
        vehicles: vehicles.clone(),
        recorder: desk.recorder.clone(),
        queue: Arc::default(),
    };
    let (of_vehicle, of_firmware) = (rollouts.clone(), rollouts.clone());
    let queue = caches.queue.clone();
    let controller = desk
        .controller(&rollouts, 2)
        .batch(BATCH)
        .watches_where(&vehicles, Predicate::new(is_of_interest), move |vehicle: &VehicleView| {
            active(&of_vehicle, vehicle.metadata.key.namespace().unwrap_or_default())
        })
        .watches(&firmwares, move |firmware: &Firmware| active(&of_firmware, &firmware.namespace().unwrap_or_default()))
        .build(move |context: Context, key: Key| reconcile(context, key, caches.clone()));
    // There is one only: it can't be set already.
    let _ = queue.set(controller.handle().queue().clone());
    desk.run(controller)
}

/// The rollouts of a namespace that have something to do.
fn active(rollouts: &Informer<Rollout>, namespace: &str) -> Vec<Key> {
    let snapshot = rollouts.lister().snapshot();
    let all = snapshot.namespace(namespace).filter(|rollout| !is_over(rollout));
    all.map(|rollout| Key::namespaced(namespace, &rollout.name_any())).collect()
}

/// Whether there is nothing to do until the spec changes.
fn is_over(rollout: &Rollout) -> bool {
    let Some(status) = &rollout.status else { return false };
    let is_observed = status.observed_generation == rollout.metadata.generation;
    let phase = status.phase.as_deref().unwrap_or_default();
    let is_last = phase == Course::RolledBack.word() || phase == Course::Completed.word() && !rollout.spec.dynamic;
    is_observed && is_last
}

/// Whether a change of a vehicle can matter to a rollout.
fn is_of_interest(old: Option<&VehicleView>, new: &VehicleView) -> bool {
    let Some(old) = old else { return true };
    let connected = |vehicle: &VehicleView| vehicle.status.conditions.connected;
    let failures = |vehicle: &VehicleView| vehicle.status.retry.as_deref().map_or(0, |retry| retry.failures);
    let blocked = |vehicle: &VehicleView| {
        vehicle.status.conditions.blocked.as_ref().map(|said| (said.holds, said.reason.clone()))
    };
    old.spec != new.spec
        || old.metadata.labels != new.metadata.labels
        || old.running() != new.running()
        || old.has_failed() != new.has_failed()
        || old.is_at_a_task() != new.is_at_a_task()
        || failures(old) != failures(new)
        || connected(old) != connected(new)
        || blocked(old) != blocked(new)
}

async fn reconcile(context: Context, key: Key, caches: Caches) -> Result<Action, Error> {
    let Some(rollout) = context.read(&caches.rollouts, &key) else {
        caches.wake_others(&key);
        return Ok(Action::done());
    };
    if rollout.status.as_ref().and_then(|status| status.observed_generation) != rollout.metadata.generation {
        caches.wake_others(&key);
    }
    if rollout.metadata.deletion_timestamp.is_some() || is_over(&rollout) {
        return Ok(Action::done());
    }
    let namespace = key.namespace().unwrap_or_default();
    let firmware_key = Key::namespaced(namespace, &firmware_name(&rollout.spec.firmware_ref.name));
    let terms = Terms::read(&rollout.spec);
    let (terms, firmware) = match (terms, context.read(&caches.firmwares, &firmware_key)) {
        (Ok(terms), Some(firmware)) => (terms, firmware),
        (Err(why), _) => return pend(&context, &rollout, "Unreadable", why).await,
        (Ok(_), None) => {
            let why = format!("there is no firmware {}", rollout.spec.firmware_ref.name);
            return pend(&context, &rollout, "NoFirmware", why).await;
        }
    };
    let rollouts = caches.rollouts.lister().snapshot();
    let newer = newer(rollouts.namespace(namespace).map(|other| &**other), &rollout);
    let now = context.clock().wall();
    let facts = Facts {
        terms: &terms,
        firmware: &firmware,
        newer: &newer,
        created: created(&rollout),
        dynamic: rollout.spec.dynamic,
        now,
    };
    let snapshot = caches.vehicles.lister().snapshot();
    let vehicles = || snapshot.namespace(namespace).map(|vehicle| &**vehicle);
    let tally = Tally::of(&facts, vehicles());
    let (returns, back) = back::returns(&facts, vehicles());
    let known = rollout.status.clone().unwrap_or_default();
    let is_observed = known.observed_generation == rollout.metadata.generation;
    let case = Case { spec: &rollout.spec, terms: &terms, status: &known, is_observed, tally: &tally, back, now };
    let decision = case.decide();
    let is_last = decision.course == Course::RolledBack && known.phase.as_deref() != Some(Course::RolledBack.word());
    if is_last && act::is_anybody_left(&context, namespace, &facts).await? {
        // The cache has not seen yet whom it told.
        return Ok(Action::requeue_after(AGAIN));
    }
    note(&context, &caches.recorder, &rollout, &known, &decision, &tally).await?;

    let changed = match decision.act {
        Act::Nothing => 0,
        Act::Release(_) if tally.candidates.is_empty() => 0,
        Act::Release(upto) => {
            let unconfirmed = match Budget::is_for_all(&terms) {
                true => Unconfirmed::default(),
                false => act::unconfirmed(&context, namespace, &facts).await?,
            };
            let budget = Budget::new(&terms, &tally, &unconfirmed);
            let picked = pick::pick(rollout.metadata.uid.as_deref().unwrap_or_default(), &terms, &tally, upto, budget);
            let told = picked.into_iter().map(|vehicle| (vehicle, &*firmware.spec.version)).collect();
            act::tell(&context, namespace, key.name(), told).await?
        }
        Act::TakeBack => {
            let unconfirmed: Unconfirmed = act::unconfirmed(&context, namespace, &facts).await?;
            let mut budget = Budget::new(&terms, &tally, &unconfirmed);
            let told = returns.iter().filter(|back| !back.needs_place || budget.take(back.vehicle));
            let told = told.take(pick::TOLD_MAX).map(|back| (back.vehicle, back.version)).collect();
            act::tell(&context, namespace, key.name(), told).await?
        }
    };
    if changed > 0 {
        return Ok(Action::requeue_after(AGAIN));
    }
    // Times of objects have no fractions: a moment later it is surely reached.
    let until = |wake| context.clock().until(wake) + Duration::from_millis(1);
    Ok(decision.wake.map_or_else(Action::done, |wake| Action::requeue_after(until(wake))))
}

/// What cannot even begin.
async fn pend(context: &Context, rollout: &Rollout, reason: &'static str, message: String) -> Result<Action, Error> {
    let known = rollout.status.clone().unwrap_or_default();
    let decision = Decision {
        course: Course::Pending,
        step: usize::try_from(known.step).unwrap_or_default().max(1),
        step_time: known.step_time.as_ref().map(|time| time.0),
        reached_time: None,
        reason,
        message,
        act: Act::Nothing,
        wake: None,
    };
    let planned = status(context, rollout, &known, &decision, &Tally::default(), 0);
    if planned != known {
        act::write(context, rollout, &planned).await?;
    }
    Ok(Action::done())
}

/// Writes down what was decided, if it says something new.
async fn note(
    context: &Context,
    recorder: &Recorder,
    rollout: &Rollout,
    known: &RolloutStatus,
    decision: &Decision,
    tally: &Tally<'_>,
) -> Result<(), Error> {
    let planned = status(context, rollout, known, decision, tally, tally.steps.len());
    if planned == *known {
        return Ok(());
    }
    act::write(context, rollout, &planned).await?;
    let is_new = known.phase.as_deref() != Some(decision.course.word());
    if is_new && decision.reason != plan::PAUSED && matches!(decision.course, Course::Paused | Course::RollingBack) {
        let key = Key::new(rollout.metadata.namespace.as_deref(), &rollout.name_any());
        let about = reference("Rollout", &key, rollout.metadata.uid.as_deref().unwrap_or_default());
        warn(recorder, about, decision.course.word(), "Rollout", decision.message.clone());
    }
    Ok(())
}

fn status(
    context: &Context,
    rollout: &Rollout,
    known: &RolloutStatus,
    decision: &Decision,
    tally: &Tally<'_>,
    steps: usize,
) -> RolloutStatus {
    let generation = rollout.metadata.generation.unwrap_or_default();
    let course = decision.course;
    let mut all = known.conditions.clone();
    let mut say = |kind: &str, holds: bool| {
        let state = if holds { State::True } else { State::False };
        let verdict = Verdict::new(kind, state, decision.reason, &*decision.message).observed(generation);
        conditions::set(&mut all, verdict, context.clock());
    };
    let is_moving = matches!(course, Course::Progressing | Course::Soaking | Course::RollingBack);
    say("Progressing", is_moving);
    say("Paused", course == Course::Paused);
    say("Completed", course == Course::Completed);
    RolloutStatus {
        phase: Some(course.word().to_owned()),
        observed_generation: rollout.metadata.generation,
        step: i64::try_from(decision.step).unwrap_or(i64::MAX),
        step_text: if steps == 0 { String::new() } else { format!("{}/{steps}", decision.step.min(steps)) },
        step_time: decision.step_time.map(whole),
        reached_time: decision.reached_time.map(whole),
        counts: tally.counts,
        top_failures: tally.top_failures(),
        conditions: all,
    }
}

/// Times of objects have no fractions.
fn whole(time: Timestamp) -> Time {
    Time(Timestamp::from_second(time.as_second()).unwrap_or(time))
}

/// When a rollout was made.
pub(crate) fn created(rollout: &Rollout) -> Timestamp {
    rollout.metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0)
}

/// What younger rollouts of the same namespace select. One that can't be read selects nothing.
pub(crate) fn newer<'a>(rollouts: impl Iterator<Item = &'a Rollout>, rollout: &Rollout) -> Vec<Selector> {
    let age = |rollout: &Rollout| (created(rollout), rollout.name_any());
    let own = age(rollout);
    let younger = rollouts.filter(|other| age(other) > own && other.metadata.deletion_timestamp.is_none());
    younger
        .filter_map(|other| terms::selector(other.spec.selector.as_ref()).ok())
        .map(|selector| selector.unwrap_or(Selector::everything()))
        .collect()
}
