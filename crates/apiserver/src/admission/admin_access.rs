//! Access to devices that others use: only in namespaces that were marked for it.

use serde_json::Value;
use setpoint_api::{FieldError, Path, Status};
use setpoint_schema::Edit;

use super::find;
use super::pod_resources::items;
use crate::call::Call;

const LABEL: &str = "resource.kubernetes.io/admin-access";

/// What is wrong with a claim, or a template of some, that asks for it elsewhere.
pub(super) fn check(call: &Call<'_>, spec: &Value) -> Option<FieldError> {
    let asks = |request: &Value| request["exactly"].flag("adminAccess");
    let index = items(&spec["devices"], "requests").position(asks)?;
    let spec = Path::root("spec");
    let devices = spec.child("devices");
    let requests = devices.child("requests");
    unmarked(call, &requests.index(index).child("adminAccess"))
}

/// Refuses a status that grants it elsewhere.
pub(super) fn check_granted(call: &Call<'_>, new: &Value, old: &Value) -> Result<(), Box<Status>> {
    let granted = |claim: &Value| {
        let mut results = items(&claim["status"]["allocation"]["devices"], "results");
        results.position(|result| result.flag("adminAccess"))
    };
    let (None, Some(index)) = (granted(old), granted(new)) else { return Ok(()) };
    let status = Path::root("status");
    let allocation = status.child("allocation");
    let devices = allocation.child("devices");
    let results = devices.child("results");
    let Some(error) = unmarked(call, &results.index(index).child("adminAccess")) else { return Ok(()) };
    let name = new["metadata"].text("name");
    Err(Box::new(Status::invalid(&call.kind().group_kind(), name, &[error])))
}

fn unmarked(call: &Call<'_>, path: &Path<'_>) -> Option<FieldError> {
    let namespace = find(call, "", "namespaces", None, call.namespace.unwrap_or_default()).unwrap_or_default();
    if namespace["metadata"]["labels"].text(LABEL) == "true" {
        return None;
    }
    let why = format!("admin access to devices requires the `{LABEL}: true` label on the containing namespace");
    Some(FieldError::forbidden(path, &*why))
}
