//! The process under test: a manager with some of the controllers.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use kube::Client;
use setpoint_controllers::{Choice, PARTS, Signer, ToProve, ToSign, TokenSigner, Wiring, add_to, fixed_root_ca};
use setpoint_runtime::clock::{Chance, Clock};
use setpoint_runtime::config::{Config, Sources};
use setpoint_runtime::manager::{Manager, ManagerOptions};
use setpoint_testkit::{ControlPlane, Limits, Process, Report, Scenario};
use tokio::task::JoinHandle;

use crate::narrow::narrow;

/// What controllers publish as the API server's certificate.
pub const ROOT_CA: &str = "-----BEGIN CERTIFICATE-----\n";

/// Grants everything with the same certificate.
fn signer() -> Signer {
    Arc::new(|_: &ToSign<'_>| Ok(include_bytes!("certificates/certificate.pem").to_vec()))
}

/// Tells whose token it is, without proving anything.
fn tokens() -> TokenSigner {
    Arc::new(|asked: &ToProve<'_>| {
        let ToProve { namespace, secret, account, account_uid } = asked;
        assert!(!account_uid.is_empty(), "the account is one that is there");
        Ok(format!("the token of {namespace}/{account} in {secret}"))
    })
}

/// Faults that a scenario is tried with unless all are asked for: a few of each kind, so that the suite takes minutes.
const POINTS: usize = 8;

/// Set to try every fault of every scenario: `make exhaust` does.
const ALL: &str = "SETPOINT_ALL_FAULTS";

/// Runs a scenario with some of the faults, or with all.
pub fn exhaust(scenario: &dyn Scenario) -> Report {
    exhaust_with(scenario, 0, Limits::default())
}

/// [`exhaust`] with a seed and limits of one's own.
pub fn exhaust_with(scenario: &dyn Scenario, seed: u64, limits: Limits) -> Report {
    let points = if std::env::var_os(ALL).is_some() { usize::MAX } else { POINTS };
    setpoint_testkit::exhaust_with(scenario, seed, Limits { points, ..limits })
}

/// Runs the controllers of a choice such as `replicaset-controller,deployment-controller`.
pub fn controllers(process: Process, choice: &str) -> BoxFuture<'static, ()> {
    controllers_with(process, choice, "")
}

/// [`controllers`] with settings, as a file has them.
pub fn controllers_with(process: Process, choice: &str, settings: &'static str) -> BoxFuture<'static, ()> {
    let stopped = process.stopped();
    Box::pin(run(process.client, process.clock, process.chance, choice.to_owned(), settings, stopped))
}

/// [`controllers`] on a server that seems to have these resources only: those who look at every kind make fewer calls then.
pub fn controllers_of(process: Process, choice: &str, resources: &'static [&'static str]) -> BoxFuture<'static, ()> {
    let stopped = process.stopped();
    let client = narrow(process.client, resources);
    Box::pin(run(client, process.clock, process.chance, choice.to_owned(), "", stopped))
}

/// Runs the controllers of a choice on a plane, without faults, until the test is over.
pub fn spawn(plane: &ControlPlane, choice: &str) -> JoinHandle<()> {
    tokio::spawn(run(plane.client(), plane.clock(), plane.chance(), choice.to_owned(), "", std::future::pending()))
}

async fn run(
    client: Client,
    clock: Clock,
    chance: Chance,
    choice: String,
    settings: &str,
    stopped: impl Future<Output = ()>,
) {
    let choice = Choice::parse(&choice).expect("controllers that there are");
    let manager = Manager::new(client.clone(), clock, chance, ManagerOptions::default());
    let manager = manager.expect("a manager without election");
    let client_of = |_: &str| -> Client { client.clone() };
    let sources = PARTS.iter().fold(Sources::new(), |sources, part| sources.part(part));
    let config = Config::load(&sources.file(settings)).expect("settings that there are");
    let wiring = Wiring {
        manager: &manager,
        client_of: &client_of,
        config: &config,
        instance: "test",
        signer: Some(signer()),
        tokens: Some(tokens()),
        root_ca: Some(&fixed_root_ca(ROOT_CA)),
    };
    add_to(&wiring, &choice).expect("controllers of different names");
    // A process that fails is started again by the kit.
    let _ = manager.run(stopped).await;
}
