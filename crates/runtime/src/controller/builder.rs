//! Wires caches to a queue and a queue to a reconciler.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use kube::Client;
use tokio::task::JoinSet;

use super::consistency::Consistency;
use super::hot_loop::HotLoopDetector;
use super::predicate::Predicate;
use super::source::{InformerSource, Mapper, Source, owner_key};
use super::worker::{Worker, Workplace};
use super::{Action, Context, ControllerStats, Error, Traces};
use crate::Key;
use crate::cache::{Cached, Informer};
use crate::clock::Clock;
use crate::manager::{Lifecycle, RunError, Runnable};
use crate::queue::{QueueOptions, WorkQueue};

/// What a controller does for a key: reads what is, compares with what should be, acts.
///
/// It gets a key and no event: it must be right if it starts from nothing at any moment. Functions of a context and a
/// key are reconcilers.
pub trait Reconciler: Send + Sync + 'static {
    /// Makes reality agree for one key; the object may be gone.
    fn reconcile(&self, context: Context, key: Key) -> impl Future<Output = Result<Action, Error>> + Send;
}

impl<F, R> Reconciler for F
where
    F: Fn(Context, Key) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Action, Error>> + Send,
{
    fn reconcile(&self, context: Context, key: Key) -> impl Future<Output = Result<Action, Error>> + Send {
        self(context, key)
    }
}

pub(super) type DynReconciler = Arc<dyn Fn(Context, Key) -> BoxFuture<'static, Result<Action, Error>> + Send + Sync>;

/// How a controller works.
pub struct ControllerOptions {
    /// How many keys are worked on at once.
    pub workers: usize,
    /// How long a run may take.
    pub reconcile_timeout: Duration,
    /// After so many failures in a row a key is given up until something changes; `None` for never.
    pub max_retries: Option<u32>,
    /// How often all keys run without a reason, unless [`Builder::resync`] says otherwise; `None` for never.
    pub resync_period: Option<Duration>,
    /// Whether a run waits until the caches have seen what earlier runs of the key wrote.
    pub read_own_writes: bool,
    /// How the queue behaves.
    pub queue: QueueOptions<Key>,
    /// Where runs leave their traces.
    pub traces: Traces,
}

impl Default for ControllerOptions {
    fn default() -> Self {
        Self {
            workers: 1,
            reconcile_timeout: Duration::from_secs(120),
            max_retries: None,
            resync_period: None,
            read_own_writes: true,
            queue: QueueOptions::default(),
            traces: Traces::default(),
        }
    }
}

/// Says what wakes a controller whose keys are those of `K`.
///
/// ```no_run
/// # async fn example(client: kube::Client, clock: setpoint_runtime::clock::Clock) {
/// use k8s_openapi::api::apps::v1::ReplicaSet;
/// use k8s_openapi::api::core::v1::Pod;
/// use setpoint_runtime::Key;
/// use setpoint_runtime::cache::Informers;
/// use setpoint_runtime::clock::Chance;
/// use setpoint_runtime::controller::{Action, Context, Controller, Error, Predicate};
///
/// let informers = Informers::new(client.clone(), &Chance::seeded(1));
/// let (sets, pods) = (informers.all::<ReplicaSet>(), informers.all::<Pod>());
/// let reconcile = {
///     let sets = sets.clone();
///     move |context: Context, key: Key| {
///         let sets = sets.clone();
///         async move {
///             let Some(_set) = context.read(&sets, &key) else { return Ok(Action::done()) };
///             Ok::<_, Error>(Action::done())
///         }
///     }
/// };
/// let controller = Controller::builder("replicaset", client, clock, &sets)
///     .predicate(Predicate::generation_changed())
///     .owns(&pods)
///     .build(reconcile);
/// # }
/// ```
pub struct Builder<K> {
    name: Arc<str>,
    client: Client,
    clock: Clock,
    primary: Informer<K>,
    predicate: Option<Predicate<K>>,
    resync: Option<Duration>,
    batch: Duration,
    others: Vec<Box<dyn Source>>,
    options: ControllerOptions,
}

impl<K: Cached> Builder<K> {
    /// Which changes of the controller's own objects wake it; all of them unless told.
    #[must_use]
    pub fn predicate(mut self, predicate: Predicate<K>) -> Self {
        self.predicate = Some(predicate);
        self
    }

    /// Wakes all keys in this period, without asking the server.
    #[must_use]
    pub fn resync(mut self, period: Duration) -> Self {
        self.resync = Some(period);
        self
    }

    /// Takes what happens within this time together: one run instead of one per event. New objects, deletions and changes of what is
    /// wanted are not held back.
    #[must_use]
    pub fn batch(mut self, period: Duration) -> Self {
        self.batch = period;
        self
    }

    /// Changes of objects that an object of `K` controls wake their owner.
    #[must_use]
    pub fn owns<C: Cached>(self, children: &Informer<C>) -> Self {
        self.owns_some(children, None)
    }

    /// Like [`owns`](Self::owns), for those changes that a predicate lets through.
    #[must_use]
    pub fn owns_where<C: Cached>(self, children: &Informer<C>, predicate: Predicate<C>) -> Self {
        self.owns_some(children, Some(predicate))
    }

    /// Changes of other objects wake the keys that a function gives for them.
    #[must_use]
    pub fn watches<O: Cached>(
        self,
        informer: &Informer<O>,
        keys_of: impl Fn(&O) -> Vec<Key> + Send + Sync + 'static,
    ) -> Self {
        self.source(informer, Arc::new(keys_of), None)
    }

