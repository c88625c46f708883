//! Claims of devices come with the pods that have templates for them, and nobody keeps one who doesn't use it.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate};
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use setpoint_testkit::{ControlPlane, Process, Scenario, State};

use crate::process::{controllers, exhaust};
use crate::story::{create, expect, stand_in, text};

const FINALIZER: &str = "resource.kubernetes.io/delete-protection";

struct Devices {
    name: &'static str,
    drive: for<'a> fn(&'a ControlPlane) -> BoxFuture<'a, ()>,
    outcome: fn(&State) -> Result<(), String>,
}

impl Scenario for Devices {
    fn name(&self) -> &'static str {
        self.name
    }

    fn prepare<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(plane.let_pods_into("default"))
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        controllers(process, "resourceclaim-controller")
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        (self.drive)(plane)
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        (self.outcome)(state)
    }

    /// Names of claims and of the volumes of pods are made up by the server; pods are looked at in the outcome. Who dies before a claim is
    /// let go leaves that to its deletion, as Kubernetes does: somebody may be about to give it devices.
    fn view(&self, mut object: Value) -> Option<Value> {
        if object["kind"] != "ResourceClaim" {
            return Some(object).filter(|object| object["kind"] != "Pod");
        }
        object["metadata"]["finalizers"] = Value::Null;
        Some(stand_in(object))
    }
}

