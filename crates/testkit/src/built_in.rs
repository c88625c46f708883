//! The built-in controllers, the scheduler and simulated nodes of a plane: on and off one by one.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kube::Client;
use setpoint_controllers::{Choice, Wiring};
use setpoint_node::simulated;
use setpoint_runtime::config::Config;
use setpoint_runtime::manager::{Manager, ManagerError, ManagerOptions};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::ControlPlane;

/// Who schedules, as in `setpoint up`.
const SCHEDULER: &str = "kube-scheduler";

/// Who plays the nodes, as in `setpoint up`.
const NODES: &str = "simulated-nodes";

/// How long a part may take until it is ready. Of virtual time: it is there after a few calls.
const READY_MAX: Duration = Duration::from_secs(60);

/// The parts that run, by name. They end with the plane.
#[derive(Default)]
pub(crate) struct BuiltIn(Mutex<BTreeMap<String, Running>>);

/// One part, with a manager of its own so that it can be stopped alone.
struct Running {
    stop: oneshot::Sender<()>,
    task: JoinSet<Result<(), ManagerError>>,
}

impl BuiltIn {
    fn parts(&self) -> MutexGuard<'_, BTreeMap<String, Running>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ControlPlane {
    /// Switches built-in controllers on, by the names that `setpoint up --controllers` knows: `"deployment,replicaset"` for
    /// two, `"*"` for all, `"*,-job"` for all but one. Those that are on stay on.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
    /// use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
    /// use setpoint_testkit::ControlPlane;
    ///
    /// let plane = ControlPlane::start().await;
    /// plane.run_controllers("serviceaccount").await;
    /// plane.settle().await.unwrap();
    /// let accounts = kube::Api::<ServiceAccount>::default_namespaced(plane.client());
    /// assert!(accounts.get("default").await.is_ok());
    /// # });
    /// ```
    ///
    /// # Panics
    /// If there is no such controller.
    pub async fn run_controllers(&self, names: &str) {
        for name in choice(names).names() {
            let chosen = choice(name);
            let client_of = |name: &str| self.part_client(name);
            self.run_part(name, &self.caches_client(), |manager| {
                let config = Config::default();
                let (client_of, config) = (&client_of, &config);
                let (signer, tokens, root_ca) = (None, None, None);
                let wiring = Wiring { manager, client_of, config, instance: "testkit", signer, tokens, root_ca };
                setpoint_controllers::add_to(&wiring, &chosen)
            })
            .await;
        }
    }

    /// Switches built-in controllers off, in order: each finishes the run that it is in.
    ///
    /// # Panics
    /// If there is no such controller, or if one had failed.
    pub async fn stop_controllers(&self, names: &str) {
        for name in choice(names).names() {
            self.stop_part(name).await;
        }
    }

    /// Switches the scheduler on: pods without a node get one that they fit on.
    pub async fn run_scheduler(&self) {
        let client = self.part_client(SCHEDULER);
        self.run_part(SCHEDULER, &client, |manager| setpoint_scheduler::add_to(manager, &client, "testkit")).await;
    }

    /// Switches the scheduler off.
    ///
    /// # Panics
    /// If it had failed.
    pub async fn stop_scheduler(&self) {
        self.stop_part(SCHEDULER).await;
    }

    /// Plays so many nodes, `node-0` and on: they register, send heartbeats and run the pods that are bound to them, as those of
    /// `setpoint up --nodes` do. The scheduler gives them pods once the controller `nodelifecycle` has found them ready. Asked again it plays another number; nodes beyond it fall silent, as if their power were cut.
    ///
    /// # Panics
    /// If it had failed.
    pub async fn simulated_nodes(&self, count: usize) {
        self.stop_part(NODES).await;
        let client = self.nodes_client(&service_account(NODES), &GROUPS);
        let options = simulated::Options { count, prefix: "node".to_owned(), ..simulated::Options::default() };
        self.run_part(NODES, &client, |manager| simulated::add_to(manager, &client, options)).await;
    }

    /// Runs what `add` gives to a manager, unless it runs already, and waits until it is ready.
    async fn run_part(&self, name: &str, client: &Client, add: impl FnOnce(&Manager) -> Result<(), ManagerError>) {
        if self.built_in().parts().contains_key(name) {
            return;
        }
        let chance = self.chance().fork(name);
        let manager = Manager::new(client.clone(), self.clock(), chance, ManagerOptions::default());
        let manager = manager.expect("a manager without election");
        add(&manager).expect("parts of different names");
        let (stop, stopped) = oneshot::channel();
        let mut task = JoinSet::new();
        let running = manager.clone();
        task.spawn(async move {
            // An error means that the plane is gone.
            running.run(async { drop(stopped.await) }).await
        });
        self.built_in().parts().insert(name.to_owned(), Running { stop, task });
        let mut waited = Duration::ZERO;
        while !manager.ready().report(&[]).0 {
            assert!(waited < READY_MAX, "{name} isn't ready: {}", manager.ready().report(&[]).1);
            self.advance(Duration::from_millis(1)).await;
            waited += Duration::from_millis(1);
        }
    }

    /// Stops a part in order, if it runs.
    async fn stop_part(&self, name: &str) {
        let Some(mut running) = self.built_in().parts().remove(name) else { return };
        // An error means that it has ended, and the answer of the task why.
        let _ = running.stop.send(());
        match running.task.join_next().await {
            Some(Ok(Err(error))) => panic!("{name} failed: {error}"),
            Some(Err(error)) => panic!("{name} failed: {error}"),
            Some(Ok(Ok(()))) | None => {}
        }
    }

    /// The client of a part, as the identity that it has in `setpoint up`.
    fn part_client(&self, name: &str) -> Client {
        self.client_as(&service_account(name), &GROUPS)
    }

    /// The client that fills the caches of controllers.
    fn caches_client(&self) -> Client {
        self.client_as("system:kube-controller-manager", &["system:authenticated"])
    }
}

/// The groups of every part.
const GROUPS: [&str; 3] = ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"];

fn service_account(name: &str) -> String {
    format!("system:serviceaccount:kube-system:{name}")
}

fn choice(names: &str) -> Choice {
    Choice::parse(names).unwrap_or_else(|error| panic!("{error}"))
}
