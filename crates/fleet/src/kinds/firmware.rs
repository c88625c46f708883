//! A firmware: what it is made of, for which hardware, and how it fares. Its spec never changes.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema;

/// What a firmware is; never changed once it is there.
#[expect(clippy::duplicated_attributes, reason = "columns of the same type")]
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[kube(group = "fleet.setpoint.dev", version = "v1alpha1", kind = "Firmware", plural = "firmwares", namespaced)]
#[kube(status = "FirmwareStatus", shortname = "fw", category = "fleet", derive = "PartialEq", derive = "Default")]
#[kube(doc = "A firmware: what it is made of, for which hardware, and how it fares. Its spec never changes.")]
#[kube(validation = Rule::new("self.metadata.name == self.spec.version.lowerAscii().replace('+', '-').replace('_', '-')")
    .message("the name must be the version, in lower case, with - for + and _"))]
#[kube(selectable = ".spec.version")]
#[kube(printcolumn(name = "Version", type_ = "string", json_path = ".spec.version"))]
#[kube(printcolumn(name = "Counter", type_ = "integer", json_path = ".spec.releaseCounter"))]
#[kube(printcolumn(name = "Hardware", type_ = "string", json_path = ".spec.hardwareIds"))]
#[kube(printcolumn(name = "Deployed", type_ = "integer", json_path = ".status.deployed"))]
#[kube(printcolumn(name = "Failed", type_ = "integer", json_path = ".status.failed"))]
#[kube(printcolumn(name = "Quarantined", type_ = "string", json_path = ".status.quarantinedFor"))]
#[kube(printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"))]
#[x_kube(validation = Rule::new("self == oldSelf").message("a firmware never changes: make another one"))]
#[serde(rename_all = "camelCase")]
pub struct FirmwareSpec {
    /// Its version; the name of the object follows from it.
    #[schemars(regex(pattern = schema::VERSION))]
    pub version: String,
    /// Counts releases. A vehicle takes none with a lower count than it has confirmed.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub release_counter: i64,
    /// The hardware that it is made for.
    #[schemars(length(min = 1, max = 256), inner(length(min = 1, max = 63)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub hardware_ids: Vec<String>,
    /// The oldest version that it can be installed over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = schema::VERSION))]
    pub min_from_version: Option<String>,
    /// What to download: the whole image, once.
    #[schemars(length(min = 1, max = 1))]
    pub artifacts: Vec<Artifact>,
    /// What it is called in the signed metadata; its version if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub target_name: Option<String>,
    /// The identification of the software by UN R156.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub rxswin: Option<String>,
    /// What people are told before they agree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notes: Option<Notes>,
    /// What must be well after it was started, before it is confirmed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub health_checks: Vec<HealthCheck>,
    /// How many vehicles of one hardware have to be unwell with it before nobody else of that hardware gets it.
    #[serde(default = "one")]
    #[schemars(range(min = 1))]
    pub quarantine_after: i64,
    /// The signed metadata of the release team, which vehicles check; to everybody else it is only text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 262_144))]
    pub signed: Option<String>,
}

/// Something to download.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Artifact {
    /// Where it is.
    #[schemars(length(min = 1, max = 2048))]
    pub url: String,
    /// Its bytes.
    #[schemars(range(min = 1))]
    pub size: i64,
    /// Its SHA-256, in hexadecimal.
    #[schemars(regex(pattern = "^[0-9a-f]{64}$"))]
    pub sha256: String,
}

/// What people are told before they agree.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Notes {
    /// What it is good for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purpose: Option<String>,
    /// How long the vehicle can't be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub minutes: Option<i64>,
    /// What it can't do any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_functions: Option<String>,
}

/// Something that must be well after the new firmware was started.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HealthCheck {
    /// What the vehicle knows it by.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// How long it may take to be well.
    #[serde(default = "a_minute")]
    #[schemars(schema_with = "schema::span")]
    pub timeout: String,
    /// How long it has to stay well.
    #[serde(default = "nothing")]
    #[schemars(schema_with = "schema::span")]
    pub stable_for: String,
}

/// How a firmware fares.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FirmwareStatus {
    /// How many vehicles run it.
    #[serde(default)]
    pub deployed: i64,
    /// How many vehicles should run it and have given up.
    #[serde(default)]
    pub failed: i64,
    /// The hardware that nobody of gets it any more, unless the annotation `fleet.setpoint.dev/no-quarantine` names it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub quarantined_for: Vec<String>,
}

impl FirmwareSpec {
    /// The whole image.
    #[must_use]
    pub fn image(&self) -> Option<&Artifact> {
        self.artifacts.first()
    }
}

fn one() -> i64 {
    1
}

fn a_minute() -> String {
    "60s".to_owned()
}

fn nothing() -> String {
    "0s".to_owned()
}
