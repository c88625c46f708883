//! One part of the control plane as a process of its own, against any Kubernetes API server.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use setpoint_controllers::Wiring;
use setpoint_runtime::config::Config;
use setpoint_runtime::election::ElectionConfig;
use setpoint_runtime::manager::ManagerOptions;
use setpoint_runtime::probes::Probes;
use tokio::net::TcpListener;

use crate::arguments::{AloneArguments, ControllersArguments, NodeArguments, SchedulerArguments};
use crate::beside::DRAIN_LIMIT;
use crate::failure::{Failure, say};
use crate::logging;
use crate::parts::{self, Part};
use crate::service::seed;
use crate::signals::Signals;

/// `setpoint controllers`.
pub async fn controllers(arguments: ControllersArguments) -> Result<(), Failure> {
    let config = parts::config(arguments.config.as_deref())?;
    let election = (!arguments.no_leader_election).then_some("setpoint-controllers");
    run(Part::Controllers(arguments.controllers), &config, election, arguments.listen, &arguments.alone).await
}

/// `setpoint scheduler`.
pub async fn scheduler(arguments: SchedulerArguments) -> Result<(), Failure> {
    let election = (!arguments.no_leader_election).then_some("setpoint-scheduler");
    let config = parts::config(arguments.config.as_deref())?;
    run(parts::scheduler(&config)?, &config, election, arguments.listen, &arguments.alone).await
}

/// `setpoint node`. Every process has its own nodes: there is nothing to elect.
pub async fn node(arguments: NodeArguments) -> Result<(), Failure> {
    let part = Part::Nodes(setpoint_node::simulated::Options {
        count: arguments.simulated,
        prefix: arguments.name,
        cpu: arguments.cpu,
        memory: arguments.memory,
        ..setpoint_node::simulated::Options::default()
    });
    run(part, &Config::default(), None, arguments.listen, &arguments.alone).await
}

async fn run(
    part: Part,
    config: &Config,
    election: Option<&str>,
    listen: SocketAddr,
    arguments: &AloneArguments,
) -> Result<(), Failure> {
    logging::start(arguments.log_level)?;
    let mut signals = Signals::listen()?;
    let client = client(arguments.kubeconfig.as_ref()).await?;
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let identity = format!("{host}_{:016x}", seed());
    let election = election.map(|name| ElectionConfig::new("kube-system", name, &identity));
    let options = ManagerOptions { election, drain_limit: DRAIN_LIMIT, ..ManagerOptions::default() };
    let manager = parts::manager(client.clone(), options)?;
    let client_of = |_: &str| client.clone();
    // Only the server itself knows by which certificates it is known to pods.
    let wiring =
        Wiring { manager: &manager, client_of: &client_of, config, instance: &host, root_ca: None, signer: None };
    parts::prepare(&client, std::slice::from_ref(&part)).await?;
    parts::add(&wiring, &[part])?;
    let unable = |error: std::io::Error| Failure::new(format!("can't listen on {listen}"), error);
    let listener = TcpListener::bind(listen).await.map_err(unable)?;
    let address = listener.local_addr().map_err(unable)?;
    let probes = Probes::new(listener, &manager, parts::profiles());
    manager.add(probes).map_err(|error| Failure::new("can't start", error))?;
    say(&format!("running http://{address}"));
    let signalled = async move {
        let signal = signals.next().await;
        tracing::info!(signal, "stopping");
    };
    manager.run(signalled).await.map_err(parts::failed)
}

/// A client for the API server of a kubeconfig, or of the usual places.
pub async fn client(kubeconfig: Option<&PathBuf>) -> Result<Client, Failure> {
    Client::try_from(config(kubeconfig).await?).map_err(|error| Failure::new("can't make a client", error))
}

/// How to reach the API server of a kubeconfig, or of the usual places.
pub async fn config(kubeconfig: Option<&PathBuf>) -> Result<kube::Config, Failure> {
    match kubeconfig {
        Some(file) => from_file(file).await,
        None => kube::Config::infer().await.map_err(|error| {
            Failure::usage("can't find an API server", error).hint("say how to reach one with `--kubeconfig`")
        }),
    }
}

async fn from_file(file: &Path) -> Result<kube::Config, Failure> {
    let unusable = |error| {
        Failure::usage(format!("can't use {}", file.display()), error)
            .hint("`setpoint up` says where it writes its kubeconfig")
    };
    let read = Kubeconfig::read_from(file).map_err(unusable)?;
    kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await.map_err(unusable)
}
