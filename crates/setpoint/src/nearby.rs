//! What simulated nodes say of their pods, for the API server that is asked for it.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use setpoint_apiserver::nearby::{Log, LogLine, NearbyNodes, Usage};
use setpoint_node::simulated;

/// All simulated nodes, of this process and of others: what they say follows from what is stored.
pub struct Simulated;

impl NearbyNodes for Simulated {
    fn has(&self, node: &Value) -> bool {
        node["metadata"]["labels"][simulated::SIMULATED_LABEL] == "true"
    }

    fn log(&self, pod: &Value, container: &str, previous: bool, now: Duration) -> Result<Log, String> {
        let pod = read(pod).ok_or("this pod can't be read")?;
        let found = simulated::log(&pod, container, previous, moment(now))?;
        let line = |(at, text): (Timestamp, String)| LogLine { at: since_1970(at), text };
        Ok(Log { lines: found.lines.into_iter().map(line).collect(), is_open: found.is_open })
    }

    fn usage(&self, pod: &Value, now: Duration) -> Vec<Usage> {
        let used = read(pod).map(|pod| simulated::usage(&pod, moment(now))).unwrap_or_default();
        let shown = |used: simulated::Usage| Usage {
            name: used.container,
            cpu_nanos: used.cpu_nanos,
            memory_bytes: used.memory_bytes,
        };
        used.into_iter().map(shown).collect()
    }

    fn overhead(&self) -> Usage {
        let (cpu_nanos, memory_bytes) = simulated::NODE_USAGE;
        Usage { name: String::new(), cpu_nanos, memory_bytes }
    }

    fn refusal(&self, node: &str) -> String {
        format!("node {node} is simulated: nothing runs in its pods that could be attached to or connected with")
    }
}

fn read(pod: &Value) -> Option<Pod> {
    serde_json::from_value(pod.clone()).ok()
}

fn moment(since_1970: Duration) -> Timestamp {
    let span = SignedDuration::try_from(since_1970).unwrap_or(SignedDuration::MAX);
    Timestamp::UNIX_EPOCH.saturating_add(span).unwrap_or(Timestamp::MAX)
}

fn since_1970(moment: Timestamp) -> Duration {
    moment.duration_since(Timestamp::UNIX_EPOCH).try_into().unwrap_or_default()
}
