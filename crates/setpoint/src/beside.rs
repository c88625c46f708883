//! What runs beside the API server in one process: each part a client like any other, without a socket.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use setpoint_apiserver::ApiServer;
use setpoint_apiserver::pki::Certifier;
use setpoint_apiserver::user::User;
use setpoint_controllers::{Signer, ToSign, Wiring};
use setpoint_runtime::config::Config;
use setpoint_runtime::manager::ManagerOptions;
use setpoint_runtime::probes::Site;
use tokio::sync::watch;
use tower::ServiceExt;

use crate::arguments::{HubOptions, UpArguments};
use crate::failure::Failure;
use crate::hub;
use crate::parts::{self, Part};

/// Who sends the requests, as managed fields tell it.
const USER_AGENT: &str = concat!("setpoint/", env!("CARGO_PKG_VERSION"));

/// How long controllers may work on what is queued when the process ends: what they don't get to, the next one does.
pub const DRAIN_LIMIT: Duration = Duration::from_secs(2);

/// The parts of `setpoint up`, before they run.
pub struct Beside {
    parts: Vec<Part>,
    config: Config,
    hub_place: Option<HubPlace>,
    hub: Option<hub::Beside>,
}

/// Where a hub is to be, and how it works.
struct HubPlace {
    asked: Option<SocketAddr>,
    usual: SocketAddr,
    folder: PathBuf,
    options: HubOptions,
}

/// The port that vehicles know, where none is said.
const HUB_PORT: u16 = 7443;

impl Beside {
    /// Reads what is asked for.
    pub fn new(arguments: &UpArguments) -> Result<Beside, Failure> {
        let config = parts::config(arguments.config.as_deref())?;
        let mut parts = vec![Part::Controllers(arguments.controllers.clone()), parts::scheduler(&config)?];
        if arguments.nodes > 0 {
            parts.push(Part::nodes(arguments.nodes));
        }
        let listen = arguments.server.listen;
        let place = || {
            let usual = SocketAddr::new(listen.ip(), if listen.port() == 0 { 0 } else { HUB_PORT });
            let folder = arguments.server.data.folder()?;
            Ok(HubPlace { asked: arguments.hub_listen, usual, folder, options: arguments.hub.clone() })
        };
        // Without the fleet's kinds there is nothing for it to do.
        let has_hub = !arguments.no_hub && parts::has_fleet(&parts);
        Ok(Beside { parts, config, hub_place: has_hub.then(place).transpose()?, hub: None })
    }

    /// Makes what they need known to the server, so that it is there when the server says that it is ready.
    pub async fn prepare(&mut self, server: &ApiServer) -> Result<(), Failure> {
        if let Some(place) = self.hub_place.take() {
            self.hub = Some(hub::Beside::listen(place.asked, place.usual, place.options, &place.folder).await?);
        }
        let owner = User { groups: vec!["system:masters".to_owned()], ..system_user("system:setpoint") };
        parts::prepare(&client(server, owner, "fleet"), &self.parts).await
    }

    /// Runs them on a server in this process, which is known by a certificate, each as its own user, until it is time to leave.
    pub async fn run(
        self,
        server: ApiServer,
        certifier: Certifier,
        root_ca: String,
        mut leaving: watch::Receiver<bool>,
    ) -> Result<(), Failure> {
        let client_of = |name: &str| client(&server, user_of(name), name);
        let options = ManagerOptions { drain_limit: DRAIN_LIMIT, ..ManagerOptions::default() };
        let manager = parts::manager(client(&server, manager_user(), "caches"), options)?;
        let figures = manager.metrics().clone();
        server.show_figures(move || figures.text());
        if self.parts.iter().any(|part| matches!(part, Part::Nodes(_))) {
            server.serve_node_metrics();
        }
        let site = Site::new(&manager, parts::profiles());
        server.show_debug(move |method, uri| {
            let site = site.clone();
            async move { site.answer(&method, &uri).await.map(setpoint_apiserver::body::full) }
        });
        let wiring = Wiring {
            manager: &manager,
            client_of: &client_of,
            config: &self.config,
            instance: "setpoint",
            root_ca: Some(&root_ca),
            signer: Some(signer(certifier.clone())),
        };
        parts::add(&wiring, &self.parts)?;
        if let Some(hub) = self.hub {
            hub.add_to(&manager, &client_of(hub::ACCOUNT), &certifier, &root_ca)?;
        }
        let left = async move {
            // An error means that nobody will say so any more.
            let _ = leaving.wait_for(|leaving| *leaving).await;
        };
        manager.run(left).await.map_err(parts::failed)
    }
}

/// Lets controllers sign with the authority's key.
fn signer(certifier: Certifier) -> Signer {
    Arc::new(move |asked: &ToSign<'_>| {
        let signed = certifier.certify(asked.request, asked.usages, asked.life, asked.now.into());
        signed.map(String::into_bytes)
    })
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

/// Who a part is, by its name: Kubernetes gives each of them a role.
fn user_of(part: &str) -> User {
    match (part, setpoint_controllers::account(part)) {
        (parts::SCHEDULER, _) => system_user("system:kube-scheduler"),
        (hub::ACCOUNT, _) => service_account(hub::ACCOUNT),
        (_, Some(account)) => service_account(account),
        _ if setpoint_fleet::CONTROLLERS.iter().any(|(name, _)| *name == part) => service_account(part),
        (_, None) => manager_user(),
    }
}

/// Who fills the caches that controllers share.
fn manager_user() -> User {
    system_user("system:kube-controller-manager")
}

fn system_user(name: &str) -> User {
    User { name: name.to_owned(), groups: vec!["system:authenticated".to_owned()], ..User::default() }
}

/// The service account of a controller.
fn service_account(name: &str) -> User {
    let groups = ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"];
    let groups = groups.map(str::to_owned).to_vec();
    User { name: format!("system:serviceaccount:kube-system:{name}"), groups, ..User::default() }
}
