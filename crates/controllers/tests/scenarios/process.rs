//! The process under test: a manager with some of the controllers.

use futures_util::future::BoxFuture;
use kube::Client;
use setpoint_controllers::{Choice, Wiring, add_to};
use setpoint_runtime::config::Config;
use setpoint_runtime::manager::{Manager, ManagerOptions};
use setpoint_testkit::Process;

/// Runs the controllers of a choice such as `replicaset-controller,deployment-controller`.
pub fn controllers(process: Process, choice: &str) -> BoxFuture<'static, ()> {
    let choice = Choice::parse(choice).expect("controllers that there are");
    Box::pin(async move {
        let (client, stopped) = (process.client.clone(), process.stopped());
        let manager = Manager::new(process.client, process.clock, process.chance, ManagerOptions::default());
        let manager = manager.expect("a manager without election");
        let client_of = |_: &str| -> Client { client.clone() };
        let config = Config::default();
        let wiring = Wiring { manager: &manager, client_of: &client_of, config: &config, instance: "test" };
        add_to(&wiring, &choice).expect("controllers of different names");
        // A process that fails is started again by the kit.
        let _ = manager.run(stopped).await;
    })
}
