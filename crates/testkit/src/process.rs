//! What the process under test is given.

use std::future::Future;
use std::sync::Arc;

use kube::Client;
use setpoint_runtime::clock::{Chance, Clock};
use tokio::sync::watch;

use crate::life::{Broken, Life};
use crate::outside::Outside;

/// One life of the process under test.
///
/// Everything that a process does goes through its client, or through [`read`](Process::read) and [`write`](Process::write):
/// once it has died, calls of what is left of it go nowhere.
///
/// ```
/// use setpoint_runtime::manager::{Manager, ManagerOptions};
/// use setpoint_testkit::Process;
///
/// /// What a scenario has as its process: the same as the program's `main`, with what is given here.
/// async fn operator(process: Process) {
///     let stopped = process.stopped();
///     let manager = Manager::new(process.client, process.clock, process.chance, ManagerOptions::default());
///     let _ = manager.expect("options that hold").run(stopped).await; // one that fails is started again
/// }
/// ```
#[derive(Clone)]
pub struct Process {
    /// Reaches the API server, through the faults of the run.
    pub client: Client,
    /// Wall time, by the paused timer.
    pub clock: Clock,
    /// Chance, from the seed of the run.
    pub chance: Chance,
    pub(crate) life: Life,
    pub(crate) outside: Outside,
    pub(crate) stop: watch::Receiver<bool>,
}

impl Process {
    /// What is outside of the cluster in this run; the same as [`ControlPlane::outside`](crate::ControlPlane::outside).
    pub fn outside<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        self.outside.get()
    }

    /// Makes a call to something outside of the cluster that only reads. Faults strike it as they do calls to the API server.
    ///
    /// # Errors
    /// If the fault of the run breaks this call.
    pub async fn read<T>(&self, call: impl Future<Output = T>) -> Result<T, Broken> {
        self.life.read(call).await
    }

    /// Makes a call to something outside of the cluster that may change it: the process may die right after it, too.
    ///
    /// # Errors
    /// If the fault of the run breaks this call.
    pub async fn write<T>(&self, call: impl Future<Output = T>) -> Result<T, Broken> {
        self.life.change(call).await
    }

    /// Comes back when the process is asked to end in order.
    pub fn stopped(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut stop = self.stop.clone();
        async move {
            // An error means that the run is over.
            let _ = stop.wait_for(|stop| *stop).await;
        }
    }
}
