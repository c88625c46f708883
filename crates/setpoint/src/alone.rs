//! One part of the control plane as a process of its own, against any Kubernetes API server.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use setpoint_apiserver::pki::Certifier;
use setpoint_apiserver::tokens::LegacySigner;
use setpoint_controllers::{Signer, TokenSigner, Wiring, fixed_root_ca};
use setpoint_runtime::config::Config;
use setpoint_runtime::election::ElectionConfig;
use setpoint_runtime::manager::ManagerOptions;
use setpoint_runtime::probes::Probes;
use tokio::net::TcpListener;

use crate::arguments::{
    AloneArguments, AuthorityArguments, ControllersArguments, ElectionArguments, NodeArguments, SchedulerArguments,
};
use crate::beside::{self, DRAIN_LIMIT};
use crate::failure::{Failure, say};
use crate::logging;
use crate::parts::{self, Part};
use crate::service::seed;
use crate::signals::Signals;

/// `setpoint controllers`.
pub async fn controllers(arguments: ControllersArguments) -> Result<(), Failure> {
    let config = parts::config(&arguments.settings)?;
    let authorities = Authorities::read(&arguments.authorities)?;
    let election = election("setpoint-controllers", &config, &arguments.election)?;
    let place = Place { listen: arguments.listen, election };
    run(Part::Controllers(arguments.controllers), &config, place, authorities, &arguments.alone).await
}

/// `setpoint scheduler`.
pub async fn scheduler(arguments: SchedulerArguments) -> Result<(), Failure> {
    let config = parts::config(&arguments.settings)?;
    let election = election("setpoint-scheduler", &config, &arguments.election)?;
    let place = Place { listen: arguments.listen, election };
    run(parts::scheduler(&config)?, &config, place, Authorities::default(), &arguments.alone).await
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
    let place = Place { listen: arguments.listen, election: None };
    run(part, &Config::default(), place, Authorities::default(), &arguments.alone).await
}

/// Where a part serves its probes, and the election that it stands for.
struct Place {
    listen: SocketAddr,
    election: Option<ElectionConfig>,
}

/// The election for a Lease, in which this process has a name of its own. Flags win over settings.
fn election(name: &str, config: &Config, flags: &ElectionArguments) -> Result<Option<ElectionConfig>, Failure> {
    let own = ElectionConfig::new("kube-system", name, format!("{}_{:016x}", host(), seed()));
    let Some(set) = config.election().election(own).filter(|_| !flags.no_leader_election) else { return Ok(None) };
    let config = ElectionConfig {
        lease_duration: flags.leader_elect_lease_duration.unwrap_or(set.lease_duration),
        renew_deadline: flags.leader_elect_renew_deadline.unwrap_or(set.renew_deadline),
        retry_period: flags.leader_elect_retry_period.unwrap_or(set.retry_period),
        ..set
    };
    config.validate().map_err(|error| Failure::usage("can't stand for election", error))?;
    Ok(Some(config))
}

fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Whose certificates and tokens controllers publish and make.
#[derive(Default)]
struct Authorities {
    /// None: whom the kubeconfig trusts.
    root_ca: Option<String>,
    signer: Option<Signer>,
    tokens: Option<TokenSigner>,
}

impl Authorities {
    fn read(arguments: &AuthorityArguments) -> Result<Authorities, Failure> {
        let root_ca = arguments.root_ca_file.as_deref().map(certificates).transpose()?;
        let signer = match &arguments.cluster_signing_cert_file {
            None => None,
            Some(file) => {
                let certifier = Certifier::read(file, arguments.cluster_signing_key_file.as_deref(), SystemTime::now());
                let certifier = certifier.map_err(|error| Failure::usage("can't sign certificates", error))?;
                Some(beside::signer(move || certifier.clone()))
            }
        };
        let tokens = arguments.service_account_private_key_file.as_deref().map(tokens).transpose()?;
        Ok(Authorities { root_ca, signer, tokens })
    }
}

/// What makes tokens with the key in a file.
fn tokens(file: &Path) -> Result<TokenSigner, Failure> {
    let unusable = |why: &dyn std::fmt::Display| Failure::usage(format!("can't use {}", file.display()), why);
    let text = std::fs::read(file).map_err(|error| unusable(&error))?;
    LegacySigner::from_pem(&text).map(beside::tokens).map_err(|error| unusable(&error))
}

/// The certificates in a file, in PEM. What else is there stays there: it may be a key, and everybody reads what is published.
fn certificates(file: &Path) -> Result<String, Failure> {
    let unusable = |why: String| Failure::usage(format!("can't use {}", file.display()), why);
    let text = std::fs::read(file).map_err(|error| unusable(error.to_string()))?;
    let found: Result<Vec<CertificateDer<'_>>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found.iter().map(|der| pem(der)).collect()),
        Ok(_) => Err(unusable("there is no certificate in it".into())),
        Err(error) => Err(unusable(error.to_string())),
    }
}

/// Whom a kubeconfig trusts, in PEM.
pub fn root_ca(config: &kube::Config) -> Option<String> {
    let roots = config.root_cert.as_ref().filter(|roots| !roots.is_empty())?;
    Some(roots.iter().map(|der| pem(der)).collect())
}

fn pem(der: &[u8]) -> String {
    use base64::Engine;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let lines: Vec<&str> = text.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok()).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

async fn run(
    part: Part,
    config: &Config,
    place: Place,
    authorities: Authorities,
    arguments: &AloneArguments,
) -> Result<(), Failure> {
    logging::start(arguments.log_level)?;
    let mut signals = Signals::listen()?;
    let mut reached = self::config(arguments.kubeconfig.as_ref()).await?;
    let root_ca = authorities.root_ca.or_else(|| root_ca(&reached)).as_deref().map(fixed_root_ca);
    let server = reached.cluster_url.authority().map(ToString::to_string);
    let unable = |error| Failure::new("can't make a client", error);
    let of_the_start = Client::try_from(reached.clone()).map_err(unable)?;
    // The manager sends again what the server puts off, and counts it.
    reached.default_retry = false;
    let client = Client::try_from(reached).map_err(unable)?;
    let Place { listen, election } = place;
    let options = ManagerOptions {
        election,
        drain_limit: DRAIN_LIMIT,
        client: config.client().clone(),
        ..ManagerOptions::default()
    };
    let manager = parts::manager(client.clone(), options)?;
    manager.metrics().host(&server.unwrap_or_default());
    let client_of = |_: &str| client.clone();
    let wiring = Wiring {
        manager: &manager,
        client_of: &client_of,
        config,
        instance: &host(),
        root_ca: root_ca.as_ref(),
        signer: authorities.signer,
        tokens: authorities.tokens,
    };
    parts::prepare(&of_the_start, std::slice::from_ref(&part)).await?;
    parts::add(&wiring, &[part])?;
    let unable = |error: std::io::Error| Failure::new(format!("can't listen on {listen}"), error);
    let listener = TcpListener::bind(listen).await.map_err(unable)?;
    let address = listener.local_addr().map_err(unable)?;
    let probes = Probes::new(listener, &manager, parts::profiles(arguments.profiling));
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
