//! How long it takes from a change of a spec to the vehicle that it is about.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use futures_util::{SinkExt, StreamExt};
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use setpoint_fleet::kinds::Vehicle;
use setpoint_fleet::simulate::make_vehicles;
use setpoint_fleet_protocol::{FromVehicle, Said, ToVehicle, Told};
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::Message;

use crate::connections::{Door, Socket, hello, options};
use crate::world::World;

/// Changes that are measured.
const CHANGES: usize = 500;

/// The pause between two of them.
const PAUSE: Duration = Duration::from_millis(20);

/// Hellos that are sent before others may be answered.
const IN_A_ROW: usize = 256;

/// All vehicles are connected behind one gateway; one spec after the other is changed.
pub async fn measure(vehicles: usize) {
    let world = World::start(&[]).await;
    make_vehicles(&world.client, &options(vehicles), "sim").await.expect("they are made");
    let socket = Door::of(&world).await.open().await;
    let (told, mut heard) = mpsc::unbounded_channel();
    let listening = tokio::spawn(listen(socket, vehicles, told));
    world.until_running("1.0.0", vehicles).await;
    // What follows from connecting is behind.
    world.until_quiet().await;
    let changes = CHANGES.min(vehicles);
    let api: Api<Vehicle> = Api::default_namespaced(world.client.clone());
    let mut changed = HashMap::new();
    let step = (vehicles / changes).max(1);
    for change in 0..changes {
        let name = format!("sim-{}", change * step);
        changed.insert(format!("default/{name}"), Instant::now());
        let patch = Patch::Merge(json!({"spec": {"firmwareVersion": "2.0.0"}}));
        api.patch(&name, &PatchParams::default(), &patch).await.expect("it is changed");
        tokio::time::sleep(PAUSE).await;
    }
    let mut spans: Vec<Duration> = Vec::new();
    while spans.len() < changes {
        let (name, at): (String, Instant) = heard.recv().await.expect("the connection is open");
        if let Some(from) = changed.remove(&name) {
            spans.push(at.saturating_duration_since(from));
        }
    }
    spans.sort_unstable();
    let at = |percent: usize| spans[(spans.len() * percent / 100).min(spans.len() - 1)];
    println!(
        "from a change of a spec to its vehicle, {vehicles} connected: p50 {:.1} ms, p99 {:.1} ms",
        at(50).as_secs_f64() * 1000.0,
        at(99).as_secs_f64() * 1000.0,
    );
    listening.abort();
}

/// Says hello for all, answers pings, and tells of tasks.
async fn listen(mut socket: Socket, vehicles: usize, told: mpsc::UnboundedSender<(String, Instant)>) {
    for number in 0..vehicles {
        socket.feed(Message::binary(hello(number).bytes())).await.expect("it is sent");
        if number % IN_A_ROW == 0 {
            socket.flush().await.expect("it is sent");
        }
    }
    socket.flush().await.expect("it is sent");
    while let Some(Ok(message)) = socket.next().await {
        let Message::Binary(bytes) = message else { continue };
        let Ok(frame) = ToVehicle::read(&bytes) else { continue };
        match frame.told {
            Some(Told::Ping(number)) => {
                let pong = FromVehicle::of(Said::Pong(number)).bytes();
                socket.send(Message::binary(pong)).await.expect("it is sent");
            }
            Some(Told::Desired(desired)) if !desired.task_id.is_empty() => {
                // The measurement is over if nobody listens.
                let _ = told.send((frame.vehicle, Instant::now()));
            }
            _ => {}
        }
    }
}
