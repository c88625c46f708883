//! Two hubs at once, and networks that let only one side be heard.

use std::time::Duration;

use kube::Api;
use serde_json::json;
use setpoint_fleet::hub::{Closed, Link};
use setpoint_fleet::kinds::{self, Vehicle, VehicleStatus};
use setpoint_fleet_protocol::{FromVehicle, Hello, Outcome, PROTOCOL_VERSION, Party, Report, Said, Told, VehicleName};
use setpoint_testkit::ControlPlane;

use crate::hub::start_hub;
use crate::process::spawn;
use crate::story::{create, release, wish};

fn party() -> Party {
    Party::Vehicle(VehicleName::new("default", "car").unwrap())
}

async fn car(plane: &ControlPlane) {
    kinds::install(&plane.client()).await.unwrap();
    let spec = json!({"hardwareId": "ecu-1"});
    create::<Vehicle>(plane, json!({"metadata": {"name": "car"}, "spec": spec})).await;
}

fn report(version: &str, seq: u64) -> Report {
    Report { firmware_version: version.into(), active_slot: "a".into(), healthy: true, seq, ..Report::default() }
}

pub fn hello(epoch: u64, version: &str) -> FromVehicle {
    let report = Some(report(version, 1));
    FromVehicle::of(Said::Hello(Hello { protocol: PROTOCOL_VERSION, agent_version: "0.1".into(), epoch, report }))
}

/// All that is to be sent, and whether the connection is to end.
pub fn take(link: &Link) -> (Vec<Told>, bool) {
    let mut frames = Vec::new();
    loop {
        match link.try_next() {
            Ok(Some(frame)) => frames.extend(frame.told),
            Ok(None) => return (frames, false),
            Err(Closed) => return (frames, true),
        }
    }
}

async fn status(plane: &ControlPlane) -> VehicleStatus {
    let api: Api<Vehicle> = Api::default_namespaced(plane.client());
    api.get("car").await.unwrap().status.unwrap_or_default()
}

fn is_connected(status: &VehicleStatus) -> bool {
    status.conditions.iter().any(|condition| condition.type_ == "Connected" && condition.status == "True")
}

fn session(status: &VehicleStatus) -> (&str, i64) {
    status.session.as_ref().map_or(("", 0), |session| (&session.hub, session.epoch))
}

#[tokio::test(start_paused = true)]
async fn of_two_hubs_that_claim_a_vehicle_the_one_with_the_later_session_is_right() {
    let plane = ControlPlane::start().await;
    car(&plane).await;
    let ((one, first_runs), (two, second_runs)) = (start_hub(&plane, "hub-1"), start_hub(&plane, "hub-2"));
    one.until_ready().await;
    two.until_ready().await;
    let moment = Duration::from_secs(10);
    let first = one.open(party());
    first.hear(hello(5, "1.0")).unwrap();
    plane.advance(moment).await;
    assert_eq!(session(&status(&plane).await), ("hub-1", 5));
    assert!(!take(&first).1);

    // Both are there, and the vehicle speaks to the second.
    let second = two.open(party());
    second.hear(hello(6, "2.0")).unwrap();
    plane.advance(moment).await;
    assert_eq!(session(&status(&plane).await), ("hub-2", 6));
    assert!(take(&first).1, "the first hub keeps a session that is over");

    // What the first still hears counts nowhere, and who comes to it with an old number is sent away again.
    let _ = first.hear(FromVehicle::of(Said::Report(report("0.9", 9))));
    let late = one.open(party());
    late.hear(hello(5, "0.8")).unwrap();
    plane.advance(moment).await;
    assert!(take(&late).1, "a session with an old number stays");
    let written = status(&plane).await;
    assert_eq!((session(&written), written.firmware_version.as_deref()), (("hub-2", 6), Some("2.0")));
    assert!(is_connected(&written) && !take(&second).1);

    // It may come back to the first, and the end of the session on the second says nothing about it.
    let back = one.open(party());
    back.hear(hello(7, "2.0")).unwrap();
    plane.advance(moment).await;
    assert!(take(&second).1);
    drop(second);
    plane.advance(Duration::from_secs(120)).await;
    back.hear(FromVehicle::of(Said::Pong(1))).unwrap();
    plane.advance(Duration::from_secs(120)).await;
    let written = status(&plane).await;
    assert_eq!(session(&written), ("hub-1", 7));
    assert!(is_connected(&written));
    first_runs.abort();
    second_runs.abort();
}

