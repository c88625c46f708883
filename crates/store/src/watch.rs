//! Following the changes of one resource from a known revision on.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use setpoint_api::Revision;
use setpoint_api::kind::GroupResource;

use crate::bell::Listener;
use crate::key::{Key, split};
use crate::object::Object;
use crate::selection::Selection;
use crate::state::{Expired, State};
use crate::window::Event;

/// Most events that a watcher takes at a time, so that one that is far behind doesn't hold them all at once.
pub const BATCH_EVENTS_MAX: usize = 1024;

/// What to watch.
#[derive(Clone, Debug)]
pub struct WatchRequest {
    /// The resource.
    pub resource: GroupResource,
    /// One namespace, or all.
    pub namespace: Option<String>,
    /// Which objects.
    pub selection: Selection,
    /// Everything up to this revision has been seen.
    pub from: Revision,
}

/// How an object changed, as one who sees only selected objects sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchKind {
    /// It was created, or it is selected now and was not before.
    Added,
    /// It was changed and is selected, as before.
    Modified,
    /// It was deleted, or it is not selected any more.
    Deleted,
}

impl WatchKind {
    /// The word that Kubernetes has for it.
    pub fn as_str(self) -> &'static str {
        match self {
            WatchKind::Added => "ADDED",
            WatchKind::Modified => "MODIFIED",
            WatchKind::Deleted => "DELETED",
        }
    }
}

/// One change as a watcher sees it. All watchers share the change itself.
#[derive(Clone, Debug)]
pub struct WatchEvent {
    /// How the object changed.
    pub kind: WatchKind,
    event: Arc<Event>,
}

impl WatchEvent {
    /// The object; the last selected version of one that is gone.
    pub fn object(&self) -> &Object {
        let object = match self.kind {
            WatchKind::Added | WatchKind::Modified => self.event.next.as_ref(),
            WatchKind::Deleted => self.event.previous.as_ref(),
        };
        object.expect("an event is of an object that was selected")
    }

    /// The key of the object.
    pub fn key(&self) -> &Key {
        &self.event.key
    }

    /// The revision of the change, which is the resourceVersion to show.
    pub fn revision(&self) -> Revision {
        self.event.revision
    }

    /// Appends the object's JSON with the event's resourceVersion.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        self.object().write_json_at(self.revision(), out);
    }
}

/// Why a watch can't go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchError {
    /// Events were dropped before this watcher read them, or the revision asked for is too old: list again.
    Expired(Expired),
    /// The revision asked for has not happened yet.
    Future {
        /// The revision asked for.
        asked: Revision,
        /// The newest revision.
        newest: Revision,
    },
    /// The store is closed.
    Closed,
}

impl fmt::Display for WatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WatchError::Expired(Expired { asked, oldest }) => write!(f, "too old resource version: {asked} ({oldest})"),
            WatchError::Future { asked, newest } => {
                write!(f, "revision {asked} has not happened yet, the newest is {newest}")
            }
            WatchError::Closed => f.write_str("the store is closed"),
        }
    }
}

impl std::error::Error for WatchError {}

/// A cursor into a resource's window. It has no queue of its own: one that falls out of the window is told so and ends.
pub struct Watcher {
    state: Arc<State>,
    request: WatchRequest,
    seen: Revision,
    news: Listener,
}

impl Watcher {
    pub(crate) fn new(state: Arc<State>, request: WatchRequest) -> Result<Watcher, WatchError> {
        let newest = state.snapshot().revision();
        if request.from > newest {
            return Err(WatchError::Future { asked: request.from, newest });
        }
        let news = state.subscribe(&request.resource, request.from).map_err(WatchError::Expired)?;
        Ok(Watcher { state, seen: request.from, request, news })
    }

    /// Waits for selected events and returns them in order. May be dropped and called again without losing any.
    pub async fn next(&mut self) -> Result<Vec<WatchEvent>, WatchError> {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// The same for those who poll.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Vec<WatchEvent>, WatchError>> {
        let events = self.poll()?;
        if !events.is_empty() {
            return Poll::Ready(Ok(events));
        }
        self.news.listen(context.waker());
        // What came before we listened rang for others.
        let events = self.poll()?;
        if !events.is_empty() {
            return Poll::Ready(Ok(events));
        }
        if self.state.is_closed() { Poll::Ready(Err(WatchError::Closed)) } else { Poll::Pending }
    }

    /// Selected events that are there now; empty if there are none.
    pub fn poll(&mut self) -> Result<Vec<WatchEvent>, WatchError> {
        loop {
            let resource = &self.request.resource;
            let (events, complete) =
                self.state.events_after(resource, self.seen, BATCH_EVENTS_MAX).map_err(WatchError::Expired)?;
            let done = events.is_empty();
            let selected: Vec<_> = events.into_iter().filter_map(|event| select(&self.request, event)).collect();
            self.seen = self.seen.max(complete);
            if done || !selected.is_empty() {
                return Ok(selected);
            }
        }
    }

    /// Everything up to this revision has been returned: what a bookmark may say.
    pub fn revision(&self) -> Revision {
        self.seen
    }
}

/// The event as someone who sees only the selected objects sees it.
fn select(request: &WatchRequest, event: Arc<Event>) -> Option<WatchEvent> {
    let path = event.key.path();
    if request.namespace.as_deref().is_some_and(|namespace| split(path).0 != Some(namespace)) {
        return None;
    }
    let selected =
        |object: &Option<Arc<Object>>| object.as_ref().is_some_and(|object| request.selection.matches(path, object));
    let kind = match (selected(&event.previous), selected(&event.next)) {
        (false, false) => return None,
        (false, true) => WatchKind::Added,
        (true, true) => WatchKind::Modified,
        (true, false) => WatchKind::Deleted,
    };
    Some(WatchEvent { kind, event })
}
