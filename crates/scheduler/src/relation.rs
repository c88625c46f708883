//! What a pod asks of other pods, and what that means for nodes: affinity, anti-affinity and spreading.
//!
//! Everything is answered from [tallies](crate::tally), which are kept while pods come and go: nobody walks over pods.

use std::collections::HashSet;

use crate::demand::Demand;
use crate::fit::{Obstacles, Reason};
use crate::node::{NodeNumber, State};
use crate::queue::Call;
use crate::relations::Relations;
use crate::score::FULL;
use crate::tally::{Ground, TallyId, Term};

/// The label that is different on each node.
pub const HOSTNAME: &str = "kubernetes.io/hostname";

/// What pods that are alike ask of others.
#[derive(Debug, Default)]
pub struct Relation {
    /// Pods of the same namespace with the same labels.
    pub group: u32,
    /// Where pods must be that it wants to be near to.
    pub near: Vec<TallyId>,
    /// Which pods those are: it may be one of them itself.
    pub near_terms: Vec<Term>,
    /// Where no pod may be that it wants to be away from.
    pub away: Vec<TallyId>,
    pub spread: Vec<Spread>,
    pub soft_spread: Vec<Spread>,
    /// Whether nodes without the labels of the soft ones are worse than all others.
    pub needs_labels: bool,
    /// Who it likes to be near to, and how much.
    pub liked: Vec<(TallyId, i64)>,
    /// Where it is counted because of what it asks for, and how much.
    pub holds: Vec<(TallyId, i64)>,
}

/// Pods should be spread over the values of a label.
#[derive(Clone, Debug)]
pub struct Spread {
    pub tally: TallyId,
    pub label: Box<str>,
    pub skew_max: i64,
    pub domains_min: usize,
    /// Whether the pod itself is one of those that are spread.
    pub counts_itself: bool,
}

impl Relations {
    /// Whether other pods can't forbid a node to this one.
    pub fn is_free(&self, relation: &Relation) -> bool {
        relation.near.is_empty()
            && relation.away.is_empty()
            && relation.spread.is_empty()
            && self.live(&self.group(relation).repelled).next().is_none()
    }

    /// Whether other pods make no difference between nodes.
    pub fn is_indifferent(&self, relation: &Relation) -> bool {
        relation.soft_spread.is_empty()
            && relation.liked.is_empty()
            && self.live(&self.group(relation).liked).next().is_none()
    }

    /// What other pods have against this one on a node.
    pub fn obstacle(&self, relation: &Relation, node: NodeNumber, state: &State) -> Option<Obstacles> {
        self.skewed(relation, state).or_else(|| {
            if !self.is_near(relation, node, state) {
                return Some(Obstacles::lasting(Reason::Near));
            }
            if relation.away.iter().any(|id| self.count(*id, node) > 0) {
                return Some(Obstacles::passing(Reason::Away));
            }
            let mut repelled = self.live(&self.group(relation).repelled);
            repelled.any(|id| self.count(id, node) > 0).then(|| Obstacles::passing(Reason::Repelled))
        })
    }

    fn skewed(&self, relation: &Relation, state: &State) -> Option<Obstacles> {
        let offer = state.offer.as_ref()?;
        for spread in &relation.spread {
            let Some(value) = offer.labels.get(&spread.label) else {
                return Some(Obstacles::lasting(Reason::Unlabelled));
            };
            let (tally, ground) = self.tally(spread.tally)?;
            let least = if ground.size() < spread.domains_min { 0 } else { tally.least(ground) };
            if tally.at(value) + i64::from(spread.counts_itself) - least > spread.skew_max {
                return Some(Obstacles::passing(Reason::Skew));
            }
        }
        None
    }

    fn is_near(&self, relation: &Relation, node: NodeNumber, state: &State) -> bool {
        let has_label = |id: &TallyId| {
            let label = self.tally(*id).map(|(_, ground)| &ground.label);
            label.zip(state.offer.as_ref()).is_some_and(|(label, offer)| offer.labels.get(label).is_some())
        };
        if !relation.near.iter().all(has_label) {
            return false;
        }
        // The first of those that want to be together may go anywhere.
        let is_first = || {
            self.is_near_itself(relation)
                && relation.near.iter().all(|id| self.tally(*id).is_none_or(|(tally, _)| tally.is_empty()))
        };
        relation.near.iter().all(|id| self.count(*id, node) > 0) || is_first()
    }

    fn is_near_itself(&self, relation: &Relation) -> bool {
        let group = self.group(relation);
        self.speaks_of(&relation.near_terms, &group.namespace, &group.labels)
    }

    /// What would have to happen for other pods to have less against this one.
    pub fn calls(&self, relation: &Relation) -> Vec<Call> {
        let mut calls = Vec::new();
        calls.extend(relation.near.iter().flat_map(|id| [Call::More(*id), Call::Less(*id)]));
        calls.extend(relation.away.iter().map(|id| Call::Less(*id)));
        calls.extend(self.live(&self.group(relation).repelled).map(Call::Less));
        calls.extend(relation.spread.iter().flat_map(|spread| [Call::More(spread.tally), Call::Less(spread.tally)]));
        let grounds = calls.iter().filter_map(|call| match call {
            Call::More(id) | Call::Less(id) => self.tally_ground(*id),
            _ => None,
        });
        let grounds: HashSet<u32> = grounds.collect();
        calls.extend(grounds.into_iter().map(Call::Ground));
        calls.sort();
        calls.dedup();
        calls
    }

