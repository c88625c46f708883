//! Keeps a cache equal to the API server: a list or a stream of initial objects, then a watch, again and again.

use std::pin::pin;
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use kube::Client;
use kube::core::Status;
use tokio::time::Instant;

use super::Cached;
use super::figures::Figures;
use super::measure::Measured;
use super::wire::{self, Line, Target};
use crate::clock::Chance;

/// Objects per page of a list. Same as client-go.
pub const PAGE_SIZE: u32 = 500;
/// First wait after a failure. Same as client-go.
pub const BACKOFF_START: Duration = Duration::from_millis(800);
/// Longest wait after failures, before jitter. Same as client-go.
pub const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// Without a failure for so long, waits start from the first again. Same as client-go.
const BACKOFF_RESET: Duration = Duration::from_secs(120);
/// A watch without events that ends sooner is a failure: something between us and the server cuts it.
const SHORT_WATCH: Duration = Duration::from_secs(1);
/// A watch is asked to last between once and twice this, so that not all clients come back at once. Same as client-go.
const WATCH_SECONDS: u64 = 300;

/// A watch that the server has not ended by then hangs on a connection that is no more.
const WATCH_MAX: Duration = Duration::from_secs(2 * WATCH_SECONDS + 30);

/// What a reflector fills, and how it is filled.
pub trait Destination: Sync {
    /// What it keeps of an object.
    type Object: Cached;
    /// A list that is under way.
    type Batch: Send;

    fn client(&self) -> &Client;
    fn target(&self) -> &Target;
    fn chance(&self) -> &Chance;
    fn pace(&self) -> Pace;
    /// The version that it has reached; empty before the first list.
    fn resource_version(&self) -> std::sync::Arc<str>;

    fn begin(&self) -> Self::Batch;
    fn put(&self, batch: &mut Self::Batch, decoded: Measured<Self::Object>);
    fn take(&self, batch: &mut Self::Batch, decoded: Measured<Self::Object>);
    /// Everything else than what is in the batch is gone.
    fn replace(&self, batch: Self::Batch, resource_version: &str);

    fn upsert(&self, decoded: Measured<Self::Object>);
    fn delete(&self, decoded: Measured<Self::Object>);
    fn bookmark(&self, version: &str);

    /// Where it is counted how that goes.
    fn figures(&self) -> &Figures;
}

/// How a server is asked.
#[derive(Clone, Copy)]
pub struct Pace {
    pub page_size: u32,
    pub list_timeout: Duration,
    pub streaming_lists: bool,
}

/// Follows for ever.
pub async fn follow<D: Destination>(core: &D) {
    let mut reflector = Reflector {
        core,
        pace: core.pace(),
        backoff: Backoff::new(core.chance().clone()),
        streaming: core.pace().streaming_lists,
        listed: false,
        unavailable: false,
    };
    loop {
        let outcome = reflector.list_and_watch().await;
        if let Err(failure) = outcome {
            reflector.unavailable = failure.is_expired();
            if failure.is_expired() && reflector.listed {
                // The version that we asked from is gone: the next try asks for the newest, at once, but once only.
                reflector.listed = false;
                continue;
            }
            tracing::warn!(path = core.target().path, error = %failure.0, "a cache can't follow the server and will try again");
            core.figures().failures.add(1);
            reflector.backoff.wait().await;
        }
    }
}

struct Reflector<'a, D> {
    core: &'a D,
    pace: Pace,
    backoff: Backoff,
    streaming: bool,
    /// Whether the last version may be asked for again.
    listed: bool,
    /// Whether the last version can't be had any more, so that only the newest list helps.
    unavailable: bool,
}

/// How a watch ended.
enum End {
    /// As watches do: by its own time or a lost connection. Resume from the last version.
    Closed,
    /// The last version is no longer in the server's window. List again.
    Expired,
    /// The server asks to slow down, or failed; resume after a wait.
    Later(Failure),
}

struct Failure(kube::Error);

impl Failure {
    fn status(&self) -> Option<&Status> {
        match &self.0 {
            kube::Error::Api(status) => Some(status),
            _ => None,
        }
    }

    fn is_expired(&self) -> bool {
        self.status().is_some_and(is_expired)
    }

    /// Whether the server said no to the request itself, not to its moment.
    fn is_refusal(&self) -> bool {
        self.status().is_some_and(|status| matches!(status.code, 400 | 405 | 406 | 415 | 422))
    }
}

impl From<kube::Error> for Failure {
    fn from(error: kube::Error) -> Self {
        Self(error)
    }
}

