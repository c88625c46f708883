//! Which pods go first when there are too many: those that are missed least.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use setpoint_runtime::cache::Pairs;

use crate::pod::Pod;

/// What users say a pod is worth; those that are worth less go first.
const COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// The pods that go, so many of them.
pub fn pick(pods: &[Arc<Pod>], count: usize, on_node: &HashMap<Box<str>, usize>, now: Timestamp) -> Vec<Arc<Pod>> {
    let mut ranked: Vec<_> = pods.iter().map(|pod| (rank(pod, on_node, now), pod)).collect();
    if count < ranked.len() {
        ranked.select_nth_unstable_by(count, |(one, _), (other, _)| one.cmp(other));
        ranked.truncate(count);
    }
    ranked.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    ranked.into_iter().map(|(_, pod)| pod.clone()).collect()
}

/// Smaller goes first. The order is that of Kubernetes but for one case: pods whose ages fall into the same bucket without being
/// equal are told apart by restarts before they are by identity. Kubernetes skips the restarts there, and so can say
/// that a goes before b, b before c, and c before a, which is no order.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank<'a> {
    is_assigned: bool,
    phase: u8,
    is_ready: bool,
    cost: i32,
    neighbours: Reverse<usize>,
    ready_for: i32,
    restarts: Reverse<(i32, i32)>,
    age: i32,
    uid: &'a str,
}

fn rank<'a>(pod: &'a Pod, on_node: &HashMap<Box<str>, usize>, now: Timestamp) -> Rank<'a> {
    let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    Rank {
        is_assigned: !pod.spec.node_name.is_empty(),
        phase: match &*pod.status.phase {
            "Unknown" => 1,
            "Running" => 2,
            _ => 0,
        },
        is_ready: pod.is_ready(),
        cost: cost(&pod.metadata.annotations),
        neighbours: Reverse(on_node.get(&pod.spec.node_name).copied().unwrap_or(0)),
        ready_for: if pod.is_ready() { bucket(pod.ready_since(), now) } else { 0 },
        restarts: Reverse(restarts(pod)),
        age: bucket(created, now),
        uid: &pod.metadata.uid,
    }
}

/// Ages are told apart by their order of magnitude only, so that a set that is scaled down is thinned out evenly over its history.
fn bucket(since: Option<Timestamp>, now: Timestamp) -> i32 {
    /// Before all others: it has no time.
    const NEVER: i32 = -2;
    let Some(since) = since else { return NEVER };
    let age = now.as_nanosecond() - since.as_nanosecond();
    i32::try_from(age.max(0).checked_ilog2().map_or(-1, i64::from)).unwrap_or(i32::MAX)
}

/// Numbers with a sign or zeros in front of them count as none at all, as validation has them.
fn cost(annotations: &Pairs) -> i32 {
    let text = annotations.get(COST).unwrap_or("0");
    let is_plain = matches!(text.as_bytes(), [b'0'] | [b'-', b'1'..=b'9', ..] | [b'1'..=b'9', ..]);
    text.parse().ok().filter(|_| is_plain).unwrap_or(0)
}

