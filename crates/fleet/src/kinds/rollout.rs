//! A rollout: a firmware for many vehicles, step by step, within budgets.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema;

/// What should be.
#[expect(clippy::duplicated_attributes, reason = "columns of the same type")]
#[derive(CustomResource, KubeSchema, Clone, Debug, Deserialize, PartialEq, Serialize)]
#[kube(group = "fleet.setpoint.dev", version = "v1alpha1", kind = "Rollout", namespaced, status = "RolloutStatus")]
#[kube(shortname = "fro", category = "fleet", derive = "PartialEq")]
#[kube(doc = "A rollout: a firmware for many vehicles, step by step, within budgets.")]
#[kube(selectable = ".status.phase", selectable = ".spec.firmwareRef.name")]
#[kube(printcolumn(name = "Firmware", type_ = "string", json_path = ".spec.firmwareRef.name"))]
#[kube(printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"))]
#[kube(printcolumn(name = "Step", type_ = "string", json_path = ".status.stepText"))]
#[kube(printcolumn(name = "Eligible", type_ = "integer", json_path = ".status.counts.eligible"))]
#[kube(printcolumn(name = "Updated", type_ = "integer", json_path = ".status.counts.succeeded"))]
#[kube(printcolumn(name = "Updating", type_ = "integer", json_path = ".status.counts.inProgress"))]
#[kube(printcolumn(name = "Failed", type_ = "integer", json_path = ".status.counts.failed"))]
#[kube(printcolumn(name = "Offline", type_ = "integer", json_path = ".status.counts.offline"))]
#[kube(printcolumn(name = "Blocked", type_ = "integer", json_path = ".status.counts.blocked", priority = 1))]
#[kube(printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"))]
#[serde(rename_all = "camelCase")]
pub struct RolloutSpec {
    /// Which vehicles of the namespace; all of them if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::selector")]
    pub selector: Option<LabelSelector>,
    /// What they should run.
    pub firmware_ref: FirmwareRef,
    /// How many, one step after the other. Limits count from the beginning: 1%, 10%, 50%. All that are left are a last step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub steps: Vec<Step>,
    /// The share, in percent, of a step's vehicles that must have confirmed before the next one begins.
    #[serde(default = "default_threshold")]
    #[schemars(range(min = 0, max = 100))]
    pub success_threshold: i64,
    /// How many vehicles must have come to an end before a share of failures counts.
    #[serde(default = "default_samples")]
    #[schemars(range(min = 1))]
    pub min_samples: i64,
    /// How many may fail, as a number or as a share of those that have come to an end.
    #[serde(default = "default_failures")]
    #[schemars(schema_with = "schema::share")]
    pub max_failures: IntOrString,
    /// How many of one group may be without a confirmed firmware at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<GroupBudget>,
    /// How many may be without a confirmed firmware at once, as a number or as a share of all.
    #[serde(default = "default_concurrent")]
    #[schemars(schema_with = "schema::share")]
    pub max_concurrent: IntOrString,
    /// How many bytes a second all of its vehicles together may download; the hub keeps to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub bytes_per_second: Option<i64>,
    /// When vehicles may be told: `[DAYS ]HH:MM-HH:MM[ ZONE]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::window")]
    pub window: Option<String>,
    /// How long vehicles that are offline are waited for at the end.
    #[serde(default = "default_offline", rename = "offlineTTL")]
    #[schemars(schema_with = "schema::span")]
    pub offline_ttl: String,
    /// How long a step may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::optional_span")]
    pub step_deadline: Option<String>,
    /// What happens when too many fail.
    #[serde(default)]
    pub on_failure: OnFailure,
    /// The version that a rollback leads to; without one, to what each vehicle had before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = schema::VERSION))]
    pub rollback_to: Option<String>,
    /// Whether vehicles that come later are taken in. Such a rollout never ends.
    #[serde(default)]
    pub dynamic: bool,
    /// Nobody else is told while this is true.
    #[serde(default)]
    pub paused: bool,
    /// Up to which step people have agreed; only steps with `approve` ask.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub approved_step: i64,
    /// Up to which step people have let it go on before the soak was over.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub promoted_step: i64,
    /// Takes everything back.
    #[serde(default)]
    pub rollback: bool,
}

/// Names a Firmware of the same namespace.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct FirmwareRef {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// A step.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// What people call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub name: Option<String>,
    /// Which of the vehicles; all of them if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::selector")]
    pub selector: Option<LabelSelector>,
    /// How many of those, as a number or a share; all of them if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::optional_share")]
    pub limit: Option<IntOrString>,
    /// How long all must have been well before the next step begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::optional_span")]
    pub soak: Option<String>,
    /// Whether somebody has to agree before it begins, by `approvedStep`.
    #[serde(default)]
    pub approve: bool,
}

/// A budget for each group of vehicles.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupBudget {
    /// The label by whose value vehicles are a group; those without it are one, too.
    #[schemars(length(min = 1, max = 316))]
    pub group_by: String,
    /// How many of a group, as a number or as a share of the group.
    #[schemars(schema_with = "schema::share")]
    pub value: IntOrString,
}

/// What happens when too many fail.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
pub enum OnFailure {
    /// Nobody else is told, until somebody changes the spec.
    #[default]
    Pause,
    /// All that were told go back.
    Rollback,
}

/// What is. Counts only: what a vehicle does stands in the vehicle.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RolloutStatus {
    /// Pending, Progressing, Soaking, AwaitingApproval, Paused, RollingBack, RolledBack or Completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// The generation of the spec that this is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The step under way, from 1.
    #[serde(default)]
    pub step: i64,
    /// The step and how many there are.
    #[serde(default)]
    pub step_text: String,
    /// When the step began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::optional_time")]
    pub step_time: Option<Time>,
    /// When the step's vehicles had confirmed; what it soaks from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::optional_time")]
    pub reached_time: Option<Time>,
    /// How many are where.
    #[serde(default)]
    pub counts: Counts,
    /// The most frequent failures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub top_failures: Vec<TopFailure>,
    /// Progressing, Paused and Completed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// How many vehicles are where.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Counts {
    /// Those that are meant and can run the firmware.
    pub eligible: i64,
    /// Those that were told.
    pub released: i64,
    /// Those that were told, are reachable and have not come to an end.
    pub in_progress: i64,
    /// Those that have confirmed it.
    pub succeeded: i64,
    /// Those that have given up, and those that failed three times in a row; the latter are still tried.
    pub failed: i64,
    /// Those that are not reachable and have not confirmed it.
    pub offline: i64,
    /// Those that are meant and can't be told: paused, wrong hardware, too old, quarantined.
    pub blocked: i64,
}

/// A frequent failure.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TopFailure {
    /// Why, in one word.
    pub reason: String,
    /// On which hardware.
    pub hardware_id: String,
    /// How many.
    pub n: i64,
}

fn default_threshold() -> i64 {
    95
}

fn default_samples() -> i64 {
    1
}

fn default_failures() -> IntOrString {
    IntOrString::String("5%".to_owned())
}

fn default_concurrent() -> IntOrString {
    IntOrString::Int(100)
}

fn default_offline() -> String {
    "168h".to_owned()
}
