//! Nodes that are held for pods that wait: others made room for them there, or their volumes are being made.

use std::collections::HashMap;
use std::sync::Arc;

use crate::demand::Demand;
use crate::node::NodeNumber;
use crate::relation::Relation;

/// All nominations.
#[derive(Default)]
pub struct Nominations {
    by_node: HashMap<NodeNumber, Vec<Nominee>>,
    nodes: HashMap<Arc<str>, NodeNumber>,
}

/// A pod that a node is held for.
#[derive(Clone)]
pub struct Nominee {
    pub uid: Arc<str>,
    pub priority: i32,
    pub demand: Arc<Demand>,
    pub relation: Arc<Relation>,
}

impl Nominations {
    pub fn add(&mut self, node: NodeNumber, nominee: Nominee) {
        self.remove(&nominee.uid);
        self.nodes.insert(nominee.uid.clone(), node);
        self.by_node.entry(node).or_default().push(nominee);
    }

    /// Whether there was one.
    pub fn remove(&mut self, uid: &str) -> bool {
        let Some(node) = self.nodes.remove(uid) else { return false };
        if let Some(nominees) = self.by_node.get_mut(&node) {
            nominees.retain(|nominee| &*nominee.uid != uid);
            if nominees.is_empty() {
                self.by_node.remove(&node);
            }
        }
        true
    }

    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The node that is held for a pod.
    pub fn node_of(&self, uid: &str) -> Option<NodeNumber> {
        self.nodes.get(uid).copied()
    }

    /// Those for whom a node is held.
    pub fn on(&self, node: NodeNumber) -> &[Nominee] {
        self.by_node.get(&node).map_or(&[], Vec::as_slice)
    }

    /// Those for whom a node is held against a pod: they are as important as it.
    pub fn against<'a>(&'a self, node: NodeNumber, uid: &'a str, priority: i32) -> impl Iterator<Item = &'a Nominee> {
        self.on(node).iter().filter(move |nominee| nominee.priority >= priority && &*nominee.uid != uid)
    }
}
