//! How an object fares, in one mark and a few words, by what its status says.

use serde_json::Value;

/// In one mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// As it should be.
    Well,
    /// On its way.
    Working,
    /// Not as it should be, and not on its way.
    Bad,
    /// It says nothing of itself.
    Silent,
}

/// How an object fares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// In one mark.
    pub mark: Mark,
    /// In a few words; empty if there is nothing to say.
    pub words: String,
}

impl Mark {
    /// A sign that goes with the words, so that nothing depends on colours.
    pub fn sign(self) -> char {
        match self {
            Mark::Well => '✓',
            Mark::Working => '…',
            Mark::Bad => '✗',
            Mark::Silent => '-',
        }
    }

    /// In one word, for programs.
    pub fn word(self) -> &'static str {
        match self {
            Mark::Well => "well",
            Mark::Working => "working",
            Mark::Bad => "bad",
            Mark::Silent => "silent",
        }
    }

    /// The colour of a terminal.
    pub fn colour(self) -> u8 {
        match self {
            Mark::Well => 32,
            Mark::Working => 33,
            Mark::Bad => 31,
            Mark::Silent => 90,
        }
    }
}

/// Reasons for which a container waits that time alone does not mend.
const STUCK: [&str; 8] = [
    "CrashLoopBackOff",
    "ImagePullBackOff",
    "ErrImagePull",
    "InvalidImageName",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "ErrImageNeverPull",
];

/// Conditions that say that all is well when they are true.
const GOOD: [&str; 8] =
    ["Ready", "Available", "Established", "Healthy", "Synced", "Accepted", "ScalingActive", "AbleToScale"];

/// Conditions that say that something is wrong when they are true.
const WRONG: [&str; 6] = ["Failed", "Degraded", "Stalled", "ReplicaFailure", "Blocked", "NamesNotAccepted"];

/// Tells how an object fares.
pub fn of(object: &Value) -> Health {
    if !object["metadata"]["deletionTimestamp"].is_null() {
        return terminating(object);
    }
    if is_unseen(object) {
        return health(Mark::Working, "last change not seen yet");
    }
    match object["kind"].as_str().unwrap_or_default() {
        "Pod" => pod(object),
        "Deployment" | "ReplicaSet" | "StatefulSet" | "ReplicationController" => replicas(object),
        "DaemonSet" => {
            let count = |name: &str| object["status"][name].as_i64().unwrap_or(0);
            ready(count("numberReady"), count("desiredNumberScheduled"))
        }
        "Job" => job(object),
        "Namespace" | "PersistentVolume" | "PersistentVolumeClaim" => {
            let phase = text(&object["status"]["phase"]);
            let mark = match phase {
                "Active" | "Bound" | "Available" | "Released" => Mark::Well,
                "Failed" | "Lost" => Mark::Bad,
                _ => Mark::Working,
            };
            health(mark, phase)
        }
        "Vehicle" if is_of_the_fleet(object) => vehicle(object),
        "Rollout" if is_of_the_fleet(object) => rollout(object),
        _ => by_conditions(object),
    }
}

/// A namespace tells what holds it; everything else ends when its finalizers are gone.
fn terminating(object: &Value) -> Health {
    let is_held = condition(object, "NamespaceFinalizersRemaining").is_some_and(|one| one["status"] == "True");
    match is_held {
        true => health(Mark::Bad, "Terminating, held by finalizers in it"),
        false => health(Mark::Working, "Terminating"),
    }
}

fn is_of_the_fleet(object: &Value) -> bool {
    text(&object["apiVersion"]).starts_with("fleet.setpoint.dev/")
}

/// Waiting for consent or for a window is on the way; having given up is not, nor is waiting for what nobody has made.
fn vehicle(vehicle: &Value) -> Health {
    let blocked = condition(vehicle, "Blocked").filter(|one| one["status"] == "True");
    match (text(&vehicle["status"]["phase"]), blocked.map(|one| text(&one["reason"]))) {
        ("Failed", _) => health(Mark::Bad, "Failed"),
        (_, Some("NoFirmware")) => health(Mark::Bad, "NoFirmware"),
        ("UpToDate", _) => health(Mark::Well, "UpToDate"),
        (_, Some(reason)) => health(Mark::Working, reason),
        ("", None) => health(Mark::Silent, ""),
        (phase, None) => health(Mark::Working, phase),
    }
}

