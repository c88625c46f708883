//! Facts about what deployments say.

use serde_json::{Value, json};

use super::super::family::Member;
use super::*;

const LATER: &str = "2026-01-01T00:10:00.5Z";

fn deployment(spec: Value, status: Value) -> Deployment {
    let mut object = json!({
        "metadata": {"name": "web", "generation": 2},
        "spec": {"replicas": 2, "progressDeadlineSeconds": 60, "selector": {}, "template": {}},
        "status": status,
    });
    for (name, value) in spec.as_object().unwrap() {
        object["spec"][name] = value.clone();
    }
    serde_json::from_value(object).unwrap()
}

/// A set that wants so many pods, and has so many, so many of them available.
fn member(name: &str, (wanted, actual, available): (i32, i32, i32)) -> Member {
    Member::of(std::sync::Arc::new(
        serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"replicas": wanted, "selector": {}},
            "status": {"replicas": actual, "readyReplicas": available, "availableReplicas": available,
                "terminatingReplicas": 1, "observedGeneration": 1},
        }))
        .unwrap(),
    ))
}

fn progressing(status: &str, reason: &str, updated: &str) -> Value {
    json!({"type": "Progressing", "status": status, "reason": reason, "message": "m",
        "lastUpdateTime": updated, "lastTransitionTime": "2026-01-01T00:00:00Z"})
}

/// What is said of progress: status, reason, message, time of update, time of transition.
fn said(status: &DeploymentStatus) -> Option<[String; 5]> {
    let condition = conditions::find(status.conditions.as_deref().unwrap_or_default(), PROGRESSING)?;
    let time = |time: &Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>| {
        time.as_ref().unwrap().0.to_string()[11..19].to_owned()
    };
    Some([
        condition.status.clone(),
        condition.reason.clone().unwrap(),
        condition.message.clone().unwrap(),
        time(&condition.last_update_time),
        time(&condition.last_transition_time),
    ])
}

fn check(said_before: Value, new: Option<(i32, i32, i32)>, old: (i32, i32, i32), expected: [&str; 5]) {
    let deployment = deployment(json!({}), said_before.clone());
    let report = Report::new(&deployment, Bounds::of(&deployment), LATER.parse().unwrap());
    let family = Family { new: new.map(|new| member("web-2", new)), old: vec![member("web-1", old)] };
    let status = report.rollout(&family);
    assert_eq!(said(&status).unwrap_or_default(), expected.map(str::to_owned), "{said_before}");
}

#[test]
fn progress_moves_the_time_and_lack_of_it_ends_in_a_verdict() {
    let before = |counts: Value, reason: &str, updated: &str| {
        let mut status = counts;
        status["conditions"] = json!([progressing("True", reason, updated)]);
        status
    };
    let half = json!({"replicas": 3, "updatedReplicas": 1, "readyReplicas": 2, "availableReplicas": 2, "observedGeneration": 2});
    let (long_ago, just_now) = ("2026-01-01T00:00:00Z", "2026-01-01T00:09:30Z");
    let progress = ["True", UPDATED, "ReplicaSet \"web-2\" is progressing.", "00:10:00", "00:00:00"];
    // All is done.
    let done = ["True", COMPLETE, "ReplicaSet \"web-2\" has successfully progressed.", "00:10:00", "00:00:00"];
    check(before(half.clone(), UPDATED, long_ago), Some((2, 2, 2)), (0, 0, 0), done);
    // It was done before, but the last word was about another set.
    check(before(half.clone(), COMPLETE, long_ago), Some((2, 2, 2)), (0, 0, 0), done);
    // A pod more of the new set, one fewer of the old ones, one more available.
    check(before(half.clone(), UPDATED, long_ago), Some((2, 2, 0)), (1, 1, 1), progress);
    check(before(half.clone(), UPDATED, long_ago), Some((1, 1, 1)), (1, 1, 0), progress);
    check(before(half.clone(), UPDATED, long_ago), Some((1, 1, 1)), (2, 2, 2), progress);
    // Nothing: within the deadline, and after it.
    check(
        before(half.clone(), UPDATED, just_now),
        Some((1, 1, 0)),
        (2, 2, 2),
        ["True", UPDATED, "m", "00:09:30", "00:00:00"],
    );
    let late = ["False", TIMED_OUT, "ReplicaSet \"web-2\" has timed out progressing.", "00:10:00", "00:10:00"];
    check(before(half.clone(), UPDATED, long_ago), Some((1, 1, 0)), (2, 2, 2), late);
    let late = ["False", TIMED_OUT, "Deployment \"web\" has timed out progressing.", "00:10:00", "00:10:00"];
    check(before(half.clone(), UPDATED, long_ago), None, (3, 3, 2), late);
    // The last rollout was done long ago: that is no lack of progress.
    check(
        before(half.clone(), COMPLETE, long_ago),
        Some((1, 1, 0)),
        (2, 2, 2),
        ["True", COMPLETE, "m", "00:00:00", "00:00:00"],
    );
    // A verdict stays until something moves.
    let mut stuck = half;
    stuck["conditions"] = json!([progressing("False", TIMED_OUT, long_ago)]);
    check(stuck.clone(), Some((1, 1, 0)), (2, 2, 2), ["False", TIMED_OUT, "m", "00:00:00", "00:00:00"]);
    let moved = ["True", UPDATED, "ReplicaSet \"web-2\" is progressing.", "00:10:00", "00:10:00"];
    check(stuck, Some((2, 2, 0)), (1, 1, 1), moved);
}

