//! The hub, the controllers and a simulated fleet together, in virtual time: what each does when others are killed.

use std::time::Duration;

use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use setpoint_fleet::hub::{Hub, Options};
use setpoint_fleet::kinds::{self, Vehicle};
use setpoint_fleet::simulate::{self, Faults, Fleet, make_vehicles, over_memory};
use setpoint_fleet_protocol::Party;
use setpoint_runtime::manager::{Manager, ManagerOptions};
use setpoint_testkit::ControlPlane;
use tokio::task::JoinHandle;

use crate::process::spawn;
use crate::story::release;

fn options(count: usize, faults: &str) -> simulate::Options {
    simulate::Options {
        namespace: "default".into(),
        prefix: "sim".into(),
        count,
        hardware_id: "ecu-1".into(),
        initial_version: "1.0".into(),
        speed: 10.0,
        faults: Faults::parse(faults).unwrap(),
        seed: 7,
    }
}

/// A hub, which ends when its task is aborted.
fn start_hub(plane: &ControlPlane, name: &str) -> (Hub, JoinHandle<()>) {
    let client = plane.client();
    let manager = Manager::new(client.clone(), plane.clock(), plane.chance(), ManagerOptions::default()).unwrap();
    let hub = Hub::add_to(&manager, &client, Options { name: name.to_owned(), director: None }).unwrap();
    let running = tokio::spawn(async move { drop(manager.run(std::future::pending()).await) });
    (hub, running)
}

async fn want(plane: &ControlPlane, options: &simulate::Options, version: &str) {
    let api: Api<Vehicle> = Api::default_namespaced(plane.client());
    for number in 0..options.count {
        let patch = Patch::Merge(json!({"spec": {"firmwareVersion": version}}));
        api.patch(&options.name(number), &PatchParams::default(), &patch).await.unwrap();
    }
}

/// Runs the fleet on a hub for a while.
async fn live(plane: &ControlPlane, fleet: &mut Fleet, hub: &Hub, span: Duration) {
    hub.until_ready().await;
    let link = hub.open(Party::Gateway { namespace: "default".into(), name: "sim".into() });
    let (clock, end) = (plane.clock(), plane.clock().now() + span);
    over_memory(fleet, &link, clock, |_| clock.now() >= end).await;
    fleet.disconnected(clock.wall());
}

/// How many say in the API that they run a version, and have nothing left to do.
async fn converged(plane: &ControlPlane, version: &str) -> usize {
    let api: Api<Vehicle> = Api::default_namespaced(plane.client());
    let vehicles = api.list(&kube::api::ListParams::default()).await.unwrap();
    let is_there = |vehicle: &&Vehicle| {
        let status = vehicle.status.clone().unwrap_or_default();
        status.firmware_version.as_deref() == Some(version) && status.phase.as_deref() == Some("UpToDate")
    };
    vehicles.items.iter().filter(is_there).count()
}

#[tokio::test(start_paused = true)]
async fn a_fleet_is_upgraded_through_a_hub_and_each_vehicle_flashes_once() {
    let plane = ControlPlane::start().await;
    kinds::install(&plane.client()).await.unwrap();
    release(&plane, &["1.0", "2.0"]).await;
    let options = options(20, "");
    make_vehicles(&plane.client(), &options, "sim").await.unwrap();
    let controllers = spawn(&plane);
    let (hub, running) = start_hub(&plane, "hub-1");
    let mut fleet = Fleet::new(options.clone(), plane.clock().wall());
    want(&plane, &options, "2.0").await;
    live(&plane, &mut fleet, &hub, Duration::from_secs(300)).await;
    assert_eq!(converged(&plane, "2.0").await, 20, "{:?}", fleet.tally());
    let tally = fleet.tally();
    assert_eq!((tally.flashes, tally.repeated), (20, 0));
    controllers.abort();
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn hubs_and_controllers_that_are_killed_again_and_again_hold_up_nobody_for_good() {
    let plane = ControlPlane::start().await;
    kinds::install(&plane.client()).await.unwrap();
    release(&plane, &["1.0", "2.0"]).await;
    let options = options(20, "drop=0.1,delay=0.1,broken=0.2,flash=0.1,crash=0.05");
    make_vehicles(&plane.client(), &options, "sim").await.unwrap();
    let mut fleet = Fleet::new(options.clone(), plane.clock().wall());
    want(&plane, &options, "2.0").await;
    for turn in 0..30 {
        let controllers = spawn(&plane);
        let (hub, running) = start_hub(&plane, if turn % 2 == 0 { "hub-1" } else { "hub-2" });
        live(&plane, &mut fleet, &hub, Duration::from_secs(if turn < 10 { 20 } else { 1800 })).await;
        controllers.abort();
        running.abort();
        if converged(&plane, "2.0").await == options.count {
            assert_eq!(fleet.tally().repeated, 0);
            return;
        }
    }
    panic!("they never got there: {:?}", fleet.tally());
}

#[tokio::test(start_paused = true)]
async fn a_vehicle_that_left_is_away_after_three_minutes_and_back_with_its_next_word() {
    let plane = ControlPlane::start().await;
    kinds::install(&plane.client()).await.unwrap();
    let options = options(1, "");
    make_vehicles(&plane.client(), &options, "sim").await.unwrap();
    let (hub, running) = start_hub(&plane, "hub-1");
    let mut fleet = Fleet::new(options, plane.clock().wall());
    let connected = || async {
        let api: Api<Vehicle> = Api::default_namespaced(plane.client());
        let status = api.get("sim-0").await.unwrap().status.unwrap_or_default();
        status
            .conditions
            .iter()
            .find(|condition| condition.type_ == "Connected")
            .map(|condition| condition.status.clone())
    };
    live(&plane, &mut fleet, &hub, Duration::from_secs(10)).await;
    assert_eq!(connected().await.as_deref(), Some("True"));
    plane.advance(Duration::from_secs(120)).await;
    assert_eq!(connected().await.as_deref(), Some("True"));
    plane.advance(Duration::from_secs(120)).await;
    assert_eq!(connected().await.as_deref(), Some("False"));
    live(&plane, &mut fleet, &hub, Duration::from_secs(10)).await;
    assert_eq!(connected().await.as_deref(), Some("True"));
    running.abort();
}
