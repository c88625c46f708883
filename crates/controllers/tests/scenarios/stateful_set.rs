//! StatefulSets: order, updates, claims.

use futures_util::future::BoxFuture;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use setpoint_testkit::{ControlPlane, Kubelet, OUTCOME, State};

use crate::process::{exhaust, spawn};
use crate::story::{Story, anything, create, expect, is_ready, names, patch, text};

const STORY: Story = Story {
    name: "",
    controllers: "statefulset-controller",
    node: Some("node-1"),
    drive: |_| Box::pin(async {}),
    invariant: anything,
    outcome: anything,
};

/// A set `web` of some pods with further fields in its spec.
fn web(replicas: i32, more: Value) -> Value {
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"terminationGracePeriodSeconds": 1, "automountServiceAccountToken": false,
        "containers": [{"name": "web", "image": "web:1"}]}});
    let mut set = json!({"metadata": {"name": "web"}, "spec": {"replicas": replicas, "serviceName": "web",
        "selector": {"matchLabels": {"app": "web"}}, "template": template}});
    let more = more.as_object().cloned().unwrap_or_default();
    set["spec"].as_object_mut().unwrap().extend(more);
    set
}

fn image(name: &str) -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": "web", "image": name}]}}}})
}

fn claim_templates() -> Value {
    json!([{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}}])
}

fn pods(state: &State) -> Vec<Value> {
    state.objects("", "pods")
}

fn images(state: &State) -> Vec<String> {
    pods(state).iter().map(|pod| text(pod, "/spec/containers/0/image")).collect()
}

fn set(state: &State) -> Value {
    state.object("apps", "statefulsets", "default", "web").unwrap_or_default()
}

fn status(state: &State) -> Value {
    let mut status = set(state)["status"].take();
    status.as_object_mut().map(|status| status.remove("observedGeneration"));
    status
}

/// All of some pods are there, ready and of the newest revision.
fn is_complete(state: &State, count: usize) -> Result<(), String> {
    let status = status(state);
    expect("revisions", text(&status, "/currentRevision"), text(&status, "/updateRevision"))?;
    for number in ["replicas", "readyReplicas", "availableReplicas", "currentReplicas", "updatedReplicas"] {
        expect(number, status[number].as_u64(), Some(count as u64))?;
    }
    expect("ready pods", pods(state).iter().filter(|pod| is_ready(pod)).count(), count)
}

/// Pods come from the first on and go from the last on, one at a time.
fn is_in_order(state: &State) -> Result<(), String> {
    let pods = pods(state);
    let first: Vec<_> = (0..pods.len()).map(|ordinal| format!("web-{ordinal}")).collect();
    expect("pods", names(&pods), first)?;
    let waiting = pods.iter().filter(|pod| !is_ready(pod)).count();
    if waiting > 1 { Err(format!("{waiting} pods start or go at once")) } else { Ok(()) }
}

#[test]
fn pods_come_and_go_in_order_and_claims_stay() {
    let story = Story {
        name: "stateful_set::pods_come_and_go_in_order_and_claims_stay",
        drive: |plane| {
            Box::pin(async {
                create::<StatefulSet>(plane, web(2, json!({"volumeClaimTemplates": claim_templates()}))).await;
                plane.settle().await.unwrap();
                patch::<StatefulSet>(plane, "web", json!({"spec": {"replicas": 1}})).await;
            })
        },
        invariant: is_in_order,
        outcome: |state| {
            is_complete(state, 1)?;
            let claims = state.objects("", "persistentvolumeclaims");
            expect("claims", names(&claims), ["data-web-0", "data-web-1"].map(str::to_owned).to_vec())?;
            let pod = &pods(state)[0];
            expect("host", text(pod, "/spec/hostname"), "web-0".to_owned())?;
            expect("index", text(pod, "/metadata/labels/apps.kubernetes.io~1pod-index"), "0".to_owned())
        },
        ..STORY
    };
    exhaust(&story).assert();
}

