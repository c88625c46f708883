//! How long a pod may stay on a node with taints.

use std::collections::BTreeMap;

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::node::{Effect, Node, Taint, Tolerations};
use crate::pod::Pod;

/// A node that isn't ready and one that can't be reached are one trouble: what was borne of one counts for the other.
const DOWN: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// Since when each trouble lasts.
pub type Since = BTreeMap<Box<str>, Timestamp>;

/// Until when a pod may stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stay {
    Forever,
    Until(Timestamp),
}

/// The taints of a node that send pods away.
pub fn evicting(node: &Node) -> impl Iterator<Item = &Taint> {
    node.spec.taints.iter().filter(|taint| taint.effect == Effect::NoExecute)
}

fn trouble(taint: &Taint) -> &str {
    if DOWN.contains(&&*taint.key) { DOWN[0] } else { &taint.key }
}

/// Since when the troubles of a node last: as was known before, else as their taints say, else from now on.
pub fn since(before: &Since, node: &Node, now: Timestamp) -> Since {
    let mut after = Since::new();
    for taint in evicting(node) {
        let said = taint.time_added.as_ref().map(|time| time.0).filter(|said| *said <= now);
        let begin = before.get(trouble(taint)).copied().or(said).unwrap_or(now);
        after.entry(trouble(taint).into()).and_modify(|known| *known = begin.min(*known)).or_insert(begin);
    }
    after
}

/// Until when a pod may stay on a node whose troubles last since then.
pub fn stay(node: &Node, since: &Since, tolerations: &Tolerations, placed_at: Timestamp) -> Stay {
    let mut end = Stay::Forever;
    for taint in evicting(node) {
        let Some(toleration) = tolerations.all().iter().find(|toleration| toleration.bears(taint)) else {
            return Stay::Until(Timestamp::MIN);
        };
        let Some(seconds) = toleration.toleration_seconds else { continue };
        let begin = since.get(trouble(taint)).copied().unwrap_or(Timestamp::MIN).max(placed_at);
        let until = match seconds {
            ..=0 => Timestamp::MIN,
            _ => begin.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX),
        };
        end = match end {
            Stay::Forever => Stay::Until(until),
            Stay::Until(other) => Stay::Until(other.min(until)),
        };
    }
    end
}

/// When a pod came to its node.
pub fn placed_at(pod: &Pod) -> Timestamp {
    let placed = pod.status.condition("PodScheduled").filter(|placed| &*placed.status == "True");
    let time = placed.and_then(|placed| placed.last_transition_time.as_ref());
    time.map_or_else(|| pod.created_at(), |time| time.0)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn node(taints: Value) -> Node {
        serde_json::from_value(json!({"metadata": {"name": "n"}, "spec": {"taints": taints}})).unwrap()
    }

    fn check(taints: Value, tolerations: Value, placed: i64, expected: Stay) {
        let node = node(taints.clone());
        let since = since(&Since::new(), &node, at(1000));
        let parsed: Tolerations = serde_json::from_value(tolerations.clone()).unwrap();
        assert_eq!(stay(&node, &since, &parsed, at(placed)), expected, "{taints} {tolerations}");
    }

    #[test]
    fn a_pod_stays_as_long_as_it_bears_all_taints() {
        let bears = |key: &str, seconds: Option<i64>| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds});
        let added = |key: &str, second: i64| {
            let time = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(second));
            json!({"key": key, "effect": "NoExecute", "timeAdded": time})
        };
        let (now, until) = (Stay::Until(Timestamp::MIN), |second| Stay::Until(at(second)));
        check(json!([]), json!([]), 0, Stay::Forever);
        check(json!([{"key": "a", "effect": "NoSchedule"}]), json!([]), 0, Stay::Forever);
        check(json!([added("a", 900)]), json!([]), 0, now);
        check(json!([added("a", 900)]), json!([bears("a", None)]), 0, Stay::Forever);
        check(json!([added("a", 900)]), json!([bears("a", Some(300))]), 0, until(1200));
        check(json!([added("a", 900)]), json!([bears("a", Some(0))]), 0, now);
        check(json!([added("a", 900)]), json!([bears("a", Some(-5))]), 0, now);
        // A pod that came later has its whole time.
        check(json!([added("a", 100)]), json!([bears("a", Some(300))]), 950, until(1250));
        // A taint that says nothing, or the future, counts from now on.
        check(json!([{"key": "a", "effect": "NoExecute"}]), json!([bears("a", Some(300))]), 0, until(1300));
        check(json!([added("a", 5000)]), json!([bears("a", Some(300))]), 0, until(1300));
        // The shortest counts, and one that isn't borne ends it.
        let two = json!([added("a", 900), added("b", 950)]);
        check(two.clone(), json!([bears("a", Some(300)), bears("b", Some(60))]), 0, until(1010));
        check(two.clone(), json!([bears("a", Some(300)), bears("b", None)]), 0, until(1200));
        check(two, json!([bears("a", None)]), 0, now);
        check(json!([added("a", 900)]), json!([bears("a", Some(i64::MAX))]), 0, Stay::Until(Timestamp::MAX));
    }

    #[test]
    fn a_node_that_is_down_in_another_way_is_still_down() {
        let taint = |key: &str| json!([{"key": key, "effect": "NoExecute"}]);
        let first = since(&Since::new(), &node(taint(DOWN[0])), at(10));
        let then = since(&first, &node(taint(DOWN[1])), at(100));
        assert_eq!(then.values().copied().collect::<Vec<_>>(), [at(10)]);
        assert_eq!(since(&then, &node(json!([])), at(200)), Since::new());
    }
}
