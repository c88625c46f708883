//! Figures of a fleet, one line each: `setpoint up` as released, with vehicles that `setpoint fleet simulate` runs behind one gateway, or
//! with a connection each where connections are measured. Run by `make bench`.
//!
//! Words after `--` choose parts, and `vehicles=N` how many there are: `cargo bench -p setpoint --bench fleet -- upgrade
//! vehicles=10000`. CPU time and memory are told by `/proc`, writes by the revisions that went by.

mod connections;
mod latency;
#[path = "../process/mod.rs"]
mod process;
mod world;

use std::process::Command;
use std::time::{Duration, Instant};

use process::{cpu, resident};
use world::{World, megabytes};

fn main() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(run());
}

async fn run() {
    if is_chosen("upgrade") {
        for vehicles in counts(&[1_000, 10_000, 100_000]) {
            upgrade(vehicles).await;
        }
    }
    if is_chosen("apart") {
        for vehicles in counts(&[100_000]) {
            apart(vehicles).await;
        }
    }
    if is_chosen("latency") {
        for vehicles in counts(&[10_000, 100_000]) {
            latency::measure(vehicles).await;
        }
    }
    if is_chosen("connections") {
        for vehicles in counts(&[5_000]) {
            connections::measure(vehicles).await;
        }
    }
    if is_chosen("kill") {
        for vehicles in counts(&[10_000]) {
            for part in ["the whole control plane", "the hub", "the controllers", "the vehicles"] {
                kill(vehicles, part).await;
            }
        }
    }
    if is_chosen("outage") {
        for vehicles in counts(&[100_000]) {
            kill(vehicles, "the hub").await;
        }
    }
    if is_chosen("agent") {
        agent().await;
    }
}

/// All vehicles from one firmware to the next, as fast as it goes.
async fn upgrade(vehicles: usize) {
    let start = Instant::now();
    let mut world = World::start(&[]).await;
    world.simulate(vehicles);
    world.until_running("1.0.0", vehicles).await;
    println!("{vehicles} vehicles made and connected in {:.1} s", start.elapsed().as_secs_f64());
    world.memory(vehicles, "connected");
    world.until_quiet().await;
    let (server, simulator) = (world.server.cpu(), world.simulator_cpu());
    tokio::time::sleep(Duration::from_secs(10)).await;
    println!(
        "{vehicles} vehicles connected and nothing to do: {:.1} % of a processor, vehicles {:.1} %",
        (world.server.cpu() - server).as_secs_f64() * 10.0,
        (world.simulator_cpu() - simulator).as_secs_f64() * 10.0,
    );
    let (revision, server, simulator) = (world.revision().await, world.server.cpu(), world.simulator_cpu());
    let start = Instant::now();
    world.roll_out("2.0.0").await;
    let (most, _) = world.until_completed().await;
    let took = start.elapsed();
    let writes = world.revision().await - revision;
    println!(
        "{vehicles} vehicles upgraded in {:.1} s: {:.0} a minute, {:.2} writes each, {:.1} s of CPU (vehicles {:.1} s), at most {} MB \
         resident",
        took.as_secs_f64(),
        vehicles as f64 / took.as_secs_f64() * 60.0,
        writes as f64 / vehicles as f64,
        (world.server.cpu() - server).as_secs_f64(),
        (world.simulator_cpu() - simulator).as_secs_f64(),
        megabytes(most),
    );
    world.memory(vehicles, "after the upgrade");
}

/// The same with the hub in a process of its own: what it takes, and what is left to the control plane.
async fn apart(vehicles: usize) {
    let mut world = World::with_hub().await;
    world.simulate(vehicles);
    world.until_running("1.0.0", vehicles).await;
    world.until_quiet().await;
    let (server, hub) = (world.server.cpu(), world.part_cpu());
    tokio::time::sleep(Duration::from_secs(10)).await;
    println!(
        "{vehicles} vehicles connected and nothing to do: control plane {} MB and {:.1} % of a processor, hub {} MB and {:.1} %",
        megabytes(world.server.resident()),
        (world.server.cpu() - server).as_secs_f64() * 10.0,
        megabytes(world.part_resident()),
        (world.part_cpu() - hub).as_secs_f64() * 10.0,
    );
    let (server, hub, start) = (world.server.cpu(), world.part_cpu(), Instant::now());
    world.roll_out("2.0.0").await;
    let (all, part) = world.until_completed().await;
    println!(
        "{vehicles} vehicles upgraded in {:.1} s with a hub of its own: control plane {:.1} s of CPU, hub {:.1} s; hub at most {} MB \
         resident, all together {} MB",
        start.elapsed().as_secs_f64(),
        (world.server.cpu() - server).as_secs_f64(),
        (world.part_cpu() - hub).as_secs_f64(),
        megabytes(part),
        megabytes(all),
    );
}

/// A part is killed in the middle of an upgrade, and started again at once.
async fn kill(vehicles: usize, part: &str) {
    let mut world = match part {
        "the hub" => World::with_hub().await,
        "the controllers" => World::with_controllers().await,
        _ => World::start(&[]).await,
    };
    world.simulate(vehicles);
    world.until_running("1.0.0", vehicles).await;
    world.roll_out("2.0.0").await;
    world.until_updated(vehicles / 2).await;
    let start = Instant::now();
    match part {
        "the whole control plane" => world.restart().await,
        "the vehicles" => world.simulate(vehicles),
        _ => world.restart_part(),
    }
    world.until_completed().await;
    println!(
        "{part} killed when half of {vehicles} vehicles were upgraded: all are {:.1} s later",
        start.elapsed().as_secs_f64()
    );
}

/// The agent's binary, and one that is connected.
async fn agent() {
    let folder = std::path::Path::new(env!("CARGO_BIN_EXE_setpoint")).parent().expect("a folder");
    // The one that `make dist` packs.
    let mut build = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../xtask/dist/agent.sh"));
    let built = build.env("CARGO_TARGET_DIR", folder.parent().expect("a target folder")).output().expect("a shell");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let binary = std::path::PathBuf::from(String::from_utf8(built.stdout).expect("a path").trim());
    let bytes = std::fs::metadata(&binary).expect("the agent").len();
    let world = World::start(&[]).await;
    let agent = world.agent(&binary).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    println!(
        "the agent, stripped and static: {:.2} MB of binary, {:.2} MB resident when connected, {:?} of CPU so far",
        bytes as f64 / 1e6,
        resident(agent.id()) as f64 / 1e6,
        cpu(agent.id()),
    );
}

/// Whether a part is to run: all do, unless some are named.
fn is_chosen(part: &str) -> bool {
    let mut named = std::env::args().skip(1).filter(|word| !word.starts_with('-') && !word.contains('=')).peekable();
    named.peek().is_none() || named.any(|word| part.starts_with(&word))
}

/// How many vehicles: those usual for a part, unless some are said.
fn counts(usual: &[usize]) -> Vec<usize> {
    let said = std::env::args().find_map(|word| word.strip_prefix("vehicles=")?.parse().ok());
    said.map_or_else(|| usual.to_vec(), |count| vec![count])
}
