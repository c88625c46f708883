//! Rollouts bring a firmware to many vehicles, and never to more at once than they may.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::FutureExt;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use setpoint_fleet::kinds::{GROUP, Rollout};
use setpoint_testkit::{ControlPlane, State};

use crate::garage::{Fate, Garage, connect, hub};
use crate::process::{exhaust, spawn};
use crate::story::{Story, create, expect_vehicle, get, release, vehicle};

/// How many may be without a confirmed firmware at once, in all stories here.
const BUDGET: usize = 2;

async fn fleet(plane: &ControlPlane, count: usize) {
    for number in 0..count {
        let labels = json!({"region": if number.is_multiple_of(2) { "even" } else { "odd" }});
        vehicle(plane, &format!("car-{number}"), "1.0", labels, true, &[]).await;
    }
}

async fn roll_out(plane: &ControlPlane, name: &str, version: &str, change: Value) {
    let mut spec = json!({"firmwareRef": {"name": version}, "maxConcurrent": BUDGET});
    spec.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    create::<Rollout>(plane, json!({"metadata": {"name": name}, "spec": spec})).await;
}

async fn change(plane: &ControlPlane, name: &str, spec: Value) {
    let api: Api<Rollout> = Api::default_namespaced(plane.client());
    api.patch(name, &PatchParams::default(), &Patch::Merge(json!({ "spec": spec }))).await.unwrap();
}

fn within_budget(state: &State) -> Result<(), String> {
    at_most(state, BUDGET)
}