/// The most restarts of a container, and of a sidecar.
fn restarts(pod: &Pod) -> (i32, i32) {
    let containers = pod.status.container_statuses.iter();
    let sidecars = pod.status.init_container_statuses.iter().filter(|status| pod.spec.is_sidecar(&status.name));
    let most = |count: i32, more: i32| count.max(more);
    (
        containers.map(|status| status.restart_count).fold(0, most),
        sidecars.map(|status| status.restart_count).fold(0, most),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const NOW: &str = "2026-01-02T00:00:00Z";

    fn running(uid: &str, change: Value) -> Value {
        let mut pod = json!({
            "metadata": {"name": uid, "uid": uid, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"nodeName": "n1", "initContainers": [{"name": "side", "restartPolicy": "Always"}, {"name": "init"}]},
            "status": {"phase": "Running", "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:10Z"}]},
        });
        merge(&mut pod, change);
        pod
    }

    fn merge(into: &mut Value, change: Value) {
        match (into, change) {
            (Value::Object(into), Value::Object(change)) => {
                for (name, value) in change {
                    merge(into.entry(name).or_insert(Value::Null), value);
                }
            }
            (into, change) => *into = change,
        }
    }

    /// Given in the wrong order, the first goes before the second.
    fn check(why: &str, first: Value, second: Value) {
        let read = |value| Arc::new(serde_json::from_value::<Pod>(value).unwrap());
        let (first, second) = (read(running("z", first)), read(running("a", second)));
        let on_node = HashMap::from([("n1".into(), 1), ("crowded".into(), 2)]);
        let picked = pick(&[second, first], 1, &on_node, NOW.parse().unwrap());
        assert_eq!(&*picked[0].metadata.uid, "z", "{why}");
    }

    fn ready_since(time: &str) -> Value {
        json!({"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": time}]})
    }

    #[test]
    fn those_that_are_missed_least_go_first() {
        let not_ready = json!({"status": {"conditions": []}});
        let cost = |text: &str| json!({"metadata": {"annotations": {COST: text}}});
        let restarted = |count: i32| json!({"status": {"containerStatuses": [{"name": "c", "restartCount": count}]}});
        let side = |name: &str| json!({"status": {"initContainerStatuses": [{"name": name, "restartCount": 9}]}});
        check("unassigned before assigned", json!({"spec": {"nodeName": ""}}), not_ready.clone());
        check(
            "pending before unknown",
            json!({"status": {"phase": "Pending"}}),
            json!({"status": {"phase": "Unknown"}}),
        );
        check("unknown before running", json!({"status": {"phase": "Unknown"}}), not_ready.clone());
        check("not ready before cheap", not_ready, cost("-7"));
        check("cheap before dear", cost("-7"), json!({"spec": {"nodeName": "crowded"}}));
        check("cheap before dear", json!({}), cost("1"));
        check("no sign is allowed", cost("+7"), cost("1"));
        check("no zeros are allowed", cost("007"), cost("1"));
        check("crowded before alone", json!({"spec": {"nodeName": "crowded"}}), restarted(3));
        check("young readiness before restarts", json!({"status": ready_since("2026-01-01T23:00:00Z")}), restarted(3));
        check("restarts before age", restarted(1), json!({"metadata": {"creationTimestamp": "2026-01-01T23:59:00Z"}}));
        check("more restarts before fewer", restarted(2), restarted(1));
        check("sidecars count", side("side"), json!({}));
        check("young before old", json!({"metadata": {"creationTimestamp": "2026-01-01T23:00:00Z"}}), json!({}));
        check(
            "no time before young",
            json!({"metadata": {"creationTimestamp": null}}),
            json!({"metadata": {"creationTimestamp": NOW}}),
        );
    }

    #[test]
    fn ages_of_the_same_magnitude_are_equal_and_identity_decides() {
        let at = |time: &str| json!({"metadata": {"uid": "zz", "creationTimestamp": time}});
        let read = |value| Arc::new(serde_json::from_value::<Pod>(value).unwrap());
        let younger = read(running("zz", at("2026-01-01T00:10:00Z")));
        let older = read(running("a", json!({})));
        let picked = pick(&[younger, older], 1, &HashMap::new(), NOW.parse().unwrap());
        assert_eq!(&*picked[0].metadata.uid, "a");
    }

    #[test]
    fn as_many_go_as_were_asked_for_in_their_order() {
        let at = |uid: &str, cost: i32| {
            let cost = json!({"metadata": {"annotations": {COST: cost.to_string()}}});
            Arc::new(serde_json::from_value::<Pod>(running(uid, cost)).unwrap())
        };
        let pods: Vec<_> = [5, 3, 9, 1, 7].into_iter().map(|cost| at(&format!("u{cost}"), cost)).collect();
        let picked = pick(&pods, 3, &HashMap::new(), NOW.parse().unwrap());
        assert_eq!(picked.iter().map(|pod| &*pod.metadata.uid).collect::<Vec<_>>(), ["u1", "u3", "u5"]);
    }
}
