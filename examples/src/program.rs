//! What every operator's `main` does: log, read settings, find the cluster, install the kind, take part in an election, show how
//! it is, run until asked to stop.

use std::error::Error;
use std::time::{SystemTime, UNIX_EPOCH};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, CustomResourceExt, Resource};
use setpoint_runtime::cache::{Cached, Informer, Target};
use setpoint_runtime::clock::{Chance, Clock};
use setpoint_runtime::config::{Config, Settings, Sources};
use setpoint_runtime::election::ElectionConfig;
use setpoint_runtime::manager::{Manager, ManagerError, ManagerOptions};
use setpoint_runtime::probes::{Probes, Profiles};

/// Where `/healthz`, `/readyz` and `/metrics` are served unless `NAME_LISTEN` says otherwise: a free port, which the log tells.
const LISTEN: &str = "127.0.0.1:0";

/// Runs the controllers that `add_to` adds, for objects of `K`, against the cluster of the current kubeconfig. Of several
/// processes one works, the others stand by.
///
/// Settings are those of `docs/configuration.md`, from variables (`THERMOSTAT_QUEUE_QPS=5`) and flags (`--queue.qps=5`).
///
/// # Errors
/// If a setting is wrong, the cluster can't be reached or doesn't take the definition of `K`, or a controller fails.
pub async fn run<K: CustomResourceExt>(
    name: &str,
    add_to: impl FnOnce(&Manager, &Settings) -> Result<(), ManagerError>,
) -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().init();
    let prefix = name.to_ascii_uppercase();
    let sources = Sources::new().environment(&prefix, std::env::vars()).flags(std::env::args().skip(1));
    let config = Config::load(&sources)?;
    let mut cluster = kube::Config::infer().await?;
    // The manager sends again what the server puts off, and counts it.
    cluster.default_retry = false;
    let host = cluster.cluster_url.authority().map(ToString::to_string);
    let namespace = cluster.default_namespace.clone();
    let client = Client::try_from(cluster)?;
    install::<K>(&client, name).await?;
    // Only here time and chance come from the machine: everything else is given them.
    let clock = Clock::starting_at(Timestamp::now());
    let seed = u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos())?;
    // No two processes are the same candidate, and no two runs of one.
    let candidate = ElectionConfig::new(&namespace, name, format!("{name}-{}-{seed:x}", std::process::id()));
    let election = config.election().election(candidate);
    let options = ManagerOptions { election, client: config.client().clone(), ..ManagerOptions::default() };
    let manager = Manager::new(client, clock, Chance::seeded(seed), options)?;
    manager.metrics().host(&host.unwrap_or_default());
    let listen = std::env::var(format!("{prefix}_LISTEN")).unwrap_or_else(|_| LISTEN.to_owned());
    let listener = tokio::net::TcpListener::bind(&listen).await.map_err(|error| format!("{listen}: {error}"))?;
    tracing::info!(address = %listener.local_addr()?, "healthz, readyz and metrics");
    manager.add(Probes::new(listener, &manager, Profiles::default()))?;
    add_to(&manager, config.of(name))?;
    manager.run(asked_to_stop()).await?;
    Ok(())
}

/// The shared cache of a kind, followed as the settings say.
pub fn informer<K: Cached>(manager: &Manager, settings: &Settings) -> Informer<K>
where
    K::Kind: Resource<DynamicType = ()>,
{
    let target = settings.target(Target::of::<K::Kind>(&(), None));
    manager.informers().with(target, || settings.informer_options())
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
