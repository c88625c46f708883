//! Runs controllers and what they need: starts them in order, tells how they are, and stops them in order.
//!
//! - A part starts when those it comes after are ready and, if it needs leadership, once this process leads.
//! - It ends when it is asked to, when it is removed, or when any part fails: then all end and the error is told.
//! - The end has an order: those that nobody needs drain first, then what they came after, the caches last. What hasn't ended
//!   within the limit is told to stop, then aborted; every task is joined before [`Manager::run`] returns.
//! - The lease is given back when all that needed it has ended. If it is lost nothing drains: the fence is closed, all stop.

mod checks;
mod error;
mod parts;
mod runnable;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kube::Client;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

pub use checks::Checks;
pub use error::ManagerError;
use parts::Parts;
pub use runnable::{Lifecycle, RunError, Runnable};

use crate::cache::Informers;
use crate::clock::{Chance, Clock};
use crate::controller::{Controller, ControllerHandle};
use crate::election::{ElectionConfig, Elector, Ended, Fence};
use crate::metrics::Metrics;
use crate::throttle::{ClientOptions, Throttle};

/// What a manager is made with.
#[derive(Clone, Debug)]
pub struct ManagerOptions {
    /// The election to win first; without one, this process leads from the start.
    pub election: Option<ElectionConfig>,
    /// How long parts may take to finish what is queued.
    pub drain_limit: Duration,
    /// How long they may take to return once that is over.
    pub stop_limit: Duration,
    /// How fast requests go to the API server, all clients of the manager together.
    pub client: ClientOptions,
}

impl Default for ManagerOptions {
    fn default() -> Self {
        ManagerOptions {
            election: None,
            drain_limit: Duration::from_secs(30),
            stop_limit: Duration::from_secs(5),
            client: ClientOptions::default(),
        }
    }
}

/// Runs parts. Clones are the same manager, so that parts can be added and removed while it runs.
///
/// ```no_run
/// # async fn doc(client: kube::Client, thermostat: impl setpoint_runtime::manager::Runnable) -> Result<(), Box<dyn std::error::Error>> {
/// use setpoint_runtime::clock::{Chance, Clock};
/// use setpoint_runtime::manager::{Manager, ManagerOptions};
///
/// let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse()?);
/// let manager = Manager::new(client, clock, Chance::seeded(1), ManagerOptions::default())?;
/// manager.add(thermostat)?;
/// manager.run(async { /* a signal */ }).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Manager(Arc<Shared>);

struct Shared {
    parts: Mutex<Parts>,
    /// Told when a part was added, became ready, or may start for another reason.
    changed: Notify,
    elector: Mutex<Option<Elector>>,
    leading: watch::Sender<bool>,
    running: Mutex<bool>,
    controllers: Mutex<BTreeMap<String, ControllerHandle>>,
    options: ManagerOptions,
    client: Client,
    fence: Option<Fence>,
    informers: Informers,
    metrics: Metrics,
    throttle: Throttle,
    health: Checks,
    ready: Checks,
    clock: Clock,
    chance: Chance,
}

impl Manager {
    /// A manager with nothing but its caches.
    pub fn new(client: Client, clock: Clock, chance: Chance, options: ManagerOptions) -> Result<Manager, ManagerError> {
        let (metrics, throttle) = (Metrics::new(), Throttle::new(&options.client));
        let elector = match &options.election {
            Some(config) => {
                let counted = metrics.throttled(&client, &Throttle::none());
                let elector = Elector::new(config.clone(), counted, clock, chance.fork("election"));
                Some(elector.map_err(ManagerError::Election)?.with_metrics(metrics.leader(&config.name)))
            }
            None => None,
        };
        let client = metrics.throttled(&client, &throttle);
        let fence = elector.as_ref().map(|elector| elector.fence().clone());
        let fenced = fence.as_ref().map_or_else(|| client.clone(), |fence| fence.client(&client));
        let informers = Informers::new(client, &chance);
        metrics.caches(informers.clone());
        let manager = Manager(Arc::new(Shared {
            leading: watch::Sender::new(elector.is_none()),
            elector: Mutex::new(elector),
            parts: Mutex::default(),
            changed: Notify::new(),
            running: Mutex::new(false),
            controllers: Mutex::default(),
            client: fenced,
            fence,
            health: Checks::new("healthz"),
            ready: Checks::new("readyz"),
            options,
            metrics,
            throttle,
            clock,
            chance,
            informers: informers.clone(),
        }));
        manager.add_part(Box::new(informers), &[], true)?;
        Ok(manager)
    }

