//! What a Job reads off its pods: whether they are tracked, which index they work on, how they ended.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::pod::{ContainerStatus, Pod};

/// The finalizer that keeps a pod until it is counted.
pub const TRACKING: &str = "batch.kubernetes.io/job-tracking";

/// Which index a pod works on; a label and an annotation.
pub const COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// How often pods of the same index failed before this one.
pub const INDEX_FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";

/// How many failures of the same index before this one were ignored.
pub const INDEX_FAILURES_IGNORED: &str = "batch.kubernetes.io/job-index-ignored-failure-count";

/// A pod as a member of a Job.
pub trait Member {
    /// Whether the finalizer is still there: the pod is not counted yet.
    fn is_tracked(&self) -> bool;

    /// The index that it works on.
    fn index(&self) -> Option<i64>;

    /// How often its index failed before, and how many of these failures were ignored.
    fn failures_before(&self) -> (i32, i32);

    /// When it ended, as well as can be told.
    fn finished_at(&self) -> Timestamp;
}

impl Member for Pod {
    fn is_tracked(&self) -> bool {
        self.metadata.finalizers.iter().any(|finalizer| &**finalizer == TRACKING)
    }

    fn index(&self) -> Option<i64> {
        let index: i64 = self.metadata.annotations.get(COMPLETION_INDEX)?.parse().ok()?;
        Some(index).filter(|index| (0..=i64::from(i32::MAX)).contains(index))
    }

    fn failures_before(&self) -> (i32, i32) {
        let count = |name| self.metadata.annotations.get(name).and_then(|text| text.parse::<i32>().ok());
        let count = |name| count(name).filter(|count| *count >= 0).unwrap_or_default();
        (count(INDEX_FAILURES), count(INDEX_FAILURES_IGNORED))
    }

    fn finished_at(&self) -> Timestamp {
        let made = self.created_at();
        containers_ended_at(self).or_else(|| unready_since(self)).or_else(|| deleted_at(self)).unwrap_or(made)
    }
}

/// When the last container ended; sidecars end after the others.
fn containers_ended_at(pod: &Pod) -> Option<Timestamp> {
    let is_sidecar = |status: &&ContainerStatus| pod.spec.is_sidecar(&status.name);
    let sidecars = pod.status.init_container_statuses.iter().filter(is_sidecar);
    let ends = pod.status.container_statuses.iter().chain(sidecars).map(ended_at);
    ends.collect::<Option<Vec<_>>>()?.into_iter().max()
}

fn ended_at(status: &ContainerStatus) -> Option<Timestamp> {
    status.state.terminated.as_ref()?.finished_at.as_ref().map(|time| time.0)
}

fn unready_since(pod: &Pod) -> Option<Timestamp> {
    let ready = pod.status.condition("Ready").filter(|ready| &*ready.status == "False")?;
    ready.last_transition_time.as_ref().map(|time| time.0)
}

/// When its deletion was asked for: the timestamp is that of the end of its grace.
fn deleted_at(pod: &Pod) -> Option<Timestamp> {
    let grace = SignedDuration::from_secs(pod.metadata.deletion_grace_period_seconds.unwrap_or_default());
    pod.metadata.deletion_timestamp.as_ref()?.0.checked_sub(grace).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(spec: Value, status: Value) -> Pod {
        let metadata = json!({"name": "a", "creationTimestamp": "2026-01-01T00:00:00Z"});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status})).unwrap()
    }

    fn ended(name: &str, second: u8) -> Value {
        json!({"name": name, "state": {"terminated": {"exitCode": 0, "finishedAt": format!("2026-01-01T00:00:{second:02}Z")}}})
    }

    #[test]
    fn the_end_of_a_pod_is_told_by_the_best_witness() {
        let sidecar = json!({"initContainers": [{"name": "side", "restartPolicy": "Always"}, {"name": "first"}]});
        let unready = json!([{"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:50Z"}]);
        for (spec, status, second) in [
            (json!({}), json!({"containerStatuses": [ended("a", 5), ended("b", 9)]}), 9),
            (json!({}), json!({"containerStatuses": [ended("a", 5), {"name": "b"}], "conditions": unready}), 50),
            (
                sidecar,
                json!({"containerStatuses": [ended("a", 5)],
                    "initContainerStatuses": [ended("side", 7), ended("first", 30)]}),
                7,
            ),
            (json!({}), json!({}), 0),
        ] {
            let expected = format!("2026-01-01T00:00:{second:02}Z");
            assert_eq!(pod(spec, status.clone()).finished_at().to_string(), expected, "{status}");
        }
    }

    #[test]
    fn hostile_annotations_count_as_absent() {
        for (text, expected) in [("3", Some(3)), ("-1", None), ("x", None), ("99999999999999999999", None), ("", None)]
        {
            let annotations = json!({COMPLETION_INDEX: text, INDEX_FAILURES: text});
            let pod: Pod =
                serde_json::from_value(json!({"metadata": {"name": "a", "annotations": annotations}})).unwrap();
            assert_eq!(pod.index(), expected, "{text}");
            assert_eq!(pod.failures_before().0, expected.unwrap_or_default() as i32, "{text}");
        }
    }
}
