//! What is done for a set, as a table of facts.
//!
//! Pods are written as `name@node:state`, where the state is a word for how the pod is, with `'` behind it if the pod is of
//! the new revision: `ready`, `fresh` (ready for 5 s), `waits`, `unbound`, `ends` (being deleted), `failed`, `succeeded`. Names
//! are in the order of their age. Nodes are `a` to `c`, which should have a pod, `s`, where one may stay, and `x`, which must
//! not have one.

use serde_json::json;

use super::super::update::update;
use super::*;

const NOW: &str = "2026-01-01T01:00:00Z";
const NODES: [(&str, Eligible); 5] =
    [("a", Eligible::Yes), ("b", Eligible::Yes), ("c", Eligible::Yes), ("s", Eligible::Stay), ("x", Eligible::No)];

fn pod(text: &str) -> Arc<Pod> {
    let (name, rest) = text.split_once('@').unwrap();
    let (node, state) = rest.split_once(':').unwrap();
    let (state, revision) = state.strip_suffix('\'').map_or((state, "old"), |state| (state, "new"));
    let phase = match state {
        "failed" => "Failed",
        "succeeded" => "Succeeded",
        "unbound" => "Pending",
        _ => "Running",
    };
    let since = if state == "fresh" { "2026-01-01T00:59:55Z" } else { "2026-01-01T00:00:00Z" };
    let ready = if matches!(state, "ready" | "fresh" | "ends") { "True" } else { "False" };
    let mut metadata = json!({"name": name, "namespace": "shop", "uid": name, "labels": {REVISION_LABEL: revision}});
    if state == "ends" {
        metadata["deletionTimestamp"] = json!(NOW);
    }
    let field = json!({"key": "metadata.name", "operator": "In", "values": [node]});
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        {"nodeSelectorTerms": [{"matchFields": [field]}]}}});
    let node_name = if state == "unbound" { "" } else { node };
    let condition = json!({"type": "Ready", "status": ready, "lastTransitionTime": since});
    let status = json!({"phase": phase, "conditions": [condition]});
    let pod = json!({"metadata": metadata, "spec": {"nodeName": node_name, "affinity": affinity}, "status": status});
    Arc::new(serde_json::from_value(pod).unwrap())
}

fn desired(surge: usize, unavailable: usize) -> Desired<'static> {
    let update = Strategy::Rolling { surge, unavailable, may_surge: surge > 0 };
    Desired { hash: "new", generation: None, min_ready_seconds: 0, update }
}

#[track_caller]
fn check(desired: &Desired<'_>, is_update: bool, pods: &str, expected: &str) {
    let pods: Vec<_> = pods.split_whitespace().map(pod).collect();
    let (grouped, nodes) = (Pods::group(&pods), BTreeMap::from(NODES));
    let now = NOW.parse().unwrap();
    let held = |node: &str| (node == "c").then(|| "2026-01-01T01:00:07Z".parse().unwrap());
    let plan = match is_update {
        true => update(desired, &nodes, &grouped, now),
        false => plan(desired, &nodes, &grouped, held, now),
    };
    let made = plan.create.iter().map(|node| format!("make @{node}"));
    let deleted = plan.delete.iter().map(|(pod, why)| match why {
        Why::Surplus => format!("delete {}", pod.metadata.name),
        Why::Failed => format!("failed {}", pod.metadata.name),
        Why::Succeeded => format!("succeeded {}", pod.metadata.name),
    });
    let next = plan.next_check.map(|moment| format!("wait {}", moment.duration_since(now).as_secs()));
    let said: Vec<_> = made.chain(deleted).chain(next).collect();
    assert_eq!(said.join(", "), expected, "{pods:?}");
}

#[test]
fn every_node_that_should_has_a_pod_and_no_other() {
    let check = |pods: &str, expected: &str| check(&desired(0, 1), false, pods, expected);
    check("", "make @a, make @b, make @c");
    check("1@a:ready' 2@b:unbound' 3@c:waits", "");
    check("1@a:ready' 2@b:ready' 3@c:ready' 4@s:ready 5@x:ready", "delete 5");
    // Nothing is made while a pod is going.
    check("1@a:ends' 2@b:ready' 3@c:ready'", "");
    // All but the oldest go; one that is bound counts as older.
    check("1@a:ready' 2@b:ready' 3@c:ready' 4@c:ready'", "delete 4");
    check("1@a:ready' 2@b:ready' 3@c:unbound' 4@c:ready'", "delete 3");
    // A pod that waits for a node that is gone goes; one that was there is left to the collector of pods.
    check("1@a:ready' 2@b:ready' 3@c:ready' 4@gone:unbound 5@gone:ready", "delete 4");
}

