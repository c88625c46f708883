//! The processes that are measured.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use kube::api::{Api, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use setpoint_fleet::certificate;
use setpoint_fleet::kinds::{Firmware, Rollout, Vehicle};
use setpoint_fleet_protocol::{Party, VehicleName, hex};

use crate::process::{Process, cpu, resident};

/// How often this process looks.
const LOOK: Duration = Duration::from_millis(100);

/// What never gets there is a failure, not a stall.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Fewer writes than this in two seconds are the leases and heartbeats of a control plane at rest.
const QUIET_WRITES: u64 = 20;

/// How fast things happen on vehicles: what is measured is the control plane, not them.
const SPEED: &str = "100";

/// Ended with this value.
pub struct Running(Child);

impl Running {
    pub fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A control plane, its vehicles, and perhaps a part of it in a process of its own.
pub struct World {
    pub server: Process,
    pub client: Client,
    command: Vec<String>,
    folder: tempfile::TempDir,
    hub: String,
    part: Option<(Vec<String>, Running)>,
    simulator: Option<Running>,
}

impl World {
    /// `setpoint up`, with further arguments.
    pub async fn start(more: &[&str]) -> World {
        let folder = tempfile::tempdir_in(".").expect("a writable directory");
        let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port();
        let hub = format!("127.0.0.1:{port}");
        let mut command: Vec<String> = vec!["up".into()];
        command.extend(more.iter().map(|word| (*word).to_owned()));
        if !more.contains(&"--no-hub") {
            command.extend(["--hub-listen".to_owned(), hub.clone()]);
        }
        let server = start(&command, folder.path());
        let client = client(&server).await;
        let world = World { server, client, command, folder, hub, part: None, simulator: None };
        for version in ["1.0.0", "2.0.0"] {
            world.release(version).await;
        }
        world
    }

    /// The hub in a process of its own.
    pub async fn with_hub() -> World {
        let mut world = World::start(&["--no-hub"]).await;
        let listen = world.hub.clone();
        world.run(&["hub", "--name", "bench", "--listen", &listen, "--probes", "127.0.0.1:0"]);
        world
    }

    /// The fleet's controllers in a process of their own.
    pub async fn with_controllers() -> World {
        let mut world = World::start(&["--controllers", "*,-vehicle,-rollout,-firmware"]).await;
        let fleet = ["controllers", "--controllers", "vehicle,rollout,firmware", "--no-leader-election"];
        world.run(&[&fleet[..], &["--listen", "127.0.0.1:0"]].concat());
        world
    }

    fn run(&mut self, arguments: &[&str]) {
        let mut arguments: Vec<String> = arguments.iter().map(|word| (*word).to_owned()).collect();
        arguments.extend(["--kubeconfig".to_owned(), self.kubeconfig()]);
        let running = spawn(&arguments);
        self.part = Some((arguments, running));
    }

    pub fn kubeconfig(&self) -> String {
        self.server.kubeconfig.to_str().expect("text").to_owned()
    }

    /// Where vehicles connect.
    pub fn hub(&self) -> &str {
        &self.hub
    }

    /// Kills the part that has a process of its own, and starts it again.
    pub fn restart_part(&mut self) {
        let (arguments, running) = self.part.take().expect("a part of its own");
        drop(running);
        let running = spawn(&arguments);
        self.part = Some((arguments, running));
    }

    /// Kills the control plane, and starts it again.
    pub async fn restart(&mut self) {
        self.server.kill();
        self.server = start(&self.command, self.folder.path());
        self.client = client(&self.server).await;
    }

    /// Vehicles behind one gateway; those that there were are killed.
    pub fn simulate(&mut self, vehicles: usize) {
        drop(self.simulator.take());
        let arguments = ["fleet", "simulate", "--vehicles", &vehicles.to_string(), "--speed", SPEED, "--seed", "1"];
        let hub = format!("https://{}", self.hub);
        let place = ["--hub", &hub, "--kubeconfig", &self.kubeconfig()];
        let arguments: Vec<String> = arguments.iter().chain(&place).map(|word| (*word).to_owned()).collect();
        self.simulator = Some(spawn(&arguments));
    }

