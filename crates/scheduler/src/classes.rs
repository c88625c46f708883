//! For each class of pods in use: the nodes that fit, best first, and why the others don't.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::demand::Demand;
use crate::fit::{Reason, obstacles};
use crate::node::{NodeNumber, State};
use crate::score::score;

/// How many verdicts on nodes are kept for classes that no pod waits in: the next pod of a rollout is of the same class as the last.
const VERDICTS_KEPT: usize = 2_000_000;
/// So many classes are kept in any case, and no more than the other.
const CLASSES_KEPT: std::ops::RangeInclusive<usize> = 32..=512;

/// How many times as many classes are kept if pods wait in all of them.
const AWAITED_FACTOR: usize = 4;

/// Nodes of a class are on so many shelves: each zone has its own until there are more zones.
pub const SHELVES: usize = 64;

/// All classes in use.
#[derive(Default)]
pub struct Classes {
    classes: HashMap<u64, Class>,
    /// Moves with every look at a class, to tell which was not looked at for longest.
    clock: u64,
}

/// The nodes as pods of one class see them.
pub struct Class {
    demand: Arc<Demand>,
    /// Nodes that fit, by zone and score; of equals the first.
    shelves: Vec<BTreeSet<(i64, Reverse<NodeNumber>)>>,
    fitting: usize,
    verdicts: Vec<Verdict>,
    reasons: BTreeMap<Reason, usize>,
    /// Nodes that would not fit even if they were empty.
    finals: usize,
    /// Nodes that changed since the class was looked at.
    changed: Vec<NodeNumber>,
    used: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing is known of such a node.
    #[default]
    Unknown,
    Fits {
        score: i64,
        shelf: u8,
    },
    No {
        reasons: Vec<Reason>,
        is_final: bool,
    },
}

/// What a change of a node meant for a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gain {
    pub class: u64,
    /// The class fits somewhere, and did nowhere before.
    pub has_opened: bool,
}

impl Classes {
    /// A class as it is now. Those that pods wait in, `awaited`, are kept longer than others.
    pub fn look(&mut self, demand: &Arc<Demand>, nodes: &[State], awaited: impl Fn(u64) -> bool) -> &Class {
        self.clock += 1;
        if !self.classes.contains_key(&demand.class) {
            self.forget(nodes.len(), awaited);
        }
        let class = self.classes.entry(demand.class).or_insert_with(|| {
            let mut class = Class::new(demand.clone());
            class.look_at_all(nodes);
            class
        });
        class.used = self.clock;
        class.catch_up(nodes);
        class
    }

    /// A class as it was looked at last.
    pub fn get(&self, class: u64) -> Option<&Class> {
        self.classes.get(&class)
    }

    /// Whether a class fits somewhere, as far as is known.
    pub fn is_open(&self, class: u64) -> bool {
        self.classes.get(&class).is_some_and(|class| class.fitting > 0)
    }

    /// A node has changed. Gives the classes with pods that wait, `awaited`, for which it fits now and didn't before.
    pub fn changed(&mut self, number: NodeNumber, nodes: &[State], awaited: impl Fn(u64) -> bool) -> Vec<Gain> {
        let mut gains = Vec::new();
        for (&id, class) in &mut self.classes {
            if !awaited(id) {
                class.changed.push(number);
                if class.changed.len() > nodes.len() {
                    class.changed.sort_unstable();
                    class.changed.dedup();
                }
                continue;
            }
            class.catch_up(nodes);
            let was_closed = class.fitting == 0;
            if class.look_at(number, &nodes[number as usize]) {
                gains.push(Gain { class: id, has_opened: was_closed });
            }
        }
        gains.sort_unstable_by_key(|gain| gain.class);
        gains
    }

    /// Makes room for another class. Pods that wait in a class that had to go are woken by time only; that takes thousands
    /// of pods that fit nowhere, each unlike the others.
    fn forget(&mut self, nodes: usize, awaited: impl Fn(u64) -> bool) {
        let kept = (VERDICTS_KEPT / nodes.max(1)).clamp(*CLASSES_KEPT.start(), *CLASSES_KEPT.end());
        if self.classes.len() < kept {
            return;
        }
        let oldest = |classes: &mut dyn Iterator<Item = (&u64, &Class)>| {
            classes.min_by_key(|(_, class)| class.used).map(|(id, _)| *id)
        };
        let idle = oldest(&mut self.classes.iter().filter(|(id, _)| !awaited(**id)));
        let too_many = self.classes.len() >= AWAITED_FACTOR * kept;
        let goes = idle.or_else(|| too_many.then(|| oldest(&mut self.classes.iter())).flatten());
        if let Some(goes) = goes {
            self.classes.remove(&goes);
        }
    }
}

