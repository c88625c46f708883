//! What a rollout would do from here: whom each step means, how many bytes, when it begins and how long it takes, and who can't get there.
//!
//! - Nothing is simulated that isn't decided by a rule: steps, budgets, windows, soaks and approvals are those of the controllers, which
//!   are asked through the same functions. That attempts succeed, and that people agree at once, is assumed.
//! - Times are those of the rollout's own window, in its time zone.

mod course;
mod text;

use std::collections::BTreeMap;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde_json::{Value, json};
use setpoint_fleet_protocol::Window;

use super::{Fleet, Sight};
use crate::kinds::Counts;
use crate::rollout::back::returns;
use crate::rollout::pick::members;
use crate::rollout::plan::{Case, Course, NO_PLACE};
use crate::rollout::tally::{Facts, Standing, Tally, later};
use crate::rollout::terms::{Share, Stair};
use crate::view::VehicleView;
use course::{Road, Trip};

/// How long an upgrade takes if the firmware doesn't say.
const MINUTES: i64 = 5;

/// Names that are told of those who can't get there.
const NAMES_MAX: usize = 5;

/// Groups of a budget that are told: those that take longest.
const GROUPS_MAX: usize = 10;

/// It is revoked, or its certificate has expired for too long: only another token lets it in.
const SHUT_OUT: &str = "NeedsToken";

/// A window of the vehicle's own can't be read.
const UNREADABLE_WINDOW: &str = "UnreadableWindow";

/// What a rollout would do from here.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Forecast {
    /// Its name.
    pub rollout: String,
    /// The version that it brings.
    pub version: String,
    /// Bytes of the image.
    pub size: i64,
    /// Where it is.
    pub phase: &'static str,
    /// Why it is there.
    pub message: String,
    /// Where its vehicles are.
    pub counts: Counts,
    /// When it tells vehicles, if not always.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<String>,
    /// How many may be without a confirmed firmware at once.
    pub at_once: usize,
    /// What its steps still have to do.
    pub steps: Vec<StepForecast>,
    /// Vehicles that are still to be told, over all steps.
    pub vehicles: usize,
    /// Bytes of all of them.
    pub bytes: i64,
    /// When it is done; none if it never is by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub done: Option<String>,
    /// Seconds until then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<i64>,
    /// Groups of the budget by a label, the largest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupForecast>,
    /// The label that they are by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_by: Option<String>,
    /// Vehicles that wait for a window of their own.
    pub in_own_windows: usize,
    /// Who can't get there, by reason.
    pub hopeless: Vec<Hopeless>,
    /// What a rollback still has to do, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub back: Option<BackForecast>,
}

/// A step.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StepForecast {
    /// Its number, from 1.
    pub step: usize,
    /// What people call it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whom it means.
    pub who: String,
    /// How many are still to be told in it.
    pub vehicles: usize,
    /// Their bytes.
    pub bytes: i64,
    /// When it begins; none if it is past, or never begins by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub begins: Option<String>,
    /// Seconds from there until its vehicles have confirmed and have soaked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<i64>,
    /// How many of those are the soak.
    pub soak_seconds: i64,
    /// What else there is to know.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// A group of the budget by a label.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupForecast {
    /// The value of the label; empty for those without it.
    pub value: String,
    /// How many of the rollout's vehicles are in it.
    pub vehicles: usize,
    /// How many of them may be without a confirmed firmware at once.
    pub at_once: usize,
}

/// Vehicles that can't get there.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Hopeless {
    /// Why, in a word.
    pub reason: String,
    /// How many.
    pub vehicles: usize,
    /// The first of them.
    pub names: Vec<String>,
}

/// What a rollback has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BackForecast {
    /// Vehicles that are to be told.
    pub ready: usize,
    /// Vehicles that are on their way.
    pub returning: usize,
    /// Vehicles that are away and waited for.
    pub awaited: usize,
}

