//! How many pods may go: pure.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use k8s_openapi::jiff::Timestamp;
use setpoint_runtime::cache::Cached;

use crate::pod::Pod;
use crate::selector;

/// A pod whose eviction was granted is deleted within this time, or it won't be at all.
const DELETION_TIMEOUT: Duration = Duration::from_secs(2 * 60);

const CONDITION: &str = "DisruptionAllowed";

/// What there is.
pub struct Found {
    /// How many pods the owners of the pods want; zero if that doesn't count.
    pub scale: i32,
    pub pods: Vec<Arc<Pod>>,
}

/// What follows.
pub struct Outlook {
    /// None if what is said is right.
    pub status: Option<PodDisruptionBudgetStatus>,
    /// Pods whose eviction was granted but that were not deleted.
    pub overdue: Vec<Arc<Pod>>,
    pub next_check: Option<Timestamp>,
}

/// Whether the budget is a share of what the owners of its pods want, or counts down from it.
pub fn counts_scale(spec: &PodDisruptionBudgetSpec) -> bool {
    spec.max_unavailable.is_some() || matches!(spec.min_available, Some(IntOrString::String(_)))
}

/// What is to be said about a budget.
pub fn outlook(budget: &PodDisruptionBudget, found: &Found, now: Timestamp) -> Outlook {
    let spec = budget.spec.clone().unwrap_or_default();
    let old = budget.status.clone().unwrap_or_default();
    let granted = old.disrupted_pods.clone().unwrap_or_default();
    let deadline = |pod: &Pod| {
        let since = granted.get(&*pod.metadata.name).filter(|_| !pod.is_deleting())?;
        since.0.checked_add(DELETION_TIMEOUT).ok()
    };
    let (mut waiting, mut overdue, mut next_check) = (BTreeMap::new(), Vec::new(), None::<Timestamp>);
    for pod in &found.pods {
        match deadline(pod) {
            None => {}
            Some(deadline) if deadline <= now => overdue.push(pod.clone()),
            Some(deadline) => {
                next_check = Some(next_check.map_or(deadline, |next| next.min(deadline)));
                waiting.insert(pod.metadata.name.to_string(), granted[&*pod.metadata.name].clone());
            }
        }
    }
    let is_staying = |pod: &Pod| !pod.is_deleting() && deadline(pod).is_none_or(|deadline| deadline <= now);
    let healthy = found.pods.iter().filter(|pod| is_staying(pod) && pod.is_ready()).count();
    let healthy = i32::try_from(healthy).unwrap_or(i32::MAX);
    let (expected, desired) = wanted(&spec, found);
    let allowed = if expected > 0 { healthy.saturating_sub(desired).max(0) } else { 0 };
    let verdict = if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    let generation = budget.metadata.generation;
    let mut conditions = old.conditions.clone().unwrap_or_default();
    let known = conditions.iter().find(|condition| condition.type_ == CONDITION);
    let is_said = known.is_some_and(|known| (&*known.status, &*known.reason) == verdict);
    set_condition(&mut conditions, verdict, "", generation, now);
    let status = PodDisruptionBudgetStatus {
        conditions: Some(conditions),
        current_healthy: Some(healthy),
        desired_healthy: Some(desired),
        disrupted_pods: Some(waiting).filter(|waiting| !waiting.is_empty()),
        disruptions_allowed: Some(allowed),
        expected_pods: Some(expected),
        observed_generation: generation,
    };
    let facts = |status: &PodDisruptionBudgetStatus| {
        let numbers =
            [status.current_healthy, status.desired_healthy, status.expected_pods, status.disruptions_allowed];
        (
            numbers.map(Option::unwrap_or_default),
            status.disrupted_pods.clone().unwrap_or_default(),
            status.observed_generation,
        )
    };
    let is_same = is_said && facts(&old) == facts(&status);
    Outlook { status: Some(status).filter(|_| !is_same), overdue, next_check }
}

/// What is to be said when nobody knows how many pods there should be: none may go. None if it is said already.
pub fn failed(budget: &PodDisruptionBudget, why: &str, now: Timestamp) -> Option<PodDisruptionBudgetStatus> {
    let old = budget.status.clone().unwrap_or_default();
    let mut conditions = old.conditions.clone().unwrap_or_default();
    set_condition(&mut conditions, ("False", "SyncFailed"), why, old.observed_generation, now);
    let new = PodDisruptionBudgetStatus { disruptions_allowed: Some(0), conditions: Some(conditions), ..old.clone() };
    Some(new).filter(|new| *new != old)
}

