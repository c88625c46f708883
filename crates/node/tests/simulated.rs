//! Simulated nodes on a whole control plane, with virtual time.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};
use setpoint_node::simulated::{Options, add_to};
use setpoint_runtime::manager::{Manager, ManagerOptions};
use setpoint_testkit::ControlPlane;

async fn start(plane: &ControlPlane, count: usize) {
    let manager = Manager::new(plane.client(), plane.clock(), plane.chance(), ManagerOptions::default()).unwrap();
    add_to(&manager, &plane.client(), Options { count, ..Options::default() }).unwrap();
    let accounts: Api<ServiceAccount> = Api::default_namespaced(plane.client());
    let account = serde_json::from_value(json!({"metadata": {"name": "default"}})).unwrap();
    accounts.create(&PostParams::default(), &account).await.unwrap();
    tokio::spawn(async move { manager.run(std::future::pending()).await });
    plane.advance(Duration::from_secs(1)).await;
}

async fn create(plane: &ControlPlane, name: &str, node: &str, command: &[&str]) {
    let pod = json!({"metadata": {"name": name}, "spec": {
        "nodeName": node,
        "restartPolicy": "Never",
        "containers": [{"name": "c", "image": "busybox", "command": command}],
    }});
    let pods: Api<Pod> = Api::default_namespaced(plane.client());
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
}

fn pod(plane: &ControlPlane, name: &str) -> Value {
    plane.state().object("", "pods", "default", name).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn nodes_are_ready_and_renew_their_leases() {
    let plane = ControlPlane::start().await;
    start(&plane, 3).await;
    let lease =
        |plane: &ControlPlane| plane.state().object("coordination.k8s.io", "leases", "kube-node-lease", "simulated-2");
    let before = lease(&plane).unwrap();
    plane.advance(Duration::from_secs(11)).await;
    let after = lease(&plane).unwrap();
    assert_ne!(before["spec"]["renewTime"], after["spec"]["renewTime"]);
    assert_eq!(after["metadata"]["ownerReferences"][0]["kind"], "Node");
    for node in plane.state().objects("", "nodes") {
        let ready = node["status"]["conditions"].as_array().unwrap().iter().find(|it| it["type"] == "Ready").unwrap();
        assert_eq!(ready["status"], "True");
    }
}

#[tokio::test(start_paused = true)]
async fn pods_run_with_addresses_of_their_own_and_end_as_their_command_says() {
    let plane = ControlPlane::start().await;
    start(&plane, 2).await;
    create(&plane, "one", "simulated-0", &["nginx"]).await;
    create(&plane, "two", "simulated-0", &["nginx"]).await;
    create(&plane, "three", "simulated-1", &["sh", "-c", "sleep 30; exit 4"]).await;
    create(&plane, "elsewhere", "another-node", &["nginx"]).await;
    plane.advance(Duration::from_secs(2)).await;
    let (one, two, three) = (pod(&plane, "one"), pod(&plane, "two"), pod(&plane, "three"));
    for pod in [&one, &two, &three] {
        assert_eq!(pod["status"]["phase"], "Running", "{pod}");
        assert_eq!(pod["status"]["conditions"].as_array().unwrap().len(), 5, "{pod}");
    }
    assert_eq!(one["status"]["hostIP"], two["status"]["hostIP"]);
    assert_ne!(one["status"]["podIP"], two["status"]["podIP"]);
    assert_eq!(pod(&plane, "elsewhere")["status"]["phase"], "Pending");
    plane.advance(Duration::from_secs(31)).await;
    let three = pod(&plane, "three");
    assert_eq!(three["status"]["phase"], "Failed");
    assert_eq!(three["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"], 4);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_pod_goes_and_its_address_is_free_again() {
    let plane = ControlPlane::start().await;
    start(&plane, 1).await;
    create(&plane, "one", "simulated-0", &["nginx"]).await;
    plane.advance(Duration::from_secs(1)).await;
    let address = pod(&plane, "one")["status"]["podIP"].clone();
    let pods: Api<Pod> = Api::default_namespaced(plane.client());
    pods.delete("one", &DeleteParams::default()).await.unwrap();
    plane.advance(Duration::from_secs(1)).await;
    assert_eq!(pod(&plane, "one"), Value::Null);
    create(&plane, "two", "simulated-0", &["nginx"]).await;
    plane.advance(Duration::from_secs(1)).await;
    assert_eq!(pod(&plane, "two")["status"]["podIP"], address);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_has_ended_keeps_no_address_from_others() {
    let plane = ControlPlane::start().await;
    start(&plane, 1).await;
    create(&plane, "one", "simulated-0", &["true"]).await;
    plane.advance(Duration::from_secs(5)).await;
    let one = pod(&plane, "one");
    assert_eq!(one["status"]["phase"], "Succeeded");
    create(&plane, "two", "simulated-0", &["nginx"]).await;
    plane.advance(Duration::from_secs(5)).await;
    assert_eq!(pod(&plane, "two")["status"]["podIP"], one["status"]["podIP"]);
}
