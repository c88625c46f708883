//! What the server sets in a pod, and what it keeps of the old one.

use serde_json::{Map, Value, json};

use super::annotations::{APP_ARMOR_CONTAINER, app_armor_profile};
use super::defaults::CONTAINER_LISTS;
use crate::edit::Edit;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
/// Longest path to a profile.
const PROFILE_BYTES_MAX: usize = 4095;
/// Metadata that belongs to writes of the pod itself.
const METADATA: [&str; 7] =
    ["deletionTimestamp", "generation", "selfLink", "labels", "annotations", "finalizers", "ownerReferences"];

/// Says that a pod with gates is not to be scheduled yet.
pub fn note_gates(pod: &mut Value, now: &str) {
    let gated = pod.find(&["spec", "schedulingGates"]).and_then(Value::as_array).is_some_and(|gates| !gates.is_empty());
    if gated {
        let condition = json!({
            "type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "lastTransitionTime": now,
            "message": "Scheduling is blocked due to non-empty scheduling gates",
        });
        pod.ensure("status").set("conditions", json!([condition]));
    }
}

/// Turns label keys of affinity and spreading into conditions on the values that this pod has.
pub fn merge_label_keys(pod: &mut Value) {
    let labels = pod.find(&["metadata", "labels"]).and_then(Value::as_object).cloned().unwrap_or_default();
    let spec = pod.ensure("spec");
    for kind in ["podAffinity", "podAntiAffinity"] {
        let Some(affinity) = spec.find_mut(&["affinity", kind]) else { continue };
        affinity.items_mut(REQUIRED).for_each(|term| merge_keys(term, &labels));
        affinity
            .items_mut(PREFERRED)
            .filter_map(|term| term.child("podAffinityTerm"))
            .for_each(|term| merge_keys(term, &labels));
    }
    spec.items_mut("topologySpreadConstraints").for_each(|constraint| merge_keys(constraint, &labels));
}

/// Sets the fields that annotations of an older time stand for.
pub fn take_app_armor_from_annotations(pod: &mut Value) {
    let Some(annotations) = pod.find(&["metadata", "annotations"]).and_then(Value::as_object).cloned() else { return };
    let spec = pod.ensure("spec");
    if spec.find(&["os", "name"]).and_then(Value::as_str) == Some("windows") {
        return;
    }
    let of_pod = spec.find(&["securityContext", "appArmorProfile"]).cloned();
    for list in CONTAINER_LISTS {
        for container in spec.items_mut(list) {
            let key = format!("{APP_ARMOR_CONTAINER}{}", container.text("name"));
            let annotation = annotations.get(&key).and_then(Value::as_str);
            let given = container.find(&["securityContext", "appArmorProfile"]).is_some();
            let meant = annotation.filter(|_| !given).and_then(app_armor_profile).filter(is_valid_profile);
            if let Some(profile) = meant.filter(|profile| Some(profile) != of_pod.as_ref()) {
                container.ensure("securityContext").set("appArmorProfile", profile);
            }
        }
    }
}

/// Keeps what a node that doesn't know it would clear.
pub fn keep_observations(status: &mut Value, old: &Value) {
    status.default_to("qosClass", old.text("qosClass"));
    let is_zero = |value: &Value| value.number("observedGeneration").unwrap_or(0) == 0;
    if is_zero(status) {
        status.set_or_remove("observedGeneration", old.get("observedGeneration").cloned());
    }
    let mut before: Vec<(String, Option<Value>)> = old
        .get("conditions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(|condition| (condition.text("type").to_owned(), condition.get("observedGeneration").cloned()))
        .collect();
    for condition in status.items_mut("conditions") {
        let at = before.iter().position(|(kind, _)| kind == condition.text("type"));
        let generation = at.and_then(|at| before.remove(at).1);
        if is_zero(condition) {
            condition.set_or_remove("observedGeneration", generation);
        }
    }
}

/// For a write to `ephemeralcontainers`.
pub fn keep_all_but_ephemeral_containers(new: &mut Value, old: &Value) {
    let added = new.find(&["spec", "ephemeralContainers"]).cloned();
    new.set("spec", old["spec"].clone());
    new.ensure("spec").set_or_remove("ephemeralContainers", added);
    keep_status_and_metadata(new, old);
}

/// For a write to `resize`. With other containers than before all is left as it is, and refused later.
pub fn keep_all_but_resources(new: &mut Value, old: &Value) {
    let count = |pod: &Value, list: &str| pod.find(&["spec", list]).and_then(Value::as_array).map_or(0, Vec::len);
    if ["containers", "initContainers"].iter().any(|list| count(new, list) != count(old, list)) {
        return;
    }
    let mut spec = old["spec"].clone();
    spec.set_or_remove("resources", new.find(&["spec", "resources"]).cloned());
    for list in ["containers", "initContainers"] {
        let (Some(now), Some(before)) = (new.find(&["spec", list]).cloned(), old.find(&["spec", list])) else {
            continue;
        };
        spec.set(list, resized(now, before));
    }
    new.set("spec", spec);
    keep_status_and_metadata(new, old);
}

fn resized(now: Value, before: &Value) -> Value {
    let mut merged = before.clone();
    let same_names = |(a, b): (&Value, &Value)| a.text("name") == b.text("name");
    let (Some(new), Some(old)) = (now.as_array(), before.as_array()) else { return now };
    if !new.iter().zip(old).all(same_names) {
        return now;
    }
    for (container, new) in merged.as_array_mut().into_iter().flatten().zip(new) {
        for field in ["resources", "resizePolicy"] {
            container.set_or_remove(field, new.get(field).cloned());
        }
    }
    merged
}

fn keep_status_and_metadata(new: &mut Value, old: &Value) {
    new.set_or_remove("status", old.get("status").cloned());
    let metadata = new.ensure("metadata");
    for field in METADATA {
        metadata.set_or_remove(field, old["metadata"].get(field).cloned());
    }
}

fn merge_keys(term: &mut Value, labels: &Map<String, Value>) {
    if !term.has("labelSelector") {
        return;
    }
    let mut conditions = Vec::new();
    for (list, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
        let keys = term.get(list).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        let known = keys.filter_map(|key| Some((key, labels.get(key)?)));
        conditions.extend(known.map(|(key, value)| json!({"key": key, "operator": operator, "values": [value]})));
    }
    if conditions.is_empty() {
        return;
    }
    let selector = term.ensure("labelSelector");
    match selector.child("matchExpressions").and_then(Value::as_array_mut) {
        Some(list) => list.extend(conditions),
        None => selector.set("matchExpressions", conditions),
    }
}

fn is_valid_profile(profile: &Value) -> bool {
    let path = profile.text("localhostProfile");
    path.trim() == path && path.len() <= PROFILE_BYTES_MAX
}
