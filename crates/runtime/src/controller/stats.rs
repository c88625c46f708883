//! What a controller counts.

use serde::Serialize;

use crate::queue::stats::Histogram;

/// The figures of a controller at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ControllerStats {
    /// Runs that went well and asked for nothing.
    pub success: u64,
    /// Runs that went well and asked to run again after a time.
    pub requeue_after: u64,
    /// Runs that lost a race and were put back.
    pub requeue: u64,
    /// Runs that failed, for whatever reason.
    pub errors: u64,
    /// Of those, runs that failed for good.
    pub terminal_errors: u64,
    /// Of those, runs that panicked.
    pub panics: u64,
    /// Of those, runs that took too long.
    pub timeouts: u64,
    /// Keys given up after too many failures.
    pub given_up: u64,
    /// Runs put off because the caches had not seen the key's own writes.
    pub stale: u64,
    /// Warnings of the hot-loop detector.
    pub hot_loops: u64,
    /// Workers that hold a key now.
    pub active_workers: usize,
    /// Workers there are.
    pub max_concurrent: usize,
    /// How long runs took.
    pub time: Histogram,
}
