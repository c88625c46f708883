//! The scheduler on a whole control plane, with virtual time.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use setpoint_runtime::manager::{Manager, ManagerOptions};
use setpoint_scheduler::{DEFAULT, Profile, Strategy};
use setpoint_testkit::ControlPlane;

async fn start() -> ControlPlane {
    start_with(vec![Profile::named(DEFAULT)]).await
}

async fn start_with(profiles: Vec<Profile>) -> ControlPlane {
    let plane = ControlPlane::start().await;
    let accounts: Api<ServiceAccount> = Api::default_namespaced(plane.client());
    let account = serde_json::from_value(json!({"metadata": {"name": "default"}})).unwrap();
    accounts.create(&PostParams::default(), &account).await.unwrap();
    let manager = Manager::new(plane.client(), plane.clock(), plane.chance(), ManagerOptions::default()).unwrap();
    setpoint_scheduler::add_with_profiles(&manager, &plane.client(), "test", profiles).unwrap();
    tokio::spawn(async move { manager.run(std::future::pending()).await });
    plane
}

async fn node(plane: &ControlPlane, name: &str, cpu: &str, spec: Value) {
    let resources = json!({"cpu": cpu, "memory": "8Gi", "pods": "110"});
    let node = json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"allocatable": resources, "capacity": resources}});
    let nodes: Api<Node> = Api::all(plane.client());
    nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
    // A new node is tainted until a controller has seen that it is ready; here nobody does.
    let taints = Patch::Merge(json!({"spec": {"taints": spec["taints"]}}));
    nodes.patch(name, &PatchParams::default(), &taints).await.unwrap();
}

async fn pod(plane: &ControlPlane, name: &str, cpu: &str, more: Value) {
    let mut spec = json!({"containers": [{"name": "c", "image": "a", "resources": {"requests": {"cpu": cpu}}}]});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let pod = json!({"metadata": {"name": name}, "spec": spec});
    let pods: Api<Pod> = Api::default_namespaced(plane.client());
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
}

/// The node of a pod, or why it has none.
fn place(plane: &ControlPlane, name: &str) -> String {
    let pod = plane.state().object("", "pods", "default", name).unwrap_or_default();
    match pod["spec"]["nodeName"].as_str() {
        Some(node) => node.to_owned(),
        None => pod["status"]["conditions"][0]["message"].as_str().unwrap_or_default().to_owned(),
    }
}

async fn settled(plane: &ControlPlane) {
    plane.advance(Duration::from_secs(30)).await;
}

#[tokio::test(start_paused = true)]
async fn pods_go_where_there_is_room_and_wait_until_there_is() {
    let plane = start().await;
    pod(&plane, "early", "1", json!({})).await;
    settled(&plane).await;
    assert_eq!(place(&plane, "early"), "no nodes available to schedule pods");
    node(&plane, "small", "2", json!({})).await;
    node(&plane, "tainted", "8", json!({"taints": [{"key": "a", "effect": "NoSchedule"}]})).await;
    settled(&plane).await;
    assert_eq!(place(&plane, "early"), "small");
    pod(&plane, "second", "1", json!({})).await;
    pod(&plane, "third", "1", json!({})).await;
    settled(&plane).await;
    assert_eq!(place(&plane, "second"), "small");
    let why = "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s). no new claims to deallocate, \
        preemption: 0/2 nodes are available: 1 No preemption victims found for incoming pod, 1 Preemption is not helpful for scheduling.";
    assert_eq!(place(&plane, "third"), why);
    let pods: Api<Pod> = Api::default_namespaced(plane.client());
    pods.delete("second", &DeleteParams::default().grace_period(0)).await.unwrap();
    settled(&plane).await;
    assert_eq!(place(&plane, "third"), "small");
    pod(&plane, "tolerant", "1", json!({"tolerations": [{"key": "a", "operator": "Exists"}]})).await;
    settled(&plane).await;
    assert_eq!(place(&plane, "tolerant"), "tainted");
}

