//! The steps of a task, one after another.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use setpoint_fleet_protocol::metadata::{About, Floor};
use setpoint_fleet_protocol::{HealthCheck, Outcome, reason};

use super::{Action, Agent, Done, FetchError, later};
use crate::gate::{self, Held};
use crate::{Gate, Last, Running, Step, Task};

/// How often a gate that doesn't say when it opens is looked at again.
const GATE_PAUSE: Duration = Duration::from_secs(60);

/// The pause after a download that broke off, doubled with each in a row.
const BROKEN_PAUSE: Duration = Duration::from_secs(2);
/// The longest of these pauses.
const BROKEN_PAUSE_MAX: Duration = Duration::from_secs(60);
/// Downloads that may break off in a row, without a byte and with a connection to the hub, before the task has failed.
const BROKEN_MAX: u8 = 6;

/// The pause before something is tried again that can't be given up any more.
const STUCK_PAUSE: Duration = Duration::from_secs(5);

/// The name of the check that a connection to the hub passes.
pub(super) const HUB_CHECK: &str = "hub";

/// How long a vehicle may take to reach the hub with new firmware that has no checks of its own.
const HUB_TIMEOUT: u32 = 150;

impl Agent {
    /// Goes on to a step, durably, and begins it.
    pub(super) fn enter(&mut self, step: Step, now: Timestamp, out: &mut Vec<Action>) {
        if let Some(task) = &mut self.journal.task {
            task.step = step.into();
            task.restarts += u32::from(step == Step::Restart);
        }
        (self.gate, self.wakes_at) = (None, None);
        out.push(Action::Keep);
        self.begin(now, out);
    }

    /// Does what the present step asks for; again, if it was begun before.
    pub(super) fn begin(&mut self, now: Timestamp, out: &mut Vec<Action>) {
        let Some(task) = &self.journal.task else { return };
        let desired = &task.desired;
        match task.step() {
            Step::Judge => return self.judge(now, out),
            Step::Download => match gate::before_download(desired, &self.facts, now) {
                Ok(None) => self.fetch(false, out),
                held => return self.hold(held, now, out),
            },
            Step::Check => {
                let ticket = self.ticket();
                out.push(Action::Check(ticket));
            }
            Step::Ready => match gate::before_install(desired, &self.facts, now) {
                Ok(None) => return self.enter(Step::Install, now, out),
                held => return self.hold(held, now, out),
            },
            Step::Install => {
                let ticket = self.ticket();
                out.push(Action::Install(ticket));
            }
            Step::Installed => match gate::before_restart(desired, &self.facts) {
                Ok(None) => return self.enter(Step::Arm, now, out),
                held => return self.hold(held, now, out),
            },
            Step::Arm => {
                let ticket = self.ticket();
                out.push(Action::Arm(ticket));
            }
            Step::Restart | Step::Return => {
                self.say(out);
                out.push(Action::Restart);
                return;
            }
            Step::Confirm => return self.confirm(now, out),
            Step::Commit => {
                let ticket = self.ticket();
                out.push(Action::Commit(ticket));
            }
            Step::Disarm => {
                let ticket = self.ticket();
                out.push(Action::Disarm(ticket));
            }
        }
        self.say(out);
    }

    /// Reads what was released and assigned, before a byte is fetched.
    fn judge(&mut self, now: Timestamp, out: &mut Vec<Action>) {
        let Some(task) = &self.journal.task else { return };
        if let Some(trust) = &self.identity.trust {
            let desired = &task.desired;
            let about = About {
                vehicle: &self.identity.vehicle,
                hardware_id: &self.identity.hardware_id,
                target: &desired.target,
                digest: &desired.digest,
                now,
            };
            let floor = Floor {
                assignment_version: self.journal.assignment_version,
                release_counter: self.journal.running.as_ref().map_or(0, |running| running.release_counter),
            };
            match trust.judge(&desired.released, &desired.assigned, &about, &floor) {
                Err(refusal) => return self.end(Outcome::Failed, refusal.reason(), &refusal.to_string(), now, out),
                Ok((target, _)) if target.length != desired.size => {
                    let message = format!("{} bytes were released, and {} are offered", target.length, desired.size);
                    return self.end(Outcome::Failed, reason::LENGTH_MISMATCH, &message, now, out);
                }
                Ok((_, floor)) => self.journal.assignment_version = floor.assignment_version,
            }
        }
        self.enter(Step::Download, now, out);
    }

