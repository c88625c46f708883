//! The hub that vehicles connect to: in a process of its own, or beside the API server.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;
use setpoint_fleet::certificate::{self, CertificateError, Issued};
use setpoint_fleet::hub::address::{NAME as ADDRESSES, NAMESPACE, Publishing, published};
use setpoint_fleet::hub::serve::{Credentials, Front, Server, keep_new};
use setpoint_fleet::hub::{Hub, NAME, Options};
use setpoint_fleet_protocol::hex;
use setpoint_fleet_protocol::metadata::SigningKey;
use setpoint_runtime::manager::{Lifecycle, Manager, ManagerOptions, RunError, Runnable};
use setpoint_runtime::probes::Probes;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::alone;
use crate::arguments::{HubArguments, HubOptions};
use crate::beside::DRAIN_LIMIT;
use crate::failure::{Failure, USAGE, say};
use crate::files;
use crate::parts;
use crate::renewal::Standing;
use crate::signals::Signals;

/// How long the certificate of a hub lives that runs beside the API server: it is made anew at each start, and when half of its life is
/// over.
const LIFE: Duration = Duration::from_secs(365 * 24 * 3600);

/// Digits that tell hubs of one machine apart: two of a hundred collide in one of a million fleets.
const NAME_DIGITS: usize = 8;

/// `setpoint hub`.
pub async fn run(arguments: HubArguments) -> Result<(), Failure> {
    crate::logging::start(arguments.alone.log_level)?;
    let mut signals = Signals::listen()?;
    let config = alone::config(arguments.alone.kubeconfig.as_ref()).await?;
    let authority = authority(&arguments, &config)?;
    let client = kube::Client::try_from(config).map_err(|error| Failure::new("can't make a client", error))?;
    let listener = bind(arguments.listen).await?;
    let address = listener.local_addr().map_err(|error| Failure::new("can't listen", error))?;
    let name = arguments.name.clone().unwrap_or_else(host);
    setpoint_fleet::kinds::install(&client)
        .await
        .map_err(|error| Failure::new("can't install the kinds of the fleet", error))?;
    let asking = Asking {
        client: client.clone(),
        name: name.clone(),
        reached_by: reached_by(&arguments.hub, address.ip()),
        authority,
    };
    let (made, renewing) = match (&arguments.certificate, &arguments.key) {
        (Some(certificate), Some(key)) => {
            let (certificate, key) = (read(certificate)?, read(key)?);
            (watch::Sender::new(Credentials { certificate, key, authority: asking.authority }), None)
        }
        _ => {
            let issued = asking.ask().await.map_err(|error| {
                Failure::new("can't get a certificate for the hub", error)
                    .hint(
                        "`setpoint up` signs it, and so does `setpoint controllers --cluster-signing-cert-file`; elsewhere give one with `--certificate` and `--key`",
                    )
            })?;
            (watch::Sender::new(issued), Some(asking))
        }
    };
    let credentials = made.subscribe();
    let options = ManagerOptions { drain_limit: DRAIN_LIMIT, ..ManagerOptions::default() };
    let manager = parts::manager(client.clone(), options)?;
    let door = Door { listener, connections: files::room() };
    let url = url_of(&arguments.hub, address);
    add(&manager, &client, Named { name, url }, door, credentials, &arguments.hub)?;
    let probes = bind(arguments.probes).await?;
    let started = |error| Failure::new("can't start", error);
    if let Some(asking) = renewing {
        manager.add(Reasking { asking, made }).map_err(started)?;
    }
    let profiles = parts::profiles(arguments.alone.profiling);
    manager.add(Probes::new(probes, &manager, profiles)).map_err(started)?;
    say(&format!("running https://{address}"));
    let signalled = async move {
        let signal = signals.next().await;
        tracing::info!(signal, "stopping");
    };
    manager.run(signalled).await.map_err(parts::failed)
}

/// Asks the API server for the certificates of a hub of its own.
struct Asking {
    client: kube::Client,
    name: String,
    reached_by: Vec<String>,
    authority: String,
}

impl Asking {
    async fn ask(&self) -> Result<Credentials, CertificateError> {
        let Issued { certificate, key } = certificate::of_hub(&self.client, &self.name, &self.reached_by).await?;
        Ok(Credentials { certificate, key, authority: self.authority.clone() })
    }
}

/// Asks again, before the time of a certificate is over.
struct Reasking {
    asking: Asking,
    made: watch::Sender<Credentials>,
}

