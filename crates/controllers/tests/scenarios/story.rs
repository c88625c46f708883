//! A scenario told by functions: what users do, and what must hold.

use futures_util::future::BoxFuture;
use k8s_openapi::NamespaceResourceScope;
use kube::Resource;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use setpoint_testkit::{ControlPlane, Kubelet, Process, Scenario, State};

use crate::process::controllers;

/// A scenario with some controllers and nodes that play pods.
pub struct Story {
    pub name: &'static str,
    pub controllers: &'static str,
    /// The node that all pods go to; without one each goes where it is told to.
    pub node: Option<&'static str>,
    pub drive: for<'a> fn(&'a ControlPlane) -> BoxFuture<'a, ()>,
    pub invariant: fn(&State) -> Result<(), String>,
    pub outcome: fn(&State) -> Result<(), String>,
}

impl Scenario for Story {
    fn name(&self) -> &'static str {
        self.name
    }

    fn prepare<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(plane.let_pods_into("default"))
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        controllers(process, self.controllers)
    }

    fn world<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Kubelet { node: self.node.map(str::to_owned), ..Kubelet::default() }.run(plane)
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

    /// Of what has a name that the server made up, what it stands for is compared. Conditions are in the order in which they last
    /// changed.
    fn view(&self, mut object: Value) -> Option<Value> {
        if !object["metadata"]["generateName"].is_null() {
            return Some(stand_in(object));
        }
        if let Some(conditions) = object["status"]["conditions"].as_array_mut() {
            conditions.sort_by_key(|condition| condition["type"].to_string());
        }
        Some(object)
    }
}

/// What an object stands for whose name was made up by the server: its kind, whose it is, its labels, whether it is about to go, what it
/// should be, and how far it is. Two runs that mean the same have the same of them, under other names and in another order.
pub fn stand_in(object: Value) -> Value {
    let metadata = &object["metadata"];
    let kept = json!({"ownerReferences": metadata["ownerReferences"], "labels": metadata["labels"],
        "finalizers": metadata["finalizers"], "isGoing": !metadata["deletionTimestamp"].is_null()});
    let phase = object["status"]["phase"].clone();
    let mut stands_for = object;
    stands_for["metadata"] = kept;
    stands_for["status"] = phase;
    forget_tokens(&mut stands_for["spec"]);
    if let Some(endpoints) = stands_for["endpoints"].as_array_mut() {
        endpoints.sort_by_key(ToString::to_string);
    }
    stands_for
}

/// The volume of a pod with its token has a name by chance.
fn forget_tokens(value: &mut Value) {
    match value {
        Value::Array(items) => {
            let is_token = |item: &Value| text(item, "/name").starts_with("kube-api-access-");
            items.retain(|item| !is_token(item));
            items.iter_mut().for_each(forget_tokens);
        }
        Value::Object(fields) => fields.values_mut().for_each(forget_tokens),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Nothing that must hold on the way.
pub fn anything(_: &State) -> Result<(), String> {
    Ok(())
}

/// Makes an object in the default namespace.
pub async fn create<K>(plane: &ControlPlane, object: Value)
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Serialize
        + DeserializeOwned
        + Clone
        + std::fmt::Debug,
{
    let api: Api<K> = Api::default_namespaced(plane.client());
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
}

/// Merges a patch into an object in the default namespace.
pub async fn patch<K>(plane: &ControlPlane, name: &str, patch: Value)
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + DeserializeOwned + Clone + std::fmt::Debug,
{
    let api: Api<K> = Api::default_namespaced(plane.client());
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

/// Fails with what is there unless it is what should be.
pub fn expect<T: PartialEq<U> + std::fmt::Debug, U: std::fmt::Debug>(
    what: &str,
    found: T,
    wanted: U,
) -> Result<(), String> {
    if found == wanted { Ok(()) } else { Err(format!("{what}: {found:?} instead of {wanted:?}")) }
}

/// A text in an object, empty if it isn't there.
pub fn text(object: &Value, pointer: &str) -> String {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// The names of objects.
pub fn names(objects: &[Value]) -> Vec<String> {
    objects.iter().map(|object| text(object, "/metadata/name")).collect()
}

/// Whether a pod takes traffic and stays.
pub fn is_ready(pod: &Value) -> bool {
    let conditions = pod.pointer("/status/conditions").and_then(Value::as_array);
    let is_ready = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
    pod["metadata"]["deletionTimestamp"].is_null() && conditions.is_some_and(|all| all.iter().any(is_ready))
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
