//! What a rollout does next: from what it asks for, where it was, and where its vehicles are.
//!
//! ```text
//! Pending ─▶ Progressing ─▶ Soaking ─▶ Progressing (next step) ─▶ ... ─▶ Completed
//!               │  ▲  └──▶ AwaitingApproval
//!               ▼  │ (the spec changes)
//!             Paused            RollingBack ─▶ RolledBack
//! ```

use k8s_openapi::jiff::Timestamp;

use super::pick::Budget;
use super::tally::{Tally, later};
use super::terms::{Share, Terms};
use crate::kinds::{OnFailure, RolloutSpec, RolloutStatus};

/// 95 of 100 times the true share is above the lower bound.
const Z: f64 = 1.96;

/// Where a rollout is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Course {
    /// There is nothing to do yet.
    Pending,
    /// Vehicles are told and on their way.
    Progressing,
    /// The step's vehicles must stay well for a while.
    Soaking,
    /// Somebody has to agree to the next step.
    AwaitingApproval,
    /// Nobody is told.
    Paused,
    /// Those that were told go back.
    RollingBack,
    /// They have.
    RolledBack,
    /// All are where they should be, but for those that failed or are away for too long.
    Completed,
    /// Younger rollouts have all of its vehicles.
    Superseded,
}

impl Course {
    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Course::Pending => "Pending",
            Course::Progressing => "Progressing",
            Course::Soaking => "Soaking",
            Course::AwaitingApproval => "AwaitingApproval",
            Course::Paused => "Paused",
            Course::RollingBack => "RollingBack",
            Course::RolledBack => "RolledBack",
            Course::Completed => "Completed",
            Course::Superseded => "Superseded",
        }
    }
}

/// The spec says so.
pub const PAUSED: &str = "Paused";
/// Too many failed.
pub const TOO_MANY_FAILURES: &str = "TooManyFailures";
/// Too few have confirmed, and nobody is on the way any more.
pub const TOO_FEW_SUCCEEDED: &str = "TooFewSucceeded";
/// A step took too long.
pub const STEP_DEADLINE: &str = "StepDeadline";

/// The spec allows nobody.
pub const NO_BUDGET: &str = "NoBudget";
/// All places of the budget are taken, by vehicles that may not give them back soon.
pub const NO_PLACE: &str = "NoPlace";

/// What to do with vehicles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Nothing.
    Nothing,
    /// Tell those that the steps up to this one mean, counted from 0.
    Release(usize),
    /// Take back what was told.
    TakeBack,
}

/// What follows.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// Where the rollout is.
    pub course: Course,
    /// The step, from 1.
    pub step: usize,
    /// When it began.
    pub step_time: Option<Timestamp>,
    /// When its vehicles had confirmed.
    pub reached_time: Option<Timestamp>,
    /// Why, in one word.
    pub reason: &'static str,
    /// Why, in a sentence.
    pub message: String,
    /// What to do.
    pub act: Act,
    /// When to look again, if nothing else happens.
    pub wake: Option<Timestamp>,
}

/// What a rollback still has to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Back {
    /// Vehicles that can be told to go back.
    pub ready: usize,
    /// Vehicles that are on their way back.
    pub returning: usize,
    /// Vehicles that are away, and waited for.
    pub awaited: usize,
}

/// Everything that a decision needs.
pub struct Case<'a> {
    /// What is asked for.
    pub spec: &'a RolloutSpec,
    /// The same, read.
    pub terms: &'a Terms,
    /// Where the rollout was.
    pub status: &'a RolloutStatus,
    /// Whether that is about the spec of now.
    pub is_observed: bool,
    /// Where vehicles are.
    pub tally: &'a Tally<'a>,
    /// What a rollback would have to do.
    pub back: Back,
    /// The time.
    pub now: Timestamp,
}

