//! What the status of a vehicle should say, and when to look again: from its spec, its status, its firmware and the time.
//!
//! ```text
//! Pending ─▶ UpToDate ⇄ Waiting ─▶ Downloading ─▶ Verifying ─▶ Installing ─▶ Rebooting ─▶ Confirming ─▶ UpToDate
//!                         ▲             any of these ─▶ RetryBackoff ─┐  └────▶ RollingBack ─▶ RetryBackoff or Failed
//!                         └───────────────────────────────────────────┘
//! ```

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use setpoint_fleet_protocol::{Outcome, Stage, TaskId, Window, reason};

use super::back_off;
use crate::kinds::{Firmware, Progress, Retry, Task};
use crate::phase::{self, Phase, gate};
use crate::version;
use crate::view::VehicleView;

/// A task of which nothing is heard for so long has failed.
pub const STAGE_DEADLINE: SignedDuration = SignedDuration::from_mins(10);

/// Stages are written down once a task has taken this long: those of a quick one would be past before anybody reads them, and each costs
/// a write.
pub const STAGES_SHOWN_AFTER: SignedDuration = SignedDuration::from_secs(15);

/// A vehicle with a task may be away for so long before that is said.
pub const MISSED_AFTER: SignedDuration = SignedDuration::from_secs(60);

/// How often a vehicle may be unwell with a firmware.
pub const UNHEALTHY_MAX: i64 = 2;

/// Why a task is given up of which nothing is heard.
pub const NO_PROGRESS: &str = "NoProgress";

/// What the status should say, and when to look again.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Where it is.
    pub phase: Phase,
    /// The task that it has or had.
    pub task: Option<Task>,
    /// How attempts went.
    pub retry: Option<Retry>,
    /// `Updating`: the stage, if it is.
    pub updating: Option<Stage>,
    /// `Blocked`: the gate and what it waits for, if something holds it.
    pub blocked: Option<(String, String)>,
    /// What is to be said about all of this.
    pub message: String,
    /// When to look again, if nothing else happens.
    pub wake: Option<Timestamp>,
}

/// Decides.
#[must_use]
pub fn plan(vehicle: &VehicleView, firmware: Option<&Firmware>, now: Timestamp) -> Plan {
    Case { vehicle, firmware, now }.plan()
}

struct Case<'a> {
    vehicle: &'a VehicleView,
    firmware: Option<&'a Firmware>,
    now: Timestamp,
}

