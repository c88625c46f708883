//! What the plan says, fact by fact.

use serde_json::{Value, json};

use super::*;

const NOW: &str = "2026-06-01T12:00:00Z";

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn firmware(spec: Value, status: Value) -> Firmware {
    let image = json!({"url": "https://f.example/2", "size": 9, "sha256": "b".repeat(64)});
    let mut whole = json!({"version": "2", "hardwareIds": ["h"], "artifacts": [image]});
    merge(&mut whole, spec);
    let object = json!({"apiVersion": "fleet.setpoint.dev/v1alpha1", "kind": "Firmware", "metadata": {"name": "2"}, "spec": whole, "status": status});
    serde_json::from_value(object).unwrap()
}

/// A vehicle that runs 1, should run 2 and is connected since noon, but for what is said here.
fn vehicle(change: Value) -> VehicleView {
    let connected =
        json!({"type": "Connected", "status": "True", "reason": "R", "message": "", "lastTransitionTime": NOW});
    let mut whole = json!({
        "metadata": {"name": "v", "namespace": "n", "uid": "u", "generation": 3},
        "spec": {"hardwareId": "h", "firmwareVersion": "2"},
        "status": {"firmwareVersion": "1", "phase": "UpToDate", "observedGeneration": 2, "conditions": [connected]},
    });
    merge(&mut whole, change);
    serde_json::from_value(whole).unwrap()
}

fn merge(into: &mut Value, change: Value) {
    match (into, change) {
        (Value::Object(into), Value::Object(change)) => {
            for (key, value) in change {
                if value.is_null() {
                    into.remove(&key);
                } else {
                    merge(into.entry(key).or_insert(Value::Null), value);
                }
            }
        }
        (into, change) => *into = change,
    }
}

fn id(generation: i64) -> String {
    TaskId::of("u", generation, &"b".repeat(64)).to_string()
}

/// A task of generation 3, given at noon.
fn task(attempt: i64) -> Value {
    let digest = "b".repeat(64);
    json!({
        "id": id(3), "attempt": attempt, "generation": 3, "firmwareVersion": "2", "digest": digest, "fromVersion": "1",
        "issuedAt": NOW, "deadline": "2026-06-01T12:10:00Z",
    })
}

/// A vehicle with a task, and what it says of it.
fn tasked(attempt: i64, progress: Value) -> Value {
    let mut said = json!({"taskId": id(3), "attempt": attempt, "time": NOW});
    merge(&mut said, progress);
    json!({"status": {"phase": "Downloading", "observedGeneration": 3, "task": task(attempt), "progress": said}})
}

fn merged(mut one: Value, other: Value) -> Value {
    merge(&mut one, other);
    one
}

fn check(change: Value, firmware: Option<&Firmware>, now: &str, expected: &str) -> Plan {
    let plan = plan(&vehicle(change.clone()), firmware, at(now));
    let task = plan.task.as_ref().map_or("-".to_owned(), |task| format!("{}/{}", task.generation, task.attempt));
    let gate = plan.blocked.as_ref().map_or("-", |(gate, _)| gate);
    let retry = plan.retry.as_ref().map_or("-".to_owned(), |retry| {
        let next = if retry.next_time.is_some() { "again" } else { "never" };
        format!("{}x {} {next}", retry.failures, retry.last_reason)
    });
    let said = format!("{} task {task} gate {gate} retry {retry}", plan.phase);
    assert_eq!(said, expected, "{change} at {now}");
    plan
}

fn two() -> Firmware {
    firmware(json!({}), json!(null))
}

#[test]
fn a_vehicle_that_runs_what_it_should_is_up_to_date() {
    let two = two();
    check(json!({"spec": {"firmwareVersion": "1"}}), None, NOW, "UpToDate task - gate - retry -");
    check(json!({"spec": {"firmwareVersion": null}}), None, NOW, "UpToDate task - gate - retry -");
    check(json!({"spec": {"firmwareVersion": null}, "status": null}), None, NOW, "Pending task - gate - retry -");
    let done = tasked(1, json!({"stage": "Confirming", "result": "Succeeded"}));
    check(
        merged(done, json!({"status": {"firmwareVersion": "2"}})),
        Some(&two),
        NOW,
        "UpToDate task 3/1 gate - retry -",
    );
}

