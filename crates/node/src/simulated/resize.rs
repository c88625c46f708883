//! Pods that are given more or less while they run.
//!
//! Everything that a node knows of it is in the status, so that another process goes on with it: what it has set aside is
//! `allocatedResources`, what a container has is `resources`, and the condition `PodResizeInProgress` says since when the first is to
//! become the second. What doesn't fit waits in `PodResizePending`.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ContainerStatus, PodCondition, PodStatus, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use setpoint_runtime::cache::Pairs;

use super::pod::{Container, Pod, Resources};
use super::status::{Verdict, remove, set};

/// The conditions that tell of it.
pub const IN_PROGRESS: &str = "PodResizeInProgress";
pub const PENDING: &str = "PodResizePending";

/// How long it takes until a container has what was set aside for it.
const TAKES: SignedDuration = SignedDuration::from_secs(1);

/// How often a node looks again whether there is room for what waits.
const RETRY: SignedDuration = SignedDuration::from_secs(10);

/// What becomes of a pod that asks for something else than it has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Resize {
    /// It asks for nothing else, or is given it already.
    #[default]
    Nothing,
    Granted,
    /// There is no room, for this reason.
    Deferred(String),
}

/// Whether a pod asks for something that was not set aside for it yet.
pub fn is_asked(pod: &Pod) -> bool {
    pod.has_arrived() && !pod.is_settled && granted(pod, &pod.status).is_none() && differs(pod, &pod.status)
}

/// Whether there is something left to do about it.
pub fn is_open(status: &PodStatus) -> bool {
    [IN_PROGRESS, PENDING].into_iter().any(|kind| condition(status, kind).is_some())
}

/// Since when what a pod asks for is set aside, if its containers don't have it yet.
pub fn granted(pod: &Pod, status: &PodStatus) -> Option<Timestamp> {
    let condition = condition(status, IN_PROGRESS)?;
    let is_of_now = condition.observed_generation == Some(pod.metadata.generation);
    condition.last_transition_time.as_ref().filter(|_| is_of_now).map(|time| time.0)
}

/// Writes down what was decided, and that nothing is left to do once that is so; when to look again.
pub fn apply(pod: &Pod, status: &mut PodStatus, decided: &Resize, now: Timestamp) -> Option<Timestamp> {
    let generation = pod.metadata.generation;
    let tell = |status: &mut PodStatus, verdict| set(status, verdict, generation, now);
    match decided {
        Resize::Nothing => {
            if condition(status, PENDING).is_some() {
                remove(status, PENDING);
            }
            let since = granted(pod, status)?;
            Some(later(since, TAKES)).filter(|at| *at > now)
        }
        Resize::Granted => {
            remove(status, PENDING);
            remove(status, IN_PROGRESS);
            tell(status, Verdict::holds(IN_PROGRESS));
            for (container, own) in pairs(pod, status) {
                own.allocated_resources = quantities(&container.resources.requests);
            }
            Some(later(now, TAKES))
        }
        Resize::Deferred(why) => {
            let reason = Some("Deferred");
            tell(status, Verdict { reason, message: Some(why.clone()), ..Verdict::holds(PENDING) });
            Some(later(now, RETRY))
        }
    }
}

/// What a container has from its start on: what is set aside for it. Pods that ask for nothing are not told of.
pub fn start(pod: &Pod, container: &Container, status: &mut ContainerStatus) {
    let mut all = pod.spec.containers.iter().chain(&pod.spec.init_containers);
    if !all.any(|it| !it.resources.is_empty()) {
        return;
    }
    let is_new = status.resources.is_none();
    if is_new || granted(pod, &pod.status).is_some() {
        give(container, status);
    }
}

/// Gives a container what is set aside for it, once it is time, unless it has to start again for that.
pub fn settle(pod: &Pod, container: &Container, status: &mut ContainerStatus, now: Timestamp) {
    let Some(since) = granted(pod, &pod.status) else { return };
    let is_running = status.state.as_ref().is_some_and(|state| state.running.is_some());
    if now >= later(since, TAKES) && !(is_running && restarts(container, status)) {
        give(container, status);
    }
}

/// Whether a container has to start again to get what it asks for.
pub fn restarts(container: &Container, status: &ContainerStatus) -> bool {
    let has = status.resources.clone().unwrap_or_default();
    container.resize_policy.iter().filter(|it| &*it.restart_policy == "RestartContainer").any(|it| {
        let name = &*it.resource_name;
        let differs = |wanted: &Pairs, has: &Option<BTreeMap<String, Quantity>>| {
            wanted.get(name) != has.as_ref().and_then(|has| has.get(name)).map(|it| &*it.0)
        };
        differs(&container.resources.requests, &has.requests) || differs(&container.resources.limits, &has.limits)
    })
}

