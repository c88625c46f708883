//! What runs on a vehicle: it brings the vehicle to the firmware that it should run, and back if that is not well.
//!
//! Invariants
//! - [`Agent`] is a state machine: events and the time in, actions out. It does nothing itself, so it can be run in any number and
//!   killed between any two actions.
//! - Whatever an action touches is named in the journal, durably, before it is done. Every action may be done twice.
//! - Nothing is installed that wasn't released for this hardware and assigned to this vehicle.
//! - One slot is never written to: the one that runs.
//!
//! Start at [`Agent::step`], then [`Journal`], then [`slots::Slots`].

mod agent;
#[cfg(feature = "device")]
pub mod device;
mod facts;
mod gate;
mod journal;
pub mod slots;

pub use agent::{Action, Agent, Done, Event, FetchError, Identity};
pub use facts::Facts;
pub use gate::Gate;
pub use journal::{Journal, Last, Running, Slot, Step, Task};