    /// How much better each of these nodes is for the pod because of other pods.
    pub fn scores(&self, relation: &Relation, demand: &Demand, nodes: &[NodeNumber], states: &[State]) -> Vec<i64> {
        let weights = &demand.profile.weights;
        let liked = self.liked(relation, nodes);
        let spread = self.spread(relation, nodes, states);
        liked.iter().zip(spread).map(|(liked, spread)| liked * weights.pod_affinity + spread * weights.spread).collect()
    }

    /// From the node with the pods that are liked least to that with those that are liked most.
    fn liked(&self, relation: &Relation, nodes: &[NodeNumber]) -> Vec<i64> {
        let by: Vec<TallyId> = self.live(&self.group(relation).liked).collect();
        if relation.liked.is_empty() && by.is_empty() {
            return vec![0; nodes.len()];
        }
        let raw = nodes.iter().map(|node| {
            let likes: i64 = relation.liked.iter().map(|(id, weight)| weight * self.count(*id, *node)).sum();
            likes + by.iter().map(|id| self.count(*id, *node)).sum::<i64>()
        });
        let raw: Vec<i64> = raw.collect();
        let (least, most) = (raw.iter().min().copied().unwrap_or(0), raw.iter().max().copied().unwrap_or(0));
        raw.iter().map(|it| if most > least { FULL * (it - least) / (most - least) } else { 0 }).collect()
    }

    /// From the node whose values have most pods already to that with fewest.
    fn spread(&self, relation: &Relation, nodes: &[NodeNumber], states: &[State]) -> Vec<i64> {
        if relation.soft_spread.is_empty() {
            return vec![0; nodes.len()];
        }
        let spreads = relation.soft_spread.iter().map(|spread| (spread, self.tally(spread.tally)));
        let spreads: Vec<_> =
            spreads.map(|(spread, tally)| (spread, tally.map(|it| it.0), tally.map(|it| it.1))).collect();
        let counts = |node: &NodeNumber| {
            !relation.needs_labels
                || spreads.iter().all(|(spread, _, ground)| value_of(*node, spread, *ground, states).is_some())
        };
        let counted: Vec<bool> = nodes.iter().map(counts).collect();
        let mut raw = vec![0.0; nodes.len()];
        for (spread, tally, ground) in &spreads {
            let value = |node| value_of(node, spread, *ground, states);
            let values = nodes.iter().zip(&counted).map(|(node, counted)| value(*node).filter(|_| *counted));
            let values: Vec<Option<&str>> = values.collect();
            let distinct: HashSet<&str> = values.iter().flatten().copied().collect();
            // The more values there are, the fewer pods are at each: a difference of one pod means more.
            let weight = ((distinct.len() + 2) as f64).ln();
            let Some(tally) = tally else { continue };
            for (sum, value) in raw.iter_mut().zip(&values) {
                if let Some(value) = value {
                    *sum += tally.at(value) as f64 * weight + (spread.skew_max - 1) as f64;
                }
            }
        }
        let raw = raw.iter().map(|sum| sum.round() as i64);
        let raw: Vec<Option<i64>> = raw.zip(counted).map(|(sum, counted)| counted.then_some(sum)).collect();
        let (least, most) =
            (raw.iter().flatten().min().copied().unwrap_or(0), raw.iter().flatten().max().copied().unwrap_or(0));
        let normal = raw.iter().map(|it| match it {
            None => 0,
            Some(_) if most == 0 => FULL,
            Some(it) => FULL * (most + least - it) / most,
        });
        normal.collect()
    }

    /// How many a tally has at a node's value.
    fn count(&self, id: TallyId, node: NodeNumber) -> i64 {
        let Some((tally, ground)) = self.tally(id) else { return 0 };
        ground.value(node).map_or(0, |value| tally.at(value))
    }

    /// Those tallies that count something.
    fn live<'a>(&'a self, ids: &'a [TallyId]) -> impl Iterator<Item = TallyId> + 'a {
        ids.iter().copied().filter(|id| self.tally(*id).is_some_and(|(tally, _)| !tally.is_empty()))
    }
}

impl Relation {
    /// All tallies that it needs.
    pub fn tallies(&self) -> impl Iterator<Item = TallyId> {
        let spread = self.spread.iter().chain(&self.soft_spread).map(|spread| spread.tally);
        let weighted = self.liked.iter().chain(&self.holds).map(|(id, _)| *id);
        self.near.iter().chain(&self.away).copied().chain(spread).chain(weighted)
    }
}

/// The value of a node's label that pods are spread by. What the ground knows is at hand; to look among the labels of a node that it
/// leaves out takes longer.
fn value_of<'a>(node: NodeNumber, spread: &Spread, ground: Option<&'a Ground>, states: &'a [State]) -> Option<&'a str> {
    let known = ground.and_then(|ground| ground.value(node)).map(|value| &**value);
    known.or_else(|| states.get(node as usize)?.offer.as_ref()?.labels.get(&spread.label))
}
