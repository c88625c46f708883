//! What is said about a set.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetStatus};
use k8s_openapi::jiff::Timestamp;

use super::eligible::Eligible;
use super::plan::{Desired, Pods};

/// The status that follows from what is there.
pub fn status(
    set: &DaemonSet,
    desired: &Desired<'_>,
    nodes: &BTreeMap<&str, Eligible>,
    pods: &Pods<'_>,
    collisions: i32,
    now: Timestamp,
) -> DaemonSetStatus {
    let old = set.status.clone().unwrap_or_default();
    let mut status = DaemonSetStatus {
        observed_generation: set.metadata.generation,
        collision_count: Some(collisions).filter(|count| *count > 0).or(old.collision_count),
        conditions: old.conditions,
        ..DaemonSetStatus::default()
    };
    let (mut available, mut updated) = (0, 0);
    for (node, eligible) in nodes {
        let first = pods.on(node).first();
        if *eligible != Eligible::Yes {
            status.number_misscheduled += i32::from(first.is_some());
            continue;
        }
        status.desired_number_scheduled += 1;
        let Some(pod) = first else { continue };
        status.current_number_scheduled += 1;
        updated += i32::from(desired.is_new(pod));
        if pod.is_ready() {
            status.number_ready += 1;
            available += i32::from(desired.is_available(pod, now));
        }
    }
    status.updated_number_scheduled = Some(updated);
    status.number_available = Some(available);
    status.number_unavailable = Some(status.desired_number_scheduled - available);
    status
}

/// Whether both say the same: a number that is absent is zero.
pub fn is_same(one: &DaemonSetStatus, other: &DaemonSetStatus) -> bool {
    let numbers = |status: &DaemonSetStatus| {
        let optional = [
            status.updated_number_scheduled,
            status.number_available,
            status.number_unavailable,
            status.collision_count,
        ];
        let numbers = [
            status.desired_number_scheduled,
            status.current_number_scheduled,
            status.number_misscheduled,
            status.number_ready,
        ];
        (numbers, optional.map(Option::unwrap_or_default))
    };
    one.observed_generation == other.observed_generation && numbers(one) == numbers(other)
}
