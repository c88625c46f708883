//! A cache that wakes a controller: which keys its events are for.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::watch;

use super::predicate::Predicate;
use super::recorder::Access;
use crate::Key;
use crate::cache::{Cached, Event, Informer, Progress, Registration, compare_versions};
use crate::queue::{Cause, Priority, WorkQueue};

/// The keys that an object stands for.
pub type Mapper<K> = Arc<dyn Fn(&K) -> Vec<Key> + Send + Sync>;

pub trait Source: Send + Sync {
    /// Puts the keys of all events from here on into a queue; those that can wait, after the time in which they are batched.
    fn listen(&self, queue: WorkQueue<Key>, batch: Duration) -> Registration;
    fn until_synced(&self) -> BoxFuture<'static, ()>;
    /// Whether the cache has a write; `None` if it doesn't follow such objects.
    fn has_seen(&self, write: &Access) -> Option<bool>;
    fn progress(&self) -> watch::Receiver<Progress>;
    fn kind(&self) -> &str;
    /// The version that the cache has of a key.
    fn version_of(&self, key: &Key) -> Option<String>;
}

pub struct InformerSource<K> {
    pub informer: Informer<K>,
    pub mapper: Mapper<K>,
    pub predicate: Option<Predicate<K>>,
    pub resync: Option<Duration>,
    /// Whether its objects are those that the controller is for.
    pub is_primary: bool,
}

impl<K: Cached> Source for InformerSource<K> {
    fn listen(&self, queue: WorkQueue<Key>, batch: Duration) -> Registration {
        let (mapper, predicate, is_primary) = (self.mapper.clone(), self.predicate.clone(), self.is_primary);
        let kind = self.informer.target().kind.clone();
        let handler = move |event: &Event<K>| {
            if !is_of_interest(event, predicate.as_ref()) {
                return;
            }
            let object = event.object();
            let mut keys = mapper(object);
            if let Some(old) = event.old().filter(|_| !event.is_resync()) {
                // An object that moved from one owner to another concerns both.
                keys.extend(mapper(old));
            }
            keys.sort_unstable();
            keys.dedup();
            if keys.is_empty() {
                return;
            }
            let source = format!("{kind} {}", object.key());
            let cause = Cause::from_source(event.what(), source, Some(object.resource_version()));
            let delay = if is_primary && is_new_wish(event) { Duration::ZERO } else { batch };
            for key in keys {
                queue.add_after_because(key, delay, priority(event), cause.clone());
            }
        };
        self.informer.add_handler(Box::new(handler), self.resync)
    }

    fn until_synced(&self) -> BoxFuture<'static, ()> {
        let informer = self.informer.clone();
        Box::pin(async move { informer.until_synced().await })
    }

    fn has_seen(&self, write: &Access) -> Option<bool> {
        let target = self.informer.target();
        let group = target.api_version.rsplit_once('/').map_or("", |(group, _)| group);
        if write.plural != target.plural || write.group != group {
            return None;
        }
        let snapshot = self.informer.lister().snapshot();
        let reached = |version: &str| match &write.resource_version {
            Some(written) => compare_versions(version, written).is_none_or(std::cmp::Ordering::is_ge),
            None => false,
        };
        Some(match snapshot.get(write.key.as_str()) {
            Some(cached) if write.gone => {
                let other = write.uid.as_ref().is_some_and(|uid| **uid != *cached.uid());
                other || reached(cached.resource_version())
            }
            Some(cached) => reached(cached.resource_version()),
            None => write.gone || reached(snapshot.resource_version()),
        })
    }

    fn progress(&self) -> watch::Receiver<Progress> {
        self.informer.progress()
    }

    fn kind(&self) -> &str {
        &self.informer.target().kind
    }

    fn version_of(&self, key: &Key) -> Option<String> {
        self.informer.lister().get(key.as_str()).map(|object| object.resource_version().to_owned())
    }
}

fn is_of_interest<K: Cached>(event: &Event<K>, predicate: Option<&Predicate<K>>) -> bool {
    let Some(predicate) = predicate else { return true };
    match event {
        Event::Added { object, .. } => predicate.passes(None, object),
        Event::Updated { old, new } => event.is_resync() || predicate.passes(Some(old), new),
        Event::Deleted { .. } => true,
    }
}

/// Whether somebody wants something else, rather than that something has happened.
fn is_new_wish<K: Cached>(event: &Event<K>) -> bool {
    match event {
        Event::Added { .. } | Event::Deleted { .. } => true,
        Event::Updated { old, new } => {
            old.generation() != new.generation() || old.is_deleting() != new.is_deleting() || event.is_resync()
        }
    }
}

fn priority<K: Cached>(event: &Event<K>) -> Priority {
    match event {
        Event::Added { is_in_initial_list: true, .. } => Priority::Low,
        Event::Updated { .. } if event.is_resync() => Priority::Low,
        Event::Added { .. } | Event::Updated { .. } | Event::Deleted { .. } => Priority::Normal,
    }
}

/// The key of the owner that controls an object, if the owner is of the followed kind.
pub fn owner_key<O: Cached, K: Cached>(owners: &Informer<O>, object: &K) -> Option<Key> {
    let owner = object.controller()?;
    let target = owners.target();
    let group = |api_version: &str| api_version.rsplit_once('/').map_or(String::new(), |(group, _)| group.to_owned());
    if owner.kind != target.kind || group(owner.api_version) != group(&target.api_version) {
        return None;
    }
    let key = object.key();
    let snapshot = owners.lister().snapshot();
    // An owner is in the namespace of what it owns, or has none; its kind's other objects tell which.
    let namespaced = snapshot.iter().next().is_none_or(|any| any.key().namespace().is_some());
    Some(Key::new(key.namespace().filter(|_| namespaced), owner.name))
}
