//! A control plane, hubs and agents as processes of their own, and the files of a vehicle.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use futures_util::StreamExt;
use kube::api::{Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use setpoint_fleet::certificate;
use setpoint_fleet::kinds::{Firmware, Vehicle, VehicleStatus};
use setpoint_fleet_protocol::{Party, VehicleName};

use crate::server::Server;

/// Killed if the test ends before it was stopped.
pub struct Running(Child);

impl Running {
    pub fn start(program: &Path, arguments: &[&str]) -> Running {
        let mut command = Command::new(program);
        command.args(arguments).env_remove("SETPOINT_LOG");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Running(command.spawn().expect("the program starts"))
    }

    /// The same, with what it prints in a file.
    pub fn start_logged(program: &Path, arguments: &[&str], log: &Path) -> Running {
        let mut command = Command::new(program);
        command.args(arguments).env_remove("SETPOINT_LOG").stdin(Stdio::null()).stderr(Stdio::null());
        command.stdout(std::fs::File::create(log).expect("a log"));
        Running(command.spawn().expect("the program starts"))
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.0.try_wait().expect("a child of ours").is_some()
    }

    /// As a power cut would.
    pub fn kill(&mut self) {
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

pub fn setpoint() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_setpoint"))
}

/// The agent's binary, which belongs to another package: built once, where this test was built.
pub fn agent() -> &'static Path {
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
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A control plane, and the files of one vehicle.
pub struct World {
    folder: tempfile::TempDir,
    pub server: Server,
    pub client: Client,
}

impl World {
    pub async fn start(command: &[&str]) -> World {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::start_as(command, &folder.path().join("data"));
        let client = server.client().await;
        let world = World { folder, server, client };
        world.say(&["fleet", "keys", "--out", &world.text("keys"), "--director", &world.director()]);
        world
    }

    /// Runs a command of setpoint that has to succeed; what it printed.
    pub fn say(&self, arguments: &[&str]) -> String {
        let output = Command::new(setpoint()).args(arguments).env("KUBECONFIG", &self.server.kubeconfig).output();
        let output = output.expect("the program starts");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }

    /// Runs a command of setpoint that has to fail; what it said.
    pub fn refused(&self, arguments: &[&str]) -> String {
        let output = Command::new(setpoint()).args(arguments).env("KUBECONFIG", &self.server.kubeconfig).output();
        let output = output.expect("the program starts");
        assert!(!output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stdout));
        String::from_utf8(output.stderr).expect("text")
    }

    /// The key that the hub assigns firmware with.
    pub fn director(&self) -> String {
        let file = self.path("data/pki/director.key");
        if !file.exists() {
            // A hub of its own process is given it.
            std::fs::write(&file, "d1".repeat(32)).unwrap();
        }
        file.to_str().unwrap().to_owned()
    }

    /// A path as text.
    pub fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Where vehicles connect to a hub beside the API server.
    pub fn hub_url(&self) -> String {
        std::fs::read_to_string(self.path("data/hub.url")).unwrap().trim().to_owned()
    }

    pub fn vehicles(&self) -> Api<Vehicle> {
        Api::namespaced(self.client.clone(), "default")
    }

    /// Makes the vehicle `v-1` with its certificate and configuration.
    pub async fn enrol(&self, hub: &str, more: Value) {
        self.make("v-1").await;
        let party = Party::Vehicle(VehicleName::new("default", "v-1").unwrap());
        let issued = certificate::of_party(&self.client, &party).await.unwrap();
        std::fs::write(self.path("certificate.pem"), issued.certificate).unwrap();
        std::fs::write(self.path("key.pem"), issued.key).unwrap();
        self.configure(hub, more);
    }

    /// Makes a vehicle known.
    pub async fn make(&self, name: &str) {
        let vehicle = json!({
            "apiVersion": "fleet.setpoint.dev/v1alpha1", "kind": "Vehicle", "metadata": {"name": name},
            "spec": {"hardwareId": "tcu-1"},
        });
        let vehicle = serde_json::from_value(vehicle).unwrap();
        self.vehicles().create(&PostParams::default(), &vehicle).await.unwrap();
    }

    /// Writes the configuration of the agent of `v-1`: one that believes nothing but what is signed.
    pub fn configure(&self, hub: &str, more: Value) {
        let kubeconfig = kube::config::Kubeconfig::read_from(&self.server.kubeconfig).unwrap();
        let authority = kubeconfig.clusters[0].cluster.as_ref().unwrap().certificate_authority_data.clone().unwrap();
        use base64::Engine;
        let authority = base64::engine::general_purpose::STANDARD.decode(authority).unwrap();
        std::fs::write(self.path("ca.pem"), authority).unwrap();
        let mut config = json!({
            "vehicle": "default/v-1", "hardwareId": "tcu-1", "hubs": [hub], "data": "vehicle", "root": "keys/root.json",
            "ca": "ca.pem", "certificate": "certificate.pem", "key": "key.pem", "initialVersion": "1.0.0",
        });
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        std::fs::write(self.path("agent.json"), config.to_string()).unwrap();
    }

    pub fn start_agent(&self) -> Running {
        self.start_agent_with("agent.json")
    }

    /// An agent whose reports are in a file.
    pub fn start_agent_logged(&self, log: &str) -> Running {
        Running::start_logged(agent(), &["--config", &self.text("agent.json")], &self.path(log))
    }

    /// An agent that loses its power once it has kept a step.
    pub fn start_agent_that_dies_at(&self, step: &str) -> Running {
        let mut command = Command::new(agent());
        command.args(["--config", &self.text("agent.json")]).env("SETPOINT_DIE_AT", step);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Running(command.spawn().expect("the program starts"))
    }

    /// An agent with another configuration.
    pub fn start_agent_with(&self, config: &str) -> Running {
        Running::start(agent(), &["--config", &self.text(config)])
    }

    /// Signs and publishes a firmware, whose bytes are in the folder of the hub.
    pub async fn release(&self, version: &str, bytes: &[u8]) {
        let firmware = self.signed(version, bytes, &[]);
        self.publish(firmware).await;
    }

    /// A firmware, signed by the release team, with further arguments for the command that does it.
    pub fn signed(&self, version: &str, bytes: &[u8], more: &[&str]) -> Value {
        std::fs::write(self.path("image"), bytes).unwrap();
        let (image, store, key) = (self.text("image"), self.text("data/firmware"), self.text("keys/targets.key"));
        let mut arguments = vec!["fleet", "sign", &image, "--version", version, "--store", &store];
        let has = |name: &str| more.contains(&name);
        for (name, usual) in [("--counter", "2"), ("--hardware", "tcu-1"), ("--key", key.as_str())] {
            if !has(name) {
                arguments.extend([name, usual]);
            }
        }
        arguments.extend(more);
        serde_json::from_str(&self.say(&arguments)).unwrap()
    }

    /// Publishes a firmware.
    pub async fn publish(&self, firmware: Value) {
        let api: Api<Firmware> = Api::namespaced(self.client.clone(), "default");
        api.create(&PostParams::default(), &serde_json::from_value(firmware).unwrap()).await.unwrap();
    }

    pub async fn want(&self, version: &str) {
        let patch = Patch::Merge(json!({"spec": {"firmwareVersion": version}}));
        self.vehicles().patch("v-1", &PatchParams::default(), &patch).await.unwrap();
    }

    /// Asks for a firmware, and counts the writes to the vehicle until it runs, that of the wish left out.
    pub async fn writes_until(&self, version: &str) -> usize {
        let since = self.vehicles().get("v-1").await.unwrap().metadata.resource_version.unwrap();
        self.want(version).await;
        let params = WatchParams::default().fields("metadata.name=v-1").timeout(290);
        let mut events = self.vehicles().watch(&params, &since).await.unwrap().boxed();
        let mut writes = 0;
        while let Some(event) = events.next().await {
            let WatchEvent::Modified(vehicle) = event.unwrap() else { continue };
            if runs(version)(&vehicle.status.unwrap_or_default()) {
                return writes;
            }
            writes += 1;
        }
        panic!("it doesn't run {version}");
    }

    /// Waits until the vehicle's status is one that is waited for; all that it was on the way.
    pub async fn until(&self, is_it: impl Fn(&VehicleStatus) -> bool) -> Vec<VehicleStatus> {
        let seen = self.until_vehicle(|vehicle| vehicle.status.as_ref().is_some_and(&is_it)).await;
        seen.into_iter().map(|vehicle| vehicle.status.unwrap_or_default()).collect()
    }

    /// Waits until `v-1` is as it should be; all that it was on the way.
    pub async fn until_vehicle(&self, is_it: impl Fn(&Vehicle) -> bool) -> Vec<Vehicle> {
        let mut seen = Vec::new();
        loop {
            let params = WatchParams::default().fields("metadata.name=v-1").timeout(290);
            let mut events = self.vehicles().watch(&params, "0").await.unwrap().boxed();
            while let Some(Ok(event)) = events.next().await {
                let (WatchEvent::Added(vehicle) | WatchEvent::Modified(vehicle)) = event else { continue };
                seen.push(vehicle.clone());
                if is_it(&vehicle) {
                    return seen;
                }
            }
        }
    }
}

pub fn runs(version: &str) -> impl Fn(&VehicleStatus) -> bool {
    move |status| status.firmware_version.as_deref() == Some(version) && status.phase.as_deref() == Some("UpToDate")
}

/// How often the vehicle was flashed: its install hook leaves a line each time.
pub fn flashes(world: &World) -> usize {
    std::fs::read_to_string(world.path("flashes")).unwrap_or_default().lines().count()
}

pub fn hook(world: &World, script: &str) -> Value {
    let file = world.path("flashes");
    json!({"hooks": {"install": ["sh", "-c", format!("echo flash >> {}; {script}", file.display())]}})
}
