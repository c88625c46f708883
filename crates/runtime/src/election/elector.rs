//! Runs an election against the API server.

use std::future::Future;
use std::time::Duration;

use http::HeaderValue;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::candidate::{Answer, Candidate, Next, Request};
use super::config::{ConfigError, ElectionConfig, JITTER_FACTOR};
use super::fence::Fence;
use super::gate::Term;
use super::record::Record;
use crate::clock::{Chance, Clock};
use crate::metrics::LeaderMetrics;

/// A candidate and the Lease it is about. It leads at most once: who wants to lead again makes a new one.
/// A [`Manager`](crate::manager::Manager) has one if its options say so; by itself it works like this:
///
/// ```no_run
/// # async fn example(client: kube::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use setpoint_runtime::clock::{Chance, Clock};
/// use setpoint_runtime::election::{ElectionConfig, Elector, Ended};
///
/// let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse()?);
/// let config = ElectionConfig::new("shop", "my-operator", "pod-7d9f-1");
/// let elector = Elector::new(config, client.clone(), clock, Chance::seeded(1))?;
/// let leader_only = elector.fence().client(&client);
/// let ended = elector.run(async { /* a signal */ }, || { /* begin to work, with `leader_only` */ }).await;
/// assert_eq!(ended, Ended::Stopped);
/// # let _ = leader_only;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Elector {
    config: ElectionConfig,
    leases: Api<Lease>,
    clock: Clock,
    chance: Chance,
    began: Instant,
    candidate: Candidate,
    /// The Lease as it was last seen: what elections don't use is written back as it was.
    lease: Lease,
    fence: Fence,
    metrics: LeaderMetrics,
}

/// How an election ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// As asked, before or while leading.
    Stopped,
    /// This was the leader and could not renew in time, or another is the leader now.
    LeadershipLost,
}

impl Elector {
    /// A candidate that asks through `client`, which must not be fenced.
    pub fn new(config: ElectionConfig, client: Client, clock: Clock, chance: Chance) -> Result<Elector, ConfigError> {
        config.validate()?;
        let mut lease = Lease::default();
        lease.metadata.name = Some(config.name.clone());
        lease.metadata.namespace = Some(config.namespace.clone());
        Ok(Elector {
            leases: Api::namespaced(client, &config.namespace),
            candidate: Candidate::new(&config.identity, config.lease_duration),
            metrics: LeaderMetrics::default(),
            fence: Fence::new(),
            began: clock.now(),
            lease,
            config,
            clock,
            chance,
        })
    }

    /// Counts into these figures.
    #[must_use]
    pub fn with_metrics(mut self, metrics: LeaderMetrics) -> Elector {
        self.metrics = metrics;
        self
    }

    /// The fence that is open while this leads.
    pub fn fence(&self) -> &Fence {
        &self.fence
    }

    /// Waits for leadership, calls `lead` once, and renews until `stop` ends or leadership is lost. When it returns the
    /// fence is closed. With [`release_on_exit`](ElectionConfig::release_on_exit), what `lead` began must have ended before
    /// `stop` does: the next leader starts at once.
    pub async fn run(mut self, stop: impl Future<Output = ()>, lead: impl FnOnce()) -> Ended {
        let fence = self.fence.clone();
        let ended = {
            tokio::pin!(stop);
            tokio::select! {
                biased;
                () = &mut stop => Ended::Stopped,
                ended = self.campaign(lead) => ended,
            }
        };
        let led = self.metrics.is_leading();
        fence.close();
        self.metrics.leading(false);
        if led && ended == Ended::Stopped && self.config.release_on_exit {
            self.give_back().await;
        }
        ended
    }

    async fn campaign(&mut self, lead: impl FnOnce()) -> Ended {
        let mut renewed_at = self.acquire().await;
        self.metrics.leading(true);
        tracing::info!(lease = %self.config.name, identity = %self.config.identity, "became leader");
        lead();
        loop {
            sleep(self.config.retry_period).await;
            match self.renew(renewed_at + self.config.renew_deadline).await {
                Some(at) => renewed_at = at,
                None => {
                    tracing::warn!(lease = %self.config.name, holder = %self.candidate.holder(), "lost leadership");
                    return Ended::LeadershipLost;
                }
            }
        }
    }

