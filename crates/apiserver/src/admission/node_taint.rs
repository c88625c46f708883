//! A new node takes no pods until it is known to be ready.

use serde_json::{Value, json};
use setpoint_schema::Edit;

const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// Taints a new node; the node's controller takes the taint away.
pub(super) fn admit(node: &mut Value) {
    let spec = node.ensure("spec");
    let mut taints = spec["taints"].as_array().cloned().unwrap_or_default();
    let is_tainted = |taint: &Value| taint.text("key") == NOT_READY && taint.text("effect") == "NoSchedule";
    if !taints.iter().any(is_tainted) {
        taints.push(json!({"key": NOT_READY, "effect": "NoSchedule"}));
        spec.set("taints", taints);
    }
}