#[tokio::test(start_paused = true)]
async fn selectors_cordons_and_ports_are_obeyed() {
    let plane = start().await;
    node(&plane, "one", "8", json!({})).await;
    node(&plane, "two", "8", json!({})).await;
    pod(&plane, "chosen", "1", json!({"nodeSelector": {"kubernetes.io/hostname": "two"}})).await;
    pod(&plane, "nowhere", "1", json!({"nodeSelector": {"a": "b"}})).await;
    settled(&plane).await;
    assert_eq!(place(&plane, "chosen"), "two");
    assert_eq!(
        place(&plane, "nowhere"),
        "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector. no new claims to deallocate, \
        preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
    );
    let named = |name: &str| json!({"key": "metadata.name", "operator": "In", "values": [name]});
    let both = json!({"nodeSelectorTerms": [{"matchFields": [named("one"), named("two")]}]});
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": both}});
    pod(&plane, "torn", "1", json!({"affinity": affinity})).await;
    settled(&plane).await;
    let why = "0/2 nodes are available: pod affinity terms conflict. not found";
    assert_eq!(place(&plane, "torn"), why);
    let nodes: Api<Node> = Api::all(plane.client());
    let cordon = |on: bool| Patch::Merge(json!({"spec": {"unschedulable": on}}));
    nodes.patch("one", &PatchParams::default(), &cordon(true)).await.unwrap();
    let port =
        || json!({"containers": [{"name": "c", "image": "a", "ports": [{"containerPort": 80, "hostPort": 80}]}]});
    pod(&plane, "first-port", "1", port()).await;
    settled(&plane).await;
    pod(&plane, "second-port", "1", port()).await;
    settled(&plane).await;
    assert_eq!(place(&plane, "first-port"), "two");
    let why = "0/2 nodes are available: 1 node(s) didn't have free ports for the requested pod ports, 1 node(s) were unschedulable. \
        no new claims to deallocate, preemption: 0/2 nodes are available: 1 No preemption victims found for incoming pod, \
        1 Preemption is not helpful for scheduling.";
    assert_eq!(place(&plane, "second-port"), why);
    nodes.patch("one", &PatchParams::default(), &cordon(false)).await.unwrap();
    settled(&plane).await;
    assert_eq!(place(&plane, "second-port"), "one");
}

#[tokio::test(start_paused = true)]
async fn pods_with_gates_and_those_of_other_schedulers_are_left_alone() {
    let plane = start().await;
    pod(&plane, "gated", "1", json!({"schedulingGates": [{"name": "wait"}]})).await;
    pod(&plane, "foreign", "1", json!({"schedulerName": "another"})).await;
    node(&plane, "one", "8", json!({})).await;
    settled(&plane).await;
    assert_eq!(place(&plane, "gated"), "Scheduling is blocked due to non-empty scheduling gates");
    assert_eq!(place(&plane, "foreign"), "");
    let pods: Api<Pod> = Api::default_namespaced(plane.client());
    let open = Patch::Merge(json!({"spec": {"schedulingGates": []}}));
    pods.patch("gated", &PatchParams::default(), &open).await.unwrap();
    settled(&plane).await;
    assert_eq!(place(&plane, "gated"), "one");
}

/// Whatever else is to be there.
async fn create<K>(plane: &ControlPlane, object: Value)
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug,
    K: serde::Serialize + serde::de::DeserializeOwned,
{
    let group = Api::<K>::all(plane.client());
    group.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
}

/// A condition of a pod, in short.
fn condition(plane: &ControlPlane, name: &str, kind: &str) -> String {
    let pod = plane.state().object("", "pods", "default", name).unwrap_or_default();
    let found = pod["status"]["conditions"].as_array().into_iter().flatten().find(|it| it["type"] == kind);
    found.map_or(String::new(), |it| format!("{} {}: {}", it["status"], it["reason"], it["message"]).replace('"', ""))
}

