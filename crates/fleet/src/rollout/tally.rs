//! Where the vehicles of a rollout are: counted anew from what is, in one pass over the cache.

use std::collections::BTreeMap;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use setpoint_api::labels::Selector;

use super::pick::Unconfirmed;
use super::terms::{Stair, Terms};
use crate::kinds::{Counts, Firmware, TopFailure};
use crate::phase::{Phase, gate};
use crate::version;
use crate::view::VehicleView;

/// Failures that a status tells.
const TOP_FAILURES_MAX: usize = 10;

/// What decides where a vehicle stands.
pub struct Facts<'a> {
    /// What the rollout asks for.
    pub terms: &'a Terms,
    /// What it brings.
    pub firmware: &'a Firmware,
    /// Which vehicles younger rollouts have: they count more.
    pub newer: &'a [Selector],
    /// When the rollout was made.
    pub created: Timestamp,
    /// Whether vehicles that came later are meant, too.
    pub dynamic: bool,
    /// The time.
    pub now: Timestamp,
}

/// Where a vehicle stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The rollout is not about it.
    NotMeant,
    /// A younger rollout has it.
    Superseded,
    /// It can't be told, or can't go on, and why.
    Blocked(&'static str),
    /// It can be told.
    Candidate,
    /// It was not told and is not reachable, since.
    Away(Timestamp),
    /// It was told and is not reachable, since.
    Lost(Timestamp),
    /// It was told and is on its way.
    InProgress,
    /// It was told and fails again and again. It is still tried, so it still has its place; since when it is not reachable, if it isn't.
    Failing(Option<Timestamp>),
    /// It was told and has given up.
    Failed,
    /// It was told and has confirmed.
    Confirmed,
}

/// After so many failures in a row a vehicle that is still tried counts as failed for its rollout.
const FAILING_AFTER: i64 = 3;

/// The hardware is not one that the firmware is made for.
pub const WRONG_HARDWARE: &str = "WrongHardware";

impl Facts<'_> {
    /// Where a vehicle stands.
    #[must_use]
    pub fn standing(&self, vehicle: &VehicleView) -> Standing {
        let labels = &vehicle.metadata.labels;
        let is_late = !self.dynamic && vehicle.metadata.created > self.created;
        if vehicle.metadata.deleting || is_late || !self.terms.selector.matches(labels) {
            return Standing::NotMeant;
        }
        if self.newer.iter().any(|selector| selector.matches(labels)) {
            return Standing::Superseded;
        }
        let target = Some(&*self.firmware.spec.version);
        let away = away_since(vehicle);
        if vehicle.wanted() == target {
            return if vehicle.running() == target {
                Standing::Confirmed
            } else if vehicle.has_failed() {
                Standing::Failed
            } else if let Some(why) = held(vehicle) {
                Standing::Blocked(why)
            } else if is_failing(vehicle) {
                Standing::Failing(away)
            } else {
                away.map_or(Standing::InProgress, Standing::Lost)
            };
        }
        match self.hindrance(vehicle) {
            Some(why) => Standing::Blocked(why),
            None => away.map_or(Standing::Candidate, Standing::Away),
        }
    }

    /// Why a vehicle can't be told.
    fn hindrance(&self, vehicle: &VehicleView) -> Option<&'static str> {
        let (spec, hardware) = (&self.firmware.spec, &*vehicle.spec.hardware_id);
        let quarantined = self.firmware.status.as_ref().map_or(&[][..], |status| &status.quarantined_for);
        if !spec.hardware_ids.iter().any(|id| id == hardware) {
            return Some(WRONG_HARDWARE);
        }
        if quarantined.iter().any(|id| id == hardware) {
            return Some(gate::QUARANTINED);
        }
        let min = spec.min_from_version.as_deref().zip(vehicle.running());
        if min.is_some_and(|(min, running)| version::compare(running, min).is_lt()) {
            return Some(gate::TOO_OLD);
        }
        vehicle.spec.paused.then_some(gate::PAUSED)
    }

    /// Whether a vehicle is without a confirmed firmware because of this rollout. Of one that is away for too long nobody
    /// knows, and it is not waited for.
    #[must_use]
    pub fn is_unconfirmed(&self, standing: Standing) -> bool {
        match standing {
            Standing::InProgress | Standing::Failing(None) => true,
            Standing::Lost(since) | Standing::Failing(Some(since)) => self.is_patient(since),
            _ => false,
        }
    }

    /// Whether a vehicle is without a confirmed firmware because it goes back: to another one, or to what it runs while it still is at what it
    /// was told before. That is finished, if it was begun.
    #[must_use]
    pub fn is_returning(&self, vehicle: &VehicleView) -> bool {
        let (wanted, running) = (vehicle.wanted(), vehicle.running());
        let target = Some(&*self.firmware.spec.version);
        if wanted.is_none() || wanted == target || !self.terms.selector.matches(&vehicle.metadata.labels) {
            return false;
        }
        let installs = running == target || wanted == self.terms.rollback_to.as_deref() && wanted != running;
        let finishes = wanted == running && vehicle.is_at_a_task();
        let is_waited_for = away_since(vehicle).is_none_or(|since| self.is_patient(since));
        (installs || finishes) && is_waited_for && !vehicle.has_failed()
    }

    /// Whether a vehicle has one of the places of the budget.
    #[must_use]
    pub fn has_place(&self, vehicle: &VehicleView) -> bool {
        self.is_unconfirmed(self.standing(vehicle)) || self.is_returning(vehicle)
    }

    /// Whether a vehicle that is away since then is still waited for.
    #[must_use]
    pub fn is_patient(&self, since: Timestamp) -> bool {
        self.now < self.patience_ends(since)
    }

    /// Until when a vehicle that is away since then is waited for.
    #[must_use]
    pub fn patience_ends(&self, since: Timestamp) -> Timestamp {
        since.saturating_add(self.terms.patience).unwrap_or(Timestamp::MAX)
    }
}

