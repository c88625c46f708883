//! Built-in controllers, the scheduler and simulated nodes beside a test: on and off one by one.

use std::time::Duration;

use futures_util::future::BoxFuture;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use setpoint_runtime::Key;
use setpoint_runtime::cache::Informer;
use setpoint_runtime::controller::{Action, Context, Controller, Error};
use setpoint_runtime::manager::{Manager, ManagerOptions};
use setpoint_testkit::{ControlPlane, Limits, Process, Scenario, State, exhaust_with};

fn deployment(replicas: u32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": "web"}]}}},
    })
}

async fn scale(plane: &ControlPlane, replicas: u32) {
    let deployments: Api<Deployment> = Api::default_namespaced(plane.client());
    let params = PatchParams::apply("test").force();
    deployments.patch("web", &params, &Patch::Apply(deployment(replicas))).await.unwrap();
    plane.settle().await.unwrap();
}

async fn ready_replicas(plane: &ControlPlane) -> Option<i32> {
    let deployments: Api<Deployment> = Api::default_namespaced(plane.client());
    deployments.get("web").await.unwrap().status.unwrap().ready_replicas
}

#[tokio::test(start_paused = true)]
async fn a_deployment_runs_on_simulated_nodes() {
    let plane = ControlPlane::start().await;
    plane.run_controllers("*").await;
    plane.run_scheduler().await;
    plane.simulated_nodes(3).await;
    let nodes: Api<Node> = Api::all(plane.client());
    assert_eq!(nodes.list(&ListParams::default()).await.unwrap().items.len(), 3);
    plane.advance(Duration::from_secs(1)).await;
    scale(&plane, 6).await;
    assert_eq!(ready_replicas(&plane).await, Some(6));
    let pods: Api<Pod> = Api::default_namespaced(plane.client());
    for node in ["node-0", "node-1", "node-2"] {
        let here = ListParams::default().fields(&format!("spec.nodeName={node}"));
        assert_eq!(pods.list(&here).await.unwrap().items.len(), 2, "{node}");
    }
}

#[tokio::test(start_paused = true)]
async fn controllers_are_switched_on_and_off_one_by_one() {
    let plane = ControlPlane::start().await;
    plane.let_pods_into("default").await;
    let sets: Api<ReplicaSet> = Api::default_namespaced(plane.client());
    let pods: Api<Pod> = Api::default_namespaced(plane.client());
    let all = ListParams::default();
    scale(&plane, 1).await;
    assert!(sets.list(&all).await.unwrap().items.is_empty(), "nobody is there yet");
    plane.run_controllers("deployment").await;
    plane.settle().await.unwrap();
    assert_eq!(sets.list(&all).await.unwrap().items.len(), 1);
    assert!(pods.list(&all).await.unwrap().items.is_empty(), "the controller of ReplicaSets is off");
    plane.run_controllers("deployment,replicaset").await;
    plane.settle().await.unwrap();
    assert_eq!(pods.list(&all).await.unwrap().items.len(), 1);
    plane.stop_controllers("replicaset").await;
    scale(&plane, 3).await;
    assert_eq!(sets.list(&all).await.unwrap().items[0].spec.as_ref().unwrap().replicas, Some(3));
    assert_eq!(pods.list(&all).await.unwrap().items.len(), 1, "it is off again");
}

#[tokio::test(start_paused = true)]
async fn nodes_beyond_the_number_fall_silent() {
    let plane = ControlPlane::start().await;
    plane.run_controllers("nodelifecycle").await;
    plane.simulated_nodes(2).await;
    plane.advance(Duration::from_secs(60)).await;
    plane.simulated_nodes(1).await;
    plane.advance(Duration::from_secs(300)).await;
    let ready = |name: &str| {
        let node = plane.state().object("", "nodes", "", name).unwrap();
        let conditions = node["status"]["conditions"].as_array().unwrap().clone();
        conditions.iter().find(|condition| condition["type"] == "Ready").unwrap()["status"].clone()
    };
    assert_eq!((ready("node-0"), ready("node-1")), (json!("True"), json!("Unknown")));
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "there is no controller \"deploy\"")]
async fn a_controller_that_there_is_not_is_an_error() {
    ControlPlane::start().await.run_controllers("deploy").await;
}

/// An operator whose Deployment is looked after by the built-in controllers: `web` in a ConfigMap says how many.
struct Web;

async fn reconcile(context: Context, maps: Informer<ConfigMap>, key: Key) -> Result<Action, Error> {
    let Some(map) = context.read(&maps, &key) else { return Ok(Action::done()) };
    let Some(count) = map.data.as_ref().and_then(|data| data.get("web")?.parse().ok()) else {
        return Ok(Action::done());
    };
    let deployments: Api<Deployment> = Api::default_namespaced(context.client().clone());
    let is_so = deployments
        .get_opt("web")
        .await?
        .is_some_and(|web| web.spec.and_then(|spec| spec.replicas) == i32::try_from(count).ok());
    if !is_so {
        let params = PatchParams::apply("web").force();
        deployments.patch("web", &params, &Patch::Apply(deployment(count))).await?;
    }
    Ok(Action::done())
}

impl Scenario for Web {
    fn name(&self) -> &'static str {
        "an_operator_is_tested_beside_built_in_controllers"
    }

    fn prepare<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            plane.run_controllers("deployment,nodelifecycle,replicaset,serviceaccount").await;
            plane.run_scheduler().await;
            plane.simulated_nodes(2).await;
        })
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let stopped = process.stopped();
            let manager = Manager::new(process.client, process.clock, process.chance, ManagerOptions::default());
            let manager = manager.unwrap();
            let maps: Informer<ConfigMap> = manager.informers().all();
            let cache = maps.clone();
            let controller = Controller::builder("web", manager.client().clone(), process.clock, &maps)
                .build(move |context: Context, key: Key| reconcile(context, cache.clone(), key));
            manager.add_controller(&[], controller).unwrap();
            // A process that fails is started again by the kit.
            let _ = manager.run(stopped).await;
        })
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            let maps: Api<ConfigMap> = Api::default_namespaced(plane.client());
            let map = json!({"metadata": {"name": "web"}, "data": {"web": "2"}});
            maps.create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap();
        })
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        let web = state.object("apps", "deployments", "default", "web").unwrap_or_default();
        match web["status"]["readyReplicas"].as_u64() {
            Some(2) => Ok(()),
            other => Err(format!("{other:?} are ready")),
        }
    }
}

#[test]
fn an_operator_is_tested_beside_built_in_controllers() {
    let report = exhaust_with(&Web, 0, Limits { points: 8, still: Duration::from_secs(600), ..Limits::default() });
    report.assert();
    assert_eq!(report.points, 9);
}
