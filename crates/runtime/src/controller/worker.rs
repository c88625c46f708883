//! One worker: takes a key, runs the reconciler, and decides what follows.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use kube::Client;
use tokio::time::Instant;

use super::builder::DynReconciler;
use super::consistency::{Consistency, STALE_WAIT};
use super::hot_loop::{HotLoop, HotLoopDetector};
use super::pulse;
use super::recorder::{ACCESSES_MAX, Access, Recorder};
use super::source::Source;
use super::{Action, Context, ControllerStats, Error, Outcome, Trace, Traces};
use crate::Key;
use crate::clock::Clock;
use crate::queue::{Cause, Item, What, WorkQueue};

/// What the workers of a controller share.
pub struct Workplace {
    pub name: Arc<str>,
    pub queue: WorkQueue<Key>,
    pub sources: Arc<[Box<dyn Source>]>,
    pub consistency: Option<Consistency>,
    pub reconcile: DynReconciler,
    pub clock: Clock,
    pub timeout: Duration,
    pub max_retries: Option<u32>,
    pub traces: Traces,
    pub stats: Mutex<ControllerStats>,
    pub hot_loops: Mutex<HotLoopDetector>,
}

pub struct Worker {
    workplace: Arc<Workplace>,
    recorder: Recorder,
    client: Client,
}

/// What is known of a run when it begins.
struct Start {
    at: Instant,
    wall: String,
    attempt: u32,
    caches: Vec<(String, String)>,
    object_version: Option<String>,
}

impl Workplace {
    pub fn stats(&self) -> MutexGuard<'_, ControllerStats> {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Worker {
    pub fn new(workplace: Arc<Workplace>, client: &Client) -> Self {
        let recorder = Recorder::new(Arc::clone(&workplace.name));
        Self { client: recorder.wrap(client.clone()), workplace, recorder }
    }

    /// Works until the queue is shut down and empty.
    pub async fn work(self) {
        while let Some(item) = self.workplace.queue.get().await {
            self.workplace.stats().active_workers += 1;
            self.run(&item).await;
            self.workplace.stats().active_workers -= 1;
            item.done();
            // A key that is always there again must not keep the thread from everybody else.
            tokio::task::coop::consume_budget().await;
        }
    }

    async fn run(&self, item: &Item<'_, Key>) {
        let key = item.key();
        pulse::tell(&self.workplace.name, key);
        if let Some(consistency) = &self.workplace.consistency
            && !consistency.caught_up(key).await
        {
            let start = self.start(key);
            self.workplace.stats().stale += 1;
            let cause = Cause::of(What::StaleCache);
            self.workplace.queue.add_after_because(key.clone(), STALE_WAIT, item.priority(), cause);
            return self.trace(item, start, Vec::new(), (Outcome::StaleCache, Some(STALE_WAIT)), None);
        }
        let start = self.start(key);
        let outcome = self.reconcile(item, start.attempt).await;
        let accesses = self.recorder.take();
        if let Some(consistency) = &self.workplace.consistency {
            consistency.wrote(key, &accesses);
        }
        let hot_loop = self.find_hot_loop(item, &accesses);
        let (outcome, next) = self.follow_up(item, outcome);
        self.count(&outcome, start.at.elapsed());
        self.trace(item, start, accesses, (outcome, next), hot_loop);
    }

    fn start(&self, key: &Key) -> Start {
        let sources = &self.workplace.sources;
        let version = |source: &dyn Source| source.progress().borrow().resource_version.to_string();
        Start {
            at: Instant::now(),
            wall: self.workplace.clock.wall().to_string(),
            attempt: self.workplace.queue.num_requeues(key),
            caches: sources.iter().map(|source| (source.kind().to_owned(), version(&**source))).collect(),
            object_version: sources.first().and_then(|source| source.version_of(key)),
        }
    }

    /// Runs the reconciler once, whatever it does.
    async fn reconcile(&self, item: &Item<'_, Key>, attempt: u32) -> Result<Action, Failure> {
        let context = Context {
            client: self.client.clone(),
            recorder: self.recorder.clone(),
            clock: self.workplace.clock,
            causes: item.causes().clone(),
            attempt,
        };
        let run = AssertUnwindSafe((self.workplace.reconcile)(context, item.key().clone())).catch_unwind();
        match tokio::time::timeout(self.workplace.timeout, run).await {
            Ok(Ok(Ok(action))) => Ok(action),
            Ok(Ok(Err(error))) => Err(Failure::Error(error)),
            Ok(Err(panic)) => Err(Failure::Panic(said(&*panic))),
            Err(_) => Err(Failure::TimedOut),
        }
    }

