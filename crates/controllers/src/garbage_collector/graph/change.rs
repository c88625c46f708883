//! What happens to the graph.

use std::sync::Arc;

use super::{Effect, Graph, Reference, Sighting};
use crate::garbage_collector::identity::{Identity, TypeName};
use crate::garbage_collector::node::{Edge, Facts, Slot, State};
use crate::garbage_collector::uid::Uid;

impl Graph {
    /// The server shows an object, in a list with this number or after it.
    pub fn observe(&mut self, kind: &Arc<TypeName>, epoch: u32, seen: Sighting, effects: &mut Vec<Effect>) {
        let identity = Identity {
            kind: kind.clone(),
            namespace: seen.namespace.map(|namespace| self.namespaces.get(namespace)),
            name: seen.name.into(),
            uid: seen.uid,
        };
        let slot = self.meet(identity, effects);
        let node = self.nodes.get_mut(slot);
        (node.epoch, node.version) = (epoch, seen.version);
        let before = std::mem::replace(&mut node.facts, seen.facts);
        self.set_owners(slot, seen.owners, effects);
        self.follow_transition(slot, before, effects);
    }

    /// The server says that an object is no more.
    pub fn gone(&mut self, uid: &Uid, effects: &mut Vec<Effect>) {
        if let Some(slot) = self.live(uid) {
            self.remove(slot, effects);
        }
    }

    /// A list is complete: what it did not show is no more.
    pub fn sweep(&mut self, kind: &TypeName, epoch: u32, effects: &mut Vec<Effect>) {
        let unseen = self
            .nodes
            .iter()
            .filter(|(_, node)| node.state == State::Observed && node.epoch != epoch && *node.identity.kind == *kind);
        for uid in unseen.map(|(_, node)| node.identity.uid.clone()).collect::<Vec<_>>() {
            self.gone(&uid, effects);
        }
    }

    /// The server was asked for an object at these coordinates, and has none, or another one.
    pub fn not_found(&mut self, mut identity: Identity, is_namespaced: bool, effects: &mut Vec<Effect>) {
        let Some(slot) = self.live(&identity.uid) else { return };
        if !is_namespaced {
            let node = self.nodes.get_mut(slot);
            let is_it = node.state == State::Virtual && node.identity == identity;
            identity.namespace = None;
            if is_it {
                node.identity.namespace = None;
            }
        }
        let (state, is_same) = (self.nodes.get(slot).state, self.nodes.get(slot).identity == identity);
        if state == State::Observed && is_same {
            return self.remove(slot, effects);
        }
        let (right, wrong) = self.partition(slot, &identity);
        if state == State::Virtual && wrong.is_empty() {
            return self.remove(slot, effects);
        }
        if !right.is_empty() {
            self.absent.add(identity.clone());
            effects.extend(right.into_iter().map(|dependent| Effect::Judge(self.uid(dependent))));
        }
        if state == State::Virtual
            && is_same
            && let Some(other) = self.alternate(&wrong, &identity)
        {
            let uid = other.uid.clone();
            self.nodes.get_mut(slot).identity = other;
            effects.push(Effect::JudgeLater(uid));
        }
    }

    /// The place of an object that the server shows.
    fn meet(&mut self, identity: Identity, effects: &mut Vec<Effect>) -> Slot {
        let Some(&slot) = self.by_uid.get(&identity.uid) else { return self.insert(identity, State::Observed) };
        let node = self.nodes.get(slot);
        if node.state == State::Virtual && node.identity != identity {
            self.judge_the_wrong(slot, &identity, effects);
        }
        let node = self.nodes.get_mut(slot);
        (node.identity, node.state) = (identity, State::Observed);
        slot
    }

    /// Dependents that call the owner otherwise than it is called are looked at: they may mean one that isn't there.
    fn judge_the_wrong(&mut self, slot: Slot, owner: &Identity, effects: &mut Vec<Effect>) {
        for dependent in self.partition(slot, owner).1 {
            if is_elsewhere(owner, &self.nodes.get(dependent).identity) {
                self.report_namespace(dependent, slot, effects);
            }
            effects.push(Effect::Judge(self.uid(dependent)));
        }
    }

