//! What each run did and why, in a bounded ring.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Serialize, Serializer};

use super::hot_loop::HotLoop;
use super::recorder::Access;
use crate::Key;
use crate::queue::Causes;

/// One run of a reconciler.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Trace {
    /// The controller.
    #[serde(serialize_with = "text")]
    pub controller: Arc<str>,
    /// The key.
    pub key: Key,
    /// When it started, by the wall.
    pub started: String,
    /// How long it took.
    pub took_seconds: f64,
    /// Why it ran.
    pub causes: Causes,
    /// How many runs of this key had failed in a row before.
    pub attempt: u32,
    /// How far each cache was, as kind and version.
    pub caches: Vec<(String, String)>,
    /// The version of the key's own object in the cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object_version: Option<String>,
    /// Objects that were read through the context.
    pub reads: Vec<Access>,
    /// Writes that were made through the context's client.
    pub writes: Vec<Access>,
    /// How it ended.
    pub outcome: Outcome,
    /// When the key runs next if nothing changes, in seconds after the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_run_seconds: Option<f64>,
    /// Whether the controller wakes itself by its own writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hot_loop: Option<HotLoop>,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "result", content = "message")]
pub enum Outcome {
    /// Nothing to do until something changes.
    Done,
    /// Runs again after a time.
    RequeueAfter,
    /// Lost a race.
    Conflict(String),
    /// Failed, and will be tried again.
    Transient(String),
    /// Failed for good.
    Terminal(String),
    /// Failed too often and is given up until something changes.
    GivenUp(String),
    /// Took too long.
    TimedOut(Duration),
    /// Panicked.
    Panicked(String),
    /// Didn't run: the caches had not seen the key's own writes.
    StaleCache,
}

/// The last runs of all controllers that share it.
#[derive(Clone)]
pub struct Traces {
    ring: Arc<Mutex<VecDeque<Trace>>>,
    capacity: usize,
}

impl Default for Traces {
    /// Keeps the last 1,000 runs.
    fn default() -> Self {
        Self::new(1000)
    }
}

impl Traces {
    /// Keeps the last `capacity` runs.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { ring: Arc::default(), capacity }
    }

    /// All kept runs, oldest first.
    #[must_use]
    pub fn all(&self) -> Vec<Trace> {
        self.lock().iter().cloned().collect()
    }

    /// The kept runs of one key of one controller, oldest first.
    #[must_use]
    pub fn of(&self, controller: &str, key: &str) -> Vec<Trace> {
        let ring = self.lock();
        ring.iter().filter(|trace| &*trace.controller == controller && trace.key.as_str() == key).cloned().collect()
    }

    /// All kept runs as JSON, newest first.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        let ring = self.lock();
        ring.iter().rev().map(|trace| serde_json::to_value(trace).unwrap_or_default()).collect()
    }

    pub(super) fn push(&self, trace: Trace) {
        let mut ring = self.lock();
        while ring.len() >= self.capacity.max(1) {
            ring.pop_front();
        }
        ring.push_back(trace);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<Trace>> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn text<S: Serializer>(text: &Arc<str>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(text)
}
