//! PodDisruptionBudgets, and evictions that obey them.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Api, EvictParams};
use serde_json::{Value, json};
use setpoint_testkit::{ControlPlane, State};

use crate::process::exhaust;

use crate::story::{Story, anything, create, expect, names, patch, text};

const STORY: Story = Story {
    name: "",
    controllers: "disruption-controller",
    node: Some("node-1"),
    drive: |_| Box::pin(async {}),
    invariant: anything,
    outcome: anything,
};

/// Makes a budget, an owner that nobody runs, and its pods.
async fn make(plane: &ControlPlane, pods: i32, spec: Value) {
    let containers = json!([{"name": "web", "image": "web:1"}]);
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": containers}});
    let set = json!({"metadata": {"name": "web"}, "spec": {"replicas": pods, "serviceName": "web",
        "selector": {"matchLabels": {"app": "web"}}, "template": template}});
    create::<StatefulSet>(plane, set).await;
    let sets: Api<StatefulSet> = Api::default_namespaced(plane.client());
    let uid = sets.get("web").await.unwrap().metadata.uid.unwrap();
    let owner = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": uid, "controller": true});
    for ordinal in 0..pods {
        let metadata = json!({"name": format!("web-{ordinal}"), "labels": {"app": "web"}, "ownerReferences": [owner]});
        let spec = json!({"terminationGracePeriodSeconds": 1, "automountServiceAccountToken": false,
            "containers": containers});
        create::<Pod>(plane, json!({"metadata": metadata, "spec": spec})).await;
    }
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
                let why = "The disruption budget web needs 1 healthy pods and has 1 currently".to_owned();
                expect("third", evict(plane, "web-1").await, (429, why)).unwrap();
            })
        },
        outcome: |state| {
            expect("pods", names(&state.objects("", "pods")), vec!["web-1".to_owned()])?;
            says(state, [1, 1, 2, 0], "InsufficientPods")
        },
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
                patch::<StatefulSet>(plane, "web", json!({"spec": {"replicas": 4}})).await;
            })
        },
        outcome: |state| says(state, [1, 2, 4, 0], "InsufficientPods"),
        ..STORY
    };
    exhaust(&story).assert();
}

#[test]
fn a_budget_whose_pods_nobody_scales_lets_none_go() {
    let story = Story {
        name: "disruption::a_budget_whose_pods_nobody_scales_lets_none_go",
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
