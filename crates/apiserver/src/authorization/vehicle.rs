//! What a vehicle may do by being one: read itself, say how it is, and read the firmware that it is to run. Nothing else.
//!
//! No binding says so: there would have to be one for each vehicle. It is to vehicles what the node authorizer is to nodes.

use serde_json::Value;
use setpoint_api::GroupResource;
use setpoint_store::Store;

use super::{Asked, What};
use crate::user::{CREDENTIAL_ID, User};

pub(crate) const GROUP: &str = "fleet.setpoint.dev";

/// The group of all vehicles.
const VEHICLES: &str = "system:vehicles";

/// What the name of a vehicle as a user begins with: namespace and name follow.
const VEHICLE: &str = "system:vehicle:";

/// The hub's account. It acts as vehicles, and as nobody else.
const HUB: &str = "system:serviceaccount:kube-system:fleet-hub";

/// Whether somebody may do something by being a vehicle, or by being the hub that speaks for vehicles.
pub(super) fn allows(store: &Store, user: &User, asked: &Asked<'_>) -> bool {
    let What::Resource { group, resource, subresource, namespace, name } = asked.what else { return false };
    if user.name == HUB && asked.verb == "impersonate" && group.is_empty() && subresource.is_empty() {
        return match resource {
            "users" => own_of(name).is_some(),
            "groups" => name == VEHICLES,
            _ => false,
        };
    }
    let Some((own_namespace, own_name)) = own_of(&user.name) else { return false };
    if !is(user) || group != GROUP || namespace != own_namespace || !is_let_in(store, user, own_namespace, own_name) {
        return false;
    }
    match (resource, subresource, asked.verb) {
        ("vehicles", "", "get" | "list" | "watch") | ("vehicles", "status", "get" | "patch") => name == own_name,
        ("firmwares", "", "get") => is_named_by(store, own_namespace, own_name, name),
        _ => false,
    }
}

/// Whether somebody is a vehicle.
pub(crate) fn is(user: &User) -> bool {
    own_of(&user.name).is_some() && user.groups.iter().any(|group| group == VEHICLES)
}

/// The namespace and name of a vehicle, from its name as a user.
fn own_of(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix(VEHICLE)?.split_once(':')?;
    (!namespace.is_empty() && !name.is_empty() && !name.contains(':')).then_some((namespace, name))
}

/// Whether its certificates count. Which of them do, a hub knows, and acts as the vehicle: a vehicle of which that is written down, or
/// whose access is revoked, has nothing to say by itself.
fn is_let_in(store: &Store, user: &User, namespace: &str, name: &str) -> bool {
    if !user.extra.contains_key(CREDENTIAL_ID) {
        return true;
    }
    let vehicles = GroupResource::new(GROUP, "vehicles");
    let Some(object) = store.snapshot().get(&vehicles, Some(namespace), name) else { return true };
    let Ok(vehicle) = serde_json::from_slice::<Value>(object.json()) else { return false };
    let access = &vehicle["spec"]["access"];
    access["revoked"] != true && access["keys"].as_array().is_none_or(Vec::is_empty)
}

/// Whether a vehicle's spec, or the task that it was given, names this firmware. Neither is written by vehicles: of the task, admission
/// sees to that.
fn is_named_by(store: &Store, namespace: &str, vehicle: &str, firmware: &str) -> bool {
    let vehicles = GroupResource::new(GROUP, "vehicles");
    let Some(object) = store.snapshot().get(&vehicles, Some(namespace), vehicle) else { return false };
    let Ok(vehicle) = serde_json::from_slice::<Value>(object.json()) else { return false };
    let versions = [&vehicle["spec"]["firmwareVersion"], &vehicle["status"]["task"]["firmwareVersion"]];
    versions.into_iter().filter_map(Value::as_str).any(|version| name_of(version) == firmware)
}

/// The name of the object of a version.
fn name_of(version: &str) -> String {
    version.to_ascii_lowercase().replace(['+', '_'], "-")
}

#[cfg(test)]
mod tests;
