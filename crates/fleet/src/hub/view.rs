//! What the hub keeps of vehicles and firmwares.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;
use setpoint_runtime::cache::LeanMeta;

use crate::kinds::{Access, Firmware, FirmwareSpec, Progress, Session, Slot, Task, UpdatePolicy, Vehicle};

/// The label that assigns a vehicle to the gateway that speaks for it.
pub const GATEWAY_LABEL: &str = "fleet.setpoint.dev/gateway";

/// A vehicle, as the hub sees it.
#[derive(Debug, Deserialize)]
pub struct VehicleView {
    pub metadata: LeanMeta,
    pub spec: Wish,
    #[serde(default)]
    pub status: Status,
}

setpoint_runtime::lean_view!(VehicleView of Vehicle);

/// What should be.
#[derive(Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Wish {
    #[serde(default)]
    pub hardware_id: Box<str>,
    #[serde(default)]
    pub paused: bool,
    #[serde(default)]
    pub update_policy: Box<UpdatePolicy>,
    #[serde(default)]
    pub access: Option<Box<Access>>,
}

impl Wish {
    /// Whether a certificate with this key, or one of a gateway, which has none of the vehicle's, lets speak for the vehicle.
    pub fn admits(&self, key: Option<&str>) -> bool {
        let Some(access) = &self.access else { return true };
        let counts = |key: &str| access.keys.is_empty() || access.keys.iter().any(|known| known == key);
        !access.revoked && key.is_none_or(counts)
    }
}

/// What is: the task, which the controller writes, and all that the hub itself writes.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    #[serde(default)]
    pub task: Option<Box<Task>>,
    #[serde(default)]
    pub firmware_version: Option<Box<str>>,
    #[serde(default)]
    pub slot: Option<Box<Slot>>,
    #[serde(default)]
    pub progress: Option<Box<Progress>>,
    #[serde(default)]
    pub agent_version: Option<Box<str>>,
    #[serde(default)]
    pub rxswin: Option<Box<str>>,
    #[serde(default)]
    pub session: Option<Box<Session>>,
    #[serde(default, deserialize_with = "moment")]
    pub last_seen_time: Option<Timestamp>,
    #[serde(default)]
    pub conditions: Conditions,
}

/// The conditions that the hub writes: whether each holds, and since when.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(from = "Vec<Condition>")]
pub struct Conditions {
    pub connected: Option<(bool, Timestamp)>,
    pub healthy: Option<(bool, Timestamp)>,
}

impl From<Vec<Condition>> for Conditions {
    fn from(all: Vec<Condition>) -> Conditions {
        let of = |kind: &str| {
            let found = all.iter().find(|condition| condition.type_ == kind);
            found.map(|condition| (condition.status == "True", condition.last_transition_time.0))
        };
        Conditions { connected: of("Connected"), healthy: of("Healthy") }
    }
}

impl Status {
    pub fn is_connected(&self) -> bool {
        self.conditions.connected.is_some_and(|(holds, _)| holds)
    }

    pub fn epoch(&self) -> u64 {
        self.session.as_ref().and_then(|session| u64::try_from(session.epoch).ok()).unwrap_or_default()
    }
}

impl VehicleView {
    /// Whether what a vehicle is told differs.
    pub fn wants_other_than(&self, old: &VehicleView) -> bool {
        self.status.task != old.status.task || self.spec != old.spec || self.metadata.uid != old.metadata.uid
    }

    /// The task that the vehicle hasn't ended, by what it said itself.
    pub fn open_task(&self) -> Option<&Task> {
        let task = self.status.task.as_deref()?;
        let ended = self.status.progress.as_ref().is_some_and(|progress| {
            progress.task_id == task.id && progress.attempt >= task.attempt && !progress.result.is_empty()
        });
        (!ended).then_some(task)
    }
}

/// A firmware, as the hub sees it.
#[derive(Debug, Deserialize)]
pub struct FirmwareView {
    pub metadata: LeanMeta,
    pub spec: FirmwareSpec,
}

setpoint_runtime::lean_view!(FirmwareView of Firmware);

fn moment<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    Ok(Option::<Time>::deserialize(deserializer)?.map(|time| time.0))
}