/// Whether a vehicle has failed with what its spec of now asks for so often in a row that its rollout doesn't wait for it.
fn is_failing(vehicle: &VehicleView) -> bool {
    let status = &vehicle.status;
    let is_now = status.observed_generation == vehicle.metadata.generation;
    let is_about_it = status.task.as_deref().is_some_and(|task| Some(&*task.firmware_version) == vehicle.wanted());
    let failures = status.retry.as_deref().map_or(0, |retry| retry.failures);
    is_now && is_about_it && failures >= FAILING_AFTER
}

/// Since when a vehicle is not reachable, if it isn't.
fn away_since(vehicle: &VehicleView) -> Option<Timestamp> {
    match vehicle.status.conditions.connected {
        Some((true, _)) => None,
        Some((false, since)) => Some(since),
        None => Some(vehicle.metadata.created),
    }
}

/// What holds a vehicle that was told, if it can't go away by itself and nothing is being installed.
fn held(vehicle: &VehicleView) -> Option<&'static str> {
    let is_now = vehicle.status.observed_generation == vehicle.metadata.generation;
    let is_waiting = matches!(vehicle.status.phase, Some(Phase::Waiting | Phase::Pending));
    let blocked = vehicle.status.conditions.blocked.as_ref().filter(|said| is_now && is_waiting && said.holds)?;
    [gate::QUARANTINED, gate::NO_FIRMWARE, gate::TOO_OLD].into_iter().find(|gate| **gate == *blocked.reason)
}

/// How many of a step's vehicles there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// Those that can get the firmware.
    pub eligible: usize,
    /// Those that were told.
    pub told: usize,
    /// Those of them that are on their way and can be reached.
    pub in_progress: usize,
    /// Those of them that have given up, or fail again and again.
    pub failed: usize,
    /// Those of them that have confirmed.
    pub confirmed: usize,
}

/// Where all vehicles are.
#[derive(Debug, Default)]
pub struct Tally<'a> {
    /// What the status tells.
    pub counts: Counts,
    /// Those that a younger rollout has.
    pub superseded: usize,
    /// By step, in their order.
    pub steps: Vec<Group>,
    /// Those that can be told, each with the steps that mean it, one bit for each.
    pub candidates: Vec<(&'a VehicleView, u64)>,
    /// How many there are of each group of the budget by label.
    pub groups: BTreeMap<&'a str, usize>,
    /// Why vehicles can't be told, and how many.
    pub blocked: BTreeMap<&'static str, usize>,
    /// How many are away and waited for.
    pub awaited: usize,
    /// When the first of those is not waited for any more.
    pub patience_ends: Option<Timestamp>,
    /// Those that have places of the budget, as far as the cache knows.
    pub unconfirmed: Unconfirmed,
    failures: BTreeMap<(&'a str, &'a str), i64>,
}

