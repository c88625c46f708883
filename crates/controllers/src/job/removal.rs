//! Which pods go first when there are too many.

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use super::spec::Spec;
use crate::pod::Pod;

/// The pods to remove from those that are active: at least so many, and in an indexed Job all that work on no index or on one that
/// another works on too.
pub fn victims(spec: &Spec<'_>, active: &[Arc<Pod>], at_least: usize) -> Vec<Arc<Pod>> {
    let (mut gone, mut left) = (Vec::new(), active.to_vec());
    if spec.is_indexed {
        let mut of_index: BTreeMap<Option<i64>, Vec<Arc<Pod>>> = BTreeMap::new();
        for pod in left.drain(..) {
            of_index.entry(spec.index_of(&pod)).or_default().push(pod);
        }
        for (index, mut pods) in of_index {
            pods.sort_by(least_wanted_first);
            left.extend(index.and_then(|_| pods.pop()));
            gone.extend(pods);
        }
    }
    left.sort_by(least_wanted_first);
    gone.extend(left.into_iter().take(at_least.saturating_sub(gone.len())));
    gone
}

/// Those that have come least far go first, then the younger ones.
fn least_wanted_first(one: &Arc<Pod>, other: &Arc<Pod>) -> Ordering {
    let rank = |pod: &Pod| {
        let phase = match &*pod.status.phase {
            "Running" => 2,
            "Unknown" => 1,
            _ => 0,
        };
        let ready = pod.ready_since().unwrap_or(Timestamp::MAX);
        (!pod.spec.node_name.is_empty(), phase, pod.is_ready(), Reverse(ready), Reverse(restarts(pod)))
    };
    let age = |pod: &Pod| (Reverse(pod.created_at()), pod.metadata.name.clone());
    rank(one).cmp(&rank(other)).then_with(|| age(one).cmp(&age(other)))
}

fn restarts(pod: &Pod) -> i32 {
    pod.status.container_statuses.iter().map(|status| status.restart_count).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::batch::v1::Job;
    use serde_json::{Value, json};

    use super::*;

    fn pod(name: &str, node: &str, phase: &str, index: Option<&str>) -> Arc<Pod> {
        let annotations: Value =
            index.map_or(json!({}), |index| json!({super::super::member::COMPLETION_INDEX: index}));
        let metadata = json!({"name": name, "annotations": annotations, "creationTimestamp": "2026-01-01T00:00:00Z"});
        let pod = json!({"metadata": metadata, "spec": {"nodeName": node}, "status": {"phase": phase}});
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    fn check(mode: &str, pods: &[Arc<Pod>], at_least: usize, expected: &[&str]) {
        let spec = json!({"completionMode": mode, "completions": 2, "template": {"spec": {"containers": []}}});
        let job: Job = serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap();
        let gone = victims(&Spec::of(&job).unwrap(), pods, at_least);
        let names: Vec<_> = gone.iter().map(|pod| &*pod.metadata.name).collect();
        assert_eq!(names, expected);
    }

    #[test]
    fn those_that_have_come_least_far_go_first() {
        let pods = [pod("a", "n", "Running", None), pod("b", "n", "Pending", None), pod("c", "", "Pending", None)];
        check("NonIndexed", &pods, 0, &[]);
        check("NonIndexed", &pods, 2, &["c", "b"]);
        check("NonIndexed", &pods, 9, &["c", "b", "a"]);
    }

    #[test]
    fn of_an_index_one_is_left() {
        let pods = [
            pod("a", "n", "Running", Some("0")),
            pod("b", "n", "Pending", Some("0")),
            pod("c", "n", "Running", Some("2")),
            pod("d", "n", "Running", None),
            pod("e", "n", "Running", Some("1")),
        ];
        check("Indexed", &pods, 0, &["c", "d", "b"]);
        check("Indexed", &pods, 4, &["c", "d", "b", "a"]);
    }
}
