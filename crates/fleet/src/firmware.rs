//! Counts how each firmware fares, and keeps it from hardware that is unwell with it.

mod plan;

use std::collections::BTreeMap;
use std::time::Duration;

use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use setpoint_runtime::Key;
use setpoint_runtime::cache::{Informer, Snapshot};
use setpoint_runtime::controller::{Action, Context, Error, Predicate};
use setpoint_runtime::manager::ManagerError;

use crate::kinds::{Firmware, GROUP, NO_QUARANTINE, VERSION, firmware_name};
use crate::view::VehicleView;
use crate::wiring::{GIVEN_UP, RUNNING, Wiring};
use plan::{Fare, plan};

/// Its name.
pub const NAME: &str = "firmware-controller";

/// What vehicles report within this time is counted together.
const BATCH: Duration = Duration::from_secs(2);

pub(crate) fn add(wiring: &Wiring<'_>) -> Result<(), ManagerError> {
    let desk = wiring.desk(NAME)?;
    let (firmwares, vehicles) = (wiring.firmwares(), wiring.vehicles());
    let (store, view) = (firmwares.clone(), vehicles.clone());
    let controller = desk
        .controller(&firmwares, 1)
        .batch(BATCH)
        .watches_where(&vehicles, Predicate::new(is_of_interest), keys)
        .build(move |context: Context, key: Key| reconcile(context, key, store.clone(), view.clone()));
    desk.run(controller)
}

fn is_of_interest(old: Option<&VehicleView>, new: &VehicleView) -> bool {
    old.is_none_or(|old| {
        (old.running(), old.wanted(), old.has_failed()) != (new.running(), new.wanted(), new.has_failed())
    })
}

fn keys(vehicle: &VehicleView) -> Vec<Key> {
    let namespace = vehicle.metadata.key.namespace().unwrap_or_default();
    let versions = [vehicle.running(), vehicle.wanted()];
    versions.into_iter().flatten().map(|version| Key::namespaced(namespace, &firmware_name(version))).collect()
}

async fn reconcile(
    context: Context,
    key: Key,
    firmwares: Informer<Firmware>,
    vehicles: Informer<VehicleView>,
) -> Result<Action, Error> {
    let Some(firmware) = context.read(&firmwares, &key) else { return Ok(Action::done()) };
    let status = firmware.status.clone().unwrap_or_default();
    let lifted = firmware.metadata.annotations.as_ref().and_then(|all| all.get(NO_QUARANTINE)).map_or("", |text| text);
    let fare = fare(&vehicles.lister().snapshot(), &key);
    let planned = plan(&status, firmware.spec.quarantine_after, lifted, &fare);
    // Counts of nothing are told too: what is to be seen must not depend on what once was.
    if firmware.status.as_ref() != Some(&planned) {
        let metadata = json!({
            "name": key.name(), "uid": firmware.metadata.uid, "resourceVersion": firmware.metadata.resource_version,
        });
        let api_version = format!("{GROUP}/{VERSION}");
        let body = json!({"apiVersion": api_version, "kind": "Firmware", "metadata": metadata, "status": planned});
        let api: Api<Firmware> = Api::namespaced(context.client().clone(), key.namespace().unwrap_or_default());
        match api.patch_status(key.name(), &PatchParams::apply(NAME).force(), &Patch::Apply(body)).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Action::done())
}

/// How vehicles fare with a firmware.
fn fare(vehicles: &Snapshot<VehicleView>, key: &Key) -> Fare {
    let mut unhealthy: BTreeMap<Box<str>, i64> = BTreeMap::new();
    for vehicle in vehicles.by_index(GIVEN_UP, key.as_str()) {
        if vehicle.status.retry.as_deref().is_some_and(|retry| retry.unhealthy >= crate::vehicle::plan::UNHEALTHY_MAX) {
            *unhealthy.entry(vehicle.spec.hardware_id.clone()).or_default() += 1;
        }
    }
    let count = |index| i64::try_from(vehicles.index_count(index, key.as_str())).unwrap_or(i64::MAX);
    Fare { deployed: count(RUNNING), failed: count(GIVEN_UP), unhealthy }
}
