//! What people are told.

use serde_json::{Value, json};

use super::*;

const NOW: &str = "2026-06-01T12:00:00Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

fn object<K: serde::de::DeserializeOwned>(kind: &str, name: &str, spec: Value, status: Value) -> K {
    let metadata = json!({"name": name, "namespace": "default", "uid": format!("uid-{name}"), "generation": 1, "creationTimestamp": NOW});
    let object = json!({"apiVersion": "fleet.setpoint.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec, "status": status});
    serde_json::from_value(object).unwrap()
}

fn said(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": NOW})
}

fn vehicle(name: &str, hardware: &str, wanted: &str, mut status: Value) -> VehicleView {
    status["observedGeneration"] = 1.into();
    status["firmwareVersion"] = "1.0".into();
    let mut conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    if !conditions.iter().any(|condition| condition["type"] == "Connected") {
        conditions.push(said("Connected", "True", "Seen", ""));
    }
    status["conditions"] = conditions.into();
    object("Vehicle", name, json!({"hardwareId": hardware, "firmwareVersion": wanted}), status)
}

fn fleet() -> Fleet {
    let image = json!({"url": "https://f.example/1", "size": 2_500_000, "sha256": "b".repeat(64)});
    let firmware =
        object("Firmware", "1.1", json!({"version": "1.1", "hardwareIds": ["h"], "artifacts": [image]}), json!(null));
    let steps = json!([{"limit": 1, "soak": "10m"}, {"limit": "50%", "approve": true}]);
    let spec = json!({"firmwareRef": {"name": "1.1"}, "steps": steps, "maxConcurrent": 2, "bytesPerSecond": 10_000});
    let message = "step 1 soaks until 2026-06-01T12:10:00Z";
    let status = json!({"phase": "Soaking", "stepText": "1/3", "counts": {"eligible": 5}, "conditions": [said("Progressing", "True", "Soak", message)]});
    let idle = json!({"phase": "UpToDate"});
    let offline = json!({"phase": "UpToDate", "conditions": [said("Connected", "False", "Silent", "")]});
    let asked = json!({"phase": "Waiting", "conditions": [said("Blocked", "True", "Consent", "the vehicle itself waits for it")]});
    let retry = json!({"attempt": 2, "failures": 2, "nextTime": "2026-06-01T12:01:00Z", "lastReason": "DownloadFailed", "lastMessage": "503"});
    let given_up = json!({"attempt": 2, "failures": 2, "unhealthy": 2, "lastReason": "HealthCheckFailed", "lastMessage": "brakes"});
    let progress = json!({"taskId": "t", "attempt": 1, "stage": "Installing", "percent": 40});
    Fleet {
        vehicles: vec![
            vehicle("idle", "h", "1.0", idle.clone()),
            vehicle("idle-2", "h", "1.0", idle.clone()),
            vehicle("idle-3", "h", "1.0", idle.clone()),
            vehicle("away", "h", "1.0", offline),
            vehicle("other", "x", "1.0", idle),
            vehicle("asked", "h", "1.1", asked),
            vehicle("retrying", "h", "1.1", json!({"phase": "RetryBackoff", "retry": retry})),
            vehicle("failed", "h", "1.1", json!({"phase": "Failed", "retry": given_up})),
            vehicle("busy", "h", "1.1", json!({"phase": "Installing", "progress": progress})),
        ],
        firmwares: vec![firmware],
        rollouts: vec![object("Rollout", "spring", spec, status)],
    }
}

#[test]
fn one_sentence_names_what_holds_a_vehicle() {
    let fleet = fleet();
    let check = |name: &str, expected: &str| assert_eq!(fleet.why(name, now()).as_deref().unwrap_or("-"), expected);
    check(
        "idle",
        "idle runs 1.0; held (RolloutHold): rollout spring brings 1.1, and it has not come to it yet (Soaking: step 1 soaks until 2026-06-01T12:10:00Z)",
    );
    check(
        "away",
        "away runs 1.0; held (RolloutHold): rollout spring brings 1.1, and it is offline since 2026-06-01T12:00:00Z (Soaking: step 1 soaks until 2026-06-01T12:10:00Z)",
    );
    check(
        "other",
        "other runs 1.0; held (RolloutHold): rollout spring brings 1.1, and it can't get it (WrongHardware) (Soaking: step 1 soaks until 2026-06-01T12:10:00Z)",
    );
    check("asked", "asked runs 1.0 and should run 1.1; held (Consent): the vehicle itself waits for it");
    check(
        "retrying",
        "retrying runs 1.0; 2 attempts to install 1.1 failed, the last with DownloadFailed: 503; the next is at 2026-06-01T12:01:00Z",
    );
    check("failed", "failed runs 1.0 and has given up on 1.1: HealthCheckFailed: brakes; only another spec helps");
    check("busy", "busy goes from 1.0 to 1.1: Installing, 40 %");
    check("nobody", "-");
    // A rollout that is over holds nobody.
    for phase in ["Completed", "RolledBack", "Superseded"] {
        let mut fleet = self::fleet();
        fleet.rollouts[0].status.as_mut().unwrap().phase = Some(phase.to_owned());
        assert_eq!(fleet.why("idle", now()).unwrap(), "idle runs 1.0, as it should", "{phase}");
    }
}

#[test]
fn a_vehicle_that_is_not_there_is_told_as_such() {
    let mut fleet = fleet();
    let mut add = |name: &str, runs: Value, connected: &[Value], wanted: Value| {
        let status =
            json!({"observedGeneration": 1, "phase": "Pending", "firmwareVersion": runs, "conditions": connected});
        fleet.vehicles.push(object("Vehicle", name, json!({"hardwareId": "h", "firmwareVersion": wanted}), status));
    };
    let silent = [said("Connected", "False", "Silent", "")];
    add("new", json!(null), &[], json!(null));
    add("van", json!(null), &silent, json!("1.1"));
    add("far", json!("1.0"), &silent, json!("1.1"));
    let why = |name: &str| fleet.why(name, now()).unwrap();
    assert_eq!(why("new"), "new has never connected: does its agent run, with what `setpoint fleet enrol new` wrote?");
    assert_eq!(
        why("van"),
        "van has never connected, and should run 1.1: does its agent run, with what `setpoint fleet enrol van` wrote?"
    );
    assert_eq!(
        why("far"),
        "far is offline since 2026-06-01T12:00:00Z; it goes from 1.0 to 1.1 (Pending) when it is back"
    );
}

#[test]
fn a_plan_says_how_many_how_much_how_long_and_who_can_not() {
    let expected = "\
rollout spring brings 1.1 (2.5 MB) to 8 vehicles: 0 have it, 3 are on their way, 1 failed

STEP   VEHICLES   BYTES    SOAK    LIKELY TIME
1      0          0 B      10m0s   10m0s
2      0          0 B      -       -             has to be approved
3      3          7.5 MB   -       12m30s
all    3          7.5 MB           22m30s

1 are offline; they are told when they are back

1 can't get there (HealthCheckFailed): failed

1 can't get there (WrongHardware): other
";
    assert_eq!(fleet().forecast("spring", now()).unwrap(), expected);
    assert_eq!(fleet().forecast("autumn", now()).unwrap_err(), "there is no rollout autumn");
}

#[test]
fn an_overview_counts_vehicles_versions_and_rollouts() {
    let expected = "\
VEHICLES   CONNECTED   UP TO DATE   UPDATING   WAITING   RETRYING   FAILED
9          8           5            1          1         1          1

VERSION   RUN   WANTED
1.0       9     5
1.1       0     4

ROLLOUT   FIRMWARE   PHASE     STEP   UPDATED   MESSAGE
spring    1.1        Soaking   1/3    0/5       step 1 soaks until 2026-06-01T12:10:00Z
";
    assert_eq!(fleet().overview(), expected);
    let figures = json!({
        "vehicles": {"all": 9, "connected": 8, "upToDate": 5, "updating": 1, "waiting": 1, "retrying": 1, "failed": 1},
        "versions": [{"version": "1.0", "run": 9, "wanted": 5}, {"version": "1.1", "run": 0, "wanted": 4}],
        "rollouts": [{"name": "spring", "firmware": "1.1", "phase": "Soaking", "step": "1/3", "updated": 0, "eligible": 5}],
    });
    assert_eq!(fleet().figures(), figures);
}