    /// Like [`watches`](Self::watches), for those changes that a predicate lets through.
    #[must_use]
    pub fn watches_where<O: Cached>(
        self,
        informer: &Informer<O>,
        predicate: Predicate<O>,
        keys_of: impl Fn(&O) -> Vec<Key> + Send + Sync + 'static,
    ) -> Self {
        self.source(informer, Arc::new(keys_of), Some(predicate))
    }

    /// How it works.
    #[must_use]
    pub fn options(mut self, options: ControllerOptions) -> Self {
        self.options = options;
        self
    }

    /// The controller; it does nothing until it runs.
    #[must_use]
    pub fn build(self, reconciler: impl Reconciler) -> Controller {
        let reconciler = Arc::new(reconciler);
        let reconcile: DynReconciler = Arc::new(move |context, key| {
            let reconciler = reconciler.clone();
            Box::pin(async move { reconciler.reconcile(context, key).await })
        });
        let primary: Box<dyn Source> = Box::new(InformerSource {
            informer: self.primary,
            mapper: Arc::new(|object: &K| vec![object.key()]),
            predicate: self.predicate,
            resync: self.resync.or(self.options.resync_period),
            is_primary: true,
        });
        let sources: Arc<[_]> = std::iter::once(primary).chain(self.others).collect();
        let workers = self.options.workers.max(1);
        let stats = ControllerStats { max_concurrent: workers, ..ControllerStats::default() };
        let workplace = Workplace {
            name: self.name,
            queue: WorkQueue::new(self.options.queue),
            consistency: self.options.read_own_writes.then(|| Consistency::new(sources.clone())),
            sources,
            reconcile,
            clock: self.clock,
            timeout: self.options.reconcile_timeout,
            max_retries: self.options.max_retries,
            traces: self.options.traces,
            stats: Mutex::new(stats),
            hot_loops: Mutex::new(HotLoopDetector::default()),
        };
        Controller { client: self.client, workers, batch: self.batch, workplace: Arc::new(workplace) }
    }

    fn owns_some<C: Cached>(self, children: &Informer<C>, predicate: Option<Predicate<C>>) -> Self {
        let owners = self.primary.clone();
        let mapper: Mapper<C> = Arc::new(move |child| owner_key(&owners, child).into_iter().collect());
        self.source(children, mapper, predicate)
    }

    fn source<O: Cached>(mut self, informer: &Informer<O>, mapper: Mapper<O>, predicate: Option<Predicate<O>>) -> Self {
        let source = InformerSource { informer: informer.clone(), mapper, predicate, resync: None, is_primary: false };
        self.others.push(Box::new(source));
        self
    }
}

/// A queue of keys, caches that fill it, and workers that run a reconciler.
pub struct Controller {
    client: Client,
    workers: usize,
    batch: Duration,
    workplace: Arc<Workplace>,
}

impl Controller {
    /// A controller whose keys are those of the objects of an informer.
    pub fn builder<K: Cached>(name: &str, client: Client, clock: Clock, primary: &Informer<K>) -> Builder<K> {
        Builder {
            name: name.into(),
            client,
            clock,
            primary: primary.clone(),
            predicate: None,
            resync: None,
            batch: Duration::ZERO,
            others: Vec::new(),
            options: ControllerOptions::default(),
        }
    }

    /// What can be asked and done while it runs.
    #[must_use]
    pub fn handle(&self) -> ControllerHandle {
        ControllerHandle { workplace: self.workplace.clone() }
    }
}

/// Looks into a controller, also while it runs.
#[derive(Clone)]
pub struct ControllerHandle {
    workplace: Arc<Workplace>,
}

impl ControllerHandle {
    /// The controller's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.workplace.name
    }

    /// Its queue: to add keys from elsewhere, and for figures.
    #[must_use]
    pub fn queue(&self) -> &WorkQueue<Key> {
        &self.workplace.queue
    }

    /// Its figures.
    #[must_use]
    pub fn stats(&self) -> ControllerStats {
        self.workplace.stats().clone()
    }

    /// What its runs did.
    #[must_use]
    pub fn traces(&self) -> &Traces {
        &self.workplace.traces
    }
}

impl Runnable for Controller {
    fn name(&self) -> &str {
        &self.workplace.name
    }

    /// Starts when all its caches are synced. Told to drain, it takes no new events and finishes what is queued.
    fn run(self: Box<Self>, lifecycle: Lifecycle) -> BoxFuture<'static, Result<(), RunError>> {
        Box::pin(async move {
            let workplace = &self.workplace;
            let synced = async {
                for source in workplace.sources.iter() {
                    source.until_synced().await;
                }
            };
            tokio::select! {
                biased;
                () = lifecycle.draining() => return Ok(()),
                () = synced => {}
            }
            let listening: Vec<_> =
                workplace.sources.iter().map(|source| source.listen(workplace.queue.clone(), self.batch)).collect();
            let mut workers = JoinSet::new();
            for _ in 0..self.workers {
                workers.spawn(Worker::new(workplace.clone(), &self.client).work());
            }
            lifecycle.ready();
            lifecycle.draining().await;
            drop(listening);
            tokio::select! {
                biased;
                () = workplace.queue.shutdown_with_drain() => while workers.join_next().await.is_some() {},
                () = lifecycle.stopping() => workers.shutdown().await,
            }
            Ok(())
        })
    }
}
