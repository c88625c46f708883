//! A start, after whatever ended the process before.

use std::sync::Arc;

use jiff::Timestamp;
use setpoint_fleet_protocol::metadata::Trust;
use setpoint_fleet_protocol::{Outcome, reason};

use super::{Action, Agent, Identity};
use crate::slots::Boot;
use crate::{Facts, Journal, Step};

/// Reports that may have been sent since the journal was last kept: the next one counts on from beyond them.
const SEQ_JUMP: u64 = 1000;

/// Restarts for one task after which a vehicle that still starts from the slot before stays there: a boot loader that never takes the new
/// slot, and doesn't say that it gave it up, must not keep the vehicle restarting.
const RESTARTS_MAX: u32 = 3;

impl Agent {
    /// An agent that goes on from its journal, in the slot that it was started from.
    #[must_use]
    pub fn start(mut identity: Identity, mut journal: Journal, boot: Boot, now: Timestamp) -> (Agent, Vec<Action>) {
        journal.seq += SEQ_JUMP;
        // The root that was followed last; not one that the vehicle was given since in another way.
        if let Some(trust) = &identity.trust
            && let Ok(followed) = Trust::pinned(&journal.root)
            && followed.version() > trust.version()
        {
            identity.trust = Some(Arc::new(followed));
        }
        let mut agent = Agent {
            identity,
            journal,
            boot,
            facts: Facts::default(),
            gate: None,
            connected_since: None,
            wakes_at: None,
            speaks_at: None,
            pending: 0,
            last_ticket: 0,
            percent: 0,
            broken: 0,
            confirming: None,
            next: None,
            healthy: true,
        };
        let mut out = Vec::new();
        agent.resume(now, &mut out);
        agent.keep_speaking(now, &mut out);
        (agent, out)
    }

    fn resume(&mut self, now: Timestamp, out: &mut Vec<Action>) {
        let Some(task) = &self.journal.task else { return };
        let is_in_new_slot = self.boot.slot == task.slot();
        match task.step() {
            // The slot may have been armed before that could be kept, or been tried and given up by the boot loader.
            Step::Arm | Step::Restart if is_in_new_slot => self.enter(Step::Confirm, now, out),
            Step::Arm | Step::Restart | Step::Confirm | Step::Commit if self.boot.fell_back => {
                let message = "the new firmware did not stay up; the vehicle went back by itself";
                self.end(Outcome::RolledBack, reason::BOOT_FAILED, message, now, out);
            }
            Step::Restart if task.restarts >= RESTARTS_MAX => {
                let message = format!("after {} restarts the vehicle still starts from the slot before", task.restarts);
                self.end(Outcome::RolledBack, reason::BOOT_FAILED, &message, now, out);
            }
            Step::Restart => self.enter(Step::Arm, now, out),
            // Confirmed, but for the word of it.
            Step::Commit if is_in_new_slot => self.begin(now, out),
            Step::Confirm if is_in_new_slot => self.begin(now, out),
            Step::Disarm if is_in_new_slot => self.begin(now, out),
            // Armed, and still in the new slot: the restart didn't happen.
            Step::Return if is_in_new_slot => self.enter(Step::Disarm, now, out),
            Step::Disarm | Step::Return => {
                let (reason, message) = (task.reason.clone(), task.message.clone());
                self.end(Outcome::RolledBack, &reason, &message, now, out);
            }
            Step::Confirm | Step::Commit => {
                let message = "the vehicle was started from the slot before";
                self.end(Outcome::RolledBack, reason::BOOT_FAILED, message, now, out);
            }
            Step::Judge | Step::Download | Step::Check | Step::Ready | Step::Install | Step::Installed | Step::Arm => {
                self.begin(now, out);
            }
        }
    }
}
