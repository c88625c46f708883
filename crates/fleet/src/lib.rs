//! Vehicles: what should run on each, how a fleet gets there step by step, and why one of them has not yet.
//!
//! Invariants
//! - A user writes spec; phase, task, retry and gates are written by the controllers, what a vehicle reports by the hub.
//! - A controller never waits for a vehicle: it writes a task down, ends, and is woken by what the hub writes.
//! - Everything that a decision needs is in spec and status, so any process can make it at any moment.
//! - Never more vehicles of a rollout are without a confirmed firmware at once than its budget says.
//!
//! Start at [`kinds`], then [`vehicle::plan`] and [`rollout::plan`], which decide.

pub mod approver;
pub mod certificate;
mod firmware;
pub mod hub;
pub mod kinds;
pub mod phase;
pub mod rollout;
pub mod simulate;
pub mod tell;
pub mod vehicle;
mod version;
pub mod view;
mod wiring;

pub use wiring::{CONTROLLERS, Wiring, add_to};