/// Both hubs hand the same task to the vehicle, which flashes once: the name of a task is the same everywhere.
#[tokio::test(start_paused = true)]
async fn two_hubs_hand_out_the_same_task() {
    let plane = ControlPlane::start().await;
    car(&plane).await;
    release(&plane, &["1.0", "2.0"]).await;
    let controllers = spawn(&plane);
    let ((one, first_runs), (two, second_runs)) = (start_hub(&plane, "hub-1"), start_hub(&plane, "hub-2"));
    one.until_ready().await;
    two.until_ready().await;
    let first = one.open(party());
    first.hear(hello(5, "1.0")).unwrap();
    plane.advance(Duration::from_secs(5)).await;
    wish(&plane, "car", json!({"firmwareVersion": "2.0"})).await;
    plane.advance(Duration::from_secs(5)).await;
    let task = |frames: Vec<Told>| {
        let mut desired = frames.into_iter().filter_map(|told| match told {
            Told::Desired(desired) => Some((desired.task_id.clone(), desired.attempt)),
            _ => None,
        });
        desired.rfind(|(id, _)| !id.is_empty()).expect("a task")
    };
    let from_first = task(take(&first).0);
    let second = two.open(party());
    second.hear(hello(6, "1.0")).unwrap();
    plane.advance(Duration::from_secs(5)).await;
    assert_eq!(task(take(&second).0), from_first);
    let mut done = report("2.0", 2);
    (done.task_id, done.attempt) = from_first;
    done.set_outcome(Outcome::Succeeded);
    second.hear(FromVehicle::of(Said::Report(done))).unwrap();
    plane.advance(Duration::from_secs(5)).await;
    let written = status(&plane).await;
    assert_eq!((written.phase.as_deref(), written.firmware_version.as_deref()), (Some("UpToDate"), Some("2.0")));
    controllers.abort();
    first_runs.abort();
    second_runs.abort();
}

/// The vehicle hears the hub and isn't heard. What it does about the other direction is a test of the agent.
#[tokio::test(start_paused = true)]
async fn a_vehicle_that_is_not_heard_for_three_pings_is_away_although_it_is_still_told() {
    let plane = ControlPlane::start().await;
    car(&plane).await;
    let (hub, running) = start_hub(&plane, "hub-1");
    hub.until_ready().await;
    let link = hub.open(party());
    link.hear(hello(5, "1.0")).unwrap();
    let mut pings = 0;
    let mut ended_after = None;
    for second in 1..=300 {
        plane.advance(Duration::from_secs(1)).await;
        let (frames, is_closed) = take(&link);
        pings += frames.iter().filter(|told| matches!(told, Told::Ping(_))).count();
        if is_closed {
            ended_after = Some(second);
            break;
        }
        assert!(is_connected(&status(&plane).await), "away after {second} s");
    }
    assert!(pings >= 2, "{pings} pings");
    assert!(ended_after.is_some_and(|second| (180..=240).contains(&second)), "{ended_after:?}");
    drop(link);
    plane.advance(Duration::from_secs(5)).await;
    assert!(!is_connected(&status(&plane).await));
    let again = hub.open(party());
    again.hear(hello(6, "1.0")).unwrap();
    plane.advance(Duration::from_secs(5)).await;
    assert!(is_connected(&status(&plane).await));
    running.abort();
}
