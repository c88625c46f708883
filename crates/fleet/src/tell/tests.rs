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
    let spec = json!({"firmwareRef": {"name": "1.1"}, "steps": steps, "maxConcurrent": 2, "maxFailures": 5, "bytesPerSecond": 10_000});
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
fn a_vehicle_whose_certificate_has_expired_is_told_how_it_comes_back() {
    let at = |expires: &str, more: Value| {
        let mut fleet = fleet();
        let mut access = json!({"keys": ["00"], "keysUntil": expires});
        access.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let connected = [said("Connected", "False", "Silent", "")];
        let status =
            json!({"observedGeneration": 1, "phase": "UpToDate", "firmwareVersion": "1.0", "conditions": connected});
        let spec = json!({"hardwareId": "h", "access": access});
        fleet.rollouts.clear();
        fleet.vehicles = vec![object("Vehicle", "van", spec, status)];
        fleet.why("van", now()).unwrap()
    };
    let none = json!({});
    assert_eq!(at("2026-06-01T12:00:01Z", none.clone()), "van runs 1.0, as it should");
    assert_eq!(
        at("2026-06-01T12:00:00Z", none.clone()),
        "van runs 1.0, as it should; its certificate has expired at 2026-06-01T12:00:00Z; it comes back by itself until 2026-08-30T12:00:00Z"
    );
    assert_eq!(
        at("2026-05-01T12:00:00Z", json!({"returnWithin": "24h"})),
        "van runs 1.0, as it should; its certificate has expired at 2026-05-01T12:00:00Z, and it needs a token: `setpoint fleet token van`"
    );
    assert_eq!(
        at("2026-06-02T12:00:00Z", json!({"revoked": true})),
        "van runs 1.0, as it should; its access is revoked"
    );
    // A rollout doesn't wait for who is shut out, and says so.
    let mut fleet = depot(json!({}), json!(null), &[("a", json!({}), json!({}))]);
    let connected = [said("Connected", "False", "Silent", "")];
    let status =
        json!({"observedGeneration": 1, "phase": "UpToDate", "firmwareVersion": "1.0", "conditions": connected});
    fleet.vehicles = vec![object("Vehicle", "van", json!({"hardwareId": "h", "access": {"revoked": true}}), status)];
    let forecast = fleet.forecast("spring", now()).unwrap();
    assert_eq!((forecast.hopeless[0].reason.as_str(), forecast.hopeless[0].names[0].as_str()), ("NeedsToken", "van"));
}

#[test]
fn a_plan_says_how_many_how_much_how_long_and_who_can_not() {
    let expected = "\
rollout spring brings 1.1 (2.5 MB) to 8 vehicles: 0 have it, 3 are on their way, 1 failed
now Progressing: step 1 of 3: 0 of 4 have confirmed

STEP   WHO   VEHICLES   BYTES    BEGINS                 SOAK    LIKELY TIME
1      1     0          0 B      2026-06-01T12:00:00Z   10m0s   23m20s
2      50%   0          0 B      2026-06-01T12:23:20Z   -       -             has to be approved
3      all   3          7.5 MB   2026-06-01T12:23:20Z   -       17m30s
all          3          7.5 MB                                  40m50s        done 2026-06-01T12:40:50Z

at most 2 at once; approvals are taken to come at once

1 are offline; they are told when they are back

1 can't get there (HealthCheckFailed): failed

1 can't get there (WrongHardware): other
";
    assert_eq!(fleet().forecast("spring", now()).unwrap().text(), expected);
    assert_eq!(fleet().forecast("autumn", now()).unwrap_err(), "there is no rollout autumn");
}

/// A rollout of 1.1 and idle vehicles, each with its labels and update policy.
fn depot(mut spec: Value, status: Value, vehicles: &[(&str, Value, Value)]) -> Fleet {
    let image = json!({"url": "https://f.example/1", "size": 1_000_000, "sha256": "b".repeat(64)});
    let firmware = json!({
        "version": "1.1", "hardwareIds": ["h"], "artifacts": [image], "notes": {"minutes": 10},
    });
    spec["firmwareRef"] = json!({"name": "1.1"});
    let vehicle = |(name, labels, policy): &(&str, Value, Value)| {
        json!({
            "metadata": {"name": name, "namespace": "default", "uid": name, "generation": 1, "labels": labels, "creationTimestamp": NOW},
            "spec": {"hardwareId": "h", "updatePolicy": policy},
            "status": {
                "phase": "UpToDate", "observedGeneration": 1, "firmwareVersion": "1.0",
                "conditions": [said("Connected", "True", "Seen", "")],
            },
        })
    };
    Fleet {
        vehicles: vehicles.iter().map(|it| serde_json::from_value(vehicle(it)).unwrap()).collect(),
        firmwares: vec![object("Firmware", "1.1", firmware, json!(null))],
        rollouts: vec![object("Rollout", "spring", spec, status)],
    }
}

