//! Carries out what a rollout decided: reads what counts at this moment, tells vehicles, writes the status.

use std::collections::BTreeMap;

use futures_util::{StreamExt, stream};
use kube::api::{ListParams, Patch, PatchParams};
use kube::core::Request;
use kube::{Api, Resource};
use serde::Deserialize;
use serde_json::json;
use setpoint_runtime::controller::{Context, Error};

use super::back;
use super::pick::Unconfirmed;
use super::tally::Facts;
use crate::kinds::{GROUP, Rollout, RolloutStatus, VERSION, Vehicle};
use crate::view::VehicleView;

/// Vehicles that are told at the same time.
const AT_ONCE: usize = 16;

/// Vehicles in one answer.
const PAGE: u32 = 500;

/// The longest name of a manager that the API takes.
const MANAGER_BYTES_MAX: usize = 128;

/// Who owns the wish of a vehicle that was told by a rollout.
pub fn manager(rollout: &str) -> String {
    let mut name = format!("rollout/{rollout}");
    name.truncate(MANAGER_BYTES_MAX);
    name
}

/// Counts those without a confirmed firmware, asking the API server itself: a cache may not show yet who was told a moment ago, perhaps by
/// another process.
pub async fn unconfirmed(context: &Context, namespace: &str, facts: &Facts<'_>) -> Result<Unconfirmed, Error> {
    let target = &facts.firmware.spec.version;
    // In the order in which a vehicle goes through them, so that none slips through between two lists: on its way; at something that it is
    // not to do any more; on its way to what a rollback names; on its way back.
    let mut fields = vec![
        format!("spec.firmwareVersion={target},status.firmwareVersion!={target}"),
        format!("spec.firmwareVersion!={target},status.firmwareVersion!={target},status.progress.stage!="),
    ];
    let other = facts.terms.rollback_to.as_ref().filter(|other| *other != target);
    fields.extend(other.map(|other| {
        format!("spec.firmwareVersion={other},status.firmwareVersion!={other},status.firmwareVersion!={target}")
    }));
    fields.push(format!("spec.firmwareVersion!={target},status.firmwareVersion={target}"));
    let mut vehicles = BTreeMap::new();
    for fields in fields {
        for vehicle in list(context, namespace, &fields).await? {
            vehicles.insert(vehicle.metadata.key.to_string(), vehicle);
        }
    }
    let mut counted = Unconfirmed::default();
    for vehicle in vehicles.values().filter(|vehicle| facts.has_place(vehicle)) {
        counted.count(facts.terms, vehicle);
    }
    Ok(counted)
}

/// Whether anybody has to go back yet, by what the API server itself says: a cache may not show yet who was told.
pub async fn is_anybody_left(context: &Context, namespace: &str, facts: &Facts<'_>) -> Result<bool, Error> {
    let fields = format!("spec.firmwareVersion={}", facts.firmware.spec.version);
    let vehicles = list(context, namespace, &fields).await?;
    let (_, back) = back::returns(facts, vehicles.iter());
    Ok(back.ready > 0)
}

#[derive(Deserialize)]
struct Page {
    #[serde(default)]
    metadata: PageMeta,
    items: Vec<VehicleView>,
}

#[derive(Default, Deserialize)]
struct PageMeta {
    #[serde(default, rename = "continue")]
    next: Option<String>,
}

async fn list(context: &Context, namespace: &str, fields: &str) -> Result<Vec<VehicleView>, Error> {
    let mut params = ListParams::default().fields(fields).limit(PAGE);
    let mut all = Vec::new();
    loop {
        let request = Request::new(Vehicle::url_path(&(), Some(namespace))).list(&params).map_err(Error::terminal)?;
        let page: Page = context.client().request(request).await?;
        all.extend(page.items);
        match page.metadata.next.filter(|next| !next.is_empty()) {
            Some(next) => params = params.continue_token(&next),
            None => return Ok(all),
        }
    }
}

/// Tells vehicles which version to run; each as it was when that was decided. Says how many had changed in between: they are looked at
/// again.
pub async fn tell(
    context: &Context,
    namespace: &str,
    rollout: &str,
    told: Vec<(&VehicleView, &str)>,
) -> Result<usize, Error> {
    let api: Api<Vehicle> = Api::namespaced(context.client().clone(), namespace);
    let params = PatchParams::apply(&manager(rollout)).force();
    let calls = told.into_iter().map(|(vehicle, version)| {
        let metadata = &vehicle.metadata;
        let body = json!({
            "apiVersion": format!("{GROUP}/{VERSION}"),
            "kind": "Vehicle",
            "metadata": {
                "name": metadata.key.name(), "uid": metadata.uid, "resourceVersion": metadata.resource_version,
            },
            "spec": {"firmwareVersion": version},
        });
        let (api, params, name) = (api.clone(), params.clone(), metadata.key.name().to_owned());
        async move { api.patch_metadata(&name, &params, &Patch::Apply(body)).await }
    });
    let calls: Vec<_> = calls.collect();
    let mut answers = stream::iter(calls).buffer_unordered(AT_ONCE);
    let mut changed = 0;
    while let Some(answer) = answers.next().await {
        match answer {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => changed += 1,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(changed)
}

/// Writes the status, for the very rollout that was read.
pub async fn write(context: &Context, rollout: &Rollout, status: &RolloutStatus) -> Result<(), Error> {
    let metadata = &rollout.metadata;
    let (name, namespace) = (metadata.name.clone().unwrap_or_default(), metadata.namespace.clone().unwrap_or_default());
    let body = json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": "Rollout",
        "metadata": {"name": name, "uid": metadata.uid, "resourceVersion": metadata.resource_version},
        "status": status,
    });
    let api: Api<Rollout> = Api::namespaced(context.client().clone(), &namespace);
    match api.patch_status(&name, &PatchParams::apply(super::NAME).force(), &Patch::Apply(body)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error.into()),
    }
}