    /// The client for controllers: counted, no faster than [`ClientOptions`] say, and with an election it writes only while this
    /// process leads.
    pub fn client(&self) -> &Client {
        &self.0.client
    }

    /// A client of another identity for one of the controllers: counted, held back and fenced like [`client`](Self::client).
    pub fn guard(&self, client: &Client) -> Client {
        let counted = self.0.metrics.throttled(client, &self.0.throttle);
        self.0.fence.as_ref().map_or_else(|| counted.clone(), |fence| fence.client(&counted))
    }

    /// The shared caches.
    pub fn informers(&self) -> &Informers {
        &self.0.informers
    }

    /// All figures.
    pub fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    /// Whether the process is well: who fails these is to be restarted.
    pub fn health(&self) -> &Checks {
        &self.0.health
    }

    /// Whether it is ready. Each part has a check of its own name; one that waits for leadership passes.
    pub fn ready(&self) -> &Checks {
        &self.0.ready
    }

    /// The clock of all parts.
    pub fn clock(&self) -> Clock {
        self.0.clock
    }

    /// Chance for the part with this name.
    pub fn chance(&self, name: &str) -> Chance {
        self.0.chance.fork(name)
    }

    /// Whether this process leads, and when that changes.
    pub fn leading(&self) -> watch::Receiver<bool> {
        self.0.leading.subscribe()
    }

    /// Adds a part, before or while the manager runs.
    pub fn add(&self, part: impl Runnable) -> Result<(), ManagerError> {
        self.add_part(Box::new(part), &[], false)
    }

    /// Adds a part that starts when those named are ready, and ends before they do.
    pub fn add_after(&self, after: &[&str], part: impl Runnable) -> Result<(), ManagerError> {
        self.add_part(Box::new(part), after, false)
    }

    /// Adds a controller that starts when those named are ready. Its figures and traces are shown with the manager's.
    pub fn add_controller(&self, after: &[&str], controller: Controller) -> Result<(), ManagerError> {
        let handle = controller.handle();
        let (name, read) = (handle.name().to_owned(), handle.clone());
        self.add_part(Box::new(controller), after, false)?;
        self.0.metrics.controller(&name, move || (read.stats(), read.queue().stats()));
        self.0.controllers.lock().unwrap_or_else(PoisonError::into_inner).insert(name, handle);
        Ok(())
    }

    /// What the runs of all controllers did, by controller.
    pub fn traces(&self) -> serde_json::Value {
        let controllers = self.0.controllers.lock().unwrap_or_else(PoisonError::into_inner);
        controllers.iter().map(|(name, handle)| (name.clone(), handle.traces().json())).collect()
    }

    /// Drains, stops and joins a part. Refused while another depends on it.
    pub async fn remove(&self, name: &str) -> Result<(), ManagerError> {
        let removed = self.parts().remove(name)?;
        removed.lifecycle.drain();
        if let Some(task) = removed.task {
            let mut ended = removed.ended;
            let drained = Instant::now() + self.0.options.drain_limit;
            if timeout_at(drained, ended.wait_for(|ended| *ended)).await.is_err() {
                removed.lifecycle.stop();
                let stopped = Instant::now() + self.0.options.stop_limit;
                if timeout_at(stopped, ended.wait_for(|ended| *ended)).await.is_err() {
                    task.abort();
                    let _ = ended.wait_for(|ended| *ended).await;
                }
            }
        }
        self.parts().forget(name);
        self.0.ready.remove(name);
        self.0.metrics.remove_controller(name);
        self.0.controllers.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
        Ok(())
    }

    /// Runs until `stop` ends, then ends all parts in order. Can be called once.
    pub async fn run(&self, stop: impl Future<Output = ()>) -> Result<(), ManagerError> {
        if std::mem::replace(&mut *self.0.running.lock().unwrap_or_else(PoisonError::into_inner), true) {
            return Err(ManagerError::AlreadyRun);
        }
        let mut run =
            Run { manager: self, tasks: JoinSet::new(), election: JoinSet::new(), resign: CancellationToken::new() };
        let fence = run.stand_for_election();
        let outcome = run.until(stop).await;
        if matches!(outcome, Err(ManagerError::LeadershipLost)) {
            self.parts().stop_all();
        }
        let ended = run.shut_down().await;
        if let Some(fence) = fence {
            fence.close();
        }
        outcome.and(ended)
    }