#[test]
fn each_gate_is_named() {
    let two = two();
    let open =
        |change: Value, gate: &str| check(change, Some(&two), NOW, &format!("Waiting task - gate {gate} retry -"));
    open(json!({"spec": {"paused": true}}), "Paused");
    let offline =
        json!([{"type": "Connected", "status": "False", "reason": "R", "message": "", "lastTransitionTime": NOW}]);
    open(json!({"status": {"conditions": offline}}), "Offline");
    open(json!({"status": {"conditions": []}}), "Offline");
    let closed = open(json!({"spec": {"updatePolicy": {"downloadWindow": "22:00-05:00 Europe/Berlin"}}}), "Window");
    assert_eq!(closed.wake, Some(at("2026-06-01T20:00:00Z")));
    let odd = open(json!({"spec": {"updatePolicy": {"downloadWindow": "22:00-05:00 Mars/City"}}}), "Window");
    assert_eq!(odd.wake, None);
    check(json!({}), None, NOW, "Waiting task - gate NoFirmware retry -");
    let quarantined = firmware(json!({}), json!({"quarantinedFor": ["x", "h"]}));
    check(json!({}), Some(&quarantined), NOW, "Waiting task - gate Quarantined retry -");
    let young = firmware(json!({"minFromVersion": "1.5"}), json!(null));
    check(json!({}), Some(&young), NOW, "Waiting task - gate MinFromVersion retry -");
    check(json!({"status": null}), Some(&two), NOW, "Pending task - gate Offline retry -");
}

#[test]
fn a_task_is_given_once_nothing_holds_the_vehicle() {
    let plan = check(json!({}), Some(&two()), NOW, "Downloading task 3/1 gate - retry -");
    let task = plan.task.unwrap();
    assert_eq!((&*task.id, &*task.firmware_version, task.from_version.as_deref()), (&*id(3), "2", Some("1")));
    assert_eq!((task.issued_at.0, task.deadline.0), (at(NOW), at("2026-06-01T12:10:00Z")));
    let open = json!({"spec": {"updatePolicy": {"downloadWindow": "12:00-13:00"}}});
    check(open, Some(&two()), NOW, "Downloading task 3/1 gate - retry -");
    check(json!({"status": {"firmwareVersion": null}}), Some(&two()), NOW, "Downloading task 3/1 gate - retry -");
}

#[test]
fn a_vehicle_without_a_network_tries_again_and_one_that_is_unwell_twice_does_not() {
    let two = two();
    let retry = |reason: &str, unhealthy: i64| json!({"status": {"retry": {"attempt": 1, "failures": 1, "unhealthy": unhealthy, "lastReason": reason, "lastMessage": "m"}}});
    let went_back = |reason: &str| tasked(2, json!({"result": "RolledBack", "reason": reason, "message": "m"}));
    let unreached = merged(went_back("HubUnreachable"), retry("HubUnreachable", 0));
    let plan = check(unreached, Some(&two), NOW, "RetryBackoff task 3/2 gate - retry 2x HubUnreachable again");
    assert_eq!(plan.retry.unwrap().unhealthy, 0);
    let unwell = merged(went_back("HealthCheckFailed"), retry("HealthCheckFailed", 1));
    check(unwell, Some(&two), NOW, "Failed task 3/2 gate - retry 2x HealthCheckFailed never");
}

#[test]
fn what_the_vehicle_says_is_shown_once_it_takes_a_while() {
    let two = two();
    let installing = tasked(1, json!({"stage": "Installing", "percent": 10}));
    let early = check(installing.clone(), Some(&two), "2026-06-01T12:00:14Z", "Downloading task 3/1 gate - retry -");
    assert_eq!(early.wake, Some(at("2026-06-01T12:00:15Z")));
    let shown = check(installing, Some(&two), "2026-06-01T12:00:15Z", "Installing task 3/1 gate - retry -");
    assert_eq!(shown.wake, Some(at("2026-06-01T12:10:00Z")));
    let asked = tasked(1, json!({"stage": "Waiting", "gate": "Consent"}));
    let asked = check(asked, Some(&two), "2026-07-01T12:00:00Z", "Waiting task 3/1 gate Consent retry -");
    assert_eq!(asked.wake, None);
}

#[test]
fn what_another_task_says_does_not_count() {
    let two = two();
    for other in [json!({"taskId": "x", "result": "Failed"}), json!({"attempt": 2, "result": "Failed"})] {
        check(tasked(1, other), Some(&two), NOW, "Downloading task 3/1 gate - retry -");
    }
}

