//! Whether a watcher got exactly what happened to the objects it asked for.
//!
//! The properties are those that etcd promises of a watch (ordered, unique, reliable, atomic, resumable, bookmarkable, with the right
//! previous version, with creations told from changes, and filtered), in the words of Kubernetes: an object that begins to be
//! selected is ADDED and one that ceases to be is DELETED.

use std::collections::BTreeMap;

use setpoint_api::Revision;
use setpoint_store::{Key, Object, Store, WatchError, WatchEvent, WatchKind, WatchRequest, Watcher};

use super::truth::{Step, Truth};
use super::{Dump, pods, selection, text, text_at};

/// What a watcher asked for.
#[derive(Clone, Debug, Default)]
pub struct Interest {
    pub namespace: Option<&'static str>,
    pub color: Option<&'static str>,
    pub node: Option<&'static str>,
}

impl Interest {
    pub fn request(&self, from: Revision) -> WatchRequest {
        let label = self.color.map(|color| format!("color={color}")).unwrap_or_default();
        let field = self.node.map(|node| format!("spec.node={node}")).unwrap_or_default();
        let namespace = self.namespace.map(str::to_owned);
        WatchRequest { resource: pods(), namespace, selection: selection(&label, &field), from }
    }

    /// The obvious way to decide what the store decides by prepared facts.
    pub fn selects(&self, key: &Key, json: &str) -> bool {
        let is = |asked: Option<&str>, name: &str| asked.is_none() || text_at(json, name) == asked;
        *key.resource() == pods()
            && (self.namespace.is_none() || key.namespace() == self.namespace)
            && is(self.color, "color")
            && is(self.node, "node")
    }

    fn sees(&self, revision: Revision, step: &Step) -> Option<Seen> {
        let selected = |object: &Option<std::sync::Arc<Object>>| {
            object
                .as_ref()
                .map(|object| (object.revision(), text(object)))
                .filter(|(_, json)| self.selects(&step.key, json))
        };
        let (kind, (old, json)) = match (selected(&step.previous), selected(&step.next)) {
            (None, None) => return None,
            (None, Some(next)) => (WatchKind::Added, next),
            (Some(_), Some(next)) => (WatchKind::Modified, next),
            (Some(previous), None) => (WatchKind::Deleted, previous),
        };
        let version = |revision: Revision| format!(r#""resourceVersion":"{revision}""#);
        let json = json.replacen(&version(old), &version(revision), 1);
        Some(Seen { kind, key: step.key.clone(), revision, json })
    }
}

/// An event as a client gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub kind: WatchKind,
    pub key: Key,
    pub revision: Revision,
    pub json: String,
}

impl Seen {
    pub fn of(event: &WatchEvent) -> Seen {
        let mut json = Vec::new();
        event.write_json(&mut json);
        let json = String::from_utf8(json).expect("JSON is UTF-8");
        Seen { kind: event.kind, key: event.key().clone(), revision: event.revision(), json }
    }
}

/// What is wrong with a delivery.
#[derive(Debug, PartialEq, Eq)]
pub enum Violation {
    /// Revisions go back.
    OutOfOrder,
    /// An event comes twice.
    Doubled,
    /// An event is left out.
    Lost,
    /// A part of the events of one revision is left out.
    Split,
    /// No such change happened.
    NeverHappened,
    /// The watcher did not ask for this object.
    NotSelected,
    /// ADDED, MODIFIED and DELETED are mixed up.
    WrongKind,
    /// Another version of the object.
    WrongObject,
    /// The bookmark is past events that were not delivered.
    BookmarkAhead,
    /// The bookmark is before events that were.
    BookmarkBehind,
}

/// Follows one watcher: what it has been told so far, and the objects it would have in its cache.
#[derive(Clone)]
pub struct Checker {
    pub interest: Interest,
    pub bookmark: Revision,
    pub cache: BTreeMap<Key, String>,
    pub events: usize,
}

impl Checker {
    /// A watcher that begins with a list.
    pub fn new(interest: Interest, listed: &Dump, revision: Revision) -> Checker {
        let selected = listed.iter().filter(|(key, (_, json))| interest.selects(key, json));
        let cache = selected.map(|(key, (_, json))| (key.clone(), json.clone())).collect();
        Checker { interest, bookmark: revision, cache, events: 0 }
    }

