//! Autoscalers with a resource metrics API, with none, and with nothing to scale.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use setpoint_testkit::{ControlPlane, Limits, Process, Scenario, State};

use crate::nodes;
use crate::process::{controllers, exhaust_with};
use crate::story::{create, expect, patch, text};

/// Autoscalers look four times a minute for ever, and one that was started anew waits for five minutes before it takes pods away.
fn limits() -> Limits {
    Limits { quiet: Duration::from_secs(400), still: Duration::from_secs(90), ..Limits::default() }
}

struct Autoscaled {
    name: &'static str,
    has_metrics: bool,
    drive: for<'a> fn(&'a ControlPlane) -> BoxFuture<'a, ()>,
    outcome: fn(&State) -> Result<(), String>,
}

impl Scenario for Autoscaled {
    fn name(&self) -> &'static str {
        self.name
    }

    fn prepare<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            plane.let_pods_into("default").await;
            if self.has_metrics {
                define_metrics(plane).await;
            }
        })
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        controllers(process, "horizontal-pod-autoscaler-controller")
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        (self.drive)(plane)
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        (self.outcome)(state)
    }

    /// A crash between the change of the target and the status leaves no word of when that was; nor, as long as there is nothing
    /// to decide by, of what was decided.
    fn view(&self, mut object: Value) -> Option<Value> {
        if let Some(status) = object["status"].as_object_mut() {
            status.remove("lastScaleTime");
            if !self.has_metrics {
                status.remove("desiredReplicas");
            }
        }
        Some(object)
    }
}

