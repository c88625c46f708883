//! What crosses an upgrade: other wishes, other hubs, a loss of power at every step; and the simulator as people run it.

use std::process::{Command, Stdio};

use kube::Api;
use kube::api::PostParams;
use serde_json::json;
use setpoint_fleet::kinds::{Firmware, Rollout, VehicleStatus};

use crate::world::{Running, World, flashes, free_port, hook, runs, setpoint};

/// A hub in a process of its own.
pub struct Hub {
    arguments: Vec<String>,
    pub url: String,
}

impl Hub {
    /// One that asks vehicles every so many seconds whether they are there.
    pub fn asking(world: &World, name: &str, seconds: u32) -> Hub {
        let mut hub = Hub::of(world, name, 10_000_000);
        hub.arguments.extend(["--ping-seconds".to_owned(), seconds.to_string()]);
        hub
    }

    /// One that hands out so many bytes a second.
    fn of(world: &World, name: &str, bytes_per_second: u32) -> Hub {
        let listen = format!("127.0.0.1:{}", free_port());
        let (kubeconfig, director) = (world.server.kubeconfig.to_str().unwrap().to_owned(), world.director());
        let firmware = world.text("data/firmware");
        let words =
            ["hub", "--name", name, "--probes", "127.0.0.1:0", "--listen", &listen, "--kubeconfig", &kubeconfig];
        let rate = bytes_per_second.to_string();
        let more = ["--firmware", &firmware, "--director-key", &director, "--bytes-per-second", &rate];
        let arguments = words.iter().chain(&more).map(|word| (*word).to_owned()).collect();
        Hub { arguments, url: format!("https://{listen}") }
    }

    pub fn start(&self) -> Running {
        Running::start(setpoint(), &self.arguments.iter().map(String::as_str).collect::<Vec<_>>())
    }
}

#[tokio::test]
async fn a_wish_that_changes_twice_during_a_download_ends_with_the_last_one_and_one_flash() {
    let world = World::start(&["up", "--no-hub"]).await;
    let hub = Hub::of(&world, "hub-1", 400_000);
    world.enrol(&hub.url, hook(&world, "true")).await;
    for (version, byte) in [("2.0.0", 2), ("3.0.0", 3)] {
        world.release(version, &vec![byte; 8_000_000]).await;
    }
    world.release("4.0.0", b"small").await;
    let (_hub, _agent) = (hub.start(), world.start_agent());
    let note = world.path("vehicle/slot-b/firmware.partial");
    for (version, next) in [("2.0.0", "3.0.0"), ("3.0.0", "4.0.0")] {
        world.want(version).await;
        let seen = world.until(|status| {
            let progress = status.progress.as_ref().map(|progress| (progress.task_id.clone(), progress.stage.clone()));
            let task = status.task.as_ref().filter(|task| task.firmware_version == version);
            task.is_some_and(|task| progress == Some((task.id.clone(), "Downloading".to_owned())))
        });
        let task = seen.await.pop().unwrap().task.unwrap();
        // Bytes of this one come, and none of it is whole.
        while !std::fs::read_to_string(&note).is_ok_and(|text| text.contains(&task.digest)) {
            world.client.apiserver_version().await.unwrap();
        }
        world.want(next).await;
    }
    let last = world.until(runs("4.0.0")).await.pop().unwrap();
    assert_eq!((last.task.unwrap().attempt, flashes(&world)), (1, 1));
}

#[tokio::test]
async fn a_vehicle_goes_to_another_hub_when_its_own_is_gone_and_is_told_the_same_there() {
    let world = World::start(&["up", "--no-hub"]).await;
    let (one, two) = (Hub::of(&world, "hub-1", 1_000_000), Hub::of(&world, "hub-2", 1_000_000));
    let mut more = hook(&world, "true");
    more["hubs"] = json!([one.url, two.url]);
    world.enrol(&one.url, more).await;
    world.release("2.0.0", &vec![2; 3_000_000]).await;
    let mut hubs = [("hub-1", one.start()), ("hub-2", two.start())];
    let _agent = world.start_agent();
    let hub_of = |status: &VehicleStatus| status.session.as_ref().map(|session| session.hub.clone());
    // Whichever was there first.
    let own = hub_of(&world.until(|status| status.session.is_some()).await.pop().unwrap());
    world.want("2.0.0").await;
    let part = world.path("vehicle/slot-b/firmware.bin");
    while std::fs::metadata(&part).map_or(0, |file| file.len()) < 500_000 {
        world.client.apiserver_version().await.unwrap();
    }
    let (_, running) = hubs.iter_mut().find(|(name, _)| own.as_deref() == Some(*name)).expect("one of the two");
    running.kill();
    world.until(|status| hub_of(status) != own).await;
    let last = world.until(runs("2.0.0")).await.pop().unwrap();
    assert_eq!((last.task.unwrap().attempt, flashes(&world)), (1, 1));
}

