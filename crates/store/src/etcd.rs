//! The log in etcd: the order of changes is etcd's, any number of servers share it, and each follows it by one watch.
//!
//! Start at [`commit`] for how a write gets there and what is known of it when an answer is lost, then [`feed`] for how it comes back.

mod channel;
mod checking;
mod commit;
mod compaction;
mod error;
mod feed;
mod fence;
mod files;
mod filling;
mod format;
mod freshness;
mod grpc;
mod keys;
mod leases;
mod listing;
mod messages;
mod probe;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use setpoint_api::Revision;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::JoinSet;

pub use channel::Endpoint;
pub use checking::{EtcdReport, verify_etcd};
pub use compaction::COMPACT_EVERY;
pub use error::EtcdError;
pub use files::EtcdFiles;
pub use filling::fill;

use crate::change::{Change, CommitError, Committed, Expectation, Transaction};
use crate::embedded::Identity;
use crate::facts::Fields;
use crate::key::Key;
use crate::log::{EtcdFigures, Figures, Log, Unavailable, Waiting};
use crate::seal::Seal;
use crate::state::State;
use crate::window::WindowBounds;
use channel::Channel;
use commit::Pending;
use feed::Feed;
use fence::Fence;
use format::Format;
use freshness::Freshness;
use keys::{Keys, Reader, Tag};
use leases::Leases;

/// Most transactions that are under way; more wait at the door.
const UNDER_WAY_MAX: usize = 1024;

/// How to use an etcd cluster.
#[derive(Clone)]
pub struct EtcdOptions {
    /// Its members, of which one is used at a time.
    pub endpoints: Vec<Endpoint>,
    /// What all keys begin with.
    pub prefix: String,
    /// How connections are secured.
    pub tls: Option<EtcdTls>,
    /// A name and a password, if etcd asks for them.
    pub credentials: Option<(String, String)>,
    /// Tells this process from all others. Chance is passed in: choose it at random, for each run.
    pub identity: Identity,
    /// How much of the past watchers can resume from.
    pub window: WindowBounds,
    /// Keeps chosen objects unreadable in etcd.
    pub seal: Option<Arc<dyn Seal>>,
    /// How often what is older than this is forgotten, by one of all servers; never, if it is zero.
    pub compact_every: Duration,
    /// Whether members that tell their progress in the order of events are asked for it. If not, all are treated as old ones are.
    pub asks_progress: bool,
}

/// Passwords are left out.
impl fmt::Debug for EtcdOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdOptions")
            .field("endpoints", &self.endpoints)
            .field("prefix", &self.prefix)
            .field("tls", &self.tls.is_some())
            .finish_non_exhaustive()
    }
}

/// Certificates for connections to etcd, in PEM.
#[derive(Clone)]
pub struct EtcdTls {
    /// Whom to trust.
    pub authority: Vec<u8>,
    /// Our certificate and its key, if etcd asks for one.
    pub certificate: Option<(Vec<u8>, Vec<u8>)>,
}

impl EtcdTls {
    fn config(&self) -> Result<ClientConfig, EtcdError> {
        let unusable = |what: &str, why: &dyn fmt::Display| EtcdError::Settings(format!("{what} can't be used: {why}"));
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&self.authority) {
            let certificate = certificate.map_err(|error| unusable("the authority of etcd", &error))?;
            roots.add(certificate).map_err(|error| unusable("the authority of etcd", &error))?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable("TLS", &error))?
            .with_root_certificates(roots);
        let mut config = match &self.certificate {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let ours = |error: &dyn fmt::Display| unusable("the certificate for etcd", error);
                let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate).collect();
                let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| ours(&error))?;
                builder
                    .with_client_auth_cert(chain.map_err(|error| ours(&error))?, key)
                    .map_err(|error| ours(&error))?
            }
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(config)
    }
}

impl EtcdOptions {
    fn connect(&self) -> Result<(Channel, Keys), EtcdError> {
        let keys = Keys::new(&self.prefix);
        if !keys.prefix().starts_with('/') {
            return Err(EtcdError::Settings("a prefix begins with a slash, and has something behind it".into()));
        }
        let tls = self.tls.as_ref().map(EtcdTls::config).transpose()?.map(Arc::new);
        Ok((Channel::new(self.endpoints.clone(), tls, self.credentials.clone()), keys))
    }
}

/// What everything that works on the log shares.
struct Shared {
    channel: Channel,
    keys: Keys,
    format: Format,
    identity: Identity,
    seal: Option<Arc<dyn Seal>>,
    state: Arc<State>,
    /// Own transactions that may come back by the feed.
    pending: Mutex<HashMap<Tag, Pending>>,
    /// The number of the next one.
    next: AtomicU64,
    under_way: Semaphore,
    fence: Fence,
    leases: Leases,
    /// Asks the feed to find out how far it is.
    progress: Notify,
    /// Whether members are asked for their progress that tell it in the order of events.
    asks_progress: bool,
    /// The member that the feed is of is one of these.
    tells_progress: AtomicBool,
    stopped: watch::Sender<Option<String>>,
    /// What is wrong, as far as is known.
    health: watch::Sender<Result<(), String>>,
    figures: Mutex<EtcdFigures>,
    commits: AtomicU64,
    bytes: AtomicU64,
}

