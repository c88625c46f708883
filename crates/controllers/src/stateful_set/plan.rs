//! What has to be done so that a set has the pods that it should have: pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetSpec};
use k8s_openapi::jiff::Timestamp;
use setpoint_runtime::cache::Cached;

use super::identity;
use crate::pod::Pod;
use crate::revisions::REVISION_LABEL;

/// Most pods that are made in one run; the next makes the others.
const BURST: usize = 500;

/// What a set asks for.
#[derive(Clone, Debug)]
pub struct Desired<'a> {
    pub name: &'a str,
    pub is_deleting: bool,
    /// The first ordinal.
    pub start: i64,
    pub replicas: i64,
    /// Whether pods are made and deleted without waiting for others.
    pub is_parallel: bool,
    pub update: Strategy,
    pub min_ready_seconds: i32,
    /// How many pods were of the current revision when the status was last written.
    pub current_replicas: i64,
    /// The name of the revision that pods were made from.
    pub current_revision: &'a str,
    /// The name of the revision that pods are to be made from.
    pub update_revision: &'a str,
}

/// How pods get to a new revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// Somebody deletes them.
    OnDelete,
    /// One after the other is deleted, from the last one down to this place; the partition is none if nobody gave one.
    Rolling { partition: Option<i64> },
}

/// What the claims of a pod are like.
pub trait ClaimFacts {
    /// Whether a claim belongs to a pod of the same name that is gone, so that it is going too.
    fn are_stale(&self, ordinal: i64) -> bool;
    /// Whether a claim is missing.
    fn are_missing(&self, ordinal: i64) -> bool;
    /// Whether the owners of the claims are those that the retention policy asks for.
    fn are_retained_right(&self, ordinal: i64, pod: &Pod, is_condemned: bool) -> bool;
    /// Whether the pod's volumes are its claims.
    fn are_mounted(&self, ordinal: i64, pod: &Pod) -> bool;
}

/// What has to be done.
#[derive(Debug, Default)]
pub struct Plan {
    /// One after the other; a stage in which something fails is the last.
    pub stages: Vec<Vec<Step>>,
    /// Whether the steps of a stage are taken at once.
    pub is_parallel: bool,
    pub counts: Counts,
    /// When a pod becomes available without anybody telling.
    pub next_check: Option<Timestamp>,
}

/// One thing to be done.
#[derive(Clone, Debug)]
pub enum Step {
    /// Make the pod with this ordinal.
    Create {
        ordinal: i64,
        revision: Revision,
    },
    Delete(Arc<Pod>),
    /// Give the pod its identity and its claims.
    Mend {
        ordinal: i64,
        pod: Arc<Pod>,
    },
    /// Make the claims that the pod waits for.
    Claims {
        ordinal: i64,
        pod: Arc<Pod>,
    },
    /// Let the claims of the pod go with it, or not.
    Retain {
        ordinal: i64,
        pod: Arc<Pod>,
    },
}

/// Which template a pod is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revision {
    Current,
    Update,
}

/// How many pods are how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub all: i32,
    pub ready: i32,
    pub available: i32,
    pub current: i32,
    pub updated: i32,
}