    /// Puts the key back, or not.
    fn follow_up(&self, item: &Item<'_, Key>, result: Result<Action, Failure>) -> (Outcome, Option<Duration>) {
        let (queue, key) = (&self.workplace.queue, item.key());
        match result {
            Ok(Action { requeue_after: None }) => {
                queue.forget(key);
                (Outcome::Done, None)
            }
            Ok(Action { requeue_after: Some(delay) }) => {
                queue.forget(key);
                queue.add_after_because(key.clone(), delay, item.priority(), Cause::of(What::Requeue));
                (Outcome::RequeueAfter, Some(delay))
            }
            Err(Failure::Error(Error::Terminal(error))) => {
                queue.forget(key);
                (Outcome::Terminal(error.to_string()), None)
            }
            Err(Failure::Error(Error::Conflict(error))) => {
                self.retry(item, Outcome::Conflict(error.to_string()), What::Conflict)
            }
            Err(failure) if self.workplace.max_retries.is_some_and(|max| queue.num_requeues(key) >= max) => {
                queue.forget(key);
                (Outcome::GivenUp(failure.to_string()), None)
            }
            Err(Failure::Error(error)) => self.retry(item, Outcome::Transient(error.to_string()), What::Retry),
            Err(Failure::Panic(message)) => self.retry(item, Outcome::Panicked(message), What::Retry),
            Err(Failure::TimedOut) => self.retry(item, Outcome::TimedOut(self.workplace.timeout), What::Retry),
        }
    }

    fn retry(&self, item: &Item<'_, Key>, outcome: Outcome, what: What) -> (Outcome, Option<Duration>) {
        let (queue, key) = (&self.workplace.queue, item.key());
        queue.add_rate_limited_because(key.clone(), item.priority(), Cause::of(what));
        let next = queue.due(key).map(|due| due.saturating_duration_since(Instant::now()));
        (outcome, Some(next.unwrap_or_default()))
    }

    fn count(&self, outcome: &Outcome, took: Duration) {
        let mut stats = self.workplace.stats();
        stats.time.observe(took);
        let name = &*self.workplace.name;
        match outcome {
            Outcome::Done => stats.success += 1,
            Outcome::RequeueAfter => stats.requeue_after += 1,
            Outcome::Conflict(_) => stats.requeue += 1,
            Outcome::StaleCache => stats.stale += 1,
            Outcome::Transient(error) => tracing::warn!(controller = name, error, "a reconcile failed"),
            Outcome::Terminal(error) => {
                stats.terminal_errors += 1;
                tracing::error!(controller = name, error, "a reconcile failed for good");
            }
            Outcome::GivenUp(error) => {
                stats.given_up += 1;
                tracing::error!(controller = name, error, "a reconcile failed too often and is given up");
            }
            Outcome::TimedOut(limit) => {
                stats.timeouts += 1;
                tracing::warn!(controller = name, ?limit, "a reconcile took too long");
            }
            Outcome::Panicked(message) => {
                stats.panics += 1;
                tracing::error!(controller = name, message, "a reconcile panicked");
            }
        }
        if !matches!(outcome, Outcome::Done | Outcome::RequeueAfter | Outcome::Conflict(_) | Outcome::StaleCache) {
            stats.errors += 1;
        }
    }

    fn find_hot_loop(&self, item: &Item<'_, Key>, accesses: &[Access]) -> Option<HotLoop> {
        let mut detector = self.workplace.hot_loops.lock().unwrap_or_else(PoisonError::into_inner);
        let found = detector.ran(item.key(), item.causes(), accesses)?;
        self.workplace.stats().hot_loops += 1;
        tracing::warn!(
            controller = &*self.workplace.name,
            key = %item.key(),
            object = found.object,
            runs = found.runs,
            fields = found.fields.join(", "),
            "a controller wakes itself by its own writes: these fields change each time"
        );
        Some(found)
    }

    fn trace(
        &self,
        item: &Item<'_, Key>,
        start: Start,
        accesses: Vec<Access>,
        (outcome, next): (Outcome, Option<Duration>),
        hot_loop: Option<HotLoop>,
    ) {
        let accesses = accesses.into_iter().map(|access| Access { answer: None, ..access });
        let (mut writes, reads): (Vec<_>, Vec<_>) = accesses.partition(Access::is_write);
        writes.truncate(ACCESSES_MAX);
        self.workplace.traces.push(Trace {
            controller: self.workplace.name.clone(),
            key: item.key().clone(),
            started: start.wall,
            took_seconds: start.at.elapsed().as_secs_f64(),
            causes: item.causes().clone(),
            attempt: start.attempt,
            caches: start.caches,
            object_version: start.object_version,
            reads,
            writes,
            outcome,
            next_run_seconds: next.map(|next| next.as_secs_f64()),
            hot_loop,
        });
    }
}

enum Failure {
    Error(Error),
    Panic(String),
    TimedOut,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Error(error) => error.fmt(out),
            Self::Panic(message) => write!(out, "panic: {message}"),
            Self::TimedOut => out.write_str("took too long"),
        }
    }
}

fn said(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without a message".to_owned())
}
