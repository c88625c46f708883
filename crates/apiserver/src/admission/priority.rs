//! Priorities: a pod names a class, the server knows its number.

use serde_json::{Value, json};
use setpoint_api::Status;
use setpoint_schema::Edit;

use super::{all, find, forbidden};
use crate::call::Call;

/// Sets the priority of a new pod from its class, or from the default.
pub(super) fn admit(call: &Call<'_>, pod: &mut Value) -> Result<(), Box<Status>> {
    let name = pod["spec"].text("priorityClassName").to_owned();
    let class = match &*name {
        "" => default_class(call).unwrap_or_else(|| json!({"value": 0, "preemptionPolicy": "PreemptLowerPriority"})),
        name => find(call, "scheduling.k8s.io", "priorityclasses", None, name)
            .ok_or_else(|| forbidden(call, pod, format!("no PriorityClass with name {name} was found")))?,
    };
    let priority = class.number("value").unwrap_or(0);
    if let Some(given) = pod["spec"].number("priority").filter(|given| *given != priority) {
        let why = format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller computed {priority} from the given PriorityClass name"
        );
        return Err(forbidden(call, pod, why));
    }
    let policy = class.text("preemptionPolicy");
    let given = pod["spec"].text("preemptionPolicy");
    if !policy.is_empty() && !given.is_empty() && given != policy {
        let why = format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission controller computed {policy} from the given PriorityClass name"
        );
        return Err(forbidden(call, pod, why));
    }
    let spec = pod.ensure("spec");
    if let Some(name) = class.find(&["metadata", "name"]) {
        spec.set("priorityClassName", name.clone());
    }
    spec.set("priority", priority);
    if !policy.is_empty() {
        spec.set("preemptionPolicy", policy);
    }
    Ok(())
}

/// A change that leaves the priority out does not change it.
pub(super) fn keep(new: &mut Value, old: &Value) {
    for field in ["priority", "preemptionPolicy"] {
        if let Some(before) = old.find(&["spec", field]) {
            new.ensure("spec").fill(field, before.clone());
        }
    }
}

/// There is one default at most.
pub(super) fn check_class(call: &Call<'_>, class: &Value, old: Option<&Value>) -> Result<(), Box<Status>> {
    if !class.flag("globalDefault") {
        return Ok(());
    }
    let Some(default) = default_class(call) else { return Ok(()) };
    let name = default["metadata"].text("name");
    if old.is_some() && name == class["metadata"].text("name") {
        return Ok(());
    }
    let why = format!("PriorityClass {name} is already marked as default. Only one default can exist");
    Err(forbidden(call, class, why))
}

/// The default class; of several, the one with the lowest priority.
fn default_class(call: &Call<'_>) -> Option<Value> {
    let defaults = all(call, "scheduling.k8s.io", "priorityclasses").into_iter().filter(|c| c.flag("globalDefault"));
    defaults.min_by_key(|class| class.number("value").unwrap_or(0))
}