    /// Waits for a gate; or fails, if the policy that names it can't be read.
    fn hold(&mut self, held: Result<Option<Held>, String>, now: Timestamp, out: &mut Vec<Action>) {
        match held {
            Ok(None) => {}
            Ok(Some((gate, opens_at))) => {
                self.wake_at(opens_at.unwrap_or_else(|| later(now, GATE_PAUSE)));
                if self.gate.replace(gate) != Some(gate) {
                    self.say(out);
                }
            }
            Err(why) => self.end(Outcome::Failed, reason::GATE_INVALID, &why, now, out),
        }
    }

    fn fetch(&mut self, anew: bool, out: &mut Vec<Action>) {
        self.gate = None;
        let ticket = self.ticket();
        out.push(Action::Fetch { ticket, anew });
    }

    /// Bytes have come.
    pub(super) fn fetched(&mut self, ticket: u32, have: u64, out: &mut Vec<Action>) {
        let Some(task) = self.journal.task.as_ref().filter(|_| ticket == self.pending) else { return };
        self.broken = 0;
        let size = task.desired.size.max(1);
        let percent = u8::try_from(have.min(size).saturating_mul(100) / size).unwrap_or(100);
        // Tens are enough for those who watch.
        let told = percent / 10 != self.percent / 10;
        self.percent = percent;
        if told {
            self.say(out);
        }
    }

    /// An action has ended.
    pub(super) fn done(&mut self, done: Done, now: Timestamp, out: &mut Vec<Action>) {
        let Some(step) = self.step_now() else { return };
        match (step, done) {
            (Step::Download, Done::Fetch(Ok(()))) => {
                self.percent = 100;
                self.enter(Step::Check, now, out);
            }
            (Step::Download, Done::Fetch(Err(error))) => self.fetch_failed(error, now, out),
            (Step::Check, Done::Check(found)) => self.checked(found, now, out),
            (Step::Install, Done::Install(Ok(()))) => self.enter(Step::Installed, now, out),
            (Step::Install, Done::Install(Err(why))) | (Step::Arm, Done::Arm(Err(why))) => {
                self.end(Outcome::Failed, reason::INSTALL_FAILED, &why, now, out);
            }
            (Step::Arm, Done::Arm(Ok(()))) => self.enter(Step::Restart, now, out),
            (Step::Confirm, Done::Probe(Ok(()))) => {
                self.confirming = self.confirming.map(|(since, _)| (since, true));
                self.weigh(now, out);
            }
            (Step::Confirm, Done::Probe(Err(why))) => self.unwell(reason::HEALTH_CHECK_FAILED, &why, now, out),
            (Step::Commit, Done::Commit(Ok(()))) => self.end(Outcome::Succeeded, "", "", now, out),
            (Step::Disarm, Done::Disarm(Ok(()))) => self.enter(Step::Return, now, out),
            // The slot table can't be written: nothing but another try helps, and the boot counter ends it if that fails.
            (Step::Commit, Done::Commit(Err(_))) | (Step::Disarm, Done::Disarm(Err(_))) => {
                self.wake_in(now, STUCK_PAUSE);
            }
            // An answer to what was asked before: the present step has its own.
            _ => {}
        }
    }

    fn fetch_failed(&mut self, error: FetchError, now: Timestamp, out: &mut Vec<Action>) {
        let end = |agent: &mut Agent, reason, message: &str, out: &mut Vec<Action>| {
            agent.end(Outcome::Failed, reason, message, now, out);
        };
        match error {
            FetchError::NotFound(why) => end(self, reason::ARTIFACT_NOT_FOUND, &why, out),
            FetchError::TooLong => end(self, reason::LENGTH_MISMATCH, "the artifact is longer than it should be", out),
            FetchError::TooShort => {
                end(self, reason::LENGTH_MISMATCH, "the artifact is shorter than it should be", out)
            }
            FetchError::NoSpace => self.hold(Ok(Some((Gate::DiskSpace, None))), now, out),
            FetchError::Busy(pause) => {
                self.gate = Some(Gate::DownloadBudget);
                self.wake_in(now, pause);
                self.say(out);
            }
            FetchError::Broken(why) if self.connected_since.is_some() && self.broken >= BROKEN_MAX => {
                end(self, reason::DOWNLOAD_FAILED, &why, out);
            }
            FetchError::Broken(_) => {
                let pause = BROKEN_PAUSE.saturating_mul(1 << self.broken.min(6)).min(BROKEN_PAUSE_MAX);
                self.wake_in(now, pause);
                match self.connected_since {
                    Some(_) => self.broken += 1,
                    None => self.gate = Some(Gate::Offline),
                }
            }
        }
    }

