//! How well a pod of a class would be on a node that fits, as far as the two of them decide it: from 0, and the more the better.

use k8s_openapi::api::core::v1::Taint;

use crate::demand::Demand;
use crate::fit::{matches, tolerates};
use crate::node::{Load, Offer};
use crate::profile::Strategy;

/// The most that one aspect gives before its weight.
pub const FULL: i64 = 100;

/// The score of a node.
pub fn score(demand: &Demand, offer: &Offer, load: &Load) -> i64 {
    let weights = &demand.profile.weights;
    weights.room * room(demand, offer, load)
        + weights.balance * balance(demand, offer, load)
        + weights.taints * welcome(demand, offer)
        + weights.node_affinity * preferred(demand, offer)
}

/// How much of the node would be free, or taken.
fn room(demand: &Demand, offer: &Offer, load: &Load) -> i64 {
    let cpu = taken(load.weight.cpu + demand.weight.cpu, offer.allocatable.cpu);
    let memory = taken(load.weight.memory + demand.weight.memory, offer.allocatable.memory);
    let sum: i64 = [cpu, memory].into_iter().flatten().map(|share| by(demand.profile.strategy, share)).sum();
    match i64::from(cpu.is_some()) + i64::from(memory.is_some()) {
        0 => 0,
        resources => sum / resources,
    }
}

/// The share of a resource that would be taken; none if the node has nothing of it, more than everything if it has too little.
fn taken(taken: i64, there: i64) -> Option<i64> {
    (there > 0).then(|| taken.saturating_mul(FULL) / there)
}

fn by(strategy: Strategy, share: i64) -> i64 {
    match strategy {
        _ if share > FULL => 0,
        Strategy::LeastAllocated => FULL - share,
        Strategy::MostAllocated => share,
    }
}

/// Whether processors and memory would be used more alike than before. Pods that ask for nothing change nothing.
fn balance(demand: &Demand, offer: &Offer, load: &Load) -> i64 {
    let asked = &demand.requests;
    if asked.cpu == 0 && asked.memory == 0 {
        return 0;
    }
    let even = |cpu: i64, memory: i64| {
        let share = |taken: i64, there: i64| (taken.saturating_mul(FULL) / there.max(1)).clamp(0, FULL);
        if offer.allocatable.cpu <= 0 || offer.allocatable.memory <= 0 {
            return FULL;
        }
        FULL - (share(cpu, offer.allocatable.cpu) - share(memory, offer.allocatable.memory)).abs() / 2
    };
    let taken = &load.requested;
    let before = even(taken.cpu, taken.memory);
    let after = even(taken.cpu + asked.cpu, taken.memory + asked.memory);
    FULL / 2 + (FULL / 2 + after - before) / 2
}

/// Less for each taint that says: rather not.
fn welcome(demand: &Demand, offer: &Offer) -> i64 {
    let avoided = |taint: &&Taint| taint.effect == "PreferNoSchedule" && !tolerates(&demand.tolerations, taint);
    let count = i64::try_from(offer.taints.iter().filter(avoided).count()).unwrap_or(i64::MAX);
    FULL / count.saturating_add(1)
}

/// The share of the pod's preferences that the node meets, by their weights.
fn preferred(demand: &Demand, offer: &Offer) -> i64 {
    let all: i64 = demand.preferences.iter().map(|term| i64::from(term.weight)).sum();
    let met = demand.preferences.iter().filter(|term| matches(&term.preference, offer));
    let met: i64 = met.map(|term| i64::from(term.weight)).sum();
    if all <= 0 { 0 } else { met * FULL / all }
}