    fn add_part(&self, part: Box<dyn Runnable>, after: &[&str], is_cache: bool) -> Result<(), ManagerError> {
        let name = part.name().to_owned();
        let needs_leadership = part.needs_leadership();
        let lifecycle = self.parts().add(part, after, is_cache)?;
        let leading = self.0.leading.subscribe();
        self.0.ready.add(name, move || match lifecycle.is_ready() || needs_leadership && !*leading.borrow() {
            true => Ok(()),
            false => Err("not ready yet".to_owned()),
        });
        self.0.changed.notify_one();
        Ok(())
    }

    fn parts(&self) -> MutexGuard<'_, Parts> {
        self.0.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The tasks of a manager that runs. Dropping it aborts them all.
struct Run<'a> {
    manager: &'a Manager,
    tasks: JoinSet<(String, Result<(), RunError>)>,
    election: JoinSet<Ended>,
    resign: CancellationToken,
}

impl Run<'_> {
    fn stand_for_election(&mut self) -> Option<Fence> {
        let elector = self.manager.0.elector.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        let (fence, resign, manager) = (elector.fence().clone(), self.resign.clone(), self.manager.clone());
        self.election.spawn(async move {
            let lead = || {
                manager.0.leading.send_replace(true);
                manager.0.changed.notify_one();
            };
            let ended = elector.run(resign.cancelled(), lead).await;
            manager.0.leading.send_replace(false);
            ended
        });
        Some(fence)
    }

    async fn until(&mut self, stop: impl Future<Output = ()>) -> Result<(), ManagerError> {
        tokio::pin!(stop);
        loop {
            self.start_due();
            tokio::select! {
                biased;
                () = &mut stop => return Ok(()),
                Some(_) = self.election.join_next() => return Err(ManagerError::LeadershipLost),
                Some(joined) = self.tasks.join_next() => self.note(joined)?,
                () = self.manager.0.changed.notified() => (),
            }
        }
    }

    fn start_due(&mut self) {
        let leading = *self.manager.0.leading.borrow();
        let due = self.manager.parts().take_due(leading);
        for (runnable, lifecycle) in due {
            let name = runnable.name().to_owned();
            tracing::debug!(part = %name, "starting");
            let (part, manager, ready) = (name.clone(), self.manager.clone(), lifecycle.clone());
            let running = runnable.run(lifecycle);
            let task = self.tasks.spawn(async move {
                let tell_when_ready = async {
                    ready.until_ready().await;
                    manager.0.changed.notify_one();
                    std::future::pending().await
                };
                tokio::select! {
                    ended = running => (part, ended),
                    ended = tell_when_ready => ended,
                }
            });
            self.manager.parts().started(&name, task);
        }
    }

    fn note(&self, joined: Result<(String, Result<(), RunError>), tokio::task::JoinError>) -> Result<(), ManagerError> {
        let mut parts = self.manager.parts();
        match joined {
            Ok((name, ended)) => {
                parts.ended(&name);
                tracing::debug!(part = %name, "ended");
                ended.map_err(|error| ManagerError::Failed { name, error })
            }
            Err(error) => {
                let name = parts.name_of(error.id()).unwrap_or_default();
                parts.ended(&name);
                if error.is_cancelled() { Ok(()) } else { Err(ManagerError::Panicked(name)) }
            }
        }
    }

    /// Ends everything, and tells the first failure on the way.
    async fn shut_down(mut self) -> Result<(), ManagerError> {
        let options = &self.manager.0.options;
        let (drain_limit, stop_limit) = (options.drain_limit, options.stop_limit);
        let mut outcome = self.drain(Instant::now() + drain_limit).await;
        self.manager.parts().stop_all();
        let end = Instant::now() + stop_limit;
        while let Ok(Some(joined)) = timeout_at(end, self.tasks.join_next()).await {
            outcome = outcome.and(self.note(joined));
        }
        self.tasks.abort_all();
        while let Some(joined) = self.tasks.join_next().await {
            outcome = outcome.and(self.note(joined));
        }
        self.resign.cancel();
        while self.election.join_next().await.is_some() {}
        outcome
    }

    /// Asks those to drain that nobody needs any more, until all have ended, time is over, or leadership is lost.
    async fn drain(&mut self, until: Instant) -> Result<(), ManagerError> {
        let mut outcome = Ok(());
        loop {
            self.manager.parts().drain_unneeded();
            tokio::select! {
                biased;
                joined = self.tasks.join_next() => match joined {
                    Some(joined) => outcome = outcome.and(self.note(joined)),
                    None => return outcome,
                },
                Some(_) = self.election.join_next() => return outcome.and(Err(ManagerError::LeadershipLost)),
                () = sleep_until(until) => return outcome,
            }
        }
    }
}

#[cfg(test)]
mod tests;