#[tokio::test(start_paused = true)]
async fn a_more_important_pod_makes_room_for_itself() {
    let plane = start().await;
    create::<PriorityClass>(&plane, json!({"metadata": {"name": "high"}, "value": 1000})).await;
    node(&plane, "one", "2", json!({})).await;
    pod(&plane, "least", "1", json!({"terminationGracePeriodSeconds": 30})).await;
    pod(&plane, "small", "500m", json!({"terminationGracePeriodSeconds": 30})).await;
    settled(&plane).await;
    assert_eq!(place(&plane, "least"), "one");
    let never = json!({"metadata": {"name": "never"}, "value": 1000, "preemptionPolicy": "Never"});
    create::<PriorityClass>(&plane, never).await;
    pod(&plane, "patient", "2", json!({"priorityClassName": "never"})).await;
    settled(&plane).await;
    let why = "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, \
        preemption: not eligible due to preemptionPolicy=Never.";
    assert_eq!(place(&plane, "patient"), why);
    let pods: Api<Pod> = Api::default_namespaced(plane.client());
    pods.delete("patient", &DeleteParams::default().grace_period(0)).await.unwrap();
    pod(&plane, "high", "1500m", json!({"priorityClassName": "high"})).await;
    settled(&plane).await;
    // No node takes the pod away in this test: it is on its way out until somebody does.
    let told = condition(&plane, "least", "DisruptionTarget");
    assert_eq!(told, "True PreemptionByScheduler: default-scheduler: preempting to accommodate a higher priority pod");
    assert_eq!(condition(&plane, "small", "DisruptionTarget"), "", "one is enough");
    let waits = plane.state().object("", "pods", "default", "high").unwrap();
    assert_eq!(waits["status"]["nominatedNodeName"], "one");
    assert_eq!(place(&plane, "high"), "0/1 nodes are available: 1 Insufficient cpu.");
    // The room is held: a lesser pod doesn't get it.
    pod(&plane, "late", "1", json!({})).await;
    pods.delete("least", &DeleteParams::default().grace_period(0)).await.unwrap();
    settled(&plane).await;
    assert_eq!(place(&plane, "high"), "one");
    assert!(place(&plane, "late").starts_with("0/1 nodes are available: 1 Insufficient cpu."));
}

#[tokio::test(start_paused = true)]
async fn pods_are_near_away_and_spread_as_they_ask() {
    let plane = start().await;
    for name in ["one", "two"] {
        node(&plane, name, "8", json!({})).await;
    }
    let term = |app: &str| {
        json!({"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": app}}}]})
    };
    labelled(&plane, "web-1", "web", json!({"affinity": {"podAntiAffinity": term("web")}})).await;
    labelled(&plane, "web-2", "web", json!({"affinity": {"podAntiAffinity": term("web")}})).await;
    labelled(&plane, "web-3", "web", json!({"affinity": {"podAntiAffinity": term("web")}})).await;
    labelled(&plane, "cache", "cache", json!({"affinity": {"podAffinity": term("store")}})).await;
    settled(&plane).await;
    let (first, second) = (place(&plane, "web-1"), place(&plane, "web-2"));
    assert!(["one", "two"].contains(&&*first) && ["one", "two"].contains(&&*second) && first != second);
    assert!(
        place(&plane, "web-3").starts_with("0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules.")
    );
    assert!(place(&plane, "cache").starts_with("0/2 nodes are available: 2 node(s) didn't match pod affinity rules."));
    labelled(&plane, "store", "store", json!({})).await;
    settled(&plane).await;
    assert_eq!(place(&plane, "cache"), place(&plane, "store"), "it came when the other had");
    let spread = || {
        json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "even"}}}]})
    };
    for number in 0..4 {
        labelled(&plane, &format!("even-{number}"), "even", spread()).await;
    }
    settled(&plane).await;
    let on_one = (0..4).filter(|number| place(&plane, &format!("even-{number}")) == "one").count();
    assert_eq!(on_one, 2);
}

