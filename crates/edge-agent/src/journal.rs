//! What the agent must not forget when it is killed.

use prost::Message;
use setpoint_fleet_protocol::{Desired, Outcome, Stage};

/// Everything that outlives a restart. Written as a whole, before each action that it names.
#[derive(Clone, PartialEq, Message)]
pub struct Journal {
    /// Counts sessions with the hub.
    #[prost(uint64, tag = "1")]
    pub epoch: u64,
    /// The identity of the vehicle's object that generations are of.
    #[prost(string, tag = "2")]
    pub vehicle_uid: String,
    /// The highest generation seen.
    #[prost(int64, tag = "3")]
    pub generation: i64,
    /// What runs and is confirmed.
    #[prost(message, optional, tag = "4")]
    pub running: Option<Running>,
    /// The version of the last assignment that was taken.
    #[prost(uint64, tag = "5")]
    pub assignment_version: u64,
    /// The task under way.
    #[prost(message, optional, boxed, tag = "6")]
    pub task: Option<Box<Task>>,
    /// The last task that ended.
    #[prost(message, optional, boxed, tag = "7")]
    pub last: Option<Box<Last>>,
    /// Counts reports.
    #[prost(uint64, tag = "8")]
    pub seq: u64,
    /// The latest root that was taken after the one that the vehicle was made with; empty if there was none.
    #[prost(string, tag = "9")]
    pub root: String,
}

/// Firmware that runs.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Running {
    /// Its version.
    #[prost(string, tag = "1")]
    pub version: String,
    /// The SHA-256 of its artifact.
    #[prost(string, tag = "2")]
    pub digest: String,
    /// Its release counter: nothing below it is taken.
    #[prost(uint64, tag = "3")]
    pub release_counter: u64,
    /// The identification of the software by UN R156, where there is one.
    #[prost(string, tag = "4")]
    pub rxswin: String,
}

impl Running {
    /// What runs once a wish is fulfilled.
    #[must_use]
    pub fn of(desired: &Desired) -> Running {
        Running {
            version: desired.version.clone(),
            digest: desired.digest.clone(),
            release_counter: desired.release_counter,
            rxswin: desired.rxswin.clone(),
        }
    }
}

/// A task under way.
#[derive(Clone, PartialEq, Message)]
pub struct Task {
    /// What is asked for.
    #[prost(message, required, tag = "1")]
    pub desired: Desired,
    /// What is being done, or is to be done again after a restart.
    #[prost(enumeration = "Step", tag = "2")]
    pub step: i32,
    /// The slot that it goes to.
    #[prost(enumeration = "Slot", tag = "3")]
    pub slot: i32,
    /// Whether the artifact was fetched anew once because its digest was wrong.
    #[prost(bool, tag = "4")]
    pub refetched: bool,
    /// Why it goes back, if it does.
    #[prost(string, tag = "5")]
    pub reason: String,
    /// The same for people.
    #[prost(string, tag = "6")]
    pub message: String,
    /// How often the vehicle was restarted to start from the slot.
    #[prost(uint32, tag = "7")]
    pub restarts: u32,
}

/// How the last task ended.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Last {
    /// Which it was.
    #[prost(string, tag = "1")]
    pub task_id: String,
    /// The attempt.
    #[prost(uint32, tag = "2")]
    pub attempt: u32,
    /// The generation of the spec.
    #[prost(int64, tag = "3")]
    pub generation: i64,
    /// How it ended.
    #[prost(enumeration = "Outcome", tag = "4")]
    pub outcome: i32,
    /// Why, if it failed.
    #[prost(string, tag = "5")]
    pub reason: String,
    /// The same for people.
    #[prost(string, tag = "6")]
    pub message: String,
}

/// What is done for a task, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Step {
    /// Reads what was released and assigned.
    Judge = 0,
    /// Brings the artifact into the other slot, as soon as it may.
    Download = 1,
    /// Compares it with what was released.
    Check = 2,
    /// Waits until it may install.
    Ready = 3,
    /// Installs.
    Install = 4,
    /// Waits until it may restart.
    Installed = 5,
    /// Makes the next start one from the other slot.
    Arm = 6,
    /// Restarts.
    Restart = 7,
    /// Started from the other slot: is it well?
    Confirm = 8,
    /// It is: makes the slot the one to start from.
    Commit = 9,
    /// It is not: makes the slot before the one to start from.
    Disarm = 10,
    /// Restarts into the slot before.
    Return = 11,
}

impl Step {
    /// The stage that others see.
    pub(crate) fn stage(self, is_held: bool) -> Stage {
        match self {
            Step::Judge => Stage::Waiting,
            Step::Download if is_held => Stage::Waiting,
            Step::Download => Stage::Downloading,
            Step::Check => Stage::Verifying,
            Step::Ready => Stage::Waiting,
            Step::Install | Step::Installed | Step::Arm => Stage::Installing,
            Step::Restart => Stage::Rebooting,
            Step::Confirm | Step::Commit => Stage::Confirming,
            Step::Disarm | Step::Return => Stage::RollingBack,
        }
    }

    /// Whether the task can be given up without a trace.
    pub(crate) fn may_be_abandoned(self) -> bool {
        self <= Step::Ready
    }
}

/// One of the two places for firmware.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum Slot {
    /// The first.
    A = 0,
    /// The second.
    B = 1,
}

impl Slot {
    /// The other one.
    #[must_use]
    pub fn other(self) -> Slot {
        match self {
            Slot::A => Slot::B,
            Slot::B => Slot::A,
        }
    }

    /// `a` or `b`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Slot::A => "a",
            Slot::B => "b",
        }
    }
}

impl Last {
    pub(crate) fn is(&self, desired: &Desired) -> bool {
        self.task_id == desired.task_id && self.attempt >= desired.attempt
    }

    pub(crate) fn of(desired: &Desired, outcome: Outcome, reason: &str, message: &str) -> Last {
        Last {
            task_id: desired.task_id.clone(),
            attempt: desired.attempt,
            generation: desired.generation,
            outcome: outcome.into(),
            reason: reason.to_owned(),
            message: message.to_owned(),
        }
    }
}