    pub fn simulator_cpu(&self) -> Duration {
        self.simulator.as_ref().map_or(Duration::ZERO, |running| cpu(running.id()))
    }

    /// CPU time of the part that has a process of its own.
    pub fn part_cpu(&self) -> Duration {
        self.part.as_ref().map_or(Duration::ZERO, |(_, running)| cpu(running.id()))
    }

    /// What is resident of it.
    pub fn part_resident(&self) -> u64 {
        self.part.as_ref().map_or(0, |(_, running)| resident(running.id()))
    }

    pub fn simulator_resident(&self) -> u64 {
        self.simulator.as_ref().map_or(0, |running| resident(running.id()))
    }

    /// Tells what is resident.
    pub fn memory(&self, vehicles: usize, when: &str) {
        let (server, simulator) = (self.server.resident(), self.simulator_resident());
        println!("{vehicles} vehicles {when}: {} MB resident, vehicles {} MB", megabytes(server), megabytes(simulator));
    }

    async fn release(&self, version: &str) {
        let sha256 = hex::encode(digest(&SHA256, version.as_bytes()).as_ref());
        let artifact = json!({"url": format!("/v1/firmware/{sha256}"), "size": 5, "sha256": sha256});
        let firmware = json!({
            "apiVersion": "fleet.setpoint.dev/v1alpha1", "kind": "Firmware", "metadata": {"name": version},
            "spec": {"version": version, "hardwareIds": ["sim-1"], "artifacts": [artifact]},
        });
        let api: Api<Firmware> = Api::default_namespaced(self.client.clone());
        api.create(&PostParams::default(), &read(firmware)).await.expect("it is made");
    }

    /// All vehicles at once.
    pub async fn roll_out(&self, version: &str) {
        let rollout = json!({
            "apiVersion": "fleet.setpoint.dev/v1alpha1", "kind": "Rollout", "metadata": {"name": "all"},
            "spec": {"firmwareRef": {"name": version}, "maxConcurrent": "100%"},
        });
        let api: Api<Rollout> = Api::default_namespaced(self.client.clone());
        api.create(&PostParams::default(), &read(rollout)).await.expect("it is made");
    }

    /// Waits until so many vehicles run a firmware.
    pub async fn until_running(&self, version: &str, vehicles: usize) {
        let api: Api<Firmware> = Api::default_namespaced(self.client.clone());
        let start = Instant::now();
        loop {
            let deployed = match api.get(version).await {
                Ok(firmware) => firmware.status.unwrap_or_default().deployed,
                Err(_) => 0,
            };
            if usize::try_from(deployed) == Ok(vehicles) {
                return;
            }
            wait(start, &format!("{deployed} of {vehicles} vehicles run {version}")).await;
        }
    }

    /// Waits until the rollout is over; the most that was resident meanwhile, of all together and of the part of its own.
    pub async fn until_completed(&self) -> (u64, u64) {
        let (start, mut most) = (Instant::now(), (0, 0));
        loop {
            let part = self.part_resident();
            let all = self.server.resident() + self.simulator_resident() + part;
            most = (all.max(most.0), part.max(most.1));
            let rollout = self.rollout().await;
            if rollout["phase"] == "Completed" {
                return most;
            }
            wait(start, &rollout.to_string()).await;
        }
    }

    /// Waits until so many vehicles have it.
    pub async fn until_updated(&self, vehicles: usize) {
        let start = Instant::now();
        loop {
            let rollout = self.rollout().await;
            let updated = rollout["counts"]["succeeded"].as_u64().and_then(|count| usize::try_from(count).ok());
            if updated.is_some_and(|count| count >= vehicles) {
                return;
            }
            wait(start, &rollout.to_string()).await;
        }
    }

    async fn rollout(&self) -> Value {
        let api: Api<Rollout> = Api::default_namespaced(self.client.clone());
        api.get("all").await.map(|rollout| json!(rollout.status)).unwrap_or_default()
    }

    /// Waits until a while has passed in which hardly anything was written: what follows from connecting is over.
    pub async fn until_quiet(&self) {
        loop {
            let before = self.revision().await;
            tokio::time::sleep(Duration::from_secs(2)).await;
            if self.revision().await - before < QUIET_WRITES {
                return;
            }
        }
    }

