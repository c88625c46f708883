//! Why a pod is not scheduled, in the words that users know.

use std::collections::BTreeMap;

use crate::fit::Reason;

/// What is told of a pod when there is no node at all.
pub const NO_NODES: &str = "no nodes available to schedule pods";

/// The scheduler of Kubernetes says this of every pod that has no claims of devices; people and scripts know it so.
const NO_CLAIMS: &str = "no new claims to deallocate";

/// Why no room is made for a pod that keeps the node that was held for it.
pub const NOT_ELIGIBLE: &str = "not eligible";

/// What is told of a pod that must be on several nodes at once.
pub const CONFLICTING_NAMES: &str = "pod affinity terms conflict";

/// Reasons with the number of nodes that have them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts(BTreeMap<String, usize>);

impl Counts {
    pub fn add(&mut self, reason: impl ToString, nodes: usize) {
        if nodes > 0 {
            *self.0.entry(reason.to_string()).or_default() += nodes;
        }
    }

    pub fn of(reasons: &BTreeMap<Reason, usize>) -> Counts {
        let mut counts = Counts::default();
        reasons.iter().for_each(|(reason, count)| counts.add(reason, *count));
        counts
    }
}

/// `0/5 nodes are available: 3 Insufficient cpu, 2 node(s) had untolerated taint(s).`
pub fn unavailable(nodes: usize, reasons: &Counts) -> String {
    let mut told: Vec<String> = reasons.0.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    told.sort();
    match told.is_empty() {
        true => format!("0/{nodes} nodes are available:"),
        false => format!("0/{nodes} nodes are available: {}.", told.join(", ")),
    }
}

/// What holds on every node: `0/5 nodes are available: persistentvolumeclaim "data" not found.`
pub fn unavailable_because(nodes: usize, why: &str) -> String {
    format!("0/{nodes} nodes are available: {why}.")
}

/// Adds what Kubernetes' scheduler says once a pod is refused before any node is looked at: its claims of devices, which it goes on to ask for,
/// were not read then.
pub fn unresolved(told: &str) -> String {
    format!("{told} not found")
}

/// Adds what is said of a pod that nobody has given its devices, which no other pod could make room for.
pub fn unallocated(nodes: usize, told: &str) -> String {
    let why = format!("0/{nodes} nodes are available: {nodes} Preemption is not helpful for scheduling.");
    format!("{told} still not schedulable, preemption: {why}")
}

/// Adds why no other pod was sent away.
pub fn without_preemption(told: &str, why: &str) -> String {
    format!("{told} {NO_CLAIMS}, preemption: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_counted_and_sorted() {
        let reasons = [(Reason::Insufficient("cpu".into()), 3), (Reason::Taints, 2)].into();
        let told = unavailable(5, &Counts::of(&reasons));
        assert_eq!(told, "0/5 nodes are available: 2 node(s) had untolerated taint(s), 3 Insufficient cpu.");
        assert_eq!(
            without_preemption("0/1 nodes are available: 1 Too many pods.", "not eligible."),
            "0/1 nodes are available: 1 Too many pods. no new claims to deallocate, preemption: not eligible."
        );
    }
}
