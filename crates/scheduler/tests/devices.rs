//! Pods that ask for devices, on a whole control plane with virtual time: they wait until somebody has given them some.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim};
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use setpoint_runtime::manager::{Manager, ManagerOptions};
use setpoint_testkit::ControlPlane;

async fn create<K>(api: Api<K>, object: Value)
where
    K: Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
}

/// A plane with a scheduler and two nodes.
async fn start() -> ControlPlane {
    let plane = ControlPlane::start().await;
    plane.let_pods_into("default").await;
    let nodes: Api<Node> = Api::all(plane.client());
    for name in ["one", "two"] {
        let resources = json!({"cpu": "8", "memory": "8Gi", "pods": "110"});
        let metadata = json!({"name": name, "labels": {"kubernetes.io/hostname": name}});
        let status = json!({"allocatable": resources, "capacity": resources});
        create(nodes.clone(), json!({"metadata": metadata, "status": status})).await;
        let taints = Patch::Merge(json!({"spec": {"taints": null}}));
        nodes.patch(name, &PatchParams::default(), &taints).await.unwrap();
    }
    let manager = Manager::new(plane.client(), plane.clock(), plane.chance(), ManagerOptions::default()).unwrap();
    setpoint_scheduler::add_to(&manager, &plane.client(), "test").unwrap();
    tokio::spawn(async move { manager.run(std::future::pending()).await });
    plane
}

async fn pod(plane: &ControlPlane, name: &str, claim: Value) {
    let mut claim = claim;
    claim["name"] = json!("device");
    let spec = json!({"containers": [{"name": "c", "image": "a"}], "resourceClaims": [claim]});
    create::<Pod>(Api::default_namespaced(plane.client()), json!({"metadata": {"name": name}, "spec": spec})).await;
}

async fn claim(plane: &ControlPlane, name: &str) {
    let devices = json!({"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]});
    let claim = json!({"metadata": {"name": name}, "spec": {"devices": devices}});
    create::<ResourceClaim>(Api::default_namespaced(plane.client()), claim).await;
}

/// The node of a pod, or why it has none.
async fn place(plane: &ControlPlane, name: &str) -> String {
    plane.advance(Duration::from_secs(30)).await;
    let pod = plane.state().object("", "pods", "default", name).unwrap_or_default();
    match pod["spec"]["nodeName"].as_str() {
        Some(node) => node.to_owned(),
        None => pod["status"]["conditions"][0]["message"].as_str().unwrap_or_default().to_owned(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_waits_until_its_claim_has_devices_and_goes_where_they_are() {
    let plane = start().await;
    pod(&plane, "a", json!({"resourceClaimName": "shared"})).await;
    let all = "0/2 nodes are available: ";
    let missing = format!("{all}resourceclaim.resource.k8s.io \"shared\" not found.");
    assert!(place(&plane, "a").await.starts_with(&missing), "{}", place(&plane, "a").await);
    claim(&plane, "shared").await;
    let no_class = format!("{all}request r: device class gpu does not exist.");
    assert!(place(&plane, "a").await.starts_with(&no_class), "{}", place(&plane, "a").await);
    let selector = json!({"selectors": [{"cel": {"expression": "true"}}]});
    let class = json!({"metadata": {"name": "gpu"}, "spec": selector});
    create::<DeviceClass>(Api::all(plane.client()), class).await;
    let waits = format!(
        "{all}2 cannot allocate all claims. still not schedulable, preemption: {all}2 Preemption is not helpful for scheduling."
    );
    assert_eq!(place(&plane, "a").await, waits);
    let fields = json!([{"key": "metadata.name", "operator": "In", "values": ["two"]}]);
    let place_of = json!({"nodeSelectorTerms": [{"matchFields": fields}]});
    let claims: Api<ResourceClaim> = Api::default_namespaced(plane.client());
    let given = Patch::Merge(json!({"status": {"allocation": {"nodeSelector": place_of}}}));
    claims.patch_status("shared", &PatchParams::default(), &given).await.unwrap();
    assert_eq!(place(&plane, "a").await, "two");
}

#[tokio::test(start_paused = true)]
async fn a_pod_waits_until_its_own_claim_is_made_or_turns_out_to_be_needless() {
    let plane = start().await;
    pod(&plane, "a", json!({"resourceClaimTemplateName": "t"})).await;
    let told = place(&plane, "a").await;
    assert!(told.contains("pod \"default/a\": ResourceClaim not created yet"), "{told}");
    let pods: Api<Pod> = Api::default_namespaced(plane.client());
    let needless = Patch::Strategic(json!({"status": {"resourceClaimStatuses": [{"name": "device"}]}}));
    pods.patch_status("a", &PatchParams::default(), &needless).await.unwrap();
    let found = place(&plane, "a").await;
    assert!(["one", "two"].contains(&&*found), "{found}");
}

#[tokio::test(start_paused = true)]
async fn pods_without_claims_do_not_wait_for_others() {
    let plane = start().await;
    pod(&plane, "a", json!({"resourceClaimName": "none"})).await;
    let spec = json!({"containers": [{"name": "c", "image": "a"}]});
    create::<Pod>(Api::default_namespaced(plane.client()), json!({"metadata": {"name": "b"}, "spec": spec})).await;
    assert!(["one", "two"].contains(&&*place(&plane, "b").await));
}