#[test]
fn a_vehicle_that_is_away_for_a_moment_is_not_missed_and_has_no_deadline() {
    let two = two();
    let away =
        json!([{"type": "Connected", "status": "False", "reason": "R", "message": "", "lastTransitionTime": NOW}]);
    let away = merged(tasked(1, json!({"stage": "Rebooting"})), json!({"status": {"conditions": away}}));
    let early = check(away.clone(), Some(&two), "2026-06-01T12:00:59Z", "Rebooting task 3/1 gate - retry -");
    assert_eq!(early.wake, Some(at("2026-06-01T12:01:00Z")));
    let missed = check(away, Some(&two), "2026-06-08T12:01:00Z", "Rebooting task 3/1 gate Offline retry -");
    assert_eq!(missed.wake, None);
    let back = json!([{"type": "Connected", "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2026-06-08T12:00:00Z"}]);
    let back = merged(tasked(1, json!({"stage": "Rebooting"})), json!({"status": {"conditions": back}}));
    check(back.clone(), Some(&two), "2026-06-08T12:09:59Z", "Rebooting task 3/1 gate - retry -");
    check(back, Some(&two), "2026-06-08T12:10:00Z", "RetryBackoff task 3/1 gate - retry 1x NoProgress again");
}

#[test]
fn silence_is_a_failure_after_ten_minutes() {
    let two = two();
    let silent = tasked(1, json!({"taskId": "other"}));
    check(silent.clone(), Some(&two), "2026-06-01T12:09:59Z", "Downloading task 3/1 gate - retry -");
    check(silent, Some(&two), "2026-06-01T12:10:00Z", "RetryBackoff task 3/1 gate - retry 1x NoProgress again");
    let heard = tasked(1, json!({"stage": "Downloading", "time": "2026-06-01T12:05:00Z"}));
    check(heard.clone(), Some(&two), "2026-06-01T12:14:59Z", "Downloading task 3/1 gate - retry -");
    check(heard, Some(&two), "2026-06-01T12:15:00Z", "RetryBackoff task 3/1 gate - retry 1x NoProgress again");
}

#[test]
fn failures_are_judged_by_their_reason() {
    let two = two();
    for (reason, expected) in [
        ("DownloadFailed", "RetryBackoff task 3/1 gate - retry 1x DownloadFailed again"),
        ("", "RetryBackoff task 3/1 gate - retry 1x Unknown again"),
        ("HealthCheckFailed", "RetryBackoff task 3/1 gate - retry 1x HealthCheckFailed again"),
        ("SignatureInvalid", "Failed task 3/1 gate - retry 1x SignatureInvalid never"),
        ("WrongHardware", "Failed task 3/1 gate - retry 1x WrongHardware never"),
        ("ArtifactNotFound", "Failed task 3/1 gate - retry 1x ArtifactNotFound never"),
        ("Downgrade", "Failed task 3/1 gate - retry 1x Downgrade never"),
    ] {
        check(tasked(1, json!({"result": "Failed", "reason": reason})), Some(&two), NOW, expected);
    }
    let unfit = firmware(json!({"hardwareIds": ["other"]}), json!(null));
    check(json!({}), Some(&unfit), NOW, "Failed task - gate - retry 0x WrongHardware never");
}

fn failed(attempt: i64, failures: i64, unhealthy: i64, reason: &str, next: Option<&str>) -> Value {
    let mut retry = json!({"attempt": attempt, "failures": failures, "unhealthy": unhealthy, "lastReason": reason, "lastMessage": "m"});
    if let Some(next) = next {
        retry["nextTime"] = next.into();
    }
    let phase = if next.is_some() { "RetryBackoff" } else { "Failed" };
    let change = json!({"status": {"phase": phase, "retry": retry}});
    merged(tasked(attempt, json!({"result": "RolledBack", "reason": reason})), change)
}

#[test]
fn a_failure_is_tried_again_when_its_time_has_come_and_not_before() {
    let two = two();
    let waits = failed(1, 1, 0, "DownloadFailed", Some("2026-06-01T12:00:30Z"));
    let early = check(
        waits.clone(),
        Some(&two),
        "2026-06-01T12:00:29Z",
        "RetryBackoff task 3/1 gate - retry 1x DownloadFailed again",
    );
    assert_eq!(early.wake, Some(at("2026-06-01T12:00:30Z")));
    let again = check(
        waits.clone(),
        Some(&two),
        "2026-06-01T12:00:30Z",
        "Downloading task 3/2 gate - retry 1x DownloadFailed again",
    );
    assert_eq!(again.task.unwrap().id, id(3), "another attempt of the same task");
    let away = json!({"status": {"conditions": []}});
    check(
        merged(waits, away),
        Some(&two),
        "2026-06-01T12:00:30Z",
        "Waiting task 3/1 gate Offline retry 1x DownloadFailed again",
    );
}

