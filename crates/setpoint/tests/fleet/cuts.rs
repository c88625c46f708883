//! Networks that carry one direction only: who isn't heard, or hears nothing, finds out and goes elsewhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;
use setpoint_fleet::kinds::VehicleStatus;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

use crate::crossings::Hub;
use crate::world::{World, flashes, hook, runs};

/// A way to a hub, of which each direction can be cut while connections stay open.
struct Way {
    url: String,
    up: Arc<AtomicBool>,
    down: Arc<AtomicBool>,
}

impl Way {
    async fn to(hub: &str) -> Way {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let (up, down) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(true)));
        let (hub, open) = (hub.trim_start_matches("https://").to_owned(), (up.clone(), down.clone()));
        tokio::spawn(async move {
            while let Ok((vehicle, _)) = listener.accept().await {
                let Ok(hub) = TcpStream::connect(&hub).await else { continue };
                let ((from_vehicle, to_vehicle), (from_hub, to_hub)) = (vehicle.into_split(), hub.into_split());
                tokio::spawn(carry(from_vehicle, to_hub, open.0.clone()));
                tokio::spawn(carry(from_hub, to_vehicle, open.1.clone()));
            }
        });
        Way { url, up, down }
    }
}

/// Carries bytes for as long as the direction is open; then they get lost, and so does the end of the connection.
async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, is_open: Arc<AtomicBool>) {
    let mut bytes = [0; 4096];
    loop {
        let count = from.read(&mut bytes).await.unwrap_or(0);
        let is_open = is_open.load(Ordering::SeqCst);
        if is_open && (count == 0 || to.write_all(&bytes[..count]).await.is_err()) {
            return;
        }
        if count == 0 {
            // Nobody hears of it.
            return std::future::pending().await;
        }
    }
}

async fn check(cut: impl Fn(&Way)) {
    let world = World::start(&["up", "--no-hub"]).await;
    let (one, two) = (Hub::asking(&world, "hub-1", 1), Hub::asking(&world, "hub-2", 1));
    let way = Way::to(&one.url).await;
    let mut more = hook(&world, "true");
    more["hubs"] = json!([way.url, two.url]);
    world.enrol(&way.url, more).await;
    world.release("2.0.0", b"new").await;
    let _first = one.start();
    let at = |hub: &'static str| move |status: &VehicleStatus| status.session.as_ref().is_some_and(|it| it.hub == hub);
    let _agent = world.start_agent();
    world.until(at("hub-1")).await;
    let _second = two.start();
    cut(&way);
    world.want("2.0.0").await;
    world.until(at("hub-2")).await;
    let last = world.until(runs("2.0.0")).await.pop().unwrap();
    assert_eq!((last.task.unwrap().attempt, flashes(&world)), (1, 1));
}

#[tokio::test]
async fn a_vehicle_that_hears_nothing_of_its_hub_goes_to_another_one() {
    check(|way| way.down.store(false, Ordering::SeqCst)).await;
}

#[tokio::test]
async fn a_vehicle_that_its_hub_does_not_hear_goes_to_another_one() {
    check(|way| way.up.store(false, Ordering::SeqCst)).await;
}
