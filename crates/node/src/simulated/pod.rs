//! A pod as its simulated node sees it.

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Deserializer};
use setpoint_runtime::Key;
use setpoint_runtime::cache::{Cached, Pairs};

use super::admission::Demand;
use super::behaviour::{self, Role};
use super::resize;

/// A pod that is bound to a node.
#[derive(Clone, Debug, Deserialize)]
pub struct Pod {
    pub metadata: Meta,
    #[serde(default)]
    pub spec: Spec,
    #[serde(default)]
    pub status: Box<core::PodStatus>,
    /// Nothing happens to it before it is deleted or changed; details that nobody will read are gone.
    #[serde(skip)]
    pub is_settled: bool,
    /// What it takes of its node; kept when details go.
    #[serde(skip)]
    pub demand: Demand,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    pub name: Box<str>,
    pub namespace: Box<str>,
    pub uid: Box<str>,
    pub resource_version: Box<str>,
    pub generation: i64,
    pub annotations: Pairs,
    pub labels: Pairs,
    pub deletion_timestamp: Option<Time>,
    pub deletion_grace_period_seconds: i64,
    pub finalizers: Box<[Box<str>]>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spec {
    pub node_name: Box<str>,
    pub restart_policy: Box<str>,
    pub host_network: bool,
    pub active_deadline_seconds: Option<i64>,
    pub termination_grace_period_seconds: Option<i64>,
    pub containers: Box<[Container]>,
    pub init_containers: Box<[Container]>,
    pub readiness_gates: Box<[ReadinessGate]>,
    pub ephemeral_containers: Box<[Container]>,
    pub overhead: Pairs,
    pub hostname: Option<Box<str>>,
    pub service_account_name: Box<str>,
    pub volumes: Box<[Volume]>,
}

/// A volume: whether it begins empty, or which objects it is filled with.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Volume {
    pub name: Box<str>,
    pub empty_dir: Option<Present>,
    pub config_map: Option<Box<Source>>,
    pub secret: Option<Box<Source>>,
    #[serde(deserialize_with = "projected")]
    pub projected: Option<Box<Projected>>,
}

/// An object whose keys become files.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Source {
    #[serde(alias = "secretName")]
    pub name: Box<str>,
    pub items: Box<[Item]>,
    pub optional: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Item {
    pub key: Box<str>,
}

/// Several objects in one volume.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Projected {
    pub sources: Box<[Projection]>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Projection {
    pub config_map: Option<Source>,
    pub secret: Option<Source>,
}

/// By which pods know the API server: the controller manager makes it in every namespace.
const ROOT_CA: &str = "kube-root-ca.crt";

/// Without what is always there, or is no object: so most pods have none.
fn projected<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<Projected>>, D::Error> {
    let is_certificate = |it: &Projection| it.config_map.as_ref().is_some_and(|of| &*of.name == ROOT_CA);
    let refers = |it: &Projection| it.config_map.is_some() || it.secret.is_some();
    let Some(Projected { sources }) = Option::deserialize(deserializer)? else { return Ok(None) };
    let sources: Vec<_> = sources.into_iter().filter(|it| refers(it) && !is_certificate(it)).collect();
    Ok((!sources.is_empty()).then(|| Box::new(Projected { sources: sources.into() })))
}

/// Something that is there; what is in it is not read.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct Present {}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    pub name: Box<str>,
    pub image: Box<str>,
    pub command: Box<[Box<str>]>,
    pub args: Box<[Box<str>]>,
    /// `Always` on an init container makes it a sidecar.
    pub restart_policy: Option<Box<str>>,
    /// When this container starts again, whatever its policy says.
    pub restart_policy_rules: Box<[RestartRule]>,
    pub image_pull_policy: Box<str>,
    pub termination_message_path: Box<str>,
    pub termination_message_policy: Box<str>,
    pub startup_probe: Option<Probe>,
    pub liveness_probe: Option<Probe>,
    pub readiness_probe: Option<Probe>,
    pub lifecycle: Option<Lifecycle>,
    pub resources: Resources,
    pub resize_policy: Box<[ResizePolicy]>,
    pub ports: Box<[ContainerPort]>,
    pub env: Box<[EnvVar]>,
    pub env_from: Box<[EnvFrom]>,
    pub volume_mounts: Box<[VolumeMount]>,
    pub stdin: bool,
    pub tty: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EnvVar {
    pub name: Box<str>,
    pub value: Box<str>,
    pub value_from: Option<Box<EnvSource>>,
}

/// Where a value comes from; only of the pod itself it is read, of objects it counts whether they are there.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EnvSource {
    pub field_ref: Option<FieldRef>,
    pub config_map_key_ref: Option<KeyRef>,
    pub secret_key_ref: Option<KeyRef>,
}

/// One key of an object.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct KeyRef {
    pub name: Box<str>,
    pub key: Box<str>,
    pub optional: bool,
}

