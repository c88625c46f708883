//! The recent changes of one resource: what a watcher reads, and how far back it can resume.

use std::collections::VecDeque;
use std::sync::Arc;

use setpoint_api::Revision;

use crate::bell::Bell;
use crate::key::Key;
use crate::object::Object;

/// One change of one object, as everyone downstream of the log sees it.
#[derive(Debug)]
pub struct Event {
    /// The object's key.
    pub key: Key,
    /// The revision of the change.
    pub revision: Revision,
    /// The object before it.
    pub previous: Option<Arc<Object>>,
    /// The object after it; `None` for a delete.
    pub next: Option<Arc<Object>>,
}

impl Event {
    /// Bytes that only the window keeps alive: the version that this change replaced.
    fn held_bytes(&self) -> usize {
        size_of::<Event>() + self.previous.as_ref().map_or(0, |object| object.memory())
    }

    /// The same, if it is a large version.
    fn large_bytes(&self) -> usize {
        Some(self.held_bytes()).filter(|bytes| *bytes >= LARGE_BYTES).unwrap_or(0)
    }
}

/// How much of the past a window keeps.
#[derive(Clone, Copy, Debug)]
pub struct WindowBounds {
    /// Most events per resource.
    pub events: usize,
    /// Most bytes of replaced versions per resource.
    pub bytes: usize,
    /// Most bytes of replaced versions of [`LARGE_BYTES`] and more per resource. They are few and change little, like
    /// definitions of custom kinds, whose past would take more memory than they do.
    pub large_bytes: usize,
}

/// From here on a version counts as large.
pub const LARGE_BYTES: usize = 256 * 1024;

impl Default for WindowBounds {
    /// Room for some ten seconds of the fastest writing, as kube-apiserver's watch cache has (100,000 events at most), in
    /// at most 32 MiB of replaced versions, 2 MiB of them large.
    fn default() -> WindowBounds {
        WindowBounds { events: 65_536, bytes: 32 * 1024 * 1024, large_bytes: 2 * 1024 * 1024 }
    }
}

/// Recent events of one resource in order.
pub(crate) struct Window {
    events: VecDeque<Arc<Event>>,
    /// Every event after this revision is here.
    floor: Revision,
    bytes: usize,
    large_bytes: usize,
    bounds: WindowBounds,
    /// Tells watchers that there is something new: one wake-up for all events of a group.
    bell: Arc<Bell>,
}

impl Window {
    pub(crate) fn new(floor: Revision, bounds: WindowBounds) -> Window {
        Window { events: VecDeque::new(), floor, bytes: 0, large_bytes: 0, bounds, bell: Arc::default() }
    }

    pub(crate) fn floor(&self) -> Revision {
        self.floor
    }

    /// Adds the newest event, unless the window begins behind it.
    pub(crate) fn push(&mut self, event: Arc<Event>) {
        if event.revision <= self.floor {
            return;
        }
        debug_assert!(self.events.back().is_none_or(|last| last.revision <= event.revision));
        self.bytes += event.held_bytes();
        self.large_bytes += event.large_bytes();
        self.events.push_back(event);
        while self.is_over() {
            self.drop_oldest();
        }
    }

    fn is_over(&self) -> bool {
        let bounds = &self.bounds;
        self.events.len() > bounds.events || self.bytes > bounds.bytes || self.large_bytes > bounds.large_bytes
    }

    /// Drops everything up to and including `revision`.
    pub(crate) fn compact(&mut self, revision: Revision) {
        while self.events.front().is_some_and(|event| event.revision <= revision) {
            self.drop_oldest();
        }
        self.floor = self.floor.max(revision);
    }

    /// Drops the oldest revision: all its events, so that the floor is never inside a transaction.
    fn drop_oldest(&mut self) {
        let Some(oldest) = self.events.front().map(|event| event.revision) else { return };
        while self.events.front().is_some_and(|event| event.revision == oldest) {
            let event = self.events.pop_front().expect("just seen");
            self.bytes -= event.held_bytes();
            self.large_bytes -= event.large_bytes();
        }
        self.floor = oldest;
    }

    /// Wakes the watchers of this resource.
    pub(crate) fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }

    /// Events after `revision`, oldest first.
    pub(crate) fn after(&self, revision: Revision) -> impl DoubleEndedIterator<Item = &Arc<Event>> {
        let has_news = self.events.back().is_some_and(|newest| newest.revision > revision);
        // Watchers who look for more after each event find nothing, most of the time.
        let start = match has_news {
            true => self.events.partition_point(|event| event.revision <= revision),
            false => self.events.len(),
        };
        self.events.range(start..)
    }
}
