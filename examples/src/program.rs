//! What every operator's `main` does: log, find the cluster, install the kind, run until asked to stop.

use std::error::Error;
use std::time::{SystemTime, UNIX_EPOCH};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, CustomResourceExt};
use setpoint_runtime::clock::{Chance, Clock};
use setpoint_runtime::manager::{Manager, ManagerError, ManagerOptions};

/// Runs the controllers that `add_to` adds, for objects of `K`, against the cluster of the current kubeconfig.
///
/// # Errors
/// If the cluster can't be reached, doesn't take the definition of `K`, or a controller fails.
pub async fn run<K: CustomResourceExt>(
    name: &str,
    add_to: impl FnOnce(&Manager) -> Result<(), ManagerError>,
) -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().init();
    let client = Client::try_default().await?;
    install::<K>(&client, name).await?;
    // Only here time and chance come from the machine: everything else is given them.
    let clock = Clock::starting_at(Timestamp::now());
    let seed = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos();
    let chance = Chance::seeded(u64::try_from(seed)?);
    let manager = Manager::new(client, clock, chance, ManagerOptions::default())?;
    add_to(&manager)?;
    manager.run(asked_to_stop()).await?;
    Ok(())
}

/// Applies the definition of a kind: a program that is newer than its cluster brings its kind up to date.
async fn install<K: CustomResourceExt>(client: &Client, name: &str) -> Result<(), kube::Error> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let params = PatchParams::apply(name).force();
    definitions.patch(K::crd_name(), &params, &Patch::Apply(K::crd())).await.map(drop)
}

/// Comes back on Ctrl-C, and on SIGTERM, which is how a cluster asks.
async fn asked_to_stop() {
    let interrupted = tokio::signal::ctrl_c();
    #[cfg(unix)]
    if let Ok(mut terminated) = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
        tokio::select! {
            _ = interrupted => return,
            _ = terminated.recv() => return,
        }
    }
    // Without signals there is nothing to wait for, and it ends.
    let _ = interrupted.await;
}
