//! What a rollout decides, fact by fact.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::{Value, json};

use super::super::pick::{Budget, Unconfirmed, pick};
use super::super::tally::Facts;
use super::*;
use crate::kinds::Firmware;
use crate::view::VehicleView;

const NOW: &str = "2026-06-01T12:00:00Z";

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn firmware() -> Firmware {
    let image = json!({"url": "https://f.example/2", "size": 9, "sha256": "b".repeat(64)});
    let spec = json!({"version": "2", "hardwareIds": ["h"], "artifacts": [image], "minFromVersion": "1"});
    let status = json!({"quarantinedFor": ["q"]});
    let object = json!({
        "apiVersion": "fleet.setpoint.dev/v1alpha1", "kind": "Firmware", "metadata": {"name": "2"}, "spec": spec, "status": status,
    });
    serde_json::from_value(object).unwrap()
}

/// Vehicles by one letter each: c(an be told), p(rogress), s(ucceeded), f(ailed), r(etried again and again), o(ffline), l(ost after it was told), b(locked).
fn fleet(letters: &str) -> Vec<VehicleView> {
    letters.chars().enumerate().map(|(number, letter)| vehicle(number, letter)).collect()
}

fn vehicle(number: usize, letter: char) -> VehicleView {
    let wanted = if "psfrl".contains(letter) { "2" } else { "1" };
    let running = if letter == 's' { "2" } else { "1" };
    let online = if "ol".contains(letter) { "False" } else { "True" };
    let phase = if letter == 'f' { "Failed" } else { "UpToDate" };
    let (failures, reason) = if letter == 'r' { (3, "InstallFailed") } else { (2, "HealthCheckFailed") };
    let retry = json!({"attempt": 2, "failures": failures, "lastReason": reason, "lastMessage": "m"});
    let task = json!({
        "id": "t", "attempt": 2, "generation": 1, "firmwareVersion": "2", "digest": "b".repeat(64), "fromVersion": "1",
        "issuedAt": NOW, "deadline": NOW,
    });
    serde_json::from_value(json!({
        "metadata": {
            "name": format!("v{number}"), "namespace": "n", "uid": format!("u{number}"), "generation": 1,
            "labels": {"region": if number.is_multiple_of(2) { "even" } else { "odd" }},
        },
        "spec": {"hardwareId": if letter == 'b' { "q" } else { "h" }, "firmwareVersion": wanted},
        "status": {
            "firmwareVersion": running, "phase": phase, "observedGeneration": 1, "retry": retry, "task": task,
            "conditions": [{"type": "Connected", "status": online, "reason": "R", "message": "", "lastTransitionTime": NOW}],
        },
    }))
    .unwrap()
}

fn spec(change: Value) -> RolloutSpec {
    let mut spec = json!({"firmwareRef": {"name": "2"}, "maxConcurrent": 3, "rollbackTo": "1"});
    spec.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    serde_json::from_value(spec).unwrap()
}

struct Given<'a> {
    spec: Value,
    fleet: &'a str,
    status: RolloutStatus,
    now: &'a str,
}

fn given(spec: Value, fleet: &str) -> Given<'_> {
    Given { spec, fleet, status: RolloutStatus::default(), now: NOW }
}

