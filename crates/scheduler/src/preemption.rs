//! Which pods have to leave so that a more important one has room.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use setpoint_runtime::Key;

use crate::budgets::Budgets;
use crate::choose::Refusal;
use crate::classes::Verdict;
use crate::cluster::Cluster;
use crate::fit::Obstacles;
use crate::message::{Counts, NOT_ELIGIBLE, unavailable};
use crate::node::NodeNumber;
use crate::queue::Waiting;
use crate::storage::Claims;

/// Of the nodes that may help so many hundredths are tried until enough are found, but not fewer than the other.
const CANDIDATES: (usize, usize) = (10, 100);

const NOT_HELPFUL: &str = "Preemption is not helpful for scheduling";
const NO_VICTIMS: &str = "No preemption victims found for incoming pod";

/// What makes room for a pod.
#[derive(Clone, Debug)]
pub struct Preemption {
    pub node: NodeNumber,
    pub name: Box<str>,
    pub victims: Vec<Victim>,
}

/// A pod that has to leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Victim {
    pub key: Key,
    pub uid: Arc<str>,
    pub priority: i32,
    pub started: Option<Timestamp>,
    /// It is on its way already.
    pub is_leaving: bool,
}

struct Candidate {
    node: NodeNumber,
    /// Most important first.
    victims: Vec<Victim>,
    violations: usize,
}

impl Cluster {
    /// Finds room for a pod that fits nowhere, or says why there is none.
    pub fn preempt(&mut self, pod: &Waiting, refusal: &Refusal) -> Result<Preemption, String> {
        if !pod.preempts {
            return Err(format!("{NOT_ELIGIBLE} due to preemptionPolicy=Never."));
        }
        if self.is_being_made_room_for(pod, refusal) {
            return Err(format!("{NOT_ELIGIBLE} due to a terminating pod on the nominated node."));
        }
        let has_lesser = self.priorities.keys().next().is_some_and(|lowest| *lowest < pod.priority);
        let mut counts = Counts::default();
        if !has_lesser {
            let hopeful = self.hopeful_count(pod, refusal);
            counts.add(NO_VICTIMS, hopeful);
            counts.add(NOT_HELPFUL, self.offering - hopeful);
            return Err(unavailable(self.offering, &counts));
        }
        let hopeful = self.hopeful(pod, refusal);
        counts.add(NOT_HELPFUL, self.offering - hopeful.len());
        let candidates = self.candidates(pod, &hopeful, &mut counts);
        let Some(best) = pick(candidates) else { return Err(unavailable(self.offering, &counts)) };
        let offer = self.nodes[best.node as usize].offer.as_ref();
        let name = offer.map(|offer| offer.name.clone()).unwrap_or_default();
        Ok(Preemption { node: best.node, name, victims: best.victims })
    }

    /// Whether pods are on their way out of the node that is held for a pod.
    fn is_being_made_room_for(&self, pod: &Waiting, refusal: &Refusal) -> bool {
        let Some(node) = self.nominations.node_of(&pod.uid) else { return false };
        if self.verdict(pod, refusal, node).is_none_or(|is_final| is_final) {
            return false;
        }
        let residents = &self.nodes[node as usize].residents;
        let lesser = residents.iter().take_while(|(priority, _)| *priority < pod.priority);
        lesser.filter_map(|(_, uid)| self.placed.get(uid)).any(|placed| placed.is_preempted)
    }

    /// Whether what is against a node would stand even if it were empty; none if nothing is known against it.
    fn verdict(&self, pod: &Waiting, refusal: &Refusal, node: NodeNumber) -> Option<bool> {
        if !refusal.is_by_node {
            return Some(true);
        }
        if let Some(obstacles) = refusal.failing.get(&node) {
            return Some(obstacles.is_final);
        }
        if pod.demand.named.is_some() {
            return Some(true);
        }
        match self.classes.get(pod.demand.class)?.verdict(node) {
            Verdict::No { is_final, .. } => Some(*is_final),
            Verdict::Fits { .. } | Verdict::Unknown => None,
        }
    }

    fn hopeful_count(&self, pod: &Waiting, refusal: &Refusal) -> usize {
        let failing = refusal.failing.values().filter(|found| !found.is_final).count();
        let class = self.classes.get(pod.demand.class).filter(|_| refusal.is_by_node && pod.demand.named.is_none());
        let by_class = class.map_or(0, |class| self.offering - class.finals() - refusal.failing.len());
        failing + by_class
    }

    /// The nodes that may fit once others have left, from another one on each time.
    fn hopeful(&mut self, pod: &Waiting, refusal: &Refusal) -> Vec<NodeNumber> {
        let all = 0..self.nodes.len() as NodeNumber;
        let mut hopeful: Vec<NodeNumber> =
            all.filter(|node| self.verdict(pod, refusal, *node) == Some(false)).collect();
        self.preemptions = self.preemptions.wrapping_add(1);
        let start = self.preemptions % hopeful.len().max(1);
        hopeful.rotate_left(start);
        hopeful
    }

    fn candidates(&mut self, pod: &Waiting, hopeful: &[NodeNumber], counts: &mut Counts) -> Vec<Candidate> {
        let claims = self.storage.claims(&pod.key, &pod.uid, &pod.claims).unwrap_or_default();
        let enough = (hopeful.len() * CANDIDATES.0 / 100).max(CANDIDATES.1);
        let mut found: Vec<Candidate> = Vec::new();
        let mut is_clean = false;
        for node in hopeful {
            match self.victims(pod, &claims, *node) {
                Ok(candidate) => {
                    is_clean |= candidate.violations == 0;
                    found.push(candidate);
                }
                Err(None) => counts.add(NO_VICTIMS, 1),
                Err(Some(obstacles)) => obstacles.reasons.iter().for_each(|reason| counts.add(reason, 1)),
            }
            if is_clean && found.len() >= enough {
                break;
            }
        }
        found
    }

