//! A running pod grows only as far as its node has room at all.

use serde_json::Value;
use setpoint_api::{Quantity, Status, StatusCause};
use setpoint_schema::Edit;

use super::amounts::Amounts;
use super::pod_resources::{Side, total_with_overhead};
use super::{find, forbidden};
use crate::call::Call;

/// Refuses what the pod's node can never give.
pub(super) fn check(call: &Call<'_>, new: &Value, old: &Value) -> Result<(), Box<Status>> {
    let name = new["spec"].text("nodeName");
    if name.is_empty() || new["metadata"]["generation"] == old["metadata"]["generation"] {
        return Ok(());
    }
    let Some(node) = find(call, "", "nodes", None, name) else {
        return Err(forbidden(call, new, format!("node {} not found", setpoint_api::quote::quote(name))));
    };
    let refused = |why: String, reason: &str| {
        let cause = StatusCause { reason: reason.to_owned(), ..StatusCause::default() };
        Err(Box::new((*forbidden(call, new, why)).with_cause(cause)))
    };
    let system = node["metadata"]["labels"].text("kubernetes.io/os");
    if !system.is_empty() && system != "linux" {
        let why = format!("pod resize is only supported on linux nodes, node \"{name}\" is \"{system}\"");
        return refused(why, "UnsupportedPlatform");
    }
    let (asked, room) = (total_with_overhead(new, Side::Requests), Amounts::read(&node["status"]["allocatable"]));
    let over = |resource: &str, shown: fn(&Quantity) -> i64| {
        let (asked, room) = (asked.get(resource)?, room.get(resource).unwrap_or(&Quantity::ZERO));
        (asked > room).then(|| format!("{resource}, requested: {}, allocatable: {}", shown(asked), shown(room)))
    };
    let over: Vec<String> =
        [over("cpu", Quantity::milli_value), over("memory", Quantity::value)].into_iter().flatten().collect();
    match over.is_empty() {
        true => Ok(()),
        false => {
            let why = format!("node didn't have enough allocatable resources: {}", over.join("; "));
            refused(why, "NodeCapacity")
        }
    }
}
