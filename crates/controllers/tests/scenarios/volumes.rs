//! Claims and volumes: bound, provisioned, protected, let go.

use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{StorageClass, VolumeAttributesClass};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use setpoint_testkit::{ControlPlane, Process, Scenario, State};

use crate::nodes;
use crate::process::{controllers, exhaust, spawn};
use crate::story::stand_in;

const ALL: &str = "persistentvolume-binder-controller,persistentvolume-protection-controller,persistentvolumeclaim-protection-controller";

async fn volume(plane: &ControlPlane, name: &str, size: &str, more: Value) {
    let mut spec = json!({"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let volumes: Api<PersistentVolume> = Api::all(plane.client());
    let volume = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap();
    volumes.create(&PostParams::default(), &volume).await.unwrap();
}

async fn claim(plane: &ControlPlane, name: &str, size: &str, more: Value) {
    let mut spec = json!({"resources": {"requests": {"storage": size}}, "accessModes": ["ReadWriteOnce"]});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let claim = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap();
    claims(plane).create(&PostParams::default(), &claim).await.unwrap();
}

fn claims(plane: &ControlPlane) -> Api<PersistentVolumeClaim> {
    Api::namespaced(plane.client(), "default")
}

fn volume_of(state: &State, name: &str) -> Value {
    state.object("", "persistentvolumes", "", name).unwrap_or_default()
}

fn claim_of(state: &State, name: &str) -> Value {
    state.object("", "persistentvolumeclaims", "default", name).unwrap_or_default()
}

fn expect(what: &str, got: &Value, right: bool) -> Result<(), String> {
    if right { Ok(()) } else { Err(format!("{what}: {got}")) }
}

/// Two claims, three volumes: each claim gets the smallest that fits; a third asks for one by name that is too small.
struct Static;

impl Scenario for Static {
    fn name(&self) -> &'static str {
        "volumes::claims_get_the_volumes_that_fit"
    }

    fn prepare<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            volume(plane, "large", "100Gi", json!({})).await;
            claim(plane, "modest", "1Gi", json!({})).await;
            claim(plane, "asks", "50Gi", json!({"volumeName": "tiny"})).await;
        })
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        controllers(process, "persistentvolume-binder-controller")
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            plane.settle().await.unwrap();
            volume(plane, "small", "5Gi", json!({})).await;
            volume(plane, "tiny", "1Gi", json!({})).await;
            claim(plane, "second", "2Gi", json!({})).await;
        })
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        for (claim, volume) in [("modest", "large"), ("second", "small")] {
            let (claim, volume_name) = (claim_of(state, claim), volume);
            let volume = volume_of(state, volume_name);
            let right = claim["spec"]["volumeName"] == volume_name && claim["status"]["phase"] == "Bound";
            expect("claim", &claim, right && claim["status"]["capacity"] == volume["spec"]["capacity"])?;
            let of = &volume["spec"]["claimRef"];
            expect("volume", &volume, volume["status"]["phase"] == "Bound" && of["uid"] == claim["metadata"]["uid"])?;
        }
        expect("too small", &claim_of(state, "asks"), claim_of(state, "asks")["status"]["phase"] == "Pending")?;
        let tiny = volume_of(state, "tiny");
        expect("tiny", &tiny, tiny["status"]["phase"] == "Available")
    }
}

#[test]
fn claims_get_the_volumes_that_fit() {
    exhaust(&Static).assert();
}

/// A class whose volumes are simulated: one claim at once, one when its consumer has a node; then the first goes.
struct Simulated;

impl Scenario for Simulated {
    fn name(&self) -> &'static str {
        "volumes::simulated_volumes_come_and_go_with_their_claims"
    }

    fn prepare<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            let classes: Api<StorageClass> = Api::all(plane.client());
            for (name, mode) in [("now", "Immediate"), ("later", "WaitForFirstConsumer")] {
                let class = json!({"metadata": {"name": name}, "provisioner": "simulated.setpoint.dev", "volumeBindingMode": mode});
                classes.create(&PostParams::default(), &serde_json::from_value(class).unwrap()).await.unwrap();
            }
            claim(plane, "goes", "1Gi", json!({"storageClassName": "now"})).await;
            claim(plane, "waits", "1Gi", json!({"storageClassName": "later"})).await;
            claim(plane, "placed", "1Gi", json!({"storageClassName": "later"})).await;
        })
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        controllers(process, ALL)
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            plane.settle().await.unwrap();
            let bound = plane.state().objects("", "persistentvolumes");
            assert_eq!(bound.len(), 1, "one claim is for now: {bound:?}");
            let placed =
                Patch::Merge(json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "n"}}}));
            claims(plane).patch("placed", &PatchParams::default(), &placed).await.unwrap();
            claims(plane).delete("goes", &DeleteParams::default()).await.unwrap();
        })
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        let volumes = state.objects("", "persistentvolumes");
        let placed = claim_of(state, "placed");
        let name = format!("pvc-{}", placed["metadata"]["uid"].as_str().unwrap_or(""));
        expect("volumes", &json!(volumes), volumes.len() == 1 && volumes[0]["metadata"]["name"] == name)?;
        expect("placed", &placed, placed["status"]["phase"] == "Bound")?;
        expect("waits", &claim_of(state, "waits"), claim_of(state, "waits")["status"]["phase"] == "Pending")?;
        expect("goes", &claim_of(state, "goes"), claim_of(state, "goes").is_null())
    }

    /// Volumes are named after the identity of their claims, which is another in each run.
    fn view(&self, object: Value) -> Option<Value> {
        let text = object.to_string();
        let is_volume = object["kind"] == "PersistentVolume" || text.contains("pvc-");
        (!is_volume).then_some(object)
    }
}