impl Shared {
    fn pending(&self) -> MutexGuard<'_, HashMap<Tag, Pending>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn figures(&self) -> MutexGuard<'_, EtcdFigures> {
        self.figures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing can be trusted any more: the process ends, and the next start reads everything anew.
    fn stop(&self, why: String) {
        tracing::error!("the store stops: {why}");
        self.stopped.send_replace(Some(why));
        self.state.close();
    }
}

/// The log of one prefix in an etcd cluster, with the tasks that keep up with it.
pub(crate) struct EtcdLog {
    shared: Arc<Shared>,
    freshness: Freshness,
    fields: Arc<dyn Fields>,
    /// Ended with the log.
    tasks: Mutex<JoinSet<()>>,
}

impl EtcdLog {
    /// Reads everything that is under the prefix, and begins to follow it.
    pub(crate) async fn open(
        fields: Arc<dyn Fields>,
        options: EtcdOptions,
    ) -> Result<(EtcdLog, Arc<State>, usize), EtcdError> {
        let (channel, keys) = options.connect()?;
        let format = Format::open(&channel, &keys).await?;
        let mut reader = Reader::new(keys.clone(), Arc::clone(&fields), options.seal.clone());
        let (head, at) = listing::read(&channel, &keys, &mut reader, format).await?;
        let unsealed = std::mem::take(&mut reader.unsealed);
        let state = Arc::new(State::new(head.clone(), options.window));
        let shared = Arc::new(Shared {
            channel,
            keys,
            format,
            identity: options.identity,
            seal: options.seal,
            state: Arc::clone(&state),
            pending: Mutex::default(),
            next: AtomicU64::new(1),
            under_way: Semaphore::new(UNDER_WAY_MAX),
            fence: Fence::default(),
            leases: Leases::default(),
            progress: Notify::new(),
            asks_progress: options.asks_progress,
            tells_progress: AtomicBool::new(false),
            stopped: watch::Sender::new(None),
            health: watch::Sender::new(Ok(())),
            figures: Mutex::new(EtcdFigures { reachable: true, ..EtcdFigures::default() }),
            commits: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        });
        let mut tasks = JoinSet::new();
        let (freshness, asking) = Freshness::new(Arc::clone(&shared));
        tasks.spawn(asking);
        tasks.spawn(Feed::new(Arc::clone(&shared), reader, head, at).run());
        tasks.spawn(probe::run(Arc::clone(&shared)));
        if !options.compact_every.is_zero() {
            tasks.spawn(compaction::run(Arc::clone(&shared), options.compact_every));
        }
        Ok((EtcdLog { shared, freshness, fields, tasks: Mutex::new(tasks) }, state, unsealed))
    }

    /// Writes every object again that should be sealed.
    async fn seal_all(&self) -> Result<(), CommitError> {
        let Some(seal) = &self.shared.seal else { return Ok(()) };
        let snapshot = self.shared.state.snapshot();
        for (resource, table) in snapshot.head().tables.iter().filter(|(resource, _)| seal.covers(resource)) {
            for (path, entry) in table.scan(None, None) {
                let key = Key::from_path(resource.clone(), Arc::clone(path));
                let (head, tail) = entry.object.plain();
                let expectation = Expectation::Unchanged(entry.object.revision());
                let change = Change::put(key, expectation, [head, tail].concat(), &*self.fields)
                    .map_err(|_| CommitError::Malformed("an object that can't be stored"))?;
                match commit::commit(&self.shared, Transaction::of(change)).await {
                    // Whoever changed it meanwhile has sealed it.
                    Ok(_) | Err(CommitError::Conflict { .. } | CommitError::Missing { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }
}

impl Log for EtcdLog {
    fn commit(&self, transaction: Transaction) -> Waiting<'_, Result<Committed, CommitError>> {
        Box::pin(commit::commit(&self.shared, transaction))
    }

    fn rewrite(&self) -> Waiting<'_, Result<(), CommitError>> {
        Box::pin(self.seal_all())
    }

    fn close(&self) -> Waiting<'_, ()> {
        Box::pin(async move {
            self.shared.stopped.send_if_modified(|stopped| {
                let first = stopped.is_none();
                stopped.get_or_insert_with(|| "it was closed".to_owned());
                first
            });
            self.shared.state.close();
            let mut tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
            tasks.shutdown().await;
        })
    }

    fn stopped(&self) -> watch::Receiver<Option<String>> {
        self.shared.stopped.subscribe()
    }

    fn figures(&self) -> Figures {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Figures { commits: count(&self.shared.commits), bytes_written: count(&self.shared.bytes), ..Figures::default() }
    }

    fn fresh(&self) -> Option<Waiting<'_, Result<(), Unavailable>>> {
        Some(Box::pin(self.freshness.wait()))
    }

    fn seek(&self, revision: Revision) -> Option<Waiting<'_, ()>> {
        Some(Box::pin(freshness::seek(&self.shared, revision)))
    }

    fn health(&self) -> Result<(), String> {
        if let Some(why) = &*self.shared.stopped.borrow() {
            return Err(why.clone());
        }
        self.shared.health.borrow().clone()
    }

    fn expires(&self) -> bool {
        true
    }

    fn etcd(&self) -> Option<EtcdFigures> {
        Some(self.shared.figures().clone())
    }
}