#[tokio::test]
async fn an_agent_that_loses_its_power_at_any_step_goes_on_there_and_flashes_once() {
    let world = World::start(&["up"]).await;
    let mut more = hook(&world, "true");
    // Well, unless the version says otherwise.
    more["checks"] = json!({"self": ["sh", "-c", "case $SETPOINT_VERSION in *-sick) exit 1;; esac"]});
    world.enrol(&world.hub_url(), more).await;
    let steps = ["Download", "Check", "Install", "Arm", "Restart", "Confirm", "Commit", "Disarm", "Return"];
    let mut running = "1.0.0".to_owned();
    for (number, step) in steps.into_iter().enumerate() {
        let is_sick = matches!(step, "Disarm" | "Return");
        let version = format!("{}.0.0{}", number + 2, if is_sick { "-sick" } else { "" });
        let mut firmware = world.signed(&version, version.as_bytes(), &[]);
        firmware["spec"]["healthChecks"] = json!([{"name": "self", "timeout": "1s"}]);
        world.publish(firmware).await;
        let mut doomed = world.start_agent_that_dies_at(step);
        world.want(&version).await;
        while !doomed.has_ended() {
            world.client.apiserver_version().await.unwrap();
        }
        let mut agent = world.start_agent();
        if is_sick {
            let about = |status: &VehicleStatus| {
                status.task.as_ref().is_some_and(|task| task.firmware_version == version) && status.retry.is_some()
            };
            let status = world.until(about).await.pop().unwrap();
            assert_eq!(status.retry.unwrap().last_reason, "HealthCheckFailed", "{step}");
            assert_eq!(status.firmware_version.as_deref(), Some(&*running), "{step}");
        } else {
            world.until(runs(&version)).await;
            running = version;
        }
        agent.kill();
        assert_eq!(flashes(&world), number + 1, "{step}");
    }
}

#[tokio::test]
async fn an_upgrade_takes_six_writes_at_most() {
    let world = World::start(&["up"]).await;
    world.enrol(&world.hub_url(), hook(&world, "true")).await;
    world.release("2.0.0", b"new").await;
    let _agent = world.start_agent();
    world.until(|status| status.firmware_version.as_deref() == Some("1.0.0")).await;
    let writes = world.writes_until("2.0.0").await;
    assert!((1..=6).contains(&writes), "{writes} writes");
}

#[tokio::test]
async fn a_simulated_fleet_is_rolled_out_to_and_says_how_it_is_doing() {
    let world = World::start(&["up"]).await;
    let hub = world.hub_url();
    let arguments = ["fleet", "simulate", "--vehicles", "20", "--speed", "100", "--seed", "7", "--hub", &hub];
    let faults = ["--faults", "broken=0.1,crash=0.05"];
    let log = std::fs::File::create(world.path("simulator.log")).unwrap();
    let mut command = Command::new(setpoint());
    command.args(arguments).args(faults).env("KUBECONFIG", &world.server.kubeconfig);
    let mut simulator = command.stdin(Stdio::null()).stdout(log).stderr(Stdio::null()).spawn().unwrap();
    let spec = json!({
        "version": "2.0.0", "hardwareIds": ["sim-1"],
        "artifacts": [{"url": "/v1/firmware/0", "size": 5, "sha256": "0".repeat(64)}],
    });
    let firmware = json!({"apiVersion": "fleet.setpoint.dev/v1alpha1", "kind": "Firmware", "metadata": {"name": "2.0.0"}, "spec": spec});
    world.publish(firmware).await;
    let firmwares: Api<Firmware> = Api::default_namespaced(world.client.clone());
    let rollout = json!({
        "apiVersion": "fleet.setpoint.dev/v1alpha1", "kind": "Rollout", "metadata": {"name": "all"},
        "spec": {"firmwareRef": {"name": "2.0.0"}, "dynamic": true},
    });
    let rollouts: Api<Rollout> = Api::default_namespaced(world.client.clone());
    rollouts.create(&PostParams::default(), &serde_json::from_value(rollout).unwrap()).await.unwrap();
    while firmwares.get("2.0.0").await.unwrap().status.unwrap_or_default().deployed < 20 {}
    let told = || std::fs::read_to_string(world.path("simulator.log")).unwrap();
    while !told().contains("2.0.0: 20") {
        world.client.apiserver_version().await.unwrap();
    }
    // Both fail only when it has ended already.
    let _ = simulator.kill();
    let _ = simulator.wait();
    assert!(told().starts_with("20 vehicles, seed 7, hub 127.0.0.1:"), "{}", told());
}