/// The resize is over once every container has what it asks for.
pub fn conclude(pod: &Pod, status: &mut PodStatus) {
    if condition(status, IN_PROGRESS).is_some() && !differs(pod, status) {
        remove(status, IN_PROGRESS);
    }
}

fn give(container: &Container, status: &mut ContainerStatus) {
    let (requests, limits) = (&container.resources.requests, &container.resources.limits);
    status.allocated_resources = quantities(requests);
    let (requests, limits) = (quantities(requests), quantities(limits));
    status.resources = Some(ResourceRequirements { requests, limits, ..ResourceRequirements::default() });
}

/// Whether a container that was told of has something else than it asks for.
fn differs(pod: &Pod, status: &PodStatus) -> bool {
    let lists = [
        (&pod.spec.init_containers, &status.init_container_statuses),
        (&pod.spec.containers, &status.container_statuses),
    ];
    lists.into_iter().any(|(containers, statuses)| {
        containers.iter().any(|container| {
            let own = statuses.iter().flatten().find(|it| *it.name == *container.name);
            own.and_then(|own| own.resources.as_ref()).is_some_and(|has| !is_same(&container.resources, has))
        })
    })
}

fn is_same(wanted: &Resources, has: &ResourceRequirements) -> bool {
    quantities(&wanted.requests) == has.requests && quantities(&wanted.limits) == has.limits
}

/// The containers of a pod with what is told of them.
fn pairs<'a>(
    pod: &'a Pod,
    status: &'a mut PodStatus,
) -> impl Iterator<Item = (&'a Container, &'a mut ContainerStatus)> {
    let all = move |name: &str| {
        let mut all = pod.spec.init_containers.iter().chain(&pod.spec.containers);
        all.find(|it| *it.name == *name)
    };
    let lists = [status.init_container_statuses.as_mut(), status.container_statuses.as_mut()];
    let told = lists.into_iter().flatten().flatten().filter(|it| it.resources.is_some());
    told.filter_map(move |own| Some((all(&own.name)?, own)))
}

fn quantities(pairs: &Pairs) -> Option<BTreeMap<String, Quantity>> {
    let all: BTreeMap<String, Quantity> =
        pairs.iter().map(|(name, amount)| (name.to_owned(), Quantity(amount.to_owned()))).collect();
    (!all.is_empty()).then_some(all)
}

fn condition<'a>(status: &'a PodStatus, kind: &str) -> Option<&'a PodCondition> {
    status.conditions.iter().flatten().find(|it| it.type_ == kind)
}

fn later(moment: Timestamp, span: SignedDuration) -> Timestamp {
    moment.saturating_add(span).unwrap_or(Timestamp::MAX)
}

/// What there is to tell once a status has changed: how it is called, and with which words.
pub fn told(pod: &Pod, new: &PodStatus) -> Option<(&'static str, String)> {
    let seen = |status: &PodStatus, kind: &str| condition(status, kind).map(|it| it.observed_generation);
    let (old, is_over) = (&pod.status, matches!(new.phase.as_deref(), Some("Succeeded" | "Failed")));
    if let Some(waits) = condition(new, PENDING).filter(|_| seen(new, PENDING) != seen(old, PENDING)) {
        return Some(("ResizeDeferred", summary(pod, "Pod resize Deferred", waits.message.as_deref())));
    }
    match (seen(old, IN_PROGRESS), seen(new, IN_PROGRESS)) {
        (before, Some(now)) if before != Some(now) => Some(("ResizeStarted", summary(pod, "Pod resize started", None))),
        (Some(_), None) if !is_over => Some(("ResizeCompleted", summary(pod, "Pod resize completed", None))),
        _ => None,
    }
}

/// What a pod asks for, in the kubelet's form.
fn summary(pod: &Pod, what: &str, error: Option<&str>) -> String {
    #[derive(Serialize)]
    struct Amounts<'a> {
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        limits: BTreeMap<&'a str, &'a str>,
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        requests: BTreeMap<&'a str, &'a str>,
    }
    #[derive(Serialize)]
    struct One<'a> {
        name: &'a str,
        resources: Amounts<'a>,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct All<'a> {
        #[serde(skip_serializing_if = "Vec::is_empty")]
        init_containers: Vec<One<'a>>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        containers: Vec<One<'a>>,
        generation: i64,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<&'a str>,
    }
    fn each(containers: &[Container]) -> Vec<One<'_>> {
        fn one(it: &Container) -> One<'_> {
            let (limits, requests) = (it.resources.limits.iter().collect(), it.resources.requests.iter().collect());
            One { name: &it.name, resources: Amounts { limits, requests } }
        }
        containers.iter().map(one).collect()
    }
    let (init_containers, containers) = (each(&pod.spec.init_containers), each(&pod.spec.containers));
    let all = All { init_containers, containers, generation: pod.metadata.generation, error };
    format!("{what}: {}", serde_json::to_string(&all).unwrap_or_default())
}