impl<'a> Desired<'a> {
    pub fn of(set: &'a StatefulSet, spec: &StatefulSetSpec, current: &'a str, update: &'a str) -> Desired<'a> {
        let strategy = spec.update_strategy.as_ref();
        let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
        let partition = rolling.map(|rolling| i64::from(rolling.partition.unwrap_or(0)));
        Desired {
            name: set.metadata.name.as_deref().unwrap_or_default(),
            is_deleting: Cached::is_deleting(set),
            start: spec.ordinals.as_ref().map_or(0, |ordinals| i64::from(ordinals.start.unwrap_or(0))).max(0),
            replicas: i64::from(spec.replicas.unwrap_or(1)).max(0),
            is_parallel: spec.pod_management_policy.as_deref() == Some("Parallel"),
            update: match strategy.and_then(|strategy| strategy.type_.as_deref()) {
                Some("OnDelete") => Strategy::OnDelete,
                _ => Strategy::Rolling { partition },
            },
            min_ready_seconds: spec.min_ready_seconds.unwrap_or(0),
            current_replicas: set.status.as_ref().and_then(|status| status.current_replicas).unwrap_or(0).into(),
            current_revision: current,
            update_revision: update,
        }
    }

    /// Whether the set should have a pod with this ordinal.
    pub fn has(&self, ordinal: i64) -> bool {
        (self.start..self.start + self.replicas).contains(&ordinal)
    }

    /// What a new pod is made from: below the partition pods stay what they were.
    fn revision_for(&self, ordinal: i64) -> Revision {
        let kept = match self.update {
            Strategy::OnDelete => 0,
            Strategy::Rolling { partition: Some(partition) } => partition,
            Strategy::Rolling { partition: None } => self.current_replicas,
        };
        if ordinal < self.start + kept { Revision::Current } else { Revision::Update }
    }
}

/// What has to be done, given the set's pods.
pub fn plan(desired: &Desired<'_>, pods: &[Arc<Pod>], claims: &dyn ClaimFacts, now: Timestamp) -> Plan {
    let places = pods.iter().filter_map(|pod| Some((identity::ordinal_of(desired.name, &pod.metadata.name)?, pod)));
    let (members, condemned): (BTreeMap<_, _>, BTreeMap<_, _>) =
        places.partition(|(ordinal, _): &(i64, &Arc<Pod>)| desired.has(*ordinal));
    let planner = Planner { desired, members, condemned, claims, now };
    let mut plan = Plan { is_parallel: desired.is_parallel, counts: planner.counts(), ..Plan::default() };
    let moments = pods.iter().filter_map(|pod| pod.available_at(desired.min_ready_seconds));
    plan.next_check = moments.filter(|moment| *moment > now).min();
    if !desired.is_deleting {
        planner.fill(&mut plan);
    }
    plan
}

struct Planner<'a> {
    desired: &'a Desired<'a>,
    members: BTreeMap<i64, &'a Arc<Pod>>,
    condemned: BTreeMap<i64, &'a Arc<Pod>>,
    claims: &'a dyn ClaimFacts,
    now: Timestamp,
}

/// Whether to go on.
enum Next {
    GoOn,
    Wait,
}