impl<'a> Given<'a> {
    fn was(mut self, course: Course, step: i64, since: &str) -> Given<'a> {
        self.status.phase = Some(course.word().to_owned());
        (self.status.step, self.status.step_time) = (step, Some(Time(at(since))));
        self
    }

    fn reached(mut self, since: &str) -> Given<'a> {
        self.status.reached_time = Some(Time(at(since)));
        self
    }

    fn said(mut self, kind: &str, reason: &str) -> Given<'a> {
        self.status.conditions.push(Condition {
            type_: kind.to_owned(),
            status: "True".to_owned(),
            reason: reason.to_owned(),
            message: "as said".to_owned(),
            last_transition_time: Time(at(NOW)),
            observed_generation: None,
        });
        self
    }

    fn at(self, now: &'a str) -> Given<'a> {
        Given { now, ..self }
    }

    /// Decides, and says who is told.
    fn check(self, expected: &str) -> Decision {
        let (spec, firmware, fleet) = (spec(self.spec.clone()), firmware(), fleet(self.fleet));
        let terms = Terms::read(&spec).unwrap();
        let facts = Facts {
            terms: &terms,
            firmware: &firmware,
            newer: &[],
            created: Timestamp::MAX,
            dynamic: false,
            now: at(self.now),
        };
        let tally = Tally::of(&facts, fleet.iter());
        let (_, back) = super::super::back::returns(&facts, fleet.iter());
        let case = Case {
            spec: &spec,
            terms: &terms,
            status: &self.status,
            is_observed: true,
            tally: &tally,
            back,
            now: at(self.now),
        };
        let decision = case.decide();
        let told = match decision.act {
            Act::Release(upto) => {
                pick("r", &terms, &tally, upto, Budget::new(&terms, &tally, &tally.unconfirmed)).len()
            }
            Act::Nothing | Act::TakeBack => 0,
        };
        let said = format!("{} {} {} +{told}", decision.course.word(), decision.step, decision.reason);
        assert_eq!(said, expected, "{} {}: {}", self.spec, self.fleet, decision.message);
        decision
    }
}

#[test]
fn nobody_is_told_beyond_the_budget() {
    given(json!({}), "cccccc").check("Progressing 1 Step +3");
    given(json!({}), "ppcccc").check("Progressing 1 Step +1");
    given(json!({}), "pppccc").check("Progressing 1 Step +0");
    given(json!({"maxConcurrent": "50%"}), "ppcccc").check("Progressing 1 Step +1");
    given(json!({"maxConcurrent": "1%"}), "cccccc").check("Progressing 1 Step +1");
    let by_region = json!({"maxConcurrent": 9, "maxUnavailable": {"groupBy": "region", "value": 1}});
    given(by_region, "cccccc").check("Progressing 1 Step +2");
}

#[test]
fn why_nobody_is_told_is_said_where_waiting_does_not_help() {
    let none = |spec: Value, word: &str| {
        let decision = given(spec, "cccccc").check("Progressing 1 NoBudget +0");
        assert!(decision.message.ends_with(word), "{}", decision.message);
    };
    none(json!({"maxConcurrent": 0}), "because maxConcurrent is 0");
    none(json!({"maxConcurrent": "0%"}), "because maxConcurrent is 0");
    none(json!({"maxUnavailable": {"groupBy": "region", "value": 0}}), "because maxUnavailable is 0");
    none(json!({"steps": [{"limit": "0%"}]}), "because its limit is 0");
    // The places are taken by those who fail again and again, or are offline, or all of a group's are.
    given(json!({"maxFailures": 9}), "rrlccc").check("Progressing 1 NoPlace +0");
    given(json!({"maxFailures": 9}), "rrpccc").check("Progressing 1 Step +0");
    given(json!({"maxFailures": 9}), "rrcccc").check("Progressing 1 Step +1");
    let by_region = json!({"maxFailures": 9, "maxUnavailable": {"groupBy": "region", "value": 1}});
    given(by_region.clone(), "rlcc").check("Progressing 1 NoPlace +0");
    given(by_region, "rccc").check("Progressing 1 Step +1");
}

#[test]
fn nobody_is_counted_where_all_may_be_at_it_at_once() {
    let by_region = json!({"maxConcurrent": "100%", "maxUnavailable": {"groupBy": "region", "value": 1}});
    for (asked, expected) in [
        (json!({"maxConcurrent": "100%"}), true),
        (json!({"maxConcurrent": "99%"}), false),
        (json!({"maxConcurrent": 1_000_000}), false),
        (by_region, false),
    ] {
        let terms = Terms::read(&spec(asked.clone())).unwrap();
        assert_eq!(Budget::is_for_all(&terms), expected, "{asked}");
    }
}