async fn template(plane: &ControlPlane) {
    let devices = json!({"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]});
    let spec = json!({"metadata": {"labels": {"team": "a"}}, "spec": {"devices": devices}});
    create::<ResourceClaimTemplate>(plane, json!({"metadata": {"name": "gpu"}, "spec": spec})).await;
}

/// A pod with two claims of its own and one that it shares.
async fn pod(plane: &ControlPlane, name: &str) {
    let own = |name: &str| json!({"name": name, "resourceClaimTemplateName": "gpu"});
    let claims = json!([own("one"), own("two"), {"name": "shared", "resourceClaimName": "shared"}]);
    let spec = json!({"containers": [{"name": "c", "image": "i"}], "resourceClaims": claims});
    create::<Pod>(plane, json!({"metadata": {"name": name}, "spec": spec})).await;
}

async fn shared(plane: &ControlPlane) {
    let metadata = json!({"name": "shared", "finalizers": [FINALIZER]});
    create::<ResourceClaim>(plane, json!({"metadata": metadata, "spec": {}})).await;
}

/// Somebody gives devices to a claim, for these pods.
async fn give(plane: &ControlPlane, claim: &str, pods: &[&str]) {
    let all: Api<Pod> = Api::default_namespaced(plane.client());
    let mut users = Vec::new();
    for name in pods {
        let uid = all.get(name).await.unwrap().metadata.uid;
        users.push(json!({"resource": "pods", "name": name, "uid": uid}));
    }
    let claims: Api<ResourceClaim> = Api::default_namespaced(plane.client());
    let status = Patch::Merge(json!({"status": {"allocation": {}, "reservedFor": users}}));
    claims.patch_status(claim, &PatchParams::default(), &status).await.unwrap();
}

async fn end(plane: &ControlPlane, pod: &str) {
    let pods: Api<Pod> = Api::default_namespaced(plane.client());
    let status = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
    pods.patch_status(pod, &PatchParams::default(), &status).await.unwrap();
}

fn claims(state: &State) -> Vec<Value> {
    state.objects("resource.k8s.io", "resourceclaims")
}

/// A pod has both of its claims, knows them, and there are no others of it.
fn has_its_claims(state: &State, name: &str) -> Result<(), String> {
    let pod = state.object("", "pods", "default", name).unwrap_or_default();
    let mut own = claims(state);
    own.retain(|claim| claim["metadata"]["ownerReferences"][0]["uid"] == pod["metadata"]["uid"]);
    let called = |claim: &Value| {
        let annotation = "/metadata/annotations/resource.kubernetes.io~1pod-claim-name";
        json!({"name": text(claim, annotation), "resourceClaimName": text(claim, "/metadata/name")})
    };
    let by_name = |all: &mut Vec<Value>| all.sort_by_key(|it| it["name"].to_string());
    let mut made: Vec<Value> = own.iter().map(called).collect();
    let mut told = pod["status"]["resourceClaimStatuses"].as_array().cloned().unwrap_or_default();
    by_name(&mut made);
    by_name(&mut told);
    expect("what it is told", told, made.clone())?;
    expect("claims", made.iter().map(|it| text(it, "/name")).collect::<Vec<_>>(), vec!["one", "two"])?;
    let begins = |claim: &Value| text(claim, "/metadata/name").starts_with(&format!("{name}-"));
    expect("names", own.iter().all(begins), true)?;
    expect("labels", own.iter().all(|claim| claim["metadata"]["labels"] == json!({"team": "a"})), true)
}

#[test]
fn a_pod_gets_a_claim_for_each_of_its_templates() {
    exhaust(&Devices {
        name: "resource_claim::a_pod_gets_a_claim_for_each_of_its_templates",
        drive: |plane| {
            async {
                template(plane).await;
                pod(plane, "a").await;
                pod(plane, "b").await;
                create::<Pod>(
                    plane,
                    json!({"metadata": {"name": "plain"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}),
                )
                .await;
            }
            .boxed()
        },
        outcome: |state| {
            expect("claims", claims(state).len(), 4)?;
            has_its_claims(state, "a").and(has_its_claims(state, "b"))
        },
    })
    .assert();
}

#[test]
fn a_template_that_comes_late_is_used() {
    exhaust(&Devices {
        name: "resource_claim::a_template_that_comes_late_is_used",
        drive: |plane| {
            async {
                pod(plane, "a").await;
                plane.advance(std::time::Duration::from_secs(30)).await;
                template(plane).await;
            }
            .boxed()
        },
        outcome: |state| has_its_claims(state, "a"),
    })
    .assert();
}

#[test]
fn a_claim_that_somebody_deletes_is_made_again() {
    exhaust(&Devices {
        name: "resource_claim::a_claim_that_somebody_deletes_is_made_again",
        drive: |plane| {
            async {
                template(plane).await;
                pod(plane, "a").await;
                plane.settle().await.unwrap();
                let all: Api<ResourceClaim> = Api::default_namespaced(plane.client());
                let name = text(&claims(&plane.state())[0], "/metadata/name");
                all.delete(&name, &DeleteParams::default()).await.unwrap();
            }
            .boxed()
        },
        outcome: |state| has_its_claims(state, "a"),
    })
    .assert();
}

#[test]
fn claims_of_a_pod_that_has_ended_go_and_others_lose_their_user() {
    exhaust(&Devices {
        name: "resource_claim::claims_of_a_pod_that_has_ended_go_and_others_lose_their_user",
        drive: |plane| {
            async {
                template(plane).await;
                shared(plane).await;
                pod(plane, "a").await;
                pod(plane, "b").await;
                plane.settle().await.unwrap();
                give(plane, "shared", &["a", "b"]).await;
                let own = claims(&plane.state());
                let own = own.iter().find(|claim| text(claim, "/metadata/name").starts_with("a-one-")).unwrap();
                give(plane, &text(own, "/metadata/name"), &["a"]).await;
                end(plane, "a").await;
            }
            .boxed()
        },
        outcome: |state| {
            has_its_claims(state, "b")?;
            expect("claims", claims(state).len(), 3)?;
            let shared = state.object("resource.k8s.io", "resourceclaims", "default", "shared").unwrap_or_default();
            let users = shared["status"]["reservedFor"].as_array().cloned().unwrap_or_default();
            expect("users", users.iter().map(|user| text(user, "/name")).collect::<Vec<_>>(), vec!["b"])?;
            expect("devices", shared["status"]["allocation"].is_null(), false)
        },
    })
    .assert();
}

/// A pod that has no claim but the shared one uses it, and goes.
async fn use_for_a_while(plane: &ControlPlane) {
    shared(plane).await;
    let claims = json!([{"name": "shared", "resourceClaimName": "shared"}]);
    let spec = json!({"containers": [{"name": "c", "image": "i"}], "resourceClaims": claims});
    create::<Pod>(plane, json!({"metadata": {"name": "a"}, "spec": spec})).await;
    plane.settle().await.unwrap();
    give(plane, "shared", &["a"]).await;
    plane.settle().await.unwrap();
    let pods: Api<Pod> = Api::default_namespaced(plane.client());
    pods.delete("a", &DeleteParams::default().grace_period(0)).await.unwrap();
}

#[test]
fn devices_are_given_back_with_the_last_user() {
    exhaust(&Devices {
        name: "resource_claim::devices_are_given_back_with_the_last_user",
        drive: |plane| use_for_a_while(plane).boxed(),
        outcome: |state| {
            let shared = state.object("resource.k8s.io", "resourceclaims", "default", "shared").unwrap_or_default();
            expect("it is there", shared.is_null(), false)?;
            expect("status", shared["status"].as_object().is_none_or(serde_json::Map::is_empty), true)
        },
    })
    .assert();
}

#[test]
fn nothing_keeps_a_claim_that_was_used() {
    exhaust(&Devices {
        name: "resource_claim::nothing_keeps_a_claim_that_was_used",
        drive: |plane| {
            async {
                use_for_a_while(plane).await;
                plane.settle().await.unwrap();
                let all: Api<ResourceClaim> = Api::default_namespaced(plane.client());
                all.delete("shared", &DeleteParams::default()).await.unwrap();
            }
            .boxed()
        },
        outcome: |state| expect("claims", claims(state).len(), 0),
    })
    .assert();
}

#[test]
fn a_claim_that_is_deleted_and_that_nobody_uses_goes() {
    exhaust(&Devices {
        name: "resource_claim::a_claim_that_is_deleted_and_that_nobody_uses_goes",
        drive: |plane| {
            async {
                shared(plane).await;
                give(plane, "shared", &[]).await;
                let all: Api<ResourceClaim> = Api::default_namespaced(plane.client());
                all.delete("shared", &DeleteParams::default()).await.unwrap();
            }
            .boxed()
        },
        outcome: |state| expect("claims", claims(state).len(), 0),
    })
    .assert();
}
