//! The process under test: a manager with the fleet's controllers.

use futures_util::future::BoxFuture;
use kube::Client;
use setpoint_fleet::{Wiring, add_to, approver};
use setpoint_runtime::clock::{Chance, Clock};
use setpoint_runtime::config::Config;
use setpoint_runtime::manager::{Manager, ManagerOptions};
use setpoint_testkit::{ControlPlane, Limits, Process, Report, Scenario};
use tokio::task::JoinHandle;

/// Faults that a scenario is tried with unless all are asked for: a few of each kind, so that the suite takes seconds.
const POINTS: usize = 6;

/// Set to try every fault of every scenario: `make exhaust` does.
const ALL: &str = "SETPOINT_ALL_FAULTS";

/// Runs a scenario with some of the faults, or with all.
pub fn exhaust(scenario: &dyn Scenario) -> Report {
    let points = if std::env::var_os(ALL).is_some() { usize::MAX } else { POINTS };
    setpoint_testkit::exhaust_with(scenario, 0, Limits { points, ..Limits::default() })
}

/// Runs the controllers of vehicles, firmwares and rollouts as the process under test.
pub fn controllers(process: Process) -> BoxFuture<'static, ()> {
    let stopped = process.stopped();
    Box::pin(run(process.client, process.clock, process.chance, |name| name != approver::NAME, stopped))
}

/// Runs the approver as the process under test.
pub fn approver(process: Process) -> BoxFuture<'static, ()> {
    let stopped = process.stopped();
    Box::pin(run(process.client, process.clock, process.chance, |name| name == approver::NAME, stopped))
}

/// Runs them on a plane, without faults, until the test is over.
pub fn spawn(plane: &ControlPlane) -> JoinHandle<()> {
    tokio::spawn(beside(plane, std::future::pending()))
}

/// The same as a part of the world beside the process under test, until it is stopped.
pub fn beside<S: Future<Output = ()>>(plane: &ControlPlane, stopped: S) -> impl Future<Output = ()> + use<S> {
    run(plane.client(), plane.clock(), plane.chance(), |name| name != approver::NAME, stopped)
}

async fn run(
    client: Client,
    clock: Clock,
    chance: Chance,
    is_chosen: fn(&str) -> bool,
    stopped: impl Future<Output = ()>,
) {
    let manager = Manager::new(client.clone(), clock, chance, ManagerOptions::default());
    let manager = manager.expect("a manager without election");
    let client_of = |_: &str| -> Client { client.clone() };
    let config = Config::default();
    let wiring = Wiring { manager: &manager, client_of: &client_of, config: &config, instance: "test" };
    add_to(&wiring, is_chosen).expect("controllers of different names");
    // A process that fails is started again by the kit.
    let _ = manager.run(stopped).await;
}
