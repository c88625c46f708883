//! A vehicle's agent, a hub and controllers as processes of their own: what happens when each of them fails.

mod server;

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use futures_util::StreamExt;
use kube::api::{Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client};
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use server::Server;
use setpoint_fleet::certificate;
use setpoint_fleet::kinds::{Firmware, Vehicle, VehicleStatus};
use setpoint_fleet_protocol::{Party, VehicleName, hex};

/// Killed if the test ends before it was stopped.
struct Running(Child);

impl Running {
    fn start(program: &Path, arguments: &[&str]) -> Running {
        let mut command = Command::new(program);
        command.args(arguments).env_remove("SETPOINT_LOG");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Running(command.spawn().expect("the program starts"))
    }

    /// As a power cut would.
    fn kill(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

fn setpoint() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_setpoint"))
}

/// The agent's binary, which belongs to another package: built once, where this test was built.
fn agent() -> &'static Path {
    static AGENT: OnceLock<PathBuf> = OnceLock::new();
    AGENT.get_or_init(|| {
        let folder = setpoint().parent().expect("a binary is in a folder");
        let target = folder.parent().expect("a profile is in a folder");
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--package", "setpoint-edge-agent", "--target-dir"]).arg(target);
        if folder.ends_with("release") {
            build.arg("--release");
        }
        assert!(build.status().expect("cargo runs").success());
        folder.join("setpoint-edge-agent")
    })
}

/// A port that was free a moment ago, for what has to come back at the same place.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A control plane, and the files of one vehicle.
struct World {
    folder: tempfile::TempDir,
    server: Server,
    client: Client,
}

impl World {
    async fn start(command: &[&str]) -> World {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::start_as(command, &folder.path().join("data"));
        let client = server.client().await;
        World { folder, server, client }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Where vehicles connect to a hub beside the API server.
    fn hub_url(&self) -> String {
        std::fs::read_to_string(self.path("data/hub.url")).unwrap().trim().to_owned()
    }

    fn vehicles(&self) -> Api<Vehicle> {
        Api::namespaced(self.client.clone(), "default")
    }

    /// Makes the vehicle `v-1` with its certificate and configuration.
    async fn enrol(&self, hub: &str, more: Value) {
        let vehicle = json!({
            "apiVersion": "fleet.setpoint.dev/v1alpha1", "kind": "Vehicle", "metadata": {"name": "v-1"},
            "spec": {"hardwareId": "tcu-1"},
        });
        let vehicle = serde_json::from_value(vehicle).unwrap();
        self.vehicles().create(&PostParams::default(), &vehicle).await.unwrap();
        let party = Party::Vehicle(VehicleName::new("default", "v-1").unwrap());
        let issued = certificate::of_party(&self.client, &party).await.unwrap();
        std::fs::write(self.path("certificate.pem"), issued.certificate).unwrap();
        std::fs::write(self.path("key.pem"), issued.key).unwrap();
        let kubeconfig = kube::config::Kubeconfig::read_from(&self.server.kubeconfig).unwrap();
        let authority = kubeconfig.clusters[0].cluster.as_ref().unwrap().certificate_authority_data.clone().unwrap();
        use base64::Engine;
        let authority = base64::engine::general_purpose::STANDARD.decode(authority).unwrap();
        std::fs::write(self.path("ca.pem"), authority).unwrap();
        let mut config = json!({
            "vehicle": "default/v-1", "hardwareId": "tcu-1", "hubs": [hub], "data": "vehicle", "unsigned": true,
            "ca": "ca.pem", "certificate": "certificate.pem", "key": "key.pem", "initialVersion": "1.0.0",
        });
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        std::fs::write(self.path("agent.json"), config.to_string()).unwrap();
    }

    fn start_agent(&self) -> Running {
        Running::start(agent(), &["--config", self.path("agent.json").to_str().unwrap()])
    }

    /// Publishes a firmware, whose bytes are in the folder of the hub.
    async fn release(&self, version: &str, bytes: &[u8]) {
        let sha256 = hex::encode(digest(&SHA256, bytes).as_ref());
        let folder = self.path("data/firmware");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(&sha256), bytes).unwrap();
        let artifact = json!({"url": format!("/v1/firmware/{sha256}"), "size": bytes.len(), "sha256": sha256});
        let firmware = json!({
            "apiVersion": "fleet.setpoint.dev/v1alpha1", "kind": "Firmware", "metadata": {"name": version},
            "spec": {"version": version, "releaseCounter": 2, "hardwareIds": ["tcu-1"], "artifacts": [artifact]},
        });
        let api: Api<Firmware> = Api::namespaced(self.client.clone(), "default");
        api.create(&PostParams::default(), &serde_json::from_value(firmware).unwrap()).await.unwrap();
    }

    async fn want(&self, version: &str) {
        let patch = Patch::Merge(json!({"spec": {"firmwareVersion": version}}));
        self.vehicles().patch("v-1", &PatchParams::default(), &patch).await.unwrap();
    }

