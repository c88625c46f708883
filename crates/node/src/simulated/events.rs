//! What nodes tell of their pods: the events that people read in `kubectl describe pod`.

use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, ObjectReference, PodStatus};
use setpoint_runtime::events::{Happening, Severity};

use super::pod::Pod;
use super::probes::Kind;
use super::{resize, told};

/// What these events call their author.
pub const AUTHOR: &str = "kubelet";

/// How many are written each second, of all simulated nodes together, and how many at once; real nodes have such limits too.
/// What is more than that is dropped.
pub const PER_SECOND: f64 = 100.0;
pub const BURST: u32 = 500;

/// Something to tell: about which part of the pod, and what.
#[derive(Debug, PartialEq, Eq)]
pub struct Said {
    /// The container in the form of field paths: `spec.containers{web}`.
    pub container: Option<String>,
    pub what: Happening,
}

/// What there is to tell once a pod's status has changed.
pub fn changes(pod: &Pod, new: &PodStatus) -> Vec<Said> {
    let old = &pod.status;
    let lists = [
        ("initContainers", &old.init_container_statuses, &new.init_container_statuses),
        ("containers", &old.container_statuses, &new.container_statuses),
        ("ephemeralContainers", &old.ephemeral_container_statuses, &new.ephemeral_container_statuses),
    ];
    let mut said = Vec::new();
    for (list, old, new) in lists {
        for status in new.iter().flatten() {
            let old = old.iter().flatten().find(|old| old.name == status.name);
            let container = format!("spec.{list}{{{}}}", status.name);
            said.extend(
                steps(pod, old, status).into_iter().map(|what| Said { container: Some(container.clone()), what }),
            );
        }
    }
    said.extend(told::stopped_sidecars(pod, new));
    said.extend(resize::told(pod, new).map(|(reason, note)| {
        let severity = if reason == "ResizeDeferred" { Severity::Warning } else { Severity::Normal };
        Said { container: None, what: happening(severity, reason, note) }
    }));
    said
}

/// What there is to tell of a pod that its node doesn't take.
pub fn rejection(reason: &str, message: &str) -> Said {
    Said { container: None, what: happening(Severity::Warning, reason, message.to_owned()) }
}

/// What there is to tell of a pod whose time is over.
pub fn deadline() -> Said {
    let note = "Pod was active on the node longer than the specified deadline".to_owned();
    Said { container: None, what: happening(Severity::Normal, "DeadlineExceeded", note) }
}

/// What there is to tell of a container that is asked to end.
pub fn killing(container: String, note: String) -> Said {
    Said { container: Some(container), what: happening(Severity::Normal, "Killing", note) }
}

/// What there is to tell of a probe that failed, with what it said.
pub fn unhealthy(container: String, kind: Kind, text: &str) -> Said {
    let note = format!("{kind:?} probe failed: {text}");
    Said { container: Some(container), what: happening(Severity::Warning, "Unhealthy", note) }
}

/// What there is to tell of a volume that can't be filled.
pub fn not_mounted(volume: &str, why: &str) -> Said {
    let note = format!("MountVolume.SetUp failed for volume {volume:?} : {why}");
    Said { container: None, what: happening(Severity::Warning, "FailedMount", note) }
}

/// What there is to tell of a container that can't start because of its variables: its image is there by then.
pub fn not_configured(pod: &Pod, list: &str, status: &ContainerStatus) -> impl Iterator<Item = Said> {
    let container = format!("spec.{list}{{{}}}", status.name);
    let note = format!("Error: {}", waiting(status.state.as_ref()).1);
    let mut all = pulled(pod, status);
    all.push(happening(Severity::Warning, "Failed", note));
    all.into_iter().map(move |what| Said { container: Some(container.clone()), what })
}

/// Refers to a pod, or to one container of it.
pub fn about(pod: &Pod, container: Option<String>) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        name: Some(pod.metadata.name.to_string()),
        namespace: Some(pod.metadata.namespace.to_string()),
        uid: Some(pod.metadata.uid.to_string()),
        field_path: container,
        ..ObjectReference::default()
    }
}

fn steps(pod: &Pod, old: Option<&ContainerStatus>, new: &ContainerStatus) -> Vec<Happening> {
    let image = &new.image;
    let id = |status: &ContainerStatus| status.container_id.clone();
    let mut steps = Vec::new();
    if new.container_id.is_some() && old.and_then(id) != new.container_id {
        steps.extend(pulled(pod, new));
        steps.push(happening(Severity::Normal, "Created", "Container created".to_owned()));
        steps.push(happening(Severity::Normal, "Started", "Container started".to_owned()));
    }
    let (before, now) = (waiting(old.and_then(|old| old.state.as_ref())), waiting(new.state.as_ref()));
    let is_new = before.0 != now.0 || old.is_some_and(|old| old.restart_count != new.restart_count);
    match now {
        ("ErrImagePull", message) if is_new => {
            steps.push(happening(Severity::Normal, "Pulling", format!("Pulling image \"{image}\"")));
            steps.push(happening(Severity::Warning, "Failed", format!("Failed to pull image \"{image}\": {message}")));
            steps.push(happening(Severity::Warning, "Failed", "Error: ErrImagePull".to_owned()));
        }
        ("ImagePullBackOff", _) if is_new => {
            steps.push(happening(Severity::Normal, "BackOff", format!("Back-off pulling image \"{image}\"")));
            steps.push(happening(Severity::Warning, "Failed", "Error: ImagePullBackOff".to_owned()));
        }
        ("CrashLoopBackOff", _) if is_new => {
            let meta = &pod.metadata;
            let of = format!("{} in pod {}_{}({})", new.name, meta.name, meta.namespace, meta.uid);
            let note = format!("Back-off restarting failed container {of}");
            steps.push(happening(Severity::Warning, "BackOff", note));
        }
        _ => {}
    }
    steps
}