#[test]
fn the_second_time_that_it_is_unwell_is_the_last() {
    let two = two();
    let once = failed(1, 1, 1, "HealthCheckFailed", Some(NOW));
    let retry = once["status"]["retry"].clone();
    let second = tasked(2, json!({"result": "RolledBack", "reason": "BootFailed"}));
    let second = merged(second, json!({"status": {"retry": retry}}));
    check(second, Some(&two), NOW, "Failed task 3/2 gate - retry 2x BootFailed never");
    // Once unwell and once without a network is not twice unwell.
    let unlucky = failed(1, 1, 0, "DownloadFailed", Some(NOW));
    let retry = unlucky["status"]["retry"].clone();
    let second =
        merged(tasked(2, json!({"result": "RolledBack", "reason": "BootFailed"})), json!({"status": {"retry": retry}}));
    check(second, Some(&two), NOW, "RetryBackoff task 3/2 gate - retry 2x BootFailed again");
}

#[test]
fn what_has_failed_for_good_waits_for_another_spec() {
    let two = two();
    let given_up = failed(2, 2, 2, "HealthCheckFailed", None);
    check(
        given_up.clone(),
        Some(&two),
        "2027-01-01T00:00:00Z",
        "Failed task 3/2 gate - retry 2x HealthCheckFailed never",
    );
    let edited = merged(given_up.clone(), json!({"metadata": {"generation": 4}}));
    check(edited, Some(&two), NOW, "Downloading task 4/1 gate - retry -");
    let away = json!({"metadata": {"generation": 4}, "status": {"conditions": []}});
    check(merged(given_up, away), Some(&two), NOW, "Waiting task - gate Offline retry -");
}

#[test]
fn an_unrelated_change_of_the_spec_keeps_the_task() {
    let edited = merged(tasked(1, json!({"stage": "Downloading"})), json!({"metadata": {"generation": 4}}));
    check(edited, Some(&two()), NOW, "Downloading task 3/1 gate - retry -");
}

#[test]
fn another_wish_replaces_a_task_that_can_be_abandoned_and_waits_for_one_that_can_not() {
    let three = firmware(json!({"version": "3"}), json!(null));
    let wish = |stage: &str| {
        let change = json!({"metadata": {"generation": 4}, "spec": {"firmwareVersion": "3"}});
        merged(tasked(1, json!({"stage": stage, "time": NOW})), change)
    };
    let late = "2026-06-01T12:01:00Z";
    for stage in ["", "Waiting", "Downloading", "Verifying"] {
        check(wish(stage), Some(&three), late, "Downloading task 4/1 gate - retry -");
    }
    for stage in ["Installing", "Rebooting", "Confirming", "RollingBack"] {
        check(wish(stage), Some(&three), late, &format!("{stage} task 3/1 gate - retry -"));
        check(wish(stage), Some(&three), "2026-06-01T12:10:00Z", "Downloading task 4/1 gate - retry -");
    }
    let back = |stage: &str| merged(wish(stage), json!({"spec": {"firmwareVersion": "1"}}));
    check(back("Installing"), None, late, "Installing task 3/1 gate - retry -");
    let plan = check(back("Verifying"), None, late, "UpToDate task - gate - retry -");
    assert!(plan.updating.is_none());
}

#[test]
fn a_pause_takes_a_task_back_unless_it_is_being_installed() {
    let two = two();
    let paused = |stage: &str| {
        let change = json!({"metadata": {"generation": 4}, "spec": {"paused": true}});
        merged(tasked(1, json!({"stage": stage})), change)
    };
    check(paused("Downloading"), Some(&two), NOW, "Waiting task - gate Paused retry -");
    check(paused("Confirming"), Some(&two), "2026-06-01T12:01:00Z", "Confirming task 3/1 gate - retry -");
}

#[test]
fn a_vehicle_that_lost_what_it_had_gets_it_again() {
    let two = two();
    let had = tasked(1, json!({"result": "Succeeded"}));
    let plan = check(had.clone(), Some(&two), NOW, "Downloading task 3/2 gate - retry -");
    assert_eq!(plan.task.unwrap().id, id(3));
    let away = merged(had, json!({"status": {"conditions": []}}));
    check(away, Some(&two), NOW, "Waiting task 3/1 gate Offline retry -");
}

#[test]
fn the_same_task_and_attempt_never_mean_two_things() {
    // The firmware was away for a while; the vehicle may have begun.
    let known = tasked(1, json!({"taskId": "other"}));
    check(known, None, NOW, "Waiting task 3/1 gate NoFirmware retry -");
    let other_digest = json!({"status": {"task": {"digest": "c".repeat(64)}}});
    let known = merged(tasked(1, json!({"taskId": "other"})), other_digest);
    check(known, Some(&two()), NOW, "Downloading task 3/2 gate - retry -");
}
