//! All relations between pods that are in use, and the tallies that answer for them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use setpoint_runtime::cache::Pairs;

use crate::node::{NodeNumber, Offer, State};
use crate::queue::Call;
use crate::relation::Relation;
use crate::tally::{Counted, Ground, GroundId, Rule, Tally, TallyId, Term};

/// So many relations may be there before those that nobody needs any more are looked for.
const SWEEP_MIN: usize = 256;

/// Everything that is known of pods in relation to each other.
#[derive(Default)]
pub struct Relations {
    namespaces: HashMap<Box<str>, Pairs>,
    groups: HashMap<u32, Group>,
    group_of: HashMap<Box<str>, u32>,
    tallies: HashMap<TallyId, Tally>,
    tally_of: HashMap<String, TallyId>,
    grounds: HashMap<GroundId, Ground>,
    ground_of: HashMap<String, GroundId>,
    tallies_on: HashMap<GroundId, Vec<TallyId>>,
    relations: HashMap<String, Arc<Relation>>,
    /// What has happened that pods may sleep for.
    calls: HashSet<Call>,
    /// How many reasons there are that what happens now is only imagined.
    imagined: u32,
    sweep_at: usize,
    next: u32,
}

/// Pods of one namespace with the same labels.
#[derive(Debug, Default)]
pub struct Group {
    pub namespace: Box<str>,
    pub labels: Pairs,
    /// How many are on each node: those that stay, and those on their way out.
    on: HashMap<NodeNumber, [i64; 2]>,
    /// The tallies that count them.
    counted: Vec<TallyId>,
    /// The tallies of pods that don't want them near.
    pub repelled: Vec<TallyId>,
    /// The tallies of pods that like them near or far.
    pub liked: Vec<TallyId>,
}

impl Relations {
    /// The relation of this text, which is made if it is new.
    pub fn relation(&mut self, text: String, make: impl FnOnce(&mut Relations) -> Relation) -> Arc<Relation> {
        if let Some(known) = self.relations.get(&text) {
            return known.clone();
        }
        if self.relations.len() >= self.sweep_at {
            self.sweep();
            self.sweep_at = SWEEP_MIN.max(2 * self.relations.len());
        }
        let relation = Arc::new(make(self));
        self.relations.insert(text, relation.clone());
        relation
    }

    /// The group of pods with these labels.
    pub fn group_of(&mut self, namespace: &str, labels: &Pairs) -> u32 {
        let mut text = namespace.to_owned();
        for (name, value) in labels.iter() {
            text.extend(["\n", name, "=", value]);
        }
        if let Some(known) = self.group_of.get(&*text) {
            return *known;
        }
        let mut group = Group { namespace: namespace.into(), labels: labels.clone(), ..Group::default() };
        let its_labels = self.namespaces.get(namespace);
        for (id, tally) in &self.tallies {
            group.meet(*id, &tally.counted, its_labels);
        }
        let id = self.number();
        self.groups.insert(id, group);
        self.group_of.insert(text.into(), id);
        id
    }

    /// The nodes that have a label and keep a rule, which this text tells apart from others.
    pub fn ground_of(&mut self, label: &str, rule: Rule, text: &str, nodes: &[State]) -> GroundId {
        let text = format!("{label}\n{text}");
        if let Some(known) = self.ground_of.get(&text) {
            return *known;
        }
        let mut ground = Ground::new(label, rule);
        for (number, state) in nodes.iter().enumerate() {
            ground.see(number as NodeNumber, state.offer.as_ref());
        }
        let id = self.number();
        self.grounds.insert(id, ground);
        self.ground_of.insert(text, id);
        id
    }