/// How a container came by its image. All images are there but those that are always to be asked for.
fn pulled(pod: &Pod, status: &ContainerStatus) -> Vec<Happening> {
    let image = &status.image;
    let told = |reason: &str, note: String| happening(Severity::Normal, reason, note);
    let mut all = pod.spec.containers.iter().chain(&pod.spec.init_containers).chain(&pod.spec.ephemeral_containers);
    match all.find(|it| *it.name == *status.name).map(|it| &*it.image_pull_policy) {
        Some("Always") => {
            let how = "in 0s (0s including waiting). Image size: 0 bytes.";
            let pulled = format!("Successfully pulled image \"{image}\" {how}");
            vec![told("Pulling", format!("Pulling image \"{image}\"")), told("Pulled", pulled)]
        }
        _ => vec![told("Pulled", format!("Container image \"{image}\" already present on machine"))],
    }
}

/// Why a container waits, and in more words.
fn waiting(state: Option<&ContainerState>) -> (&str, &str) {
    let waiting = state.and_then(|state| state.waiting.as_ref());
    waiting.map_or(("", ""), |it| (it.reason.as_deref().unwrap_or(""), it.message.as_deref().unwrap_or("")))
}

fn happening(severity: Severity, reason: &str, note: String) -> Happening {
    Happening { severity, reason: reason.to_owned(), action: reason.to_owned(), note }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// What is told when the one container of a pod goes from one status to another.
    fn told(list: &str, old: Value, new: Value) -> Vec<String> {
        let status = |container: Value| json!({list: if container.is_null() { json!([]) } else { json!([container]) }});
        let metadata = json!({"name": "a", "namespace": "shop", "uid": "u"});
        let pod: Pod = serde_json::from_value(json!({"metadata": metadata, "status": status(old)})).unwrap();
        let new: PodStatus = serde_json::from_value(status(new)).unwrap();
        let line = |said: Said| {
            format!(
                "{:?} {} {} {}",
                said.what.severity,
                said.what.reason,
                said.container.unwrap_or_default(),
                said.what.note
            )
        };
        changes(&pod, &new).into_iter().map(line).collect()
    }

    fn container(state: Value, id: &str, restarts: i32) -> Value {
        let mut status = json!({"name": "c", "image": "nginx", "imageID": "", "ready": false, "restartCount": restarts, "state": state});
        if !id.is_empty() {
            status["containerID"] = json!(id);
        }
        status
    }

    #[test]
    fn a_start_is_told_once() {
        let running = |restarts| container(json!({"running": {}}), &format!("id-{restarts}"), restarts);
        let started = |list: &str| {
            [
                format!("Normal Pulled spec.{list}{{c}} Container image \"nginx\" already present on machine"),
                format!("Normal Created spec.{list}{{c}} Container created"),
                format!("Normal Started spec.{list}{{c}} Container started"),
            ]
        };
        assert_eq!(told("containerStatuses", Value::Null, running(0)), started("containers"));
        assert_eq!(told("initContainerStatuses", Value::Null, running(0)), started("initContainers"));
        assert_eq!(told("containerStatuses", running(0), running(1)), started("containers"));
        assert!(told("containerStatuses", running(1), running(1)).is_empty());
        let ended = container(json!({"terminated": {"exitCode": 0}}), "id-1", 1);
        assert!(told("containerStatuses", running(1), ended).is_empty());
    }

    #[test]
    fn an_image_that_is_always_asked_for_is_told_to_be_pulled() {
        let spec = json!({"containers": [{"name": "c", "image": "nginx", "imagePullPolicy": "Always"}]});
        let pod: Pod = serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap();
        let new = json!({"containerStatuses": [container(json!({"running": {}}), "id", 0)]});
        let notes: Vec<_> =
            changes(&pod, &serde_json::from_value(new).unwrap()).into_iter().map(|it| it.what.note).collect();
        let pulled = "Successfully pulled image \"nginx\" in 0s (0s including waiting). Image size: 0 bytes.";
        assert_eq!(notes, ["Pulling image \"nginx\"", pulled, "Container created", "Container started"]);
    }

    #[test]
    fn waiting_is_told_when_its_reason_changes() {
        let wait = |reason: &str, restarts| {
            container(json!({"waiting": {"reason": reason, "message": "not found"}}), "", restarts)
        };
        assert_eq!(
            told("containerStatuses", wait("ContainerCreating", 0), wait("ErrImagePull", 0)),
            [
                "Normal Pulling spec.containers{c} Pulling image \"nginx\"",
                "Warning Failed spec.containers{c} Failed to pull image \"nginx\": not found",
                "Warning Failed spec.containers{c} Error: ErrImagePull",
            ]
        );
        assert_eq!(
            told("containerStatuses", wait("ErrImagePull", 0), wait("ImagePullBackOff", 0)),
            [
                "Normal BackOff spec.containers{c} Back-off pulling image \"nginx\"",
                "Warning Failed spec.containers{c} Error: ImagePullBackOff",
            ]
        );
        let again = ["Warning BackOff spec.containers{c} Back-off restarting failed container c in pod a_shop(u)"];
        assert_eq!(told("containerStatuses", wait("CrashLoopBackOff", 1), wait("CrashLoopBackOff", 2)), again);
        assert!(told("containerStatuses", wait("CrashLoopBackOff", 2), wait("CrashLoopBackOff", 2)).is_empty());
    }
}
