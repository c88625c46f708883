//! What has to be done so that each node that should have a pod has one, and no other has: pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use setpoint_runtime::cache::Cached;

use super::eligible::Eligible;
use super::new_pod::GENERATION_LABEL;
use crate::pod::Pod;
use crate::revisions::REVISION_LABEL;

/// What a set asks for.
#[derive(Clone, Debug)]
pub struct Desired<'a> {
    /// The hash of the newest revision.
    pub hash: &'a str,
    /// The generation of the template, as old clients know it.
    pub generation: Option<&'a str>,
    pub min_ready_seconds: i32,
    pub update: Strategy,
}

/// How pods get to a new revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// Somebody deletes them.
    OnDelete,
    /// They are replaced, a few at a time.
    Rolling {
        /// How many nodes may have a new pod beside an old one that still works.
        surge: usize,
        /// How many nodes may be without a pod that works.
        unavailable: usize,
        /// Whether a single node could have two.
        may_surge: bool,
    },
}

/// The pods of a set by the node that they are for, the first on each node first.
#[derive(Debug, Default)]
pub struct Pods<'a>(pub BTreeMap<&'a str, Vec<&'a Arc<Pod>>>);

/// What has to be done.
#[derive(Debug, Default)]
pub struct Plan {
    /// Nodes that get a pod.
    pub create: Vec<String>,
    pub delete: Vec<(Arc<Pod>, Why)>,
    /// When to look again.
    pub next_check: Option<Timestamp>,
}

/// Why a pod is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Its containers ended, and not well.
    Failed,
    /// Its containers ended.
    Succeeded,
    /// It has no business there, or is replaced.
    Surplus,
}

impl<'a> Pods<'a> {
    /// Groups pods by node. Those that have ended and are about to go don't count, nor do those that are for no node.
    pub fn group(pods: &'a [Arc<Pod>]) -> Pods<'a> {
        let mut nodes: BTreeMap<&str, Vec<&Arc<Pod>>> = BTreeMap::new();
        for pod in pods.iter().filter(|pod| !(pod.has_ended() && pod.is_deleting())) {
            let node = pod.target_node();
            if !node.is_empty() {
                nodes.entry(node).or_default().push(pod);
            }
        }
        for pods in nodes.values_mut() {
            pods.sort_by_key(|pod| (pod.spec.node_name.is_empty(), pod.created_at(), pod.metadata.name.clone()));
        }
        Pods(nodes)
    }

    /// Those for a node.
    pub fn on(&self, node: &str) -> &[&'a Arc<Pod>] {
        self.0.get(node).map(Vec::as_slice).unwrap_or_default()
    }
}

impl Desired<'_> {
    /// Whether a pod is of the newest revision.
    pub fn is_new(&self, pod: &Pod) -> bool {
        let label = |name: &str| pod.metadata.labels.get(name);
        let has_hash = !self.hash.is_empty() && label(REVISION_LABEL) == Some(self.hash);
        has_hash || (self.generation.is_some() && label(GENERATION_LABEL) == self.generation)
    }

    pub fn is_available(&self, pod: &Pod, now: Timestamp) -> bool {
        pod.is_available(self.min_ready_seconds, now)
    }

    fn may_surge(&self) -> bool {
        matches!(self.update, Strategy::Rolling { may_surge: true, .. })
    }
}

/// What has to be done on all nodes. `held_until` tells how long a failed pod on a node stays.
pub fn plan(
    desired: &Desired<'_>,
    nodes: &BTreeMap<&str, Eligible>,
    pods: &Pods<'_>,
    held_until: impl Fn(&str) -> Option<Timestamp>,
    now: Timestamp,
) -> Plan {
    let mut plan = Plan::default();
    for (node, eligible) in nodes {
        let on_node = pods.on(node);
        match eligible {
            Eligible::Yes if on_node.is_empty() => plan.create.push((*node).to_owned()),
            Eligible::No => plan.delete.extend(on_node.iter().filter(|pod| !pod.is_deleting()).map(|pod| surplus(pod))),
            Eligible::Yes | Eligible::Stay => {
                let kept = ended(node, on_node, &held_until, &mut plan);
                if desired.may_surge() {
                    if kept.is_empty() && *eligible == Eligible::Yes && !is_held(on_node, &plan) {
                        plan.create.push((*node).to_owned());
                    }
                    pair(desired, &kept, &mut plan, now);
                } else {
                    plan.delete.extend(kept.iter().skip(1).map(|pod| surplus(pod)));
                }
            }
        }
    }
    // A pod for a node that isn't there is never bound, and nobody else deletes it.
    let lost = pods.0.iter().filter(|(node, _)| !nodes.contains_key(*node)).flat_map(|(_, pods)| pods);
    plan.delete.extend(lost.filter(|pod| pod.spec.node_name.is_empty() && !pod.is_deleting()).map(|pod| surplus(pod)));
    plan
}

fn surplus(pod: &Arc<Pod>) -> (Arc<Pod>, Why) {
    (pod.clone(), Why::Surplus)
}

/// Whether a failed pod stays on the node for a while: nothing takes its place meanwhile.
fn is_held(on_node: &[&Arc<Pod>], plan: &Plan) -> bool {
    on_node
        .iter()
        .any(|pod| !pod.is_deleting() && pod.has_ended() && !plan.delete.iter().any(|(gone, _)| Arc::ptr_eq(gone, pod)))
}

/// Deletes the pods of a node that have ended, and gives those that have not.
fn ended<'a>(
    node: &str,
    on_node: &[&'a Arc<Pod>],
    held_until: &impl Fn(&str) -> Option<Timestamp>,
    plan: &mut Plan,
) -> Vec<&'a Arc<Pod>> {
    let mut kept = Vec::new();
    for pod in on_node.iter().filter(|pod| !pod.is_deleting()) {
        match &*pod.status.phase {
            "Failed" => match held_until(node) {
                Some(until) => plan.next_check = Some(plan.next_check.map_or(until, |next| next.min(until))),
                None => plan.delete.push(((*pod).clone(), Why::Failed)),
            },
            "Succeeded" => plan.delete.push(((*pod).clone(), Why::Succeeded)),
            _ => kept.push(*pod),
        }
    }
    kept
}

/// Of the pods of a node keeps one new and one old, and the old one only as long as it works and the new one doesn't.
fn pair(desired: &Desired<'_>, kept: &[&Arc<Pod>], plan: &mut Plan, now: Timestamp) {
    if kept.len() <= 1 {
        return;
    }
    let is_new = |pod: &&&Arc<Pod>| pod.metadata.labels.get(REVISION_LABEL) == Some(desired.hash);
    let (new, old) = (kept.iter().find(is_new), kept.iter().find(|pod| !is_new(pod)));
    let is_first = |pod: &&&Arc<Pod>| [new, old].into_iter().flatten().any(|first| Arc::ptr_eq(first, pod));
    plan.delete.extend(kept.iter().filter(|pod| !is_first(pod)).map(|pod| surplus(pod)));
    if let (Some(new), Some(old)) = (new, old)
        && (!old.is_ready() || desired.is_available(new, now))
    {
        plan.delete.push(surplus(old));
    }
}

#[cfg(test)]
mod tests;