impl Case<'_> {
    fn plan(&self) -> Plan {
        let running = self.vehicle.running();
        let Some(wanted) = self.vehicle.wanted() else {
            return match running {
                Some(version) => self.up_to_date(format!("it keeps {version}: its spec names no version")),
                None => self.resting(Phase::Pending, "its spec names no version, and nothing was heard of it"),
            };
        };
        if let Some(plan) = self.finish_other(wanted) {
            return plan;
        }
        if running == Some(wanted) {
            return self.up_to_date(format!("it runs {wanted}"));
        }
        let Some((firmware, image)) = self.firmware.and_then(|firmware| Some((firmware, firmware.spec.image()?)))
        else {
            let retry = self.vehicle.status.retry.as_deref().cloned();
            return self.waiting(gate::NO_FIRMWARE, format!("there is no firmware {wanted}"), None, retry);
        };
        if !firmware.spec.hardware_ids.iter().any(|id| **id == *self.vehicle.spec.hardware_id) {
            let why = format!("firmware {wanted} is not for hardware {}", self.vehicle.spec.hardware_id);
            return self.hopeless(reason::WRONG_HARDWARE, why);
        }
        match self.current_task(wanted, &image.sha256) {
            Some(task) => self.follow(task, firmware),
            None => self.begin(self.first_attempt(&image.sha256), None, firmware),
        }
    }

    /// The number of a first attempt: 1, unless the vehicle knows a task of that name.
    fn first_attempt(&self, digest: &str) -> i64 {
        let id = TaskId::of(&self.vehicle.metadata.uid, self.vehicle.metadata.generation, digest);
        let known = self.vehicle.status.task.as_deref().filter(|task| task.id == id.as_str());
        known.map_or(1, |task| task.attempt + 1)
    }

    /// What is being installed is finished, whatever is wanted by now.
    fn finish_other(&self, wanted: &str) -> Option<Plan> {
        let task = self.vehicle.status.task.as_deref()?;
        let progress = self.progress_of(task)?;
        let is_other = task.firmware_version != wanted || self.vehicle.spec.paused;
        let stage = phase::stage(&progress.stage);
        if !is_other || outcome(progress) != Outcome::Open || stage.may_be_abandoned() || self.is_overdue(task) {
            return None;
        }
        let message = format!("it finishes the installation of {} first", task.firmware_version);
        Some(self.under_way(task, stage, message))
    }

    /// The task that is about what is wanted now. One that failed for good before the spec changed is none any more.
    fn current_task(&self, wanted: &str, digest: &str) -> Option<&Task> {
        let status = &self.vehicle.status;
        let is_given_up = status.phase == Some(Phase::Failed) && !self.vehicle.has_failed();
        let task = status.task.as_deref().filter(|_| !is_given_up)?;
        (task.firmware_version == wanted && task.digest == digest).then_some(task)
    }

    fn follow(&self, task: &Task, firmware: &Firmware) -> Plan {
        let progress = self.progress_of(task);
        match progress.map_or(Outcome::Open, outcome) {
            // It had it, and has it no more: somebody put something else on it.
            Outcome::Succeeded => self.begin(task.attempt + 1, None, firmware),
            Outcome::Failed | Outcome::RolledBack => {
                let (why, message) = progress.map_or(("", ""), |progress| (&progress.reason, &progress.message));
                self.after_failure(task, why, message, firmware)
            }
            Outcome::Open => self.go_on(task, progress, firmware),
        }
    }

    fn go_on(&self, task: &Task, progress: Option<&Progress>, firmware: &Firmware) -> Plan {
        let is_retried = self.vehicle.status.retry.as_deref().is_some_and(|retry| retry.attempt == task.attempt);
        if is_retried || self.is_overdue(task) {
            let minutes = STAGE_DEADLINE.as_secs() / 60;
            return self.after_failure(
                task,
                NO_PROGRESS,
                &format!("nothing was heard of it for {minutes} minutes"),
                firmware,
            );
        }
        let stage = progress.map_or(Stage::Idle, |progress| phase::stage(&progress.stage));
        if self.vehicle.spec.paused {
            return self.waiting(gate::PAUSED, "its spec says paused".to_owned(), None, None);
        }
        self.under_way(task, stage, on_its_way(&task.firmware_version))
    }

    /// A task that goes on: where it is, and when it is given up.
    fn under_way(&self, task: &Task, stage: Stage, message: String) -> Plan {
        let gate = self.progress_of(task).map_or("", |progress| &progress.gate);
        let shown_after = task.issued_at.0.saturating_add(STAGES_SHOWN_AFTER).unwrap_or(Timestamp::MAX);
        let is_shown = self.now >= shown_after;
        let stage = match is_shown || !gate.is_empty() {
            true => stage,
            false => Stage::Downloading,
        };
        let (phase, blocked, wake) = if let Some(missed) = self.missed_at() {
            let is_missed = self.now >= missed;
            let blocked = is_missed.then(|| (gate::OFFLINE.to_owned(), "it is not connected".to_owned()));
            (Phase::of(stage), blocked, (!is_missed).then_some(missed))
        } else if gate.is_empty() {
            (Phase::of(stage), None, Some(self.deadline(task)))
        } else {
            (Phase::Waiting, Some((gate.to_owned(), "the vehicle itself waits for it".to_owned())), None)
        };
        let wake = if is_shown { wake } else { wake.map(|wake| wake.min(shown_after)).or(Some(shown_after)) };
        let retry = self.vehicle.status.retry.as_deref().cloned();
        Plan { phase, task: Some(task.clone()), retry, updating: Some(stage), blocked, message, wake }
    }

    fn after_failure(&self, task: &Task, why: &str, message: &str, firmware: &Firmware) -> Plan {
        let known = self.vehicle.status.retry.as_deref();
        let retry = match known.filter(|retry| retry.attempt == task.attempt) {
            Some(retry) => retry.clone(),
            None => self.noted(task, why, message, known),
        };
        let Some(next) = retry.next_time.as_ref().map(|time| time.0) else {
            let message = format!("{}: {}", retry.last_reason, retry.last_message);
            return Plan { task: Some(task.clone()), retry: Some(retry), ..self.resting(Phase::Failed, &message) };
        };
        if self.now >= next {
            return self.begin(task.attempt + 1, Some(retry), firmware);
        }
        let message = format!("{}: {}; it is tried again at {next}", retry.last_reason, retry.last_message);
        let resting = self.resting(Phase::RetryBackoff, &message);
        Plan { task: Some(task.clone()), retry: Some(retry), wake: Some(next), ..resting }
    }

    /// A failure that is new: whether and when it is tried again.
    fn noted(&self, task: &Task, why: &str, message: &str, known: Option<&Retry>) -> Retry {
        let is_unhealthy = matches!(why, reason::HEALTH_CHECK_FAILED | reason::BOOT_FAILED);
        let failures = known.map_or(0, |retry| retry.failures).saturating_add(1);
        let unhealthy = known.map_or(0, |retry| retry.unhealthy).saturating_add(i64::from(is_unhealthy));
        let is_final = reason::is_permanent(why) || is_unhealthy && unhealthy >= UNHEALTHY_MAX;
        let next = back_off::next_time(&self.vehicle.metadata.uid, failures, self.now);
        Retry {
            attempt: task.attempt,
            failures,
            unhealthy,
            next_time: (!is_final).then_some(Time(next)),
            last_reason: if why.is_empty() { "Unknown".to_owned() } else { why.to_owned() },
            last_message: if message.is_empty() { "the vehicle didn't say why".to_owned() } else { message.to_owned() },
        }
    }

    /// Hands out a task, unless a gate holds the vehicle.
    fn begin(&self, attempt: i64, retry: Option<Retry>, firmware: &Firmware) -> Plan {
        let (vehicle, spec) = (self.vehicle, &firmware.spec);
        let hold = |gate: &str, why: String, wake: Option<Timestamp>| self.waiting(gate, why, wake, retry.clone());
        if vehicle.spec.paused {
            return hold(gate::PAUSED, "its spec says paused".to_owned(), None);
        }
        let quarantined = firmware.status.as_ref().map_or(&[][..], |status| &status.quarantined_for);
        if quarantined.iter().any(|hardware| **hardware == *vehicle.spec.hardware_id) {
            let why = format!("others of hardware {} were unwell with {}", vehicle.spec.hardware_id, spec.version);
            return hold(gate::QUARANTINED, why, None);
        }
        if let (Some(min), Some(running)) = (&spec.min_from_version, vehicle.running())
            && version::compare(running, min).is_lt()
        {
            return hold(
                gate::TOO_OLD,
                format!("{} can't be installed over {running}, only over {min} or later", spec.version),
                None,
            );
        }
        if !vehicle.is_connected() {
            return hold(gate::OFFLINE, "it is not connected".to_owned(), None);
        }
        if let Some((why, wake)) = self.closed_window() {
            return hold(gate::WINDOW, why, wake);
        }
        let task = self.task(attempt, firmware);
        let message = on_its_way(&spec.version);
        let wake = task.issued_at.0.saturating_add(STAGES_SHOWN_AFTER).unwrap_or(Timestamp::MAX);
        Plan {
            phase: Phase::Downloading,
            task: Some(task),
            retry,
            updating: Some(Stage::Downloading),
            blocked: None,
            message,
            wake: Some(wake),
        }
    }

    fn task(&self, attempt: i64, firmware: &Firmware) -> Task {
        let digest = firmware.spec.image().map(|image| image.sha256.clone()).unwrap_or_default();
        let (uid, generation) = (&self.vehicle.metadata.uid, self.vehicle.metadata.generation);
        let now = Timestamp::from_second(self.now.as_second()).unwrap_or(self.now);
        // A further attempt is one of the same task, also if something else in the spec has changed.
        let earlier = self.vehicle.status.task.as_deref().filter(|task| attempt > 1 && task.digest == digest);
        Task {
            id: earlier.map_or_else(|| TaskId::of(uid, generation, &digest).to_string(), |task| task.id.clone()),
            attempt,
            generation: earlier.map_or(generation, |task| task.generation),
            firmware_version: firmware.spec.version.clone(),
            digest,
            from_version: self.vehicle.running().map(str::to_owned),
            issued_at: Time(now),
            deadline: Time(now.saturating_add(STAGE_DEADLINE).unwrap_or(Timestamp::MAX)),
        }
    }

    /// Why it may not download at this hour, and when it may.
    fn closed_window(&self) -> Option<(String, Option<Timestamp>)> {
        let text = self.vehicle.spec.update_policy.download_window.as_deref()?;
        match Window::parse(text) {
            Ok(window) if window.contains(self.now) => None,
            Ok(window) => match window.opens_at(self.now) {
                Some(opens) => Some((format!("it may download again at {opens}"), Some(opens))),
                None => Some((format!("the window {text:?} never opens"), None)),
            },
            Err(error) => Some((error.to_string(), None)),
        }
    }

    /// Whether nothing was heard of a task for too long. Of one that waits for a gate, or is offline, nothing has to be heard.
    fn is_overdue(&self, task: &Task) -> bool {
        let is_held = self.progress_of(task).is_some_and(|progress| !progress.gate.is_empty());
        self.vehicle.is_connected() && !is_held && self.now >= self.deadline(task)
    }

    fn deadline(&self, task: &Task) -> Timestamp {
        let later = |time: Timestamp| time.saturating_add(STAGE_DEADLINE).unwrap_or(Timestamp::MAX);
        let heard = self.progress_of(task).and_then(|progress| progress.time.as_ref()).map(|time| later(time.0));
        let connected = self.vehicle.status.conditions.connected.map(|(_, since)| later(since));
        [heard, connected].into_iter().flatten().fold(task.deadline.0, Timestamp::max)
    }

    fn progress_of(&self, task: &Task) -> Option<&Progress> {
        let progress = self.vehicle.status.progress.as_deref()?;
        (progress.task_id == task.id && progress.attempt == task.attempt).then_some(progress)
    }

    fn up_to_date(&self, message: String) -> Plan {
        // The task that led here stays, because it says from where; any other is taken back.
        let led_here = |task: &&Task| Some(&*task.firmware_version) == self.vehicle.running();
        let task = self.vehicle.status.task.as_deref().filter(led_here).cloned();
        Plan { task, ..self.resting(Phase::UpToDate, &message) }
    }

    /// A gate holds it. The last task stays if it is about what is wanted, so that attempts are counted on; else the vehicle is told that
    /// there is none.
    fn waiting(&self, gate: &str, why: String, wake: Option<Timestamp>, retry: Option<Retry>) -> Plan {
        let phase = if self.vehicle.running().is_some() { Phase::Waiting } else { Phase::Pending };
        let is_wanted = |task: &&Task| Some(&*task.firmware_version) == self.vehicle.wanted() && gate != gate::PAUSED;
        let is_given_up = self.vehicle.status.phase == Some(Phase::Failed) && !self.vehicle.has_failed();
        let task = self.vehicle.status.task.as_deref().filter(is_wanted).filter(|_| !is_given_up).cloned();
        let retry = retry.filter(|_| task.is_some());
        Plan { task, retry, blocked: Some((gate.to_owned(), why.clone())), wake, ..self.resting(phase, &why) }
    }

    /// When a vehicle that is not connected is missed: restarts are quick, and not worth a word.
    fn missed_at(&self) -> Option<Timestamp> {
        match self.vehicle.status.conditions.connected {
            Some((true, _)) => None,
            Some((false, since)) => Some(since.saturating_add(MISSED_AFTER).unwrap_or(Timestamp::MAX)),
            None => Some(Timestamp::MIN),
        }
    }

    /// What no attempt can mend.
    fn hopeless(&self, why: &str, message: String) -> Plan {
        let said = format!("{why}: {message}");
        let retry = Retry {
            attempt: 0,
            failures: 0,
            unhealthy: 0,
            next_time: None,
            last_reason: why.to_owned(),
            last_message: message,
        };
        Plan { retry: Some(retry), ..self.resting(Phase::Failed, &said) }
    }

    fn resting(&self, phase: Phase, message: &str) -> Plan {
        Plan { phase, task: None, retry: None, updating: None, blocked: None, message: message.to_owned(), wake: None }
    }
}

fn on_its_way(version: &str) -> String {
    format!("it is on its way to {version}")
}

fn outcome(progress: &Progress) -> Outcome {
    let all = [Outcome::Succeeded, Outcome::Failed, Outcome::RolledBack];
    all.into_iter().find(|outcome| outcome.word() == progress.result).unwrap_or(Outcome::Open)
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