#[test]
fn counts_are_those_of_all_sets() {
    let deployment = deployment(json!({"replicas": 4}), json!({"collisionCount": 3}));
    let report = Report::new(&deployment, Bounds::of(&deployment), LATER.parse().unwrap());
    let family = Family { new: Some(member("web-2", (3, 2, 1))), old: vec![member("web-1", (2, 2, 2))] };
    let mut status = serde_json::to_value(report.counts(&family)).unwrap();
    let conditions = status["conditions"].take();
    assert_eq!(
        status,
        json!({"observedGeneration": 2, "replicas": 4, "updatedReplicas": 2, "readyReplicas": 3, "availableReplicas": 3,
            "unavailableReplicas": 2, "terminatingReplicas": 2, "collisionCount": 3, "conditions": null})
    );
    assert_eq!(conditions[0]["reason"], "MinimumReplicasAvailable", "4 less 1 that rounding leaves are 3");
    let fewer = Family { new: None, old: vec![member("web-1", (4, 4, 2))] };
    let status = serde_json::to_value(report.counts(&fewer)).unwrap();
    assert_eq!(status["conditions"][0]["reason"], "MinimumReplicasUnavailable");
    assert_eq!(status["conditions"][0]["status"], "False");
}

#[test]
fn pause_and_resumption_are_said_unless_time_had_run_out() {
    let check = |paused: bool, reason: &str, expected: &str| {
        let before = json!({"conditions": [progressing("True", reason, "2026-01-01T00:00:00Z")]});
        let deployment = deployment(json!({"paused": paused}), before);
        let mut report = Report::new(&deployment, Bounds::of(&deployment), LATER.parse().unwrap());
        report.note_pause();
        assert_eq!(said(&report.as_said()).unwrap()[1], expected, "{paused} {reason}");
    };
    check(true, UPDATED, PAUSED);
    check(true, TIMED_OUT, TIMED_OUT);
    check(false, PAUSED, RESUMED);
    check(false, UPDATED, UPDATED);
}

#[test]
fn without_a_deadline_nothing_is_said_of_progress() {
    let before = json!({"conditions": [progressing("True", UPDATED, "2026-01-01T00:00:00Z")]});
    let deployment = deployment(json!({"progressDeadlineSeconds": i32::MAX}), before);
    let mut report = Report::new(&deployment, Bounds::of(&deployment), LATER.parse().unwrap());
    report.note_created("web-2");
    let status = report.rollout(&Family::default());
    assert_eq!(said(&status), None);
    assert_eq!(report.next_look(&status), None);
}

#[test]
fn the_next_look_is_when_time_runs_out() {
    let look = |reason: &str, updated: &str| {
        let deployment = deployment(json!({}), json!({"conditions": [progressing("True", reason, updated)]}));
        let report = Report::new(&deployment, Bounds::of(&deployment), LATER.parse().unwrap());
        report.next_look(&report.as_said()).map(|moment| moment.to_string())
    };
    assert_eq!(look(UPDATED, "2026-01-01T00:09:50Z").as_deref(), Some("2026-01-01T00:10:51Z"));
    assert_eq!(look(COMPLETE, "2026-01-01T00:09:50Z"), None);
    assert_eq!(look(TIMED_OUT, "2026-01-01T00:09:50Z"), None);
}

#[test]
fn the_failure_of_a_set_is_one_of_the_deployment_until_it_is_over() {
    let deployment = deployment(json!({}), json!({}));
    let report = Report::new(&deployment, Bounds::of(&deployment), LATER.parse().unwrap());
    let mut sick = member("web-1", (1, 0, 0));
    let failure = json!({"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "quota",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let mut set = (*sick.set).clone();
    set.status.as_mut().unwrap().conditions = Some(vec![serde_json::from_value(failure).unwrap()]);
    sick.set = std::sync::Arc::new(set);
    let status = report.rollout(&Family { new: Some(sick), old: vec![] });
    let said = conditions::find(status.conditions.as_deref().unwrap(), REPLICA_FAILURE).unwrap().clone();
    assert_eq!((said.reason.as_deref(), said.message.as_deref()), (Some("FailedCreate"), Some("quota")));
    assert!(said.last_update_time.is_some());
    let status = report.rollout(&Family { new: Some(member("web-1", (1, 1, 0))), old: vec![] });
    assert!(conditions::find(status.conditions.as_deref().unwrap(), REPLICA_FAILURE).is_none());
}