/// How many pods there should be, and how many of them must be healthy.
fn wanted(spec: &PodDisruptionBudgetSpec, found: &Found) -> (i32, i32) {
    match (&spec.max_unavailable, &spec.min_available) {
        (Some(max_unavailable), _) => {
            (found.scale, found.scale.saturating_sub(share(max_unavailable, found.scale)).max(0))
        }
        (None, Some(IntOrString::Int(min_available))) => {
            (i32::try_from(found.pods.len()).unwrap_or(i32::MAX), *min_available)
        }
        (None, Some(min_available)) => (found.scale, share(min_available, found.scale)),
        (None, None) => (0, 0),
    }
}

/// A number, or a share of all, rounded up.
fn share(amount: &IntOrString, all: i32) -> i32 {
    match amount {
        IntOrString::Int(amount) => *amount,
        IntOrString::String(text) => {
            let percent = text.strip_suffix('%').and_then(|percent| percent.parse::<i32>().ok()).unwrap_or(0);
            let scaled = (i64::from(percent) * i64::from(all) + 99) / 100;
            i32::try_from(scaled).unwrap_or(i32::MAX)
        }
    }
}

fn set_condition(
    conditions: &mut Vec<Condition>,
    (status, reason): (&str, &str),
    message: &str,
    generation: Option<i64>,
    now: Timestamp,
) {
    let now = Time(Timestamp::from_second(now.as_second()).unwrap_or(now));
    let mut new = Condition {
        type_: CONDITION.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        observed_generation: generation,
        last_transition_time: now,
    };
    match conditions.iter_mut().find(|old| old.type_ == CONDITION) {
        Some(old) => {
            if old.status == new.status {
                new.last_transition_time = old.last_transition_time.clone();
            }
            *old = new;
        }
        None => conditions.push(new),
    }
}

/// What users are told when a budget has pods that nobody controls, in Kubernetes' words.
pub fn unmanaged(spec: &PodDisruptionBudgetSpec) -> String {
    let shown = selector::as_printed(&spec.selector.clone().unwrap_or_default());
    format!(
        "Pods selected by this PodDisruptionBudget (selector: {shown}) were found to be unmanaged. As a result, the status \
         of the PDB cannot be calculated correctly, which may result in undefined behavior. To account for these pods please \
         set \".spec.minAvailable\" field of the PDB to an integer value."
    )
}