impl Runnable for Reasking {
    fn name(&self) -> &str {
        "fleet-hub-certificates"
    }

    fn needs_leadership(&self) -> bool {
        false
    }

    fn run(self: Box<Self>, lifecycle: Lifecycle) -> BoxFuture<'static, Result<(), RunError>> {
        Box::pin(async move {
            lifecycle.ready();
            let Reasking { asking, made } = *self;
            let asking = Arc::new(asking);
            let ask = move || -> BoxFuture<'static, _> {
                let asking = asking.clone();
                Box::pin(async move { asking.ask().await.map_err(|error| error.to_string()) })
            };
            tokio::select! {
                biased;
                () = lifecycle.draining() => {}
                () = keep_new(made, now, ask) => {}
            }
            Ok(())
        })
    }
}

/// Seconds since 1970.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// A hub beside the API server, which has the authority at hand.
pub struct Beside {
    listener: TcpListener,
    name: String,
    options: HubOptions,
}

impl Beside {
    /// Listens, and writes down where: in `hub.url` of the data folder.
    ///
    /// Where no address was asked for, any free port will do if the usual one is taken.
    pub async fn listen(
        asked: Option<SocketAddr>,
        usual: SocketAddr,
        mut options: HubOptions,
        folder: &Path,
        name: String,
    ) -> Result<Beside, Failure> {
        let listener = match asked {
            Some(address) => bind(address).await?,
            None => match TcpListener::bind(usual).await {
                Ok(listener) => listener,
                Err(_) => bind(SocketAddr::new(usual.ip(), 0)).await?,
            },
        };
        let unable = |error| Failure::new("can't listen", error);
        let address = listener.local_addr().map_err(unable)?;
        let file = folder.join("hub.url");
        let url = format!("https://{address}\n");
        std::fs::write(&file, url).map_err(|error| Failure::new(format!("can't write {}", file.display()), error))?;
        tracing::info!(%address, "vehicles connect here");
        options.firmware.get_or_insert_with(|| folder.join("firmware"));
        if options.director_key.is_none() {
            options.director_key = Some(director_key(&folder.join("pki").join("director.key"))?);
        }
        Ok(Beside { listener, name, options })
    }

    /// Gives it to a manager, with certificates by the authority of the moment.
    pub fn add_to(self, manager: &Manager, client: &kube::Client, standing: Standing) -> Result<(), Failure> {
        let unable =
            |why: &dyn std::fmt::Display| Failure::new("can't make a certificate for the hub", why.to_string());
        let address = self.listener.local_addr().map_err(|error| unable(&error))?;
        let maker = Maker { name: self.name.clone(), reached_by: reached_by(&self.options, address.ip()), standing };
        let made = watch::Sender::new(maker.make().map_err(|why| unable(&why))?);
        let credentials = made.subscribe();
        manager.add(Renewing { maker, made }).map_err(|error| Failure::new("can't start", error))?;
        // The other half are those of the API server's clients.
        let door = Door { listener: self.listener, connections: files::room() / 2 };
        let url = url_of(&self.options, address);
        add(manager, client, Named { name: self.name, url }, door, credentials, &self.options)
    }
}

/// Makes the certificates of a hub.
struct Maker {
    name: String,
    reached_by: Vec<String>,
    standing: Standing,
}

impl Maker {
    fn make(&self) -> Result<Credentials, String> {
        let pki = Arc::clone(&self.standing.pki.borrow());
        let (key, request) =
            certificate::request_of_hub(&self.name, &self.reached_by).map_err(|error| error.to_string())?;
        let usages = ["digital signature".to_owned(), "server auth".to_owned()];
        let own = pki.certifier().certify(request.as_bytes(), &usages, LIFE, SystemTime::now())?;
        // Vehicles that know only the authority before find the way with what follows.
        let certificate = format!("{own}{}", pki.bridge_pem());
        Ok(Credentials { certificate, key, authority: pki.ca_pem().to_owned() })
    }
}

/// Makes a hub's certificates anew, in time and when the authority is another.
struct Renewing {
    maker: Maker,
    made: watch::Sender<Credentials>,
}

impl Runnable for Renewing {
    fn name(&self) -> &str {
        "fleet-hub-certificates"
    }

    fn needs_leadership(&self) -> bool {
        false
    }

