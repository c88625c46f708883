//! What the vehicles of a rollout may download together is shared by the hubs that they are connected to; and how much is written of one.

use std::time::Duration;

use serde_json::json;
use setpoint_fleet::hub::Hub;
use setpoint_fleet::kinds::{self, Rollout, Vehicle};
use setpoint_fleet_protocol::{FromVehicle, Outcome, Party, Report, Said, Told, VehicleName};
use setpoint_testkit::ControlPlane;

use crate::hub::start_hub;
use crate::process::spawn;
use crate::rivals::{hello, take};
use crate::story::{create, get, release};

fn party(name: &str) -> Party {
    Party::Vehicle(VehicleName::new("default", name).unwrap())
}

/// The digest of 2.0, as stories release it.
fn digest() -> String {
    format!("{:0>64}", "20")
}

fn rates(hub: &Hub, name: &str) -> Vec<(String, u64)> {
    hub.rates(&party(name), &digest()).into_iter().map(|(key, rate)| (key.to_string(), rate)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_rollout_says_how_fast_its_vehicles_download_while_it_goes_on() {
    let plane = ControlPlane::start().await;
    kinds::install(&plane.client()).await.unwrap();
    release(&plane, &["1.0", "2.0"]).await;
    for (name, model) in [("a", "m3"), ("b", "m3"), ("other", "m4")] {
        let spec = json!({"hardwareId": "ecu-1", "firmwareVersion": "1.0"});
        create::<Vehicle>(&plane, json!({"metadata": {"name": name, "labels": {"model": model}}, "spec": spec})).await;
    }
    let controllers = spawn(&plane);
    let ((one, first_runs), (two, second_runs)) = (start_hub(&plane, "hub-1"), start_hub(&plane, "hub-2"));
    one.until_ready().await;
    two.until_ready().await;
    let links = [one.open(party("a")), one.open(party("b")), one.open(party("other"))];
    for link in &links {
        link.hear(hello(5, "1.0")).unwrap();
    }
    plane.advance(Duration::from_secs(20)).await;
    assert_eq!(rates(&one, "a"), []);
    let spec = json!({
        "firmwareRef": {"name": "2.0"}, "bytesPerSecond": 1000, "selector": {"matchLabels": {"model": "m3"}},
    });
    create::<Rollout>(&plane, json!({"metadata": {"name": "spring"}, "spec": spec})).await;
    plane.advance(Duration::from_secs(20)).await;
    let whole = [("default/spring".to_owned(), 1000)];
    assert_eq!((rates(&one, "a"), rates(&one, "b")), (whole.to_vec(), whole.to_vec()));
    assert_eq!(rates(&one, "other"), [], "it is none of the rollout's");

    // One of them comes to another hub: each hub has a half.
    let moved = two.open(party("b"));
    moved.hear(hello(6, "1.0")).unwrap();
    plane.advance(Duration::from_secs(20)).await;
    let half = [("default/spring".to_owned(), 500)];
    assert_eq!((rates(&one, "a"), rates(&two, "b")), (half.to_vec(), half.to_vec()));

    for link in [&links[0], &moved] {
        let mut tasks = take(link).0.into_iter().filter_map(|told| match told {
            Told::Desired(desired) if !desired.task_id.is_empty() => Some(desired),
            _ => None,
        });
        let task = tasks.next_back().expect("a task");
        let mut done = Report { firmware_version: "2.0".into(), active_slot: "b".into(), ..Report::default() };
        (done.task_id, done.attempt, done.seq, done.healthy) = (task.task_id, task.attempt, 2, true);
        done.set_outcome(Outcome::Succeeded);
        link.hear(FromVehicle::of(Said::Report(done))).unwrap();
    }
    plane.advance(Duration::from_secs(60)).await;
    assert_eq!(rates(&one, "a"), [], "the rollout is over");
    controllers.abort();
    first_runs.abort();
    second_runs.abort();
}

#[tokio::test(start_paused = true)]
async fn a_vehicle_that_says_something_else_all_the_time_is_written_now_and_then() {
    let plane = ControlPlane::start().await;
    kinds::install(&plane.client()).await.unwrap();
    create::<Vehicle>(&plane, json!({"metadata": {"name": "a"}, "spec": {"hardwareId": "ecu-1"}})).await;
    let (hub, runs) = start_hub(&plane, "hub-1");
    hub.until_ready().await;
    let link = hub.open(party("a"));
    link.hear(hello(5, "1.0")).unwrap();
    let mut written = std::collections::BTreeSet::new();
    for number in 0..300 {
        let slot = if number % 2 == 0 { "a" } else { "b" };
        let said = Report {
            firmware_version: format!("1.{number}"),
            active_slot: slot.into(),
            seq: 2 + number,
            ..Report::default()
        };
        link.hear(FromVehicle::of(Said::Report(said))).unwrap();
        plane.advance(Duration::from_secs(1)).await;
        written.insert(get(&plane.state(), "vehicles", "a")["metadata"]["resourceVersion"].to_string());
    }
    assert!((40..=55).contains(&written.len()), "{} writes in five minutes", written.len());
    plane.advance(Duration::from_secs(20)).await;
    assert_eq!(get(&plane.state(), "vehicles", "a")["status"]["firmwareVersion"], "1.299");
    runs.abort();
}
