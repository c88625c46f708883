//! What readers see: the newest durable snapshot, the windows that watchers read, and the roots kept for pages.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use setpoint_api::Revision;
use setpoint_api::kind::GroupResource;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::bell::{Bell, Listener};
use crate::head::Head;
use crate::snapshot::Snapshot;
use crate::window::{Event, Window, WindowBounds};

/// Most roots kept for pages: each may hold objects that have been replaced since.
pub const KEPT_ROOTS_MAX: usize = 64;

/// How long a root is kept after its last page. As long as kube-apiserver keeps history (its compaction interval).
pub const KEPT_ROOT_AGE: Duration = Duration::from_secs(300);

/// A revision that can't be read any more: too old, or lost in a power cut. The answer is 410.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expired {
    /// The revision asked for.
    pub asked: Revision,
    /// The oldest one that can be had.
    pub oldest: Revision,
}

/// Durable changes in order, and the state after the last of them. What a [`crate::Log`] hands to its readers.
pub(crate) struct Group {
    pub(crate) head: Head,
    pub(crate) events: Vec<Arc<Event>>,
}

/// The published side of the store. Writers only ever hold its lock to swap pointers: no reader waits for a disk.
pub(crate) struct State {
    inner: RwLock<Inner>,
    bounds: WindowBounds,
    /// The newest published revision, for those who wait for one.
    revision: watch::Sender<Revision>,
}

struct Inner {
    snapshot: Snapshot,
    windows: HashMap<GroupResource, Window>,
    /// Where windows begin: nothing is known of the changes up to this revision.
    origin: Revision,
    /// Revisions between these (exclusive) were handed out and lost in a power cut; who saw them must list again.
    lost: Vec<(Revision, Revision)>,
    kept: BTreeMap<Revision, (Snapshot, Instant)>,
    /// Nothing will be published any more.
    closed: bool,
}

impl Inner {
    fn window_floor(&self, resource: &GroupResource) -> Revision {
        self.windows.get(resource).map_or(self.origin, Window::floor)
    }

    fn check(&self, resource: &GroupResource, asked: Revision) -> Result<(), Expired> {
        let oldest = self.window_floor(resource);
        let lost = self.lost.iter().find(|(before, after)| *before < asked && asked < *after);
        match lost {
            Some((_, after)) => Err(Expired { asked, oldest: *after }),
            None if asked < oldest => Err(Expired { asked, oldest }),
            None => Ok(()),
        }
    }

    fn compact(&mut self, revision: Revision) {
        let revision = revision.min(self.snapshot.revision());
        self.origin = self.origin.max(revision);
        self.windows.values_mut().for_each(|window| window.compact(revision));
        self.kept.retain(|kept, _| *kept > revision);
        self.lost.retain(|(_, after)| *after > revision);
    }

    fn forget_old_roots(&mut self, now: Instant) {
        self.kept.retain(|_, (_, used)| now.duration_since(*used) < KEPT_ROOT_AGE);
        while self.kept.len() > KEPT_ROOTS_MAX {
            self.kept.pop_first();
        }
    }
}

impl State {
    /// A state at `head`, whose past is unknown.
    pub(crate) fn new(head: Head, bounds: WindowBounds) -> State {
        let origin = head.revision;
        let inner = Inner {
            snapshot: Snapshot::new(head),
            windows: HashMap::new(),
            origin,
            lost: Vec::new(),
            kept: BTreeMap::new(),
            closed: false,
        };
        State { inner: RwLock::new(inner), bounds, revision: watch::Sender::new(origin) }
    }

    /// Makes a group visible: its snapshot and its events at the same moment. Whoever publishes rings the bells when it has
    /// answered: waking a thousand watchers takes longer than one writer should wait.
    #[must_use]
    pub(crate) fn publish(&self, group: Group) -> Vec<Arc<Bell>> {
        let revision = group.head.revision;
        let mut bells: Vec<Arc<Bell>> = Vec::new();
        let mut guard = self.write();
        let inner = &mut *guard;
        for event in group.events {
            let resource = event.key.resource();
            if !inner.windows.contains_key(resource) {
                inner.windows.insert(resource.clone(), Window::new(inner.origin, self.bounds));
            }
            let window = inner.windows.get_mut(resource).expect("just made");
            if !bells.iter().any(|bell| Arc::ptr_eq(bell, window.bell())) {
                bells.push(Arc::clone(window.bell()));
            }
            window.push(event);
        }
        inner.snapshot = Snapshot::new(group.head);
        drop(guard);
        self.revision.send_replace(revision);
        bells
    }