    fn run(mut self: Box<Self>, lifecycle: Lifecycle) -> BoxFuture<'static, Result<(), RunError>> {
        Box::pin(async move {
            lifecycle.ready();
            loop {
                let mut pki = self.maker.standing.pki.clone();
                tokio::select! {
                    biased;
                    () = lifecycle.draining() => return Ok(()),
                    () = tokio::time::sleep(LIFE / 2) => {}
                    changed = pki.changed() => if changed.is_err() {
                        return Ok(());
                    },
                }
                self.maker.standing.pki = pki;
                match self.maker.make() {
                    Ok(credentials) => drop(self.made.send_replace(credentials)),
                    Err(error) => {
                        tracing::warn!(error, "can't make a certificate for the hub; it keeps the one that it has")
                    }
                }
            }
        })
    }
}

/// Where vehicles come in, and how many at a time.
struct Door {
    listener: TcpListener,
    connections: usize,
}

/// What a hub is called, and where vehicles find it.
struct Named {
    name: String,
    url: String,
}

/// Where vehicles find a hub, as far as it knows.
fn url_of(options: &HubOptions, address: SocketAddr) -> String {
    if let Some(url) = &options.hub_url {
        return url.clone();
    }
    let at = |host: &str| match host.parse::<IpAddr>() {
        Ok(IpAddr::V6(host)) => format!("https://[{host}]:{}", address.port()),
        _ => format!("https://{host}:{}", address.port()),
    };
    match options.reached_by.first() {
        Some(name) => at(name),
        None if address.ip().is_unspecified() => at(&host()),
        None => at(&address.ip().to_string()),
    }
}

fn add(
    manager: &Manager,
    client: &kube::Client,
    named: Named,
    door: Door,
    credentials: watch::Receiver<Credentials>,
    options: &HubOptions,
) -> Result<(), Failure> {
    let director = options.director_key.as_deref().map(signing_key).transpose()?;
    let Named { name, url } = named;
    let publishing = Publishing { client: client.clone(), hub: name.clone(), url };
    let ping = Duration::from_secs(options.ping_seconds.into());
    let unable = |error| Failure::new("can't start", error);
    let hub = Hub::add_to(manager, client, Options { name, director, ping }).map_err(unable)?;
    manager.add(publishing).map_err(unable)?;
    let Door { listener, connections } = door;
    let (firmware, bytes_per_second) = (options.firmware.clone(), options.bytes_per_second);
    let front = Front { listener, connections, credentials, firmware, bytes_per_second };
    manager.add(Server::new(hub, front)).map_err(unable)
}

/// The identity of the hub's client.
pub const ACCOUNT: &str = NAME;

fn authority(arguments: &HubArguments, config: &kube::Config) -> Result<String, Failure> {
    match &arguments.client_ca {
        Some(file) => read(file),
        None => authority_of(config),
    }
}

/// The authority of the API server's certificate, which is that of vehicles and hubs as well, in PEM.
pub fn authority_of(config: &kube::Config) -> Result<String, Failure> {
    alone::root_ca(config).ok_or_else(|| {
        Failure::usage("can't tell whose certificates vehicles have", "the kubeconfig names no authority")
            .hint("give it with `--client-ca`")
    })
}

/// What a hub beside a server is called that has its data in a folder.
///
/// Hubs need names that differ and that they keep. A store of its own has one such hub; where others share the store they may be on
/// the same machine, so that the name is drawn once and stays with the data.
pub fn usual_name(folder: &Path, is_shared: bool) -> Result<String, Failure> {
    if !is_shared {
        return Ok(host());
    }
    let file = folder.join("hub.name");
    let unable = |error| Failure::new(format!("can't name the hub in {}", file.display()), error);
    match std::fs::read_to_string(&file) {
        Ok(name) if !name.trim().is_empty() => Ok(name.trim().to_owned()),
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(unable(error)),
        _ => {
            let drawn = draw_seed().map_err(unable)?;
            let name = format!("{}-{}", host(), &drawn[..NAME_DIGITS]);
            private(&file, &name).map_err(unable)?;
            Ok(name)
        }
    }
}