impl Case<'_> {
    /// Decides.
    #[must_use]
    pub fn decide(&self) -> Decision {
        let was = |course: Course| self.is_observed && self.status.phase.as_deref() == Some(course.word());
        if self.spec.rollback || was(Course::RollingBack) || was(Course::RolledBack) {
            return self.roll_back("the spec asks for it".to_owned());
        }
        let counts = &self.tally.counts;
        if counts.eligible == 0 && self.tally.superseded > 0 {
            return self.at(Course::Superseded, "Superseded", "younger rollouts have all of its vehicles".to_owned());
        }
        if counts.eligible == 0 && counts.blocked == 0 {
            return self.at(Course::Pending, "NoVehicles", "it is about no vehicle".to_owned());
        }
        if was(Course::Paused)
            && let Some((reason, message)) = self.kept_pause()
        {
            return self.at(Course::Paused, reason, message);
        }
        if let Some(message) = self.too_many_failures() {
            return self.fail(TOO_MANY_FAILURES, message);
        }
        if self.spec.paused {
            return self.at(Course::Paused, PAUSED, "the spec says so".to_owned());
        }
        self.climb()
    }

    /// Goes up as many steps as are done.
    fn climb(&self) -> Decision {
        let total = self.terms.steps.len();
        let known = usize::try_from(self.status.step).unwrap_or_default();
        let mut step = known.clamp(1, total);
        let mut step_time =
            self.status.step_time.as_ref().map(|time| time.0).filter(|_| step == known).unwrap_or(self.now);
        let mut reached_time = self.status.reached_time.as_ref().map(|time| time.0).filter(|_| step == known);
        loop {
            let stair = &self.terms.steps[step - 1];
            let base = Decision { step, step_time: Some(step_time), ..self.at(Course::Progressing, "", String::new()) };
            if stair.approve && self.spec.approved_step < i64::try_from(step).unwrap_or(i64::MAX) {
                let message = format!("step {step} begins when approvedStep is {step}");
                let act = if step > 1 { Act::Release(step - 2) } else { Act::Nothing };
                return Decision { course: Course::AwaitingApproval, reason: "Approval", message, act, ..base };
            }
            if !self.is_reached(step) {
                return self.progress(step, base);
            }
            let reached = reached_time.unwrap_or(self.now);
            let base = Decision { reached_time: Some(reached), act: Act::Release(step - 1), ..base };
            if step == total {
                return self.end(base);
            }
            let soaked = later(reached, stair.soak);
            let is_promoted = self.spec.promoted_step >= i64::try_from(step).unwrap_or(i64::MAX);
            if self.now < soaked && !is_promoted {
                let message = format!("step {step} soaks until {soaked}");
                return Decision { course: Course::Soaking, reason: "Soak", message, wake: Some(soaked), ..base };
            }
            (step, step_time, reached_time) = (step + 1, self.now, None);
        }
    }

    /// A step that is under way.
    fn progress(&self, step: usize, base: Decision) -> Decision {
        let group = self.tally.steps[step - 1];
        let total = self.terms.steps.len();
        let is_open = self.tally.is_open(&self.terms.steps, step - 1);
        if !is_open && group.in_progress == 0 && self.is_short(step) {
            let (confirmed, ended) = (group.confirmed, group.confirmed + group.failed);
            let message = format!("{confirmed} of {ended} have confirmed, and nobody is on the way");
            return self.fail(TOO_FEW_SUCCEEDED, message);
        }
        let deadline = self.terms.step_deadline.and_then(|span| Some(later(base.step_time?, span)));
        if let Some(deadline) = deadline.filter(|deadline| self.now >= *deadline) {
            return self.fail(STEP_DEADLINE, format!("step {step} was to be done at {deadline}"));
        }
        let (reason, message) = match is_open || group.in_progress > 0 {
            true => ("Step", format!("step {step} of {total}: {} of {} have confirmed", group.confirmed, group.told)),
            false => ("Offline", format!("step {step} of {total}: none of its vehicles can be reached")),
        };
        let (reason, message) = match self.stuck(step) {
            Some((reason, why)) => (reason, format!("step {step} of {total}: {why}")),
            None => (reason, message),
        };
        let base = Decision { reason, message, wake: deadline, act: Act::Release(step - 1), ..base };
        match &self.terms.window {
            Some(window) if is_open && !window.contains(self.now) => {
                let opens = window.opens_at(self.now);
                let when = opens.map_or("never".to_owned(), |opens| opens.to_string());
                let message = format!("{}; its window opens again: {when}", base.message);
                let wake = [opens, deadline].into_iter().flatten().min();
                Decision { reason: "Window", message, act: Act::Nothing, wake, ..base }
            }
            _ => base,
        }
    }

    /// Why nobody of a step is told, where neither time nor its vehicles change that.
    fn stuck(&self, step: usize) -> Option<(&'static str, String)> {
        let (terms, tally) = (self.terms, self.tally);
        let group = tally.steps[step - 1];
        let limit = terms.steps[step - 1].limit;
        if group.told == 0 && group.eligible > 0 && limit.is_some_and(|limit| limit.of(group.eligible) == 0) {
            return Some((NO_BUDGET, "nobody is told, because its limit is 0".to_owned()));
        }
        let mut open = tally.open(&terms.steps, step - 1).peekable();
        open.peek()?;
        if terms.concurrent.of(1) == 0 {
            return Some((NO_BUDGET, "nobody is told, because maxConcurrent is 0".to_owned()));
        }
        if terms.group.as_ref().is_some_and(|(_, share)| share.of(1) == 0) {
            return Some((NO_BUDGET, "nobody is told, because maxUnavailable is 0".to_owned()));
        }
        let budget = Budget::new(terms, tally, &tally.unconfirmed);
        if tally.counts.in_progress > 0 || open.any(|vehicle| budget.has_place(vehicle)) {
            return None;
        }
        let holders = tally.unconfirmed.total;
        let who = "that are offline, fail again and again, or go back";
        Some((NO_PLACE, format!("the others wait for places, which {holders} have {who}")))
    }

    /// The last step is reached.
    fn end(&self, base: Decision) -> Decision {
        let (counts, tally) = (&self.tally.counts, self.tally);
        if counts.in_progress > 0 {
            let message = format!("{} are still on their way", counts.in_progress);
            return Decision { reason: "Stragglers", message, ..base };
        }
        if tally.awaited > 0 {
            let message = format!("all that can be reached are done; {} are offline", counts.offline);
            return Decision { reason: "Offline", message, wake: tally.patience_ends, ..base };
        }
        let mut message = format!("{} run it", counts.succeeded);
        for (count, what) in
            [(counts.failed, "failed"), (counts.offline, "are offline"), (counts.blocked, "are blocked")]
        {
            if count > 0 {
                message = format!("{message}, {count} {what}");
            }
        }
        Decision { course: Course::Completed, reason: "Completed", message, ..base }
    }

    /// Whether all of a step's vehicles that can be reached were told, and enough of them have confirmed. A step of which nobody can be
    /// reached has shown nothing, so the next one waits.
    fn is_reached(&self, step: usize) -> bool {
        let group = self.tally.steps[step - 1];
        let has_shown = group.told > 0 || group.eligible == 0 || step == self.terms.steps.len();
        has_shown && !self.tally.is_open(&self.terms.steps, step - 1) && !self.is_short(step)
    }

    /// Whether too few of a step's vehicles that were told and can be reached have confirmed. Those of other steps prove nothing for them.
    fn is_short(&self, step: usize) -> bool {
        let group = self.tally.steps[step - 1];
        let reachable = group.confirmed + group.failed + group.in_progress;
        group.confirmed * 100 < self.terms.threshold * reachable
    }

    /// Why a pause stays until the spec changes.
    fn kept_pause(&self) -> Option<(&'static str, String)> {
        let said = self.status.conditions.iter().find(|said| said.type_ == "Paused" && said.status == "True")?;
        let reasons = [TOO_MANY_FAILURES, TOO_FEW_SUCCEEDED, STEP_DEADLINE];
        let reason = reasons.into_iter().find(|reason| *reason == said.reason)?;
        Some((reason, said.message.clone()))
    }

    fn too_many_failures(&self) -> Option<String> {
        let counts = &self.tally.counts;
        let (failed, ended) = (counts.failed, counts.failed + counts.succeeded);
        let is_too_many = match self.terms.max_failures {
            Share::Number(most) => failed > i64::try_from(most).unwrap_or(i64::MAX),
            Share::Percent(most) => {
                ended >= i64::try_from(self.terms.min_samples).unwrap_or(i64::MAX)
                    && lower_bound(failed, ended) * 100.0 > most as f64
            }
        };
        is_too_many.then(|| format!("{failed} of {ended} failed"))
    }

    fn fail(&self, reason: &'static str, message: String) -> Decision {
        match self.spec.on_failure {
            OnFailure::Pause => self.at(Course::Paused, reason, message),
            OnFailure::Rollback => self.roll_back(message),
        }
    }

    fn roll_back(&self, why: String) -> Decision {
        let Back { ready, returning, awaited } = self.back;
        if ready + returning + awaited == 0 {
            return self.at(Course::RolledBack, "RolledBack", "all that can be reached are back".to_owned());
        }
        let message = match self.status.conditions.iter().find(|said| said.type_ == "Progressing") {
            Some(said) if self.is_observed && said.reason == "RollingBack" => said.message.clone(),
            _ => why,
        };
        let wake = self.tally.patience_ends;
        Decision { act: Act::TakeBack, wake, ..self.at(Course::RollingBack, "RollingBack", message) }
    }

    /// A course without anything to do, at the step where it was.
    fn at(&self, course: Course, reason: &'static str, message: String) -> Decision {
        Decision {
            course,
            step: usize::try_from(self.status.step).unwrap_or_default().max(1),
            step_time: self.status.step_time.as_ref().map(|time| time.0).or(Some(self.now)),
            reached_time: None,
            reason,
            message,
            act: Act::Nothing,
            wake: None,
        }
    }
}

/// The share of failures that is surely reached (Wilson's lower bound): one of one is much, one of ten may be chance.
fn lower_bound(failed: i64, ended: i64) -> f64 {
    if ended <= 0 {
        return 0.0;
    }
    let (n, p) = (ended as f64, failed as f64 / ended as f64);
    let (square, root) = (Z * Z, (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt());
    ((p + square / (2.0 * n) - Z * root) / (1.0 + square / n)).max(0.0)
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
