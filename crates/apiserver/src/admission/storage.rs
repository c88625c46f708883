//! Volumes: nothing in use disappears, and only what can grow is grown.

use serde_json::Value;
use setpoint_api::quantity::Format;
use setpoint_api::{Quantity, Status};
use setpoint_schema::Edit;

use super::{find, forbidden};
use crate::call::Call;

/// Holds an object until nobody uses it.
pub(super) fn protect(object: &mut Value, finalizer: &str) {
    let metadata = object.ensure("metadata");
    let mut finalizers = metadata["finalizers"].as_array().cloned().unwrap_or_default();
    if !finalizers.iter().any(|known| known == finalizer) {
        finalizers.push(finalizer.into());
        metadata.set("finalizers", finalizers);
    }
}

/// A claim grows if it is bound and its class allows it.
pub(super) fn check_resize(call: &Call<'_>, new: &Value, old: &Value) -> Result<(), Box<Status>> {
    if size(new) <= size(old) {
        return Ok(());
    }
    if old["status"].text("phase") != "Bound" {
        return Err(forbidden(call, new, "Only bound persistent volume claims can be expanded"));
    }
    let name = class(new);
    let class = find(call, "storage.k8s.io", "storageclasses", None, name).filter(|_| name == class(old));
    if !name.is_empty() && class.is_some_and(|class| class.flag("allowVolumeExpansion")) {
        return Ok(());
    }
    let why = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize";
    Err(forbidden(call, new, why))
}

fn size(claim: &Value) -> Quantity {
    let text = claim.find(&["spec", "resources", "requests", "storage"]).and_then(Value::as_str).unwrap_or("0");
    Quantity::parse(text).unwrap_or_else(|_| Quantity::new(0, Format::DecimalSi))
}

fn class(claim: &Value) -> &str {
    match claim.find(&["metadata", "annotations", "volume.beta.kubernetes.io/storage-class"]) {
        Some(name) => name.as_str().unwrap_or_default(),
        None => claim["spec"].text("storageClassName"),
    }
}