#[test]
fn steps_count_from_the_beginning() {
    let steps = json!({"maxConcurrent": 9, "steps": [{"limit": 1}, {"limit": "50%"}]});
    given(steps.clone(), "cccccc").check("Progressing 1 Step +1");
    given(steps.clone(), "pccccc").check("Progressing 1 Step +0");
    given(steps.clone(), "sccccc").check("Progressing 2 Step +2");
    given(steps.clone(), "spcccc").was(Course::Progressing, 2, NOW).check("Progressing 2 Step +1");
    given(steps.clone(), "sssccc").was(Course::Progressing, 2, NOW).check("Progressing 3 Step +3");
    given(steps, "ssssss").was(Course::Progressing, 3, NOW).check("Completed 3 Completed +0");
    let by_label = json!({"maxConcurrent": 9, "steps": [{"selector": {"matchLabels": {"region": "odd"}}, "limit": 2}]});
    given(by_label.clone(), "cccccc").check("Progressing 1 Step +2");
    given(by_label, "cscscc").check("Progressing 2 Step +4");
}

#[test]
fn a_step_is_judged_by_its_own_vehicles() {
    let odd = json!({"region": "odd"});
    let steps = json!({"maxConcurrent": 99, "steps": [{"selector": {"matchLabels": {"region": "even"}}}, {"selector": {"matchLabels": odd}, "limit": 2, "soak": "20s"}]});
    // All of the first step have confirmed, and those of the second are on their way, have confirmed, or have failed.
    let check = |odd: &str, expected: &str| {
        let fleet: String = (0..40).map(|at| format!("s{}", odd.chars().nth(at).unwrap_or('c'))).collect();
        given(steps.clone(), &fleet).was(Course::Progressing, 2, NOW).check(expected);
    };
    check("pp", "Progressing 2 Step +0");
    check("sp", "Progressing 2 Step +0");
    check("ss", "Soaking 2 Soak +0");
    check("sf", "Paused 2 TooFewSucceeded +0");
    check("ff", "Paused 2 TooFewSucceeded +0");
}

#[test]
fn a_step_soaks_and_waits_for_those_who_have_to_agree() {
    let soak = json!({"steps": [{"limit": 1, "soak": "10m"}]});
    let soaking = given(soak.clone(), "sccc").check("Soaking 1 Soak +0");
    assert_eq!(soaking.wake, Some(at("2026-06-01T12:10:00Z")));
    let later = given(soak.clone(), "sccc").was(Course::Soaking, 1, NOW).reached(NOW);
    later.at("2026-06-01T12:09:59Z").check("Soaking 1 Soak +0");
    let later = given(soak, "sccc").was(Course::Soaking, 1, NOW).reached(NOW);
    later.at("2026-06-01T12:10:00Z").check("Progressing 2 Step +3");
    // Somebody has seen enough; of the steps after it nothing is said.
    let promoted = json!({"promotedStep": 1, "steps": [{"limit": 1, "soak": "10m"}, {"limit": 2, "soak": "10m"}]});
    given(promoted.clone(), "sccc").was(Course::Soaking, 1, NOW).reached(NOW).check("Progressing 2 Step +1");
    given(promoted, "sscc").was(Course::Progressing, 2, NOW).check("Soaking 2 Soak +0");
    // A step that isn't reached is not skipped.
    let early = json!({"promotedStep": 1, "steps": [{"limit": 1, "soak": "10m"}]});
    given(early, "pccc").check("Progressing 1 Step +0");
    let approve = json!({"steps": [{"limit": 1}, {"limit": 2, "approve": true}]});
    given(approve, "sccc").check("AwaitingApproval 2 Approval +0");
    let approved = json!({"approvedStep": 2, "steps": [{"limit": 1}, {"limit": 2, "approve": true}]});
    given(approved, "sccc").check("Progressing 2 Step +1");
}

