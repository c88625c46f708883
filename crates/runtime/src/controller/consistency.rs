//! Read your own writes: a run of a key waits until the caches have what earlier runs of it wrote.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::select_all;
use tokio::time::Instant;

use super::recorder::Access;
use super::source::Source;
use crate::Key;

/// How long a worker waits for the caches before it gives the key back and works on others.
pub const STALE_WAIT: Duration = Duration::from_secs(1);
/// After so long a write is taken as seen: the cache may not select the object at all, and would then never tell.
pub const STALE_GIVE_UP: Duration = Duration::from_secs(60);
/// Most writes per key that are waited for: one of each resource, for caches see versions in order, and deletions that are
/// done at once, which have none.
const WRITES_MAX: usize = 1_024;

/// With more keys than this, those whose writes nobody asked about for [`STALE_GIVE_UP`] are forgotten.
const KEYS_MAX: usize = 10_000;

/// The writes of each key that a cache may not have seen.
#[derive(Clone)]
pub struct Consistency {
    sources: Arc<[Box<dyn Source>]>,
    unseen: Arc<Mutex<HashMap<Key, Unseen>>>,
}

struct Unseen {
    since: Instant,
    writes: Vec<Access>,
}

impl Consistency {
    pub fn new(sources: Arc<[Box<dyn Source>]>) -> Self {
        Self { sources, unseen: Arc::default() }
    }

    /// Notes the writes of a run.
    pub fn wrote(&self, key: &Key, accesses: &[Access]) {
        let writes = accesses.iter().filter(|access| access.is_write() && access.is_success());
        let followed = writes.filter(|write| self.sources.iter().any(|source| source.has_seen(write) == Some(false)));
        let writes: Vec<_> = followed.cloned().map(|write| Access { answer: None, ..write }).collect();
        if writes.is_empty() {
            return;
        }
        let mut unseen = self.lock();
        if unseen.len() >= KEYS_MAX {
            unseen.retain(|_, noted| noted.since.elapsed() < STALE_GIVE_UP);
        }
        let noted = unseen.entry(key.clone()).or_insert_with(|| Unseen { since: Instant::now(), writes: Vec::new() });
        noted.since = Instant::now();
        noted.writes.retain(|old| !writes.iter().any(|new| new.plural == old.plural && new.key == old.key));
        noted.writes.extend(writes);
        let (plain, gone): (Vec<_>, Vec<_>) = noted.writes.drain(..).partition(|write| !write.gone);
        let is_newest = |write: &&Access| !plain.iter().any(|other| write.is_older_than(other));
        noted.writes = gone.into_iter().chain(plain.iter().filter(is_newest).cloned()).collect();
        let excess = noted.writes.len().saturating_sub(WRITES_MAX);
        noted.writes.drain(..excess);
    }

    /// Waits until the caches have the writes of a key, for at most [`STALE_WAIT`]; whether they have.
    pub async fn caught_up(&self, key: &Key) -> bool {
        if self.has_caught_up(key) {
            return true;
        }
        let deadline = Instant::now() + STALE_WAIT;
        let mut progress: Vec<_> = self.sources.iter().map(|source| source.progress()).collect();
        while !self.has_caught_up(key) {
            let changes = progress.iter_mut().map(|progress| Box::pin(progress.changed()));
            if tokio::time::timeout_at(deadline, select_all(changes)).await.is_err() {
                return self.has_caught_up(key);
            }
        }
        true
    }

    fn has_caught_up(&self, key: &Key) -> bool {
        let mut unseen = self.lock();
        let Some(noted) = unseen.get_mut(key) else { return true };
        noted.writes.retain(|write| self.sources.iter().any(|source| source.has_seen(write) == Some(false)));
        let caught_up = noted.writes.is_empty() || noted.since.elapsed() >= STALE_GIVE_UP;
        if caught_up {
            unseen.remove(key);
        }
        caught_up
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Unseen>> {
        self.unseen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
