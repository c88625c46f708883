//! Quotas say what is used.

use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, ResourceQuota, Service};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use setpoint_testkit::{ControlPlane, Process, Scenario, State};

use crate::nodes;
use crate::process::{controllers, exhaust_with};
use crate::story::create;

async fn quota(plane: &ControlPlane, name: &str, spec: Value) {
    let quotas: Api<ResourceQuota> = Api::namespaced(plane.client(), "default");
    let quota = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap();
    quotas.create(&PostParams::default(), &quota).await.unwrap();
}

fn expect(state: &State, name: &str, used: Value) -> Result<(), String> {
    let quota = state.object("", "resourcequotas", "default", name).unwrap_or_default();
    let status = &quota["status"];
    let right = status["used"] == used && status["hard"] == quota["spec"]["hard"];
    if right { Ok(()) } else { Err(format!("{name}: {status} instead of {used}")) }
}

/// Pods, services and other objects come and go; a quota changes what it limits; one counts some pods only.
struct ComeAndGo;

impl Scenario for ComeAndGo {
    fn name(&self) -> &'static str {
        "resource_quota::quotas_say_what_is_used"
    }

    fn prepare<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            plane.let_pods_into("default").await;
            quota(plane, "all", json!({"hard": {"pods": "10", "services": "5"}})).await;
            // One that limits processors takes only pods that say how much they ask for.
            quota(plane, "busy", json!({"hard": {"requests.cpu": "2"}, "scopes": ["NotBestEffort"]})).await;
            quota(plane, "best-effort", json!({"hard": {"pods": "5"}, "scopes": ["BestEffort"]})).await;
            quota(plane, "objects", json!({"hard": {"count/configmaps": "5", "count/nothing.example.com": "1"}})).await;
        })
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        controllers(process, "resourcequota-controller")
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            let cpu = |amount: &str| json!({"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": amount}}}]}});
            nodes::place(plane, "a", "n", cpu("100m")).await;
            nodes::place(plane, "b", "n", cpu("250m")).await;
            nodes::place(plane, "free", "n", json!({})).await;
            nodes::place(plane, "ended", "n", cpu("1")).await;
            plane.settle().await.unwrap();
            let pods: Api<Pod> = Api::namespaced(plane.client(), "default");
            pods.delete("a", &DeleteParams::default()).await.unwrap();
            let ended = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
            pods.patch_status("ended", &PatchParams::default(), &ended).await.unwrap();
            let services: Api<Service> = Api::namespaced(plane.client(), "default");
            let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}});
            services.create(&PostParams::default(), &serde_json::from_value(service).unwrap()).await.unwrap();
            let maps: Api<ConfigMap> = Api::namespaced(plane.client(), "default");
            let map = json!({"metadata": {"name": "m"}});
            maps.create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap();
            let quotas: Api<ResourceQuota> = Api::namespaced(plane.client(), "default");
            let other = Patch::Merge(json!({"spec": {"hard": {"pods": "9", "services": null, "count/pods": "9"}}}));
            quotas.patch("all", &PatchParams::default(), &other).await.unwrap();
        })
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        expect(state, "all", json!({"pods": "2", "count/pods": "3"}))?;
        expect(state, "busy", json!({"requests.cpu": "250m"}))?;
        expect(state, "best-effort", json!({"pods": "1"}))?;
        expect(state, "objects", json!({"count/configmaps": "1"}))
    }
}

#[test]
fn quotas_say_what_is_used() {
    exhaust_with(&ComeAndGo, 0, nodes::limits()).assert();
}

struct Counted {
    name: &'static str,
    drive: for<'a> fn(&'a ControlPlane) -> BoxFuture<'a, ()>,
    outcome: fn(&State) -> Result<(), String>,
}

impl Scenario for Counted {
    fn name(&self) -> &'static str {
        self.name
    }

    fn prepare<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(plane.let_pods_into("default"))
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        controllers(process, "resourcequota-controller")
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        (self.drive)(plane)
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        (self.outcome)(state)
    }
}

#[test]
fn claims_and_services_count_by_what_they_ask_for() {
    let counted = Counted {
        name: "resource_quota::claims_and_services_count_by_what_they_ask_for",
        drive: |plane| {
            Box::pin(async {
                let hard =
                    json!({"requests.storage": "10Gi", "persistentvolumeclaims": "5", "services.nodeports": "5"});
                quota(plane, "all", json!({"hard": hard})).await;
                let resources = json!({"requests": {"storage": "2Gi"}});
                for name in ["a", "b"] {
                    let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": resources});
                    create::<PersistentVolumeClaim>(plane, json!({"metadata": {"name": name}, "spec": spec})).await;
                }
                let spec = json!({"type": "NodePort", "ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}]});
                create::<Service>(plane, json!({"metadata": {"name": "s"}, "spec": spec})).await;
                plane.settle().await.unwrap();
                let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(plane.client());
                claims.delete("b", &DeleteParams::default()).await.unwrap();
                let inside = Patch::Merge(json!({"metadata": {"finalizers": null}}));
                // Nobody else lets it go here.
                let _ = claims.patch("b", &PatchParams::default(), &inside).await;
            })
        },
        outcome: |state| {
            let used = json!({"requests.storage": "2Gi", "persistentvolumeclaims": "1", "services.nodeports": "2"});
            expect(state, "all", used)
        },
    };
    exhaust_with(&counted, 0, nodes::limits()).assert();
}

#[test]
fn a_quota_that_is_made_later_counts_what_is_there() {
    let counted = Counted {
        name: "resource_quota::a_quota_that_is_made_later_counts_what_is_there",
        drive: |plane| {
            Box::pin(async {
                let memory = json!({"resources": {"requests": {"memory": "64Mi"}, "limits": {"memory": "128Mi"}}});
                let container = |name: &str| json!({"name": name, "image": "i", "resources": memory["resources"]});
                nodes::place(plane, "a", "n", json!({"spec": {"containers": [container("c"), container("d")]}})).await;
                quota(plane, "late", json!({"hard": {"requests.memory": "1Gi", "limits.memory": "1Gi", "pods": "1"}}))
                    .await;
                plane.settle().await.unwrap();
                let quotas: Api<ResourceQuota> = Api::default_namespaced(plane.client());
                quotas.delete("late", &DeleteParams::default()).await.unwrap();
                quota(plane, "later", json!({"hard": {"pods": "1"}, "scopes": ["NotBestEffort"]})).await;
            })
        },
        outcome: |state| {
            let gone = state.object("", "resourcequotas", "default", "late").is_none();
            if !gone {
                return Err("a quota came back".to_owned());
            }
            expect(state, "later", json!({"pods": "1"}))
        },
    };
    exhaust_with(&counted, 0, nodes::limits()).assert();
}
