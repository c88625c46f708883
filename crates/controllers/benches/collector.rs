//! Figures of the garbage collector, one line each, all on one thread: how much memory the graph takes per object, and how
//! long it takes from the end of an owner to the end of all that it owned. Run by `make bench`.

mod usage;

use std::future::pending;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use serde_json::json;
use setpoint_controllers::{Choice, Wiring, add_to};
use setpoint_runtime::config::Config;
use setpoint_runtime::manager::{Manager, ManagerOptions};
use setpoint_testkit::ControlPlane;
use tokio::task::JoinHandle;
use usage::{cpu_time, resident_bytes};

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async {
        memory(100_000).await;
        cascade(10_000).await;
        cascade(100_000).await;
    });
}

/// Memory is that of the process: the objects are there before the collector starts.
async fn memory(count: usize) {
    let plane = ControlPlane::start().await;
    let maps = make(&plane, count).await;
    // What lists leave behind is there already when the collector lists.
    maps.list_metadata(&ListParams::default()).await.expect("a list");
    let before = resident_bytes();
    let start = Instant::now();
    let (manager, running) = collector(&plane);
    until_ready(&manager).await;
    let took = start.elapsed().as_secs_f64();
    let per_object = resident_bytes().saturating_sub(before) / count;
    println!("collector of {count} objects: synced in {took:.2} s; {per_object} bytes resident per object");
    running.abort();
}

async fn cascade(count: usize) {
    let plane = ControlPlane::start().await;
    let maps = make(&plane, count).await;
    let (manager, running) = collector(&plane);
    until_ready(&manager).await;
    let cpu = cpu_time();
    let start = Instant::now();
    maps.delete("owner", &DeleteParams::background()).await.expect("the owner goes");
    while !maps.list_metadata(&ListParams::default().limit(1)).await.expect("a list").items.is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (took, cpu) = (start.elapsed(), cpu_time().saturating_sub(cpu));
    let each = cpu.as_secs_f64() * 1e6 / count as f64;
    println!(
        "cascade of {count} dependents: {:.2} s from owner gone to all gone, {each:.0} us of CPU each",
        took.as_secs_f64()
    );
    running.abort();
}

/// An owner, and so many that it owns.
async fn make(plane: &ControlPlane, count: usize) -> Api<ConfigMap> {
    let maps: Api<ConfigMap> = Api::default_namespaced(plane.client());
    let create = async |object: serde_json::Value| {
        let map = serde_json::from_value(object).expect("a map");
        maps.create(&PostParams::default(), &map).await.expect("a map is made")
    };
    let owner = create(json!({"metadata": {"name": "owner"}})).await;
    let reference = json!([{
        "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.metadata.uid,
        "controller": true, "blockOwnerDeletion": true,
    }]);
    let names = (0..count).map(|number| format!("dependent-of-owner-7d4b9c{number:06x}"));
    let made = names.map(|name| create(json!({"metadata": {"name": name, "ownerReferences": reference}})));
    stream::iter(made).buffer_unordered(256).for_each(async |_| {}).await;
    maps.clone()
}

fn collector(plane: &ControlPlane) -> (Manager, JoinHandle<()>) {
    let client = plane.client();
    let manager = Manager::new(client.clone(), plane.clock(), plane.chance(), ManagerOptions::default());
    let manager = manager.expect("a manager without election");
    let config = Config::default();
    let client_of = |_: &str| client.clone();
    let wiring = Wiring {
        manager: &manager,
        client_of: &client_of,
        config: &config,
        instance: "bench",
        root_ca: None,
        tokens: None,
        signer: None,
    };
    let choice = Choice::parse("garbage-collector-controller").expect("a controller");
    add_to(&wiring, &choice).expect("one controller");
    let running = manager.clone();
    let running = tokio::spawn(async move { running.run(pending()).await.expect("it runs on") });
    (manager, running)
}

async fn until_ready(manager: &Manager) {
    while !manager.ready().report(&[]).0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
