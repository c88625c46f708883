//! What has to change on a node: what it says about itself if it is silent, taints by its conditions, labels.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use setpoint_runtime::cache::Pairs;

use super::heartbeat::{Grace, Heartbeat};
use super::zones::Permit;
use crate::node::{Effect, Node, Taint};

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Which condition keeps new pods away with which taint.
const BY_CONDITION: [(&str, &str, &str); 6] = [
    ("Ready", "False", NOT_READY),
    ("Ready", "Unknown", UNREACHABLE),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
];

/// What nodes say about themselves; the network is others' business.
const SAID_BY_NODE: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// Labels that older programs look for, and where their values come from.
const LABELS: [(&str, &str); 2] =
    [("kubernetes.io/os", "beta.kubernetes.io/os"), ("kubernetes.io/arch", "beta.kubernetes.io/arch")];

/// The conditions of a node that isn't heard of any more, if they don't say so yet.
pub fn silence(node: &Node, heartbeat: &Heartbeat, grace: Grace, now: Timestamp) -> Option<Vec<Value>> {
    let says_so = node.condition("Ready").is_some_and(|ready| &*ready.status == "Unknown");
    if says_so || now < heartbeat.deadline(grace) {
        return None;
    }
    let time = Time(Timestamp::from_second(now.as_second()).unwrap_or(now));
    let unknown = |kind: &&str| match node.condition(kind) {
        None => Some(json!({
            "type": kind,
            "status": "Unknown",
            "reason": "NodeStatusNeverUpdated",
            "message": "Kubelet never posted node status.",
            "lastHeartbeatTime": node.metadata.creation_timestamp,
            "lastTransitionTime": time,
        })),
        Some(condition) if &*condition.status == "Unknown" => None,
        Some(_) => Some(json!({
            "type": kind,
            "status": "Unknown",
            "reason": "NodeStatusUnknown",
            "message": "Kubelet stopped posting node status.",
            "lastTransitionTime": time,
        })),
    };
    Some(SAID_BY_NODE.iter().filter_map(unknown).collect())
}

/// What the pods of a node have to fear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threat {
    /// The node can run pods: none.
    None,
    /// The node never said how it is: none, and none is taken away.
    Unsaid,
    /// All are to go, by this taint.
    Leave(&'static str),
}

/// What follows from what a node says.
pub fn threat(node: &Node) -> Threat {
    match node.condition("Ready").map(|ready| &*ready.status) {
        None => Threat::Unsaid,
        Some("True") => Threat::None,
        Some("False") => Threat::Leave(NOT_READY),
        Some(_) => Threat::Leave(UNREACHABLE),
    }
}

/// Whether a node needs the permit of its zone: it has no taint yet that sends pods away.
pub fn needs_permit(node: &Node) -> bool {
    let has_one = node.spec.taints.iter().any(is_threat);
    !has_one && matches!(threat(node), Threat::Leave(_))
}

fn is_threat(taint: &Taint) -> bool {
    taint.effect == Effect::NoExecute && matches!(&*taint.key, NOT_READY | UNREACHABLE)
}

/// All taints that a node should have, if they aren't those that it has.
///
/// The taint that sends pods away comes with a permit only; without one that is there it stays as it is, but for a node
/// that says otherwise now. When everything is down, no pods are sent away at all.
pub fn taints(node: &Node, permit: Permit, all_down: bool, now: Timestamp) -> Option<Vec<Taint>> {
    let mut wanted = keep_away(node);
    let has_threat = node.spec.taints.iter().any(is_threat);
    match threat(node) {
        Threat::Leave(key) if !all_down && (has_threat || permit == Permit::Now) => {
            wanted.push(Taint::new(key, Effect::NoExecute));
        }
        Threat::Unsaid if !all_down => wanted.extend(node.spec.taints.iter().filter(|taint| is_threat(taint)).cloned()),
        Threat::Leave(_) | Threat::None | Threat::Unsaid => {}
    }
    let time = Time(Timestamp::from_second(now.as_second()).unwrap_or(now));
    let has = |taint: &Taint| node.spec.taints.iter().any(|other| other.is_same_mark(taint));
    let is_unwanted = |taint: &Taint| is_ours(taint) && !wanted.iter().any(|other| other.is_same_mark(taint));
    if wanted.iter().all(has) && !node.spec.taints.iter().any(is_unwanted) {
        return None;
    }
    let kept = node.spec.taints.iter().filter(|taint| !is_unwanted(taint)).cloned();
    let added = wanted
        .iter()
        .filter(|taint| !has(taint))
        .map(|taint| Taint { time_added: Some(time.clone()), ..taint.clone() });
    Some(kept.chain(added).collect())
}

/// Those taints that keep new pods away.
fn keep_away(node: &Node) -> Vec<Taint> {
    let says = |kind: &str, status: &str| node.condition(kind).is_some_and(|condition| *condition.status == *status);
    let by_condition = BY_CONDITION.iter().filter(|(kind, status, _)| says(kind, status)).map(|(_, _, key)| *key);
    let cordoned = node.spec.unschedulable.then_some(UNSCHEDULABLE);
    by_condition.chain(cordoned).map(|key| Taint::new(key, Effect::NoSchedule)).collect()
}

/// Whether a taint is one that follows from what the node says; others are their makers'.
fn is_ours(taint: &Taint) -> bool {
    let by_condition = BY_CONDITION.iter().any(|(_, _, key)| *taint.key == **key) || &*taint.key == UNSCHEDULABLE;
    is_threat(taint) || taint.effect == Effect::NoSchedule && by_condition
}

