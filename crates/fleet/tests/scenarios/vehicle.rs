//! Vehicles get to the firmware that is asked for, whatever happens on the way.

use std::time::Duration;

use futures_util::FutureExt;
use serde_json::json;
use setpoint_testkit::ControlPlane;

use crate::garage::{Fate, Garage, connect, hub};
use crate::process::{exhaust, spawn};
use crate::story::{Story, always, expect_vehicle, get, release, vehicle, wish};

#[test]
fn an_upgrade_that_fails_is_tried_again_until_it_succeeds() {
    let story = Story {
        name: "vehicle::an_upgrade_that_fails_is_tried_again_until_it_succeeds",
        drive: |plane| {
            async {
                release(plane, &["1.0", "1.1"]).await;
                let fates = [Fate::Fail("DownloadFailed"), Fate::RollBack("HealthCheckFailed")];
                vehicle(plane, "car", "1.0", json!({}), true, &fates).await;
                plane.settle().await.unwrap();
                wish(plane, "car", json!({"firmwareVersion": "1.1"})).await;
            }
            .boxed()
        },
        invariant: always,
        outcome: |state| {
            expect_vehicle(state, "car", "UpToDate", "1.1", 3)?;
            match get(state, "vehicles", "car")["status"].get("retry") {
                None => Ok(()),
                Some(retry) => Err(format!("what went wrong before is still there: {retry}")),
            }
        },
    };
    exhaust(&story).assert();
}

#[test]
fn a_firmware_that_makes_vehicles_unwell_is_kept_from_others_and_a_better_one_is_not() {
    let story = Story {
        name: "vehicle::a_firmware_that_makes_vehicles_unwell_is_kept_from_others_and_a_better_one_is_not",
        drive: |plane| {
            async {
                release(plane, &["1.0", "1.1", "1.2"]).await;
                plane.outside::<Garage>().spoil("1.1", Fate::RollBack("HealthCheckFailed"));
                vehicle(plane, "one", "1.0", json!({}), true, &[]).await;
                vehicle(plane, "two", "1.0", json!({}), true, &[]).await;
                vehicle(plane, "three", "1.0", json!({}), true, &[]).await;
                wish(plane, "one", json!({"firmwareVersion": "1.1"})).await;
                plane.settle().await.unwrap();
                wish(plane, "two", json!({"firmwareVersion": "1.1"})).await;
                wish(plane, "three", json!({"firmwareVersion": "1.1"})).await;
                plane.settle().await.unwrap();
                wish(plane, "three", json!({"firmwareVersion": "1.2"})).await;
            }
            .boxed()
        },
        invariant: always,
        outcome: |state| {
            expect_vehicle(state, "one", "Failed", "1.0", 2)?;
            expect_vehicle(state, "two", "Waiting", "1.0", 0)?;
            expect_vehicle(state, "three", "UpToDate", "1.2", 1)?;
            let firmware = get(state, "firmwares", "1.1")["status"].clone();
            match firmware == json!({"deployed": 0, "failed": 1, "quarantinedFor": ["ecu-1"]}) {
                true => Ok(()),
                false => Err(format!("1.1 says {firmware}")),
            }
        },
    };
    exhaust(&story).assert();
}

#[test]
fn a_vehicle_that_was_away_and_one_that_fell_silent_get_there() {
    let story = Story {
        name: "vehicle::a_vehicle_that_was_away_and_one_that_fell_silent_get_there",
        drive: |plane| {
            async {
                release(plane, &["1.0", "1.1"]).await;
                vehicle(plane, "away", "1.0", json!({}), true, &[]).await;
                vehicle(plane, "silent", "1.0", json!({}), true, &[Fate::Silence]).await;
                plane.settle().await.unwrap();
                connect(plane, "away", false).await;
                wish(plane, "away", json!({"firmwareVersion": "1.1"})).await;
                wish(plane, "silent", json!({"firmwareVersion": "1.1"})).await;
                plane.advance(Duration::from_secs(1800)).await;
                connect(plane, "away", true).await;
            }
            .boxed()
        },
        invariant: always,
        outcome: |state| {
            expect_vehicle(state, "away", "UpToDate", "1.1", 1)?;
            expect_vehicle(state, "silent", "UpToDate", "1.1", 2)
        },
    };
    exhaust(&story).assert();
}

#[test]
fn a_wish_that_changes_twice_during_a_download_ends_at_the_last() {
    let story = Story {
        name: "vehicle::a_wish_that_changes_twice_during_a_download_ends_at_the_last",
        drive: |plane| {
            async {
                release(plane, &["1.0", "1.1", "1.2", "1.3"]).await;
                vehicle(plane, "car", "1.0", json!({}), true, &[]).await;
                plane.settle().await.unwrap();
                for version in ["1.1", "1.2", "1.3"] {
                    wish(plane, "car", json!({"firmwareVersion": version})).await;
                    plane.advance(Duration::from_secs(2)).await;
                }
            }
            .boxed()
        },
        invariant: always,
        outcome: |state| expect_vehicle(state, "car", "UpToDate", "1.3", 1),
    };
    exhaust(&story).assert();
}

/// The wish, the task, two reports of stages, the end, and the phase.
#[tokio::test(start_paused = true)]
async fn an_upgrade_takes_six_writes() {
    let plane = ControlPlane::start().await;
    setpoint_fleet::kinds::install(&plane.client()).await.unwrap();
    let _controllers = spawn(&plane);
    let drive = async {
        release(&plane, &["1.0", "1.1"]).await;
        vehicle(&plane, "car", "1.0", json!({}), true, &[]).await;
        plane.settle().await.unwrap();
        let before = version(&plane);
        wish(&plane, "car", json!({"firmwareVersion": "1.1"})).await;
        plane.settle().await.unwrap();
        expect_vehicle(&plane.state(), "car", "UpToDate", "1.1", 1).unwrap();
        // Revisions are counted over all objects: two more are the counts of the two firmwares.
        assert_eq!(version(&plane) - before, 6 + 2);
    };
    tokio::select! {
        () = drive => {}
        () = hub(&plane) => {}
    }
}

/// The newest revision of an object of the fleet.
fn version(plane: &ControlPlane) -> u64 {
    let objects = ["vehicles", "firmwares"].map(|plural| plane.state().objects("fleet.setpoint.dev", plural)).concat();
    let version = |object: &serde_json::Value| object["metadata"]["resourceVersion"].as_str()?.parse().ok();
    objects.iter().filter_map(version).max().unwrap_or(0)
}
