//! What a set says of its pods.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{ReplicaSetCondition, ReplicaSetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::act::Failure;
use super::kind::Replicated;
use crate::pod::Pod;

/// The condition that says that pods could not be made or deleted.
const FAILURE: &str = "ReplicaFailure";

/// What a run saw.
pub struct Observed<'a> {
    pub active: &'a [Arc<Pod>],
    pub terminating: usize,
    pub failure: Option<&'a Failure>,
    pub now: Timestamp,
}

/// The status that a set should have.
pub fn status<S: Replicated>(set: &S, observed: &Observed<'_>) -> ReplicaSetStatus {
    let Observed { active, terminating, failure, now } = *observed;
    let labels = set.template().and_then(|template| template.metadata.as_ref()?.labels.clone()).unwrap_or_default();
    let is_labeled =
        |pod: &Pod| labels.iter().all(|(name, value)| pod.metadata.labels.get(name) == Some(value.as_str()));
    let count = |condition: &dyn Fn(&Pod) -> bool| number(active.iter().filter(|pod| condition(pod)).count());
    let old = set.status();
    ReplicaSetStatus {
        replicas: number(active.len()),
        fully_labeled_replicas: some(count(&is_labeled)),
        ready_replicas: some(count(&Pod::is_ready)),
        available_replicas: some(count(&|pod| pod.is_available(set.min_ready_seconds(), now))),
        terminating_replicas: S::COUNTS_TERMINATING.then(|| number(terminating)),
        observed_generation: set.generation(),
        conditions: conditions(old.conditions.unwrap_or_default(), failure, now),
    }
}

/// The condition is there while pods can't be made or deleted; its first cause stays.
fn conditions(
    mut conditions: Vec<ReplicaSetCondition>,
    failure: Option<&Failure>,
    now: Timestamp,
) -> Option<Vec<ReplicaSetCondition>> {
    let Some(failure) = failure else {
        conditions.retain(|condition| condition.type_ != FAILURE);
        return Some(conditions).filter(|conditions| !conditions.is_empty());
    };
    if !conditions.iter().any(|condition| condition.type_ == FAILURE) {
        conditions.push(ReplicaSetCondition {
            type_: FAILURE.to_owned(),
            status: "True".to_owned(),
            reason: Some(failure.reason().to_owned()),
            message: Some(failure.to_string()),
            last_transition_time: Some(Time(Timestamp::from_second(now.as_second()).unwrap_or(now))),
        });
    }
    Some(conditions)
}

/// Zero and absent are the same on the wire.
fn some(count: i32) -> Option<i32> {
    Some(count).filter(|count| *count != 0)
}

fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::ReplicaSet;
    use serde_json::{Value, json};

    use super::*;

    const NOW: &str = "2026-01-01T01:00:00Z";

    fn set(status: Value) -> ReplicaSet {
        let template = json!({"metadata": {"labels": {"app": "web", "version": "2"}}});
        serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "shop", "generation": 4},
            "spec": {"replicas": 3, "minReadySeconds": 10, "selector": {"matchLabels": {"app": "web"}}, "template": template},
            "status": status,
        }))
        .unwrap()
    }

    fn pod(version: &str, ready: &str) -> Arc<Pod> {
        let ready = match ready {
            "" => json!([]),
            since => json!([{"type": "Ready", "status": "True", "lastTransitionTime": since}]),
        };
        let metadata = json!({"labels": {"app": "web", "version": version, "more": "x"}});
        Arc::new(serde_json::from_value(json!({"metadata": metadata, "status": {"conditions": ready}})).unwrap())
    }

    fn said(set: &ReplicaSet, active: &[Arc<Pod>], failure: Option<&Failure>) -> Value {
        let observed = Observed { active, terminating: 2, failure, now: NOW.parse().unwrap() };
        serde_json::to_value(status(set, &observed)).unwrap()
    }

    #[test]
    fn pods_are_counted_by_what_they_are() {
        let pods = [pod("1", ""), pod("2", "2026-01-01T00:59:55Z"), pod("2", "2026-01-01T00:59:50Z")];
        let expected = json!({"replicas": 3, "fullyLabeledReplicas": 2, "readyReplicas": 2, "availableReplicas": 1,
            "terminatingReplicas": 2, "observedGeneration": 4});
        assert_eq!(said(&set(json!(null)), &pods, None), expected);
    }

    #[test]
    fn a_failure_is_said_once_and_taken_back() {
        let first = Failure::Create(crate::pod_control::tests::refusal(403, "quota"));
        let conditions = said(&set(json!(null)), &[], Some(&first))["conditions"].clone();
        let expected = json!([{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "quota",
            "lastTransitionTime": NOW}]);
        assert_eq!(conditions, expected);
        let failed = set(json!({"replicas": 0, "conditions": conditions}));
        let second = Failure::Delete(crate::pod_control::tests::refusal(500, "other"));
        assert_eq!(said(&failed, &[], Some(&second))["conditions"], expected);
        assert_eq!(said(&failed, &[], None).get("conditions"), None);
    }
}
