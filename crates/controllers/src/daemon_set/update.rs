//! Replaces the pods of an old revision, a few nodes at a time: pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use setpoint_runtime::cache::Cached;

use super::eligible::Eligible;
use super::plan::{Desired, Plan, Pods, Strategy, Why};
use crate::pod::Pod;

/// What has to be done next, once every node has what it should have.
pub fn update(desired: &Desired<'_>, nodes: &BTreeMap<&str, Eligible>, pods: &Pods<'_>, now: Timestamp) -> Plan {
    let Strategy::Rolling { surge, unavailable, .. } = desired.update else { return Plan::default() };
    let roll = Roll { desired, nodes, pods, now };
    if surge == 0 { roll.in_place(unavailable) } else { roll.beside(surge) }
}

struct Roll<'a> {
    desired: &'a Desired<'a>,
    nodes: &'a BTreeMap<&'a str, Eligible>,
    pods: &'a Pods<'a>,
    now: Timestamp,
}

/// The pods of a node that stay.
enum OnNode<'a> {
    Pods {
        new: Option<&'a Arc<Pod>>,
        old: Option<&'a Arc<Pod>>,
    },
    /// More than one of a sort.
    Crowd,
}

impl<'a> Roll<'a> {
    /// Deletes old pods; the nodes get new ones when they are gone.
    fn in_place(&self, most: usize) -> Plan {
        let (mut unavailable, mut broken, mut working) = (0, Vec::new(), Vec::new());
        for node in self.all_nodes() {
            match self.look(node) {
                OnNode::Pods { new: Some(new), old: None } => unavailable += usize::from(!self.is_available(new)),
                OnNode::Pods { new: None, old: Some(old) } if self.is_available(old) => working.push(old),
                OnNode::Pods { new: None, old: Some(old) } => {
                    unavailable += 1;
                    broken.push(old);
                }
                OnNode::Pods { .. } | OnNode::Crowd => unavailable += 1,
            }
        }
        working.truncate(most.saturating_sub(unavailable));
        delete(broken.into_iter().chain(working))
    }

    /// Makes new pods beside old ones, and deletes an old one once the new one works.
    fn beside(&self, most: usize) -> Plan {
        let (mut surging, mut available) = (0, 0);
        let (mut gone, mut misplaced) = (Vec::new(), Vec::new());
        let (mut urgent, mut candidates) = (Vec::new(), Vec::new());
        for node in self.all_nodes() {
            let OnNode::Pods { new, old } = self.look(node) else {
                surging += 1;
                continue;
            };
            available += usize::from(old.or(new).is_some_and(|pod| self.is_available(pod)));
            let should_run = self.nodes.get(node) == Some(&Eligible::Yes);
            match (new, old) {
                (_, None) => {}
                (None, Some(old)) => match (self.is_available(old), should_run) {
                    (false, false) => gone.push(old),
                    (false, true) => urgent.push(node.to_owned()),
                    (true, false) => misplaced.push(old),
                    (true, true) => candidates.push(node.to_owned()),
                },
                (Some(new), Some(old)) if self.is_available(new) => gone.push(old),
                (Some(_), Some(_)) => surging += 1,
            }
        }
        let desired = self.nodes.values().filter(|eligible| **eligible == Eligible::Yes).count();
        // Where pods have no business any more they go only when there are enough elsewhere.
        misplaced.truncate(available.saturating_sub(desired));
        candidates.truncate(most.saturating_sub(surging));
        let create = urgent.into_iter().chain(candidates).collect();
        Plan { create, ..delete(gone.into_iter().chain(misplaced)) }
    }

    /// Nodes that have pods, and those that should.
    fn all_nodes(&self) -> impl Iterator<Item = &'a str> {
        let should = self.nodes.iter().filter(|(_, eligible)| **eligible == Eligible::Yes).map(|(node, _)| *node);
        let missing = should.filter(|node| !self.pods.0.contains_key(node));
        self.pods.0.keys().copied().chain(missing)
    }

    fn look(&self, node: &str) -> OnNode<'a> {
        let (mut new, mut old) = (None, None);
        for pod in self.pods.on(node).iter().filter(|pod| !pod.is_deleting()) {
            let place = if self.desired.is_new(pod) { &mut new } else { &mut old };
            if place.replace(*pod).is_some() {
                return OnNode::Crowd;
            }
        }
        OnNode::Pods { new, old }
    }

    fn is_available(&self, pod: &Pod) -> bool {
        self.desired.is_available(pod, self.now)
    }
}

fn delete<'a>(pods: impl Iterator<Item = &'a Arc<Pod>>) -> Plan {
    Plan { delete: pods.map(|pod| (pod.clone(), Why::Surplus)).collect(), ..Plan::default() }
}
