//! A pod stays for a while on a node that has trouble, unless it says how long.

use serde_json::{Value, json};
use setpoint_schema::Edit;

/// Seconds that a pod stays on a node that is not ready or not reachable.
const SECONDS: i64 = 300;

const TROUBLES: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// Adds the tolerations that the pod does not have.
pub(super) fn admit(pod: &mut Value) {
    let spec = pod.ensure("spec");
    let mut tolerations = spec["tolerations"].as_array().cloned().unwrap_or_default();
    let given = tolerations.len();
    for trouble in TROUBLES {
        let covers = |toleration: &Value| {
            ["", trouble].contains(&toleration.text("key")) && ["", "NoExecute"].contains(&toleration.text("effect"))
        };
        if !tolerations[..given].iter().any(covers) {
            tolerations.push(json!({
                "key": trouble, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": SECONDS,
            }));
        }
    }
    if tolerations.len() > given {
        spec.set("tolerations", tolerations);
    }
}