impl Class {
    fn new(demand: Arc<Demand>) -> Class {
        Class {
            demand,
            shelves: vec![BTreeSet::new(); SHELVES],
            fitting: 0,
            verdicts: Vec::new(),
            reasons: BTreeMap::new(),
            finals: 0,
            changed: Vec::new(),
            used: 0,
        }
    }

    /// The best node.
    pub fn best(&self) -> Option<NodeNumber> {
        if self.fitting == 0 {
            return None;
        }
        self.shelves.iter().filter_map(BTreeSet::last).max().map(|(_, number)| number.0)
    }

    /// The nodes that fit, with their scores, best first, one list for each zone.
    pub fn shelves(&self) -> impl Iterator<Item = impl Iterator<Item = (NodeNumber, i64)>> {
        let shelves = self.shelves.iter().filter(|shelf| !shelf.is_empty());
        shelves.map(|shelf| shelf.iter().rev().map(|(score, number)| (number.0, *score)))
    }

    /// How many shelves have nodes.
    pub fn shelf_count(&self) -> usize {
        self.shelves.iter().filter(|shelf| !shelf.is_empty()).count()
    }

    /// Why nodes don't fit, by how many there are.
    pub fn reasons(&self) -> &BTreeMap<Reason, usize> {
        &self.reasons
    }

    /// How many nodes would not fit even if they were empty.
    pub fn finals(&self) -> usize {
        self.finals
    }

    pub fn verdict(&self, number: NodeNumber) -> &Verdict {
        self.verdicts.get(number as usize).unwrap_or(&Verdict::Unknown)
    }

    fn look_at_all(&mut self, nodes: &[State]) {
        for (number, state) in nodes.iter().enumerate() {
            self.look_at(number as NodeNumber, state);
        }
    }

    fn catch_up(&mut self, nodes: &[State]) {
        let mut changed = std::mem::take(&mut self.changed);
        changed.sort_unstable();
        changed.dedup();
        for number in changed.drain(..) {
            self.look_at(number, &nodes[number as usize]);
        }
        self.changed = changed;
    }

    /// Judges a node again; whether it fits and didn't before.
    fn look_at(&mut self, number: NodeNumber, state: &State) -> bool {
        let fitted = self.forget_verdict(number);
        let Some(offer) = &state.offer else { return false };
        let found = obstacles(&self.demand, offer, &state.load);
        let fits = found.is_empty();
        let verdict = if fits {
            let score = score(&self.demand, offer, &state.load);
            self.shelves[usize::from(state.shelf) % SHELVES].insert((score, Reverse(number)));
            self.fitting += 1;
            Verdict::Fits { score, shelf: state.shelf }
        } else {
            for reason in &found.reasons {
                match self.reasons.get_mut(reason) {
                    Some(count) => *count += 1,
                    None => drop(self.reasons.insert(reason.clone(), 1)),
                }
            }
            self.finals += usize::from(found.is_final);
            Verdict::No { reasons: found.reasons, is_final: found.is_final }
        };
        if self.verdicts.len() <= number as usize {
            self.verdicts.resize(number as usize + 1, Verdict::Unknown);
        }
        self.verdicts[number as usize] = verdict;
        fits && !fitted
    }

    /// Whether it fitted.
    fn forget_verdict(&mut self, number: NodeNumber) -> bool {
        let Some(verdict) = self.verdicts.get_mut(number as usize) else { return false };
        match std::mem::take(verdict) {
            Verdict::Fits { score, shelf } => {
                self.shelves[usize::from(shelf) % SHELVES].remove(&(score, Reverse(number)));
                self.fitting -= 1;
                true
            }
            Verdict::No { reasons, is_final } => {
                for reason in reasons {
                    if let Some(count) = self.reasons.get_mut(&reason) {
                        *count -= 1;
                        if *count == 0 {
                            self.reasons.remove(&reason);
                        }
                    }
                }
                self.finals -= usize::from(is_final);
                false
            }
            Verdict::Unknown => false,
        }
    }
}
