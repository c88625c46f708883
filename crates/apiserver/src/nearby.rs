//! Nodes that need no connection: what they say of their pods follows from the pods themselves.
//!
//! Simulated nodes are of this sort. The API server asks them for logs and figures as it would ask the agent of a real node.

use std::time::Duration;

use serde_json::Value;

/// Nodes whose pods have logs and figures although nothing runs. All times are since 1970.
pub trait NearbyNodes: Send + Sync {
    /// Whether a node is one of these.
    fn has(&self, node: &Value) -> bool;

    /// What a container of a pod wrote until now, or an agent's words for why there is nothing to read.
    fn log(&self, pod: &Value, container: &str, previous: bool, now: Duration) -> Result<Log, String>;

    /// What each running container of a pod uses now.
    fn usage(&self, pod: &Value, now: Duration) -> Vec<Usage>;

    /// What a node uses beside its pods.
    fn overhead(&self) -> Usage;

    /// Why nobody can run commands in its pods or reach their ports.
    fn refusal(&self, node: &str) -> String;
}

/// What a container wrote, oldest first. No two lines have the same time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// The lines.
    pub lines: Vec<LogLine>,
    /// Whether more may come.
    pub is_open: bool,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// When it was written.
    pub at: Duration,
    /// Without its end.
    pub text: String,
}

/// What something uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The container; empty for a node.
    pub name: String,
    /// Processors, in billionths of one.
    pub cpu_nanos: u64,
    /// Memory.
    pub memory_bytes: u64,
}
