//! The smallest controller: a thermostat says how warm it should be, and the room gets there one degree a minute.
//!
//! It reads what is, compares with what should be, takes one step, and comes back later. Nothing is remembered between
//! two runs: it may die at any moment.

use std::time::Duration;

use kube::api::{Patch, PatchParams};
use kube::{Api, CustomResource};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use setpoint_runtime::Key;
use setpoint_runtime::cache::Informer;
use setpoint_runtime::config::Settings;
use setpoint_runtime::controller::{Action, Context, Controller, Error, Predicate};
use setpoint_runtime::manager::{Manager, ManagerError};

use crate::program;

/// How long the room needs for one degree.
const DEGREE: Duration = Duration::from_secs(60);

/// How warm a room is that nobody has heated or cooled yet.
pub const AT_FIRST: i32 = 15;

/// What should be.
#[expect(clippy::duplicated_attributes, reason = "two columns of the same type")]
#[derive(CustomResource, Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[kube(group = "example.com", version = "v1", kind = "Thermostat", namespaced, status = "ThermostatStatus")]
#[kube(printcolumn(name = "Target", type_ = "integer", json_path = ".spec.target"))]
#[kube(printcolumn(name = "Temperature", type_ = "integer", json_path = ".status.temperature"))]
pub struct ThermostatSpec {
    /// How warm it should be, in degrees Celsius.
    pub target: i32,
}

/// What is.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct ThermostatStatus {
    /// How warm it is, in degrees Celsius.
    pub temperature: i32,
}

/// Adds the controller to a manager.
pub fn add_to(manager: &Manager, settings: &Settings) -> Result<(), ManagerError> {
    let thermostats: Informer<Thermostat> = program::informer(manager, settings);
    let cache = thermostats.clone();
    let controller = Controller::builder("thermostat", manager.client().clone(), manager.clock(), &thermostats)
        .options(settings.controller_options())
        // Its own writes to the status need not wake it: it comes back by itself.
        .predicate(Predicate::generation_changed())
        .build(move |context: Context, key: Key| reconcile(context, cache.clone(), key));
    manager.add_controller(&[], controller)
}

async fn reconcile(context: Context, cache: Informer<Thermostat>, key: Key) -> Result<Action, Error> {
    let Some(thermostat) = context.read(&cache, &key) else { return Ok(Action::done()) };
    let actual = thermostat.status.as_ref().map(|status| status.temperature);
    let Some(next) = step(actual, thermostat.spec.target) else { return Ok(Action::done()) };
    let (namespace, name) = (key.namespace().unwrap_or_default(), key.name());
    let api: Api<Thermostat> = Api::namespaced(context.client().clone(), namespace);
    let status = Patch::Merge(json!({"status": {"temperature": next}}));
    api.patch_status(name, &PatchParams::default(), &status).await?;
    Ok(Action::requeue_after(DEGREE))
}

/// The next temperature; none if nothing has to change.
fn step(actual: Option<i32>, target: i32) -> Option<i32> {
    match actual {
        None => Some(AT_FIRST),
        Some(actual) if actual == target => None,
        Some(actual) => Some(actual.saturating_add(target.saturating_sub(actual).signum())),
    }
}

#[cfg(test)]
mod tests {
    use super::step;

    #[test]
    fn the_room_gets_there_one_degree_at_a_time() {
        for (actual, target, next) in
            [(None, 21, Some(15)), (Some(15), 21, Some(16)), (Some(22), 21, Some(21)), (Some(21), 21, None)]
        {
            assert_eq!(step(actual, target), next);
        }
    }
}
