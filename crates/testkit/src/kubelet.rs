//! An actor that plays the nodes of a scenario: pods start, run, fail, and go.

use std::time::Duration;

use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::{Container, Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use setpoint_runtime::Key;
use setpoint_runtime::cache::Informer;
use setpoint_runtime::clock::Clock;
use setpoint_runtime::controller::{Action, Context, Controller, Error};
use setpoint_runtime::manager::{Manager, ManagerOptions};
use setpoint_runtime::retry;

use crate::ControlPlane;

/// The annotation of a pod that says what becomes of it: `never-ready` (it runs, but is never ready), `succeeded` or
/// `failed:3` (it is ready for a while, then its containers end with this code). Without one it runs and is ready.
pub const OUTCOME: &str = "testkit/outcome";

/// Plays all nodes: a pod that is bound is Running and Ready after a while, and one that is deleted is gone when its grace
/// period is over. Give it to [`Scenario::world`](crate::Scenario::world), or spawn it in a test.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
/// use k8s_openapi::api::core::v1::Pod;
/// use setpoint_testkit::{ControlPlane, Kubelet};
///
/// let plane = ControlPlane::start().await;
/// plane.let_pods_into("default").await;
/// tokio::spawn(Kubelet::binding_to("node-1").run(&plane));
/// let pods = kube::Api::<Pod>::default_namespaced(plane.client());
/// let pod = serde_json::json!({"metadata": {"name": "web"}, "spec": {"containers": [{"name": "web", "image": "web"}]}});
/// pods.create(&Default::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
/// plane.settle().await.unwrap();
/// let status = pods.get("web").await.unwrap().status.unwrap();
/// assert_eq!(status.phase.as_deref(), Some("Running"));
/// # });
/// ```
#[derive(Debug, Clone)]
pub struct Kubelet {
    /// The node that pods without one are bound to, unless their affinity names another. Without it they are left alone: they are the scheduler's.
    pub node: Option<String>,
    /// How long a pod needs to start.
    pub startup: Duration,
    /// How long a pod runs that is to end.
    pub runtime: Duration,
}

impl Default for Kubelet {
    fn default() -> Kubelet {
        Kubelet { node: None, startup: Duration::from_secs(2), runtime: Duration::from_secs(10) }
    }
}

impl Kubelet {
    /// One that plays the scheduler, too: it binds every pod to this node, unless the pod's affinity names another.
    pub fn binding_to(node: &str) -> Kubelet {
        Kubelet { node: Some(node.to_owned()), ..Kubelet::default() }
    }

    /// Runs until it is dropped.
    ///
    /// # Panics
    /// If the framework that it is made with fails, which ends the test.
    pub fn run(self, plane: &ControlPlane) -> BoxFuture<'static, ()> {
        let (client, clock, chance) = (plane.client(), plane.clock(), plane.chance().fork("kubelet"));
        Box::pin(async move {
            let manager = Manager::new(client, clock, chance, ManagerOptions::default()).expect("a manager");
            let pods: Informer<Pod> = manager.informers().all();
            let cache = pods.clone();
            let controller = Controller::builder("kubelet", manager.client().clone(), clock, &pods)
                .build(move |context: Context, key: Key| reconcile(self.clone(), context, cache.clone(), key));
            manager.add_controller(&[], controller).expect("the only controller");
            manager.run(std::future::pending()).await.expect("a kubelet that runs on");
        })
    }

    /// What is to be done for a pod at a moment.
    fn plan(&self, pod: &Pod, clock: &Clock) -> Step {
        let status = pod.status.clone().unwrap_or_default();
        let phase = status.phase.as_deref().unwrap_or("Pending");
        let has_ended = ["Succeeded", "Failed"].contains(&phase);
        if let Some(deletion) = &pod.metadata.deletion_timestamp {
            // The timestamp is the moment at which the grace period is over.
            return match clock.until(deletion.0) {
                left if left.is_zero() || has_ended => Step::Remove,
                left => Step::Wait(left),
            };
        }
        if has_ended {
            return Step::Nothing;
        }
        if pod.spec.as_ref().is_none_or(|spec| spec.node_name.is_none()) {
            let node = self.node.clone().map(|node| only_node(pod).unwrap_or(node));
            return node.map_or(Step::Nothing, Step::Bind);
        }
        let Some(start) = status.start_time else { return Step::Write(Moment::Starting, clock.wall()) };
        let after =
            |span: Duration| clock.until(start.0 + SignedDuration::try_from(span).unwrap_or(SignedDuration::MAX));
        let (until_started, until_ended) = (after(self.startup), after(self.startup + self.runtime));
        match Outcome::of(pod) {
            _ if !until_started.is_zero() => Step::Wait(until_started),
            _ if phase != "Running" => Step::Write(Moment::Running, start.0),
            Outcome::Runs | Outcome::NeverReady => Step::Nothing,
            Outcome::Ends(_) if !until_ended.is_zero() => Step::Wait(until_ended),
            Outcome::Ends(code) => Step::Write(Moment::Ended(code), start.0),
        }
    }
}

