//! Objects, and the sentence about them.

use serde_json::json;

use super::*;

fn object(kind: &str, name: &str, owner: &str, spec: Value, status: Value) -> Value {
    let owners = if owner.is_empty() { json!([]) } else { json!([{"uid": owner}]) };
    json!({
        "kind": kind, "spec": spec, "status": status,
        "metadata": {"name": name, "uid": name, "ownerReferences": owners, "creationTimestamp": "2026-01-01T00:00:00Z"},
    })
}

fn pod(status: Value) -> Value {
    object("Pod", "web-1", "rs", json!({"nodeName": "n1"}), status)
}

fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": message})
}

fn event(about: &str, kind: &str, reason: &str, message: &str) -> Value {
    json!({"involvedObject": {"uid": about}, "type": kind, "reason": reason, "message": message, "lastTimestamp": "2026-01-01T00:00:00Z"})
}

fn facts(root: Value, others: Vec<Value>) -> Facts {
    let now = Timestamp::parse("2026-01-01T00:10:00Z").map_or(0, |time| time.seconds);
    Facts { family: Family::of(root, others), now, ..Facts::default() }
}

fn check(facts: &Facts, expected: &str) {
    assert_eq!(sentence(facts), expected);
}

fn deployment(status: Value) -> Value {
    object("Deployment", "web", "", json!({"replicas": 1}), status)
}

fn replica_set(status: Value) -> Value {
    object("ReplicaSet", "rs", "web", json!({"replicas": 1}), status)
}

#[test]
fn what_is_well_is_said_to_be() {
    let well = deployment(json!({"readyReplicas": 1, "updatedReplicas": 1}));
    check(&facts(well, vec![]), "deployment/web is as it should be (1/1 ready)");
    let silent = object("ConfigMap", "c", "", Value::Null, Value::Null);
    check(&facts(silent, vec![]), "configmap/c is there, and nothing about it says that anything is wrong");
}

#[test]
fn the_cause_is_that_of_the_deepest_child() {
    let mut unscheduled = pod(
        json!({"phase": "Pending", "conditions": [condition("PodScheduled", "False", "Unschedulable", "0/3 nodes are available: 3 Insufficient cpu.")]}),
    );
    unscheduled["spec"]["nodeName"] = "".into();
    check(
        &facts(deployment(json!({})), vec![replica_set(json!({})), unscheduled]),
        "deployment/web has 0/1 ready: pod/web-1 fits on no node: 0/3 nodes are available: 3 Insufficient cpu.",
    );
}

#[test]
fn a_pod_without_a_scheduler_is_told_from_one_that_fits_nowhere() {
    let mut unseen = pod(json!({"phase": "Pending"}));
    unseen["spec"]["nodeName"] = Value::Null;
    check(
        &facts(unseen, vec![]),
        "pod/web-1 has no node, and no scheduler has looked at it: does default-scheduler run?",
    );
    let mut gated = pod(json!({"phase": "Pending"}));
    gated["spec"] = json!({"schedulingGates": [{"name": "example.com/budget"}]});
    check(&facts(gated, vec![]), "pod/web-1 is held by its scheduling gates: example.com/budget");
}

#[test]
fn a_container_that_ends_again_and_again_waits_out_its_back_off() {
    let crashing = pod(json!({"phase": "Running", "containerStatuses": [{
        "name": "app", "restartCount": 5, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"exitCode": 2, "reason": "Error"}},
    }]}));
    check(
        &facts(crashing, vec![]),
        "pod/web-1 waits out a back-off: its container app ended again and again (5 restarts; Error with exit code 2)",
    );
    let unpulled = pod(json!({"phase": "Pending", "containerStatuses": [{
        "name": "app", "state": {"waiting": {"reason": "ErrImagePull", "message": "not found"}},
    }]}));
    check(&facts(unpulled, vec![]), "pod/web-1 can't start its container app (ErrImagePull): not found");
}

#[test]
fn a_pod_without_its_volumes_says_which_is_missing() {
    let waiting = json!({"name": "app", "state": {"waiting": {"reason": "ContainerCreating"}}});
    let mut facts = facts(pod(json!({"phase": "Pending", "containerStatuses": [waiting]})), vec![]);
    facts.events = vec![event("web-1", "Warning", "FailedMount", "secret \"keys\" not found")];
    check(&facts, "pod/web-1 waits for its volumes: secret \"keys\" not found");
}

#[test]
fn a_quota_keeps_pods_from_being_made() {
    let message = "pods \"web-x\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1";
    let refused = replica_set(json!({"conditions": [condition("ReplicaFailure", "True", "FailedCreate", message)]}));
    check(
        &facts(deployment(json!({})), vec![refused]),
        &format!("deployment/web has 0/1 ready: replicaset/rs can't make its pods: {message}"),
    );
    let mut by_event = facts(deployment(json!({})), vec![replica_set(json!({}))]);
    by_event.events = vec![event("rs", "Warning", "FailedCreate", "no account")];
    check(&by_event, "deployment/web has 0/1 ready: replicaset/rs can't make its pods: no account");
}

