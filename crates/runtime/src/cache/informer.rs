//! A cache of one kind of object that tells handlers what changes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use futures_util::future::BoxFuture;
use imbl::OrdMap;
use kube::Client;
use tokio::sync::watch;
use tokio::time::Instant;

use super::difference::{changes, differences, is_known};
use super::figures::Figures;
use super::lister::Lister;
use super::measure::Measured;
use super::reflector::{self, Destination, PAGE_SIZE, Pace};
use super::store::{Entry, IndexFn, Snapshot};
use super::wire::Target;
use super::{Cached, Event};
use crate::Key;
use crate::clock::Chance;
use crate::manager::{Lifecycle, RunError, Runnable};

/// What a handler is: a quick function, called after the cache has the change, in order, one call at a time.
pub type Handler<K> = Box<dyn Fn(&Event<K>) + Send + Sync>;

/// Changes an object before it is kept.
pub type Transform<K> = Box<dyn Fn(&mut K) + Send + Sync>;

/// How an informer follows the API server.
pub struct InformerOptions<K> {
    /// Objects per page of a list.
    pub page_size: u32,
    /// How long one page of a list may take.
    pub list_timeout: Duration,
    /// Whether to ask for the initial objects as a stream; a server that can't is asked for a list.
    pub streaming_lists: bool,
    /// Changes objects before they are kept, to drop what nobody reads. Must give the same if applied twice.
    pub transform: Option<Transform<K>>,
}

impl<K> Default for InformerOptions<K> {
    fn default() -> Self {
        Self { page_size: PAGE_SIZE, list_timeout: Duration::from_secs(60), streaming_lists: true, transform: None }
    }
}

/// Follows the objects of one target, keeps them, and tells handlers what changes. Clones share it.
///
/// It does nothing until it runs, under a [`Manager`](crate::manager) or by [`Informer::run_until`].
///
/// ```no_run
/// # async fn example(client: kube::Client) {
/// use k8s_openapi::api::core::v1::Pod;
/// use setpoint_runtime::cache::{Informer, InformerOptions, Target};
/// use setpoint_runtime::clock::Chance;
///
/// let target = Target::of::<Pod>(&(), None).labels("app=web");
/// let pods = Informer::<Pod>::new(client, target, InformerOptions::default(), &Chance::seeded(1));
/// pods.add_index("node", |pod| pod.spec.iter().filter_map(|spec| spec.node_name.clone()).collect());
/// let told = pods.add_handler(Box::new(|event| println!("{:?}", event.what())), None);
/// let running = pods.clone();
/// tokio::spawn(async move { running.run_until(std::future::pending()).await });
/// pods.until_synced().await;
/// let on_node_1: Vec<_> = pods.lister().snapshot().by_index("node", "node-1").cloned().collect();
/// drop(told); // the handler is removed
/// # }
/// ```
pub struct Informer<K> {
    pub(super) core: Arc<Core<K>>,
}

impl<K> Clone for Informer<K> {
    fn clone(&self) -> Self {
        Self { core: self.core.clone() }
    }
}

pub(super) struct Core<K> {
    pub client: Client,
    pub target: Target,
    pub options: InformerOptions<K>,
    pub chance: Chance,
    name: String,
    snapshot: RwLock<Snapshot<K>>,
    /// Held while a change is applied and told, so that every handler sees one order.
    handlers: Mutex<Vec<Listening<K>>>,
    handlers_changed: tokio::sync::Notify,
    progress: watch::Sender<Progress>,
    pub figures: Arc<Figures>,
    running: AtomicBool,
}

struct Listening<K> {
    handler: Handler<K>,
    removed: Arc<AtomicBool>,
    resync: Option<(Duration, Instant)>,
}

/// How far an informer has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Whether the first list is in the cache and told to handlers.
    pub synced: bool,
    /// The version that the cache, not only the stream, has reached.
    pub resource_version: Arc<str>,
    /// How often the whole cache was replaced by a list.
    pub lists: u64,
    /// Objects added, changed and deleted since the start.
    pub changes: u64,
}

/// Keeps a handler in place; dropping it removes the handler.
#[must_use = "dropping it removes the handler"]
pub struct Registration {
    removed: Arc<AtomicBool>,
}

impl Registration {
    /// Keeps the handler for as long as the informer lives.
    pub fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.removed.store(true, Ordering::Release);
    }
}

