//! A vehicle: the firmware that it should run, and how far it is.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema;

/// What should be.
#[expect(clippy::duplicated_attributes, reason = "columns and fields of the same type")]
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[kube(group = "fleet.setpoint.dev", version = "v1alpha1", kind = "Vehicle", namespaced, status = "VehicleStatus")]
#[kube(shortname = "veh", category = "fleet", derive = "PartialEq", derive = "Default")]
#[kube(doc = "A vehicle: the firmware that it should run, and how far it is.")]
#[kube(selectable = ".spec.firmwareVersion", selectable = ".spec.hardwareId")]
#[kube(selectable = ".status.phase", selectable = ".status.firmwareVersion")]
#[kube(selectable = ".status.progress.stage")]
#[kube(printcolumn(name = "Wanted", type_ = "string", json_path = ".spec.firmwareVersion"))]
#[kube(printcolumn(name = "Running", type_ = "string", json_path = ".status.firmwareVersion"))]
#[kube(printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"))]
#[kube(printcolumn(
    name = "Blocked",
    type_ = "string",
    json_path = ".status.conditions[?(@.type=='Blocked')].reason",
    priority = 1
))]
#[kube(printcolumn(
    name = "Connected",
    type_ = "string",
    json_path = ".status.conditions[?(@.type=='Connected')].status"
))]
#[kube(printcolumn(name = "Hardware", type_ = "string", json_path = ".spec.hardwareId", priority = 1))]
#[kube(printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"))]
#[serde(rename_all = "camelCase")]
pub struct VehicleSpec {
    /// The version that it should run: that of a Firmware of the same namespace. Without one it keeps what it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = schema::VERSION))]
    pub firmware_version: Option<String>,
    /// Which hardware it is; firmware says for which hardware it is made.
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("hardwareId can't be changed: it is another vehicle then"))]
    pub hardware_id: String,
    /// Nothing new is begun while this is true. What is being installed is finished.
    #[serde(default)]
    pub paused: bool,
    /// When and how it may be updated.
    #[serde(default)]
    pub update_policy: UpdatePolicy,
    /// Whose certificates count for it, and what lets it in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<Access>,
}

/// Whose certificates count for a vehicle, and what lets it in.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Access {
    /// What lets it ask for a first certificate, once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<AccessToken>,
    /// The token that was used up, by its key. Written by the vehicle approver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub used_token: Option<String>,
    /// The public keys whose certificates count, in hexadecimal: the newest, and the one before it. Written by the vehicle approver. As
    /// long as there are none, every certificate for its name counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2), inner(length(max = 512)))]
    pub keys: Vec<String>,
    /// Until when the certificate of the newest key counts. Written by the vehicle approver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::optional_time")]
    pub keys_until: Option<Time>,
    /// How long after that the vehicle may still come back by its key, without a token; 90 days (`2160h`) if left out, never with `0s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::optional_span")]
    pub return_within: Option<String>,
    /// No certificate counts, and none is given out, while this is true.
    #[serde(default)]
    pub revoked: bool,
}

/// What lets a vehicle in.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AccessToken {
    /// The public key of the token, in hexadecimal. The vehicle has the other half.
    #[schemars(length(min = 64, max = 64))]
    pub key: String,
    /// Until when it can be used.
    #[schemars(schema_with = "schema::time")]
    pub expires: Time,
}

/// When and how a vehicle may be updated.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UpdatePolicy {
    /// When it may download: `[DAYS ]HH:MM-HH:MM[ ZONE]`, such as `Sat,Sun 22:00-05:00 Europe/Berlin`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::window")]
    pub download_window: Option<String>,
    /// When it may install, in the same form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::window")]
    pub install_window: Option<String>,
    /// Whether somebody in the vehicle has to agree before it installs.
    #[serde(default)]
    pub require_consent: bool,
    /// The charge, in percent, below which it doesn't install.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub min_battery: Option<i32>,
    /// Whether it has to stand before it installs.
    #[serde(default)]
    pub require_parked: bool,
    /// Whether it may download over a link that is paid by volume.
    #[serde(default)]
    pub metered_ok: bool,
    /// What else must hold on the vehicle before it installs, in CEL: `battery > 40 && parked`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub gate: Option<String>,
}