    fn checked(&mut self, found: Result<(u64, String), String>, now: Timestamp, out: &mut Vec<Action>) {
        let Some(task) = &mut self.journal.task else { return };
        let desired = &task.desired;
        match found {
            Ok((length, digest)) if length == desired.size && digest == desired.digest => {
                self.enter(Step::Ready, now, out);
            }
            // Once: bytes get lost on the way, and a second time they don't by chance.
            Ok(_) if !task.refetched => {
                task.refetched = true;
                task.step = Step::Download.into();
                out.push(Action::Keep);
                self.fetch(true, out);
                self.say(out);
            }
            Ok((length, digest)) => {
                let message = format!("{length} bytes with the digest {digest} came, not what was released");
                self.end(Outcome::Failed, reason::DIGEST_MISMATCH, &message, now, out);
            }
            Err(why) => self.end(Outcome::Failed, reason::DOWNLOAD_FAILED, &why, now, out),
        }
    }

    /// The new firmware has started: it proves that it is well.
    fn confirm(&mut self, now: Timestamp, out: &mut Vec<Action>) {
        let has_commands = self.checks().any(|check| check.name != HUB_CHECK);
        self.confirming = Some((now, !has_commands));
        if has_commands {
            let ticket = self.ticket();
            out.push(Action::Probe(ticket));
        }
        self.say(out);
        self.weigh(now, out);
    }

    /// Whether it is well by now, or too late.
    pub(super) fn weigh(&mut self, now: Timestamp, out: &mut Vec<Action>) {
        let Some((since, is_probed)) = self.confirming else { return };
        let Some(hub) = self.hub_check() else {
            return if is_probed {
                self.enter(Step::Commit, now, out)
            };
        };
        let stable = Duration::from_secs(hub.stable_seconds.into());
        let stable_at = self.connected_since.map(|connected| later(connected.max(since), stable));
        if is_probed && stable_at.is_some_and(|at| at <= now) {
            return self.enter(Step::Commit, now, out);
        }
        let limit = later(since, Duration::from_secs(u64::from(hub.timeout_seconds)) + stable);
        if limit <= now && is_probed {
            let message = format!("the hub was not reached within {} s", hub.timeout_seconds);
            return self.unwell(reason::HUB_UNREACHABLE, &message, now, out);
        }
        self.wake_at(stable_at.filter(|at| *at > now).map_or(limit, |at| at.min(limit)).max(soon(now)));
    }

    fn checks(&self) -> impl Iterator<Item = &HealthCheck> {
        self.journal.task.iter().flat_map(|task| &task.desired.health_checks)
    }

    /// What is asked of the connection to the hub: without any checks, that there is one.
    fn hub_check(&self) -> Option<HealthCheck> {
        if self.checks().next().is_none() {
            return Some(HealthCheck { name: HUB_CHECK.into(), timeout_seconds: HUB_TIMEOUT, stable_seconds: 0 });
        }
        self.checks().find(|check| check.name == HUB_CHECK).cloned()
    }

    fn unwell(&mut self, reason: &str, message: &str, now: Timestamp, out: &mut Vec<Action>) {
        if let Some(task) = &mut self.journal.task {
            (task.reason, task.message) = (reason.to_owned(), message.to_owned());
        }
        self.confirming = None;
        self.healthy = false;
        self.enter(Step::Disarm, now, out);
    }

    /// Ends the task, and goes on with what was asked for meanwhile.
    pub(super) fn end(&mut self, outcome: Outcome, reason: &str, message: &str, now: Timestamp, out: &mut Vec<Action>) {
        let Some(task) = self.journal.task.take() else { return };
        let Task { desired, .. } = *task;
        self.journal.last = Some(Box::new(Last::of(&desired, outcome, reason, message)));
        if outcome == Outcome::Succeeded {
            self.journal.running = Some(Running::of(&desired));
        }
        (self.gate, self.wakes_at, self.confirming, self.pending) = (None, None, None, 0);
        self.healthy = true;
        out.push(Action::Keep);
        self.say(out);
        if let Some(next) = self.next.take() {
            self.take(*next, now, out);
        }
    }
}

fn soon(now: Timestamp) -> Timestamp {
    now.saturating_add(SignedDuration::from_millis(1)).unwrap_or(Timestamp::MAX)
}