impl<K: Cached> Informer<K> {
    /// An informer that has not started.
    #[must_use]
    pub fn new(client: Client, target: Target, options: InformerOptions<K>, chance: &Chance) -> Self {
        let name = format!("informer {}", target.path);
        let core = Core {
            client,
            chance: chance.fork(&name),
            target,
            options,
            name,
            snapshot: RwLock::new(Snapshot::empty()),
            handlers: Mutex::new(Vec::new()),
            handlers_changed: tokio::sync::Notify::new(),
            progress: watch::Sender::new(Progress::default()),
            figures: Arc::default(),
            running: AtomicBool::new(false),
        };
        Self { core: Arc::new(core) }
    }

    /// What it follows.
    #[must_use]
    pub fn target(&self) -> &Target {
        &self.core.target
    }

    /// Reads what it holds.
    #[must_use]
    pub fn lister(&self) -> Lister<K> {
        Lister::of(self.core.clone())
    }

    /// Finds objects by the values that a function gives them; see [`Snapshot::by_index`]. An index of the same name is
    /// replaced.
    pub fn add_index(&self, name: &str, values_of: impl Fn(&K) -> Vec<String> + Send + Sync + 'static) {
        let values_of: IndexFn<K> = Arc::new(values_of);
        self.core.write().add_index(name.into(), values_of);
    }

    /// Tells `handler` of all objects that are there, as initial, and then of every change.
    ///
    /// With `resync` the whole cache is replayed to it in that period as updates without a change; the server isn't
    /// asked. Don't call this from inside a handler.
    pub fn add_handler(&self, handler: Handler<K>, resync: Option<Duration>) -> Registration {
        let removed = Arc::new(AtomicBool::new(false));
        let resync = resync.map(|period| (period, Instant::now() + period));
        let listening = Listening { handler, removed: removed.clone(), resync };
        let mut handlers = self.core.handlers();
        for object in self.lister().snapshot().iter() {
            listening.tell(&Event::Added { object: object.clone(), is_in_initial_list: true });
        }
        handlers.push(listening);
        self.core.handlers_changed.notify_one();
        Registration { removed }
    }

    /// How far it has come, and every step from here.
    #[must_use]
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.core.progress.subscribe()
    }

    /// Whether the first list is in the cache and told to handlers.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.core.progress.borrow().synced
    }

    /// Waits until the first list is in the cache.
    pub async fn until_synced(&self) {
        // The sender lives as long as this informer.
        let _ = self.progress().wait_for(|progress| progress.synced).await;
    }

    /// Follows the API server until `stop` ends. A second run at the same time ends at once.
    pub async fn run_until(&self, stop: impl Future<Output = ()>) {
        if self.core.running.swap(true, Ordering::AcqRel) {
            return;
        }
        tokio::select! {
            biased;
            () = stop => {}
            () = reflector::follow(&*self.core) => {}
            () = self.core.replay() => {}
        }
        self.core.running.store(false, Ordering::Release);
    }
}

impl<K: Cached> Runnable for Informer<K> {
    fn name(&self) -> &str {
        &self.core.name
    }

    fn needs_leadership(&self) -> bool {
        false
    }

    fn run(self: Box<Self>, lifecycle: Lifecycle) -> BoxFuture<'static, Result<(), RunError>> {
        Box::pin(async move {
            let tell_ready = async {
                self.until_synced().await;
                lifecycle.ready();
                std::future::pending().await
            };
            tokio::select! {
                biased;
                () = self.run_until(lifecycle.draining()) => {}
                () = tell_ready => {}
            }
            Ok(())
        })
    }
}

impl<K> Listening<K> {
    fn tell(&self, event: &Event<K>) {
        if self.removed.load(Ordering::Acquire) {
            return;
        }
        if catch_unwind(AssertUnwindSafe(|| (self.handler)(event))).is_err() {
            tracing::error!("a handler of an informer panicked; the others go on");
        }
    }
}

impl<K: Cached> Destination for Core<K> {
    type Object = K;
    type Batch = OrdMap<Key, Entry<K>>;

    fn client(&self) -> &Client {
        &self.client
    }

    fn target(&self) -> &Target {
        &self.target
    }

    fn chance(&self) -> &Chance {
        &self.chance
    }

    fn pace(&self) -> Pace {
        let InformerOptions { page_size, list_timeout, streaming_lists, .. } = self.options;
        Pace { page_size, list_timeout, streaming_lists }
    }

    fn resource_version(&self) -> Arc<str> {
        self.progress.borrow().resource_version.clone()
    }

    fn begin(&self) -> OrdMap<Key, Entry<K>> {
        self.figures.queued.set(0);
        OrdMap::new()
    }

    fn put(&self, batch: &mut OrdMap<Key, Entry<K>>, decoded: Measured<K>) {
        let (key, entry) = self.transform(decoded);
        batch.insert(key, entry);
        self.figures.queued.set(i64::try_from(batch.len()).unwrap_or(i64::MAX));
    }

