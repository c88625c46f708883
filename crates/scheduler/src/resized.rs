//! What a pod takes of its node while it is given more or less: the most of what it asks for, what is set aside for it, and what it has.

use std::borrow::Cow;

use setpoint_api::quantity::Quantity;

use crate::pod::{Container, ContainerStatus, Pod, Wishes};
use crate::resources::Written;

/// The condition of a resize that has not begun.
const PENDING: &str = "PodResizePending";

/// The wishes of a pod on a node, with what its containers really take.
pub fn taken(pod: &Pod) -> Cow<'_, Wishes> {
    let wishes = &pod.spec.wishes;
    // What its node will never give it counts for nothing.
    let counts = pod.condition(PENDING).is_none_or(|it| &*it.reason != "Infeasible");
    let all = wishes.containers.iter().zip(std::iter::repeat(&pod.status.container_statuses));
    let sidecars = wishes.init_containers.iter().filter(|it| it.is_sidecar());
    let all = all.chain(sidecars.zip(std::iter::repeat(&pod.status.init_container_statuses)));
    let others: Vec<(&str, Written)> = all
        .filter_map(|(container, statuses)| {
            let status = statuses.iter().find(|it| it.name == container.name)?;
            Some((&*container.name, other(container, status, counts)?))
        })
        .collect();
    if others.is_empty() {
        return Cow::Borrowed(wishes);
    }
    let mut wishes = wishes.clone();
    for container in wishes.containers.iter_mut().chain(&mut wishes.init_containers) {
        if let Some((_, requests)) = others.iter().find(|(name, _)| **name == *container.name) {
            container.resources.requests = requests.clone();
        }
    }
    Cow::Owned(wishes)
}

/// What a container takes, if it is something else than what it asks for.
fn other(container: &Container, status: &ContainerStatus, counts: bool) -> Option<Written> {
    let has = status.resources.as_ref()?;
    let asked = &container.resources.requests;
    if counts
        && *asked == has.requests
        && (status.allocated_resources.is_empty() || *asked == status.allocated_resources)
    {
        return None;
    }
    let mut most = Written::new();
    let all = [Some(asked).filter(|_| counts), Some(&has.requests), Some(&status.allocated_resources)];
    for (name, amount) in all.into_iter().flatten().flatten() {
        match most.get_mut(name) {
            Some(known) if is_less(known, amount) => *known = amount.clone(),
            Some(_) => {}
            None => drop(most.insert(name.clone(), amount.clone())),
        }
    }
    (most != *asked).then_some(most)
}

fn is_less(one: &str, other: &str) -> bool {
    match (Quantity::parse(one), Quantity::parse(other)) {
        (Ok(one), Ok(other)) => one < other,
        (one, _) => one.is_err(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// What a container takes that asks for so much, has so much, and for which so much is set aside.
    fn check(asks: Value, has: Value, aside: Value, reason: &str, expected: Value) {
        let status = json!({"name": "c", "resources": {"requests": has}, "allocatedResources": aside});
        let sidecar = json!({"name": "s", "restartPolicy": "Always", "resources": {"requests": asks}});
        let sidecar_status = json!({"name": "s", "resources": {"requests": has}, "allocatedResources": aside});
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p"},
            "spec": {"containers": [{"name": "c", "resources": {"requests": asks}}], "initContainers": [sidecar]},
            "status": {"containerStatuses": [status], "initContainerStatuses": [sidecar_status],
                "conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}]},
        }))
        .unwrap();
        let taken = taken(&pod);
        assert_eq!(json!(taken.containers[0].resources.requests), expected, "{asks} {has} {aside} {reason}");
        assert_eq!(json!(taken.init_containers[0].resources.requests), expected, "{asks} {has} {aside} {reason}");
    }

    #[test]
    fn the_most_counts_unless_it_will_never_be_given() {
        let cpu = |amount: &str| json!({"cpu": amount});
        check(cpu("1"), cpu("1"), cpu("1"), "", cpu("1"));
        check(cpu("2"), cpu("1"), cpu("1"), "Deferred", cpu("2"));
        check(cpu("2"), cpu("1"), cpu("1"), "Infeasible", cpu("1"));
        check(cpu("500m"), cpu("1"), cpu("500m"), "", cpu("1"));
        check(cpu("500m"), cpu("500m"), cpu("1"), "", cpu("1"));
        check(json!({"cpu": "1", "memory": "1Gi"}), cpu("2"), cpu("2"), "", json!({"cpu": "2", "memory": "1Gi"}));
    }

    #[test]
    fn what_is_told_of_no_container_is_what_it_asks_for() {
        let spec = json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]});
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap();
        assert!(matches!(taken(&pod), Cow::Borrowed(_)));
    }
}
