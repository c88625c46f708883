//! What a pod's runtime class says: how much the runtime itself costs, and which nodes have it.

use serde_json::{Value, json};
use setpoint_api::Status;
use setpoint_schema::Edit;

use super::{find, forbidden};
use crate::call::Call;

/// Takes overhead, node selector and tolerations from the class.
pub(super) fn admit(call: &Call<'_>, pod: &mut Value) -> Result<(), Box<Status>> {
    let Some(name) = pod.find(&["spec", "runtimeClassName"]).and_then(Value::as_str).map(str::to_owned) else {
        return Ok(());
    };
    let Some(class) = find(call, "node.k8s.io", "runtimeclasses", None, &name) else {
        let why = format!("pod rejected: RuntimeClass {} not found", setpoint_api::quote::quote(&name));
        return Err(forbidden(call, pod, why));
    };
    set_overhead(call, pod, &class)?;
    set_scheduling(call, pod, &class)
}

/// Nobody else than the class sets the overhead.
pub(super) fn check(call: &Call<'_>, pod: &Value) -> Result<(), Box<Status>> {
    let named = pod.find(&["spec", "runtimeClassName"]).and_then(Value::as_str);
    let class = named.and_then(|name| find(call, "node.k8s.io", "runtimeclasses", None, name));
    let defined = class.is_some_and(|class| class.find(&["overhead", "podFixed"]).is_some());
    if defined || pod.find(&["spec", "overhead"]).is_none() {
        return Ok(());
    }
    let why = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";
    Err(forbidden(call, pod, why))
}

fn set_overhead(call: &Call<'_>, pod: &mut Value, class: &Value) -> Result<(), Box<Status>> {
    let Some(overhead) = class.find(&["overhead", "podFixed"]) else { return Ok(()) };
    let given = pod.find(&["spec", "overhead"]).and_then(Value::as_object).is_some_and(|given| !given.is_empty());
    if given && pod["spec"]["overhead"] != *overhead {
        let why = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";
        return Err(forbidden(call, pod, why));
    }
    pod.ensure("spec").set("overhead", overhead.clone());
    Ok(())
}

fn set_scheduling(call: &Call<'_>, pod: &mut Value, class: &Value) -> Result<(), Box<Status>> {
    let Some(scheduling) = class.find(&["scheduling"]) else { return Ok(()) };
    let mut selector = pod["spec"]["nodeSelector"].as_object().cloned().unwrap_or_default();
    for (key, value) in scheduling["nodeSelector"].as_object().into_iter().flatten() {
        if let Some(given) = selector.get(key).filter(|given| *given != value) {
            let (given, value) = (given.as_str().unwrap_or_default(), value.as_str().unwrap_or_default());
            let why = format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; pod.spec.nodeSelector[{key}] = {given}"
            );
            return Err(forbidden(call, pod, why));
        }
        selector.insert(key.clone(), value.clone());
    }
    let own = pod["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
    let added = scheduling["tolerations"].as_array().cloned().unwrap_or_default();
    let merged = merge(own.into_iter().chain(added).collect());
    let spec = pod.ensure("spec");
    spec.set_or_remove("nodeSelector", Some(Value::Object(selector)).filter(|map| *map != json!({})));
    spec.set_or_remove("tolerations", (!merged.is_empty()).then(|| json!(merged)));
    Ok(())
}

/// Tolerations without those that another one includes.
fn merge(all: Vec<Value>) -> Vec<Value> {
    let mut merged: Vec<Value> = Vec::new();
    for (index, one) in all.iter().enumerate() {
        let is_known = merged.iter().any(|kept| includes(kept, one));
        let is_followed = all[index + 1..].iter().any(|later| later != one && includes(later, one));
        if !is_known && !is_followed {
            merged.push(one.clone());
        }
    }
    merged
}

fn includes(wide: &Value, narrow: &Value) -> bool {
    if wide == narrow {
        return true;
    }
    let all_keys = wide.text("key").is_empty() && wide.text("operator") == "Exists";
    if wide.text("key") != narrow.text("key") && !all_keys {
        return false;
    }
    if wide.text("effect") != narrow.text("effect") && !wide.text("effect").is_empty() {
        return false;
    }
    if wide.text("effect") == "NoExecute"
        && let Some(limit) = wide.number("tolerationSeconds")
        && narrow.number("tolerationSeconds").is_none_or(|seconds| seconds > limit)
    {
        return false;
    }
    match wide.text("operator") {
        "Exists" => true,
        "" | "Equal" => wide.text("operator") == narrow.text("operator") && wide.text("value") == narrow.text("value"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_toleration_that_another_includes_is_left_out() {
        let narrow = json!({"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"});
        let wide = json!({"key": "k", "operator": "Exists"});
        let other = json!({"key": "z", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5});
        let longer = json!({"key": "z", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 9});
        assert_eq!(merge(vec![narrow.clone(), wide.clone()]), vec![wide.clone()]);
        assert_eq!(merge(vec![wide.clone(), narrow]), vec![wide.clone()]);
        assert_eq!(merge(vec![other.clone(), longer.clone()]), vec![longer]);
        assert_eq!(merge(vec![wide.clone(), other.clone(), wide.clone()]), vec![wide, other]);
    }
}
