//! The audit log: who asked for what, when, from where, and what came of it. One JSON line for each stage of a request.
//!
//! Invariants
//! - What is said in confidence never gets here, whatever the policy says: bodies of Secrets, token requests and token
//!   reviews, and credentials of any sort.
//! - A request never waits for the log. Lines wait in a bounded queue; over the bound they are dropped, counted and told of.
//!
//! Start at [`Policy`], which says what is written down of which requests, then [`Log`].

mod event;
mod log;
mod noted;
mod policy;
mod record;
mod rotation;

pub use log::Log;
pub use policy::{Policy, PolicyError};
pub use rotation::{Bounds, RotatedFile};

pub(crate) use noted::Noted;
pub(crate) use record::{Record, name_answer, request_id};

use setpoint_api::metrics::{Counter, Exposition};

/// How much of a request is written down. Each level has all of those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub(crate) enum Level {
    /// Nothing.
    #[default]
    None,
    /// Who, what, when, and how it ended.
    Metadata,
    /// What was sent too.
    Request,
    /// What was answered too.
    RequestResponse,
}

/// When something is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub(crate) enum Stage {
    /// The request came.
    RequestReceived,
    /// The answer has begun, of a request that runs for long; or somebody was not let in at all.
    ResponseStarted,
    /// The answer is whole.
    ResponseComplete,
    /// The handler broke.
    Panic,
}

/// What a server keeps its audit log with.
pub(crate) struct Audit {
    pub(crate) policy: Policy,
    pub(crate) log: Log,
    /// Requests by level.
    levels: [Counter; 4],
}

impl Audit {
    pub(crate) fn new(policy: Policy, log: Log) -> Audit {
        Audit { policy, log, levels: Default::default() }
    }

    /// Writes its figures.
    pub(crate) fn write_figures(&self, out: &mut Exposition) {
        out.family("apiserver_audit_event_total", "counter", "Audit events that were made.");
        out.sample("", &[], self.log.events());
        out.family("apiserver_audit_error_total", "counter", "Audit events that were lost.");
        out.sample("", &[("plugin", "log")], self.log.lost());
        out.family("apiserver_audit_level_total", "counter", "Requests by the level at which they are audited.");
        for (level, counter) in ["None", "Metadata", "Request", "RequestResponse"].iter().zip(&self.levels) {
            out.sample("", &[("level", level)], counter.value());
        }
    }
}

#[cfg(test)]
mod tests;
