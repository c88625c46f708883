//! Runs the controllers: beside the API server in one process, or alone against any other.

use std::path::Path;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use setpoint_apiserver::ApiServer;
use setpoint_apiserver::user::User;
use setpoint_controllers::{Choice, Wiring, add_to};
use setpoint_runtime::clock::{Chance, Clock};
use setpoint_runtime::config::{Config, Sources};
use setpoint_runtime::election::ElectionConfig;
use setpoint_runtime::manager::{Manager, ManagerOptions};
use setpoint_runtime::probes::{Probes, Profiles};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tower::ServiceExt;

use crate::arguments::{ControllerArguments, ControllersArguments};
use crate::failure::{Failure, say};
use crate::logging;
use crate::service::seed;
use crate::signals::Signals;

/// What variables of the environment begin with that are settings.
const PREFIX: &str = "SETPOINT";

/// Who sends the requests of controllers, as managed fields tell it.
const USER_AGENT: &str = concat!("setpoint-controllers/", env!("CARGO_PKG_VERSION"));

/// How long controllers may work on what is queued when the process ends: what they don't get to, the next one does.
const DRAIN_LIMIT: Duration = Duration::from_secs(2);

/// The controllers of `setpoint up`, before they run.
pub struct Beside {
    choice: Choice,
    config: Config,
}

impl Beside {
    /// Reads what is asked for.
    pub fn new(arguments: &ControllerArguments) -> Result<Beside, Failure> {
        Ok(Beside { choice: arguments.controllers.clone(), config: config(arguments.config.as_deref())? })
    }

    /// Runs them on a server in this process, each as its own service account, until it is time to leave.
    pub async fn run(self, server: ApiServer, mut leaving: watch::Receiver<bool>) -> Result<(), Failure> {
        let client_of = |name: &str| client(&server, service_account(name), name);
        let client = client(&server, manager_user(), "caches");
        let options = ManagerOptions { drain_limit: DRAIN_LIMIT, ..ManagerOptions::default() };
        let manager = manager(client, options)?;
        let figures = manager.metrics().clone();
        server.show_figures(move || figures.text());
        add(&manager, &client_of, &self.choice, &self.config, "setpoint")?;
        let left = async move {
            // An error means that nobody will say so any more.
            let _ = leaving.wait_for(|leaving| *leaving).await;
        };
        manager.run(left).await.map_err(|error| Failure::new("stopped: the controllers failed", error))
    }
}

/// Runs the controllers against the API server of a kubeconfig.
pub async fn run(arguments: &ControllersArguments) -> Result<(), Failure> {
    logging::start(arguments.log_level)?;
    let config = config(arguments.controllers.config.as_deref())?;
    let mut signals = Signals::listen()?;
    let client = client_from(arguments.kubeconfig.as_deref()).await?;
    let identity = format!("{}_{:016x}", host(), seed());
    let election = ElectionConfig::new("kube-system", "setpoint-controllers", &identity);
    let options = ManagerOptions {
        election: (!arguments.no_leader_election).then_some(election),
        drain_limit: DRAIN_LIMIT,
        ..ManagerOptions::default()
    };
    let manager = manager(client.clone(), options)?;
    add(&manager, &|_| client.clone(), &arguments.controllers.controllers, &config, &host())?;
    let unable = |error: std::io::Error| Failure::new(format!("can't listen on {}", arguments.listen), error);
    let listener = TcpListener::bind(arguments.listen).await.map_err(unable)?;
    let address = listener.local_addr().map_err(unable)?;
    let probes = Probes::new(listener, &manager, Profiles::default());
    manager.add(probes).map_err(|error| Failure::new("can't start", error))?;
    say(&format!("running http://{address}"));
    let signalled = async move {
        let signal = signals.next().await;
        tracing::info!(signal, "stopping");
    };
    manager.run(signalled).await.map_err(|error| Failure::new("stopped: the controllers failed", error))
}

fn manager(client: Client, options: ManagerOptions) -> Result<Manager, Failure> {
    let clock = Clock::starting_at(Timestamp::now());
    Manager::new(client, clock, Chance::seeded(seed()), options).map_err(|error| Failure::new("can't start", error))
}

fn add(
    manager: &Manager,
    client_of: &(dyn Fn(&str) -> Client + Sync),
    choice: &Choice,
    config: &Config,
    instance: &str,
) -> Result<(), Failure> {
    let wiring = Wiring { manager, client_of, config, instance };
    add_to(&wiring, choice).map_err(|error| Failure::new("can't start the controllers", error))
}

/// Settings from a file and from the environment.
fn config(file: Option<&Path>) -> Result<Config, Failure> {
    let mut sources = Sources::new().environment(PREFIX, std::env::vars());
    let what = || file.map_or("can't use the settings".to_owned(), |file| format!("can't use {}", file.display()));
    if let Some(file) = file {
        sources = sources.file(std::fs::read_to_string(file).map_err(|error| Failure::usage(what(), error))?);
    }
    Config::load(&sources).map_err(|error| Failure::usage(what(), error))
}

async fn client_from(kubeconfig: Option<&Path>) -> Result<Client, Failure> {
    let config = match kubeconfig {
        Some(file) => {
            let unreadable = |error| {
                Failure::usage(format!("can't use {}", file.display()), error)
                    .hint("`setpoint up` says where it writes its kubeconfig")
            };
            let read = Kubeconfig::read_from(file).map_err(unreadable)?;
            kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await.map_err(unreadable)?
        }
        None => kube::Config::infer().await.map_err(|error| {
            Failure::usage("can't find an API server", error).hint("say how to reach one with `--kubeconfig`")
        })?,
    };
    Client::try_from(config).map_err(|error| Failure::new("can't make a client", error))
}

/// A client without a socket.
fn client(server: &ApiServer, user: User, part: &str) -> Client {
    let agent = http::HeaderValue::try_from(format!("{USER_AGENT} ({part})"));
    let agent = agent.unwrap_or(http::HeaderValue::from_static(USER_AGENT));
    let named = server.acting_as(user).map_request(move |mut request: http::Request<kube::client::Body>| {
        request.headers_mut().insert(http::header::USER_AGENT, agent.clone());
        request
    });
    Client::new(named, "default")
}

/// Who fills the caches that controllers share.
fn manager_user() -> User {
    let groups = vec!["system:authenticated".to_owned()];
    User { name: "system:kube-controller-manager".to_owned(), groups, ..User::default() }
}

/// The service account of a controller.
fn service_account(name: &str) -> User {
    let groups = ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"];
    let groups = groups.map(str::to_owned).to_vec();
    User { name: format!("system:serviceaccount:kube-system:{name}"), groups, ..User::default() }
}

fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
