//! What a vehicle and the hub say to each other, and what a vehicle believes.
//!
//! Invariants
//! - No IO, no clock, no chance: bytes in, decisions out.
//! - Every frame, text and list has a bound, and what is over it is refused before anybody acts on it.
//! - A vehicle installs only what the release team signed and the director assigned to it; see [`metadata::Trust::judge`].
//!
//! Start at [`Desired`] and [`Report`], then [`TaskId`].

pub mod enrolment;
mod frame;
pub mod hex;
pub mod metadata;
pub mod reason;
mod stage;
mod task;
mod vehicle;
mod window;

pub use frame::{
    Desired, FRAME_BYTES_MAX, FrameError, FromVehicle, Goodbye, HealthCheck, Hello, MESSAGE_BYTES_MAX, Notes,
    PROTOCOL_VERSION, Policy, Report, Said, TEXT_BYTES_MAX, ToVehicle, Told, Welcome,
};
pub use stage::{Outcome, Stage};
pub use task::TaskId;
pub use vehicle::{GATEWAYS_GROUP, Party, VEHICLES_GROUP, VehicleName};
pub use window::{Window, WindowError};