impl Fleet {
    /// What a rollout would do from here; an error if there is none of this name, or it can't be read.
    ///
    /// # Errors
    /// Says which.
    pub fn forecast(&self, name: &str, now: Timestamp) -> Result<Forecast, String> {
        let rollout = self.rollouts.iter().find(|rollout| rollout.metadata.name.as_deref() == Some(name));
        let sight = self.sight(rollout.ok_or_else(|| format!("there is no rollout {name}"))?)?;
        let facts = sight.facts(now);
        let tally = Tally::of(&facts, self.vehicles.iter());
        let (_, back) = returns(&facts, self.vehicles.iter());
        let status = sight.rollout.status.clone().unwrap_or_default();
        let is_observed = status.observed_generation == sight.rollout.metadata.generation;
        let spec = &sight.rollout.spec;
        let case = Case { spec, terms: &sight.terms, status: &status, is_observed, tally: &tally, back, now };
        let decision = case.decide();
        let mut outlook = Outlook::new(&sight, &tally, now);
        self.vehicles.iter().for_each(|vehicle| outlook.road.hold(vehicle, &facts));
        let climbs = !matches!(decision.course, Course::RollingBack | Course::RolledBack | Course::Superseded);
        let steps = if climbs { outlook.steps(&decision) } else { Vec::new() };
        let done = outlook.end.filter(|_| climbs);
        let vehicles = steps.iter().map(|step| step.vehicles).sum();
        let mut hopeless = self.hopeless(&facts);
        hopeless.extend(outlook.hopeless());
        Ok(Forecast {
            rollout: name.to_owned(),
            version: sight.firmware.spec.version.clone(),
            size: outlook.size,
            phase: decision.course.word(),
            message: decision.message.clone(),
            counts: tally.counts,
            window: spec.window.clone(),
            at_once: outlook.at_once(),
            vehicles,
            bytes: outlook.size.saturating_mul(number(vehicles)),
            done: done.map(|done| outlook.told(done)),
            seconds: done.map(|done| done.duration_since(now).as_secs()),
            groups: outlook.groups(),
            group_by: sight.terms.group.as_ref().map(|(label, _)| label.clone()),
            in_own_windows: outlook.road.in_own_windows,
            steps,
            hopeless,
            back: (!climbs).then_some(BackForecast {
                ready: back.ready,
                returning: back.returning,
                awaited: back.awaited,
            }),
        })
    }

    fn hopeless(&self, facts: &Facts<'_>) -> Vec<Hopeless> {
        let mut reasons: BTreeMap<&str, Vec<&VehicleView>> = BTreeMap::new();
        for vehicle in &self.vehicles {
            let why = match facts.standing(vehicle) {
                Standing::Blocked(why) => why,
                Standing::Failed => vehicle.status.retry.as_deref().map_or("Failed", |retry| &retry.last_reason),
                Standing::Superseded => "Superseded",
                Standing::Away(_) | Standing::Lost(_) if vehicle.is_shut_out(facts.now) => SHUT_OUT,
                Standing::Away(since) | Standing::Lost(since) if !facts.is_patient(since) => "OfflineForTooLong",
                _ => continue,
            };
            reasons.entry(why).or_default().push(vehicle);
        }
        reasons.into_iter().map(|(why, vehicles)| Hopeless::of(why, &vehicles)).collect()
    }
}

impl Forecast {
    /// For programs.
    #[must_use]
    pub fn value(&self) -> Value {
        serde_json::to_value(self).unwrap_or_else(|error| json!({"error": error.to_string()}))
    }
}

impl Hopeless {
    fn of(why: &str, vehicles: &[&VehicleView]) -> Hopeless {
        let names = vehicles.iter().take(NAMES_MAX).map(|vehicle| vehicle.metadata.key.name().to_owned());
        Hopeless { reason: why.to_owned(), vehicles: vehicles.len(), names: names.collect() }
    }
}

/// What looks ahead.
struct Outlook<'a> {
    sight: &'a Sight<'a>,
    tally: &'a Tally<'a>,
    now: Timestamp,
    size: i64,
    road: Road<'a>,
    /// When all steps are done, as far as they were looked at; none if one of them never ends by itself.
    end: Option<Timestamp>,
    /// Those who are never told, by why.
    waiting: Vec<Hopeless>,
}