/// An update to a version that is never ready. The first pod stays as it was.
fn break_update(plane: &ControlPlane) -> BoxFuture<'_, ()> {
    Box::pin(async {
        create::<StatefulSet>(plane, web(2, json!({}))).await;
        plane.settle().await.unwrap();
        let mut broken = image("web:2");
        broken["spec"]["template"]["metadata"] = json!({"annotations": {OUTCOME: "never-ready"}});
        patch::<StatefulSet>(plane, "web", broken).await;
        plane.settle().await.unwrap();
    })
}

/// Once the set has been whole, only one of its two pods is not ready at any moment.
fn has_one_ready(state: &State) -> Result<(), String> {
    if set(state)["metadata"]["generation"] == 1 {
        return Ok(());
    }
    if pods(state).iter().any(is_ready) { Ok(()) } else { Err("no pod is ready".to_owned()) }
}

#[test]
fn an_update_stops_at_an_unhealthy_pod() {
    let story = Story {
        name: "stateful_set::an_update_stops_at_an_unhealthy_pod",
        drive: break_update,
        invariant: has_one_ready,
        outcome: |state| {
            expect("images", images(state), ["web:1", "web:2"].map(str::to_owned).to_vec())?;
            let status = status(state);
            if status["currentRevision"] == status["updateRevision"] {
                return Err("the update counts as complete".to_owned());
            }
            expect("updated", status["updatedReplicas"].as_u64(), Some(1))?;
            expect("current", status["currentReplicas"].as_u64(), Some(1))
        },
        ..STORY
    };
    exhaust(&story).assert();
}

#[tokio::test(start_paused = true)]
async fn a_broken_update_is_mended_by_hand() {
    let plane = ControlPlane::start().await;
    plane.let_pods_into("default").await;
    spawn(&plane, "statefulset-controller");
    tokio::spawn(Kubelet::binding_to("node-1").run(&plane));
    break_update(&plane).await;
    let mut mended = image("web:3");
    mended["spec"]["template"]["metadata"] = json!({"annotations": null});
    patch::<StatefulSet>(&plane, "web", mended).await;
    plane.settle().await.unwrap();
    // The pod that is not ready is waited for until somebody deletes it.
    assert_eq!(images(&plane.state()), ["web:1", "web:2"]);
    let pods: Api<Pod> = Api::default_namespaced(plane.client());
    pods.delete("web-1", &DeleteParams::default()).await.unwrap();
    plane.settle().await.unwrap();
    is_complete(&plane.state(), 2).unwrap();
    assert_eq!(images(&plane.state()), ["web:3", "web:3"]);
    assert_eq!(plane.state().objects("apps", "controllerrevisions").len(), 3);
}

#[test]
fn a_partition_holds_pods_back_and_an_undo_takes_the_old_revision_again() {
    let story = Story {
        name: "stateful_set::a_partition_holds_pods_back_and_an_undo_takes_the_old_revision_again",
        drive: |plane| {
            Box::pin(async {
                let rolling = |partition: i32| json!({"rollingUpdate": {"partition": partition}});
                create::<StatefulSet>(plane, web(2, json!({"updateStrategy": rolling(1), "revisionHistoryLimit": 0})))
                    .await;
                plane.settle().await.unwrap();
                patch::<StatefulSet>(plane, "web", image("web:2")).await;
                plane.settle().await.unwrap();
                expect("images", images(&plane.state()), ["web:1", "web:2"].map(str::to_owned).to_vec()).unwrap();
                // Below the partition a pod that is made anew stays what it was.
                let pods: Api<Pod> = Api::default_namespaced(plane.client());
                pods.delete("web-0", &DeleteParams::default()).await.unwrap();
                plane.settle().await.unwrap();
                expect("images", images(&plane.state()), ["web:1", "web:2"].map(str::to_owned).to_vec()).unwrap();
                let mut undo = image("web:1");
                undo["spec"]["updateStrategy"] = rolling(0);
                patch::<StatefulSet>(plane, "web", undo).await;
            })
        },
        outcome: |state| {
            is_complete(state, 2)?;
            expect("images", images(state), vec!["web:1".to_owned(); 2])?;
            let revisions = state.objects("apps", "controllerrevisions");
            expect("revisions", revisions.iter().map(|one| one["revision"].as_i64()).collect::<Vec<_>>(), vec![Some(3)])
        },
        ..STORY
    };
    exhaust(&story).assert();
}