/// What is. `phase`, `observedGeneration`, `task`, `retry` and the conditions `UpToDate`, `Updating` and `Blocked` are written by the
/// vehicle controller, the rest by the hub.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VehicleStatus {
    /// Where it is on its way: Pending, UpToDate, Waiting, Downloading, Verifying, Installing, Rebooting, Confirming, RollingBack,
    /// RetryBackoff or Failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// The generation of the spec that the phase is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The last task that the vehicle was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<Task>,
    /// How its attempts went, while they fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// The version that it runs and has confirmed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firmware_version: Option<String>,
    /// Its two places for firmware.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<Slot>,
    /// How far the vehicle is with a task, as it says itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// The version of the agent on the vehicle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_version: Option<String>,
    /// The session that it speaks over, or spoke over last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<Session>,
    /// The identification of the software that it runs, by UN R156; none where the firmware has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rxswin: Option<String>,
    /// When it was last heard of; not exact to more than minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::optional_time")]
    pub last_seen_time: Option<Time>,
    /// Connected and Healthy are the hub's; UpToDate, Updating and Blocked the controller's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// What a vehicle was told to do. The same id and attempt never mean two things.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Task {
    /// Follows from the vehicle's identity, the generation of its spec and the firmware's digest.
    pub id: String,
    /// Counts from 1.
    pub attempt: i64,
    /// The generation of the spec that asked for it.
    pub generation: i64,
    /// The version to install.
    pub firmware_version: String,
    /// The SHA-256 of the whole image.
    pub digest: String,
    /// What it ran when it was told: where a rollback goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_version: Option<String>,
    /// When it was told.
    #[schemars(schema_with = "schema::time")]
    pub issued_at: Time,
    /// When it is given up if nothing was heard of it.
    #[schemars(schema_with = "schema::time")]
    pub deadline: Time,
}

/// How attempts went. Only the last failure is kept.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Retry {
    /// The attempt of the task that failed last.
    pub attempt: i64,
    /// How many failed in a row.
    pub failures: i64,
    /// How many of them because the vehicle was not well with the new firmware.
    #[serde(default)]
    pub unhealthy: i64,
    /// When the next attempt begins; none if only a change of the spec helps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::optional_time")]
    pub next_time: Option<Time>,
    /// Why the last one failed, in one word.
    pub last_reason: String,
    /// Why the last one failed, in a sentence.
    pub last_message: String,
}

/// A session of a vehicle with a hub.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Session {
    /// The hub's name.
    pub hub: String,
    /// Grows with each session of the vehicle: of two hubs that claim it, the one with the higher one is right.
    pub epoch: i64,
}

/// The two places for firmware.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Slot {
    /// The one that it runs from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active: Option<String>,
    /// The other one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inactive: Option<String>,
    /// The SHA-256 of what is in the other one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inactive_digest: Option<String>,
}

/// How far a vehicle is with a task.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// The task that it is about.
    pub task_id: String,
    /// The attempt that it is about.
    pub attempt: i64,
    /// Downloading, Verifying, Installing, Rebooting, Confirming or RollingBack.
    #[serde(default)]
    pub stage: String,
    /// How much of the stage is done.
    #[serde(default)]
    #[schemars(range(min = 0, max = 100))]
    pub percent: i32,
    /// Counts the reports of a task; an older one never replaces a younger.
    #[serde(default)]
    pub seq: i64,
    /// Empty while it goes on; then Succeeded, Failed or RolledBack.
    #[serde(default)]
    pub result: String,
    /// Why it failed, in one word.
    #[serde(default)]
    pub reason: String,
    /// Why it failed, in a sentence.
    #[serde(default)]
    #[schemars(length(max = 4096))]
    pub message: String,
    /// What the vehicle itself waits for: Window, Consent, Battery, Driving, DiskSpace, DownloadBudget or Gate.
    #[serde(default)]
    pub gate: String,
    /// When the vehicle said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::optional_time")]
    pub time: Option<Time>,
}