#[test]
fn finalizers_hold_what_is_being_deleted() {
    let mut held = object("Room", "kitchen", "", Value::Null, Value::Null);
    held["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    held["metadata"]["finalizers"] = json!(["example.com/door"]);
    check(
        &facts(held.clone(), vec![]),
        "room/kitchen is being deleted for 10m and is held by its finalizer example.com/door: whoever put it there has to take it away",
    );
    held["metadata"]["finalizers"] = json!(["foregroundDeletion"]);
    check(&facts(held, vec![]), "room/kitchen is being deleted for 10m and waits for what it owns to be gone first");
    let mut namespace = object("Namespace", "a", "", json!({"finalizers": ["kubernetes"]}), Value::Null);
    namespace["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    namespace["status"] = json!({"conditions": [condition("NamespaceContentRemaining", "True", "SomeResourcesRemain", "pods. has 1 resource instances")]});
    check(
        &facts(namespace, vec![]),
        "namespace/a is being deleted for 10m and is not empty: pods. has 1 resource instances",
    );
}

#[test]
fn a_change_that_no_controller_has_seen_is_told() {
    let mut stale = deployment(json!({"observedGeneration": 1}));
    stale["metadata"]["generation"] = 2.into();
    check(
        &facts(stale, vec![]),
        "deployment/web waits for its controller, which has not looked at the last change yet (generation 2, seen 1): does it run?",
    );
    let mut paused = deployment(json!({}));
    paused["spec"]["paused"] = true.into();
    check(&facts(paused, vec![]), "deployment/web is paused: its changes wait until it is resumed");
}

#[test]
fn a_node_that_is_away_is_the_cause_of_its_pods() {
    let mut away = facts(pod(json!({"phase": "Running"})), vec![]);
    let ready = condition("Ready", "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.");
    away.nodes = vec![object("Node", "n1", "", Value::Null, json!({"conditions": [ready]}))];
    check(
        &away,
        "pod/web-1 is on a node that is not ready: node/n1 is not ready: Ready is Unknown (NodeStatusUnknown): Kubelet stopped posting node status.",
    );
}

#[test]
fn a_service_leads_nowhere_without_ready_pods() {
    let service = object("Service", "web", "", json!({"selector": {"app": "web"}}), Value::Null);
    let mut none = facts(service.clone(), vec![]);
    none.selected = Some(vec![]);
    check(&none, "service/web leads nowhere: no pod has the labels app=web");
    let mut unready = facts(service, vec![]);
    let probed = pod(
        json!({"phase": "Running", "containerStatuses": [{"name": "app", "ready": false, "state": {"running": {}}}]}),
    );
    unready.selected = Some(vec![probed]);
    check(&unready, "service/web leads nowhere: pod/web-1 runs but its container app is not ready yet");
    unready.events = vec![event("web-1", "Warning", "Unhealthy", "Readiness probe failed: 503")];
    check(&unready, "service/web leads nowhere: pod/web-1 runs but is not ready: Readiness probe failed: 503");
}

#[test]
fn other_kinds_speak_through_their_conditions_and_events() {
    let status = json!({"conditions": [condition("Ready", "False", "NoPower", "the socket is dead")]});
    let lamp = object("Lamp", "l", "", Value::Null, status);
    check(&facts(lamp, vec![]), "lamp/l: Ready is False (NoPower): the socket is dead");
    let failed = object(
        "Job",
        "j",
        "",
        Value::Null,
        json!({"conditions": [condition("Failed", "True", "BackoffLimitExceeded", "Job has reached the specified backoff limit")]}),
    );
    check(&facts(failed, vec![]), "job/j failed (BackoffLimitExceeded): Job has reached the specified backoff limit");
    let mut unbound =
        facts(object("PersistentVolumeClaim", "data", "", Value::Null, json!({"phase": "Pending"})), vec![]);
    check(&unbound, "persistentvolumeclaim/data is not bound: no volume fits, and nobody makes one");
    unbound.events = vec![event("data", "Normal", "WaitForFirstConsumer", "waiting for first consumer")];
    check(&unbound, "persistentvolumeclaim/data is not bound: WaitForFirstConsumer: waiting for first consumer");
    let mut rollout = facts(object("Thing", "t", "", Value::Null, json!({"phase": "Failed"})), vec![]);
    check(&rollout, "thing/t has Failed, and nothing that it says tells why");
    rollout.events = vec![event("t", "Warning", "Broken", "it broke")];
    check(&rollout, "thing/t: Broken: it broke");
}

#[test]
fn a_controller_that_fails_is_the_cause_where_nothing_else_tells() {
    let run = |kind: &str, outcome: Value, next: Value| {
        json!({
            "key": "web", "attempt": 3, "outcome": outcome, "nextRunSeconds": next,
            "reads": [{"plural": kind, "key": "web"}],
        })
    };
    let told = |run: Value| {
        let traces = json!({"room-controller": [run, {"key": "web", "outcome": {"result": "done"}}]});
        let room = object("Room", "web", "", json!({}), json!({}));
        sentence(&Facts { traces, ..facts(room, vec![]) })
    };
    assert_eq!(
        told(run("rooms", json!({"result": "transient", "message": "no heating"}), json!(12.4))),
        "room/web: room-controller waits out a back-off: it failed 4 times in a row, and tries again 12 s after that: no heating"
    );
    assert_eq!(
        told(run("rooms", json!({"result": "staleCache"}), Value::Null)),
        "room/web: room-controller waits until its cache has seen its own last write"
    );
    let silent = "room/web is there, and nothing about it says that anything is wrong";
    assert_eq!(told(run("rooms", json!({"result": "done"}), Value::Null)), silent);
    assert_eq!(told(run("lamps", json!({"result": "terminal"}), Value::Null)), silent);
}

#[test]
fn an_owner_that_is_the_cause_is_named() {
    let well = || pod(json!({"phase": "Running", "conditions": [condition("Ready", "True", "", "")]}));
    let told = |owners: Vec<Value>| sentence(&Facts { owners, ..facts(well(), vec![]) });
    let mut paused = deployment(json!({"readyReplicas": 1, "updatedReplicas": 1}));
    paused["spec"]["paused"] = true.into();
    let set = replica_set(json!({"readyReplicas": 1}));
    assert_eq!(
        told(vec![set.clone(), paused]),
        "pod/web-1 is as it should be (Running), but deployment/web is paused: its changes wait until it is resumed"
    );
    assert_eq!(
        told(vec![json!({"kind": "ReplicaSet", "goneName": "rs"})]),
        "pod/web-1 is as it should be (Running), but replicaset/rs is gone, and the garbage collector takes away what it owned"
    );
    assert_eq!(told(vec![set]), "pod/web-1 is as it should be (Running)");
}

#[test]
fn a_node_that_is_cordoned_says_so_and_its_pods_are_well() {
    let ready = json!({"conditions": [condition("Ready", "True", "KubeletReady", "")]});
    let node = object("Node", "n1", "", json!({"unschedulable": true}), ready);
    check(&facts(node.clone(), vec![]), "node/n1 takes no new pods: it is cordoned, until `kubectl uncordon n1`");
    let running = pod(json!({"phase": "Running", "conditions": [condition("Ready", "True", "", "")]}));
    check(&Facts { nodes: vec![node], ..facts(running, vec![]) }, "pod/web-1 is as it should be (Running)");
}

#[test]
fn a_quota_that_is_used_up_is_told() {
    let quota = |used: &str| {
        let status = json!({"hard": {"pods": "4", "requests.cpu": "2"}, "used": {"pods": "4", "requests.cpu": used}});
        object("ResourceQuota", "q", "", Value::Null, status)
    };
    check(
        &facts(quota("500m"), vec![]),
        "resourcequota/q is used up: pods (4 of 4); what would take more of it is refused",
    );
    check(
        &facts(quota("2000m"), vec![]),
        "resourcequota/q is used up: pods (4 of 4), requests.cpu (2000m of 2); what would take more of it is refused",
    );
}

#[test]
fn a_budget_that_lets_no_pod_go_is_told() {
    let status = json!({"disruptionsAllowed": 0, "expectedPods": 6, "currentHealthy": 6, "desiredHealthy": 6});
    check(
        &facts(object("PodDisruptionBudget", "web", "", Value::Null, status), vec![]),
        "poddisruptionbudget/web lets no pod go: 6 of 6 are healthy, and 6 have to be; whoever drains a node waits",
    );
}

#[test]
fn an_ingress_to_a_service_that_is_not_there_leads_nowhere() {
    let mut facts = facts(object("Ingress", "web", "", Value::Null, Value::Null), vec![]);
    facts.missing = vec!["shop".to_owned()];
    check(&facts, "ingress/web leads nowhere: there is no service/shop");
}

#[test]
fn a_namespace_that_ends_is_told_to_be_emptied_first() {
    let mut ending =
        object("Namespace", "shop", "", json!({"finalizers": ["kubernetes"]}), json!({"phase": "Terminating"}));
    ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:09:57Z".into();
    check(&facts(ending, vec![]), "namespace/shop is being deleted for 3s: what is in it goes first");
}
