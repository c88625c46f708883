//! What is asked of the graph.

use super::{Graph, Reference, State};
use crate::garbage_collector::identity::Identity;
use crate::garbage_collector::node::{Facts, Slot};
use crate::garbage_collector::uid::Uid;

/// An object that is to be looked at.
#[derive(Clone, Debug)]
pub struct Item {
    pub identity: Identity,
    pub is_observed: bool,
    pub facts: Facts,
}

/// An object that nobody owns any more, as far as the graph knows.
#[derive(Clone, Debug)]
pub struct Unowned {
    pub identity: Identity,
    pub version: u64,
    pub facts: Facts,
}

impl Graph {
    /// An object, unless it is no more.
    pub fn item(&self, uid: &Uid) -> Option<Item> {
        let node = self.nodes.get(self.live(uid)?);
        let is_observed = node.state == State::Observed;
        Some(Item { identity: node.identity.clone(), is_observed, facts: node.facts })
    }

    /// An object all of whose owners are known to be absent. If it still has this version it has no others.
    pub fn unowned(&mut self, uid: &Uid) -> Option<Unowned> {
        let slot = self.live(uid)?;
        let node = self.nodes.get(slot);
        if node.state != State::Observed || node.version == 0 || node.facts.deleting || node.owners.is_empty() {
            return None;
        }
        let namespace = node.identity.namespace.clone();
        for edge in 0..node.owners.len() {
            let edge = &self.nodes.get(slot).owners[edge];
            let uid = self.nodes.get(edge.owner).identity.uid.clone();
            let owner = Identity { kind: edge.kind.clone(), namespace: None, name: edge.name.clone(), uid };
            if !self.is_absent(owner, namespace.as_deref().map(|namespace| &**namespace)) {
                return None;
            }
        }
        let node = self.nodes.get(slot);
        Some(Unowned { identity: node.identity.clone(), version: node.version, facts: node.facts })
    }

    /// Whether the owner that a dependent in a namespace names is known to be absent: as one of the whole cluster, or as one of
    /// that namespace.
    pub fn is_absent(&mut self, mut owner: Identity, namespace: Option<&str>) -> bool {
        owner.namespace = None;
        if self.absent.has(&owner) {
            return true;
        }
        owner.namespace = namespace.map(|namespace| self.namespaces.get(namespace.into()));
        owner.namespace.is_some() && self.absent.has(&owner)
    }

    /// [`is_absent`](Self::is_absent) for a reference.
    pub fn is_absent_reference(&mut self, reference: &Reference, namespace: Option<&str>) -> bool {
        let owner = self.identity_of(reference, None);
        self.is_absent(owner, namespace)
    }

    /// Those that name an object as their owner.
    pub fn dependents_of(&self, uid: &Uid) -> Vec<Identity> {
        self.slots(uid).map(|slot| self.nodes.get(slot).identity.clone()).collect()
    }

    /// Whether an object has dependents, and whether one of them waits for its own.
    pub fn dependents_wait(&self, uid: &Uid) -> (bool, bool) {
        let mut waits = self.slots(uid).map(|slot| self.nodes.get(slot).facts.is_waiting()).peekable();
        (waits.peek().is_some(), waits.any(|waits| waits))
    }

    /// Those that an object has to wait for, and whether each waits for its own dependents.
    pub fn blocking(&self, uid: &Uid) -> Vec<(Uid, bool)> {
        let Some(owner) = self.live(uid) else { return Vec::new() };
        let blocks = |slot: &Slot| self.nodes.get(*slot).owners.iter().any(|edge| edge.owner == owner && edge.blocks);
        let blocking = self.dependents(owner).filter(blocks);
        blocking.map(|slot| (self.uid(slot), self.nodes.get(slot).facts.is_waiting())).collect()
    }

    fn slots(&self, uid: &Uid) -> impl Iterator<Item = Slot> {
        self.live(uid).into_iter().flat_map(|slot| self.dependents(slot))
    }
}