impl Planner<'_> {
    fn fill(&self, plan: &mut Plan) {
        let mut stage = Vec::new();
        let next = self.members(&mut stage);
        plan.stages.push(stage);
        if matches!(next, Next::Wait) {
            return;
        }
        plan.stages.push(self.retained());
        let mut stage = Vec::new();
        let next = self.scale_down(&mut stage);
        plan.stages.push(stage);
        if matches!(next, Next::Wait) {
            return;
        }
        if let Some(pod) = self.outdated() {
            // One that has ended is deleted already.
            if !pod.has_ended() {
                plan.stages.push(vec![Step::Delete(pod.clone())]);
                plan.counts.current -= i32::from(revision_of(pod) == self.desired.current_revision);
            }
        }
        plan.stages.retain(|stage| !stage.is_empty());
    }

    /// The pods that there should be, from the first on.
    fn members(&self, steps: &mut Vec<Step>) -> Next {
        let (desired, mut made) = (self.desired, 0);
        for ordinal in desired.start..desired.start + desired.replicas {
            match self.members.get(&ordinal) {
                None if self.claims.are_stale(ordinal) => {
                    if !desired.is_parallel {
                        return Next::Wait;
                    }
                }
                None => {
                    steps.push(Step::Create { ordinal, revision: desired.revision_for(ordinal) });
                    made += 1;
                    if !desired.is_parallel {
                        return Next::Wait;
                    }
                }
                Some(pod) => {
                    if let Next::Wait = self.member(ordinal, pod, steps) {
                        return Next::Wait;
                    }
                }
            }
            if made >= BURST {
                return Next::Wait;
            }
        }
        Next::GoOn
    }

    fn member(&self, ordinal: i64, pod: &Arc<Pod>, steps: &mut Vec<Step>) -> Next {
        let wait = if self.desired.is_parallel { Next::GoOn } else { Next::Wait };
        if pod.has_ended() {
            if !pod.is_deleting() {
                steps.push(Step::Delete(pod.clone()));
            }
            return wait;
        }
        let is_pending = &*pod.status.phase == "Pending";
        let is_retained_right = self.claims.are_retained_right(ordinal, pod, false);
        if is_pending && (self.claims.are_missing(ordinal) || !is_retained_right) {
            steps.push(Step::Claims { ordinal, pod: pod.clone() });
        }
        if !self.desired.is_parallel && (pod.is_deleting() || !is_running(pod) || !self.is_available(pod)) {
            return wait;
        }
        let is_whole = identity::is_labelled(pod) && self.claims.are_mounted(ordinal, pod);
        if !is_whole || !(is_retained_right || is_pending) {
            steps.push(Step::Mend { ordinal, pod: pod.clone() });
        }
        Next::GoOn
    }

    fn retained(&self) -> Vec<Step> {
        let condemned = self.condemned.iter().rev();
        let wrong = condemned.filter(|(ordinal, pod)| !self.claims.are_retained_right(**ordinal, pod, true));
        wrong.map(|(ordinal, pod)| Step::Retain { ordinal: *ordinal, pod: (*pod).clone() }).collect()
    }

    /// The pods that there should not be, from the last one down.
    fn scale_down(&self, steps: &mut Vec<Step>) -> Next {
        if self.desired.is_parallel {
            let staying = self.condemned.values().rev().filter(|pod| !pod.is_deleting());
            steps.extend(staying.map(|pod| Step::Delete((*pod).clone())));
            return Next::GoOn;
        }
        let Some((last, pod)) = self.condemned.last_key_value() else { return Next::GoOn };
        let first_unavailable = self.condemned.iter().find(|(_, pod)| self.is_unavailable(pod)).map(|(at, _)| at);
        let is_blocked = (!is_running(pod) || !self.is_available(pod)) && first_unavailable != Some(last);
        if !pod.is_deleting() && !is_blocked {
            steps.push(Step::Delete((*pod).clone()));
        }
        Next::Wait
    }

    /// The pod that is to be made anew next: the last one that isn't of the newest revision, unless one after it is not
    /// available.
    fn outdated(&self) -> Option<&Arc<Pod>> {
        let desired = self.desired;
        let Strategy::Rolling { partition } = desired.update else { return None };
        let first = desired.start + partition.unwrap_or(0).max(0);
        let ordinals = (first..desired.start + desired.replicas).rev();
        for ordinal in ordinals {
            let pod = *self.members.get(&ordinal)?;
            if revision_of(pod) != desired.update_revision && !pod.is_deleting() {
                return Some(pod);
            }
            if self.is_unavailable(pod) {
                return None;
            }
        }
        None
    }

    fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for pod in self.members.values().chain(self.condemned.values()) {
            counts.all += 1;
            if is_running(pod) {
                counts.ready += 1;
                counts.available += i32::from(self.is_available(pod));
            }
            if !pod.is_deleting() {
                counts.current += i32::from(revision_of(pod) == self.desired.current_revision);
                counts.updated += i32::from(revision_of(pod) == self.desired.update_revision);
            }
        }
        counts
    }

    fn is_available(&self, pod: &Pod) -> bool {
        pod.is_available(self.desired.min_ready_seconds, self.now)
    }

    fn is_unavailable(&self, pod: &Pod) -> bool {
        !self.is_available(pod) || pod.is_deleting()
    }
}

fn is_running(pod: &Pod) -> bool {
    &*pod.status.phase == "Running" && pod.is_ready()
}

fn revision_of(pod: &Pod) -> &str {
    pod.metadata.labels.get(REVISION_LABEL).unwrap_or_default()
}

#[cfg(test)]
mod tests;