    fn set_owners(&mut self, slot: Slot, references: Vec<Reference>, effects: &mut Vec<Effect>) {
        let old = std::mem::take(&mut self.nodes.get_mut(slot).owners);
        for edge in old.iter().filter(|edge| edge.blocks) {
            let owner = self.nodes.get(edge.owner);
            let still = |new: &Reference| new.blocks && new.uid == owner.identity.uid;
            if owner.state != State::Gone && !references.iter().any(still) {
                effects.push(Effect::Judge(owner.identity.uid.clone()));
            }
        }
        let mut edges = Vec::with_capacity(references.len());
        let mut is_doubtful = false;
        for reference in references {
            let is_new = !old.iter().any(|edge| self.nodes.get(edge.owner).identity.uid == reference.uid);
            let (edge, doubt) = self.link(slot, reference, is_new && !is_doubtful, effects);
            is_doubtful |= doubt;
            edges.push(edge);
        }
        for edge in old.iter().filter(|edge| !edges.iter().any(|new| new.owner == edge.owner)) {
            self.edges.remove(&(edge.owner, slot));
            self.release(edge.owner);
        }
        self.nodes.get_mut(slot).owners = edges.into();
        if is_doubtful {
            effects.push(Effect::Judge(self.uid(slot)));
        }
    }

    /// Makes a node a dependent of the owner that it names; and whether that owner may be another than it says.
    fn link(&mut self, slot: Slot, reference: Reference, checks: bool, effects: &mut Vec<Effect>) -> (Edge, bool) {
        let kind = self.kind(&reference.api_version, &reference.kind);
        let known = self.by_uid.get(&reference.uid).copied();
        if let Some(owner) = known.filter(|owner| self.nodes.get(*owner).state != State::Gone) {
            self.edges.insert((owner, slot));
            let name = self.shared_name(owner, &reference.name);
            let edge = Edge { owner, blocks: reference.blocks, kind, name };
            let doubt = checks && self.is_doubtful(slot, &edge, effects);
            return (edge, doubt);
        }
        let identity = Identity {
            kind: kind.clone(),
            namespace: self.nodes.get(slot).identity.namespace.clone(),
            name: reference.name.into(),
            uid: reference.uid,
        };
        effects.push(Effect::Judge(identity.uid.clone()));
        let name = identity.name.clone();
        let owner = match known {
            Some(owner) => {
                let node = self.nodes.get_mut(owner);
                (node.identity, node.state, node.facts) = (identity, State::Virtual, Facts::default());
                owner
            }
            None => self.insert(identity, State::Virtual),
        };
        self.edges.insert((owner, slot));
        (Edge { owner, blocks: reference.blocks, kind, name }, false)
    }

    fn shared_name(&self, owner: Slot, name: &str) -> Arc<str> {
        let known = &self.nodes.get(owner).identity.name;
        if **known == *name { known.clone() } else { name.into() }
    }

    fn is_doubtful(&self, slot: Slot, edge: &Edge, effects: &mut Vec<Effect>) -> bool {
        let owner = self.nodes.get(edge.owner);
        if is_elsewhere(&owner.identity, &self.nodes.get(slot).identity) {
            if owner.state == State::Observed {
                self.report_namespace_of(slot, edge, effects);
            }
            return true;
        }
        !edge.calls(&owner.identity)
    }

    fn report_namespace(&self, dependent: Slot, owner: Slot, effects: &mut Vec<Effect>) {
        let edges = self.nodes.get(dependent).owners.iter().filter(|edge| edge.owner == owner);
        edges.for_each(|edge| self.report_namespace_of(dependent, edge, effects));
    }

