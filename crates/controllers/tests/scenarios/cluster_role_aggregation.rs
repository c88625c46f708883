//! Roles that are made of others.

use futures_util::future::BoxFuture;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use setpoint_testkit::{ControlPlane, Process, Scenario, State};

use crate::process::{controllers, exhaust};

async fn make(plane: &ControlPlane, name: &str, labels: Value, more: Value) {
    let mut role = json!({"metadata": {"name": name, "labels": labels}});
    role.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let roles: Api<ClusterRole> = Api::all(plane.client());
    roles.create(&PostParams::default(), &serde_json::from_value(role).unwrap()).await.unwrap();
}

fn rule(resource: &str) -> Value {
    json!({"apiGroups": [""], "resources": [resource], "verbs": ["get"]})
}

fn made_of(label: &str) -> Value {
    json!({"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {label: "true"}}]}})
}

/// Parts come, change and go; a role is made of a role that is made of others.
struct PartsComeAndGo;

impl Scenario for PartsComeAndGo {
    fn name(&self) -> &'static str {
        "cluster_role_aggregation::a_role_has_the_rules_of_its_parts"
    }

    fn prepare<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            make(plane, "whole", json!({"to-top": "true"}), made_of("to-whole")).await;
            make(plane, "top", json!({}), made_of("to-top")).await;
            make(plane, "a", json!({"to-whole": "true"}), json!({"rules": [rule("pods"), rule("secrets")]})).await;
            make(plane, "goes", json!({"to-whole": "true"}), json!({"rules": [rule("nodes")]})).await;
        })
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        controllers(process, "clusterrole-aggregation-controller")
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            plane.settle().await.unwrap();
            make(plane, "b", json!({"to-whole": "true"}), json!({"rules": [rule("pods"), rule("services")]})).await;
            let roles: Api<ClusterRole> = Api::all(plane.client());
            roles.delete("goes", &DeleteParams::default()).await.unwrap();
            let fewer = Patch::Merge(json!({"rules": [rule("pods")]}));
            roles.patch("a", &PatchParams::default(), &fewer).await.unwrap();
        })
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        for name in ["whole", "top"] {
            let role = state.object("rbac.authorization.k8s.io", "clusterroles", "", name).unwrap_or_default();
            if role["rules"] != json!([rule("pods"), rule("services")]) {
                return Err(format!("{name}: {}", role["rules"]));
            }
        }
        Ok(())
    }
}

#[test]
fn a_role_has_the_rules_of_its_parts() {
    exhaust(&PartsComeAndGo).assert();
}