    /// The revision of the store: one for each write.
    pub async fn revision(&self) -> u64 {
        let api: Api<Vehicle> = Api::default_namespaced(self.client.clone());
        let list = api.list_metadata(&ListParams::default().limit(1)).await.expect("a list");
        list.metadata.resource_version.and_then(|text| text.parse().ok()).expect("a revision")
    }

    /// The certificate of the gateway that speaks for simulated vehicles, and the authority of the hub's.
    pub async fn gateway(&self) -> (certificate::Issued, String) {
        let party = Party::Gateway { namespace: "default".into(), name: "sim".into() };
        let issued = certificate::of_party(&self.client, &party).await.expect("a certificate");
        (issued, self.authority())
    }

    /// The authority of the hub's certificate, in PEM.
    pub fn authority(&self) -> String {
        use base64::Engine;
        let kubeconfig = Kubeconfig::read_from(&self.server.kubeconfig).expect("a kubeconfig");
        let cluster = kubeconfig.clusters.first().and_then(|named| named.cluster.clone()).expect("a cluster");
        let data = cluster.certificate_authority_data.expect("an authority");
        let pem = base64::engine::general_purpose::STANDARD.decode(data).expect("base64");
        String::from_utf8(pem).expect("PEM")
    }

    /// One real vehicle, connected.
    pub async fn agent(&self, binary: &Path) -> Running {
        let vehicle = json!({
            "apiVersion": "fleet.setpoint.dev/v1alpha1", "kind": "Vehicle", "metadata": {"name": "real"},
            "spec": {"hardwareId": "sim-1"},
        });
        let api: Api<Vehicle> = Api::default_namespaced(self.client.clone());
        api.create(&PostParams::default(), &read(vehicle)).await.expect("it is made");
        let party = Party::Vehicle(VehicleName::new("default", "real").expect("a name"));
        let issued = certificate::of_party(&self.client, &party).await.expect("a certificate");
        let path = |name: &str| self.folder.path().join(name);
        std::fs::write(path("agent.pem"), issued.certificate).expect("it is written");
        std::fs::write(path("agent.key"), issued.key).expect("it is written");
        std::fs::write(path("agent-ca.pem"), self.authority()).expect("it is written");
        let config = json!({
            "vehicle": "default/real", "hardwareId": "sim-1", "hubs": [format!("https://{}", self.hub)], "data": "agent",
            "unsigned": true, "ca": "agent-ca.pem", "certificate": "agent.pem", "key": "agent.key", "initialVersion": "1.0.0",
        });
        std::fs::write(path("agent.json"), config.to_string()).expect("it is written");
        let mut command = Command::new(binary);
        command.arg("--config").arg(path("agent.json")).stdout(Stdio::null()).stderr(Stdio::null());
        let agent = Running(command.spawn().expect("the agent"));
        let start = Instant::now();
        while api.get("real").await.expect("it is there").status.unwrap_or_default().session.is_none() {
            wait(start, "the agent is not connected").await;
        }
        agent
    }
}

fn start(command: &[String], folder: &Path) -> Process {
    Process::start(&command.iter().map(String::as_str).collect::<Vec<_>>(), &folder.join("data"))
}

async fn client(server: &Process) -> Client {
    let kubeconfig = Kubeconfig::read_from(&server.kubeconfig).expect("a kubeconfig");
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    Client::try_from(config.expect("a whole kubeconfig")).expect("certificates")
}

/// A part of setpoint, whose words nobody reads.
fn spawn(arguments: &[String]) -> Running {
    let mut command = Command::new(env!("CARGO_BIN_EXE_setpoint"));
    let mut child = command.args(arguments).stdout(Stdio::piped()).spawn().expect("it starts");
    let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    std::thread::spawn(move || lines.for_each(drop));
    Running(child)
}

async fn wait(since: Instant, what: &str) {
    assert!(since.elapsed() < PATIENCE, "it takes too long: {what}");
    tokio::time::sleep(LOOK).await;
}

pub fn megabytes(bytes: u64) -> u64 {
    bytes / 1_000_000
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("what is written here can be read")
}