    /// Waits until the vehicle's status is one that is waited for; all that it was on the way.
    async fn until(&self, is_it: impl Fn(&VehicleStatus) -> bool) -> Vec<VehicleStatus> {
        let mut seen = Vec::new();
        loop {
            let params = WatchParams::default().fields("metadata.name=v-1").timeout(290);
            let mut events = self.vehicles().watch(&params, "0").await.unwrap().boxed();
            while let Some(Ok(event)) = events.next().await {
                let (WatchEvent::Added(vehicle) | WatchEvent::Modified(vehicle)) = event else { continue };
                let status = vehicle.status.unwrap_or_default();
                seen.push(status.clone());
                if is_it(&status) {
                    return seen;
                }
            }
        }
    }
}

fn runs(version: &str) -> impl Fn(&VehicleStatus) -> bool {
    move |status| status.firmware_version.as_deref() == Some(version) && status.phase.as_deref() == Some("UpToDate")
}

/// How often the vehicle was flashed: its install hook leaves a line each time.
fn flashes(world: &World) -> usize {
    std::fs::read_to_string(world.path("flashes")).unwrap_or_default().lines().count()
}

fn hook(world: &World, script: &str) -> Value {
    let file = world.path("flashes");
    json!({"hooks": {"install": ["sh", "-c", format!("echo flash >> {}; {script}", file.display())]}})
}

#[tokio::test]
async fn an_upgrade_that_fails_is_told_and_tried_again_after_a_while() {
    let world = World::start(&["up"]).await;
    let mark = world.path("mark");
    let fails_once = format!("test -e {0} || {{ touch {0}; exit 7; }}", mark.display());
    world.enrol(&world.hub_url(), hook(&world, &fails_once)).await;
    world.release("2.0.0", b"new").await;
    let _agent = world.start_agent();
    world.want("2.0.0").await;
    let seen = world.until(runs("2.0.0")).await;
    let failed = seen.iter().find(|status| status.retry.is_some()).expect("the failure is told");
    assert_eq!(failed.retry.as_ref().unwrap().last_reason, "InstallFailed");
    let last = seen.last().unwrap();
    assert_eq!((last.progress.as_ref().unwrap().attempt, flashes(&world)), (2, 2));
    assert_eq!(last.slot.as_ref().unwrap().active.as_deref(), Some("b"));
}

#[tokio::test]
async fn a_controller_that_dies_after_it_gave_a_task_has_a_successor_and_the_vehicle_flashes_once() {
    let world = World::start(&["up", "--controllers", "*,-vehicle-controller"]).await;
    let kubeconfig = world.server.kubeconfig.to_str().unwrap();
    let arguments = ["controllers", "--controllers", "vehicle-controller", "--no-leader-election"];
    let arguments = [&arguments[..], &["--listen", "127.0.0.1:0", "--kubeconfig", kubeconfig]].concat();
    world.enrol(&world.hub_url(), hook(&world, "true")).await;
    world.release("2.0.0", b"new").await;
    let _agent = world.start_agent();
    world.until(|status| status.session.is_some()).await;
    let mut first = Running::start(setpoint(), &arguments);
    world.want("2.0.0").await;
    world.until(|status| status.task.is_some()).await;
    first.kill();
    world.until(|status| status.progress.as_ref().is_some_and(|progress| progress.result == "Succeeded")).await;
    let _second = Running::start(setpoint(), &arguments);
    let seen = world.until(runs("2.0.0")).await;
    assert_eq!(seen.last().unwrap().task.as_ref().unwrap().attempt, 1);
    assert_eq!(flashes(&world), 1);
}

#[tokio::test]
async fn a_hub_and_an_agent_that_are_killed_during_a_download_go_on_where_they_were() {
    let world = World::start(&["up", "--no-hub"]).await;
    let (port, kubeconfig) = (free_port(), world.server.kubeconfig.to_str().unwrap().to_owned());
    let (listen, firmware) = (format!("127.0.0.1:{port}"), world.path("data/firmware"));
    let arguments = ["hub", "--name", "hub-1", "--probes", "127.0.0.1:0", "--bytes-per-second", "400000"];
    let place = ["--listen", &listen, "--kubeconfig", &kubeconfig, "--firmware", firmware.to_str().unwrap()];
    let arguments = [&arguments[..], &place].concat();
    world.enrol(&format!("https://{listen}"), hook(&world, "true")).await;
    world.release("2.0.0", &vec![7; 2_000_000]).await;
    let mut hub = Running::start(setpoint(), &arguments);
    let mut agent = world.start_agent();
    world.want("2.0.0").await;
    world.until(|status| status.progress.as_ref().is_some_and(|progress| progress.stage == "Downloading")).await;
    hub.kill();
    agent.kill();
    let _agent = world.start_agent();
    let _hub = Running::start(setpoint(), &arguments);
    let seen = world.until(runs("2.0.0")).await;
    assert_eq!(seen.last().unwrap().progress.as_ref().unwrap().attempt, 1);
    assert_eq!(flashes(&world), 1);
}