#[test]
fn simulated_volumes_come_and_go_with_their_claims() {
    exhaust(&Simulated).assert();
}

/// A claim that a pod uses is deleted, and so is its volume: both stay until the pod is gone, then the volume is released.
struct InUse;

impl Scenario for InUse {
    fn name(&self) -> &'static str {
        "volumes::what_is_used_stays_until_it_is_not"
    }

    fn prepare<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            plane.let_pods_into("default").await;
            volume(plane, "kept", "1Gi", json!({})).await;
            volume(plane, "gone", "2Gi", json!({})).await;
            claim(plane, "one", "1Gi", json!({"volumeName": "kept"})).await;
            claim(plane, "two", "2Gi", json!({"volumeName": "gone"})).await;
        })
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        controllers(process, ALL)
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            let uses = |claim: &str| json!({"spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]}});
            plane.settle().await.unwrap();
            nodes::place(plane, "user", "n", uses("one")).await;
            claims(plane).delete("one", &DeleteParams::default()).await.unwrap();
            claims(plane).delete("two", &DeleteParams::default()).await.unwrap();
            let volumes: Api<PersistentVolume> = Api::all(plane.client());
            volumes.delete("gone", &DeleteParams::default()).await.unwrap();
            plane.settle().await.unwrap();
            assert!(claims(plane).get_opt("one").await.unwrap().is_some(), "a pod uses it");
            let pods: Api<Pod> = Api::namespaced(plane.client(), "default");
            pods.delete("user", &DeleteParams::default()).await.unwrap();
        })
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        let left = json!(state.objects("", "persistentvolumeclaims"));
        expect("claims", &left, left == json!([]))?;
        expect("gone", &volume_of(state, "gone"), volume_of(state, "gone").is_null())?;
        let kept = volume_of(state, "kept");
        expect("kept", &kept, kept["status"]["phase"] == "Released" && kept["spec"]["claimRef"]["name"] == "one")
    }
}

#[test]
fn what_is_used_stays_until_it_is_not() {
    exhaust(&InUse).assert();
}

/// Three classes are deleted: nobody uses one, a claim another, a volume the third, which it changes for a fourth.
struct Classes;

impl Scenario for Classes {
    fn name(&self) -> &'static str {
        "volumes::a_class_of_attributes_stays_while_a_claim_or_a_volume_has_it"
    }

    fn prepare<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            for name in ["unused", "claimed", "had", "new"] {
                let class =
                    json!({"metadata": {"name": name}, "driverName": "d.example.com", "parameters": {"a": "b"}});
                classes(plane).create(&PostParams::default(), &serde_json::from_value(class).unwrap()).await.unwrap();
            }
            claim(plane, "one", "1Gi", json!({"volumeAttributesClassName": "claimed"})).await;
            let csi = json!({"hostPath": null, "csi": {"driver": "d.example.com", "volumeHandle": "v"}});
            let mut more = json!({"volumeAttributesClassName": "had"});
            more.as_object_mut().unwrap().extend(csi.as_object().unwrap().clone());
            volume(plane, "v", "1Gi", more).await;
        })
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        controllers(process, "volumeattributesclass-protection-controller")
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            plane.settle().await.unwrap();
            for name in ["unused", "claimed", "had"] {
                classes(plane).delete(name, &DeleteParams::default()).await.unwrap();
            }
            plane.settle().await.unwrap();
            assert!(classes(plane).get_opt("had").await.unwrap().is_some(), "a volume has it");
            let volumes: Api<PersistentVolume> = Api::all(plane.client());
            let patch = Patch::Merge(json!({"spec": {"volumeAttributesClassName": "new"}}));
            volumes.patch("v", &PatchParams::default(), &patch).await.unwrap();
        })
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        let left = state.objects("storage.k8s.io", "volumeattributesclasses");
        let names: Vec<_> = left.iter().filter_map(|class| class["metadata"]["name"].as_str()).collect();
        expect("classes", &json!(names), names == ["claimed", "new"])
    }
}

