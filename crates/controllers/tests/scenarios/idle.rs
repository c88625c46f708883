//! A control plane in which all is as it should be makes no writes.

use std::time::Duration;

use futures_util::future::BoxFuture;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{
    ConfigMap, Endpoints, PersistentVolumeClaim, ReplicationController, ResourceQuota, Service,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use setpoint_testkit::{ControlPlane, Kubelet, Limits, OUTCOME, Process, Scenario, State};

use crate::nodes;
use crate::process::controllers;
use crate::story::{create, expect};

/// All controllers, and an object of each kind that they look after.
struct Idle;

fn template(app: &str) -> Value {
    json!({"metadata": {"labels": {"app": app}}, "spec": {
        "automountServiceAccountToken": false, "containers": [{"name": "c", "image": "i"}]}})
}

fn spec(app: &str, more: Value) -> Value {
    let mut spec = json!({"selector": {"matchLabels": {"app": app}}, "template": template(app)});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    spec
}

fn named(name: &str, spec: Value) -> Value {
    json!({"metadata": {"name": name}, "spec": spec})
}

/// A node that lives says nothing but that.
async fn beat(plane: &ControlPlane) {
    let leases: Api<Lease> = Api::namespaced(plane.client(), "kube-node-lease");
    loop {
        let renewed = Patch::Merge(json!({"spec": {"renewTime": plane.clock().micro_time()}}));
        leases.patch("node-1", &PatchParams::default(), &renewed).await.unwrap();
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
}

async fn make_sets(plane: &ControlPlane) {
    create::<Deployment>(plane, named("web", spec("web", json!({"replicas": 2, "minReadySeconds": 5})))).await;
    let claims = json!([{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}}]);
    let more = json!({"replicas": 1, "serviceName": "db", "volumeClaimTemplates": claims});
    create::<StatefulSet>(plane, named("db", spec("db", more))).await;
    create::<DaemonSet>(plane, named("agent", spec("agent", json!({})))).await;
    let old = json!({"replicas": 1, "selector": {"app": "old"}, "template": template("old")});
    create::<ReplicationController>(plane, named("old", old)).await;
    let mut once = json!({"template": template("once"), "completions": 2});
    once["template"]["metadata"]["annotations"] = json!({OUTCOME: "succeeded"});
    once["template"]["spec"]["restartPolicy"] = json!("Never");
    create::<Job>(plane, named("once", once.clone())).await;
    let yearly = json!({"schedule": "0 0 1 7 *", "jobTemplate": {"spec": once}});
    create::<CronJob>(plane, named("yearly", yearly)).await;
}

async fn make_the_rest(plane: &ControlPlane) {
    create::<Service>(plane, named("web", json!({"selector": {"app": "web"}, "ports": [{"port": 80}]}))).await;
    create::<Service>(plane, named("outside", json!({"ports": [{"port": 80}]}))).await;
    let subsets = json!([{"addresses": [{"ip": "192.0.2.7"}], "ports": [{"port": 80}]}]);
    create::<Endpoints>(plane, json!({"metadata": {"name": "outside"}, "subsets": subsets})).await;
    let budget = json!({"selector": {"matchLabels": {"app": "web"}}, "maxUnavailable": 1});
    create::<PodDisruptionBudget>(plane, named("web", budget)).await;
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let cpu = json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}});
    let autoscaler = json!({"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 5, "metrics": [cpu]});
    create::<HorizontalPodAutoscaler>(plane, named("web", autoscaler)).await;
    let hard = json!({"pods": "20", "count/configmaps": "20", "services": "20"});
    create::<ResourceQuota>(plane, named("all", json!({"hard": hard}))).await;
    let claim = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    create::<PersistentVolumeClaim>(plane, named("unbound", claim)).await;
    create::<ConfigMap>(plane, json!({"metadata": {"name": "free"}})).await;
}

impl Scenario for Idle {
    fn name(&self) -> &'static str {
        "idle::nobody_writes_when_nothing_has_to_change"
    }

    fn prepare<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            nodes::make(plane, "node-1", json!({})).await;
            plane.let_pods_into("default").await;
        })
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        controllers(process, "*")
    }

    fn world<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async { tokio::join!(Kubelet::binding_to("node-1").run(plane), beat(plane)).0 })
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            make_sets(plane).await;
            make_the_rest(plane).await;
        })
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        expect("pods", state.objects("", "pods").len(), 2 + 1 + 1 + 1 + 2)?;
        let job = state.object("batch", "jobs", "default", "once").unwrap_or_default();
        expect("successes", job["status"]["succeeded"].as_u64(), Some(2))
    }
}

/// Events that may be written in an idle hour: the autoscaler has nobody to ask for measurements, and the claim nobody to give it a
/// volume. What is said again is counted in one Event, which is written now and then.
const WORDS: usize = 24;

/// The kit watches for an hour that nobody writes, leases apart.
#[test]
fn nobody_writes_when_nothing_has_to_change() {
    let limits = Limits { points: 1, words: WORDS, ..Limits::default() };
    setpoint_testkit::exhaust_with(&Idle, 0, limits).assert();
}
