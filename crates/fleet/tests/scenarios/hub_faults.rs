//! The hub as the process under test: every fault at every point, with simulated vehicles on it and the controllers beside it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::Value;
use setpoint_fleet::hub::{Hub, Options};
use setpoint_fleet::kinds;
use setpoint_fleet::simulate::{Fleet, Tally, make_vehicles, over_memory};
use setpoint_fleet_protocol::Party;
use setpoint_runtime::manager::{Manager, ManagerOptions};
use setpoint_testkit::{ControlPlane, Process, Scenario, State};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::hub::{converged, options, want};
use crate::process::{beside, exhaust};
use crate::story::{expect_vehicle, get, release};

const VEHICLES: usize = 2;

/// How often vehicles look for a hub, and users at how far it is.
const LOOK: Duration = Duration::from_secs(1);

/// How long users wait for the fleet; no fault takes an hour.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Where the vehicles are, and the hub that they can reach.
#[derive(Default)]
struct Yard {
    hub: Mutex<Option<Hub>>,
    /// Counts hubs.
    life: AtomicU64,
    tally: Mutex<Tally>,
    /// Whether all vehicles have left for good.
    is_over: watch::Sender<bool>,
}

/// A hub can be reached for as long as this is there.
struct Open(Arc<Yard>);

impl Yard {
    fn open(self: &Arc<Yard>, hub: Hub) -> Open {
        *self.hub.lock().unwrap() = Some(hub);
        self.life.fetch_add(1, Ordering::Relaxed);
        Open(self.clone())
    }

    fn life(&self) -> u64 {
        self.life.load(Ordering::Relaxed)
    }

    fn is_over(&self) -> bool {
        *self.is_over.borrow()
    }

    fn note(&self, tally: Tally) {
        *self.tally.lock().unwrap() = tally;
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.life.fetch_add(1, Ordering::Relaxed);
        *self.0.hub.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Vehicles go to whichever hub there is, again and again, until they leave for good.
async fn vehicles(plane: &ControlPlane) {
    let (yard, clock) = (plane.outside::<Yard>(), plane.clock());
    let mut fleet = Fleet::new(options(VEHICLES, ""), clock.wall());
    while !yard.is_over() {
        let (life, hub) = (yard.life(), yard.hub.lock().unwrap().clone());
        if let Some(hub) = hub.filter(Hub::is_ready) {
            let link = hub.open(Party::Gateway { namespace: "default".into(), name: "sim".into() });
            over_memory(&mut fleet, &link, clock, |fleet| {
                yard.note(fleet.tally());
                yard.is_over() || yard.life() != life
            })
            .await;
            fleet.disconnected(clock.wall());
        }
        sleep(LOOK).await;
        fleet.advance(clock.wall());
        yard.note(fleet.tally());
    }
}

fn is_connected(state: &State, number: usize) -> bool {
    let vehicle = get(state, "vehicles", &format!("sim-{number}"));
    let conditions = vehicle["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.iter().any(|condition| condition["type"] == "Connected" && condition["status"] == "True")
}

struct Upgrade;

impl Scenario for Upgrade {
    fn name(&self) -> &'static str {
        "hub_faults::a_hub_that_anything_happens_to_loses_nothing"
    }

    fn prepare<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            kinds::install(&plane.client()).await.unwrap();
            release(plane, &["1.0", "2.0"]).await;
            make_vehicles(&plane.client(), &options(VEHICLES, ""), "sim").await.unwrap();
        })
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let (stopped, yard) = (process.stopped(), process.outside::<Yard>());
            let manager =
                Manager::new(process.client.clone(), process.clock, process.chance, ManagerOptions::default()).unwrap();
            let hub_options = Options { name: "hub-1".into(), ..Options::default() };
            let _open = yard.open(Hub::add_to(&manager, &process.client, hub_options).unwrap());
            // A process that fails is started again by the kit.
            let _ = manager.run(stopped).await;
        })
    }

    fn world<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            let mut is_over = plane.outside::<Yard>().is_over.subscribe();
            let stopped = async move { drop(is_over.wait_for(|is_over| *is_over).await) };
            tokio::join!(beside(plane, stopped), vehicles(plane));
        })
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            sleep(Duration::from_secs(20)).await;
            want(plane, &options(VEHICLES, ""), "2.0").await;
            let mut end = plane.clock().now() + PATIENCE;
            while converged(plane, "2.0").await < VEHICLES && plane.clock().now() < end {
                sleep(LOOK).await;
            }
            // Firmwares are counted a moment later.
            plane.advance(Duration::from_secs(30)).await;
            // They leave, so that there is nothing more to say of them once that is said.
            plane.outside::<Yard>().is_over.send_replace(true);
            end = plane.clock().now() + PATIENCE;
            while (0..VEHICLES).any(|number| is_connected(&plane.state(), number)) && plane.clock().now() < end {
                sleep(LOOK).await;
            }
        })
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        for number in 0..VEHICLES {
            expect_vehicle(state, &format!("sim-{number}"), "UpToDate", "2.0", 1)?;
            if is_connected(state, number) {
                return Err(format!("sim-{number} is gone, and said to be there"));
            }
        }
        let tally = state.outside::<Yard>().tally.lock().unwrap().clone();
        match (tally.flashes, tally.repeated) == (VEHICLES as u64, 0) {
            true => Ok(()),
            false => Err(format!("they were not flashed once each: {tally:?}")),
        }
    }

    /// Numbers of sessions and reports say how often something was said, and the order of conditions who wrote first.
    fn view(&self, mut object: Value) -> Option<Value> {
        if object["kind"] == "Vehicle" {
            object["metadata"].as_object_mut()?.remove("managedFields");
            let pointers =
                ["/status/task/id", "/status/progress/taskId", "/status/progress/seq", "/status/session/epoch"];
            for pointer in pointers {
                if let Some(value) = object.pointer_mut(pointer) {
                    *value = Value::Null;
                }
            }
            if let Some(conditions) = object.pointer_mut("/status/conditions").and_then(Value::as_array_mut) {
                conditions.sort_by_key(|condition| condition["type"].to_string());
            }
        }
        Some(object)
    }
}

#[test]
fn a_hub_that_anything_happens_to_loses_nothing() {
    exhaust(&Upgrade).assert();
}
