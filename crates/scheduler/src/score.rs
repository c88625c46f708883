//! How well a pod of a class would be on a node that fits: from 0, and the more the better.

use k8s_openapi::api::core::v1::Taint;

use crate::demand::Demand;
use crate::fit::{matches, tolerates};
use crate::node::{Offer, State};

/// The most that one aspect gives before its weight.
const FULL: i64 = 100;

/// How much an aspect counts.
const TAINTS: i64 = 3;
const AFFINITY: i64 = 2;

/// The score of a node.
pub fn score(demand: &Demand, offer: &Offer, state: &State) -> i64 {
    let cpu = share(state.weight.cpu + demand.weight.cpu, offer.allocatable.cpu);
    let memory = share(state.weight.memory + demand.weight.memory, offer.allocatable.memory);
    let free = FULL - (cpu + memory) / 2;
    let balanced = FULL - (cpu - memory).abs() / 2;
    free + balanced + TAINTS * welcome(demand, offer) + AFFINITY * preferred(demand, offer)
}

/// How much of what there is would be taken.
fn share(taken: i64, there: i64) -> i64 {
    if there <= 0 { FULL } else { (taken.saturating_mul(FULL) / there).clamp(0, FULL) }
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
