//! Conditions of objects that the server itself answers for.

use serde_json::Value;
use setpoint_schema::Edit;

/// Whether an object has a condition that says this.
pub(crate) fn has(object: &Value, wanted: &Value) -> bool {
    let same = |found: &Value| ["type", "status", "reason", "message"].iter().all(|name| found[name] == wanted[name]);
    all(object).iter().any(same)
}

/// Puts a condition in place of the one of its type. Its time is that of the last change of its status.
pub(crate) fn set(object: &mut Value, wanted: &Value, now: &str) {
    let mut all = all(object).to_vec();
    let before = all.iter().position(|condition| condition["type"] == wanted["type"]);
    let mut condition = wanted.clone();
    let since = before.map(|at| all.remove(at)).filter(|old| old["status"] == wanted["status"]);
    let since = since.and_then(|old| old["lastTransitionTime"].as_str().map(str::to_owned));
    condition.set("lastTransitionTime", since.unwrap_or_else(|| now.to_owned()));
    all.push(condition);
    object.ensure("status").set("conditions", all);
}

fn all(object: &Value) -> &[Value] {
    object["status"]["conditions"].as_array().map_or(&[], Vec::as_slice)
}