/// The names and addresses that vehicles reach the hub by.
fn reached_by(options: &HubOptions, address: IpAddr) -> Vec<String> {
    let mut names = options.reached_by.clone();
    names.extend(["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()]);
    if !address.is_unspecified() {
        names.push(address.to_string());
    }
    names.sort();
    names.dedup();
    names
}

/// A key in hexadecimal, which is made if it isn't there.
pub fn director_key(file: &Path) -> Result<PathBuf, Failure> {
    if !file.exists() {
        new_seed(file)?;
    }
    Ok(file.to_owned())
}

/// Draws a key and writes it, in hexadecimal, to a file that only its owner reads.
pub fn new_seed(file: &Path) -> Result<(), Failure> {
    draw_seed()
        .and_then(|seed| private(file, &seed))
        .map_err(|error| Failure::new(format!("can't write {}", file.display()), error))
}

/// 32 bytes by chance, in hexadecimal.
pub fn draw_seed() -> std::io::Result<String> {
    let drawn = ring::rand::generate::<[u8; 32]>(&ring::rand::SystemRandom::new());
    Ok(hex::encode(&drawn.map_err(|_| std::io::Error::other("there is no chance to draw from"))?.expose()))
}

/// Where hubs are: as asked for, as they say themselves in the cluster, or as a `setpoint up` has written beside its kubeconfig.
pub async fn find(
    client: &kube::Client,
    kubeconfig: Option<&PathBuf>,
    asked: &[String],
) -> Result<Vec<String>, Failure> {
    if !asked.is_empty() {
        return Ok(asked.to_vec());
    }
    let why = match published(client).await {
        Ok(urls) if !urls.is_empty() => return Ok(urls),
        Ok(_) => format!("none has said in the cluster where it is (configmap {NAMESPACE}/{ADDRESSES})"),
        Err(error) => {
            format!("configmap {NAMESPACE}/{ADDRESSES}, in which hubs say where they are, can't be read: {error}")
        }
    };
    let beside = url_beside(kubeconfig);
    beside.map(|url| vec![url]).ok_or_else(|| {
        Failure::new("can't find a hub", why)
            .hint("say where it is with `--hub https://HOST:PORT`, or start one: `setpoint up` has one, and so has `setpoint hub`")
    })
}

/// Where the hub is of a `setpoint up` that wrote a kubeconfig into its data folder.
fn url_beside(kubeconfig: Option<&PathBuf>) -> Option<String> {
    let kubeconfig = kubeconfig.cloned().or_else(|| std::env::var_os("KUBECONFIG").map(PathBuf::from))?;
    let text = std::fs::read_to_string(kubeconfig.parent()?.join("hub.url")).ok()?;
    Some(text.trim().to_owned())
}

/// Writes a file that only its owner reads.
pub fn private(file: &Path, text: &str) -> std::io::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let mut file = std::fs::OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(file)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Reads a key in hexadecimal.
pub fn signing_key(file: &Path) -> Result<SigningKey, Failure> {
    let seed = hex::decode(read(file)?.trim()).and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
    let seed = seed.ok_or_else(|| {
        Failure::usage(format!("can't use {}", file.display()), "it is no key: 64 hexadecimal digits")
            .hint("`setpoint fleet keys` makes one")
    })?;
    Ok(SigningKey::of_seed(&seed))
}

fn read(file: &Path) -> Result<String, Failure> {
    let unreadable = |error| Failure::of_file(format!("can't read {}", file.display()), &error).with_code(USAGE);
    std::fs::read_to_string(file).map_err(unreadable)
}

async fn bind(address: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).await.map_err(|error| {
        Failure::new(format!("can't listen on {address}"), error)
            .hint("choose another port with `--listen` or `--hub-listen`, or port 0 for a free one")
    })
}

fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hub_is_found_by_what_it_was_told_or_knows_of_itself() {
        let check = |address: &str, reached_by: &[&str], hub_url: Option<&str>, expected: &str| {
            let options = HubOptions {
                firmware: None,
                bytes_per_second: None,
                director_key: None,
                reached_by: reached_by.iter().map(|name| (*name).to_owned()).collect(),
                hub_url: hub_url.map(str::to_owned),
                ping_seconds: 60,
            };
            assert_eq!(url_of(&options, address.parse().unwrap()), expected);
        };
        check("127.0.0.1:7443", &[], None, "https://127.0.0.1:7443");
        check("0.0.0.0:7443", &["hub.example", "10.0.0.1"], None, "https://hub.example:7443");
        check("0.0.0.0:7443", &["fd00::1"], None, "https://[fd00::1]:7443");
        check("0.0.0.0:7443", &["hub.example"], Some("https://fleet.example"), "https://fleet.example");
        check("[::1]:1", &[], None, "https://[::1]:1");
        check("[::]:1", &[], None, &format!("https://{}:1", host()));
    }
}