    /// The tally of this on a ground. Pods that have such a term are counted only from now on: nobody had it before.
    pub fn tally_of(&mut self, counted: Counted, ground: GroundId) -> TallyId {
        let text = format!("{ground} {counted:?}");
        if let Some(known) = self.tally_of.get(&text) {
            return *known;
        }
        let id = self.number();
        let mut tally = Tally::new(counted, ground);
        for group in self.groups.values_mut() {
            if group.meet(id, &tally.counted, self.namespaces.get(&group.namespace)) {
                group.enter(&mut tally, &self.grounds[&ground], 1);
            }
        }
        self.tallies.insert(id, tally);
        self.tally_of.insert(text, id);
        self.tallies_on.entry(ground).or_default().push(id);
        id
    }

    /// So many pods more of a relation are on a node.
    pub fn place(&mut self, relation: &Relation, node: NodeNumber, is_leaving: bool, more: i64) {
        let Some(group) = self.groups.get_mut(&relation.group) else { return };
        let here = group.on.entry(node).or_default();
        here[usize::from(is_leaving)] += more;
        if *here == [0, 0] {
            group.on.remove(&node);
        }
        let counted = group.counted.iter().map(|id| (*id, more)).filter(|(id, _)| {
            !(is_leaving && self.tallies.get(id).is_some_and(|tally| matches!(tally.counted, Counted::Staying(_))))
        });
        let held = relation.holds.iter().map(|(id, weight)| (*id, more * weight));
        let changes: Vec<(TallyId, i64)> = counted.chain(held).collect();
        for (id, more) in changes {
            self.add(id, node, more);
        }
    }

    /// A pod of a relation on a node is on its way out.
    pub fn leave(&mut self, relation: &Relation, node: NodeNumber) {
        let Some(group) = self.groups.get_mut(&relation.group) else { return };
        let here = group.on.entry(node).or_default();
        here[0] -= 1;
        here[1] += 1;
        let staying = |id: &&TallyId| self.tallies.get(id).is_some_and(|it| matches!(it.counted, Counted::Staying(_)));
        let staying: Vec<TallyId> = group.counted.iter().filter(staying).copied().collect();
        for id in staying {
            self.add(id, node, -1);
        }
    }

    /// A node is as told, or gone.
    pub fn see_node(&mut self, node: NodeNumber, offer: Option<&Offer>) {
        for (id, ground) in &mut self.grounds {
            let Some(before) = ground.see(node, offer) else { continue };
            let after = ground.value(node).cloned();
            for tally in self.tallies_on.get(id).into_iter().flatten() {
                if let Some(tally) = self.tallies.get_mut(tally) {
                    tally.moved(node, before.as_ref(), after.as_ref());
                }
            }
            self.calls.insert(Call::Ground(*id));
        }
    }

    /// A namespace has these labels, or is gone.
    pub fn see_namespace(&mut self, name: &str, labels: Option<Pairs>) {
        let known = match labels {
            Some(labels) if self.namespaces.get(name) == Some(&labels) => return,
            Some(labels) => self.namespaces.insert(name.into(), labels),
            None => self.namespaces.remove(name),
        };
        drop(known);
        let its_labels = self.namespaces.get(name);
        for group in self.groups.values_mut().filter(|group| &*group.namespace == name) {
            for (id, tally) in &mut self.tallies {
                let was_repelled = group.repelled.contains(id);
                let was = group.forget(*id);
                let is = group.meet(*id, &tally.counted, its_labels);
                if was_repelled && !group.repelled.contains(id) {
                    // Those who repel are as many as before, but not its pods any more.
                    self.calls.insert(Call::Less(*id));
                }
                if was != is {
                    group.enter(tally, &self.grounds[&tally.ground], if is { 1 } else { -1 });
                    self.calls.insert(if is { Call::More(*id) } else { Call::Less(*id) });
                }
            }
        }
    }

    /// Whether there are terms, and all speak of pods with these labels in this namespace.
    pub fn speaks_of(&self, terms: &[Term], namespace: &str, labels: &Pairs) -> bool {
        let its_labels = self.namespaces.get(namespace);
        !terms.is_empty() && terms.iter().all(|term| term.matches(namespace, its_labels, labels))
    }

