//! Informers shared between those who follow the same objects, started and stopped while others run.

use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use kube::{Client, Resource};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::figures::Figures;
use super::{Cached, Informer, InformerOptions, Memory, Progress, Target};
use crate::clock::Chance;
use crate::manager::{Lifecycle, RunError, Runnable};

/// One informer per type and target; clones share them.
///
/// Run it under a manager: it starts what is there, and what is added later, and stops what is removed.
///
/// ```no_run
/// # fn example(manager: &setpoint_runtime::manager::Manager) {
/// use k8s_openapi::api::core::v1::{ConfigMap, Pod};
/// use kube::core::PartialObjectMeta;
/// use setpoint_runtime::cache::{Informer, Target};
///
/// let informers = manager.informers();
/// let pods: Informer<Pod> = informers.all(); // one cache, however many controllers ask for it
/// let names: Informer<PartialObjectMeta<ConfigMap>> = informers.all(); // metadata only
/// let web = Target::of::<Pod>(&(), Some("shop")).labels("app=web");
/// let some: Informer<Pod> = informers.of(web.clone());
/// for (path, memory) in informers.memory() {
///     println!("{path}: {} objects, {} bytes", memory.objects, memory.bytes);
/// }
/// informers.remove::<Pod>(&web);
/// # let _ = (pods, names, some);
/// # }
/// ```
#[derive(Clone)]
pub struct Informers {
    client: Client,
    chance: Chance,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    members: Mutex<BTreeMap<Name, Member>>,
    changed: Notify,
}

/// Type and path with selectors; ordered, so that members start in the same order in every run.
type Name = (String, String, String, TypeId);

struct Member {
    informer: Box<dyn Any + Send>,
    follow: Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>,
    until_synced: Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>,
    memory: Box<dyn Fn() -> Memory + Send>,
    figures: Box<dyn Fn() -> CacheFigures + Send>,
    stop: CancellationToken,
    started: bool,
}

impl Informers {
    /// No informers yet.
    #[must_use]
    pub fn new(client: Client, chance: &Chance) -> Self {
        Self { client, chance: chance.fork("informers"), shared: Arc::default() }
    }

    /// The informer of a type in all namespaces.
    #[must_use]
    pub fn all<K: Cached>(&self) -> Informer<K>
    where
        K::Kind: Resource<DynamicType = ()>,
    {
        self.of(Target::of::<K::Kind>(&(), None))
    }

    /// The informer of a target with the default options.
    #[must_use]
    pub fn of<K: Cached>(&self, target: Target) -> Informer<K> {
        self.with(target, InformerOptions::default)
    }

    /// The informer of a target; `options` are those of whoever asks first.
    pub fn with<K: Cached>(&self, target: Target, options: impl FnOnce() -> InformerOptions<K>) -> Informer<K> {
        let name = name_of::<K>(&target);
        let mut members = self.members();
        if let Some(known) = members.get(&name).and_then(|member| member.informer.downcast_ref::<Informer<K>>()) {
            return known.clone();
        }
        let informer = Informer::new(self.client.clone(), target, options(), &self.chance);
        members.insert(name, Member::new(&informer));
        self.shared.changed.notify_one();
        informer
    }

    /// Stops and forgets the informer of a target. Whoever still holds it reads its last state.
    pub fn remove<K: Cached>(&self, target: &Target) {
        if let Some(member) = self.members().remove(&name_of::<K>(target)) {
            member.stop.cancel();
        }
    }

    /// Waits until all informers of this moment have their first list.
    pub async fn until_synced(&self) {
        let waits: Vec<_> = self.members().values().map(|member| (member.until_synced)()).collect();
        for wait in waits {
            wait.await;
        }
    }

    /// The path and the memory of each.
    #[must_use]
    pub fn memory(&self) -> Vec<(String, Memory)> {
        self.members().iter().map(|((path, ..), member)| (path.clone(), (member.memory)())).collect()
    }

    /// What is told of each in figures.
    pub(crate) fn figures(&self) -> Vec<CacheFigures> {
        let members = self.members();
        members.values().map(|member| (member.figures)()).collect()
    }

    fn members(&self) -> MutexGuard<'_, BTreeMap<Name, Member>> {
        self.shared.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start_new(&self, running: &mut JoinSet<()>) {
        for member in self.members().values_mut().filter(|member| !member.started) {
            member.started = true;
            let (follow, stop) = ((member.follow)(), member.stop.clone());
            running.spawn(async move {
                tokio::select! {
                    biased;
                    () = stop.cancelled() => {}
                    () = follow => {}
                }
            });
        }
    }
}

impl Runnable for Informers {
    fn name(&self) -> &str {
        "informers"
    }

    fn needs_leadership(&self) -> bool {
        false
    }

    fn run(self: Box<Self>, lifecycle: Lifecycle) -> BoxFuture<'static, Result<(), RunError>> {
        Box::pin(async move {
            let mut running = JoinSet::new();
            let synced = async {
                self.until_synced().await;
                lifecycle.ready();
                std::future::pending::<()>().await
            };
            tokio::pin!(synced);
            loop {
                self.start_new(&mut running);
                tokio::select! {
                    biased;
                    () = lifecycle.draining() => break,
                    () = self.shared.changed.notified() => {}
                    () = &mut synced => {}
                    Some(_) = running.join_next() => {}
                }
            }
            running.shutdown().await;
            Ok(())
        })
    }
}

impl Member {
    fn new<K: Cached>(informer: &Informer<K>) -> Self {
        let (follow, synced, measured) = (informer.clone(), informer.clone(), informer.lister());
        let shown = informer.clone();
        Self {
            informer: Box::new(informer.clone()),
            follow: Arc::new(move || {
                let informer = follow.clone();
                Box::pin(async move { informer.run_until(std::future::pending()).await })
            }),
            until_synced: Arc::new(move || {
                let informer = synced.clone();
                Box::pin(async move { informer.until_synced().await })
            }),
            memory: Box::new(move || measured.memory()),
            figures: Box::new(move || CacheFigures::of(&shown)),
            stop: CancellationToken::new(),
            started: false,
        }
    }
}

/// How far a cache has come and what it takes.
pub(crate) struct CacheFigures {
    pub target: Target,
    pub memory: Memory,
    pub progress: Progress,
    pub counts: Arc<Figures>,
}

impl CacheFigures {
    fn of<K: Cached>(informer: &Informer<K>) -> Self {
        let progress = informer.progress().borrow().clone();
        let counts = Arc::clone(&informer.core.figures);
        Self { target: informer.target().clone(), memory: informer.lister().memory(), progress, counts }
    }
}

fn name_of<K: Cached>(target: &Target) -> Name {
    let text = |selector: &Option<String>| selector.clone().unwrap_or_default();
    (target.path.clone(), text(&target.label_selector), text(&target.field_selector), TypeId::of::<K>())
}
