//! Counts of pods by a label of the nodes that they are on: what affinity and spreading ask for.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Toleration;
use setpoint_api::labels::Selector;
use setpoint_runtime::cache::Pairs;

use crate::demand::Demand;
use crate::fit::{is_repelled, is_wanted};
use crate::node::{NodeNumber, Offer};

pub type TallyId = u32;
pub type GroundId = u32;

/// Which pods a term speaks of.
#[derive(Clone, Debug)]
pub struct Term {
    pub namespaces: BTreeSet<Box<str>>,
    /// Namespaces by their labels, besides those that are named.
    pub by_label: Option<Selector>,
    pub selector: Selector,
}

impl Term {
    /// Whether it speaks of pods with these labels in a namespace with those.
    pub fn matches(&self, namespace: &str, its_labels: Option<&Pairs>, labels: &Pairs) -> bool {
        let of_label = || {
            self.by_label.as_ref().is_some_and(|selector| match its_labels {
                Some(its_labels) => selector.matches(its_labels),
                None => selector.matches(&Pairs::default()),
            })
        };
        (self.namespaces.contains(namespace) || of_label()) && self.selector.matches(labels)
    }
}

/// What is counted.
#[derive(Clone, Debug)]
pub enum Counted {
    /// Pods that all these terms speak of; terms that speak of everything count nothing where pods are spread.
    Matching(Vec<Term>),
    /// The same, without those that are on their way out.
    Staying(Vec<Term>),
    /// Pods that have this term: none that it speaks of may be near them.
    Repelling(Term),
    /// Pods that have this term, by how much they like those that it speaks of.
    Liking(Term),
}

impl Counted {
    /// Whether it is counted who such pods are.
    pub fn counts(&self, namespace: &str, its_labels: Option<&Pairs>, labels: &Pairs) -> bool {
        match self {
            Counted::Matching(terms) | Counted::Staying(terms) => {
                terms.iter().all(|term| term.matches(namespace, its_labels, labels))
            }
            Counted::Repelling(_) | Counted::Liking(_) => false,
        }
    }

    /// Whether those that are counted speak of such pods.
    pub fn concerns(&self, namespace: &str, its_labels: Option<&Pairs>, labels: &Pairs) -> bool {
        match self {
            Counted::Matching(_) | Counted::Staying(_) => false,
            Counted::Repelling(term) | Counted::Liking(term) => term.matches(namespace, its_labels, labels),
        }
    }
}

/// The nodes that have a label and, where pods are spread, that a pod could be on.
#[derive(Clone, Debug)]
pub struct Ground {
    pub label: Box<str>,
    pub rule: Rule,
    /// The value on each node that belongs to it.
    values: Vec<Option<Arc<str>>>,
    /// How many nodes have each value.
    domains: HashMap<Arc<str>, usize>,
}

/// Which nodes belong to a ground, of those that have its label.
#[derive(Clone, Debug, Default)]
pub struct Rule {
    /// Labels that they need besides.
    pub labels: Vec<Box<str>>,
    /// They have what these pods want.
    pub wanted: Option<Arc<Demand>>,
    /// They have no taint that keeps pods with these away.
    pub tolerations: Option<Box<[Toleration]>>,
}

impl Ground {
    pub fn new(label: &str, rule: Rule) -> Ground {
        Ground { label: label.into(), rule, values: Vec::new(), domains: HashMap::new() }
    }

    /// The value of a node that belongs to it.
    pub fn value(&self, node: NodeNumber) -> Option<&Arc<str>> {
        self.values.get(node as usize)?.as_ref()
    }

    /// How many values there are.
    pub fn size(&self) -> usize {
        self.domains.len()
    }

    /// A node is as told; gives what it was before if that differs.
    pub fn see(&mut self, node: NodeNumber, offer: Option<&Offer>) -> Option<Option<Arc<str>>> {
        let value = offer.filter(|offer| self.rule.admits(offer)).and_then(|offer| offer.labels.get(&self.label));
        if self.value(node).map(|known| &**known) == value {
            return None;
        }
        if self.values.len() <= node as usize {
            self.values.resize(node as usize + 1, None);
        }
        let before = self.values[node as usize].take();
        if let Some(before) = &before
            && let Some(count) = self.domains.get_mut(before)
        {
            *count -= 1;
            if *count == 0 {
                self.domains.remove(before);
            }
        }
        if let Some(value) = value {
            let known = self.domains.get_key_value(value).map(|(known, _)| known.clone());
            let value = known.unwrap_or_else(|| value.into());
            *self.domains.entry(value.clone()).or_default() += 1;
            self.values[node as usize] = Some(value);
        }
        Some(before)
    }
}

impl Rule {
    fn admits(&self, offer: &Offer) -> bool {
        self.labels.iter().all(|label| offer.labels.get(label).is_some())
            && self.wanted.as_ref().is_none_or(|demand| is_wanted(demand, offer))
            && self.tolerations.as_ref().is_none_or(|tolerations| !is_repelled(tolerations, offer))
    }
}

/// Pods that are counted, by the values of a ground.
#[derive(Clone, Debug)]
pub struct Tally {
    pub counted: Counted,
    pub ground: GroundId,
    /// How many there are on each node, in the ground or not.
    on: HashMap<NodeNumber, i64>,
    /// How many there are at each value; those with none aren't here.
    at: HashMap<Arc<str>, i64>,
    /// How many values have each count.
    levels: BTreeMap<i64, usize>,
}

impl Tally {
    pub fn new(counted: Counted, ground: GroundId) -> Tally {
        Tally { counted, ground, on: HashMap::new(), at: HashMap::new(), levels: BTreeMap::new() }
    }

    /// So many more on a node; whether a value has another count now.
    pub fn add(&mut self, node: NodeNumber, more: i64, ground: &Ground) -> bool {
        let here = self.on.entry(node).or_default();
        *here += more;
        if *here == 0 {
            self.on.remove(&node);
        }
        match ground.value(node) {
            Some(value) => {
                self.shift(&value.clone(), more);
                more != 0
            }
            None => false,
        }
    }

    /// A node has moved to another value; whether that changes a count.
    pub fn moved(&mut self, node: NodeNumber, from: Option<&Arc<str>>, to: Option<&Arc<str>>) -> bool {
        let Some(here) = self.on.get(&node).copied() else { return false };
        from.inspect(|from| self.shift(from, -here));
        to.inspect(|to| self.shift(to, here));
        true
    }

    /// How many there are at a value.
    pub fn at(&self, value: &str) -> i64 {
        self.at.get(value).copied().unwrap_or_default()
    }

    /// Whether nothing is counted.
    pub fn is_empty(&self) -> bool {
        self.at.is_empty()
    }

    /// The least count of all values of its ground.
    pub fn least(&self, ground: &Ground) -> i64 {
        if self.at.len() < ground.size() { 0 } else { self.levels.keys().next().copied().unwrap_or_default() }
    }

    fn shift(&mut self, value: &Arc<str>, by: i64) {
        let before = self.at(value);
        let after = before + by;
        if before != 0
            && let Some(values) = self.levels.get_mut(&before)
        {
            *values -= 1;
            if *values == 0 {
                self.levels.remove(&before);
            }
        }
        if after == 0 {
            self.at.remove(value);
        } else {
            self.at.insert(value.clone(), after);
            *self.levels.entry(after).or_default() += 1;
        }
    }
}