async fn labelled(plane: &ControlPlane, name: &str, app: &str, more: Value) {
    let mut spec = json!({"containers": [{"name": "c", "image": "a"}]});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let pod = json!({"metadata": {"name": name, "labels": {"app": app}}, "spec": spec});
    let pods: Api<Pod> = Api::default_namespaced(plane.client());
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn pods_wait_for_their_claims_and_follow_their_volumes() {
    let plane = start().await;
    for name in ["one", "two"] {
        node(&plane, name, "8", json!({})).await;
    }
    let with_claim = |claim: &str| json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]});
    pod(&plane, "lost", "1", with_claim("nothing")).await;
    settled(&plane).await;
    let why = "0/2 nodes are available: persistentvolumeclaim \"nothing\" not found. not found";
    assert_eq!(place(&plane, "lost"), why);
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(plane.client());
    let claim = |name: &str, class: &str| {
        let spec = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": class,
            "resources": {"requests": {"storage": "1Gi"}}});
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
    };
    claims.create(&PostParams::default(), &claim("nothing", "")).await.unwrap();
    settled(&plane).await;
    let why = "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims.";
    assert!(place(&plane, "lost").starts_with(why), "{}", place(&plane, "lost"));
    let class = json!({"metadata": {"name": "late"}, "provisioner": "example.com/disks",
        "volumeBindingMode": "WaitForFirstConsumer"});
    create::<StorageClass>(&plane, class).await;
    claims.create(&PostParams::default(), &claim("data", "late")).await.unwrap();
    pod(&plane, "first", "1", with_claim("data")).await;
    settled(&plane).await;
    let data = claims.get("data").await.unwrap();
    let selected = data.metadata.annotations.unwrap_or_default().remove("volume.kubernetes.io/selected-node");
    let selected = selected.expect("the node is told to who makes volumes");
    assert_eq!(place(&plane, "first"), "", "it waits for its volume");
    let held = plane.state().object("", "pods", "default", "first").unwrap();
    assert_eq!(held["status"]["nominatedNodeName"], json!(selected), "and who adds nodes knows where it will be");
    let affinity = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [
        {"key": "kubernetes.io/hostname", "operator": "In", "values": [selected]}]}]}});
    let volume = json!({"metadata": {"name": "disk"}, "spec": {"capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"], "storageClassName": "late", "hostPath": {"path": "/x"}, "nodeAffinity": affinity}});
    create::<PersistentVolume>(&plane, volume).await;
    let bound = json!({"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {"volumeName": "disk"}});
    claims.patch("data", &PatchParams::default(), &Patch::Merge(bound)).await.unwrap();
    settled(&plane).await;
    assert_eq!(place(&plane, "first"), selected);
}

#[tokio::test(start_paused = true)]
async fn pods_choose_how_they_are_placed_by_the_name_of_the_scheduler() {
    let packed = Profile { strategy: Strategy::MostAllocated, ..Profile::named("packed") };
    let plane = start_with(vec![Profile::named(DEFAULT), packed]).await;
    node(&plane, "one", "8", json!({})).await;
    node(&plane, "two", "8", json!({})).await;
    pod(&plane, "there", "2", json!({"nodeSelector": {"kubernetes.io/hostname": "one"}})).await;
    settled(&plane).await;
    pod(&plane, "fills", "1", json!({"schedulerName": "packed"})).await;
    settled(&plane).await;
    pod(&plane, "spreads", "1", json!({})).await;
    pod(&plane, "foreign", "1", json!({"schedulerName": "unpacked"})).await;
    settled(&plane).await;
    assert_eq!((place(&plane, "fills"), place(&plane, "spreads")), ("one".to_owned(), "two".to_owned()));
    assert_eq!(place(&plane, "foreign"), "", "no profile has this name");
    let events = plane.state().objects("", "events");
    let source = |pod: &str| {
        let event =
            events.iter().find(|event| event["reason"] == "Scheduled" && event["involvedObject"]["name"] == pod);
        event.map(|event| event["reportingComponent"].clone()).unwrap_or_default()
    };
    assert_eq!(source("spreads"), DEFAULT);
}

/// Of two nodes on which a lesser pod could make room, the one is chosen where that breaks no budget.
#[tokio::test(start_paused = true)]
async fn pods_whose_budget_is_used_up_are_spared_if_others_can_go() {
    let plane = start().await;
    create::<PriorityClass>(&plane, json!({"metadata": {"name": "high"}, "value": 1000})).await;
    for (name, app) in [("one", "guarded"), ("two", "free")] {
        node(&plane, name, "1", json!({})).await;
        let spec = json!({"nodeSelector": {"kubernetes.io/hostname": name}, "terminationGracePeriodSeconds": 30,
            "containers": [{"name": "c", "image": "a", "resources": {"requests": {"cpu": "1"}}}]});
        labelled(&plane, app, app, spec).await;
    }
    let budgets: Api<PodDisruptionBudget> = Api::default_namespaced(plane.client());
    let budget = json!({"metadata": {"name": "guard"}, "spec": {"minAvailable": 1,
        "selector": {"matchLabels": {"app": "guarded"}}}});
    budgets.create(&PostParams::default(), &serde_json::from_value(budget).unwrap()).await.unwrap();
    settled(&plane).await;
    assert_eq!((place(&plane, "guarded"), place(&plane, "free")), ("one".to_owned(), "two".to_owned()));
    pod(&plane, "high", "1", json!({"priorityClassName": "high"})).await;
    settled(&plane).await;
    assert_eq!(condition(&plane, "guarded", "DisruptionTarget"), "");
    assert!(condition(&plane, "free", "DisruptionTarget").starts_with("True PreemptionByScheduler"));
    // Where nobody else can go, a budget doesn't hold against priority: it is a wish then.
    pod(&plane, "higher", "1", json!({"priorityClassName": "high", "nodeSelector": {"kubernetes.io/hostname": "one"}}))
        .await;
    settled(&plane).await;
    assert!(condition(&plane, "guarded", "DisruptionTarget").starts_with("True PreemptionByScheduler"));
}