impl<'a> Outlook<'a> {
    fn new(sight: &'a Sight<'a>, tally: &'a Tally<'a>, now: Timestamp) -> Outlook<'a> {
        let spec = &sight.firmware.spec;
        let size = spec.image().map_or(0, |image| image.size);
        let minutes = spec.notes.as_ref().and_then(|notes| notes.minutes).unwrap_or(MINUTES);
        let trip = Trip {
            span: SignedDuration::from_mins(minutes),
            size,
            rate: sight.rollout.spec.bytes_per_second.map(|rate| rate.max(1)),
        };
        let road = Road::new(&sight.terms, tally, trip, now);
        Outlook { sight, tally, now, size, road, end: Some(now), waiting: Vec::new() }
    }

    fn at_once(&self) -> usize {
        self.sight.terms.concurrent.of(usize::try_from(self.tally.counts.eligible).unwrap_or_default())
    }

    /// A moment in the zone of the rollout's window.
    fn told(&self, moment: Timestamp) -> String {
        let whole = Timestamp::from_second(moment.as_second()).unwrap_or(moment);
        self.sight.terms.window.as_ref().map_or_else(|| whole.to_string(), |window| window.local(whole))
    }

    fn steps(&mut self, decision: &crate::rollout::plan::Decision) -> Vec<StepForecast> {
        let terms = &self.sight.terms;
        let uid = self.sight.rollout.metadata.uid.as_deref().unwrap_or_default();
        let current = decision.step.clamp(1, terms.steps.len());
        let all = members(uid, terms, self.tally, terms.steps.len());
        all.into_iter().enumerate().map(|(at, members)| self.step(at, &members, current, decision)).collect()
    }

    fn step(
        &mut self,
        at: usize,
        members: &[&'a VehicleView],
        current: usize,
        decision: &crate::rollout::plan::Decision,
    ) -> StepForecast {
        let (terms, spec) = (&self.sight.terms, &self.sight.rollout.spec);
        let (stair, group, step) = (&terms.steps[at], self.tally.steps[at], at + 1);
        let is_last = step == terms.steps.len();
        let mut said = StepForecast {
            step,
            name: spec.steps.get(at).and_then(|step| step.name.clone()),
            who: who(stair),
            vehicles: members.len(),
            bytes: self.size.saturating_mul(number(members.len())),
            ..StepForecast::default()
        };
        let note = |said: &mut StepForecast, text: String| said.notes.push(text);
        if stair.approve {
            let is_approved = spec.approved_step >= number(step);
            let text = if is_approved { "approved" } else { "has to be approved" };
            note(&mut said, text.to_owned());
        }
        if spec.promoted_step >= number(step) && stair.soak > SignedDuration::ZERO {
            note(&mut said, "promoted: no soak".to_owned());
        }
        let Some(begin) = self.end else {
            return said;
        };
        if step < current && members.is_empty() {
            note(&mut said, "done".to_owned());
            return said;
        }
        let told = self.road.tell(begin, members, step < current);
        if step < current {
            // Who came to a step that is over is told beside the step under way.
            note(&mut said, "over, but these came to it since".to_owned());
            return said;
        }
        let never = |why: &str| format!("never ends by itself: {why}");
        let stops = match () {
            () if told.untold > 0 => Some(self.untold(members, told.untold)),
            () if group.told + members.len() == 0 && group.eligible > 0 && !is_last => Some(match stair.limit {
                Some(limit) if limit.of(group.eligible) == 0 => "its limit is 0".to_owned(),
                _ => format!("none of its {} vehicles can be reached", group.eligible),
            }),
            () => None,
        };
        let begins = told.first.unwrap_or(begin);
        said.begins = Some(self.told(begins));
        if let Some(why) = stops {
            note(&mut said, never(&why));
            self.end = None;
            return said;
        }
        let busy = if group.in_progress > 0 { self.road.present_ends } else { None };
        let reached = [told.last, busy, Some(begin)].into_iter().flatten().max().unwrap_or(begin);
        let soaks = self.soak(step, stair, reached, decision);
        said.soak_seconds = soaks.duration_since(reached).as_secs().max(0);
        said.seconds = Some(soaks.duration_since(begins).as_secs().max(0));
        self.judge_deadline(step, current, begin, reached, &mut said);
        self.end = Some(soaks);
        said
    }

    /// When a step's soak is over.
    fn soak(
        &self,
        step: usize,
        stair: &Stair,
        reached: Timestamp,
        decision: &crate::rollout::plan::Decision,
    ) -> Timestamp {
        let is_promoted = self.sight.rollout.spec.promoted_step >= number(step);
        if step == self.sight.terms.steps.len() || is_promoted {
            return reached;
        }
        let is_soaking = decision.step == step && decision.course == Course::Soaking;
        let since = decision.reached_time.filter(|_| is_soaking);
        later(since.unwrap_or(reached), stair.soak).max(reached)
    }

    /// A step that takes longer than it may.
    fn judge_deadline(
        &self,
        step: usize,
        current: usize,
        begin: Timestamp,
        reached: Timestamp,
        said: &mut StepForecast,
    ) {
        let Some(limit) = self.sight.terms.step_deadline else { return };
        let status = self.sight.rollout.status.as_ref();
        let known = status.and_then(|status| status.step_time.as_ref()).map(|time| time.0).filter(|_| step == current);
        let deadline = later(known.unwrap_or(begin), limit);
        if reached > deadline {
            let outcome = match self.sight.rollout.spec.on_failure {
                crate::kinds::OnFailure::Pause => "pauses",
                crate::kinds::OnFailure::Rollback => "goes back",
            };
            said.notes.push(format!("too late: it {outcome} at its deadline {}", self.told(deadline)));
        }
    }

    /// Why some members of a step are never told.
    fn untold(&mut self, members: &[&VehicleView], count: usize) -> String {
        let terms = &self.sight.terms;
        let never = &members[members.len() - count..];
        let (reason, why) = if terms.concurrent.of(1) == 0 {
            ("NoBudget", "maxConcurrent is 0".to_owned())
        } else if terms.group.as_ref().is_some_and(|(_, share)| share.of(1) == 0) {
            ("NoBudget", "maxUnavailable is 0".to_owned())
        } else if terms.window.as_ref().is_some_and(|window| window.opens_at(self.now).is_none()) {
            ("Window", "its window never opens".to_owned())
        } else {
            (NO_PLACE, format!("{count} wait for places that others don't give back"))
        };
        self.waiting.push(Hopeless::of(reason, never));
        why
    }

    fn hopeless(&mut self) -> Vec<Hopeless> {
        let unreadable = std::mem::take(&mut self.road.unreadable);
        let own = (!unreadable.is_empty()).then(|| Hopeless::of(UNREADABLE_WINDOW, &unreadable));
        self.waiting.drain(..).chain(own).collect()
    }

    fn groups(&self) -> Vec<GroupForecast> {
        let Some((_, share)) = &self.sight.terms.group else { return Vec::new() };
        let told = |(value, size): (&&str, &usize)| GroupForecast {
            value: (*value).to_owned(),
            vehicles: *size,
            at_once: share.of(*size),
        };
        let mut all: Vec<_> = self.tally.groups.iter().map(told).collect();
        all.sort_by(|one, other| (other.vehicles, &one.value).cmp(&(one.vehicles, &other.value)));
        all.truncate(GROUPS_MAX);
        all
    }
}

/// Whom a step means, in the words of its spec.
fn who(stair: &Stair) -> String {
    let selector = stair.selector.as_ref().filter(|selector| !selector.is_everything());
    let limit = stair.limit.map(|limit| match limit {
        Share::Number(number) => number.to_string(),
        Share::Percent(percent) => format!("{percent}%"),
    });
    match (limit, selector) {
        (None, None) => "all".to_owned(),
        (Some(limit), None) => limit,
        (None, Some(selector)) => format!("all of {selector}"),
        (Some(limit), Some(selector)) => format!("{limit} of {selector}"),
    }
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// A window of a vehicle, read; none if it has none.
fn own_window(text: Option<&str>) -> Result<Option<Window>, String> {
    text.filter(|text| !text.is_empty()).map(Window::parse).transpose().map_err(|error| error.to_string())
}