    fn report_namespace_of(&self, dependent: Slot, edge: &Edge, effects: &mut Vec<Effect>) {
        let dependent = self.nodes.get(dependent).identity.clone();
        let owner = Identity {
            kind: edge.kind.clone(),
            namespace: dependent.namespace.clone(),
            name: edge.name.clone(),
            uid: self.uid(edge.owner),
        };
        effects.push(Effect::InvalidNamespace { dependent, owner });
    }

    fn follow_transition(&mut self, slot: Slot, before: Facts, effects: &mut Vec<Effect>) {
        let now = self.nodes.get(slot).facts;
        if now.is_orphaning() && !before.is_orphaning() {
            effects.push(Effect::Orphan(self.uid(slot)));
        } else if now.is_waiting() && !before.is_waiting() {
            effects.extend(self.dependents(slot).map(|dependent| Effect::Judge(self.uid(dependent))));
            effects.push(Effect::Judge(self.uid(slot)));
        }
    }

    fn remove(&mut self, slot: Slot, effects: &mut Vec<Effect>) {
        let node = self.nodes.get_mut(slot);
        (node.state, node.facts) = (State::Gone, Facts::default());
        let identity = node.identity.clone();
        // While it is gone but named, it holds its place; whoever waited for it looks again.
        for edge in &self.nodes.get(slot).owners {
            let owner = self.nodes.get(edge.owner);
            if owner.state != State::Gone && owner.facts.is_waiting() {
                effects.push(Effect::Judge(owner.identity.uid.clone()));
            }
        }
        let dependents: Vec<_> = self.dependents(slot).map(|dependent| self.uid(dependent)).collect();
        if !dependents.is_empty() {
            self.absent.add(identity);
            effects.extend(dependents.into_iter().map(Effect::Judge));
        }
        self.unlink_owners(slot);
        self.release(slot);
    }

    /// The dependents that call an owner by these coordinates, and those that call it otherwise.
    fn partition(&self, owner: Slot, identity: &Identity) -> (Vec<Slot>, Vec<Slot>) {
        let (mut right, mut wrong) = (Vec::new(), Vec::new());
        for dependent in self.dependents(owner) {
            let node = self.nodes.get(dependent);
            let elsewhere = is_elsewhere(identity, &node.identity);
            let mut edges = node.owners.iter().filter(|edge| edge.owner == owner);
            if !elsewhere && edges.clone().any(|edge| edge.calls(identity)) {
                right.push(dependent);
            }
            if elsewhere || edges.any(|edge| !edge.calls(identity)) {
                wrong.push(dependent);
            }
        }
        (right, wrong)
    }

    /// Under which other coordinates these dependents look for an owner: the next in a fixed order, so that all get their turn.
    fn alternate(&self, dependents: &[Slot], absent: &Identity) -> Option<Identity> {
        let owner = *self.by_uid.get(&absent.uid)?;
        let mut others: Vec<Identity> = Vec::new();
        for &dependent in dependents {
            let node = self.nodes.get(dependent);
            for edge in node.owners.iter().filter(|edge| edge.owner == owner) {
                let is_cluster_wide = absent.namespace.is_none() && edge.kind == absent.kind;
                let namespace = node.identity.namespace.clone().filter(|_| !is_cluster_wide);
                let (kind, name) = (edge.kind.clone(), edge.name.clone());
                others.push(Identity { kind, namespace, name, uid: absent.uid.clone() });
            }
        }
        others.retain(|other| other != absent);
        let order =
            |identity: &Identity| (identity.kind.clone(), identity.name.clone(), identity.namespace().to_owned());
        let next = others.iter().filter(|other| order(other) > order(absent)).min_by_key(|other| order(other));
        next.or_else(|| others.iter().min_by_key(|other| order(other))).cloned()
    }
}

/// Whether an owner has a namespace, and a dependent is not in it.
fn is_elsewhere(owner: &Identity, dependent: &Identity) -> bool {
    owner.namespace.is_some() && owner.namespace != dependent.namespace
}
