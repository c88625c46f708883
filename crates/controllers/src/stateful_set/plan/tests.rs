//! What is done for a set, as a table of facts.
//!
//! Pods are written as `ordinal:state`, where the state is a word for how the pod is, with `'` behind it if the pod is of
//! the new revision: `ready`, `fresh` (ready for 5 s), `waits`, `pending`, `ends` (being deleted), `failed`.

use serde_json::json;

use super::*;

const NOW: &str = "2026-01-01T01:00:00Z";

struct Fine;

impl ClaimFacts for Fine {
    fn are_stale(&self, ordinal: i64) -> bool {
        ordinal == 66
    }

    fn are_missing(&self, ordinal: i64) -> bool {
        ordinal == 77
    }

    fn are_retained_right(&self, ordinal: i64, _: &Pod, _: bool) -> bool {
        ordinal != 88
    }

    fn are_mounted(&self, ordinal: i64, _: &Pod) -> bool {
        ordinal != 99
    }
}

fn pod(text: &str) -> Arc<Pod> {
    let (ordinal, state) = text.split_once(':').unwrap();
    let (state, revision) = state.strip_suffix('\'').map_or((state, "old"), |state| (state, "new"));
    let phase = match state {
        "pending" => "Pending",
        "failed" => "Failed",
        _ => "Running",
    };
    let since = if state == "fresh" { "2026-01-01T00:59:55Z" } else { "2026-01-01T00:00:00Z" };
    let is_ready = matches!(state, "ready" | "fresh" | "ends");
    let ready = if is_ready { "True" } else { "False" };
    let name = format!("web-{ordinal}");
    let mut metadata = json!({"name": name, "namespace": "shop", "uid": ordinal, "labels":
        {identity::NAME_LABEL: name, REVISION_LABEL: revision}});
    if state == "ends" {
        metadata["deletionTimestamp"] = json!(NOW);
    }
    let condition = json!({"type": "Ready", "status": ready, "lastTransitionTime": since});
    let status = json!({"phase": phase, "conditions": [condition]});
    Arc::new(serde_json::from_value(json!({"metadata": metadata, "status": status})).unwrap())
}

fn desired(replicas: i64) -> Desired<'static> {
    Desired {
        name: "web",
        is_deleting: false,
        start: 0,
        replicas,
        is_parallel: false,
        update: Strategy::Rolling { partition: Some(0) },
        min_ready_seconds: 0,
        current_replicas: 0,
        current_revision: "old",
        update_revision: "new",
    }
}

fn planned(desired: &Desired<'_>, pods: &str) -> Plan {
    let pods: Vec<_> = pods.split_whitespace().map(pod).collect();
    plan(desired, &pods, &Fine, NOW.parse().unwrap())
}

#[track_caller]
fn check(desired: &Desired<'_>, pods: &str, expected: &str) {
    let plan = planned(desired, pods);
    let said = plan.stages.iter().flatten().map(|step| match step {
        Step::Create { ordinal, revision: Revision::Current } => format!("make {ordinal}"),
        Step::Create { ordinal, revision: Revision::Update } => format!("make {ordinal}'"),
        Step::Delete(pod) => format!("delete {}", pod.metadata.uid),
        Step::Mend { ordinal, .. } => format!("mend {ordinal}"),
        Step::Claims { ordinal, .. } => format!("claims {ordinal}"),
        Step::Retain { ordinal, .. } => format!("retain {ordinal}"),
    });
    assert_eq!(said.collect::<Vec<_>>().join(", "), expected, "{pods}");
}

#[test]
fn pods_come_one_after_the_other() {
    let three = desired(3);
    check(&three, "", "make 0'");
    check(&three, "0:pending'", "");
    check(&three, "0:waits'", "");
    check(&three, "0:ready'", "make 1'");
    check(&three, "0:ready' 2:ready'", "make 1'");
    check(&three, "0:ends' 1:ready'", "");
    check(&three, "0:failed'", "delete 0");
    check(&three, "0:ready' 1:ready' 2:ready'", "");
    check(&Desired { start: 5, ..desired(2) }, "5:ready'", "make 6'");
    check(&Desired { min_ready_seconds: 10, ..desired(2) }, "0:fresh'", "");
    check(&Desired { min_ready_seconds: 5, ..desired(2) }, "0:fresh'", "make 1'");
    check(&Desired { is_deleting: true, ..desired(3) }, "0:ready'", "");
}