#[tokio::test]
async fn vehicles_with_connections_of_their_own_go_to_the_other_hub_when_one_is_killed() {
    let world = World::start(&["up", "--no-hub"]).await;
    let (one, two) = (Hub::of(&world, "hub-1", 1_000_000), Hub::of(&world, "hub-2", 1_000_000));
    let (mut first, _second) = (one.start(), two.start());
    let kubeconfig = world.server.kubeconfig.to_str().unwrap().to_owned();
    let words = ["fleet", "simulate", "--sockets", "--vehicles", "6", "--speed", "10", "--seed", "7"];
    let place = ["--hub", &one.url, "--hub", &two.url, "--kubeconfig", &kubeconfig];
    let log = world.path("simulator.log");
    let _simulator = Running::start_logged(setpoint(), &[&words[..], &place].concat(), &log);
    let told = || std::fs::read_to_string(&log).unwrap();
    while !told().contains("linked 6") {
        world.client.apiserver_version().await.unwrap();
    }
    assert!(told().contains("6 vehicles enrolled in "), "{}", told());
    let at = |vehicle: &setpoint_fleet::kinds::Vehicle| vehicle.status.clone()?.session.map(|session| session.hub);
    let hubs = || async {
        let all = world.vehicles().list(&kube::api::ListParams::default()).await.unwrap();
        let mut hubs: Vec<String> = all.items.iter().filter_map(at).collect();
        hubs.sort();
        hubs
    };
    // They spread over both, and each knows them by keys of their own.
    while hubs().await != ["hub-1", "hub-1", "hub-1", "hub-2", "hub-2", "hub-2"] {}
    let all = world.vehicles().list(&kube::api::ListParams::default()).await.unwrap();
    assert!(all.items.iter().all(|vehicle| vehicle.spec.access.as_ref().is_some_and(|access| access.keys.len() == 1)));

    let spec = json!({
        "version": "2.0.0", "hardwareIds": ["sim-1"],
        "artifacts": [{"url": "/v1/firmware/0", "size": 5, "sha256": "0".repeat(64)}],
    });
    world.publish(json!({"apiVersion": "fleet.setpoint.dev/v1alpha1", "kind": "Firmware", "metadata": {"name": "2.0.0"}, "spec": spec})).await;
    let rollout = json!({
        "apiVersion": "fleet.setpoint.dev/v1alpha1", "kind": "Rollout", "metadata": {"name": "all"},
        "spec": {"firmwareRef": {"name": "2.0.0"}, "maxConcurrent": "100%"},
    });
    let rollouts: Api<Rollout> = Api::default_namespaced(world.client.clone());
    rollouts.create(&PostParams::default(), &serde_json::from_value(rollout).unwrap()).await.unwrap();
    while !told().contains("Downloading") {
        world.client.apiserver_version().await.unwrap();
    }
    first.kill();
    while hubs().await != ["hub-2"; 6] {}
    while !told().contains("2.0.0: 6") {
        world.client.apiserver_version().await.unwrap();
    }
    let whole = told();
    let (whole, _) = whole.rsplit_once('\n').unwrap();
    assert!(whole.ends_with("flashes 6"), "{whole}");
}
