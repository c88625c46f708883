//! Which pods nobody will end any more.

use std::sync::Arc;

use crate::node::Node;
use crate::pod::Pod;

/// A node with this taint is known to be off: what ran on it can't run any more.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// Whether pods that are being deleted from a node will never be ended by it.
pub fn is_off(node: &Node) -> bool {
    !node.is_ready() && node.spec.taints.iter().any(|taint| &*taint.key == OUT_OF_SERVICE)
}

/// Whether a pod waits for somebody to end it. One that was told to go at once waits for finalizers only.
pub fn awaits_end(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some() && pod.metadata.deletion_grace_period_seconds != Some(0)
}

/// Those pods that are too many of the ones that have ended: evicted ones first, then the oldest.
pub fn too_many(mut ended: Vec<Arc<Pod>>, most: usize) -> Vec<Arc<Pod>> {
    let surplus = ended.len().saturating_sub(most);
    if surplus > 0 {
        ended.sort_by(|one, other| {
            let rank = |pod: &Pod| (!is_evicted(pod), pod.created_at());
            rank(one).cmp(&rank(other)).then_with(|| one.metadata.name.cmp(&other.metadata.name))
        });
    }
    ended.truncate(surplus);
    ended
}

fn is_evicted(pod: &Pod) -> bool {
    &*pod.status.phase == "Failed" && &*pod.status.reason == "Evicted"
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn evicted_pods_go_first_then_the_oldest() {
        let pod = |name: &str, second: u32, status: Value| -> Arc<Pod> {
            let created = format!("2026-01-01T00:00:{second:02}Z");
            let metadata = json!({"name": name, "creationTimestamp": created});
            Arc::new(serde_json::from_value(json!({"metadata": metadata, "status": status})).unwrap())
        };
        let done = json!({"phase": "Succeeded"});
        let ended = vec![
            pod("new", 9, done.clone()),
            pod("b", 1, done.clone()),
            pod("a", 1, done.clone()),
            pod("evicted", 8, json!({"phase": "Failed", "reason": "Evicted"})),
        ];
        for (most, expected) in
            [(4, &[][..]), (3, &["evicted"]), (1, &["evicted", "a", "b"]), (0, &["evicted", "a", "b", "new"])]
        {
            let names: Vec<_> = too_many(ended.clone(), most).iter().map(|pod| pod.metadata.name.to_string()).collect();
            assert_eq!(names, expected, "{most}");
        }
    }

    #[test]
    fn a_node_is_off_if_it_is_marked_so_and_not_ready() {
        for (taint, ready, off) in [
            (OUT_OF_SERVICE, "Unknown", true),
            (OUT_OF_SERVICE, "True", false),
            ("node.kubernetes.io/unreachable", "Unknown", false),
        ] {
            let node = json!({"metadata": {"name": "n"}, "spec": {"taints": [{"key": taint, "effect": "NoExecute"}]},
                "status": {"conditions": [{"type": "Ready", "status": ready}]}});
            assert_eq!(is_off(&serde_json::from_value(node).unwrap()), off, "{taint} {ready}");
        }
    }
}
