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

fn rules(state: &State, name: &str) -> Value {
    let role = state.object("rbac.authorization.k8s.io", "clusterroles", "", name).unwrap_or_default();
    role["rules"].clone()
}

/// Two roles are made of each other and of a third: rules go round once and then stay.
struct InACircle;

impl Scenario for InACircle {
    fn name(&self) -> &'static str {
        "cluster_role_aggregation::roles_that_are_made_of_each_other_settle"
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        controllers(process, "clusterrole-aggregation-controller")
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            make(plane, "one", json!({"circle": "true"}), made_of("circle")).await;
            make(plane, "two", json!({"circle": "true"}), made_of("circle")).await;
            make(plane, "part", json!({"circle": "true"}), json!({"rules": [rule("pods")]})).await;
        })
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        let found = (rules(state, "one"), rules(state, "two"));
        if found == (json!([rule("pods")]), json!([rule("pods")])) { Ok(()) } else { Err(format!("{found:?}")) }
    }
}

#[test]
fn roles_that_are_made_of_each_other_settle() {
    exhaust(&InACircle).assert();
}

/// Rules that somebody writes into a role that is made of others don't stay; without its wish to be made of others they do.
struct ByHand;

impl Scenario for ByHand {
    fn name(&self) -> &'static str {
        "cluster_role_aggregation::rules_written_by_hand_stay_only_in_roles_of_their_own"
    }

    fn prepare<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            make(plane, "part", json!({"to-whole": "true"}), json!({"rules": [rule("pods")]})).await;
            make(plane, "whole", json!({}), made_of("to-whole")).await;
            make(plane, "free", json!({}), made_of("to-whole")).await;
        })
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        controllers(process, "clusterrole-aggregation-controller")
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            plane.settle().await.unwrap();
            let roles: Api<ClusterRole> = Api::all(plane.client());
            let more = Patch::Merge(json!({"rules": [rule("pods"), rule("secrets")]}));
            roles.patch("whole", &PatchParams::default(), &more).await.unwrap();
            let free = Patch::Merge(json!({"rules": [rule("nodes")], "aggregationRule": null}));
            roles.patch("free", &PatchParams::default(), &free).await.unwrap();
        })
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        let found = (rules(state, "whole"), rules(state, "free"));
        if found == (json!([rule("pods")]), json!([rule("nodes")])) { Ok(()) } else { Err(format!("{found:?}")) }
    }
}

#[test]
fn rules_written_by_hand_stay_only_in_roles_of_their_own() {
    exhaust(&ByHand).assert();
}