/// The node that a pod's affinity names, as that of a DaemonSet's pod does.
fn only_node(pod: &Pod) -> Option<String> {
    let affinity = pod.spec.as_ref()?.affinity.as_ref()?.node_affinity.as_ref()?;
    let required = affinity.required_during_scheduling_ignored_during_execution.as_ref()?;
    let mut fields = required.node_selector_terms.iter().flat_map(|term| term.match_fields.iter().flatten());
    let field = fields.find(|field| field.key == "metadata.name" && field.operator == "In")?;
    field.values.as_ref()?.first().cloned()
}

/// What is to be done for a pod.
#[derive(Debug, Clone, PartialEq)]
enum Step {
    Nothing,
    Wait(Duration),
    Bind(String),
    /// Write the status of this moment of a pod that began to start then.
    Write(Moment, Timestamp),
    Remove,
}

/// A moment in the life of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    Starting,
    Running,
    Ended(i32),
}

/// What becomes of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Runs,
    NeverReady,
    Ends(i32),
}

impl Outcome {
    fn of(pod: &Pod) -> Outcome {
        match pod.annotations().get(OUTCOME).map(String::as_str) {
            None => Outcome::Runs,
            Some("never-ready") => Outcome::NeverReady,
            Some("succeeded") => Outcome::Ends(0),
            Some(other) => match other.strip_prefix("failed:").and_then(|code| code.parse().ok()) {
                Some(code) => Outcome::Ends(code),
                None => panic!("{OUTCOME}: {other:?} is none of never-ready, succeeded, failed:CODE"),
            },
        }
    }
}

async fn reconcile(kubelet: Kubelet, context: Context, pods: Informer<Pod>, key: Key) -> Result<Action, Error> {
    let Some(pod) = context.read(&pods, &key) else { return Ok(Action::done()) };
    let api: Api<Pod> = Api::namespaced(context.client().clone(), key.namespace().unwrap_or_default());
    let written = match kubelet.plan(&pod, context.clock()) {
        Step::Nothing => return Ok(Action::done()),
        Step::Wait(time) => return Ok(Action::requeue_after(time)),
        Step::Bind(node) => bind(&context, &pod, &node).await,
        Step::Write(moment, start) => {
            let patch = json!({"metadata": {"uid": pod.uid()}, "status": status(&pod, moment, start, context.clock())});
            api.patch_status(key.name(), &PatchParams::default(), &Patch::Strategic(patch)).await.map(drop)
        }
        Step::Remove => {
            let preconditions = Some(Preconditions { uid: pod.uid(), resource_version: None });
            let params = DeleteParams { preconditions, ..DeleteParams::default().grace_period(0) };
            api.delete(key.name(), &params).await.map(drop)
        }
    };
    match written {
        Err(error) if retry::is_not_found(&error) => Ok(Action::done()),
        written => Ok(written.map(|()| Action::done())?),
    }
}

