//! For each class of pods in use: the nodes that fit, best first, and why the others don't.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::demand::Demand;
use crate::fit::{Reason, obstacles};
use crate::node::State;
use crate::score::score;

/// The number of a node, for as long as the scheduler knows it.
pub type NodeNumber = u32;

/// Classes that are kept although no pod of them waits: the next pod of a rollout is of the same class as the last.
const CLASSES_KEPT: usize = 32;

/// All classes in use.
#[derive(Default)]
pub struct Classes {
    classes: HashMap<Arc<str>, Class>,
    /// Moves with every look at a class, to tell which was not looked at for longest.
    clock: u64,
}

struct Class {
    demand: Arc<Demand>,
    /// Nodes that fit, by score; of equals the first.
    fitting: BTreeSet<(i64, std::cmp::Reverse<NodeNumber>)>,
    verdicts: HashMap<NodeNumber, Verdict>,
    reasons: BTreeMap<Reason, usize>,
    used: u64,
    /// How many pods of it wait.
    waiting: usize,
}

enum Verdict {
    Fits(i64),
    No(Vec<Reason>),
}

impl Classes {
    /// The best node for pods of a class. `nodes` are all, to look at once if the class is new.
    pub fn best<'a>(
        &mut self,
        demand: &Arc<Demand>,
        nodes: impl Iterator<Item = (NodeNumber, &'a State)>,
    ) -> Option<NodeNumber> {
        self.clock += 1;
        if !self.classes.contains_key(&demand.class) {
            self.forget_one();
            let mut class = Class::new(demand.clone());
            nodes.for_each(|(number, state)| class.look_at(number, Some(state)));
            self.classes.insert(demand.class.clone(), class);
        }
        let class = self.classes.get_mut(&demand.class)?;
        class.used = self.clock;
        class.fitting.last().map(|(_, number)| number.0)
    }

    /// Why pods of a class fit nowhere, by how many nodes.
    pub fn reasons(&self, class: &str) -> BTreeMap<Reason, usize> {
        self.classes.get(class).map(|class| class.reasons.clone()).unwrap_or_default()
    }

    /// A node has changed, or is gone. Gives the classes that fit somewhere now and didn't before.
    pub fn changed(&mut self, number: NodeNumber, state: Option<&State>) -> Vec<Arc<str>> {
        let mut opened = Vec::new();
        for (name, class) in &mut self.classes {
            let was_closed = class.fitting.is_empty();
            class.look_at(number, state);
            if was_closed && !class.fitting.is_empty() && class.waiting > 0 {
                opened.push(name.clone());
            }
        }
        opened.sort();
        opened
    }

    /// A pod of a class waits, or no longer: classes with waiting pods aren't forgotten.
    pub fn wait(&mut self, class: &str, more: bool) {
        if let Some(class) = self.classes.get_mut(class) {
            class.waiting = if more { class.waiting + 1 } else { class.waiting.saturating_sub(1) };
        }
    }

    fn forget_one(&mut self) {
        let idle = self.classes.iter().filter(|(_, class)| class.waiting == 0);
        if self.classes.len() < CLASSES_KEPT {
            return;
        }
        if let Some(oldest) = idle.min_by_key(|(_, class)| class.used).map(|(name, _)| name.clone()) {
            self.classes.remove(&oldest);
        }
    }
}

impl Class {
    fn new(demand: Arc<Demand>) -> Class {
        Class {
            demand,
            fitting: BTreeSet::new(),
            verdicts: HashMap::new(),
            reasons: BTreeMap::new(),
            used: 0,
            waiting: 0,
        }
    }

    /// Judges a node again.
    fn look_at(&mut self, number: NodeNumber, state: Option<&State>) {
        match self.verdicts.remove(&number) {
            Some(Verdict::Fits(score)) => {
                self.fitting.remove(&(score, std::cmp::Reverse(number)));
            }
            Some(Verdict::No(reasons)) => {
                for reason in reasons {
                    if let Some(count) = self.reasons.get_mut(&reason) {
                        *count -= 1;
                        if *count == 0 {
                            self.reasons.remove(&reason);
                        }
                    }
                }
            }
            None => {}
        }
        let Some((state, offer)) = state.and_then(|state| Some((state, state.offer.as_ref()?))) else { return };
        let obstacles = obstacles(&self.demand, offer, state);
        let verdict = if obstacles.is_empty() {
            let score = score(&self.demand, offer, state);
            self.fitting.insert((score, std::cmp::Reverse(number)));
            Verdict::Fits(score)
        } else {
            for reason in &obstacles {
                *self.reasons.entry(reason.clone()).or_default() += 1;
            }
            Verdict::No(obstacles)
        };
        self.verdicts.insert(number, verdict);
    }
}