/// One that waits for a person is not on its way, unless that person said so.
fn rollout(rollout: &Value) -> Health {
    match text(&rollout["status"]["phase"]) {
        phase @ ("Completed" | "Superseded") => health(Mark::Well, phase),
        "Paused" if rollout["spec"]["paused"] == true => health(Mark::Working, "Paused"),
        phase @ ("Paused" | "RolledBack" | "RollingBack" | "AwaitingApproval") => health(Mark::Bad, phase),
        "" => health(Mark::Silent, ""),
        phase => health(Mark::Working, phase),
    }
}

/// Whether no controller has looked at the last change of the spec.
pub fn is_unseen(object: &Value) -> bool {
    let seen = object["status"]["observedGeneration"].as_i64();
    matches!((seen, object["metadata"]["generation"].as_i64()), (Some(seen), Some(now)) if seen < now)
}

/// A condition by its type.
pub fn condition<'a>(object: &'a Value, name: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|one| one["type"] == name)
}

/// The condition that says that something is wrong, if there is one.
pub fn complaint(object: &Value) -> Option<&Value> {
    let says = |name: &&str, status: &str| condition(object, name).filter(|one| one["status"] == status);
    let wrong = WRONG.iter().find_map(|name| says(name, "True"));
    let progressing = || condition(object, "Progressing").filter(|one| one["status"] == "False");
    let good = || GOOD.iter().find_map(|name| says(name, "False").or_else(|| says(name, "Unknown")));
    wrong.or_else(progressing).or_else(good)
}

fn pod(pod: &Value) -> Health {
    let status = &pod["status"];
    let phase = text(&status["phase"]);
    let containers = || {
        let lists = ["initContainerStatuses", "containerStatuses"];
        lists.into_iter().flat_map(|list| status[list].as_array().into_iter().flatten())
    };
    let waiting = containers().find_map(|one| one["state"]["waiting"]["reason"].as_str());
    if let Some(reason) = waiting.filter(|reason| STUCK.contains(reason)) {
        return health(Mark::Bad, reason);
    }
    match phase {
        "Succeeded" => health(Mark::Well, "Succeeded"),
        "Failed" => health(Mark::Bad, status["reason"].as_str().unwrap_or("Failed")),
        "Running" if condition(pod, "Ready").is_some_and(|one| one["status"] == "True") => {
            health(Mark::Well, "Running")
        }
        "Running" => health(Mark::Working, "Running, not ready"),
        _ => match condition(pod, "PodScheduled").filter(|one| one["status"] == "False") {
            Some(one) if one["reason"] == "SchedulingGated" => health(Mark::Working, "SchedulingGated"),
            Some(one) => health(Mark::Bad, one["reason"].as_str().unwrap_or("Unschedulable")),
            None => health(Mark::Working, waiting.unwrap_or("Pending")),
        },
    }
}

fn replicas(object: &Value) -> Health {
    let wanted = object["spec"]["replicas"].as_i64().unwrap_or(1);
    let found = ready(object["status"]["readyReplicas"].as_i64().unwrap_or(0), wanted);
    let updated = object["status"]["updatedReplicas"].as_i64();
    match complaint(object) {
        _ if object["kind"] == "Deployment" && object["spec"]["paused"] == true => {
            Health { words: format!("{}, paused", found.words), ..found }
        }
        // Old pods that are ready don't make up for new ones that can't be made.
        Some(said) if said["type"] == "ReplicaFailure" || found.mark != Mark::Well && said["type"] != "Available" => {
            health(Mark::Bad, &format!("{}, {}", found.words, text(&said["reason"])))
        }
        _ if object["kind"] == "Deployment" && found.mark == Mark::Well && updated.unwrap_or(0) < wanted => {
            health(Mark::Working, &format!("{}, {} updated", found.words, updated.unwrap_or(0)))
        }
        _ => found,
    }
}

fn ready(ready: i64, wanted: i64) -> Health {
    health(if ready >= wanted { Mark::Well } else { Mark::Working }, &format!("{ready}/{wanted} ready"))
}

fn job(job: &Value) -> Health {
    let holds = |name: &str| condition(job, name).is_some_and(|one| one["status"] == "True");
    let count = |name: &str| job["status"][name].as_i64().unwrap_or(0);
    let wanted = job["spec"]["completions"].as_i64().unwrap_or(1);
    match () {
        () if holds("Complete") => health(Mark::Well, "Complete"),
        () if holds("Failed") => {
            health(Mark::Bad, condition(job, "Failed").map_or("Failed", |one| text(&one["reason"])))
        }
        () if job["spec"]["suspend"] == true => health(Mark::Working, "Suspended"),
        () => health(Mark::Working, &format!("{}/{wanted} done, {} active", count("succeeded"), count("active"))),
    }
}

