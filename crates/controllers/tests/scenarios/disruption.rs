//! PodDisruptionBudgets, and evictions that obey them.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Api, EvictParams};
use serde_json::{Value, json};
use setpoint_testkit::{ControlPlane, State};

use crate::process::exhaust;

use crate::story::{Story, anything, create, expect, is_ready, patch, text};

const STORY: Story = Story {
    name: "",
    controllers: "disruption-controller,statefulset-controller",
    node: Some("node-1"),
    drive: |_| Box::pin(async {}),
    invariant: anything,
    outcome: anything,
};

async fn make(plane: &ControlPlane, replicas: i32, spec: Value) {
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"terminationGracePeriodSeconds": 1, "automountServiceAccountToken": false,
        "containers": [{"name": "web", "image": "web:1"}]}});
    let set = json!({"metadata": {"name": "web"}, "spec": {"replicas": replicas, "serviceName": "web",
        "podManagementPolicy": "Parallel", "selector": {"matchLabels": {"app": "web"}}, "template": template}});
    create::<StatefulSet>(plane, set).await;
    let mut budget = json!({"metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": {"app": "web"}}}});
    budget["spec"].as_object_mut().unwrap().extend(spec.as_object().cloned().unwrap());
    create::<PodDisruptionBudget>(plane, budget).await;
    plane.settle().await.unwrap();
}

/// What comes of an eviction: the code of the answer, and why it is refused.
async fn evict(plane: &ControlPlane, pod: &str) -> (u16, String) {
    let pods: Api<Pod> = Api::default_namespaced(plane.client());
    match pods.evict(pod, &EvictParams::default()).await {
        Ok(_) => (201, String::new()),
        Err(kube::Error::Api(status)) => {
            let causes = status.details.iter().flat_map(|details| &details.causes);
            (status.code, causes.map(|cause| cause.message.clone()).collect())
        }
        Err(other) => panic!("{other}"),
    }
}

fn status(state: &State) -> Value {
    let budget = state.object("policy", "poddisruptionbudgets", "default", "web").unwrap_or_default();
    budget["status"].clone()
}

/// The numbers of a budget: healthy, desired, expected, allowed; and what its condition says.
fn says(state: &State, numbers: [i64; 4], reason: &str) -> Result<(), String> {
    let status = status(state);
    let names = ["currentHealthy", "desiredHealthy", "expectedPods", "disruptionsAllowed"];
    expect("numbers", names.map(|name| status[name].as_i64().unwrap_or(0)), numbers)?;
    expect("reason", text(&status, "/conditions/0/reason"), reason.to_owned())?;
    expect("disrupted", status["disruptedPods"].as_object().map_or(0, serde_json::Map::len), 0)
}

/// Once there were two pods that work, one does at every moment.
fn one_works(state: &State) -> Result<(), String> {
    let was_whole = status(state)["disruptedPods"].is_object();
    if !was_whole || state.objects("", "pods").iter().any(is_ready) {
        return Ok(());
    }
    Err("no pod works".to_owned())
}

#[test]
fn a_budget_lets_one_pod_go_at_a_time() {
    let story = Story {
        name: "disruption::a_budget_lets_one_pod_go_at_a_time",
        drive: |plane| {
            Box::pin(async {
                make(plane, 2, json!({"maxUnavailable": 1})).await;
                says(&plane.state(), [2, 1, 2, 1], "SufficientPods").unwrap();
                expect("first", evict(plane, "web-0").await.0, 201).unwrap();
                expect("second", evict(plane, "web-1").await.0, 429).unwrap();
                plane.settle().await.unwrap();
            })
        },
        invariant: one_works,
        outcome: |state| says(state, [2, 1, 2, 1], "SufficientPods"),
        ..STORY
    };
    exhaust(&story).assert();
}

#[test]
fn a_budget_follows_the_scale_of_its_pods() {
    let story = Story {
        name: "disruption::a_budget_follows_the_scale_of_its_pods",
        drive: |plane| {
            Box::pin(async {
                make(plane, 1, json!({"minAvailable": "50%"})).await;
                says(&plane.state(), [1, 1, 1, 0], "InsufficientPods").unwrap();
                let why = "The disruption budget web needs 1 healthy pods and has 1 currently".to_owned();
                expect("eviction", evict(plane, "web-0").await, (429, why)).unwrap();
                patch::<StatefulSet>(plane, "web", json!({"spec": {"replicas": 2}})).await;
            })
        },
        outcome: |state| says(state, [2, 1, 2, 1], "SufficientPods"),
        ..STORY
    };
    exhaust(&story).assert();
}

#[test]
fn a_budget_whose_pods_nobody_scales_lets_none_go() {
    let story = Story {
        name: "disruption::a_budget_whose_pods_nobody_scales_lets_none_go",
        controllers: "disruption-controller",
        drive: |plane| {
            Box::pin(async {
                let owner =
                    json!({"apiVersion": "batch/v1", "kind": "Job", "name": "web", "uid": "u", "controller": true});
                let pod = json!({"metadata": {"name": "web", "labels": {"app": "web"}, "ownerReferences": [owner]},
                    "spec": {"automountServiceAccountToken": false, "containers": [{"name": "web", "image": "web:1"}]}});
                create::<Pod>(plane, pod).await;
                let budget = json!({"metadata": {"name": "web"}, "spec": {"maxUnavailable": 1,
                    "selector": {"matchLabels": {"app": "web"}}}});
                create::<PodDisruptionBudget>(plane, budget).await;
            })
        },
        outcome: |state| {
            let condition = &status(state)["conditions"][0];
            expect("reason", text(condition, "/reason"), "SyncFailed".to_owned())?;
            let why = "jobs.batch does not implement the scale subresource".to_owned();
            expect("message", text(condition, "/message"), why)
        },
        ..STORY
    };
    exhaust(&story).assert();
}