#[test]
fn pods_that_ended_go_and_come_back() {
    let check = |pods: &str, expected: &str| check(&desired(0, 1), false, pods, expected);
    check("1@a:failed' 2@b:succeeded' 3@c:ready'", "failed 1, succeeded 2");
    check("1@a:ready' 2@b:ready' 3@c:failed'", "wait 7");
    check("1@a:ready' 2@b:ready' 3@c:ready' 4@s:failed'", "failed 4");
}

#[test]
fn old_pods_are_replaced_in_place() {
    let check = |unavailable: usize, pods: &str, expected: &str| check(&desired(0, unavailable), true, pods, expected);
    check(1, "1@a:ready 2@b:ready 3@c:ready", "delete 1");
    check(2, "1@a:ready 2@b:ready 3@c:ready", "delete 1, delete 2");
    check(1, "1@a:ends 2@b:ready 3@c:ready", "");
    check(1, "2@b:ready 3@c:ready", "");
    check(1, "1@a:waits' 2@b:ready 3@c:ready", "");
    check(1, "1@a:ready' 2@b:ready 3@c:ready", "delete 2");
    // Those that don't work go at once, and count.
    check(1, "1@a:ready 2@b:waits 3@c:waits", "delete 2, delete 3");
    check(3, "1@a:ready 2@b:waits 3@c:waits", "delete 2, delete 3, delete 1");
    check(1, "1@a:ready' 2@b:ready' 3@c:ready'", "");
    // A node with an old and a new one, or with too many, is left to whoever cleans up.
    check(1, "1@a:ready 2@a:ready' 3@b:ready 4@c:ready", "");
    check(1, "1@a:ready 2@a:ready 3@b:ready 4@c:ready", "");
}

#[test]
fn new_pods_are_made_beside_old_ones() {
    let check_update = |surge: usize, pods: &str, expected: &str| check(&desired(surge, 0), true, pods, expected);
    check_update(1, "1@a:ready 2@b:ready 3@c:ready", "make @a");
    check_update(2, "1@a:ready 2@b:ready 3@c:ready", "make @a, make @b");
    check_update(1, "1@a:ready 2@b:ready 3@c:ready 4@a:waits'", "");
    check_update(1, "1@a:ready 2@b:ready 3@c:ready 4@a:ready'", "make @b, delete 1");
    check_update(1, "1@a:ready 2@b:waits 3@c:ready", "make @b, make @a");
    // Where pods have no business they go when there are enough elsewhere, or when they don't work.
    check_update(1, "1@a:ready' 2@b:ready' 3@c:waits' 4@s:ready", "");
    check_update(1, "1@a:ready' 2@b:ready' 3@c:ready' 4@s:ready", "delete 4");
    check_update(1, "1@a:ready' 2@b:ready' 3@c:waits' 4@s:waits", "delete 4");
    let slow = Desired { min_ready_seconds: 10, ..desired(1, 0) };
    check(&slow, true, "1@a:ready 2@b:ready 3@c:ready 4@a:fresh'", "");
}

#[test]
fn with_surge_a_node_keeps_an_old_and_a_new_pod_while_that_makes_sense() {
    let check = |pods: &str, expected: &str| check(&desired(1, 0), false, pods, expected);
    check("1@a:ready 2@a:waits' 3@b:ready' 4@c:ready'", "");
    check("1@a:waits 2@a:waits' 3@b:ready' 4@c:ready'", "delete 1");
    check("1@a:ready 2@a:ready' 3@b:ready' 4@c:ready'", "delete 1");
    check("1@a:ready 2@a:waits' 3@a:waits' 4@b:ready' 5@c:ready' 6@a:ready", "delete 3, delete 6");
    check("1@a:ends 2@b:ready' 3@c:ready'", "make @a");
    check("1@a:ready' 2@b:ready' 3@c:failed'", "wait 7");
}

#[test]
fn on_delete_nothing_is_replaced() {
    let desired = Desired { update: Strategy::OnDelete, ..desired(0, 1) };
    check(&desired, true, "1@a:ready 2@b:waits 3@c:ready", "");
}

#[test]
fn a_pod_of_the_template_generation_counts_as_new() {
    let of = |label: &str, value: &str| -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "a", "labels": {label: value}}})).unwrap()
    };
    let desired = Desired { generation: Some("3"), ..desired(0, 1) };
    assert!(desired.is_new(&of(REVISION_LABEL, "new")) && desired.is_new(&of(GENERATION_LABEL, "3")));
    assert!(!desired.is_new(&of(REVISION_LABEL, "old")) && !desired.is_new(&of(GENERATION_LABEL, "2")));
}
