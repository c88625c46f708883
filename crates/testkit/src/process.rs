//! What the process under test is given.

use std::future::Future;

use kube::Client;
use setpoint_runtime::clock::{Chance, Clock};
use tokio::sync::watch;

/// One life of the process under test.
///
/// Everything that a process does goes through its client: once it has died, calls of what is left of it go nowhere.
#[derive(Clone)]
pub struct Process {
    /// Reaches the API server, through the faults of the run.
    pub client: Client,
    /// Wall time, by the paused timer.
    pub clock: Clock,
    /// Chance, from the seed of the run.
    pub chance: Chance,
    pub(crate) stop: watch::Receiver<bool>,
}

impl Process {
    /// Comes back when the process is asked to end in order.
    pub fn stopped(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut stop = self.stop.clone();
        async move {
            // An error means that the run is over.
            let _ = stop.wait_for(|stop| *stop).await;
        }
    }
}