#[test]
fn parallel_pods_come_at_once_and_are_made_anew_only_when_deleted() {
    let story = Story {
        name: "stateful_set::parallel_pods_come_at_once_and_are_made_anew_only_when_deleted",
        drive: |plane| {
            Box::pin(async {
                let more = json!({"podManagementPolicy": "Parallel", "ordinals": {"start": 5},
                    "updateStrategy": {"type": "OnDelete"}});
                create::<StatefulSet>(plane, web(2, more)).await;
                plane.settle().await.unwrap();
                let mut next = image("web:2");
                next["spec"]["replicas"] = json!(1);
                patch::<StatefulSet>(plane, "web", next).await;
                plane.settle().await.unwrap();
                // A pod that has failed is made anew.
                let pods: Api<Pod> = Api::default_namespaced(plane.client());
                let failed = Patch::Merge(json!({"status": {"phase": "Failed"}}));
                pods.patch_status("web-5", &PatchParams::default(), &failed).await.unwrap();
            })
        },
        outcome: |state| {
            expect("pods", names(&pods(state)), vec!["web-5".to_owned()])?;
            expect("images", images(state), vec!["web:2".to_owned()])?;
            expect("ready", status(state)["readyReplicas"].as_u64(), Some(1))
        },
        ..STORY
    };
    exhaust(&story).assert();
}

#[test]
fn claims_go_with_the_pods_that_a_set_has_too_many_of() {
    let story = Story {
        name: "stateful_set::claims_go_with_the_pods_that_a_set_has_too_many_of",
        drive: |plane| {
            Box::pin(async {
                let policy = json!({"whenDeleted": "Delete", "whenScaled": "Delete"});
                let more = json!({"volumeClaimTemplates": claim_templates(),
                    "persistentVolumeClaimRetentionPolicy": policy, "minReadySeconds": 5});
                create::<StatefulSet>(plane, web(2, more)).await;
                plane.settle().await.unwrap();
                patch::<StatefulSet>(plane, "web", json!({"spec": {"replicas": 1}})).await;
            })
        },
        outcome: |state| {
            let owner = |claim: &str| {
                let claim = state.object("", "persistentvolumeclaims", "default", claim).unwrap_or_default();
                text(&claim, "/metadata/ownerReferences/0/kind")
            };
            expect("the owner of the first", owner("data-web-0"), "StatefulSet".to_owned())?;
            expect("the owner of the second", owner("data-web-1"), "Pod".to_owned())
        },
        ..STORY
    };
    exhaust(&story).assert();
}

#[test]
fn an_orphan_of_the_right_name_is_adopted_and_others_are_left_alone() {
    let story = Story {
        name: "stateful_set::an_orphan_of_the_right_name_is_adopted_and_others_are_left_alone",
        drive: |plane| {
            Box::pin(async {
                for name in ["web-0", "web-x"] {
                    let pod = json!({"metadata": {"name": name, "labels": {"app": "web"}},
                        "spec": {"automountServiceAccountToken": false, "containers": [{"name": "web", "image": "web:0"}]}});
                    create::<Pod>(plane, pod).await;
                }
                create::<StatefulSet>(plane, web(1, json!({"updateStrategy": {"type": "OnDelete"}}))).await;
            })
        },
        outcome: |state| {
            let pods = pods(state);
            expect("pods", names(&pods), ["web-0", "web-x"].map(str::to_owned).to_vec())?;
            let owners: Vec<_> = pods.iter().map(|pod| text(pod, "/metadata/ownerReferences/0/name")).collect();
            expect("owners", owners, ["web", ""].map(str::to_owned).to_vec())?;
            let label = text(&pods[0], "/metadata/labels/statefulset.kubernetes.io~1pod-name");
            expect("label", label, "web-0".to_owned())
        },
        ..STORY
    };
    exhaust(&story).assert();
}
