//! Who owns whom, over all objects of all kinds. Changes come in, what has to be looked at comes out; no IO here.
//!
//! An owner that nobody has shown yet is a virtual node, made from what its dependents say of it. They may be wrong about its
//! kind, name or namespace, so one that is not where they say is gone for those only who said so.

mod change;
mod question;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

pub use question::Item;

use super::absent::Absent;
use super::identity::{Identity, Shared, TypeName};
use super::node::{Edge, Facts, Node, Nodes, Slot, State};
use super::uid::Uid;

/// All objects and who owns whom.
#[derive(Default)]
pub struct Graph {
    nodes: Nodes,
    by_uid: HashMap<Uid, Slot>,
    /// Owner and dependent.
    edges: BTreeSet<(Slot, Slot)>,
    kinds: Shared<TypeName>,
    namespaces: Shared<Box<str>>,
    pub absent: Absent,
}

/// What the server shows of an object.
#[derive(Clone, Debug)]
pub struct Sighting {
    pub namespace: Option<Box<str>>,
    pub name: Box<str>,
    pub uid: Uid,
    pub version: u64,
    pub facts: Facts,
    pub owners: Vec<Reference>,
}

/// A reference to an owner, as an object carries it.
#[derive(Clone, Debug)]
pub struct Reference {
    pub api_version: Box<str>,
    pub kind: Box<str>,
    pub name: Box<str>,
    pub uid: Uid,
    pub blocks: bool,
}

/// What follows from a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Look whether this object is still owned.
    Judge(Uid),
    /// Look at it again, but not at once: it was looked at under another name a moment ago.
    JudgeLater(Uid),
    /// Let its dependents go.
    Orphan(Uid),
    /// The dependent has an owner in another namespace, which can't be.
    InvalidNamespace { dependent: Identity, owner: Identity },
}

impl Graph {
    /// The one copy of the name of a kind.
    pub fn kind(&mut self, api_version: &str, kind: &str) -> Arc<TypeName> {
        self.kinds.get(TypeName { api_version: api_version.into(), kind: kind.into() })
    }

    /// What a reference of a dependent in a namespace means.
    pub fn identity_of(&mut self, reference: &Reference, namespace: Option<&str>) -> Identity {
        Identity {
            kind: self.kind(&reference.api_version, &reference.kind),
            namespace: namespace.map(|namespace| self.namespaces.get(namespace.into())),
            name: (&*reference.name).into(),
            uid: reference.uid.clone(),
        }
    }

    /// How many objects it knows, those included that others only speak of.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.by_uid.len()
    }

    /// Makes the graph smaller by the nodes of a kind that the server has no more. What depends on them is left alone: nobody
    /// can say any more whether they are there.
    pub fn forget_kind(&mut self, kind: &TypeName) {
        let all = self.nodes.iter().filter(|(_, node)| *node.identity.kind == *kind && node.state == State::Observed);
        for slot in all.map(|(slot, _)| slot).collect::<Vec<_>>() {
            self.unlink_owners(slot);
            self.nodes.get_mut(slot).state = State::Virtual;
            if !self.has_dependents(slot) {
                self.free(slot);
            }
        }
    }

    fn live(&self, uid: &Uid) -> Option<Slot> {
        let slot = *self.by_uid.get(uid)?;
        (self.nodes.get(slot).state != State::Gone).then_some(slot)
    }

    fn uid(&self, slot: Slot) -> Uid {
        self.nodes.get(slot).identity.uid.clone()
    }

    /// Those that name a node as their owner, itself left out.
    fn dependents(&self, slot: Slot) -> impl Iterator<Item = Slot> {
        let all = self.edges.range((slot, 0)..=(slot, Slot::MAX)).map(|(_, dependent)| *dependent);
        all.filter(move |dependent| *dependent != slot)
    }

    fn has_dependents(&self, slot: Slot) -> bool {
        self.edges.range((slot, 0)..=(slot, Slot::MAX)).next().is_some()
    }

    /// Takes a node out of the lists of its owners.
    fn unlink_owners(&mut self, slot: Slot) -> Box<[Edge]> {
        let owners = std::mem::take(&mut self.nodes.get_mut(slot).owners);
        for edge in &owners {
            self.edges.remove(&(edge.owner, slot));
            self.release(edge.owner);
        }
        owners
    }

    /// Frees the place of a node that is gone, once nobody names it any more.
    fn release(&mut self, slot: Slot) {
        if self.nodes.is_used(slot) && self.nodes.get(slot).state == State::Gone && !self.has_dependents(slot) {
            self.free(slot);
        }
    }

    fn free(&mut self, slot: Slot) {
        let uid = self.uid(slot);
        self.by_uid.remove(&uid);
        self.nodes.remove(slot);
    }

    fn insert(&mut self, identity: Identity, state: State) -> Slot {
        let uid = identity.uid.clone();
        let node = Node { identity, owners: Box::default(), version: 0, epoch: 0, state, facts: Facts::default() };
        let slot = self.nodes.insert(node);
        self.by_uid.insert(uid, slot);
        slot
    }
}
