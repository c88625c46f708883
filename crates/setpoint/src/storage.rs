//! Where objects are kept: in the data directory or in etcd, and what all servers on one etcd have in common.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use clap::Args;
use setpoint_apiserver::pki::{self, Pki, SecretKeys, replace_private};
use setpoint_store::{Endpoint, EtcdError, EtcdFiles, EtcdOptions, EtcdTls, Seal, Store, WindowBounds};

use crate::arguments::duration;
use crate::failure::Failure;
use crate::sealing::{self, SealArguments};
use crate::{hub, server, service};
use setpoint_cli::with_progress;

/// What servers on one etcd share: whom clients trust, whose tokens count, what secrets are sealed with, and who signs for vehicles.
const SHARED: [&str; 4] = [pki::AUTHORITY, "service-account.pem", SECRET_KEYS, DIRECTOR_KEY];

/// What they share besides while one authority follows another.
const SUCCESSION: [&str; 2] = [pki::BRIDGE, pki::FORMER];

/// The file with what secrets are sealed with.
pub const SECRET_KEYS: &str = "secrets.keys";
const DIRECTOR_KEY: &str = "director.key";

/// How often it is tried to be the first, or to find what the first has written.
const TRIES_MAX: usize = 8;

/// Which store keeps the objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreChoice {
    /// Our own log in the data directory.
    Embedded,
    /// An etcd cluster, by its members.
    Etcd(Vec<Endpoint>),
}

impl StoreChoice {
    /// Reads `embedded`, or `etcd://HOST:PORT,HOST:PORT`.
    pub fn parse(text: &str) -> Result<StoreChoice, String> {
        match text {
            "embedded" => Ok(StoreChoice::Embedded),
            _ => match text.strip_prefix("etcd://") {
                Some(members) => endpoints(members).map(StoreChoice::Etcd),
                None => Err("expected `embedded` or `etcd://HOST:PORT,HOST:PORT`".into()),
            },
        }
    }
}

/// The members of an etcd cluster.
pub fn endpoints(text: &str) -> Result<Vec<Endpoint>, String> {
    let parse = |text: &str| Endpoint::parse(text).ok_or_else(|| format!("`{text}` is not HOST:PORT"));
    text.trim_end_matches('/').split(',').map(parse).collect()
}

#[derive(Args, Clone)]
pub struct StoreArguments {
    /// Where objects are kept: `embedded`, in the data directory, or `etcd://HOST:PORT,HOST:PORT`
    #[arg(long, default_value = "embedded", value_parser = StoreChoice::parse)]
    pub store: StoreChoice,
    #[command(flatten)]
    pub etcd: EtcdArguments,
}

#[derive(Args, Clone)]
pub struct EtcdArguments {
    /// What all keys in etcd begin with
    #[arg(long, value_name = "PREFIX", default_value = "/registry")]
    pub etcd_prefix: String,
    /// Whom to trust for etcd, in PEM; connections to etcd are secured with TLS then
    #[arg(long, value_name = "FILE")]
    pub etcd_cafile: Option<PathBuf>,
    /// The certificate to show to etcd, in PEM
    #[arg(long, value_name = "FILE", requires = "etcd_keyfile", requires = "etcd_cafile")]
    pub etcd_certfile: Option<PathBuf>,
    /// The key of that certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "etcd_certfile")]
    pub etcd_keyfile: Option<PathBuf>,
    /// A file with NAME:PASSWORD for etcd
    #[arg(long, value_name = "FILE")]
    pub etcd_credentials: Option<PathBuf>,
    /// How often one of the servers lets etcd forget what is older than this; 0 to leave it to somebody else
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = duration)]
    pub etcd_compaction_interval: Duration,
    /// A folder with the keys that servers on one etcd have in common; without it they are kept in etcd
    #[arg(long, value_name = "DIR")]
    pub shared_pki: Option<PathBuf>,
}

impl EtcdArguments {
    /// How to use the cluster of these members.
    pub fn options(&self, endpoints: &[Endpoint]) -> Result<EtcdOptions, Failure> {
        let read = |file: &PathBuf| {
            fs::read(file).map_err(|error| Failure::usage(format!("can't read {}", file.display()), error))
        };
        let certificate = match (&self.etcd_certfile, &self.etcd_keyfile) {
            (Some(certificate), Some(key)) => Some((read(certificate)?, read(key)?)),
            _ => None,
        };
        let authority = self.etcd_cafile.as_ref().map(read).transpose()?;
        let credentials = match &self.etcd_credentials {
            None => None,
            Some(file) => {
                let text = String::from_utf8_lossy(&read(file)?).into_owned();
                let (name, password) = text.trim().split_once(':').ok_or_else(|| {
                    Failure::usage(format!("can't use {}", file.display()), "it is not NAME:PASSWORD")
                })?;
                Some((name.to_owned(), password.to_owned()))
            }
        };
        Ok(EtcdOptions {
            endpoints: endpoints.to_vec(),
            prefix: self.etcd_prefix.clone(),
            tls: authority.map(|authority| EtcdTls { authority, certificate }),
            credentials,
            identity: server::identity().map_err(|error| Failure::new("can't start", error))?,
            window: WindowBounds::default(),
            seal: None,
            compact_every: self.etcd_compaction_interval,
            asks_progress: true,
        })
    }
}

