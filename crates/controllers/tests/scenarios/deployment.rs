//! Deployments: rollouts, the way back, pauses, and what is said about them.

use std::time::Duration;

use futures_util::FutureExt;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, DeleteParams, PropagationPolicy};
use serde_json::{Value, json};
use setpoint_testkit::{ControlPlane, State};

use crate::process::exhaust;
use crate::story::{Story, anything, create, expect, patch, pods, template};

const BOTH: &str = "replicaset,deployment";

fn deployment(replicas: i32, image: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {
        "replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template(image),
        "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}}})
}

async fn change(plane: &ControlPlane, spec: Value) {
    patch::<Deployment>(plane, "web", json!({ "spec": spec })).await;
}

fn web(state: &State) -> Value {
    state.object("apps", "deployments", "default", "web").unwrap_or_default()
}

/// Image, size and revision of each set, by revision.
fn sets(state: &State) -> Vec<(String, i64, String)> {
    let facts = |set: Value| {
        let image = set["spec"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap_or_default().to_owned();
        let revision = set["metadata"]["annotations"]["deployment.kubernetes.io/revision"].as_str();
        (image, set["spec"]["replicas"].as_i64().unwrap_or(-1), revision.unwrap_or_default().to_owned())
    };
    let mut sets: Vec<_> = state.objects("apps", "replicasets").into_iter().map(facts).collect();
    sets.sort_by(|one, other| one.2.cmp(&other.2));
    sets
}

/// Whether the sets are these.
fn expect_sets(state: &State, wanted: &[(&str, i64, &str)]) -> Result<(), String> {
    let wanted: Vec<_> = wanted.iter().map(|(image, size, revision)| json!([image, size, revision])).collect();
    expect("sets", sets(state).into_iter().map(|set| json!([set.0, set.1, set.2])).collect::<Vec<_>>(), wanted)
}

fn reason(deployment: &Value, kind: &str) -> Value {
    let conditions = deployment["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.into_iter().find(|condition| condition["type"] == kind).unwrap_or_default()["reason"].clone()
}

/// That all pods are of an image and available.
fn expect_done(state: &State, replicas: i64, image: &str) -> Result<(), String> {
    let deployment = web(state);
    let status = &deployment["status"];
    for count in ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"] {
        expect(count, status[count].clone(), replicas)?;
    }
    expect("unavailable", status["unavailableReplicas"].clone(), Value::Null)?;
    expect("terminating", status["terminatingReplicas"].clone(), 0)?;
    expect("generation", status["observedGeneration"].clone(), deployment["metadata"]["generation"].clone())?;
    expect("Progressing", reason(&deployment, "Progressing"), "NewReplicaSetAvailable")?;
    expect("Available", reason(&deployment, "Available"), "MinimumReplicasAvailable")?;
    let images: Vec<_> = pods(state).iter().map(|pod| pod["spec"]["containers"][0]["image"].clone()).collect();
    expect("images", images, vec![image; usize::try_from(replicas).unwrap()])
}

#[test]
fn a_new_template_is_rolled_out() {
    exhaust(&Story {
        name: "deployment::a_new_template_is_rolled_out",
        controllers: BOTH,
        drive: |plane| {
            async {
                plane.let_pods_into("default").await;
                create::<Deployment>(plane, deployment(1, "web:1")).await;
                plane.settle().await.unwrap();
                change(plane, json!({"template": template("web:2")})).await;
            }
            .boxed()
        },
        node: Some("node-1"),
        invariant: anything,
        outcome: |state| {
            expect_sets(state, &[("web:1", 0, "1"), ("web:2", 1, "2")])?;
            let revision = web(state)["metadata"]["annotations"]["deployment.kubernetes.io/revision"].clone();
            expect("revision", revision, "2")?;
            expect_done(state, 1, "web:2")
        },
    })
    .assert();
}

#[test]
fn an_earlier_template_gets_its_set_back() {
    exhaust(&Story {
        name: "deployment::an_earlier_template_gets_its_set_back",
        controllers: BOTH,
        drive: |plane| {
            async {
                plane.let_pods_into("default").await;
                create::<Deployment>(plane, deployment(1, "web:1")).await;
                plane.settle().await.unwrap();
                change(plane, json!({"template": template("web:2"), "revisionHistoryLimit": 1})).await;
                plane.settle().await.unwrap();
                let undo = json!({"metadata": {"annotations": {"deprecated.deployment.rollback.to": "0"}}});
                patch::<Deployment>(plane, "web", undo).await;
            }
            .boxed()
        },
        node: Some("node-1"),
        invariant: anything,
        outcome: |state| {
            expect_sets(state, &[("web:2", 0, "2"), ("web:1", 1, "3")])?;
            let set = state.objects("apps", "replicasets");
            let set = set.iter().find(|set| set["spec"]["replicas"] == 1).unwrap();
            let history = set["metadata"]["annotations"]["deployment.kubernetes.io/revision-history"].clone();
            expect("history", history, "1")?;
            let wish = web(state)["metadata"]["annotations"]["deprecated.deployment.rollback.to"].clone();
            expect("the wish", wish, Value::Null)?;
            expect_done(state, 1, "web:1")
        },
    })
    .assert();
}

#[test]
fn recreation_replaces_all_pods() {
    exhaust(&Story {
        name: "deployment::recreation_replaces_all_pods",
        controllers: BOTH,
        drive: |plane| {
            async {
                plane.let_pods_into("default").await;
                let mut deployment = deployment(1, "web:1");
                deployment["spec"]["strategy"] = json!({"type": "Recreate"});
                // The old set is kept: a pod that old caches make for a set that is gone is the garbage collector's.
                create::<Deployment>(plane, deployment).await;
                plane.settle().await.unwrap();
                change(plane, json!({"template": template("web:2")})).await;
            }
            .boxed()
        },
        node: Some("node-1"),
        invariant: anything,
        outcome: |state| {
            expect_sets(state, &[("web:1", 0, "1"), ("web:2", 1, "2")])?;
            expect_done(state, 1, "web:2")
        },
    })
    .assert();
}

#[test]
fn a_pause_holds_a_rollout_but_not_its_size() {
    exhaust(&Story {
        name: "deployment::a_pause_holds_a_rollout_but_not_its_size",
        controllers: BOTH,
        drive: |plane| {
            async {
                plane.let_pods_into("default").await;
                create::<Deployment>(plane, deployment(1, "web:1")).await;
                plane.settle().await.unwrap();
                change(plane, json!({"paused": true, "replicas": 2, "template": template("web:2")})).await;
                plane.settle().await.unwrap();
                let state = plane.state();
                expect_sets(&state, &[("web:1", 2, "1")]).unwrap();
                expect("Progressing", reason(&web(&state), "Progressing"), "DeploymentPaused").unwrap();
                change(plane, json!({"paused": false})).await;
            }
            .boxed()
        },
        node: Some("node-1"),
        invariant: anything,
        outcome: |state| {
            expect_sets(state, &[("web:1", 0, "1"), ("web:2", 2, "2")])?;
            expect_done(state, 2, "web:2")
        },
    })
    .assert();
}

#[test]
fn a_rollout_that_does_not_get_on_is_said_to_be_late() {
    exhaust(&Story {
        name: "deployment::a_rollout_that_does_not_get_on_is_said_to_be_late",
        controllers: BOTH,
        drive: |plane| {
            async {
                plane.let_pods_into("default").await;
                let mut deployment = deployment(1, "web:1");
                deployment["spec"]["progressDeadlineSeconds"] = json!(60);
                deployment["spec"]["template"]["metadata"]["annotations"] = json!({"testkit/outcome": "never-ready"});
                create::<Deployment>(plane, deployment).await;
                plane.advance(Duration::from_secs(600)).await;
            }
            .boxed()
        },
        node: Some("node-1"),
        invariant: anything,
        outcome: |state| {
            expect("Progressing", reason(&web(state), "Progressing"), "ProgressDeadlineExceeded")?;
            expect("Available", reason(&web(state), "Available"), "MinimumReplicasUnavailable")?;
            expect("unavailable", web(state)["status"]["unavailableReplicas"].clone(), 1)
        },
    })
    .assert();
}

#[test]
fn a_name_that_is_taken_is_a_collision() {
    exhaust(&Story {
        name: "deployment::a_name_that_is_taken_is_a_collision",
        controllers: BOTH,
        drive: |plane| {
            async {
                plane.let_pods_into("default").await;
                create::<Deployment>(plane, deployment(0, "web:1")).await;
                plane.settle().await.unwrap();
                let orphan =
                    DeleteParams { propagation_policy: Some(PropagationPolicy::Background), ..DeleteParams::default() };
                Api::<Deployment>::default_namespaced(plane.client()).delete("web", &orphan).await.unwrap();
                plane.settle().await.unwrap();
                // Nobody collects garbage here: the set of the one before is still there.
                create::<Deployment>(plane, deployment(0, "web:1")).await;
            }
            .boxed()
        },
        node: Some("node-1"),
        invariant: anything,
        outcome: |state| {
            expect("collisions", web(state)["status"]["collisionCount"].clone(), 1)?;
            expect_sets(state, &[("web:1", 0, "1"), ("web:1", 0, "1")])
        },
    })
    .assert();
}