    /// Takes a delivery, and says what is wrong with it.
    pub fn deliver(&mut self, truth: &Truth, events: &[Seen], bookmark: Revision) -> Result<(), Violation> {
        if bookmark < self.bookmark {
            return Err(Violation::BookmarkBehind);
        }
        let steps = truth.between(self.bookmark, bookmark);
        let expected: Vec<Seen> = steps.filter_map(|(revision, step)| self.interest.sees(revision, step)).collect();
        if events != expected {
            return Err(self.name_violation(truth, events, &expected, bookmark));
        }
        for event in events {
            match event.kind {
                WatchKind::Deleted => self.cache.remove(&event.key),
                WatchKind::Added | WatchKind::Modified => self.cache.insert(event.key.clone(), event.json.clone()),
            };
        }
        self.bookmark = bookmark;
        self.events += events.len();
        Ok(())
    }

    /// The cache is what a list would say now.
    pub fn agrees_with(&self, state: &Dump) -> bool {
        let selected = state.iter().filter(|(key, (_, json))| self.interest.selects(key, json));
        selected.map(|(key, (_, json))| (key, json)).eq(self.cache.iter())
    }

    fn name_violation(&self, truth: &Truth, events: &[Seen], expected: &[Seen], bookmark: Revision) -> Violation {
        let same_place = |a: &Seen, b: &Seen| a.revision == b.revision && a.key == b.key;
        let earlier_again = |at: usize| events[..at].iter().any(|event| same_place(event, &events[at]));
        if events.iter().any(|event| event.revision <= self.bookmark) || (0..events.len()).any(earlier_again) {
            return Violation::Doubled;
        }
        if events.windows(2).any(|pair| pair[0].revision > pair[1].revision) {
            return Violation::OutOfOrder;
        }
        for event in events {
            match expected.iter().find(|right| same_place(right, event)) {
                Some(right) if right.kind != event.kind => return Violation::WrongKind,
                Some(right) if right.json != event.json => return Violation::WrongObject,
                Some(_) => {}
                None if event.revision > bookmark => return Violation::BookmarkBehind,
                None => {
                    let mut steps = truth.between(self.bookmark, bookmark);
                    let happened = steps.any(|(revision, step)| revision == event.revision && step.key == event.key);
                    return if happened { Violation::NotSelected } else { Violation::NeverHappened };
                }
            }
        }
        let missing = expected.iter().find(|right| !events.iter().any(|event| same_place(right, event)));
        match missing {
            Some(missing) if events.iter().any(|event| event.revision == missing.revision) => Violation::Split,
            Some(missing) if events.iter().all(|event| event.revision < missing.revision) => Violation::BookmarkAhead,
            Some(_) => Violation::Lost,
            None => Violation::OutOfOrder,
        }
    }
}

/// A client: lists, watches from the list's revision, and lists again when it is told to.
pub struct Follower {
    pub checker: Checker,
    watcher: Option<Watcher>,
    pub relists: usize,
}

impl Follower {
    pub fn new(store: &Store, interest: Interest, state: &Dump) -> Follower {
        let checker = Checker::new(interest, state, store.snapshot().revision());
        Follower { checker, watcher: None, relists: 0 }
    }

    /// Stops watching, as when a connection is cut.
    pub fn disconnect(&mut self) {
        self.watcher = None;
    }

    /// Takes one batch. Only an error tells that it can't go on.
    pub fn poll(&mut self, store: &Store, truth: &Truth) -> Result<(), WatchError> {
        if self.watcher.is_none() {
            self.watcher = Some(store.watch(self.checker.interest.request(self.checker.bookmark))?);
        }
        let watcher = self.watcher.as_mut().expect("made above");
        let events: Vec<Seen> = watcher.poll()?.iter().map(Seen::of).collect();
        let result = self.checker.deliver(truth, &events, watcher.revision());
        assert_eq!(result, Ok(()), "{:?} at {}", self.checker.interest, self.checker.bookmark);
        Ok(())
    }

    /// Begins again with a list.
    pub fn relist(&mut self, store: &Store, state: &Dump) {
        let relists = self.relists + 1;
        let events = self.checker.events;
        *self = Follower::new(store, self.checker.interest.clone(), state);
        self.relists = relists;
        self.checker.events = events;
    }
}