/// A store that is open, and what belongs to it.
pub struct Opened {
    /// The store.
    pub store: Store,
    /// Where certificates and keys are.
    pub pki: PathBuf,
    /// Where it is, for a person.
    pub place: String,
    /// Whether other servers may use it too.
    pub is_shared: bool,
    /// Where keys come from that others may change; none if it is the folder itself.
    pub sharing: Option<EtcdOptions>,
}

/// Opens the store of a server with its data in a folder.
pub async fn open(arguments: &StoreArguments, folder: &Path, seal: &SealArguments) -> Result<Opened, Failure> {
    match &arguments.store {
        StoreChoice::Embedded => {
            let what = format!("can't open the data in {}", folder.display());
            let store = sealing::open_store(folder, seal).await.map_err(|error| error.failure(&what))?;
            let place = format!("the store in {}", folder.display());
            Ok(Opened { store, pki: folder.join("pki"), place, is_shared: false, sharing: None })
        }
        StoreChoice::Etcd(endpoints) => {
            let options = arguments.etcd.options(endpoints)?;
            let pki = pki(&arguments.etcd, &options, folder).await?;
            let store = open_etcd(options.clone(), &pki, seal).await?;
            let place = place(&options);
            let sharing = arguments.etcd.shared_pki.is_none().then_some(options);
            Ok(Opened { store, pki, place, is_shared: true, sharing })
        }
    }
}

/// The folder with the keys that servers on one etcd have in common, filled if it has to be.
pub async fn pki(arguments: &EtcdArguments, options: &EtcdOptions, folder: &Path) -> Result<PathBuf, Failure> {
    match &arguments.shared_pki {
        Some(shared) => Ok(shared.clone()),
        None => {
            let pki = folder.join("pki");
            with_progress(&format!("waiting for {}", place(options)), share(options, &pki)).await?;
            Ok(pki)
        }
    }
}

/// Opens the store in etcd with the keys of a folder. What should be sealed and is not is written anew.
pub async fn open_etcd(options: EtcdOptions, pki: &Path, seal: &SealArguments) -> Result<Store, Failure> {
    let place = place(&options);
    let options = EtcdOptions { seal: keys(pki, seal)?, ..options };
    let opened = with_progress(&format!("opening {place}"), Store::open_etcd(service::fields(), options)).await;
    let (store, unsealed) = opened.map_err(|error| unusable(&place, error))?;
    let snapshot = store.snapshot();
    let objects: usize = snapshot.counts().values().sum();
    tracing::info!(place, revision = snapshot.revision().get(), objects, "store opened");
    if unsealed > 0 {
        match store.rewrite().await {
            Ok(()) => tracing::info!(objects = unsealed, "what was not encrypted yet is"),
            Err(error) => tracing::warn!(%error, "what is not encrypted yet stays so until the next start"),
        }
    }
    Ok(store)
}

/// What seals chosen resources, with the keys of a folder.
pub fn keys(pki: &Path, seal: &SealArguments) -> Result<Option<Arc<dyn Seal>>, Failure> {
    let file = pki.join(SECRET_KEYS);
    let keys = SecretKeys::read(&file, seal.resources());
    let keys = keys.map_err(|error| Failure::new(format!("can't use {}", file.display()), error))?;
    if keys.is_none() && !seal.resources().is_empty() {
        return Err(Failure::new(format!("can't use the keys in {}", pki.display()), "there is no secrets.keys")
            .hint("put the same one there on each machine, or encrypt nothing with `--encrypt ''`"));
    }
    Ok(keys.map(|keys| Arc::new(keys) as _))
}

/// Where a store in etcd is, for a person.
pub fn place(options: &EtcdOptions) -> String {
    let members: Vec<String> = options.endpoints.iter().map(ToString::to_string).collect();
    format!("etcd at {} under {}", members.join(","), options.prefix)
}

/// Why etcd can't be used, for a person.
pub fn unusable(place: &str, error: EtcdError) -> Failure {
    let failure = Failure::new(format!("can't use {place}"), &error);
    match error {
        EtcdError::Unreachable(_) => failure.hint("check that etcd runs, and the addresses and certificates"),
        EtcdError::Settings(_) => failure,
        EtcdError::Foreign(_) | EtcdError::NotEmpty | EtcdError::Empty => {
            failure.hint("choose another with `--etcd-prefix`")
        }
        EtcdError::Unreadable { .. } => failure.hint("every server needs the same keys in `pki/secrets.keys`"),
        EtcdError::Format(_) => failure.hint("delete everything under the prefix and migrate again"),
    }
}