/// Never more vehicles than the budget should run something else than they do, or are at something else; but for those that have given up.
pub fn at_most(state: &State, budget: usize) -> Result<(), String> {
    let vehicles = state.objects(GROUP, "vehicles");
    let is_unconfirmed = |vehicle: &&Value| {
        let status = &vehicle["status"];
        let is_failed =
            status["phase"] == "Failed" && status["observedGeneration"] == vehicle["metadata"]["generation"];
        !status["firmwareVersion"].is_null()
            && vehicle["spec"]["firmwareVersion"] != status["firmwareVersion"]
            && !is_failed
    };
    let name = |vehicle: &Value| vehicle["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let mut names: BTreeSet<_> = vehicles.iter().filter(is_unconfirmed).map(name).collect();
    names.extend(state.outside::<Garage>().flashing());
    match names.len() <= budget {
        true => Ok(()),
        false => Err(format!("{} vehicles at once are without a confirmed firmware: {names:?}", names.len())),
    }
}

fn expect_rollout(state: &State, name: &str, phase: &str, counts: [i64; 4]) -> Result<(), String> {
    let status = get(state, "rollouts", name)["status"].clone();
    let found =
        ["eligible", "released", "succeeded", "failed"].map(|count| status["counts"][count].as_i64().unwrap_or(-1));
    match status["phase"] == phase && found == counts {
        true => Ok(()),
        false => Err(format!("{name} is {} with {found:?}: {status}", status["phase"])),
    }
}

#[test]
fn steps_are_gone_one_after_the_other_within_the_budget() {
    let story = Story {
        name: "rollout::steps_are_gone_one_after_the_other_within_the_budget",
        drive: |plane| {
            async {
                release(plane, &["1.0", "1.1"]).await;
                fleet(plane, 5).await;
                plane.settle().await.unwrap();
                let steps = json!([{"limit": 1, "soak": "1m"}, {"selector": {"matchLabels": {"region": "odd"}}}]);
                roll_out(plane, "spring", "1.1", json!({ "steps": steps })).await;
            }
            .boxed()
        },
        invariant: within_budget,
        outcome: |state| {
            (0..5).try_for_each(|number| expect_vehicle(state, &format!("car-{number}"), "UpToDate", "1.1", 1))?;
            expect_rollout(state, "spring", "Completed", [5, 5, 5, 0])
        },
    };
    exhaust(&story).assert();
}

#[test]
fn a_bad_firmware_is_caught_by_the_first_step_and_its_fix_goes_to_all() {
    let story = Story {
        name: "rollout::a_bad_firmware_is_caught_by_the_first_step_and_its_fix_goes_to_all",
        drive: |plane| {
            async {
                release(plane, &["1.0", "1.1", "1.2"]).await;
                plane.outside::<Garage>().spoil("1.1", Fate::RollBack("HealthCheckFailed"));
                fleet(plane, 3).await;
                plane.settle().await.unwrap();
                roll_out(plane, "bad", "1.1", json!({"steps": [{"limit": 1}]})).await;
                plane.settle().await.unwrap();
                expect_rollout(&plane.state(), "bad", "Paused", [1, 1, 0, 1]).unwrap();
                plane.advance(Duration::from_secs(1)).await;
                roll_out(plane, "fix", "1.2", json!({})).await;
            }
            .boxed()
        },
        invariant: within_budget,
        outcome: |state| {
            for number in 0..3 {
                expect_vehicle(state, &format!("car-{number}"), "UpToDate", "1.2", 1)?;
            }
            expect_rollout(state, "fix", "Completed", [3, 3, 3, 0])?;
            expect_rollout(state, "bad", "Superseded", [0, 0, 0, 0])
        },
    };
    exhaust(&story).assert();
}

#[test]
fn a_rollout_that_fails_takes_back_what_it_did() {
    let story = Story {
        name: "rollout::a_rollout_that_fails_takes_back_what_it_did",
        drive: |plane| {
            async {
                release(plane, &["1.0", "1.1"]).await;
                for (name, fates) in [("a", &[][..]), ("b", &[]), ("c", &[Fate::Fail("SignatureInvalid")]), ("d", &[])]
                {
                    vehicle(plane, name, "1.0", json!({}), true, fates).await;
                }
                plane.settle().await.unwrap();
                // All are told, two at a time; one of them fails, which is too many when all have ended.
                let spec =
                    json!({"onFailure": "Rollback", "minSamples": 4, "maxFailures": "1%", "successThreshold": 90});
                roll_out(plane, "spring", "1.1", spec).await;
            }
            .boxed()
        },
        invariant: within_budget,
        outcome: |state| {
            for name in ["a", "b", "c", "d"] {
                let vehicle = get(state, "vehicles", name);
                let found = (
                    &vehicle["spec"]["firmwareVersion"],
                    &vehicle["status"]["firmwareVersion"],
                    &vehicle["status"]["phase"],
                );
                if found != (&json!("1.0"), &json!("1.0"), &json!("UpToDate")) {
                    return Err(format!("{name} is {found:?}"));
                }
            }
            expect_rollout(state, "spring", "RolledBack", [4, 0, 0, 0])
        },
    };
    exhaust(&story).assert();
}

#[test]
fn a_firmware_that_cannot_be_installed_is_caught_though_vehicles_try_on() {
    let story = Story {
        name: "rollout::a_firmware_that_cannot_be_installed_is_caught_though_vehicles_try_on",
        drive: |plane| {
            async {
                release(plane, &["1.0", "1.1"]).await;
                plane.outside::<Garage>().spoil("1.1", Fate::Fail("InstallFailed"));
                fleet(plane, 4).await;
                plane.settle().await.unwrap();
                let spec = json!({"steps": [{"limit": 1}], "maxFailures": 0, "onFailure": "Rollback"});
                roll_out(plane, "spring", "1.1", spec).await;
            }
            .boxed()
        },
        invariant: within_budget,
        outcome: |state| {
            expect_all_back(state, 4, "1.0")?;
            expect_rollout(state, "spring", "RolledBack", [4, 0, 0, 0])
        },
    };
    exhaust(&story).assert();
}

/// All of them run or should run this again, and have nothing to do.
fn expect_all_back(state: &State, count: usize, version: &str) -> Result<(), String> {
    (0..count).try_for_each(|number| {
        let vehicle = get(state, "vehicles", &format!("car-{number}"));
        let (wanted, status) = (&vehicle["spec"]["firmwareVersion"], &vehicle["status"]);
        match [wanted, &status["firmwareVersion"]] == [version, version] && status["phase"] == "UpToDate" {
            true => Ok(()),
            false => Err(format!("car-{number} should run {wanted}: {status}")),
        }
    })
}

#[test]
fn who_is_taken_back_in_the_middle_of_an_installation_keeps_its_place() {
    let story = Story {
        name: "rollout::who_is_taken_back_in_the_middle_of_an_installation_keeps_its_place",
        drive: |plane| {
            async {
                release(plane, &["1.0", "1.1"]).await;
                fleet(plane, 6).await;
                plane.settle().await.unwrap();
                roll_out(plane, "spring", "1.1", json!({})).await;
                // Two run it, and two are installing it.
                plane.advance(Duration::from_secs(19)).await;
                change(plane, "spring", json!({"rollback": true})).await;
            }
            .boxed()
        },
        invariant: within_budget,
        outcome: |state| {
            expect_all_back(state, 6, "1.0")?;
            expect_rollout(state, "spring", "RolledBack", [6, 0, 0, 0])
        },
    };
    exhaust(&story).assert();
}

#[test]
fn who_goes_out_of_reach_on_its_way_back_keeps_its_place() {
    let story = Story {
        name: "rollout::who_goes_out_of_reach_on_its_way_back_keeps_its_place",
        drive: |plane| {
            async {
                release(plane, &["1.0", "1.1"]).await;
                fleet(plane, 5).await;
                plane.settle().await.unwrap();
                roll_out(plane, "spring", "1.1", json!({})).await;
                plane.settle().await.unwrap();
                plane.advance(Duration::from_secs(1)).await;
                roll_out(plane, "again", "1.0", json!({"rollbackTo": "1.1"})).await;
                plane.advance(Duration::from_secs(19)).await;
                change(plane, "again", json!({"rollback": true})).await;
                plane.advance(Duration::from_secs(4)).await;
                let away: Vec<_> = (0..5).map(|number| format!("car-{number}")).collect();
                for name in &away[..3] {
                    connect(plane, name, false).await;
                }
                plane.advance(Duration::from_secs(600)).await;
                for name in &away[..3] {
                    connect(plane, name, true).await;
                }
            }
            .boxed()
        },
        invariant: within_budget,
        outcome: |state| {
            expect_all_back(state, 5, "1.1")?;
            expect_rollout(state, "again", "RolledBack", [5, 0, 0, 0])
        },
    };
    exhaust(&story).assert();
}

#[test]
fn vehicles_that_are_away_or_come_later_are_told_when_they_are_there() {
    let story = Story {
        name: "rollout::vehicles_that_are_away_or_come_later_are_told_when_they_are_there",
        drive: |plane| {
            async {
                release(plane, &["1.0", "1.1"]).await;
                fleet(plane, 2).await;
                vehicle(plane, "away", "1.0", json!({}), true, &[]).await;
                plane.settle().await.unwrap();
                connect(plane, "away", false).await;
                roll_out(plane, "spring", "1.1", json!({"dynamic": true})).await;
                plane.settle().await.unwrap();
                vehicle(plane, "late", "1.0", json!({}), true, &[]).await;
                plane.settle().await.unwrap();
                expect_vehicle(&plane.state(), "away", "UpToDate", "1.0", 0).unwrap();
                connect(plane, "away", true).await;
            }
            .boxed()
        },
        invariant: within_budget,
        outcome: |state| {
            for name in ["car-0", "car-1", "away", "late"] {
                expect_vehicle(state, name, "UpToDate", "1.1", 1)?;
            }
            expect_rollout(state, "spring", "Completed", [4, 4, 4, 0])
        },
    };
    exhaust(&story).assert();
}

/// Never more than the budget, and of no region more than one.
fn one_of_each_region(state: &State) -> Result<(), String> {
    within_budget(state)?;
    ["even", "odd"].into_iter().try_for_each(|region| {
        let vehicles = state.objects(GROUP, "vehicles");
        let is_of_region = |vehicle: &&Value| vehicle["metadata"]["labels"]["region"] == region;
        let is_unconfirmed = |vehicle: &&Value| {
            let running = &vehicle["status"]["firmwareVersion"];
            !running.is_null() && *running != vehicle["spec"]["firmwareVersion"]
        };
        match vehicles.iter().filter(is_of_region).filter(is_unconfirmed).count() {
            0 | 1 => Ok(()),
            count => Err(format!("{count} of {region} are without a confirmed firmware")),
        }
    })
}

#[test]
fn windows_groups_promotions_and_approvals_are_kept_to_whatever_fails() {
    let story = Story {
        name: "rollout::windows_groups_promotions_and_approvals_are_kept_to_whatever_fails",
        drive: |plane| {
            async {
                release(plane, &["1.0", "1.1"]).await;
                fleet(plane, 4).await;
                plane.settle().await.unwrap();
                let steps = json!([{"limit": 1, "soak": "24h"}, {"limit": "75%", "approve": true}]);
                let groups = json!({"groupBy": "region", "value": 1});
                let spec = json!({"steps": steps, "maxUnavailable": groups, "window": "01:00-05:00"});
                roll_out(plane, "spring", "1.1", spec).await;
                plane.advance(Duration::from_secs(600)).await;
                assert_eq!(get(&plane.state(), "rollouts", "spring")["status"]["counts"]["released"], 0);
                plane.advance(Duration::from_secs(3600)).await;
                change(plane, "spring", json!({"promotedStep": 1})).await;
                plane.advance(Duration::from_secs(120)).await;
                change(plane, "spring", json!({"approvedStep": 2})).await;
            }
            .boxed()
        },
        invariant: one_of_each_region,
        outcome: |state| {
            (0..4).try_for_each(|number| expect_vehicle(state, &format!("car-{number}"), "UpToDate", "1.1", 1))?;
            expect_rollout(state, "spring", "Completed", [4, 4, 4, 0])
        },
    };
    exhaust(&story).assert();
}

/// Without faults, with more vehicles: pauses, approvals, groups, and who wrote the wish.
#[tokio::test(start_paused = true)]
async fn people_can_hold_it_agree_to_a_step_and_see_who_asked_for_what() {
    let plane = ControlPlane::start().await;
    setpoint_fleet::kinds::install(&plane.client()).await.unwrap();
    let _controllers = spawn(&plane);
    let drive = async {
        release(&plane, &["1.0", "1.1"]).await;
        fleet(&plane, 12).await;
        plane.settle().await.unwrap();
        let steps = json!([{"limit": 2}, {"limit": "50%", "approve": true}]);
        let budget = json!({"groupBy": "region", "value": 1});
        roll_out(&plane, "spring", "1.1", json!({"steps": steps, "maxUnavailable": budget, "paused": true})).await;
        plane.settle().await.unwrap();
        expect_rollout(&plane.state(), "spring", "Paused", [12, 0, 0, 0]).unwrap();
        change(&plane, "spring", json!({"paused": false})).await;
        plane.settle().await.unwrap();
        expect_rollout(&plane.state(), "spring", "AwaitingApproval", [12, 2, 2, 0]).unwrap();
        change(&plane, "spring", json!({"approvedStep": 2})).await;
        plane.advance(Duration::from_secs(8)).await;
        within_budget(&plane.state()).unwrap();
        let vehicles = plane.state().objects(GROUP, "vehicles");
        let under_way: Vec<_> = vehicles.iter().filter(|vehicle| vehicle["status"]["phase"] == "Downloading").collect();
        let regions: Vec<_> = under_way.iter().map(|vehicle| &vehicle["metadata"]["labels"]["region"]).collect();
        assert!(regions.len() == 2 && regions[0] != regions[1], "{regions:?} at once");
        plane.settle().await.unwrap();
        expect_rollout(&plane.state(), "spring", "Completed", [12, 12, 12, 0]).unwrap();
        let car = get(&plane.state(), "vehicles", "car-0");
        let managers: Vec<_> =
            car["metadata"]["managedFields"].as_array().unwrap().iter().map(|entry| &entry["manager"]).collect();
        assert!(managers.contains(&&json!("rollout/spring")), "{managers:?}");
    };
    tokio::select! {
        () = drive => {}
        () = hub(&plane) => {}
    }
}