/// The rows of a plan.
fn plan(fleet: &Fleet) -> Vec<String> {
    let text = fleet.forecast("spring", now()).unwrap().text();
    text.lines()
        .filter(|line| !line.is_empty())
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect()
}

#[test]
fn a_plan_tells_steps_by_label_within_the_budget_of_each_group() {
    let (north, south) = (json!({"region": "north", "depot": "a"}), json!({"region": "south", "depot": "b"}));
    let names = ["a", "b", "c", "d", "e", "f"];
    let vehicles: Vec<_> =
        names.iter().map(|name| (*name, north.clone(), json!({}))).chain([("x", south, json!({}))]).collect();
    let spec = json!({
        "steps": [
            {"name": "north", "selector": {"matchLabels": {"region": "north"}}, "limit": "50%", "soak": "1h"},
            {"limit": 5},
        ],
        "maxConcurrent": 100, "maxUnavailable": {"groupBy": "depot", "value": 2},
    });
    let fleet = depot(spec, json!(null), &vehicles);
    let rows = plan(&fleet);
    let expected = [
        "rollout spring brings 1.1 (1.0 MB) to 7 vehicles: 0 have it, 0 are on their way, 0 failed",
        "now Progressing: step 1 of 3: 0 of 0 have confirmed",
        "STEP WHO VEHICLES BYTES BEGINS SOAK LIKELY TIME",
        // Three of depot a, two at once: two turns of ten minutes, and an hour.
        "1 north 50% of region=north 3 3.0 MB 2026-06-01T12:00:00Z 1h0m0s 1h20m0s",
        "2 5 2 2.0 MB 2026-06-01T13:20:00Z - 10m0s",
        "3 all 2 2.0 MB 2026-06-01T13:30:00Z - 10m0s",
        "all 7 7.0 MB 1h40m0s done 2026-06-01T13:40:00Z",
        "at most 100 at once; by depot: a 2 of 6, b 2 of 1",
    ];
    assert_eq!(rows, expected);
    let value = fleet.forecast("spring", now()).unwrap().value();
    assert_eq!(value["steps"][0]["name"], "north");
    assert_eq!(value["steps"][1]["begins"], "2026-06-01T13:20:00Z");
    assert_eq!(
        (&value["groupBy"], &value["groups"][0]),
        (&json!("depot"), &json!({"value": "a", "vehicles": 6, "atOnce": 2}))
    );
    assert_eq!((value["seconds"].as_i64(), &value["done"]), (Some(6000), &json!("2026-06-01T13:40:00Z")));
}

#[test]
fn a_plan_tells_when_windows_open_by_the_clocks_of_their_zones() {
    let own = json!({"downloadWindow": "09:00-10:00 Asia/Tokyo"});
    let install = json!({"installWindow": "Sun 03:00-04:00 Europe/Berlin"});
    let broken = json!({"installWindow": "03:00-04:00 Mars/Base"});
    let vehicles =
        [("a", json!({}), json!({})), ("b", json!({}), own), ("c", json!({}), install), ("d", json!({}), broken)];
    let spec =
        |steps: Value| json!({"steps": steps, "maxConcurrent": 4, "window": "Mon-Fri 20:00-05:00 Europe/Berlin"});
    // Monday noon in UTC. The window opens at 20:00 in Berlin, which is 18:00; Tokyo's opens at midnight; Sunday's six days later.
    let rows = plan(&depot(spec(json!([])), json!(null), &vehicles));
    let expected = [
        "rollout spring brings 1.1 (1.0 MB) to 4 vehicles: 0 have it, 0 are on their way, 0 failed",
        "now Progressing: step 1 of 1: 0 of 0 have confirmed; its window opens again: 2026-06-01T18:00:00Z",
        "STEP WHO VEHICLES BYTES BEGINS SOAK LIKELY TIME",
        "1 all 4 4.0 MB 2026-06-01T20:00:00+02:00 - 127h10m0s",
        "all 4 4.0 MB 133h10m0s done 2026-06-07T03:10:00+02:00",
        "at most 4 at once; only in the window Mon-Fri 20:00-05:00 Europe/Berlin; 2 wait for windows of their own",
        "1 can't get there (UnreadableWindow): d",
    ];
    assert_eq!(rows, expected);
    // What the window of one night does not take goes on in the next: six turns of ten minutes are an hour.
    let many: Vec<_> = ["a", "b", "c", "d", "e", "f"].map(|name| (name, json!({}), json!({}))).into();
    let spec = json!({"maxConcurrent": 1, "window": "20:00-20:30 Europe/Berlin"});
    let value = depot(spec, json!(null), &many).forecast("spring", now()).unwrap().value();
    assert_eq!(value["done"], "2026-06-02T20:30:00+02:00");
}

