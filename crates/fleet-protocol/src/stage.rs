//! How far a task has come on the vehicle, and how it ended.

/// How far a task has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Stage {
    /// There is nothing to do.
    Idle = 0,
    /// A gate holds it.
    Waiting = 1,
    /// Bytes come into the inactive slot.
    Downloading = 2,
    /// Bytes and signatures are checked.
    Verifying = 3,
    /// The inactive slot is made ready to start from.
    Installing = 4,
    /// The next start is from the new slot.
    Rebooting = 5,
    /// It runs, and proves that it is well.
    Confirming = 6,
    /// It goes back to the slot before.
    RollingBack = 7,
}

impl Stage {
    /// The word for status.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Stage::Idle => "",
            Stage::Waiting => "Waiting",
            Stage::Downloading => "Downloading",
            Stage::Verifying => "Verifying",
            Stage::Installing => "Installing",
            Stage::Rebooting => "Rebooting",
            Stage::Confirming => "Confirming",
            Stage::RollingBack => "RollingBack",
        }
    }

    /// Whether a task can still be given up without a trace: nothing that starts the vehicle has been touched.
    #[must_use]
    pub fn may_be_abandoned(self) -> bool {
        self <= Stage::Verifying
    }
}

/// How a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum Outcome {
    /// It hasn't.
    Open = 0,
    /// The firmware runs and is confirmed.
    Succeeded = 1,
    /// It ended before the vehicle started from it.
    Failed = 2,
    /// The vehicle started from it and went back.
    RolledBack = 3,
}

impl Outcome {
    /// The word for status.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Outcome::Open => "",
            Outcome::Succeeded => "Succeeded",
            Outcome::Failed => "Failed",
            Outcome::RolledBack => "RolledBack",
        }
    }
}