/// A server that doesn't know streaming lists may take the request for a plain watch, which says nothing when all
/// objects have come. So silence is a refusal.
fn silent() -> Failure {
    let status =
        Status::failure("the stream of initial objects fell silent before its end", "BadRequest").with_code(400);
    Failure(kube::Error::Api(status.boxed()))
}

fn is_expired(status: &Status) -> bool {
    let too_large = status.code == 504 && status.message.contains("Too large resource version");
    status.code == 410 || matches!(status.reason.as_str(), "Expired" | "Gone") || too_large
}

impl<D: Destination> Reflector<'_, D> {
    /// Fills the cache, then watches until a new list is needed.
    async fn list_and_watch(&mut self) -> Result<(), Failure> {
        if self.streaming {
            match self.stream_initial().await {
                Ok(Some(End::Closed)) => {}
                Ok(Some(End::Expired)) => return Ok(()),
                Ok(Some(End::Later(_))) => self.backoff.wait().await,
                Ok(None) => return Ok(()),
                Err(failure) if failure.is_refusal() => {
                    tracing::debug!(path = self.core.target().path, error = %failure.0, "no streaming lists; listing");
                    self.streaming = false;
                    self.list().await?;
                }
                Err(failure) => return Err(failure),
            }
        } else {
            self.list().await?;
        }
        self.listed = true;
        self.watch().await
    }

    /// The version to start from: any at first, then not older than what we have, the newest if that is gone.
    fn start_version(&self, first: &str) -> String {
        match (self.unavailable, &*self.core.resource_version()) {
            (true, _) => String::new(),
            (false, "") => first.to_owned(),
            (false, version) => version.to_owned(),
        }
    }

    /// Fills the cache from a watch that begins with all objects; goes on with the same watch until it ends. `None` if it
    /// ended before all objects had come.
    async fn stream_initial(&mut self) -> Result<Option<End>, Failure> {
        let version = self.start_version("");
        let seconds = self.watch_seconds();
        let query = [
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("sendInitialEvents", "true"),
            ("resourceVersionMatch", "NotOlderThan"),
            ("resourceVersion", &version),
            ("timeoutSeconds", &seconds),
        ];
        let mut lines = pin!(wire::watch::<D::Object>(self.core.client(), self.core.target(), &query).await?);
        let mut objects = self.core.begin();
        loop {
            tokio::task::coop::consume_budget().await;
            let Ok(line) = tokio::time::timeout(self.pace.list_timeout, lines.next()).await else {
                return Err(silent());
            };
            let Some(line) = line else { break };
            match line? {
                Line::Changed(decoded) => self.core.put(&mut objects, decoded),
                Line::Deleted(decoded) => self.core.take(&mut objects, decoded),
                Line::Bookmark { resource_version, ends_initial_events: true } => {
                    self.core.figures().processed(|| self.core.replace(objects, &resource_version));
                    self.unavailable = false;
                    return Ok(Some(self.apply(lines, Instant::now()).await));
                }
                Line::Bookmark { .. } | Line::Unreadable { .. } => {}
                Line::Error(status) => return Err(kube::Error::Api(status).into()),
            }
        }
        self.backoff.wait().await;
        Ok(None)
    }

    /// Fills the cache from a list.
    async fn list(&mut self) -> Result<(), Failure> {
        let version = self.start_version("0");
        let limit = self.pace.page_size.to_string();
        // A list from the server's cache isn't paged by the server; one from a certain version must not ask for pages,
        // or the server would read it from its store.
        let first: &[(&str, &str)] = match version.as_str() {
            "" => &[("limit", &limit)],
            "0" => &[("limit", &limit), ("resourceVersion", "0")],
            version => &[("resourceVersion", version)],
        };
        let mut page = self.page(first).await?;
        let mut objects = self.core.begin();
        loop {
            for decoded in page.items {
                self.core.put(&mut objects, decoded);
            }
            let Some(token) = page.continue_token else { break };
            page = match self.page(&[("limit", &limit), ("continue", &token)]).await {
                Ok(page) => page,
                // The pages of one list are of one version; when it is gone, only a list in one piece is consistent.
                Err(failure) if failure.is_expired() => {
                    objects = self.core.begin();
                    self.page(&[]).await?
                }
                Err(failure) => return Err(failure),
            };
        }
        self.core.figures().processed(|| self.core.replace(objects, &page.resource_version));
        self.unavailable = false;
        Ok(())
    }

    async fn page(&self, query: &[(&str, &str)]) -> Result<wire::Page<D::Object>, Failure> {
        let page = wire::list(self.core.client(), self.core.target(), query);
        match tokio::time::timeout(self.pace.list_timeout, page).await {
            Ok(page) => Ok(page?),
            Err(_) => Err(Failure(kube::Error::Service("the list took too long".into()))),
        }
    }

    /// Watches from the last version until a list is needed.
    async fn watch(&mut self) -> Result<(), Failure> {
        loop {
            let started = Instant::now();
            let seconds = self.watch_seconds();
            let version = self.core.resource_version();
            let query = [
                ("watch", "true"),
                ("allowWatchBookmarks", "true"),
                ("resourceVersion", &*version),
                ("timeoutSeconds", &seconds),
            ];
            let opened = wire::watch::<D::Object>(self.core.client(), self.core.target(), &query).await;
            let end = match opened {
                Ok(lines) => self.apply(pin!(lines), started).await,
                Err(error) => Failure(error).into_end(),
            };
            match end {
                End::Closed => {}
                End::Expired => return Ok(()),
                End::Later(failure) => {
                    tracing::debug!(path = self.core.target().path, error = %failure.0, "a watch ended and will be resumed");
                    self.backoff.wait().await;
                }
            }
        }
    }

    async fn apply(
        &self,
        mut lines: std::pin::Pin<&mut impl Stream<Item = Result<Line<D::Object>, kube::Error>>>,
        started: Instant,
    ) -> End {
        let (figures, mut quiet) = (self.core.figures(), true);
        figures.watches.add(1);
        loop {
            tokio::task::coop::consume_budget().await;
            let Ok(line) = tokio::time::timeout_at(started + WATCH_MAX, lines.next()).await else {
                tracing::debug!(
                    path = self.core.target().path,
                    "a watch outlived its time without an end and is dropped"
                );
                return End::Closed;
            };
            let Some(line) = line else { break };
            quiet = false;
            match line {
                Ok(Line::Changed(decoded)) => figures.processed(|| self.core.upsert(decoded)),
                Ok(Line::Deleted(decoded)) => figures.processed(|| self.core.delete(decoded)),
                Ok(Line::Bookmark { resource_version, .. })
                | Ok(Line::Unreadable { resource_version: Some(resource_version) }) => {
                    self.core.bookmark(&resource_version);
                }
                Ok(Line::Unreadable { resource_version: None }) => {}
                Ok(Line::Error(status)) => return Failure(kube::Error::Api(status)).into_end(),
                Err(error) => {
                    tracing::debug!(path = self.core.target().path, %error, "a watch was cut");
                    return End::Closed;
                }
            }
        }
        if quiet && started.elapsed() < SHORT_WATCH {
            figures.short_watches.add(1);
            return End::Later(Failure(kube::Error::Service(
                "very short watch: no event, and closed within a second".into(),
            )));
        }
        End::Closed
    }

    fn watch_seconds(&self) -> String {
        (WATCH_SECONDS + self.core.chance().below(WATCH_SECONDS + 1)).to_string()
    }
}