    fn take(&self, batch: &mut OrdMap<Key, Entry<K>>, decoded: Measured<K>) {
        batch.remove(&decoded.value.key());
    }

    /// Puts a list in the place of everything. What is gone is told as deleted, what is unchanged is not told.
    fn replace(&self, objects: OrdMap<Key, Entry<K>>, resource_version: &str) {
        let handlers = self.handlers();
        let first = !self.progress.borrow().synced;
        let events = self.read(|old| differences(old, &objects, first));
        {
            let mut snapshot = self.write();
            snapshot.replace(objects);
            snapshot.resource_version = resource_version.into();
        }
        self.figures.queued.set(0);
        events.iter().for_each(|event| handlers.iter().for_each(|listening| listening.tell(event)));
        drop(handlers);
        self.progress.send_modify(|progress| {
            progress.synced = true;
            progress.resource_version = resource_version.into();
            progress.lists += 1;
            progress.changes += events.len() as u64;
        });
    }

    /// Keeps an object that a watch told of.
    fn upsert(&self, decoded: Measured<K>) {
        let version: Arc<str> = decoded.value.resource_version().into();
        let (key, entry) = self.transform(decoded);
        let new = entry.object.clone();
        let mut handlers = self.handlers();
        handlers.retain(|listening| !listening.removed.load(Ordering::Acquire));
        let mut snapshot = self.write();
        let old = snapshot.get(key.as_str());
        if old.as_ref().is_some_and(|old| is_known::<K>(old, &new)) {
            drop(snapshot);
            return self.reach(version, 0);
        }
        let _ = snapshot.insert(key, entry);
        snapshot.resource_version = version.clone();
        drop(snapshot);
        for event in changes(old, new) {
            handlers.iter().for_each(|listening| listening.tell(&event));
        }
        drop(handlers);
        self.reach(version, 1);
    }

    /// Drops an object that a watch told to be gone.
    fn delete(&self, decoded: Measured<K>) {
        let version: Arc<str> = decoded.value.resource_version().into();
        let (key, entry) = self.transform(decoded);
        let handlers = self.handlers();
        let mut snapshot = self.write();
        let known = snapshot.remove(&key);
        snapshot.resource_version = version.clone();
        drop(snapshot);
        if known.is_some() {
            let event = Event::Deleted { last: entry.object, is_final_state_unknown: false };
            handlers.iter().for_each(|listening| listening.tell(&event));
        }
        drop(handlers);
        self.reach(version, u64::from(known.is_some()));
    }

    /// The server says that nothing else happened up to a version.
    fn bookmark(&self, version: &str) {
        let version: Arc<str> = version.into();
        self.write().resource_version = version.clone();
        self.reach(version, 0);
    }

    fn figures(&self) -> &Figures {
        &self.figures
    }
}

impl<K: Cached> Core<K> {
    fn transform(&self, mut decoded: Measured<K>) -> (Key, Entry<K>) {
        if let Some(transform) = &self.options.transform {
            transform(&mut decoded.value);
        }
        let bytes = u32::try_from(decoded.bytes).unwrap_or(u32::MAX);
        (decoded.value.key(), Entry { object: Arc::new(decoded.value), bytes })
    }

    fn reach(&self, version: Arc<str>, changes: u64) {
        self.progress.send_modify(|progress| {
            progress.resource_version = version;
            progress.changes += changes;
        });
    }

    /// Replays the cache to those handlers that asked for it, when their time has come.
    async fn replay(&self) {
        loop {
            let next = self.handlers().iter().filter_map(|listening| listening.resync.map(|(_, at)| at)).min();
            let due = async {
                match next {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = due => self.replay_due(),
                () = self.handlers_changed.notified() => {}
            }
        }
    }

    fn replay_due(&self) {
        let now = Instant::now();
        let mut handlers = self.handlers();
        handlers.retain(|listening| !listening.removed.load(Ordering::Acquire));
        let snapshot = self.read(Snapshot::clone);
        for listening in handlers.iter_mut() {
            let Some((period, at)) = listening.resync else { continue };
            if at > now {
                continue;
            }
            listening.resync = Some((period, now + period.max(Duration::from_millis(1))));
            for object in snapshot.iter() {
                listening.tell(&Event::Updated { old: object.clone(), new: object.clone() });
            }
        }
    }

    pub(super) fn read<T>(&self, read: impl FnOnce(&Snapshot<K>) -> T) -> T {
        read(&self.snapshot.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Snapshot<K>> {
        self.snapshot.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn handlers(&self) -> MutexGuard<'_, Vec<Listening<K>>> {
        self.handlers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