/// The resource metrics API, played by a custom kind.
async fn define_metrics(plane: &ControlPlane) {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({
        "metadata": {"name": "pods.metrics.k8s.io", "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"}},
        "spec": {"group": "metrics.k8s.io", "scope": "Namespaced",
            "names": {"plural": "pods", "singular": "pod", "kind": "PodMetrics", "listKind": "PodMetricsList"},
            "versions": [{"name": "v1beta1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]},
    });
    let definitions: Api<CustomResourceDefinition> = Api::all(plane.client());
    definitions.create(&PostParams::default(), &serde_json::from_value(definition).unwrap()).await.unwrap();
    plane.advance(Duration::from_secs(1)).await;
}

/// Says what the pod uses.
async fn uses(plane: &ControlPlane, cpu: &str) {
    let kind = GroupVersionKind::gvk("metrics.k8s.io", "v1beta1", "PodMetrics");
    let resource = ApiResource::from_gvk_with_plural(&kind, "pods");
    let metrics: Api<DynamicObject> = Api::default_namespaced_with(plane.client(), &resource);
    let measured = json!({"apiVersion": "metrics.k8s.io/v1beta1", "kind": "PodMetrics",
        "metadata": {"name": "web-1", "labels": {"app": "web"}}, "timestamp": "2026-06-01T00:00:00Z", "window": "30s",
        "containers": [{"name": "c", "usage": {"cpu": cpu}}]});
    metrics.patch("web-1", &PatchParams::apply("test").force(), &Patch::Apply(measured)).await.unwrap();
}

async fn deploy(plane: &ControlPlane, replicas: i32) {
    let containers = json!([{"name": "c", "image": "i"}]);
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": containers}});
    let spec = json!({"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template});
    create::<Deployment>(plane, json!({"metadata": {"name": "web"}, "spec": spec})).await;
}

async fn autoscale(plane: &ControlPlane, target: &str, more: Value) {
    let cpu = json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}});
    let mut spec = json!({"scaleTargetRef": {"apiVersion": "apps/v1", "kind": target, "name": "web"},
        "minReplicas": 2, "maxReplicas": 10, "metrics": [cpu]});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    create::<HorizontalPodAutoscaler>(plane, json!({"metadata": {"name": "web"}, "spec": spec})).await;
}

fn replicas(state: &State) -> i64 {
    let deployment = state.object("apps", "deployments", "default", "web").unwrap_or_default();
    deployment["spec"]["replicas"].as_i64().unwrap_or(-1)
}

/// `Type=Status Reason` of each condition.
fn said(state: &State) -> Vec<String> {
    let autoscaler = state.object("autoscaling", "horizontalpodautoscalers", "default", "web").unwrap_or_default();
    let conditions = autoscaler["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let line = |one: &Value| format!("{}={} {}", text(one, "/type"), text(one, "/status"), text(one, "/reason"));
    let mut lines: Vec<_> = conditions.iter().map(line).collect();
    lines.sort();
    lines
}

fn lines(lines: &[&str]) -> Vec<String> {
    lines.iter().map(|line| (*line).to_owned()).collect()
}

#[test]
fn pods_become_more_by_what_they_use_and_fewer_when_that_lasts() {
    let scenario = Autoscaled {
        name: "horizontal_pod_autoscaler::pods_become_more_by_what_they_use_and_fewer_when_that_lasts",
        has_metrics: true,
        drive: |plane| {
            async {
                let spec = json!({"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}}]},
                    "metadata": {"labels": {"app": "web"}}});
                nodes::place(plane, "web-1", "n", spec).await;
                let started = Patch::Strategic(json!({"status": {"startTime": "2026-01-01T00:00:00Z"}}));
                let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::default_namespaced(plane.client());
                pods.patch_status("web-1", &PatchParams::default(), &started).await.unwrap();
                uses(plane, "300m").await;
                deploy(plane, 1).await;
                autoscale(plane, "Deployment", json!({"minReplicas": 1})).await;
                plane.settle().await.unwrap();
                // Six times its target: four at first, since the number at most doubles beyond that.
                expect("more", replicas(&plane.state()), 6).unwrap();
                expect("said", said(&plane.state()), lines(&[
                    "AbleToScale=True ReadyForNewScale",
                    "ScalingActive=True ValidMetricFound",
                    "ScalingLimited=False DesiredWithinRange",
                ]))
                .unwrap();
                uses(plane, "20m").await;
                plane.advance(Duration::from_secs(60)).await;
                expect("held", replicas(&plane.state()), 6).unwrap();
                plane.advance(Duration::from_secs(600)).await;
            }
            .boxed()
        },
        outcome: |state| expect("fewer", replicas(state), 1),
    };
    exhaust_with(&scenario, 0, limits()).assert();
}

#[test]
fn without_metrics_only_the_bounds_count() {
    let scenario = Autoscaled {
        name: "horizontal_pod_autoscaler::without_metrics_only_the_bounds_count",
        has_metrics: false,
        drive: |plane| {
            async {
                deploy(plane, 1).await;
                autoscale(plane, "Deployment", json!({})).await;
                plane.settle().await.unwrap();
                expect("at least", replicas(&plane.state()), 2).unwrap();
                patch::<Deployment>(plane, "web", json!({"spec": {"replicas": 20}})).await;
                plane.settle().await.unwrap();
                expect("at most", replicas(&plane.state()), 10).unwrap();
                patch::<Deployment>(plane, "web", json!({"spec": {"replicas": 3}})).await;
            }
            .boxed()
        },
        outcome: |state| {
            expect("replicas", replicas(state), 3)?;
            expect(
                "said",
                said(state),
                lines(&["AbleToScale=True SucceededGetScale", "ScalingActive=False FailedGetResourceMetric"]),
            )?;
            let autoscaler =
                state.object("autoscaling", "horizontalpodautoscalers", "default", "web").unwrap_or_default();
            let wanted = "the HPA was unable to compute the replica count: failed to get cpu utilization: unable to get metrics for \
                resource cpu: unable to fetch metrics from resource metrics API: the server could not find the requested resource \
                (get pods.metrics.k8s.io)";
            expect("message", text(&autoscaler, "/status/conditions/1/message"), wanted.to_owned())
        },
    };
    exhaust_with(&scenario, 0, limits()).assert();
}

#[test]
fn a_target_that_is_not_there_or_is_switched_off_is_left_alone() {
    let scenario = Autoscaled {
        name: "horizontal_pod_autoscaler::a_target_that_is_not_there_or_is_switched_off_is_left_alone",
        has_metrics: false,
        drive: |plane| {
            async {
                autoscale(plane, "Deployment", json!({})).await;
                plane.settle().await.unwrap();
                expect("said", said(&plane.state()), lines(&["AbleToScale=False FailedGetScale"])).unwrap();
                deploy(plane, 0).await;
            }
            .boxed()
        },
        outcome: |state| {
            expect("replicas", replicas(state), 0)?;
            expect(
                "said",
                said(state),
                lines(&["AbleToScale=True SucceededGetScale", "ScalingActive=False ScalingDisabled"]),
            )
        },
    };
    exhaust_with(&scenario, 0, limits()).assert();
}