#[test]
fn pods_go_from_the_last_one_down() {
    let one = desired(1);
    check(&one, "0:ready' 1:ready' 2:ready'", "delete 2");
    check(&one, "0:ready' 1:ready' 2:ends'", "");
    check(&one, "0:waits' 1:ready'", "");
    // One that is not ready goes only if it is the first of those.
    check(&one, "0:ready' 1:ready' 2:waits'", "delete 2");
    check(&one, "0:ready' 1:waits' 2:waits'", "");
    check(&one, "0:ready' 1:waits' 2:ready'", "delete 2");
    check(&Desired { start: 2, ..desired(1) }, "0:ready' 1:ready' 2:ready'", "delete 1");
    check(&desired(0), "0:ready'", "delete 0");
    // A pod that is not of this set by its name doesn't count.
    check(&desired(0), "01:ready'", "");
}

#[test]
fn parallel_pods_wait_for_nobody() {
    let three = Desired { is_parallel: true, ..desired(3) };
    check(&three, "", "make 0', make 1', make 2'");
    check(&three, "0:pending' 2:failed'", "make 1', delete 2");
    check(&three, "0:waits' 1:ends' 2:ready' 3:ready' 4:waits' 5:ends'", "delete 4, delete 3");
    // Updates are in order all the same.
    check(&three, "0:ready 1:ready 2:ready", "delete 2");
    check(&three, "0:ready 1:ready 2:pending'", "");
    check(&three, "0:ready 1:ready 2:failed", "delete 2");
}

#[test]
fn pods_are_made_anew_from_the_last_one_down() {
    let three = desired(3);
    check(&three, "0:ready 1:ready 2:ready", "delete 2");
    check(&three, "0:ready 1:ready 2:ends", "");
    check(&three, "0:ready 1:ready", "make 2'");
    check(&three, "0:ready 1:ready 2:waits'", "");
    check(&three, "0:ready 1:ready 2:ready'", "delete 1");
    check(&Desired { min_ready_seconds: 10, ..three.clone() }, "0:ready 1:ready 2:fresh'", "");
    let partition = |at| Desired { update: Strategy::Rolling { partition: Some(at) }, ..desired(3) };
    check(&partition(2), "0:ready 1:ready 2:ready", "delete 2");
    check(&partition(2), "0:ready 1:ready 2:ready'", "");
    check(&partition(2), "0:ready 2:ready'", "make 1");
    check(&partition(9), "0:ready 1:ready 2:ready", "");
    check(&partition(1), "", "make 0");
    // The partition counts places, not ordinals.
    check(&Desired { start: 5, ..partition(2) }, "5:ready 6:ready 7:ready", "delete 7");
    let on_delete = Desired { update: Strategy::OnDelete, ..desired(3) };
    check(&on_delete, "0:ready 1:ready 2:ready", "");
    check(&on_delete, "0:ready 1:ready", "make 2'");
    let unsaid = Desired { update: Strategy::Rolling { partition: None }, current_replicas: 2, ..desired(3) };
    check(&unsaid, "0:ready", "make 1");
    check(&unsaid, "0:ready 1:ready", "make 2'");
}

#[test]
fn claims_are_seen_to() {
    let one = |start| Desired { start, is_parallel: true, ..desired(1) };
    check(&one(66), "", "");
    check(&one(77), "77:pending'", "claims 77");
    check(&one(77), "77:ready'", "");
    check(&one(88), "88:pending'", "claims 88");
    check(&one(88), "88:ready'", "mend 88");
    check(&one(99), "99:ready'", "mend 99");
    check(&one(0), "0:ready' 88:ready'", "retain 88, delete 88");
}

#[test]
fn a_huge_set_is_filled_in_bursts() {
    let plan = planned(&Desired { is_parallel: true, ..desired(i64::from(i32::MAX)) }, "0:ready'");
    assert_eq!(plan.stages.iter().flatten().count(), BURST);
    check(&Desired { start: i64::from(i32::MAX), ..desired(1) }, "0:ready'", "make 2147483647'");
}

#[test]
fn pods_are_counted_by_how_they_are() {
    let counts = |desired: &Desired<'_>, pods: &str| {
        let Counts { all, ready, available, current, updated } = planned(desired, pods).counts;
        [all, ready, available, current, updated]
    };
    assert_eq!(counts(&desired(3), "0:ready 1:waits 2:ends' 3:fresh'"), [4, 3, 3, 2, 1]);
    let slow = Desired { min_ready_seconds: 10, ..desired(2) };
    assert_eq!(counts(&slow, "0:ready' 1:fresh'"), [2, 2, 1, 0, 2]);
    assert_eq!(planned(&slow, "0:ready' 1:fresh'").next_check, Some("2026-01-01T01:00:05Z".parse().unwrap()));
    // The pod that is about to be made anew doesn't count as current any more.
    assert_eq!(counts(&desired(2), "0:ready 1:ready"), [2, 2, 2, 1, 0]);
}