/// Labels that have to be set.
pub fn labels(labels: &Pairs) -> BTreeMap<&'static str, String> {
    let wanted = LABELS.iter().filter_map(|(from, to)| Some((*to, labels.get(from)?)));
    wanted.filter(|(to, value)| labels.get(to) != Some(value)).map(|(to, value)| (to, value.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const NOW: &str = "2026-01-01T01:00:00Z";

    fn node(ready: Value, taints: Value) -> Node {
        let conditions = match ready {
            Value::String(status) => {
                json!([{"type": "Ready", "status": status, "lastHeartbeatTime": "2026-01-01T00:00:00Z"}])
            }
            other => other,
        };
        let metadata = json!({"name": "n", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"});
        let spec = json!({"taints": taints});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": {"conditions": conditions}}))
            .unwrap()
    }

    fn now() -> Timestamp {
        NOW.parse().unwrap()
    }

    fn said(taints: Option<Vec<Taint>>) -> Option<Vec<String>> {
        let short = |key: &str| key.strip_prefix("node.kubernetes.io/").unwrap_or(key).to_owned();
        taints.map(|taints| taints.iter().map(|taint| format!("{}:{:?}", short(&taint.key), taint.effect)).collect())
    }

    fn check(ready: Value, taints: Value, permit: Permit, all_down: bool, expected: Option<&[&str]>) {
        let planned = said(super::taints(&node(ready.clone(), taints.clone()), permit, all_down, now()));
        let expected = expected.map(|list| list.iter().map(|text| (*text).to_owned()).collect());
        assert_eq!(planned, expected, "{ready} {taints} {permit:?} {all_down}");
    }

    #[test]
    fn taints_follow_conditions() {
        let taint = |key: &str, effect: &str| json!({"key": format!("node.kubernetes.io/{key}"), "effect": effect});
        let own = json!({"key": "mine", "effect": "NoExecute"});
        let never = Permit::Never;
        check(json!("True"), json!([own]), never, false, None);
        check(json!("False"), json!([]), never, false, Some(&["not-ready:NoSchedule"]));
        check(json!("False"), json!([]), Permit::Now, false, Some(&["not-ready:NoSchedule", "not-ready:NoExecute"]));
        check(json!("Unknown"), json!([own]), never, false, Some(&["mine:NoExecute", "unreachable:NoSchedule"]));
        // One that sends pods away already is swapped without a permit.
        let both = json!([taint("not-ready", "NoSchedule"), taint("not-ready", "NoExecute")]);
        check(json!("Unknown"), both.clone(), never, false, Some(&["unreachable:NoSchedule", "unreachable:NoExecute"]));
        check(json!("False"), both.clone(), never, false, None);
        // Back again.
        check(json!("True"), both.clone(), never, false, Some(&[]));
        // Everything is down: nobody is sent away.
        check(json!("False"), both.clone(), Permit::Now, true, Some(&["not-ready:NoSchedule"]));
        // A node without a word keeps what sends pods away.
        check(json!([]), json!([taint("not-ready", "NoExecute")]), Permit::Now, false, None);
        let pressed = json!([{"type": "Ready", "status": "True"}, {"type": "MemoryPressure", "status": "True"},
            {"type": "DiskPressure", "status": "Unknown"}, {"type": "NetworkUnavailable", "status": "True"}]);
        check(
            pressed,
            json!([]),
            never,
            false,
            Some(&["memory-pressure:NoSchedule", "network-unavailable:NoSchedule"]),
        );
    }

    #[test]
    fn a_cordoned_node_is_tainted_and_new_taints_say_since_when() {
        let mut cordoned = node(json!("True"), json!([]));
        cordoned.spec.unschedulable = true;
        let planned = taints(&cordoned, Permit::Never, false, now()).unwrap();
        assert_eq!(
            serde_json::to_value(&planned).unwrap(),
            json!([
            {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule", "timeAdded": NOW}])
        );
    }

    #[test]
    fn a_silent_node_is_said_to_be_unknown_once() {
        let grace = Grace { usual: Duration::from_secs(50), startup: Duration::from_secs(60) };
        let heard = |node: &Node, at: &str| Heartbeat::after(None, node, None, at.parse().unwrap());
        let ready = node(json!("True"), json!([]));
        assert_eq!(silence(&ready, &heard(&ready, "2026-01-01T00:59:11Z"), grace, now()), None);
        let said = silence(&ready, &heard(&ready, "2026-01-01T00:59:10Z"), grace, now()).unwrap();
        let reasons: Vec<_> =
            said.iter().map(|said| (said["type"].as_str().unwrap(), said["reason"].as_str().unwrap())).collect();
        let never = "NodeStatusNeverUpdated";
        assert_eq!(
            reasons,
            [
                ("Ready", "NodeStatusUnknown"),
                ("MemoryPressure", never),
                ("DiskPressure", never),
                ("PIDPressure", never)
            ]
        );
        let unknown = node(json!("Unknown"), json!([]));
        assert_eq!(silence(&unknown, &heard(&unknown, "2026-01-01T00:00:00Z"), grace, now()), None);
    }

    #[test]
    fn older_labels_follow_the_newer() {
        let node: Node = serde_json::from_value(json!({"metadata": {"name": "n", "labels": {
            "kubernetes.io/os": "linux", "beta.kubernetes.io/os": "plan9", "kubernetes.io/arch": "arm64", "x": "y"}}}))
        .unwrap();
        let planned = labels(&node.metadata.labels);
        assert_eq!(json!(planned), json!({"beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": "arm64"}));
    }
}
