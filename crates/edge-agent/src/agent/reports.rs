//! What the agent says of itself.

use setpoint_fleet_protocol::{Hello, Outcome, PROTOCOL_VERSION, Report, Stage};

use super::{Action, Agent};

impl Agent {
    /// Where the vehicle is: always the whole.
    #[must_use]
    pub fn report(&self) -> Report {
        let running = self.journal.running.as_ref();
        let mut report = Report {
            firmware_version: running.map(|running| running.version.clone()).unwrap_or_default(),
            rxswin: running.map(|running| running.rxswin.clone()).unwrap_or_default(),
            active_slot: self.boot.slot.word().to_owned(),
            inactive_digest: self.boot.inactive_digest.to_string(),
            seq: self.journal.seq,
            healthy: self.healthy,
            gate: self.gate.map(|gate| gate.word().to_owned()).unwrap_or_default(),
            ..Report::default()
        };
        if let Some(task) = &self.journal.task {
            let desired = &task.desired;
            report.task_id.clone_from(&desired.task_id);
            (report.attempt, report.generation) = (desired.attempt, desired.generation);
            report.percent = self.percent.into();
            report.set_stage(task.step().stage(self.gate.is_some()));
            (report.reason, report.message) = (task.reason.clone(), task.message.clone());
        } else if let Some(last) = &self.journal.last {
            report.task_id.clone_from(&last.task_id);
            (report.attempt, report.generation) = (last.attempt, last.generation);
            report.outcome = last.outcome;
            report.set_stage(Stage::Idle);
            report.percent = if last.outcome() == Outcome::Succeeded { 100 } else { 0 };
            (report.reason, report.message) = (last.reason.clone(), last.message.clone());
        }
        report
    }

    /// The first frame of a session.
    #[must_use]
    pub fn hello(&self) -> Hello {
        Hello {
            protocol: PROTOCOL_VERSION,
            agent_version: self.identity.agent_version.to_owned(),
            epoch: self.journal.epoch,
            report: Some(self.report()),
        }
    }

    /// There is something to say.
    pub(super) fn say(&mut self, out: &mut Vec<Action>) {
        self.journal.seq += 1;
        if !out.contains(&Action::Report) {
            out.push(Action::Report);
        }
    }
}
