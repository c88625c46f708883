//! What answers requests: the one place where the API server is put together.

use std::sync::{Arc, LazyLock};

use ring::rand::SecureRandom;
use setpoint_apiserver::{ApiServer, Chance, Clock, Registry};
use setpoint_store::{Fields, Store};
use tokio::sync::watch;

use crate::nearby::Simulated;

/// The version that clients see.
pub const KUBERNETES_VERSION: &str = setpoint_apiserver::GIT_VERSION;

static REGISTRY: LazyLock<Arc<Registry>> = LazyLock::new(|| Arc::new(Registry::builtin()));

/// Puts the service together. `stop` ends the requests that have no end of their own.
pub fn service(store: Store, stop: watch::Receiver<bool>) -> ApiServer {
    let server = ApiServer::new(store, Arc::clone(&REGISTRY), Clock::system(), Chance::seeded(seed()), stop);
    server.reach(Arc::new(Simulated));
    server
}

/// A seed that no other run has.
pub fn seed() -> u64 {
    let mut seed = [0; 8];
    // Without random numbers from the system the certificates could not have been made either.
    ring::rand::SystemRandom::new().fill(&mut seed).expect("the system gives random numbers");
    u64::from_le_bytes(seed)
}

/// What objects of each resource can be selected by.
pub fn fields() -> Arc<dyn Fields> {
    Arc::clone(&REGISTRY) as Arc<dyn Fields>
}
