//! What really happened: every commit in order, and the state after any of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use setpoint_api::Revision;
use setpoint_store::{Key, Object};

use super::{Dump, text};

/// One change of one object.
#[derive(Clone, Debug)]
pub struct Step {
    pub key: Key,
    pub previous: Option<Arc<Object>>,
    pub next: Option<Arc<Object>>,
}

/// All commits by revision, and the state after the last.
#[derive(Clone, Default)]
pub struct Truth {
    log: BTreeMap<Revision, Vec<Step>>,
    state: BTreeMap<Key, Arc<Object>>,
}

impl Truth {
    /// Adds a commit: for each key the object after it. Commits come in the order of their revisions.
    pub fn commit(&mut self, revision: Revision, changes: Vec<(Key, Option<Arc<Object>>)>) {
        assert!(self.log.keys().next_back().is_none_or(|last| *last < revision), "{revision} was handed out twice");
        let steps = changes.into_iter().map(|(key, next)| {
            let previous = match &next {
                Some(object) => self.state.insert(key.clone(), Arc::clone(object)),
                None => self.state.remove(&key),
            };
            Step { key, previous, next }
        });
        let steps = steps.collect();
        self.log.insert(revision, steps);
    }

    /// Forgets everything after a revision: it was lost.
    pub fn cut(&mut self, revision: Revision) {
        let lost = self.log.split_off(&revision.next());
        for step in lost.into_values().rev().flat_map(|steps| steps.into_iter().rev()) {
            match step.previous {
                Some(object) => self.state.insert(step.key, object),
                None => self.state.remove(&step.key),
            };
        }
    }

    /// The newest commit at or before a revision; zero if there is none.
    pub fn newest_until(&self, revision: Revision) -> Revision {
        self.log.range(..=revision).next_back().map_or(Revision::ZERO, |(newest, _)| *newest)
    }

    /// The newest commit.
    pub fn newest(&self) -> Revision {
        self.newest_until(Revision::new(u64::MAX))
    }

    /// Steps after one revision and up to another, in order.
    pub fn between(&self, after: Revision, until: Revision) -> impl Iterator<Item = (Revision, &Step)> {
        let range = (std::ops::Bound::Excluded(after), std::ops::Bound::Included(until.max(after.next())));
        let steps = self.log.range(range).filter(move |(revision, _)| **revision <= until);
        steps.flat_map(|(revision, steps)| steps.iter().map(|step| (*revision, step)))
    }

    /// Number of changes in all commits.
    pub fn steps(&self) -> usize {
        self.log.values().map(Vec::len).sum()
    }

    /// The revisions of all commits.
    pub fn revisions(&self) -> impl Iterator<Item = Revision> {
        self.log.keys().copied()
    }

    /// Every object after the last commit.
    pub fn state(&self) -> Dump {
        dump(&self.state)
    }

    /// Every object as of a revision, by replay from the beginning.
    pub fn state_at(&self, revision: Revision) -> Dump {
        let mut state = BTreeMap::new();
        for step in self.log.range(..=revision).flat_map(|(_, steps)| steps) {
            match &step.next {
                Some(object) => state.insert(step.key.clone(), Arc::clone(object)),
                None => state.remove(&step.key),
            };
        }
        dump(&state)
    }
}

fn dump(state: &BTreeMap<Key, Arc<Object>>) -> Dump {
    state.iter().map(|(key, object)| (key.clone(), (object.revision(), text(object)))).collect()
}
