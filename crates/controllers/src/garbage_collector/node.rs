//! One object of the graph, and the places that objects take.

use std::sync::Arc;

use super::identity::{Identity, TypeName};

/// The place of a node.
pub type Slot = u32;

/// One object, as far as it is known.
#[derive(Debug)]
pub struct Node {
    pub identity: Identity,
    pub owners: Box<[Edge]>,
    /// Its version, or zero if that isn't a number.
    pub version: u64,
    /// The list in which it was last seen.
    pub epoch: u32,
    pub state: State,
    pub facts: Facts,
}

/// How an object is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The server showed it.
    Observed,
    /// Others name it as their owner.
    Virtual,
    /// It is no more, but others still name it.
    Gone,
}

/// What of its metadata counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    pub deleting: bool,
    /// It has the finalizer that waits until its dependents are let go.
    pub orphans: bool,
    /// It has the finalizer that waits until its dependents are deleted.
    pub waits: bool,
}

impl Facts {
    /// Being deleted, after its dependents are let go.
    pub fn is_orphaning(self) -> bool {
        self.deleting && self.orphans
    }

    /// Being deleted, after its dependents are.
    pub fn is_waiting(self) -> bool {
        self.deleting && self.waits
    }
}

/// A reference to an owner. It may call the owner by another name than the owner has.
#[derive(Clone, Debug)]
pub struct Edge {
    pub owner: Slot,
    /// Whether the owner's deletion waits for this object.
    pub blocks: bool,
    pub kind: Arc<TypeName>,
    pub name: Arc<str>,
}

impl Edge {
    /// Whether it means the object at these coordinates.
    pub fn calls(&self, identity: &Identity) -> bool {
        self.kind == identity.kind && self.name == identity.name
    }
}

/// How many nodes have their memory in one piece.
const CHUNK: usize = 1_024;

/// All nodes. They never move, so growing costs nothing but the growth.
#[derive(Default)]
pub struct Nodes {
    chunks: Vec<Box<[Option<Node>]>>,
    free: Vec<Slot>,
}

impl Nodes {
    pub fn insert(&mut self, node: Node) -> Slot {
        if self.free.is_empty() {
            let first = self.chunks.len() * CHUNK;
            // 4 billion objects are more than any memory holds.
            self.free.extend((first..first + CHUNK).rev().map(|slot| u32::try_from(slot).unwrap_or(u32::MAX)));
            self.chunks.push((0..CHUNK).map(|_| None).collect());
        }
        let slot = self.free.pop().unwrap_or(u32::MAX);
        self.chunks[slot as usize / CHUNK][slot as usize % CHUNK] = Some(node);
        slot
    }

    pub fn remove(&mut self, slot: Slot) {
        if self.chunks[slot as usize / CHUNK][slot as usize % CHUNK].take().is_some() {
            self.free.push(slot);
        }
    }

    pub fn is_used(&self, slot: Slot) -> bool {
        self.chunks[slot as usize / CHUNK][slot as usize % CHUNK].is_some()
    }

    pub fn get(&self, slot: Slot) -> &Node {
        self.chunks[slot as usize / CHUNK][slot as usize % CHUNK].as_ref().expect("a slot in use has a node")
    }

    pub fn get_mut(&mut self, slot: Slot) -> &mut Node {
        self.chunks[slot as usize / CHUNK][slot as usize % CHUNK].as_mut().expect("a slot in use has a node")
    }

    pub fn iter(&self) -> impl Iterator<Item = (Slot, &Node)> {
        let all = self.chunks.iter().flatten().enumerate();
        all.filter_map(|(at, node)| Some((u32::try_from(at).ok()?, node.as_ref()?)))
    }
}