    /// Tries until the Lease is ours; the moment at which the write was sent that made it so.
    async fn acquire(&mut self) -> Instant {
        loop {
            let deadline = self.clock.now() + self.config.renew_deadline;
            if let Attempt::Leading(at) = self.attempt(deadline).await {
                return at;
            }
            let pause = self.chance.jitter(self.config.retry_period, JITTER_FACTOR);
            let left = self.candidate.runs_out_at().map(|at| at.saturating_sub(self.moment()));
            // A Lease that runs out before is looked at then, so that its successor loses no time.
            sleep(left.filter(|left| !left.is_zero()).map_or(pause, |left| pause.min(left))).await;
        }
    }

    /// Tries until the deadline to keep the Lease.
    async fn renew(&mut self, deadline: Instant) -> Option<Instant> {
        loop {
            match self.attempt(deadline).await {
                Attempt::Leading(at) => return Some(at),
                // Another has it: there is nothing left to wait for.
                Attempt::Held => return None,
                Attempt::Failed => (),
            }
            let next = self.clock.now() + self.config.retry_period;
            if next >= deadline {
                sleep_until(deadline).await;
                return None;
            }
            sleep_until(next).await;
        }
    }

    async fn attempt(&mut self, deadline: Instant) -> Attempt {
        let slow_before = self.candidate.slow_paths();
        let mut request = self.candidate.begin(self.moment(), self.wall());
        let outcome = loop {
            let answer = timeout_at(deadline, self.ask(request)).await.unwrap_or(Answer::Failed);
            match self.candidate.answer(answer, self.moment(), self.wall()) {
                Next::Ask(next) => request = next,
                Next::Leading { asked_at, transitions } => break self.lead_from(self.began + asked_at, transitions),
                Next::Held { .. } => break Attempt::Held,
                Next::Failed => break Attempt::Failed,
            }
        };
        self.metrics.slow_paths(self.candidate.slow_paths() - slow_before);
        outcome
    }

    fn lead_from(&self, asked_at: Instant, transitions: i32) -> Attempt {
        let ElectionConfig { namespace, name, identity, .. } = &self.config;
        let header = HeaderValue::from_str(&format!("{namespace}/{name} {identity} {transitions}"));
        let name = header.expect("the configuration was found to have printable names");
        let term = Term {
            begin_until: asked_at + self.config.renew_deadline,
            safe_until: asked_at + self.config.lease_duration,
            name,
        };
        // Too late for this term, though the server took the renewal: whoever slept so long starts anew.
        if self.fence.extend(term) { Attempt::Leading(asked_at) } else { Attempt::Held }
    }

    async fn ask(&mut self, request: Request) -> Answer {
        let answer = match request {
            Request::Get => self.leases.get_opt(&self.config.name).await,
            Request::Create(record) => {
                self.lease.metadata.resource_version = None;
                record.write_to(&mut self.lease);
                self.leases.create(&PostParams::default(), &self.lease).await.map(Some)
            }
            Request::Update(record, version) => {
                self.lease.metadata.resource_version = Some(version);
                record.write_to(&mut self.lease);
                self.leases.replace(&self.config.name, &PostParams::default(), &self.lease).await.map(Some)
            }
        };
        match answer {
            Ok(Some(lease)) => {
                let (record, version) = (Record::of(&lease), lease.metadata.resource_version.clone());
                self.lease = lease;
                Answer::Lease(record, version.unwrap_or_default())
            }
            Ok(None) => Answer::Missing,
            Err(error) => {
                tracing::debug!(lease = %self.config.name, %error, "asking about the lease failed");
                Answer::Failed
            }
        }
    }

    /// Gives the Lease back, unless a write is still under way when it would run out anyway.
    async fn give_back(&mut self) {
        let deadline = self.clock.now() + self.config.renew_deadline;
        if timeout_at(deadline, self.fence.idle()).await.is_err() {
            return;
        }
        // The renewal that was cut off by the end may have happened: only what is read now can be replaced.
        let seen = timeout_at(deadline, self.ask(Request::Get)).await.unwrap_or(Answer::Failed);
        let Answer::Lease(record, version) = seen else { return };
        if let Some(request) = self.candidate.release(&record, &version, self.wall()) {
            let _ = timeout_at(deadline, self.ask(request)).await;
        }
    }

    fn moment(&self) -> Duration {
        self.clock.now() - self.began
    }

    fn wall(&self) -> k8s_openapi::jiff::Timestamp {
        self.clock.micro_time().0
    }
}

enum Attempt {
    Leading(Instant),
    Held,
    Failed,
}