impl<'a> Tally<'a> {
    /// Counts.
    #[must_use]
    pub fn of(facts: &Facts<'_>, vehicles: impl Iterator<Item = &'a VehicleView>) -> Tally<'a> {
        let mut tally = Tally { steps: vec![Group::default(); facts.terms.steps.len()], ..Tally::default() };
        for vehicle in vehicles {
            tally.count(facts, vehicle);
        }
        tally
    }

    fn count(&mut self, facts: &Facts<'_>, vehicle: &'a VehicleView) {
        let standing = facts.standing(vehicle);
        if facts.is_unconfirmed(standing) || facts.is_returning(vehicle) {
            self.unconfirmed.count(facts.terms, vehicle);
        }
        let counts = &mut self.counts;
        match standing {
            Standing::NotMeant => return,
            Standing::Superseded => {
                self.superseded += 1;
                return;
            }
            Standing::Blocked(why) => {
                counts.blocked += 1;
                *self.blocked.entry(why).or_default() += 1;
                return;
            }
            Standing::Candidate => {}
            Standing::Away(since) | Standing::Lost(since) => {
                counts.offline += 1;
                if facts.is_patient(since) {
                    self.awaited += 1;
                    let ends = facts.patience_ends(since);
                    self.patience_ends = Some(self.patience_ends.map_or(ends, |known| known.min(ends)));
                }
            }
            Standing::InProgress => counts.in_progress += 1,
            Standing::Failed | Standing::Failing(_) => {
                counts.failed += 1;
                let reason = vehicle.status.retry.as_deref().map_or("Unknown", |retry| &retry.last_reason);
                *self.failures.entry((reason, &vehicle.spec.hardware_id)).or_default() += 1;
            }
            Standing::Confirmed => counts.succeeded += 1,
        }
        let is_told = !matches!(standing, Standing::Candidate | Standing::Away(_));
        counts.eligible += 1;
        counts.released += i64::from(is_told);
        let mask = steps_of(&facts.terms.steps, vehicle);
        for (_, group) in self.steps.iter_mut().enumerate().filter(|(at, _)| mask >> at & 1 == 1) {
            group.eligible += 1;
            group.told += usize::from(is_told);
            group.in_progress += usize::from(standing == Standing::InProgress);
            group.failed += usize::from(matches!(standing, Standing::Failed | Standing::Failing(_)));
            group.confirmed += usize::from(standing == Standing::Confirmed);
        }
        if let Some((label, _)) = &facts.terms.group {
            *self.groups.entry(vehicle.metadata.labels.get(label).unwrap_or_default()).or_default() += 1;
        }
        if standing == Standing::Candidate {
            self.candidates.push((vehicle, mask));
        }
    }

    /// The most frequent failures.
    #[must_use]
    pub fn top_failures(&self) -> Vec<TopFailure> {
        let mut all: Vec<_> = self.failures.iter().map(|((reason, hardware), n)| (*n, *reason, *hardware)).collect();
        all.sort_unstable_by_key(|(n, reason, hardware)| (-n, *reason, *hardware));
        let told = |(n, reason, hardware): (i64, &str, &str)| TopFailure {
            reason: reason.to_owned(),
            hardware_id: hardware.to_owned(),
            n,
        };
        all.into_iter().take(TOP_FAILURES_MAX).map(told).collect()
    }

    /// How many more of a step's vehicles are to be told; steps count from 0.
    #[must_use]
    pub fn quota(&self, steps: &[Stair], at: usize) -> usize {
        let group = self.steps[at];
        let limit = steps[at].limit.map_or(group.eligible, |limit| limit.of(group.eligible).min(group.eligible));
        limit.saturating_sub(group.told)
    }

    /// Whether somebody can be told up to a step, which counts from 0.
    #[must_use]
    pub fn is_open(&self, steps: &[Stair], upto: usize) -> bool {
        self.open(steps, upto).next().is_some()
    }

    /// Those who can be told up to a step, which counts from 0.
    pub fn open(&self, steps: &[Stair], upto: usize) -> impl Iterator<Item = &'a VehicleView> {
        let open = (0..=upto).filter(|at| self.quota(steps, *at) > 0).fold(0_u64, |mask, at| mask | 1 << at);
        self.candidates.iter().filter(move |(_, mask)| mask & open != 0).map(|(vehicle, _)| *vehicle)
    }
}

/// The steps that mean a vehicle, one bit for each.
fn steps_of(steps: &[Stair], vehicle: &VehicleView) -> u64 {
    let is_meant =
        |stair: &Stair| stair.selector.as_ref().is_none_or(|selector| selector.matches(&vehicle.metadata.labels));
    steps.iter().enumerate().filter(|(_, stair)| is_meant(stair)).fold(0, |mask, (at, _)| mask | 1 << at)
}

/// The moment that is so much later.
#[must_use]
pub fn later(moment: Timestamp, span: SignedDuration) -> Timestamp {
    moment.saturating_add(span).unwrap_or(Timestamp::MAX)
}