    /// Puts another state in place of the present one, whose past is unknown: watchers are told to list again.
    pub(crate) fn replace(&self, head: Head) {
        let revision = head.revision;
        let mut inner = self.write();
        inner.snapshot = Snapshot::new(head);
        // At the same moment: who looked in between would take what it has for complete.
        inner.compact(revision);
        let bells: Vec<_> = inner.windows.values().map(|window| Arc::clone(window.bell())).collect();
        drop(inner);
        self.revision.send_replace(revision);
        bells.iter().for_each(|bell| bell.ring());
    }

    /// Begins the window of a resource behind a revision: what was before isn't kept.
    pub(crate) fn forget(&self, resource: &GroupResource, floor: Revision) {
        let mut inner = self.write();
        let floor = floor.max(inner.window_floor(resource));
        inner.windows.insert(resource.clone(), Window::new(floor, self.bounds));
    }

    /// Tells all watchers that nothing follows.
    pub(crate) fn close(&self) {
        let mut inner = self.write();
        inner.closed = true;
        let bells: Vec<_> = inner.windows.values().map(|window| Arc::clone(window.bell())).collect();
        drop(inner);
        bells.iter().for_each(|bell| bell.ring());
    }

    /// Whether nothing will be published any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.read().closed
    }

    /// Jumps over revisions that may have been handed out and lost.
    pub(crate) fn skip_lost(&self, before: Revision, after: Revision) {
        let mut inner = self.write();
        inner.lost.push((before, after));
        let head = Head { revision: after, ..inner.snapshot.head().clone() };
        inner.snapshot = Snapshot::new(head);
        drop(inner);
        self.revision.send_replace(after);
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        self.read().snapshot.clone()
    }

    /// Follows the newest published revision.
    pub(crate) fn revisions(&self) -> watch::Receiver<Revision> {
        self.revision.subscribe()
    }

    /// Everything of one resource as it was at an earlier revision: a kept root, or the present with the changes since undone.
    pub(crate) fn snapshot_at(&self, resource: &GroupResource, revision: Revision) -> Result<Snapshot, Expired> {
        let now = Instant::now();
        let mut inner = self.write();
        inner.forget_old_roots(now);
        if let Some((snapshot, used)) = inner.kept.get_mut(&revision) {
            *used = now;
            return Ok(snapshot.clone());
        }
        inner.check(resource, revision)?;
        let newest = inner.snapshot.revision();
        if revision > newest {
            return Err(Expired { asked: revision, oldest: newest });
        }
        let mut head = inner.snapshot.head().clone();
        let events: Vec<_> =
            inner.windows.get(resource).map(|w| w.after(revision).cloned().collect()).unwrap_or_default();
        drop(inner);
        for event in events.iter().rev() {
            head.tables.set(&event.key, event.previous.clone());
        }
        head.revision = revision;
        Ok(Snapshot::new(head))
    }

    /// Keeps a snapshot's root, so that later pages come from the same state.
    pub(crate) fn keep(&self, snapshot: &Snapshot) {
        let now = Instant::now();
        let mut inner = self.write();
        inner.kept.insert(snapshot.revision(), (snapshot.clone(), now));
        inner.forget_old_roots(now);
    }

    /// Forgets the past up to `revision` for all resources.
    pub(crate) fn compact(&self, revision: Revision) {
        self.write().compact(revision);
    }

    /// A place at a resource's bell for a watcher that has seen everything up to `from`.
    pub(crate) fn subscribe(&self, resource: &GroupResource, from: Revision) -> Result<Listener, Expired> {
        let mut inner = self.write();
        inner.check(resource, from)?;
        let (origin, bounds) = (inner.origin, self.bounds);
        let window = inner.windows.entry(resource.clone()).or_insert_with(|| Window::new(origin, bounds));
        Ok(window.bell().listener())
    }

    /// Up to `limit` events after `seen` (a revision is never split), and the revision up to which they are complete.
    pub(crate) fn events_after(
        &self,
        resource: &GroupResource,
        seen: Revision,
        limit: usize,
    ) -> Result<(Vec<Arc<Event>>, Revision), Expired> {
        let inner = self.read();
        let newest = inner.snapshot.revision();
        let Some(window) = inner.windows.get(resource) else { return Ok((Vec::new(), newest)) };
        if seen < window.floor() {
            return Err(Expired { asked: seen, oldest: window.floor() });
        }
        let mut events: Vec<Arc<Event>> = Vec::new();
        for event in window.after(seen) {
            if events.len() >= limit && events.last().is_some_and(|last| last.revision != event.revision) {
                let complete = events.last().expect("limit is at least one").revision;
                return Ok((events, complete));
            }
            events.push(Arc::clone(event));
        }
        Ok((events, newest))
    }

    fn read(&self) -> RwLockReadGuard<'_, Inner> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Inner> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner)
    }
}
