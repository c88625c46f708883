//! The kinds of the fleet: what users write and what is reported back, described once, as Rust types.

mod firmware;
mod install;
mod rollout;
mod schema;
mod vehicle;

pub use firmware::{Artifact, Firmware, FirmwareSpec, FirmwareStatus, HealthCheck, Notes};
pub use install::{definitions, install};
pub use rollout::{Counts, FirmwareRef, GroupBudget, OnFailure, Rollout, RolloutSpec, RolloutStatus, Step, TopFailure};
pub use vehicle::{
    Access, AccessToken, Progress, Retry, Session, Slot, Task, UpdatePolicy, Vehicle, VehicleSpec, VehicleStatus,
};

/// The API group of all kinds.
pub const GROUP: &str = "fleet.setpoint.dev";

/// Their version.
pub const VERSION: &str = "v1alpha1";

/// An annotation of a Firmware: the hardware that it is not to be kept from, whoever was unwell with it, with commas between; `*` for all. It
/// lifts a quarantine, which nothing else does.
pub const NO_QUARANTINE: &str = "fleet.setpoint.dev/no-quarantine";

/// The name of the Firmware object of a version: what a version has that names of objects can't is replaced by `-`.
///
/// ```
/// assert_eq!(setpoint_fleet::kinds::firmware_name("2.1.0+HW_b"), "2.1.0-hw-b");
/// ```
#[must_use]
pub fn firmware_name(version: &str) -> String {
    version.to_ascii_lowercase().replace(['+', '_'], "-")
}
