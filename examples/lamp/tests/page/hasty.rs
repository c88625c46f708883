//! Lamps: each burns as brightly as its spec says.

use kube::api::{Patch, PatchParams};
use kube::{Api, CustomResource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use setpoint_runtime::Key;
use setpoint_runtime::cache::Informer;
use setpoint_runtime::controller::{Action, Context, Controller, Error};
use setpoint_runtime::manager::{Manager, ManagerError};

/// What should be.
#[expect(clippy::duplicated_attributes, reason = "two columns of the same type")]
#[derive(CustomResource, Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[kube(group = "example.com", version = "v1", kind = "Lamp", namespaced, status = "LampStatus")]
#[kube(printcolumn(name = "Wanted", type_ = "integer", json_path = ".spec.brightness"))]
#[kube(printcolumn(name = "Burns", type_ = "integer", json_path = ".status.brightness"))]
pub struct LampSpec {
    #[schemars(range(min = 0, max = 100))]
    pub brightness: i32,
}

/// What is.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
pub struct LampStatus {
    pub brightness: i32,
}

pub fn add_to(manager: &Manager) -> Result<(), ManagerError> {
    let lamps: Informer<Lamp> = manager.informers().all();
    let cache = lamps.clone();
    let controller = Controller::builder("lamp", manager.client().clone(), manager.clock(), &lamps)
        .build(move |context: Context, key: Key| reconcile(context, cache.clone(), key));
    manager.add_controller(&[], controller)
}

async fn reconcile(context: Context, lamps: Informer<Lamp>, key: Key) -> Result<Action, Error> {
    // Observe: the lamp may be gone, then there is nothing to do.
    let Some(lamp) = context.read(&lamps, &key) else { return Ok(Action::done()) };
    // Compare: has this been seen to?
    let wanted = lamp.spec.brightness;
    if lamp.annotations().get("seen") == Some(&wanted.to_string()) {
        return Ok(Action::done());
    }
    // Act, in the wrong order.
    let api: Api<Lamp> = Api::namespaced(context.client().clone(), key.namespace().unwrap_or_default());
    let seen = Patch::Merge(json!({"metadata": {"annotations": {"seen": wanted.to_string()}}}));
    api.patch(key.name(), &PatchParams::default(), &seen).await?;
    let status = Patch::Merge(json!({"status": {"brightness": wanted}}));
    api.patch_status(key.name(), &PatchParams::default(), &status).await?;
    Ok(Action::done())
}