/// Makes the keys in a folder those that all servers on one etcd have in common. The first server to come gives its own.
pub async fn share(options: &EtcdOptions, pki: &Path) -> Result<(), Failure> {
    let place = place(options);
    let what = format!("can't share keys through {place}");
    let files = EtcdFiles::new(options).map_err(|error| unusable(&place, error))?;
    for _ in 0..TRIES_MAX {
        let found = files.read().await.map_err(|error| unusable(&place, error))?;
        if !found.is_empty() {
            // In the order of their names: what goes with an authority is there before it is.
            let former = found.iter().find(|(name, _)| name == pki::FORMER).map_or(&[][..], |(_, text)| text);
            return found.iter().try_for_each(|(name, text)| take(pki, name, text, former, &what));
        }
        let before: Vec<bool> = SHARED.iter().map(|name| pki.join(name).exists()).collect();
        let own = make(pki).map_err(|why| Failure::new(&what, why))?;
        // If its answer is lost, what is read next tells whether it was done.
        if files.write_first(&own).await.unwrap_or(false) {
            return Ok(());
        }
        // Somebody else was first: only what was here before could be in the way of theirs.
        for (name, _) in SHARED.iter().zip(before).filter(|(_, before)| !before) {
            let _ = fs::remove_file(pki.join(name));
        }
    }
    Err(Failure::new(what, "somebody else writes them again and again"))
}

/// Makes a changed file of keys the one that servers on an etcd have in common, where they share it through etcd.
pub async fn share_keys(arguments: &EtcdArguments, options: &EtcdOptions, file: &Path) -> Result<(), Failure> {
    if arguments.shared_pki.is_some() {
        return Ok(());
    }
    let place = place(options);
    let text = fs::read(file).map_err(|error| Failure::new(format!("can't read {}", file.display()), error))?;
    let files = EtcdFiles::new(options).map_err(|error| unusable(&place, error))?;
    files.write(SECRET_KEYS, text).await.map_err(|error| unusable(&place, error))
}

/// Writes files of a succession for all servers on an etcd, in their order, and takes them over into a folder.
pub async fn share_succession(
    options: &EtcdOptions,
    pki: &Path,
    changed: &[(&'static str, String)],
) -> Result<(), Failure> {
    let place = place(options);
    let files = EtcdFiles::new(options).map_err(|error| unusable(&place, error))?;
    for (name, text) in changed {
        files.write(name, text.clone().into_bytes()).await.map_err(|error| unusable(&place, error))?;
    }
    share(options, pki).await
}

/// Makes what is missing of the shared files, and returns them all.
pub fn make(pki: &Path) -> Result<Vec<(String, Vec<u8>)>, String> {
    let listen = IpAddr::V4(Ipv4Addr::LOCALHOST);
    Pki::prepare(pki, listen, None, SystemTime::now()).map_err(|error| error.to_string())?;
    if !pki.join(SECRET_KEYS).exists() {
        SecretKeys::add(&pki.join(SECRET_KEYS)).map_err(|error| error.to_string())?;
    }
    hub::director_key(&pki.join(DIRECTOR_KEY)).map_err(|error| error.to_string())?;
    let read = |name: &str| match fs::read(pki.join(name)) {
        Ok(text) => Ok((name.to_owned(), text)),
        Err(error) => Err(format!("{}: {error}", pki.join(name).display())),
    };
    let under_way = SUCCESSION.iter().filter(|name| pki.join(name).exists());
    SHARED.iter().chain(under_way).map(|name| read(name)).collect()
}

/// Takes a shared file over into a folder, where there may be the same one, but no other: unless it is one that this one follows.
fn take(pki: &Path, name: &str, text: &[u8], former: &[u8], what: &str) -> Result<(), Failure> {
    let file = pki.join(name);
    let failed = |error: std::io::Error| Failure::new(what, format!("{}: {error}", file.display()));
    let own = fs::read(&file).ok();
    match own {
        Some(own) if own == text => return Ok(()),
        None if text.is_empty() => return Ok(()),
        _ if SUCCESSION.contains(&name) && text.is_empty() => return fs::remove_file(&file).map_err(failed),
        _ if !SHARED.contains(&name) && !SUCCESSION.contains(&name) => return Ok(()),
        None => {}
        // After a rotation: of the same cluster, or the authority would have been another one.
        Some(_) if name == SECRET_KEYS || SUCCESSION.contains(&name) => {}
        Some(own) if name == pki::AUTHORITY && !former.is_empty() && own.starts_with(former) => {}
        Some(_) => {
            let failure = Failure::new(what, format!("{} is that of another cluster", file.display()));
            return Err(match name {
                pki::AUTHORITY => failure.hint(
                    "choose another `--data-dir`; or, if the authority was replaced and retired meanwhile, move that file away",
                ),
                _ => failure.hint("choose another `--data-dir`"),
            });
        }
    }
    fs::create_dir_all(pki).map_err(failed)?;
    replace_private(&file, text).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_embedded_or_etcd() {
        assert_eq!(StoreChoice::parse("embedded"), Ok(StoreChoice::Embedded));
        let two = StoreChoice::parse("etcd://a:2379,127.0.0.1:2380").unwrap();
        let StoreChoice::Etcd(members) = two else { panic!("not etcd") };
        assert_eq!(members.iter().map(ToString::to_string).collect::<Vec<_>>(), ["a:2379", "127.0.0.1:2380"]);
        assert!(StoreChoice::parse("etcd://a").is_err());
        assert!(StoreChoice::parse("sqlite").is_err());
    }
}