fn by_conditions(object: &Value) -> Health {
    if let Some(said) = complaint(object) {
        let reason = text(&said["reason"]);
        let words = if reason.is_empty() {
            format!("{} {}", text(&said["type"]), text(&said["status"]))
        } else {
            reason.to_owned()
        };
        return health(if said["status"] == "Unknown" { Mark::Working } else { Mark::Bad }, &words);
    }
    if let Some(name) = GOOD.iter().find(|name| condition(object, name).is_some()) {
        return health(Mark::Well, name);
    }
    match object["status"]["phase"].as_str() {
        Some(phase) => health(if phase == "Failed" { Mark::Bad } else { Mark::Well }, phase),
        None => health(Mark::Silent, ""),
    }
}

fn health(mark: Mark, words: &str) -> Health {
    Health { mark, words: words.to_owned() }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_fares_as_its_status_says() {
        let condition = |name: &str, status: &str| json!({"type": name, "status": status, "reason": "Because"});
        let pod = |status: Value| json!({"kind": "Pod", "status": status});
        let fleet = |kind: &str, status: Value| json!({"apiVersion": "fleet.setpoint.dev/v1alpha1", "kind": kind, "status": status});
        for (object, mark, words) in [
            (pod(json!({"phase": "Running", "conditions": [condition("Ready", "True")]})), Mark::Well, "Running"),
            (pod(json!({"phase": "Running"})), Mark::Working, "Running, not ready"),
            (pod(json!({"phase": "Pending"})), Mark::Working, "Pending"),
            (
                pod(json!({"phase": "Pending", "conditions": [condition("PodScheduled", "False")]})),
                Mark::Bad,
                "Because",
            ),
            (
                pod(
                    json!({"phase": "Running", "containerStatuses": [{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}),
                ),
                Mark::Bad,
                "CrashLoopBackOff",
            ),
            (pod(json!({"phase": "Failed", "reason": "Evicted"})), Mark::Bad, "Evicted"),
            (
                json!({"kind": "ReplicaSet", "spec": {"replicas": 3}, "status": {"readyReplicas": 1}}),
                Mark::Working,
                "1/3 ready",
            ),
            (
                json!({"kind": "ReplicaSet", "spec": {"replicas": 3}, "status": {"conditions": [condition("ReplicaFailure", "True")]}}),
                Mark::Bad,
                "0/3 ready, Because",
            ),
            (
                json!({"kind": "Deployment", "spec": {"replicas": 1}, "status": {"readyReplicas": 1, "updatedReplicas": 1}}),
                Mark::Well,
                "1/1 ready",
            ),
            (
                json!({"kind": "Deployment", "metadata": {"generation": 2}, "status": {"observedGeneration": 1}}),
                Mark::Working,
                "last change not seen yet",
            ),
            (
                json!({"kind": "Deployment", "spec": {"replicas": 3}, "status": {"readyReplicas": 3, "updatedReplicas": 0, "conditions": [condition("ReplicaFailure", "True")]}}),
                Mark::Bad,
                "3/3 ready, Because",
            ),
            (fleet("Vehicle", json!({"phase": "Failed"})), Mark::Bad, "Failed"),
            (
                fleet("Vehicle", json!({"phase": "Waiting", "conditions": [condition("Blocked", "True")]})),
                Mark::Working,
                "Because",
            ),
            (fleet("Rollout", json!({"phase": "AwaitingApproval"})), Mark::Bad, "AwaitingApproval"),
            (fleet("Rollout", json!({"phase": "Soaking"})), Mark::Working, "Soaking"),
            (
                json!({"kind": "Namespace", "metadata": {"deletionTimestamp": "t"}, "status": {"phase": "Terminating", "conditions": [condition("NamespaceFinalizersRemaining", "True")]}}),
                Mark::Bad,
                "Terminating, held by finalizers in it",
            ),
            (json!({"kind": "X", "metadata": {"deletionTimestamp": "t"}}), Mark::Working, "Terminating"),
            (json!({"kind": "X", "status": {"conditions": [condition("Ready", "False")]}}), Mark::Bad, "Because"),
            (json!({"kind": "X", "status": {"conditions": [condition("Ready", "True")]}}), Mark::Well, "Ready"),
            (json!({"kind": "Job", "status": {"conditions": [condition("Failed", "True")]}}), Mark::Bad, "Because"),
            (json!({"kind": "ConfigMap"}), Mark::Silent, ""),
        ] {
            assert_eq!(of(&object), health(mark, words), "{object}");
        }
    }
}
