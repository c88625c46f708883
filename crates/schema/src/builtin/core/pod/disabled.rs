//! Fields of features that are not switched on: removed on the way in, unless an object has them already.

use serde_json::Value;

use super::defaults::CONTAINER_LISTS;
use crate::edit::Edit;

/// Removes from a `PodSpec` what is not switched on.
pub fn drop_disabled_spec_fields(spec: &mut Value, old: Option<&Value>) {
    for source in ["clusterTrustBundle", "podCertificate"] {
        if !old.is_some_and(|old| projected_sources(old).any(|found| found.has(source))) {
            for volume in spec.items_mut("volumes") {
                let sources =
                    volume.child("projected").into_iter().flat_map(|projected| projected.items_mut("sources"));
                sources.for_each(|found| drop(found.remove(source)));
            }
        }
    }
    if !old.is_some_and(|old| old.has("schedulingGroup")) {
        spec.remove("schedulingGroup");
    }
    if !old.is_some_and(|old| containers(old).any(|container| container["lifecycle"].has("stopSignal"))) {
        for list in CONTAINER_LISTS {
            spec.items_mut(list).for_each(drop_stop_signal);
        }
    }
}

/// Removes from a `PodStatus` what is not switched on.
pub fn drop_disabled_status_fields(status: &mut Value, old: Option<&Value>) {
    const LISTS: [&str; 3] = ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"];
    let mounts = |status: &Value| -> Vec<Value> {
        let lists = LISTS.iter().filter_map(|list| status.get(list)?.as_array()).flatten();
        lists.filter_map(|container| container.get("volumeMounts")?.as_array()).flatten().cloned().collect()
    };
    if !old.is_some_and(|old| mounts(old).iter().any(|mount| mount.has("volumeStatus"))) {
        for list in LISTS {
            for container in status.items_mut(list) {
                container.items_mut("volumeMounts").for_each(|mount| drop(mount.remove("volumeStatus")));
            }
        }
    }
    if !old.is_some_and(|old| old.has("nodeAllocatableResourceClaimStatuses")) {
        status.remove("nodeAllocatableResourceClaimStatuses");
    }
}

fn drop_stop_signal(container: &mut Value) {
    let Some(lifecycle) = container.child("lifecycle") else { return };
    if lifecycle.remove("stopSignal").is_some_and(|signal| !signal.is_null())
        && lifecycle.as_object().is_some_and(|fields| fields.values().all(Value::is_null))
    {
        container.remove("lifecycle");
    }
}

fn containers(spec: &Value) -> impl Iterator<Item = &Value> {
    CONTAINER_LISTS.iter().filter_map(|list| spec.get(list)?.as_array()).flatten()
}

fn projected_sources(spec: &Value) -> impl Iterator<Item = &Value> {
    let volumes = spec.get("volumes").and_then(Value::as_array).into_iter().flatten();
    volumes.filter_map(|volume| volume.find(&["projected", "sources"])?.as_array()).flatten()
}
