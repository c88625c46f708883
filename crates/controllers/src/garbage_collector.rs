//! Deletes what nobody owns any more, and carries out deletions that wait for dependents or let them go.
//!
//! Monitors follow every kind and put what they see into one graph, one change at a time. What a change makes doubtful goes
//! into a queue, and workers ask the server itself before they delete anything: an owner counts as gone only if the server says so.
//! Start at [`add`], then `graph.rs` for what is looked at, `judge.rs` for what is done.

mod absent;
mod act;
mod graph;
mod identity;
mod judge;
mod monitor;
mod monitors;
mod node;
mod orphan;
mod plan;
mod uid;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use setpoint_runtime::clock::Chance;
use setpoint_runtime::events::Recorder;
use setpoint_runtime::manager::{Lifecycle, ManagerError, RunError, Runnable};
use setpoint_runtime::queue::WorkQueue;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use self::graph::{Effect, Graph};
use self::identity::Identity;
use self::monitors::Monitors;
use self::uid::Uid;
use crate::Wiring;
use crate::served::Served;
use crate::wiring::warning;

const NAME: &str = "garbage-collector-controller";

/// How many objects are looked at at once. Most of that time is waiting for the server.
const WORKERS: usize = 64;

/// How long workers wait for all monitors: one kind that can't be listed must not stop the rest. Same as Kubernetes.
const SYNC_LIMIT: Duration = Duration::from_secs(30);

/// Kinds of other servers may come and go without a sign.
const REFRESH: Duration = Duration::from_secs(600);

/// Discovery may be behind the definition that announced a kind.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// The first wait after discovery failed, and the longest.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// Adds the controller.
pub fn add(wiring: &Wiring<'_>) -> Result<(), ManagerError> {
    let desk = wiring.desk(NAME)?;
    let collector = Collector {
        graph: Mutex::default(),
        to_judge: WorkQueue::default(),
        to_orphan: WorkQueue::default(),
        served: RwLock::default(),
        kinds_changed: Notify::new(),
        client: desk.client.clone(),
        chance: desk.chance.clone(),
        recorder: desk.recorder.clone(),
    };
    desk.run_part(Runner { collector: Arc::new(collector), workers: desk.workers(WORKERS) })
}

/// What monitors and workers share.
struct Collector {
    graph: Mutex<Graph>,
    to_judge: WorkQueue<Uid>,
    to_orphan: WorkQueue<Uid>,
    served: RwLock<Arc<Served>>,
    /// Told when an object that defines kinds has changed.
    kinds_changed: Notify,
    client: Client,
    chance: Chance,
    recorder: Recorder,
}

/// What follows from a turn of a worker.
enum Next {
    Done,
    /// Not yet certain: again after a while.
    Again,
}

impl Collector {
    fn graph(&self) -> MutexGuard<'_, Graph> {
        self.graph.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn served(&self) -> Arc<Served> {
        self.served.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes the graph, and puts what that makes doubtful into the queues.
    fn change(&self, change: impl FnOnce(&mut Graph, &mut Vec<Effect>)) {
        let mut effects = Vec::new();
        change(&mut self.graph(), &mut effects);
        for effect in effects {
            match effect {
                Effect::Judge(uid) => self.to_judge.add(uid),
                Effect::JudgeLater(uid) => self.to_judge.add_rate_limited(uid),
                Effect::Orphan(uid) => self.to_orphan.add(uid),
                Effect::InvalidNamespace { dependent, owner } => self.report_namespace(&dependent, &owner),
            }
        }
    }

    fn report_namespace(&self, dependent: &Identity, owner: &Identity) {
        let about = ObjectReference {
            api_version: Some(dependent.kind.api_version.to_string()),
            kind: Some(dependent.kind.kind.to_string()),
            namespace: Some(dependent.namespace().to_owned()).filter(|namespace| !namespace.is_empty()),
            name: Some(dependent.name.to_string()),
            uid: Some(dependent.uid.to_string()),
            ..ObjectReference::default()
        };
        let note = format!("ownerRef {owner} does not exist in namespace {:?}", dependent.namespace());
        warning(&self.recorder, about, "OwnerRefInvalidNamespace", "GarbageCollection", note);
    }

    /// Asks the server which kinds it has, until it says so.
    async fn discover(&self) {
        let mut wait = RETRY.0;
        loop {
            match Served::discover(&self.client).await {
                Ok(served) => {
                    *self.served.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(served);
                    return;
                }
                Err(error) => tracing::warn!(%error, "the garbage collector can't find out which kinds there are"),
            }
            tokio::time::sleep(self.chance.jitter(wait, 0.5)).await;
            wait = (2 * wait).min(RETRY.1);
        }
    }
}

/// The collector at work.
struct Runner {
    collector: Arc<Collector>,
    workers: usize,
}

impl Runnable for Runner {
    fn name(&self) -> &str {
        NAME
    }

    fn run(self: Box<Self>, lifecycle: Lifecycle) -> BoxFuture<'static, Result<(), RunError>> {
        Box::pin(async move {
            let mut monitors = Monitors::new(&self.collector);
            let mut workers = JoinSet::new();
            let work = async {
                self.start(&mut monitors, &mut workers).await;
                lifecycle.ready();
                self.follow_kinds(&mut monitors).await;
            };
            tokio::select! {
                biased;
                () = lifecycle.draining() => {}
                () = work => {}
            }
            monitors.stop().await;
            let drained = async {
                self.collector.to_orphan.shutdown_with_drain().await;
                self.collector.to_judge.shutdown_with_drain().await;
                while workers.join_next().await.is_some() {}
            };
            tokio::select! {
                biased;
                () = drained => {}
                () = lifecycle.stopping() => {}
            }
            workers.shutdown().await;
            Ok(())
        })
    }
}

impl Runner {
    /// Nothing is judged before every kind was seen: an owner that is not there yet would be asked for in vain.
    async fn start(&self, monitors: &mut Monitors, workers: &mut JoinSet<()>) {
        self.collector.discover().await;
        monitors.settle();
        if timeout(SYNC_LIMIT, monitors.synced()).await.is_err() {
            tracing::warn!("the garbage collector starts although not all kinds could be listed");
        }
        for _ in 0..self.workers {
            workers.spawn(judge::work(self.collector.clone()));
            workers.spawn(orphan::work(self.collector.clone()));
        }
    }

    /// Follows kinds as they come and go.
    async fn follow_kinds(&self, monitors: &mut Monitors) {
        let mut look_again = None;
        loop {
            let due = [look_again, monitors.next_leave()].into_iter().flatten().min();
            let due = due.unwrap_or_else(|| Instant::now() + REFRESH);
            tokio::select! {
                biased;
                () = self.collector.kinds_changed.notified() => look_again = Some(Instant::now() + LOOK_AGAIN),
                () = sleep_until(due) => look_again = None,
            }
            self.collector.discover().await;
            monitors.settle();
        }
    }
}