fn classes(plane: &ControlPlane) -> Api<VolumeAttributesClass> {
    Api::all(plane.client())
}

#[test]
fn a_class_of_attributes_stays_while_a_claim_or_a_volume_has_it() {
    exhaust(&Classes).assert();
}

/// What pods of one name bring with them, and what is in the way of it.
struct Ephemeral {
    name: &'static str,
    drive: for<'a> fn(&'a ControlPlane) -> BoxFuture<'a, ()>,
    outcome: fn(&State) -> Result<(), String>,
}

impl Scenario for Ephemeral {
    fn name(&self) -> &'static str {
        self.name
    }

    fn prepare<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(plane.let_pods_into("default"))
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        controllers(process, "ephemeral-volume-controller,persistentvolumeclaim-protection-controller")
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        (self.drive)(plane)
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        (self.outcome)(state)
    }

    fn view(&self, object: Value) -> Option<Value> {
        Some(if object["kind"] == "Pod" { stand_in(object) } else { object })
    }
}

async fn bring(plane: &ControlPlane, name: &str) {
    let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let template = json!({"metadata": {"labels": {"of": name}}, "spec": spec});
    let volumes = json!([{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}},
        {"name": "other", "emptyDir": {}}]);
    let pod =
        json!({"metadata": {"name": name}, "spec": {"volumes": volumes, "containers": [{"name": "c", "image": "i"}]}});
    let pods: Api<Pod> = Api::namespaced(plane.client(), "default");
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
}

/// A claim that is the pod's own, with the labels of its template.
fn is_own(state: &State, pod: &str) -> Result<(), String> {
    let claim = claim_of(state, &format!("{pod}-scratch"));
    let owner = &claim["metadata"]["ownerReferences"][0];
    let uid = state.object("", "pods", "default", pod).unwrap_or_default()["metadata"]["uid"].clone();
    let right = owner["kind"] == "Pod" && owner["controller"] == true && owner["uid"] == uid && !uid.is_null();
    expect("claim", &claim, right && claim["metadata"]["labels"]["of"] == pod)
}

#[test]
fn a_pod_gets_the_claims_that_it_brings() {
    exhaust(&Ephemeral {
        name: "volumes::a_pod_gets_the_claims_that_it_brings",
        drive: |plane| {
            Box::pin(async {
                bring(plane, "one").await;
                bring(plane, "two").await;
            })
        },
        outcome: |state| {
            is_own(state, "one")?;
            is_own(state, "two")?;
            let all = state.objects("", "persistentvolumeclaims");
            expect("claims", &json!(all), all.len() == 2)
        },
    })
    .assert();
}

#[test]
fn a_claim_of_a_pod_that_somebody_deletes_is_made_again() {
    exhaust(&Ephemeral {
        name: "volumes::a_claim_of_a_pod_that_somebody_deletes_is_made_again",
        drive: |plane| {
            Box::pin(async {
                bring(plane, "one").await;
                plane.settle().await.unwrap();
                // The pod has no node yet, so that nothing holds its claim.
                claims(plane).delete("one-scratch", &DeleteParams::default()).await.unwrap();
            })
        },
        outcome: |state| is_own(state, "one"),
    })
    .assert();
}

#[test]
fn a_claim_that_is_not_the_pods_is_left_alone_and_said() {
    exhaust(&Ephemeral {
        name: "volumes::a_claim_that_is_not_the_pods_is_left_alone_and_said",
        drive: |plane| {
            Box::pin(async {
                claim(plane, "one-scratch", "5Gi", json!({})).await;
                claim(plane, "two-scratch", "5Gi", json!({})).await;
                bring(plane, "one").await;
                bring(plane, "two").await;
                plane.settle().await.unwrap();
                claims(plane).delete("two-scratch", &DeleteParams::default()).await.unwrap();
            })
        },
        outcome: |state| {
            let foreign = claim_of(state, "one-scratch");
            expect("foreign", &foreign, foreign["metadata"]["ownerReferences"].is_null())?;
            // Once the other one is gone the pod gets its own.
            is_own(state, "two")
        },
    })
    .assert();
}

#[tokio::test(start_paused = true)]
async fn users_are_told_whose_claim_is_in_the_way() {
    let plane = ControlPlane::start().await;
    plane.let_pods_into("default").await;
    let _controllers = spawn(&plane, "ephemeral-volume-controller");
    claim(&plane, "one-scratch", "5Gi", json!({})).await;
    bring(&plane, "one").await;
    plane.settle().await.unwrap();
    let note =
        "ephemeral volume scratch: PVC default/one-scratch was not created for pod default/one (pod is not owner)";
    let events = plane.state().objects("", "events");
    let is_told =
        |event: &Value| event["reason"] == "FailedBinding" && (event["message"] == note || event["note"] == note);
    assert!(events.iter().any(is_told), "{events:?}");
}