    /// Does something that isn't true and has to be undone by who asks for it: nobody is called.
    pub fn imagine(&mut self, begins: bool) {
        self.imagined = if begins { self.imagined + 1 } else { self.imagined.saturating_sub(1) };
    }

    /// What has happened since this was asked last.
    pub fn take_calls(&mut self) -> Vec<Call> {
        if self.calls.is_empty() {
            return Vec::new();
        }
        let mut calls: Vec<Call> = self.calls.drain().collect();
        calls.sort();
        calls
    }

    pub fn group(&self, relation: &Relation) -> &Group {
        static NONE: std::sync::LazyLock<Group> = std::sync::LazyLock::new(Group::default);
        self.groups.get(&relation.group).unwrap_or(&NONE)
    }

    pub fn tally(&self, id: TallyId) -> Option<(&Tally, &Ground)> {
        let tally = self.tallies.get(&id)?;
        Some((tally, self.grounds.get(&tally.ground)?))
    }

    pub fn tally_ground(&self, id: TallyId) -> Option<GroundId> {
        self.tallies.get(&id).map(|tally| tally.ground)
    }

    fn add(&mut self, id: TallyId, node: NodeNumber, more: i64) {
        let Some(tally) = self.tallies.get_mut(&id) else { return };
        let Some(ground) = self.grounds.get(&tally.ground) else { return };
        if tally.add(node, more, ground) && self.imagined == 0 {
            self.calls.insert(if more > 0 { Call::More(id) } else { Call::Less(id) });
        }
    }

    fn number(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    /// Forgets what no pod needs any more: every pod that waits or is on a node holds its relation.
    fn sweep(&mut self) {
        self.relations.retain(|_, relation| Arc::strong_count(relation) > 1);
        let tallies: HashSet<TallyId> = self.relations.values().flat_map(|relation| relation.tallies()).collect();
        let groups: HashSet<u32> = self.relations.values().map(|relation| relation.group).collect();
        self.tallies.retain(|id, _| tallies.contains(id));
        self.tally_of.retain(|_, id| tallies.contains(id));
        self.groups.retain(|id, _| groups.contains(id));
        self.group_of.retain(|_, id| groups.contains(id));
        for group in self.groups.values_mut() {
            for list in [&mut group.counted, &mut group.repelled, &mut group.liked] {
                list.retain(|id| tallies.contains(id));
            }
        }
        let grounds: HashSet<GroundId> = self.tallies.values().map(|tally| tally.ground).collect();
        self.grounds.retain(|id, _| grounds.contains(id));
        self.ground_of.retain(|_, id| grounds.contains(id));
        self.tallies_on.retain(|id, _| grounds.contains(id));
        self.tallies_on.values_mut().for_each(|list| list.retain(|id| tallies.contains(id)));
    }
}

impl Group {
    /// Learns what a tally has to do with it; whether it is counted there.
    fn meet(&mut self, id: TallyId, counted: &Counted, its_labels: Option<&Pairs>) -> bool {
        if counted.concerns(&self.namespace, its_labels, &self.labels) {
            match counted {
                Counted::Liking(_) => self.liked.push(id),
                _ => self.repelled.push(id),
            }
        }
        let counts = counted.counts(&self.namespace, its_labels, &self.labels);
        if counts {
            self.counted.push(id);
        }
        counts
    }

    /// Forgets a tally; whether it was counted there.
    fn forget(&mut self, id: TallyId) -> bool {
        self.repelled.retain(|known| *known != id);
        self.liked.retain(|known| *known != id);
        let before = self.counted.len();
        self.counted.retain(|known| *known != id);
        self.counted.len() < before
    }

    /// All of its pods are counted in a tally, or no longer.
    fn enter(&self, tally: &mut Tally, ground: &Ground, sign: i64) {
        let is_staying = matches!(tally.counted, Counted::Staying(_));
        for (node, [staying, leaving]) in &self.on {
            tally.add(*node, sign * (staying + if is_staying { 0 } else { *leaving }), ground);
        }
    }
}
