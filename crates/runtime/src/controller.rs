//! Controllers: they are woken by keys, and make reality agree with what was asked for, one key at a time.
//!
//! - [`Controller::builder`] says which caches wake it; [`Reconciler`] is what it does.
//! - [`Context`] is what a run has: a client whose writes the next run waits to see, and why it runs.
//! - [`Traces`] answer "why is this not converged?".

mod action;
mod builder;
mod consistency;
mod context;
mod error;
mod hot_loop;
mod phases;
mod predicate;
mod pulse;
mod recorder;
mod source;
mod stats;
#[cfg(test)]
mod tests;
mod trace;
mod worker;

pub use action::Action;
pub use builder::{Builder, Controller, ControllerHandle, ControllerOptions, Reconciler};
pub use consistency::{STALE_GIVE_UP, STALE_WAIT};
pub use context::Context;
pub use error::Error;
pub use hot_loop::{HOT_RUNS, HotLoop};
pub use phases::{Next, Phases};
pub use predicate::Predicate;
pub use pulse::{Listener, listen_to_runs};
pub use recorder::{Access, Author, Verb};
pub use stats::{ControllerStats, RUN_BOUNDS, RunTimes};
pub use trace::{Outcome, Trace, Traces};
