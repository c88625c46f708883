//! Brings each vehicle to the firmware that its spec names: hands out tasks, and reads what the hub reports.
//!
//! - A run writes one status at most, and never waits: what happens on the vehicle wakes it.
//! - The status is applied for the very version of the object that was read. So a process that sees an old state can't take back a task
//!   that its predecessor handed out.

mod back_off;
pub mod plan;
mod status;

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams};
use setpoint_runtime::Key;
use setpoint_runtime::cache::Informer;
use setpoint_runtime::controller::{Action, Context, Error};
use setpoint_runtime::events::Recorder;
use setpoint_runtime::manager::ManagerError;

use crate::kinds::{Firmware, Vehicle, firmware_name};
use crate::phase::Phase;
use crate::view::VehicleView;
use crate::wiring::{Desk, WANTED, Wiring, reference, warn};
use plan::Plan;

/// Its name.
pub const NAME: &str = "vehicle-controller";

/// How many vehicles are worked on at once.
const WORKERS: usize = 8;

/// When to look again after a write that was for an older version of the vehicle, if the cache doesn't show a younger one before.
const AGAIN: Duration = Duration::from_secs(1);

pub(crate) fn add(wiring: &Wiring<'_>) -> Result<(), ManagerError> {
    let desk: Desk = wiring.desk(NAME)?;
    let (vehicles, firmwares) = (wiring.vehicles(), wiring.firmwares());
    let wanting = vehicles.clone();
    let (view, store, recorder) = (vehicles.clone(), firmwares.clone(), desk.recorder.clone());
    let controller = desk
        .controller(&vehicles, WORKERS)
        .watches(&firmwares, move |firmware: &Firmware| {
            let snapshot = wanting.lister().snapshot();
            let name = firmware_key(firmware);
            snapshot.by_index(WANTED, name.as_str()).map(|vehicle| vehicle.metadata.key.clone()).collect()
        })
        .build(move |context: Context, key: Key| {
            reconcile(context, key, view.clone(), store.clone(), recorder.clone())
        });
    desk.run(controller)
}

async fn reconcile(
    context: Context,
    key: Key,
    vehicles: Informer<VehicleView>,
    firmwares: Informer<Firmware>,
    recorder: Recorder,
) -> Result<Action, Error> {
    let Some(vehicle) = context.read(&vehicles, &key).filter(|vehicle| !vehicle.metadata.deleting) else {
        return Ok(Action::done());
    };
    let namespace = key.namespace().unwrap_or_default();
    let named = vehicle.wanted().map(|version| Key::namespaced(namespace, &firmware_name(version)));
    let firmware = named.and_then(|named| context.read(&firmwares, &named));
    // Two versions may share a name; a vehicle gets what it asked for or nothing.
    let firmware = firmware.filter(|firmware| Some(&*firmware.spec.version) == vehicle.wanted());
    let now = context.clock().wall();
    let plan = plan::plan(&vehicle, firmware.as_deref(), now);
    if !status::is_written(&vehicle, &plan) {
        let body = status::body(&vehicle, &plan, now);
        let api: Api<Vehicle> = Api::namespaced(context.client().clone(), namespace);
        let params = PatchParams::apply(NAME).force();
        match api.patch_status(key.name(), &params, &Patch::Apply(body)).await {
            Ok(_) => tell(&recorder, &vehicle, &plan),
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(Action::done()),
            // The hub was quicker, and what it wrote wakes this one. No failure that would slow others down.
            Err(kube::Error::Api(status)) if status.code == 409 => return Ok(Action::requeue_after(AGAIN)),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(plan.wake.map_or_else(Action::done, |wake| Action::requeue_after(until(&context, wake))))
}

/// Tells of failures. What goes well is not told: there are many vehicles.
fn tell(recorder: &Recorder, vehicle: &VehicleView, plan: &Plan) {
    let is_new = vehicle.status.phase != Some(plan.phase);
    let Some(retry) =
        plan.retry.as_ref().filter(|_| is_new && matches!(plan.phase, Phase::RetryBackoff | Phase::Failed))
    else {
        return;
    };
    let about = reference("Vehicle", &vehicle.metadata.key, &vehicle.metadata.uid);
    let version = vehicle.wanted().unwrap_or_default();
    let note = format!("{version} could not be installed: {}: {}", retry.last_reason, retry.last_message);
    warn(recorder, about, "UpgradeFailed", "Upgrade", note);
}

fn until(context: &Context, wake: Timestamp) -> Duration {
    // Times of objects have no fractions: a moment later it is surely reached.
    context.clock().until(wake) + Duration::from_millis(1)
}

fn firmware_key(firmware: &Firmware) -> Key {
    let metadata = &firmware.metadata;
    Key::new(metadata.namespace.as_deref(), metadata.name.as_deref().unwrap_or_default())
}
