//! What is said about a set.

use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetStatus};

use super::plan::{Desired, Plan, Strategy};

/// The status that follows from what is there and what is about to be done.
pub fn status(set: &StatefulSet, desired: &Desired<'_>, plan: &Plan, collisions: i32) -> StatefulSetStatus {
    let counts = plan.counts;
    let is_all = |count: i32| i64::from(count) == desired.replicas;
    let is_rolling = matches!(desired.update, Strategy::Rolling { .. });
    let is_complete = is_rolling && is_all(counts.updated) && is_all(counts.ready) && is_all(counts.all);
    let (current_revision, current) = match is_complete {
        true => (desired.update_revision, counts.updated),
        false => (desired.current_revision, counts.current),
    };
    StatefulSetStatus {
        observed_generation: set.metadata.generation,
        replicas: counts.all,
        ready_replicas: Some(counts.ready),
        available_replicas: Some(counts.available),
        current_replicas: Some(current),
        updated_replicas: Some(counts.updated),
        current_revision: Some(current_revision.to_owned()),
        update_revision: Some(desired.update_revision.to_owned()),
        collision_count: Some(collisions),
        conditions: set.status.as_ref().and_then(|status| status.conditions.clone()),
    }
}

/// Whether both say the same: a number that is absent is zero.
pub fn is_same(one: &StatefulSetStatus, other: &StatefulSetStatus) -> bool {
    let numbers = |status: &StatefulSetStatus| {
        let numbers = [
            Some(status.replicas),
            status.ready_replicas,
            status.available_replicas,
            status.current_replicas,
            status.updated_replicas,
            status.collision_count,
        ];
        numbers.map(Option::unwrap_or_default)
    };
    let words = |status: &StatefulSetStatus| (status.current_revision.clone(), status.update_revision.clone());
    one.observed_generation == other.observed_generation && numbers(one) == numbers(other) && words(one) == words(other)
}