/// An object whose keys are all variables.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EnvFrom {
    pub config_map_ref: Option<Named>,
    pub secret_ref: Option<Named>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Named {
    pub name: Box<str>,
    pub optional: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FieldRef {
    pub field_path: Box<str>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeMount {
    pub name: Box<str>,
    pub mount_path: Box<str>,
    pub sub_path: Box<str>,
}

/// Amounts by resource.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Resources {
    pub requests: Pairs,
    pub limits: Pairs,
}

impl Resources {
    pub fn is_empty(&self) -> bool {
        self.requests.iter().next().is_none() && self.limits.iter().next().is_none()
    }
}

/// Whether a container has to start again to be given more or less.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResizePolicy {
    pub resource_name: Box<str>,
    pub restart_policy: Box<str>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerPort {
    pub host_port: u16,
    #[serde(rename = "hostIP")]
    pub host_ip: Box<str>,
    pub protocol: Box<str>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Probe {
    pub initial_delay_seconds: i64,
    pub period_seconds: i64,
    pub timeout_seconds: i64,
    pub success_threshold: i64,
    pub failure_threshold: i64,
    pub termination_grace_period_seconds: Option<i64>,
    pub exec: Option<Exec>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Lifecycle {
    pub pre_stop: Option<Hook>,
}

/// What is done before a container is told to stop; what would be asked of it over the network is taken to be done at once.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Hook {
    pub exec: Option<Exec>,
    pub sleep: Option<Pause>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Pause {
    pub seconds: i64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RestartRule {
    pub exit_codes: Option<ExitCodes>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ExitCodes {
    pub operator: Box<str>,
    pub values: Box<[i32]>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Exec {
    pub command: Box<[Box<str>]>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReadinessGate {
    pub condition_type: Box<str>,
}

impl RestartRule {
    /// Whether it lets a container start again that ended with this code.
    pub fn is_met(&self, code: i32) -> bool {
        self.exit_codes.as_ref().is_some_and(|codes| match &*codes.operator {
            "In" => codes.values.contains(&code),
            "NotIn" => !codes.values.contains(&code),
            _ => false,
        })
    }
}

impl Container {
    /// Whether it starts with the init containers and goes on beside the others.
    pub fn is_sidecar(&self) -> bool {
        self.restart_policy.as_deref() == Some("Always")
    }
}

impl Pod {
    pub fn phase(&self) -> &str {
        self.status.phase.as_deref().unwrap_or_default()
    }

    pub fn has_ended(&self) -> bool {
        matches!(self.phase(), "Succeeded" | "Failed")
    }

    /// Whether its node has let it in.
    pub fn has_arrived(&self) -> bool {
        self.is_settled || self.status.start_time.is_some()
    }

    /// Drops what nobody will read, if nothing happens to the pod before it is deleted.
    pub fn settle(&mut self) {
        if !self.is_settled {
            self.demand = Demand::of(&self.spec, &self.status);
        }
        let is_leaving = self.metadata.deletion_timestamp.is_some();
        let is_up = self.phase() == "Running"
            && self.spec.active_deadline_seconds.is_none()
            && self.spec.readiness_gates.is_empty()
            && self.spec.ephemeral_containers.is_empty()
            && is_true(&self.status, "Ready")
            && !resize::is_open(&self.status)
            && self.spec.containers.iter().chain(&self.spec.init_containers).all(|container| {
                let behaviour = behaviour::of(self, container, Role::Main);
                container.restart_policy.is_none()
                    && behaviour.is_steady()
                    && (!is_leaving || behaviour.stops_at_once())
            })
            && self.status.observed_generation.is_none_or(|seen| seen == self.metadata.generation);
        if !self.is_settled && !is_up && !self.has_ended() {
            return;
        }
        self.is_settled = true;
        if self.metadata.finalizers.is_empty() {
            let kept = std::mem::take(&mut *self.status);
            *self.status = core::PodStatus { phase: kept.phase, pod_ip: kept.pod_ip, ..core::PodStatus::default() };
            self.spec.containers = Box::default();
            self.spec.init_containers = Box::default();
            self.spec.volumes = Box::default();
            self.metadata.labels = Pairs::default();
        }
    }
}

fn is_true(status: &core::PodStatus, kind: &str) -> bool {
    status.conditions.iter().flatten().any(|condition| condition.type_ == kind && condition.status == "True")
}

impl Cached for Pod {
    type Kind = core::Pod;

    fn key(&self) -> Key {
        Key::namespaced(&self.metadata.namespace, &self.metadata.name)
    }

    fn resource_version(&self) -> &str {
        &self.metadata.resource_version
    }

    fn uid(&self) -> &str {
        &self.metadata.uid
    }

    fn generation(&self) -> Option<i64> {
        Some(self.metadata.generation)
    }

    fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }
}
