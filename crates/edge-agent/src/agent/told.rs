//! What the hub says should be, compared with what is.

use jiff::Timestamp;
use setpoint_fleet_protocol::{Desired, Outcome};

use super::{Action, Agent};
use crate::{Last, Slot, Step, Task};

impl Agent {
    /// Decides what a wish means: nothing, an answer, or a new task.
    pub(super) fn told(&mut self, desired: Desired, now: Timestamp, out: &mut Vec<Action>) {
        if self.journal.vehicle_uid != desired.vehicle_uid {
            self.journal.vehicle_uid.clone_from(&desired.vehicle_uid);
            self.journal.generation = 0;
        }
        if desired.generation < self.journal.generation {
            return;
        }
        self.journal.generation = desired.generation;
        if desired.task_id.is_empty() {
            return self.nothing_wanted(out);
        }
        match &mut self.journal.task {
            Some(task) if task.desired.digest == desired.digest => {
                let is_known = task.desired == desired;
                // The same firmware under another name: what is done for it counts on.
                task.desired = desired;
                if !is_known {
                    out.push(Action::Keep);
                }
                self.look_again(now, out);
                self.say(out);
            }
            Some(task) if task.step().may_be_abandoned() => {
                self.give_up(out);
                self.take(desired, now, out);
            }
            Some(_) => self.next = Some(Box::new(desired)),
            None => self.take(desired, now, out),
        }
    }

    /// Begins a task, unless it has ended already or there is nothing to do.
    pub(super) fn take(&mut self, desired: Desired, now: Timestamp, out: &mut Vec<Action>) {
        if self.journal.last.as_ref().is_some_and(|last| last.is(&desired)) {
            return self.say(out);
        }
        if self.journal.running.as_ref().is_some_and(|running| running.digest == desired.digest) {
            self.journal.last = Some(Box::new(Last::of(&desired, Outcome::Succeeded, "", "it runs already")));
            out.push(Action::Keep);
            return self.say(out);
        }
        let slot: Slot = self.boot.slot.other();
        let task = Task {
            desired,
            step: Step::Judge.into(),
            slot: slot.into(),
            refetched: false,
            reason: String::new(),
            message: String::new(),
            restarts: 0,
        };
        self.journal.task = Some(Box::new(task));
        (self.percent, self.broken) = (0, 0);
        self.begin(now, out);
    }

    fn nothing_wanted(&mut self, out: &mut Vec<Action>) {
        self.next = None;
        if self.step_now().is_some_and(Step::may_be_abandoned) {
            self.give_up(out);
            out.push(Action::Keep);
            self.say(out);
        }
    }

    /// Forgets a task of which nothing is installed.
    fn give_up(&mut self, out: &mut Vec<Action>) {
        if self.pending != 0 && self.step_now() == Some(Step::Download) {
            out.push(Action::StopFetching);
        }
        self.journal.task = None;
        (self.pending, self.gate, self.wakes_at, self.confirming) = (0, None, None, None);
    }
}