async fn bind(context: &Context, pod: &Pod, node: &str) -> Result<(), kube::Error> {
    let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "namespace": namespace, "uid": pod.uid()},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    });
    let api: Api<Pod> = Api::namespaced(context.client().clone(), &namespace);
    api.create_subresource::<Value, Value>("binding", &name, &PostParams::default(), &binding).await.map(drop)
}

/// The status of a pod at a moment, as a kubelet writes it.
fn status(pod: &Pod, moment: Moment, start: Timestamp, clock: &Clock) -> Value {
    let now = clock.time();
    let is_ready = moment == Moment::Running && Outcome::of(pod) != Outcome::NeverReady;
    let why_not = match moment {
        Moment::Ended(0) => Some("PodCompleted"),
        Moment::Ended(_) => Some("PodFailed"),
        Moment::Starting | Moment::Running => (!is_ready).then_some("ContainersNotReady"),
    };
    let condition = |kind: &str, holds: bool, reason: Option<&str>| {
        let since = match conditions(pod).find(|old| old.type_ == kind && (old.status == "True") == holds) {
            Some(same) => same.last_transition_time.clone(),
            None => Some(now.clone()),
        };
        let holds = if holds { "True" } else { "False" };
        json!({"type": kind, "status": holds, "reason": reason, "lastTransitionTime": since, "observedGeneration": pod.metadata.generation})
    };
    let spec = pod.spec.clone().unwrap_or_default();
    let (host, address) = (
        address(spec.node_name.as_deref().unwrap_or_default()),
        address(&format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any())),
    );
    let containers: Vec<Value> =
        spec.containers.iter().map(|container| container_status(container, moment, is_ready, start, clock)).collect();
    json!({
        "phase": match moment {
            Moment::Starting => "Pending",
            Moment::Running => "Running",
            Moment::Ended(0) => "Succeeded",
            Moment::Ended(_) => "Failed",
        },
        "observedGeneration": pod.metadata.generation,
        "startTime": Time(start),
        "hostIP": host, "hostIPs": [{"ip": host}],
        "podIP": address, "podIPs": [{"ip": address}],
        "qosClass": pod.status.as_ref().and_then(|status| status.qos_class.clone()),
        "conditions": [
            condition("PodScheduled", true, None),
            condition("Initialized", true, None),
            condition("ContainersReady", is_ready, why_not),
            condition("Ready", is_ready, why_not),
        ],
        "containerStatuses": containers,
    })
}

fn conditions(pod: &Pod) -> impl Iterator<Item = &PodCondition> {
    pod.status.iter().flat_map(|status| status.conditions.iter().flatten())
}

fn container_status(container: &Container, moment: Moment, is_ready: bool, start: Timestamp, clock: &Clock) -> Value {
    let start = Time(start);
    let image = container.image.as_deref().unwrap_or_default();
    let state = match moment {
        Moment::Starting => json!({"waiting": {"reason": "ContainerCreating"}}),
        Moment::Running => json!({"running": {"startedAt": clock.time()}}),
        Moment::Ended(code) => {
            let reason = if code == 0 { "Completed" } else { "Error" };
            json!({"terminated": {"exitCode": code, "reason": reason, "startedAt": start, "finishedAt": clock.time()}})
        }
    };
    json!({
        "name": container.name, "image": image, "imageID": image, "restartCount": 0,
        "ready": is_ready, "started": moment == Moment::Running, "state": state,
    })
}

/// An address in 10.0.0.0/8 that follows from a name, so that it is the same in every run.
fn address(name: &str) -> String {
    // FNV-1a: stable between runs and versions, which the standard library's hasher is not.
    let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let [_, b, c, d] = hash.to_be_bytes();
    format!("10.{b}.{c}.{d}")
}

#[cfg(test)]
mod tests;