/// What events about a pod point to.
pub fn reference(pod: &Pod) -> ObjectReference {
    let text = |text: &str| Some(text.to_owned());
    ObjectReference {
        api_version: text("v1"),
        kind: text("Pod"),
        namespace: text(&pod.metadata.namespace),
        name: text(&pod.metadata.name),
        uid: text(&pod.metadata.uid),
        resource_version: text(&pod.metadata.resource_version),
        field_path: None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const NOW: &str = "2026-01-01T01:00:00Z";

    /// Pods as words: `ready`, `waits`, `ends`; their names are their places.
    fn pods(text: &str) -> Vec<Arc<Pod>> {
        let pod = |(at, state): (usize, &str)| {
            let ready = if state == "waits" { "False" } else { "True" };
            let mut metadata = json!({"name": at.to_string(), "namespace": "shop"});
            if state == "ends" {
                metadata["deletionTimestamp"] = json!(NOW);
            }
            let status = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]});
            Arc::new(serde_json::from_value(json!({"metadata": metadata, "status": status})).unwrap())
        };
        text.split_whitespace().enumerate().map(pod).collect()
    }

    fn budget(spec: Value, status: Value) -> PodDisruptionBudget {
        let metadata = json!({"name": "web", "generation": 2});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status})).unwrap()
    }

    fn empty() -> Value {
        json!({"currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0, "disruptionsAllowed": 0})
    }

    #[track_caller]
    fn check(spec: Value, scale: i32, text: &str, expected: [i32; 4]) {
        let found = Found { scale, pods: pods(text) };
        let status = outlook(&budget(spec.clone(), empty()), &found, NOW.parse().unwrap()).status.unwrap();
        let numbers =
            [status.current_healthy, status.desired_healthy, status.expected_pods, status.disruptions_allowed];
        assert_eq!(numbers, expected.map(Some), "{spec} {scale} {text}");
        let condition = &status.conditions.unwrap()[0];
        let verdict = if expected[3] > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
        assert_eq!((&*condition.status, &*condition.reason), verdict);
    }

    #[test]
    fn as_many_may_go_as_are_healthy_beyond_those_that_must_be() {
        check(json!({"minAvailable": 2}), 0, "ready ready ready", [3, 2, 3, 1]);
        check(json!({"minAvailable": 2}), 0, "ready ready waits", [2, 2, 3, 0]);
        check(json!({"minAvailable": 2}), 0, "ready ready ends", [2, 2, 3, 0]);
        check(json!({"minAvailable": 0}), 0, "", [0, 0, 0, 0]);
        check(json!({"minAvailable": "50%"}), 3, "ready ready ready", [3, 2, 3, 1]);
        check(json!({"minAvailable": "100%"}), 3, "ready ready ready", [3, 3, 3, 0]);
        check(json!({"maxUnavailable": 1}), 3, "ready ready ready", [3, 2, 3, 1]);
        check(json!({"maxUnavailable": 1}), 3, "ready ready", [2, 2, 3, 0]);
        check(json!({"maxUnavailable": "34%"}), 3, "ready ready ready", [3, 1, 3, 2]);
        check(json!({"maxUnavailable": 5}), 3, "ready", [1, 0, 3, 1]);
        check(json!({"maxUnavailable": 1}), 0, "ready", [1, 0, 0, 0]);
        check(json!({}), 0, "ready", [1, 0, 0, 0]);
        check(json!({"maxUnavailable": i32::MAX}), i32::MAX, "ready", [1, 0, i32::MAX, 1]);
    }

    #[test]
    fn a_pod_whose_eviction_is_granted_counts_as_gone_for_two_minutes() {
        let granted = |at: &str| {
            let mut status = empty();
            status["disruptedPods"] = json!({"0": at, "9": at});
            budget(json!({"minAvailable": 1}), status)
        };
        let found = Found { scale: 0, pods: pods("ready ready") };
        let now = NOW.parse().unwrap();
        let fresh = outlook(&granted("2026-01-01T00:59:00Z"), &found, now);
        let status = fresh.status.unwrap();
        assert_eq!((status.current_healthy, status.disruptions_allowed), (Some(1), Some(0)));
        assert_eq!(status.disrupted_pods.unwrap().into_keys().collect::<Vec<_>>(), ["0"], "what is gone is forgotten");
        assert_eq!(fresh.next_check, Some("2026-01-01T01:01:00Z".parse().unwrap()));
        assert!(fresh.overdue.is_empty());
        let old = outlook(&granted("2026-01-01T00:57:00Z"), &found, now);
        let status = old.status.unwrap();
        assert_eq!(
            (status.current_healthy, status.disruptions_allowed, status.disrupted_pods),
            (Some(2), Some(1), None)
        );
        assert_eq!((old.overdue.len(), old.next_check), (1, None));
    }

    #[test]
    fn nothing_is_written_when_all_is_said() {
        let found = Found { scale: 0, pods: pods("ready ready") };
        let now = NOW.parse().unwrap();
        let mut budget = budget(json!({"minAvailable": 1}), empty());
        budget.status = outlook(&budget, &found, now).status;
        assert!(outlook(&budget, &found, now).status.is_none());
        budget.status = failed(&budget, "no idea", now);
        assert_eq!(budget.status.as_ref().unwrap().disruptions_allowed, Some(0));
        assert!(failed(&budget, "no idea", now).is_none());
        assert!(outlook(&budget, &found, now).status.is_some());
    }

    #[test]
    fn selectors_are_shown_as_go_does() {
        let spec = json!({"selector": {"matchLabels": {"app": "web"},
            "matchExpressions": [{"key": "a", "operator": "In", "values": ["b", "c"]}]}});
        let said = unmanaged(&serde_json::from_value(spec).unwrap());
        let shown = "(selector: &LabelSelector{MatchLabels:map[string]string{app: web,},MatchExpressions:\
            []LabelSelectorRequirement{LabelSelectorRequirement{Key:a,Operator:In,Values:[b c],},},})";
        assert!(said.contains(shown), "{said}");
    }
}