#[test]
fn a_plan_knows_what_people_have_approved_and_promoted() {
    let vehicles: Vec<_> = ["a", "b", "c", "d"].map(|name| (name, json!({}), json!({}))).into();
    let steps = json!([{"limit": 1, "soak": "24h"}, {"limit": 2, "soak": "1h", "approve": true}, {"limit": 3, "approve": true}]);
    let spec = json!({"steps": steps, "promotedStep": 1, "approvedStep": 2});
    let rows = plan(&depot(spec, json!(null), &vehicles));
    let expected = [
        "1 1 1 1.0 MB 2026-06-01T12:00:00Z - 10m0s promoted: no soak",
        "2 2 1 1.0 MB 2026-06-01T12:10:00Z 1h0m0s 1h10m0s approved",
        "3 3 1 1.0 MB 2026-06-01T13:20:00Z - 10m0s has to be approved",
        "4 all 1 1.0 MB 2026-06-01T13:30:00Z - 10m0s",
        "all 4 4.0 MB 1h40m0s done 2026-06-01T13:40:00Z",
        "at most 100 at once; approvals are taken to come at once",
    ];
    assert_eq!(rows[3..], expected);
}

#[test]
fn a_plan_counts_the_rest_of_a_soak_and_what_is_over() {
    let vehicles: Vec<_> = ["a", "b", "c"].map(|name| (name, json!({}), json!({}))).into();
    let steps = json!([{"limit": 1, "soak": "1h"}, {"limit": 2, "soak": "2h"}]);
    let has_it = |count: usize, step: i64, reached: &str| {
        let status =
            json!({"phase": "Soaking", "observedGeneration": 1, "step": step, "reachedTime": reached, "stepTime": NOW});
        let mut fleet = depot(json!({ "steps": steps }), status, &vehicles);
        for vehicle in &mut fleet.vehicles[..count] {
            vehicle.spec.firmware_version = Some("1.1".into());
            vehicle.status.firmware_version = Some("1.1".into());
        }
        plan(&fleet)
    };
    // Twenty minutes of the first hour are left.
    let expected = [
        "1 1 0 0 B 2026-06-01T12:00:00Z 20m0s 20m0s",
        "2 2 1 1.0 MB 2026-06-01T12:20:00Z 2h0m0s 2h10m0s",
        "3 all 1 1.0 MB 2026-06-01T14:30:00Z - 10m0s",
        "all 2 2.0 MB 2h40m0s done 2026-06-01T14:40:00Z",
    ];
    assert_eq!(has_it(1, 1, "2026-06-01T11:20:00Z")[3..7], expected);
    let expected = [
        "1 1 0 0 B - - - done",
        "2 2 0 0 B 2026-06-01T12:00:00Z 30m0s 30m0s",
        "3 all 1 1.0 MB 2026-06-01T12:30:00Z - 10m0s",
        "all 1 1.0 MB 40m0s done 2026-06-01T12:40:00Z",
    ];
    assert_eq!(has_it(2, 2, "2026-06-01T10:30:00Z")[3..7], expected);
}

#[test]
fn a_plan_says_where_it_never_goes_on_by_itself() {
    let vehicles: Vec<_> = ["a", "b"].map(|name| (name, json!({}), json!({}))).into();
    let never = |spec: Value| {
        let forecast = depot(spec, json!(null), &vehicles).forecast("spring", now()).unwrap();
        let notes = forecast.steps.iter().flat_map(|step| step.notes.clone()).collect::<Vec<_>>();
        let hopeless: Vec<_> = forecast.hopeless.iter().map(|it| (it.reason.clone(), it.vehicles)).collect();
        (forecast.done, notes, hopeless)
    };
    let stuck = |why: &str| vec![format!("never ends by itself: {why}")];
    let none = |why: &str| vec![(why.to_owned(), 2)];
    assert_eq!(never(json!({"maxConcurrent": 0})), (None, stuck("maxConcurrent is 0"), none("NoBudget")));
    let unavailable = json!({"maxUnavailable": {"groupBy": "depot", "value": 0}});
    assert_eq!(never(unavailable), (None, stuck("maxUnavailable is 0"), none("NoBudget")));
    assert_eq!(never(json!({"steps": [{"limit": 0}]})), (None, stuck("its limit is 0"), vec![]));
    // A step that is late pauses the rollout, which is known beforehand.
    let late = json!({"maxConcurrent": 1, "stepDeadline": "15m"});
    let expected = vec!["too late: it pauses at its deadline 2026-06-01T12:15:00Z".to_owned()];
    assert_eq!(never(late), (Some("2026-06-01T12:20:00Z".to_owned()), expected, vec![]));
    // One that goes back is told as such.
    let back = depot(json!({"rollback": true}), json!(null), &vehicles).forecast("spring", now()).unwrap();
    assert_eq!((back.phase, back.steps.len(), back.back.is_some()), ("RolledBack", 0, true));
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
