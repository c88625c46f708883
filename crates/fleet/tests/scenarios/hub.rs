//! The hub, the controllers and a simulated fleet together, in virtual time: what each does when others are killed.

use std::time::Duration;

use futures_util::StreamExt;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use setpoint_fleet::hub::{Hub, Options};
use setpoint_fleet::kinds::{self, Rollout, Vehicle};
use setpoint_fleet::simulate::{self, Faults, Fleet, make_vehicles, over_memory};
use setpoint_fleet_protocol::Party;
use setpoint_runtime::manager::{Manager, ManagerOptions};
use setpoint_testkit::ControlPlane;
use tokio::task::JoinHandle;

use crate::process::spawn;
use crate::rollout::at_most;
use crate::story::{create, release};

pub fn options(count: usize, faults: &str) -> simulate::Options {
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
pub fn start_hub(plane: &ControlPlane, name: &str) -> (Hub, JoinHandle<()>) {
    let client = plane.client();
    let manager = Manager::new(client.clone(), plane.clock(), plane.chance(), ManagerOptions::default()).unwrap();
    let hub = Hub::add_to(&manager, &client, Options { name: name.to_owned(), ..Options::default() }).unwrap();
    let running = tokio::spawn(async move { drop(manager.run(std::future::pending()).await) });
    (hub, running)
}

pub async fn want(plane: &ControlPlane, options: &simulate::Options, version: &str) {
    let api: Api<Vehicle> = Api::default_namespaced(plane.client());
    for number in 0..options.count {
        let patch = Patch::Merge(json!({"spec": {"firmwareVersion": version}}));
        api.patch(&options.name(number), &PatchParams::default(), &patch).await.unwrap();
    }
}

/// Runs the fleet on a hub for a while.
pub async fn live(plane: &ControlPlane, fleet: &mut Fleet, hub: &Hub, span: Duration) {
    hub.until_ready().await;
    let link = hub.open(Party::Gateway { namespace: "default".into(), name: "sim".into() });
    let (clock, end) = (plane.clock(), plane.clock().now() + span);
    over_memory(fleet, &link, clock, |_| clock.now() >= end).await;
    fleet.disconnected(clock.wall());
}

/// How many say in the API that they run a version, and have nothing left to do.
pub async fn converged(plane: &ControlPlane, version: &str) -> usize {
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

#[tokio::test(start_paused = true)]
async fn a_wish_that_changes_twice_during_downloads_is_flashed_once_and_ends_at_the_last() {
    let plane = ControlPlane::start().await;
    kinds::install(&plane.client()).await.unwrap();
    release(&plane, &["1.0", "2.0", "3.0", "4.0"]).await;
    let options = simulate::Options { speed: 1.0, ..options(5, "") };
    make_vehicles(&plane.client(), &options, "sim").await.unwrap();
    let controllers = spawn(&plane);
    let (hub, running) = start_hub(&plane, "hub-1");
    let mut fleet = Fleet::new(options.clone(), plane.clock().wall());
    // A download takes between 7 and 22 seconds.
    let wishes = async {
        tokio::time::sleep(Duration::from_secs(10)).await;
        for version in ["2.0", "3.0", "4.0"] {
            want(&plane, &options, version).await;
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
    };
    tokio::join!(live(&plane, &mut fleet, &hub, Duration::from_secs(300)), wishes);
    assert_eq!(converged(&plane, "4.0").await, 5, "{:?}", fleet.tally());
    let tally = fleet.tally();
    assert_eq!((tally.flashes, tally.repeated), (5, 0));
    controllers.abort();
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn vehicles_that_lose_the_network_in_the_middle_for_a_week_go_on_when_they_are_back() {
    let plane = ControlPlane::start().await;
    kinds::install(&plane.client()).await.unwrap();
    release(&plane, &["1.0", "2.0"]).await;
    let options = simulate::Options { speed: 1.0, ..options(5, "") };
    make_vehicles(&plane.client(), &options, "sim").await.unwrap();
    let mut fleet = Fleet::new(options.clone(), plane.clock().wall());
    want(&plane, &options, "2.0").await;
    let controllers = spawn(&plane);
    let (hub, running) = start_hub(&plane, "hub-1");
    live(&plane, &mut fleet, &hub, Duration::from_secs(15)).await;
    assert_eq!(converged(&plane, "2.0").await, 0, "{:?}", fleet.tally());
    plane.advance(Duration::from_secs(3600)).await;
    let blocked = |vehicle: &Vehicle| {
        let status = vehicle.status.clone().unwrap_or_default();
        status.conditions.iter().any(|said| said.type_ == "Blocked" && said.reason == "Offline")
    };
    let api: Api<Vehicle> = Api::default_namespaced(plane.client());
    assert!(api.list(&kube::api::ListParams::default()).await.unwrap().items.iter().all(blocked));
    // Nobody has to be there meanwhile.
    running.abort();
    controllers.abort();
    plane.advance(Duration::from_secs(7 * 24 * 3600)).await;
    let controllers = spawn(&plane);
    let (hub, running) = start_hub(&plane, "hub-1");
    live(&plane, &mut fleet, &hub, Duration::from_secs(600)).await;
    assert_eq!(converged(&plane, "2.0").await, 5, "{:?}", fleet.tally());
    // Those that had it before the network was gone could not prove it, went back, and had a second attempt.
    assert_eq!(fleet.tally().repeated, 0);
    controllers.abort();
    running.abort();
}

/// The budget counts on the vehicles themselves, and in the API after each write.
#[tokio::test(start_paused = true)]
async fn a_rollout_over_a_hub_never_has_more_vehicles_unconfirmed_than_it_may() {
    const BUDGET: usize = 3;
    let plane = ControlPlane::start().await;
    kinds::install(&plane.client()).await.unwrap();
    release(&plane, &["1.0", "2.0"]).await;
    let options = options(12, "drop=0.1,delay=0.1,broken=0.2,crash=0.1");
    make_vehicles(&plane.client(), &options, "sim").await.unwrap();
    let mut fleet = Fleet::new(options.clone(), plane.clock().wall());
    let (mut hub, mut running) = start_hub(&plane, "hub-1");
    let mut controllers = spawn(&plane);
    live(&plane, &mut fleet, &hub, Duration::from_secs(60)).await;
    want(&plane, &options, "1.0").await;
    let spec = json!({"firmwareRef": {"name": "2.0"}, "steps": [{"limit": 2, "soak": "10s"}], "maxConcurrent": BUDGET});
    create::<Rollout>(&plane, json!({"metadata": {"name": "spring"}, "spec": spec})).await;
    let events = Api::<Vehicle>::default_namespaced(plane.client());
    let mut events = events.watch(&kube::api::WatchParams::default().timeout(290), "0").await.unwrap().boxed();
    for turn in 0..40 {
        hub.until_ready().await;
        let link = hub.open(Party::Gateway { namespace: "default".into(), name: "sim".into() });
        let (clock, end) = (plane.clock(), plane.clock().now() + Duration::from_secs(60));
        let on_vehicles = over_memory(&mut fleet, &link, clock, |fleet| {
            let stages = fleet.tally().stages;
            let unconfirmed: usize =
                ["Installing", "Rebooting", "Confirming"].map(|stage| stages.get(stage)).into_iter().flatten().sum();
            assert!(unconfirmed <= BUDGET, "{unconfirmed} vehicles are at it: {stages:?}");
            clock.now() >= end
        });
        let in_the_api = async {
            while events.next().await.is_some() {
                at_most(&plane.state(), BUDGET).unwrap();
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = on_vehicles => {}
            () = in_the_api => {}
        }
        fleet.disconnected(plane.clock().wall());
        drop(link);
        if converged(&plane, "2.0").await == options.count {
            assert_eq!(fleet.tally().repeated, 0);
            assert!(turn > 0, "nobody was killed on the way");
            return;
        }
        let params = kube::api::WatchParams::default().timeout(290);
        let again = Api::<Vehicle>::default_namespaced(plane.client());
        events = again.watch(&params, "0").await.unwrap().boxed();
        controllers.abort();
        running.abort();
        (hub, running) = start_hub(&plane, "hub-1");
        controllers = spawn(&plane);
    }
    panic!("they never got there: {:?}", fleet.tally());
}
