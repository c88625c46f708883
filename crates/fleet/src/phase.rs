//! Where a vehicle is on its way, and what holds it.

use std::fmt;

use serde::{Deserialize, Serialize};
use setpoint_fleet_protocol::Stage;

/// Where a vehicle is on its way. Being offline is no phase: it is a gate.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Phase {
    /// Nothing was heard of it yet.
    Pending,
    /// It runs what it should.
    UpToDate,
    /// A gate holds it.
    Waiting,
    /// Bytes come into the inactive slot; or it was just told to.
    Downloading,
    /// Bytes and signatures are checked.
    Verifying,
    /// The inactive slot is made ready.
    Installing,
    /// The next start is from the new slot.
    Rebooting,
    /// It runs, and proves that it is well.
    Confirming,
    /// It goes back to what it had.
    RollingBack,
    /// The last attempt failed; the next one comes by itself.
    RetryBackoff,
    /// Only a change of the spec helps.
    Failed,
}

impl Phase {
    /// Where a vehicle is that says that it is at a stage.
    #[must_use]
    pub fn of(stage: Stage) -> Phase {
        match stage {
            Stage::Idle | Stage::Downloading => Phase::Downloading,
            Stage::Waiting => Phase::Waiting,
            Stage::Verifying => Phase::Verifying,
            Stage::Installing => Phase::Installing,
            Stage::Rebooting => Phase::Rebooting,
            Stage::Confirming => Phase::Confirming,
            Stage::RollingBack => Phase::RollingBack,
        }
    }

    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Phase::Pending => "Pending",
            Phase::UpToDate => "UpToDate",
            Phase::Waiting => "Waiting",
            Phase::Downloading => "Downloading",
            Phase::Verifying => "Verifying",
            Phase::Installing => "Installing",
            Phase::Rebooting => "Rebooting",
            Phase::Confirming => "Confirming",
            Phase::RollingBack => "RollingBack",
            Phase::RetryBackoff => "RetryBackoff",
            Phase::Failed => "Failed",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.word())
    }
}

/// The stage that a word of a status means.
#[must_use]
pub fn stage(word: &str) -> Stage {
    let all = [
        Stage::Waiting,
        Stage::Downloading,
        Stage::Verifying,
        Stage::Installing,
        Stage::Rebooting,
        Stage::Confirming,
        Stage::RollingBack,
    ];
    all.into_iter().find(|stage| stage.word() == word).unwrap_or(Stage::Idle)
}

/// What holds a vehicle, as the reason of its condition `Blocked`. A vehicle names further ones itself: Consent, Battery, Driving,
/// DiskSpace, DownloadBudget, Gate.
pub mod gate {
    /// The spec says so.
    pub const PAUSED: &str = "Paused";
    /// It is not connected.
    pub const OFFLINE: &str = "Offline";
    /// It may not download at this hour.
    pub const WINDOW: &str = "Window";
    /// There is no Firmware of the wanted version.
    pub const NO_FIRMWARE: &str = "NoFirmware";
    /// Too many vehicles of this hardware were unwell with the firmware.
    pub const QUARANTINED: &str = "Quarantined";
    /// The firmware can't be installed over what it runs.
    pub const TOO_OLD: &str = "MinFromVersion";
    /// Nothing holds it.
    pub const NONE: &str = "NothingHolds";
}
