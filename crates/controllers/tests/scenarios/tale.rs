//! Scenarios of controllers that make pods: what users do, told in a few lines.

use futures_util::future::BoxFuture;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use setpoint_testkit::{ControlPlane, Kubelet, Process, Scenario, State};

use crate::process::controllers;

/// What users do while some controllers run, and what comes of it. A kubelet plays the pods.
pub struct Tale {
    pub name: &'static str,
    pub controllers: &'static str,
    pub drive: for<'a> fn(&'a ControlPlane) -> BoxFuture<'a, ()>,
    pub invariant: fn(&State) -> Result<(), String>,
    pub outcome: fn(&State) -> Result<(), String>,
}

impl Scenario for Tale {
    fn name(&self) -> &'static str {
        self.name
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        controllers(process, self.controllers)
    }

    fn world<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Kubelet::binding_to("node-1").run(plane)
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        (self.drive)(plane)
    }

    fn invariant(&self, state: &State) -> Result<(), String> {
        (self.invariant)(state)
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        (self.outcome)(state)
    }

    /// Pods have names of chance: they are counted by the outcome. Conditions are in the order in which they last changed.
    fn view(&self, mut object: Value) -> Option<Value> {
        if object["kind"] == "Pod" {
            return None;
        }
        if let Some(conditions) = object["status"]["conditions"].as_array_mut() {
            conditions.sort_by_key(|condition| condition["type"].to_string());
        }
        Some(object)
    }
}

/// Nothing has to hold on the way.
pub fn anything(_: &State) -> Result<(), String> {
    Ok(())
}

/// The API of a kind in the default namespace.
pub fn api(plane: &ControlPlane, api_version: &str, kind: &str) -> Api<DynamicObject> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Api::default_namespaced_with(plane.client(), &resource)
}

/// Makes an object in the default namespace.
pub async fn create(plane: &ControlPlane, object: Value) {
    let text = |name: &str| object[name].as_str().unwrap_or_default().to_owned();
    let api = api(plane, &text("apiVersion"), &text("kind"));
    let object = serde_json::from_value(object).expect("an object");
    api.create(&PostParams::default(), &object).await.expect("an object that is taken");
}

/// Changes an object in the default namespace.
pub async fn patch(plane: &ControlPlane, api_version: &str, kind: &str, name: &str, patch: Value) {
    let api = api(plane, api_version, kind);
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.expect("a change that is taken");
}

/// A template of pods with an image.
pub fn template(image: &str) -> Value {
    json!({"metadata": {"labels": {"app": "web"}}, "spec": {
        "terminationGracePeriodSeconds": 1, "containers": [{"name": "web", "image": image}]}})
}

/// The pods that are there and not about to go.
pub fn pods(state: &State) -> Vec<Value> {
    let mut pods = state.objects("", "pods");
    pods.retain(|pod| pod["metadata"]["deletionTimestamp"].is_null());
    pods
}

/// Whether a value is as it should be.
pub fn expect(what: &str, got: impl Into<Value>, wanted: impl Into<Value>) -> Result<(), String> {
    let (got, wanted) = (got.into(), wanted.into());
    if got == wanted { Ok(()) } else { Err(format!("{what}: {got} instead of {wanted}")) }
}
