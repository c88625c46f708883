//! Namespaces: content needs a living one, and some of them never die.

use serde_json::Value;
use setpoint_api::Status;
use setpoint_schema::Edit;

use crate::call::Call;
use crate::verbs;

/// What the system itself lives in.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

/// New content needs a namespace that is there and stays.
pub(super) fn check_lives(call: &Call<'_>, object: &Value) -> Result<(), Box<Status>> {
    verbs::check_namespace_lives(call, object["metadata"].text("name"))
}

/// The system's namespaces are not deleted.
pub(super) fn check_mortal(call: &Call<'_>, name: &str) -> Result<(), Box<Status>> {
    if !IMMORTAL.contains(&name) {
        return Ok(());
    }
    Err(Box::new(Status::forbidden(&call.served.resource, name, "this namespace may not be deleted")))
}
