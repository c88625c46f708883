//! What runs beside the API server in one process: each part a client like any other, without a socket.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kube::Client;
use setpoint_apiserver::ApiServer;
use setpoint_apiserver::pki::Certifier;
use setpoint_apiserver::tokens::{LegacySigner, LegacySubject};
use setpoint_apiserver::user::User;
use setpoint_controllers::{Signer, ToProve, ToSign, TokenSigner, Wiring};
use setpoint_node::simulated;
use setpoint_runtime::config::Config;
use setpoint_runtime::election::ElectionConfig;
use setpoint_runtime::manager::{Manager, ManagerError, ManagerOptions};
use setpoint_runtime::metrics::Metrics;
use setpoint_runtime::probes::Site;
use tokio::sync::watch;
use tower::ServiceExt;

use crate::arguments::{HubOptions, UpArguments};
use crate::failure::Failure;
use crate::hub;
use crate::parts::{self, Part};
use crate::renewal::Standing;
use crate::service::seed;
use crate::storage::StoreChoice;

/// The Lease of those who share a store.
const ELECTION: &str = "setpoint";

/// Pause before a process that has lost stands for election again.
const ELECTION_PAUSE: Duration = Duration::from_secs(1);

/// Who sends the requests, as managed fields tell it.
const USER_AGENT: &str = concat!("setpoint/", env!("CARGO_PKG_VERSION"));

/// How long controllers may work on what is queued when the process ends: what they don't get to, the next one does.
pub const DRAIN_LIMIT: Duration = Duration::from_secs(2);

/// The parts of `setpoint up`, before they run.
pub struct Beside {
    parts: Vec<Part>,
    config: Config,
    /// Whether it may be told where time and memory go.
    profiling: bool,
    hub_place: Option<HubPlace>,
    hub: Option<hub::Beside>,
    /// Other processes do the same: only one at a time may.
    elected: bool,
}

/// Where a hub is to be, and how it works.
struct HubPlace {
    asked: Option<SocketAddr>,
    usual: SocketAddr,
    folder: PathBuf,
    /// None: the usual one.
    name: Option<String>,
    /// Others may use the same store, and have hubs on this machine.
    is_shared: bool,
    options: HubOptions,
}

/// The port that vehicles know, where none is said.
const HUB_PORT: u16 = 7443;

impl Beside {
    /// Reads what is asked for.
    pub fn new(arguments: &UpArguments) -> Result<Beside, Failure> {
        let config = parts::config(&arguments.settings)?;
        let mut parts = vec![Part::Controllers(arguments.controllers.clone()), parts::scheduler(&config)?];
        if arguments.nodes > 0 {
            parts.push(Part::nodes(arguments.nodes));
        }
        let listen = arguments.server.listen;
        let place = || {
            let usual = SocketAddr::new(listen.ip(), if listen.port() == 0 { 0 } else { HUB_PORT });
            let folder = arguments.server.data.folder()?;
            let mut options = arguments.hub.clone();
            if let (None, Some(shared)) = (&options.director_key, &arguments.server.store.etcd.shared_pki) {
                options.director_key = Some(hub::director_key(&shared.join("director.key"))?);
            }
            let is_shared = arguments.server.store.store != StoreChoice::Embedded;
            let (asked, name) = (arguments.hub_listen, arguments.hub_name.clone());
            Ok::<_, Failure>(HubPlace { asked, usual, folder, name, is_shared, options })
        };
        // Without the fleet's kinds there is nothing for it to do.
        let has_hub = !arguments.no_hub && parts::has_fleet(&parts);
        let profiling = arguments.server.profiling;
        Ok(Beside { parts, config, profiling, hub_place: has_hub.then(place).transpose()?, hub: None, elected: false })
    }

    /// Whether vehicles connect to this process.
    pub fn has_hub(&self) -> bool {
        self.hub_place.is_some() || self.hub.is_some()
    }

    /// Makes what they need known to the server, so that it is there when the server says that it is ready.
    pub async fn prepare(&mut self, server: &ApiServer) -> Result<(), Failure> {
        if let Some(place) = self.hub_place.take() {
            let name = match place.name {
                Some(name) => name,
                None => hub::usual_name(&place.folder, place.is_shared)?,
            };
            let hub = hub::Beside::listen(place.asked, place.usual, place.options, &place.folder, name);
            self.hub = Some(hub.await?);
        }
        let owner = User { groups: vec!["system:masters".to_owned()], ..system_user("system:setpoint") };
        parts::prepare(&client(server, owner, "fleet"), &self.parts).await
    }

    /// The name of the last of its simulated nodes, if it makes any at once: one that stands for election may have to wait for its turn.
    pub fn last_node(&self) -> Option<String> {
        let last = |options: &simulated::Options| {
            Some(format!("{}-{}", options.prefix, options.count.min(simulated::NODES_MAX).checked_sub(1)?))
        };
        self.parts.iter().find_map(|part| match part {
            Part::Nodes(options) => last(options),
            Part::Controllers(_) | Part::Scheduler(_) => None,
        })
    }

    /// The same parts, but of all processes that have them only one lets them work at a time. The hub works in all.
    pub fn elected(self) -> Beside {
        Beside { elected: true, ..self }
    }