#[test]
fn failures_pause_a_rollout_until_its_spec_changes() {
    let canary = json!({"steps": [{"limit": 1}]});
    given(canary.clone(), "fccc").check("Paused 1 TooManyFailures +0");
    // It stays so, also when the vehicle that failed is gone.
    given(canary.clone(), "cccc")
        .was(Course::Paused, 1, NOW)
        .said("Paused", "TooManyFailures")
        .check("Paused 1 TooManyFailures +0");
    given(canary.clone(), "cccc").was(Course::Paused, 1, NOW).said("Paused", "Paused").check("Progressing 1 Step +1");
    given(json!({"maxFailures": 1}), "fccc").check("Progressing 1 Step +3");
    given(json!({"maxFailures": 1}), "ffcc").check("Paused 1 TooManyFailures +0");
    given(json!({"minSamples": 2}), "fccc").check("Progressing 1 Step +3");
    given(json!({"paused": true}), "pccc").check("Paused 1 Paused +0");
    let back = json!({"onFailure": "Rollback", "steps": [{"limit": 2}]});
    given(back, "sfcc").check("RollingBack 1 RollingBack +0");
}

#[test]
fn who_fails_again_and_again_has_failed_for_the_rollout_and_keeps_its_place() {
    let back = json!({"onFailure": "Rollback", "maxFailures": 0, "steps": [{"limit": 5}]});
    given(back.clone(), "pppccc").check("Progressing 1 Step +0");
    given(back, "rppccc").check("RollingBack 1 RollingBack +0");
    let fleet = fleet("rrsp");
    let (spec, firmware) = (spec(json!({})), firmware());
    let terms = Terms::read(&spec).unwrap();
    let facts =
        Facts { terms: &terms, firmware: &firmware, newer: &[], created: Timestamp::MAX, dynamic: false, now: at(NOW) };
    let tally = Tally::of(&facts, fleet.iter());
    assert_eq!([tally.counts.failed, tally.counts.in_progress, tally.counts.succeeded], [2, 1, 1]);
    let failure = crate::kinds::TopFailure { reason: "InstallFailed".into(), hardware_id: "h".into(), n: 2 };
    assert_eq!(tally.top_failures(), [failure]);
    assert_eq!(fleet.iter().filter(|vehicle| facts.has_place(vehicle)).count(), 3);
}

#[test]
fn one_of_many_may_be_chance() {
    for (failed, ended, is_too_many) in
        [(0, 0, false), (1, 1, true), (1, 2, true), (1, 10, false), (2, 10, true), (5, 100, false), (12, 100, true)]
    {
        assert_eq!(
            lower_bound(failed, ended) > 0.05,
            is_too_many,
            "{failed} of {ended}: {}",
            lower_bound(failed, ended)
        );
    }
}

#[test]
fn those_who_are_offline_are_told_when_they_are_back_and_hold_up_no_step() {
    let steps = json!({"steps": [{"limit": 1}]});
    given(steps.clone(), "soccc").check("Progressing 2 Step +3");
    // But nothing is known of a step of which nobody can be reached.
    given(json!({"steps": [{"limit": 1}]}), "oooo").check("Progressing 1 Offline +0");
    let odd = json!({"steps": [{"limit": 1}, {"selector": {"matchLabels": {"region": "odd"}}}]});
    given(odd, "socoo").check("Progressing 2 Offline +0");
    let waiting = given(json!({}), "ssso").check("Progressing 1 Offline +0");
    assert_eq!(waiting.wake, Some(at("2026-06-08T12:00:00Z")));
    given(json!({}), "sssl").check("Progressing 1 Offline +0");
    given(json!({}), "ssso").at("2026-06-08T12:00:00Z").check("Completed 1 Completed +0");
    given(json!({"offlineTTL": "1h"}), "sssl").at("2026-06-01T13:00:00Z").check("Completed 1 Completed +0");
}