    /// The fewest pods that have to leave a node; nothing if there are no lesser ones, or what stands against the pod without them.
    fn victims(&mut self, pod: &Waiting, claims: &Claims, node: NodeNumber) -> Result<Candidate, Option<Obstacles>> {
        let residents = self.nodes[node as usize].residents.iter();
        let lesser = residents.take_while(|(priority, _)| *priority < pod.priority);
        let mut lesser: Vec<Arc<str>> = lesser.map(|(_, uid)| uid.clone()).collect();
        if lesser.is_empty() {
            return Err(None);
        }
        lesser.sort_by_key(|uid| self.placed.get(uid).map(|placed| importance(placed.priority, placed.started)));
        let mut load = self.nodes[node as usize].load.clone();
        self.relations.imagine(true);
        for uid in &lesser {
            self.imagine(uid, node, &mut load, -1);
        }
        let found = self.fewest(pod, claims, node, &mut load, &lesser);
        let gone: Vec<Arc<str>> = match &found {
            Ok(candidate) => candidate.victims.iter().map(|victim| victim.uid.clone()).collect(),
            Err(_) => lesser,
        };
        for uid in &gone {
            self.imagine(uid, node, &mut load, 1);
        }
        self.relations.imagine(false);
        found.map_err(Some)
    }

    /// Lets as many as possible come back, those first whose leaving would break a budget.
    fn fewest(
        &mut self,
        pod: &Waiting,
        claims: &Claims,
        node: NodeNumber,
        load: &mut crate::node::Load,
        lesser: &[Arc<str>],
    ) -> Result<Candidate, Obstacles> {
        self.judge().judge_with(pod, claims, node, load)?;
        let (violating, others) = self.split(lesser);
        let mut candidate = Candidate { node, victims: Vec::new(), violations: 0 };
        for (uid, violates) in violating.iter().map(|uid| (uid, true)).chain(others.iter().map(|uid| (uid, false))) {
            self.imagine(uid, node, load, 1);
            let fits = self.judge().judge_with(pod, claims, node, load).is_ok();
            if fits {
                continue;
            }
            self.imagine(uid, node, load, -1);
            candidate.violations += usize::from(violates);
            if let Some(placed) = self.placed.get(uid) {
                candidate.victims.push(Victim {
                    key: placed.key.clone(),
                    uid: uid.clone(),
                    priority: placed.priority,
                    started: placed.started,
                    is_leaving: placed.is_leaving,
                });
            }
        }
        candidate.victims.sort_by_key(|victim| importance(victim.priority, victim.started));
        if candidate.victims.is_empty() { Err(Obstacles::default()) } else { Ok(candidate) }
    }

    fn imagine(&mut self, uid: &str, node: NodeNumber, load: &mut crate::node::Load, more: i64) {
        let Some(placed) = self.placed.get(uid) else { return };
        if more > 0 {
            load.put(&placed.demand)
        } else {
            load.take(&placed.demand)
        }
        self.relations.place(&placed.relation, node, placed.is_leaving, more);
    }

    /// Those whose leaving would break a budget, and the others.
    fn split(&self, uids: &[Arc<str>]) -> (Vec<Arc<str>>, Vec<Arc<str>>) {
        let mut allowed: HashMap<&Key, i32> = HashMap::new();
        uids.iter().cloned().partition(|uid| {
            let Some(placed) = self.placed.get(uid) else { return false };
            violates(&self.budgets, self.relations.group(&placed.relation), placed.key.name(), &mut allowed)
        })
    }
}

/// Whether a budget would be broken; all that speak of the pod have one less to give.
fn violates<'a>(
    budgets: &'a Budgets,
    group: &crate::relations::Group,
    name: &str,
    allowed: &mut HashMap<&'a Key, i32>,
) -> bool {
    let mut is_broken = false;
    for (key, budget) in budgets.of(&group.namespace, &group.labels) {
        if budget.disrupted.contains(name) {
            continue;
        }
        let left = allowed.entry(key).or_insert(budget.allowed);
        *left -= 1;
        is_broken |= *left < 0;
    }
    is_broken
}

/// Sorts pods so that the most important comes first: of equals that which runs for longest.
fn importance(priority: i32, started: Option<Timestamp>) -> (Reverse<i32>, Timestamp) {
    (Reverse(priority), started.unwrap_or(Timestamp::MAX))
}

/// The candidate that hurts least: budgets, the most important victim, all victims together, their number, and how long the most
/// important have run.
fn pick(candidates: Vec<Candidate>) -> Option<Candidate> {
    candidates.into_iter().min_by_key(|candidate| {
        let highest = candidate.victims.first().map_or(i32::MIN, |victim| victim.priority);
        let sum: i64 = candidate.victims.iter().map(|victim| i64::from(victim.priority) + (1 << 31)).sum();
        let highest_started = candidate.victims.iter().filter(|victim| victim.priority == highest);
        let earliest = highest_started.map(|victim| victim.started.unwrap_or(Timestamp::MAX)).min();
        (candidate.violations, highest, sum, candidate.victims.len(), Reverse(earliest))
    })
}
