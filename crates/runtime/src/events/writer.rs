//! Brings events to the API server.

use std::future::Future;
use std::time::Duration;

use k8s_openapi::api::events::v1::Event;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::{NamespaceResourceScope, Request};
use kube::{Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, sleep_until};

use super::Form;
use super::correlator::{Correlator, SERIES_QUIET, Verdict};
use super::counted;
use crate::clock::{Chance, Clock};
use crate::queue::{Bucket, Limiter};
use crate::retry::{is_already_exists, is_not_found};

/// How often a write is tried while the API server can't be reached, and how long to wait in between.
const TRIES_MAX: u32 = 12;
const RETRY_WAIT: Duration = Duration::from_secs(10);
const RETRY_JITTER: f64 = 0.25;
/// How often series that go on are written again.
const REFRESH: Duration = Duration::from_secs(30 * 60);

#[derive(Debug)]
pub(super) struct Writer {
    client: Hidden,
    clock: Clock,
    chance: Chance,
    correlator: Correlator,
    form: Form,
    pace: Option<Bucket>,
    /// When the next one may be written.
    free_at: Instant,
}

/// `kube::Client` can't be printed.
struct Hidden(Client);

impl std::fmt::Debug for Hidden {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Client")
    }
}

impl Writer {
    pub(super) fn new(client: Client, clock: Clock, chance: Chance) -> Writer {
        Writer {
            client: Hidden(client),
            clock,
            chance,
            correlator: Correlator::new(),
            form: Form::default(),
            pace: None,
            free_at: clock.now(),
        }
    }

    pub(super) fn write_as(&mut self, form: Form) {
        self.form = form;
        self.correlator.tells_each = form != Form::Series;
    }

    pub(super) fn pace(&mut self, bucket: Bucket) {
        self.pace = Some(bucket);
        self.reserve();
    }

    /// Writes what comes until it is time to drain, then what is left and the last counts of all series.
    pub(super) async fn run(&mut self, events: &mut mpsc::Receiver<Event>, draining: impl Future<Output = ()>) {
        let now = self.clock.now();
        let mut finish = interval_at(now + SERIES_QUIET, SERIES_QUIET);
        let mut refresh = interval_at(now + REFRESH, REFRESH);
        finish.set_missed_tick_behavior(MissedTickBehavior::Delay);
        refresh.set_missed_tick_behavior(MissedTickBehavior::Delay);
        tokio::pin!(draining);
        loop {
            tokio::select! {
                biased;
                () = &mut draining => break,
                _ = finish.tick() => self.finish().await,
                _ = refresh.tick() => self.refresh().await,
                event = self.next(events) => match event {
                    Some(event) => self.take(event).await,
                    None => break,
                },
            }
        }
        events.close();
        while let Some(event) = events.recv().await {
            self.take(event).await;
        }
        self.refresh().await;
    }

    /// The next event, as soon as there is a token for it.
    async fn next(&self, events: &mut mpsc::Receiver<Event>) -> Option<Event> {
        if self.free_at > Instant::now() {
            sleep_until(self.free_at).await;
        }
        events.recv().await
    }

    async fn take(&mut self, event: Event) {
        match self.correlator.take(event, Instant::now()) {
            Verdict::Create(event) | Verdict::Patch(event) => self.write(*event).await,
            Verdict::Nothing => return,
        }
        self.reserve();
    }

    /// Takes the token for the next event.
    fn reserve(&mut self) {
        if let Some(pace) = &mut self.pace {
            let now = self.clock.now();
            self.free_at = now + Limiter::<()>::delay(pace, &(), now);
        }
    }

    /// Counts that were always written need no last word.
    async fn finish(&mut self) {
        if self.form != Form::Series {
            return;
        }
        for event in self.correlator.finish(Instant::now()) {
            self.write(event).await;
        }
    }

    async fn refresh(&mut self) {
        if self.form != Form::Series {
            return;
        }
        for event in self.correlator.ongoing() {
            self.write(event).await;
        }
    }

    /// Tries until the server has answered. What it refuses is dropped: it would be refused again.
    async fn write(&mut self, event: Event) {
        for _ in 1..TRIES_MAX {
            match self.attempt(&event).await {
                Ok(()) => return,
                Err(error) if is_already_exists(&error) && event.series.is_none() => return,
                Err(kube::Error::Api(status)) if status.reason != "AlreadyExists" => {
                    tracing::warn!(event = %event.name_any(), %status, "the server refused an event");
                    return;
                }
                Err(error) => tracing::debug!(%error, "an event could not be written"),
            }
            sleep(self.chance.jitter(RETRY_WAIT, RETRY_JITTER)).await;
        }
        if let Err(error) = self.attempt(&event).await {
            tracing::warn!(event = %event.name_any(), %error, "an event was dropped");
        }
    }

    async fn attempt(&self, event: &Event) -> Result<(), kube::Error> {
        match self.form {
            Form::Series => {
                let patch = event.series.as_ref().map(|series| json!({"series": series}));
                self.patch_or_create(event, patch).await
            }
            form => {
                let written = counted::written(event, form == Form::CountedOnHost);
                self.patch_or_create(&written, event.series.as_ref().map(|_| counted::change(&written))).await
            }
        }
    }

    async fn patch_or_create<K>(&self, event: &K, patch: Option<Value>) -> Result<(), kube::Error>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Serialize,
    {
        let namespace = event.namespace().unwrap_or_default();
        let at = Request::new(K::url_path(&(), Some(&namespace)));
        if let Some(patch) = patch {
            match self.send(at.patch(&event.name_any(), &PatchParams::default(), &Patch::Merge(patch))).await {
                // The server forgets events after a while.
                Err(error) if is_not_found(&error) => (),
                answer => return answer,
            }
        }
        let body = serde_json::to_vec(event).map_err(kube::Error::SerdeError)?;
        self.send(at.create(&PostParams::default(), body)).await
    }

    /// The answer would be the event once more; nobody reads it.
    async fn send(
        &self,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<(), kube::Error> {
        let request = request.map_err(kube::Error::BuildRequest)?;
        self.client.0.request::<IgnoredAny>(request).await.map(drop)
    }
}
