//! Two schedulers that both work at once, without an election, on few nodes: each decides on its own, so what one does not see yet the other
//! may give away as well. A pod never moves, a node never runs more than it holds, and every pod that fits comes to run.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::StreamExt;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use k8s_openapi::api::apps::v1::ReplicaSet;
use kube::Client;
use kube::api::{Api, PostParams};
use kube::client::Body;
use serde_json::{Value, json};
use setpoint_controllers::{Choice, Wiring};
use setpoint_node::simulated;
use setpoint_runtime::clock::Chance;
use setpoint_runtime::config::Config;
use setpoint_runtime::manager::{Manager, ManagerOptions};
use setpoint_testkit::{ControlPlane, State};

/// Each node holds so many of the pods.
const HOLDS: usize = 4;
const NODES: usize = 3;
/// More pods than there is room for.
const PODS: usize = NODES * HOLDS + 3;

/// How long a call of a scheduler may be on its way, and what it is told.
const DELAY_MILLIS: u64 = 50;

/// How often it is looked whether all is well, and how many times while pods come to their nodes.
const LOOK: Duration = Duration::from_millis(20);
const LOOKS: usize = 100;

/// So many orders of calls are tried.
const SEEDS: u64 = 8;

fn manager(plane: &ControlPlane, client: &Client) -> Manager {
    Manager::new(client.clone(), plane.clock(), plane.chance(), ManagerOptions::default()).unwrap()
}

fn run(manager: Manager) {
    tokio::spawn(async move { manager.run(std::future::pending()).await });
}

/// A client whose calls take their time, by chance, and so does what it is told of changes: who sees them late decides by what was before.
fn slow(plane: &ControlPlane, seed: u64) -> Client {
    let (inner, chance) = (plane.client(), Chance::seeded(seed));
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (inner, chance) = (inner.clone(), chance.clone());
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch="));
        async move {
            pause(&chance).await;
            let response = inner.send(request).await?;
            let late = |body: Body| {
                let pieces = body.into_data_stream().then(move |piece| {
                    let chance = chance.clone();
                    async move {
                        pause(&chance).await;
                        piece.map(Frame::data)
                    }
                });
                StreamBody::new(pieces).boxed_unsync()
            };
            Ok::<_, kube::Error>(if is_watch { response.map(late) } else { response.map(BodyExt::boxed_unsync) })
        }
    });
    Client::new(service, "default")
}

async fn pause(chance: &Chance) {
    tokio::time::sleep(Duration::from_millis(chance.below(DELAY_MILLIS))).await;
}

/// Nodes, the controller of ReplicaSets, and two schedulers.
async fn start(plane: &ControlPlane, seed: u64) {
    plane.let_pods_into("default").await;
    let nodes = manager(plane, &plane.client());
    let options = simulated::Options { count: NODES, cpu: HOLDS.to_string(), ..simulated::Options::default() };
    simulated::add_to(&nodes, &plane.client(), options).unwrap();
    run(nodes);
    let controllers = manager(plane, &plane.client());
    let (client, config) = (plane.client(), Config::default());
    let client_of = |_: &str| client.clone();
    let (manager_of, client_of, config) = (&controllers, &client_of, &config);
    let wiring =
        Wiring { manager: manager_of, client_of, config, instance: "test", root_ca: None, tokens: None, signer: None };
    setpoint_controllers::add_to(&wiring, &Choice::parse("replicaset,podgc,nodelifecycle").unwrap()).unwrap();
    run(controllers);
    for which in 0..2 {
        let client = slow(plane, seed * 2 + which);
        let scheduler = manager(plane, &client);
        setpoint_scheduler::add_to(&scheduler, &client, &format!("scheduler-{which}")).unwrap();
        run(scheduler);
    }
    plane.advance(Duration::from_secs(3)).await;
}

async fn deploy(plane: &ControlPlane) {
    let container = json!({"name": "c", "image": "nginx", "resources": {"requests": {"cpu": "1"}}});
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}});
    let spec = json!({"replicas": PODS, "selector": {"matchLabels": {"app": "web"}}, "template": template});
    let sets: Api<ReplicaSet> = Api::default_namespaced(plane.client());
    let set = json!({"metadata": {"name": "web"}, "spec": spec});
    sets.create(&PostParams::default(), &serde_json::from_value(set).unwrap()).await.unwrap();
}

fn phase(pod: &Value) -> &str {
    pod["status"]["phase"].as_str().unwrap_or_default()
}

/// The pods that each node runs.
fn running(state: &State) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for pod in state.objects("", "pods").iter().filter(|pod| phase(pod) == "Running") {
        *found.entry(pod["spec"]["nodeName"].as_str().unwrap_or_default().to_owned()).or_default() += 1;
    }
    found
}

/// Plays it to its end; how many pods a node had to refuse because both schedulers gave its room away.
async fn play(seed: u64) -> usize {
    let plane = ControlPlane::start().await;
    start(&plane, seed).await;
    deploy(&plane).await;
    let mut places: BTreeMap<String, String> = BTreeMap::new();
    for _ in 0..LOOKS {
        plane.advance(LOOK).await;
        let state = plane.state();
        for (node, count) in running(&state) {
            assert!(count <= HOLDS, "seed {seed}: {node} runs {count} pods and holds {HOLDS}");
        }
        for pod in state.objects("", "pods") {
            let Some(node) = pod["spec"]["nodeName"].as_str() else { continue };
            let before = places.insert(pod["metadata"]["uid"].to_string(), node.to_owned());
            assert!(before.is_none_or(|before| before == node), "seed {seed}: a pod was moved to {node}");
        }
    }
    plane.advance(Duration::from_secs(120)).await;
    let state = plane.state();
    let full: BTreeMap<String, usize> = (0..NODES).map(|number| (format!("simulated-{number}"), HOLDS)).collect();
    assert_eq!(running(&state), full, "seed {seed}: every pod that fits runs");
    let pods = state.objects("", "pods");
    let waiting = pods.iter().filter(|pod| phase(pod) == "Pending");
    assert_eq!(waiting.clone().count(), PODS - NODES * HOLDS, "seed {seed}: the others wait");
    for pod in waiting {
        assert!(pod["spec"]["nodeName"].is_null(), "seed {seed}: {} waits for a node", pod["metadata"]["name"]);
    }
    pods.iter().filter(|pod| phase(pod) == "Failed").count()
}

#[tokio::test(start_paused = true)]
async fn nodes_run_what_they_hold_and_every_pod_that_fits_runs_whichever_scheduler_is_faster() {
    let mut refused = 0;
    for seed in 0..SEEDS {
        refused += play(seed).await;
    }
    assert!(refused > 0, "they never got in each other's way: this tests nothing");
}
