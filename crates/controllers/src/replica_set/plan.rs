//! How many pods to make, or which to delete.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use super::victims;
use crate::pod::Pod;

/// Most pods that one run makes or deletes; the next run goes on. Same as Kubernetes.
pub const BURST: usize = 500;

/// What to do.
#[derive(Debug)]
pub enum Plan {
    Nothing,
    Create(usize),
    Delete(Vec<Arc<Pod>>),
}

/// What to do so that there are so many pods. `on_node` counts related pods by node; it is asked only if some have to go and
/// others stay.
pub fn plan(
    replicas: i32,
    active: &[Arc<Pod>],
    on_node: impl FnOnce() -> HashMap<Box<str>, usize>,
    now: Timestamp,
) -> Plan {
    let wanted = usize::try_from(replicas).unwrap_or(0);
    let surplus = active.len().saturating_sub(wanted);
    match surplus.min(BURST) {
        0 if wanted == active.len() => Plan::Nothing,
        0 => Plan::Create((wanted - active.len()).min(BURST)),
        all if all == active.len() => Plan::Delete(active.to_vec()),
        some => Plan::Delete(victims::pick(active, some, &on_node(), now)),
    }
}

/// When the next pod becomes available by having been ready for long enough.
pub fn next_look(min_ready_seconds: i32, active: &[Arc<Pod>], now: Timestamp) -> Option<Timestamp> {
    let moments = active.iter().filter_map(|pod| pod.available_at(min_ready_seconds));
    moments.filter(|moment| *moment > now).min()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pods(count: usize) -> Vec<Arc<Pod>> {
        let pod = |at| json!({"metadata": {"name": format!("p{at:04}"), "namespace": "a", "uid": format!("u{at:04}")}});
        (0..count).map(|at| Arc::new(serde_json::from_value(pod(at)).unwrap())).collect()
    }

    fn check(replicas: i32, active: usize, expected: &str) {
        let plan = plan(replicas, &pods(active), HashMap::new, Timestamp::UNIX_EPOCH);
        let said = match plan {
            Plan::Nothing => "nothing".to_owned(),
            Plan::Create(count) => format!("create {count}"),
            Plan::Delete(pods) => format!("delete {}", pods.len()),
        };
        assert_eq!(said, expected, "{replicas} wanted, {active} there");
    }

    #[test]
    fn the_difference_is_made_up_in_bursts() {
        check(3, 3, "nothing");
        check(0, 0, "nothing");
        check(3, 1, "create 2");
        check(1, 3, "delete 2");
        check(0, 3, "delete 3");
        check(10_000, 0, "create 500");
        check(i32::MAX, 1, "create 500");
        check(-7, 2, "delete 2");
        check(0, 700, "delete 500");
        check(1, 700, "delete 500");
    }

    #[test]
    fn the_next_look_is_when_the_first_pod_becomes_available() {
        let ready = |at: &str| {
            let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": at});
            Arc::new(serde_json::from_value::<Pod>(json!({"metadata": {}, "status": {"conditions": [ready]}})).unwrap())
        };
        let pods = [ready("2026-01-01T00:00:00Z"), ready("2026-01-01T00:00:05Z"), ready("2026-01-01T00:00:03Z")];
        let look =
            |seconds, now: &str| next_look(seconds, &pods, now.parse().unwrap()).map(|moment| moment.to_string());
        assert_eq!(look(10, "2026-01-01T00:00:10Z"), Some("2026-01-01T00:00:13Z".to_owned()));
        assert_eq!(look(10, "2026-01-01T00:00:15Z"), None);
        assert_eq!(look(0, "2026-01-01T00:00:00Z"), None);
    }
}