    /// Runs them on a server in this process, which is known by a certificate, each as its own user, until it is time to leave.
    pub async fn run(
        mut self,
        server: ApiServer,
        standing: Standing,
        leaving: watch::Receiver<bool>,
    ) -> Result<(), Failure> {
        let site = Stage::new(server, standing);
        let hub = self.hub.take();
        if !self.elected {
            let manager = site.manager(None, &self.config)?;
            site.add(&manager, &self)?;
            if let Some(hub) = hub {
                site.add_hub(&manager, hub)?;
            }
            return manager.run(left(leaving)).await.map_err(parts::failed);
        }
        let of_all = async {
            let manager = site.manager(None, &self.config)?;
            if let Some(hub) = hub {
                site.add_hub(&manager, hub)?;
            }
            manager.run(left(leaving.clone())).await.map_err(parts::failed)
        };
        tokio::try_join!(of_all, self.take_turns(&site, leaving.clone())).map(|_| ())
    }

    /// Stands for election, works while it leads, and stands again after it has lost: etcd may have been away.
    async fn take_turns(&self, site: &Stage, leaving: watch::Receiver<bool>) -> Result<(), Failure> {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        loop {
            let own = ElectionConfig::new("kube-system", ELECTION, format!("{host}_{:016x}", seed()));
            let manager = site.manager(self.config.election().election(own), &self.config)?;
            site.add(&manager, self)?;
            match manager.run(left(leaving.clone())).await {
                Err(ManagerError::LeadershipLost) if !*leaving.borrow() => {
                    tracing::warn!("leadership lost; standing for election again");
                    tokio::time::sleep(ELECTION_PAUSE).await;
                }
                ended => return ended.map_err(parts::failed),
            }
        }
    }
}

/// Where parts run: on a server in the same process.
struct Stage {
    server: ApiServer,
    standing: Standing,
    /// The figures and traces of the manager of the moment.
    shown: Arc<Mutex<Option<(Metrics, Site)>>>,
}

impl Stage {
    fn new(server: ApiServer, standing: Standing) -> Stage {
        let shown: Arc<Mutex<Option<(Metrics, Site)>>> = Arc::default();
        let now = |shown: &Mutex<Option<(Metrics, Site)>>| shown.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let of_figures = Arc::clone(&shown);
        server.show_figures(move || now(&of_figures).map(|(figures, _)| figures.text()).unwrap_or_default());
        let of_traces = Arc::clone(&shown);
        server.show_debug(move |method, uri| {
            let site = now(&of_traces).map(|(_, site)| site);
            async move {
                match site {
                    Some(site) => site.answer(&method, &uri).await.map(setpoint_apiserver::body::full),
                    None => http::Response::new(setpoint_apiserver::body::full("")),
                }
            }
        });
        Stage { server, standing, shown }
    }

    fn manager(&self, election: Option<ElectionConfig>, config: &Config) -> Result<Manager, Failure> {
        let client_options = config.client().clone();
        let options =
            ManagerOptions { election, drain_limit: DRAIN_LIMIT, client: client_options, ..ManagerOptions::default() };
        parts::manager(client(&self.server, manager_user(), "caches"), options)
    }

    /// Gives the parts to a manager, whose figures are shown from now on.
    fn add(&self, manager: &Manager, beside: &Beside) -> Result<(), Failure> {
        let client_of = |name: &str| client(&self.server, user_of(name), name);
        let site = Site::new(manager, parts::profiles(beside.profiling));
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = Some((manager.metrics().clone(), site));
        if beside.parts.iter().any(|part| matches!(part, Part::Nodes(_))) {
            self.server.serve_node_metrics();
        }
        let wiring = Wiring {
            manager,
            client_of: &client_of,
            config: &beside.config,
            instance: "setpoint",
            root_ca: Some(&self.standing.root_ca),
            signer: Some(self.signer()),
            tokens: Some(self.tokens()?),
        };
        parts::add(&wiring, &beside.parts)
    }

    fn add_hub(&self, manager: &Manager, hub: hub::Beside) -> Result<(), Failure> {
        let client = client(&self.server, user_of(hub::ACCOUNT), hub::ACCOUNT);
        hub.add_to(manager, &client, self.standing.clone())
    }

    /// Signs with the authority of the moment.
    fn signer(&self) -> Signer {
        let pki = self.standing.pki.clone();
        signer(move || pki.borrow().certifier())
    }

    /// Makes tokens with the server's own key, which stays the same.
    fn tokens(&self) -> Result<TokenSigner, Failure> {
        let signer = self.standing.pki.borrow().legacy_signer();
        signer.map(tokens).map_err(|error| Failure::new("can't sign tokens", error))
    }
}

/// Waits until it is time to leave.
async fn left(mut leaving: watch::Receiver<bool>) {
    // An error means that nobody will say so any more.
    let _ = leaving.wait_for(|leaving| *leaving).await;
}

/// Lets controllers sign with an authority's key.
pub fn signer(authority: impl Fn() -> Certifier + Send + Sync + 'static) -> Signer {
    Arc::new(move |asked: &ToSign<'_>| {
        let signed = authority().certify(asked.request, asked.usages, asked.life, asked.now.into());
        signed.map(String::into_bytes)
    })
}

/// Lets controllers make tokens with a key.
pub fn tokens(signer: LegacySigner) -> TokenSigner {
    Arc::new(move |asked: &ToProve<'_>| {
        let ToProve { namespace, secret, account, account_uid } = *asked;
        let token = signer.token(&LegacySubject { namespace, secret, account, account_uid });
        token.map_err(|error| error.to_string())
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