#[test]
fn those_who_are_blocked_are_not_waited_for() {
    given(json!({}), "sssb").check("Completed 1 Completed +0");
    given(json!({}), "bbbb").check("Completed 1 Completed +0");
    given(json!({}), "").check("Pending 1 NoVehicles +0");
}

#[test]
fn a_step_that_takes_too_long_or_ends_with_too_few_is_a_failure() {
    let deadline = json!({"stepDeadline": "1h"});
    given(deadline.clone(), "pccc")
        .was(Course::Progressing, 1, NOW)
        .at("2026-06-01T12:59:59Z")
        .check("Progressing 1 Step +2");
    given(deadline, "pccc")
        .was(Course::Progressing, 1, NOW)
        .at("2026-06-01T13:00:00Z")
        .check("Paused 1 StepDeadline +0");
    given(json!({"maxFailures": 2}), "ssff").check("Paused 1 TooFewSucceeded +0");
    given(json!({"maxFailures": 2, "successThreshold": 50}), "ssff").check("Completed 1 Completed +0");
}

#[test]
fn vehicles_are_told_within_the_window_only() {
    let window = json!({"window": "22:00-23:00"});
    let closed = given(window.clone(), "cccc").check("Progressing 1 Window +0");
    assert_eq!(closed.wake, Some(at("2026-06-01T22:00:00Z")));
    given(window, "cccc").at("2026-06-01T22:00:00Z").check("Progressing 1 Step +3");
}

#[test]
fn a_rollback_ends_when_nobody_has_the_firmware_any_more() {
    given(json!({"rollback": true}), "spcc").check("RollingBack 1 RollingBack +0");
    given(json!({"rollback": true}), "cccc").check("RolledBack 1 RolledBack +0");
    given(json!({}), "cccc").was(Course::RolledBack, 1, NOW).check("RolledBack 1 RolledBack +0");
}

#[test]
fn who_is_in_a_step_follows_from_identities_and_a_larger_step_has_them_too() {
    let picked = |limit: &str, fleet: &[VehicleView]| {
        let (spec, firmware) = (spec(json!({"maxConcurrent": 1000, "steps": [{"limit": limit}]})), firmware());
        let terms = Terms::read(&spec).unwrap();
        let facts = Facts {
            terms: &terms,
            firmware: &firmware,
            newer: &[],
            created: Timestamp::MAX,
            dynamic: false,
            now: at(NOW),
        };
        let tally = Tally::of(&facts, fleet.iter());
        let budget = Budget::new(&terms, &tally, &Unconfirmed::default());
        let names = pick("r", &terms, &tally, 0, budget).into_iter().map(|vehicle| vehicle.metadata.key.to_string());
        names.collect::<std::collections::BTreeSet<_>>()
    };
    let (fleet, mut reversed) = (fleet(&"c".repeat(100)), fleet(&"c".repeat(100)));
    reversed.reverse();
    let (ten, half) = (picked("10%", &fleet), picked("50%", &fleet));
    assert_eq!((ten.len(), half.len()), (10, 50));
    assert!(half.is_superset(&ten));
    assert_eq!(picked("10%", &reversed), ten);
}

#[test]
fn vehicles_are_counted_by_where_they_stand() {
    let fleet = fleet(&"scpfo".repeat(2_000));
    let (spec, firmware) = (spec(json!({"steps": [{"limit": "10%"}]})), firmware());
    let terms = Terms::read(&spec).unwrap();
    let facts =
        Facts { terms: &terms, firmware: &firmware, newer: &[], created: Timestamp::MAX, dynamic: false, now: at(NOW) };
    let tally = Tally::of(&facts, fleet.iter());
    let counts = tally.counts;
    assert_eq!([counts.eligible, counts.released, counts.in_progress, counts.offline], [10_000, 6_000, 2_000, 2_000]);
    assert_eq!(
        tally.top_failures(),
        [crate::kinds::TopFailure { reason: "HealthCheckFailed".into(), hardware_id: "h".into(), n: 2_000 }]
    );
}