impl Failure {
    fn into_end(self) -> End {
        if self.is_expired() { End::Expired } else { End::Later(self) }
    }
}

/// Waits that double, with jitter, and start anew after a quiet time.
struct Backoff {
    next: Duration,
    last: Option<Instant>,
    chance: Chance,
}

impl Backoff {
    fn new(chance: Chance) -> Self {
        Self { next: BACKOFF_START, last: None, chance }
    }

    async fn wait(&mut self) {
        tokio::time::sleep(self.step(Instant::now())).await;
    }

    fn step(&mut self, now: Instant) -> Duration {
        if self.last.is_some_and(|last| now.saturating_duration_since(last) > BACKOFF_RESET) {
            self.next = BACKOFF_START;
        }
        self.last = Some(now);
        let span = self.next;
        self.next = (self.next * 2).min(BACKOFF_MAX);
        self.chance.jitter(span, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn waits_double_to_thirty_seconds_with_jitter_and_start_anew_after_two_quiet_minutes() {
        let mut backoff = Backoff::new(Chance::seeded(1));
        let now = Instant::now();
        for base in [800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000] {
            let span = backoff.step(now).as_millis();
            assert!((base..=2 * base).contains(&span), "{span} for {base}");
        }
        let span = backoff.step(now + Duration::from_secs(121)).as_millis();
        assert!((800..=1600).contains(&span), "{span}");
    }
}
