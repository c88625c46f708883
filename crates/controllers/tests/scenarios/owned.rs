//! Objects that own each other, made and deleted as users do it.

use kube::Client;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::core::Request;
use serde_json::{Value, json};
use setpoint_testkit::ControlPlane;

pub const MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub const SECRETS: &str = "/api/v1/namespaces/default/secrets";
pub const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
pub const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

/// What users do with objects of any kind.
pub struct Objects {
    pub client: Client,
}

impl Objects {
    pub fn on(plane: &ControlPlane) -> Objects {
        Objects { client: plane.client() }
    }

    /// Makes an object with owners.
    pub async fn make(&self, path: &str, name: &str, owners: &[Value]) -> Value {
        self.make_with(path, json!({"metadata": {"name": name, "ownerReferences": owners}})).await
    }

    pub async fn make_with(&self, path: &str, object: Value) -> Value {
        let body = serde_json::to_vec(&object).unwrap();
        let request = Request::new(path).create(&PostParams::default(), body).unwrap();
        self.client.request(request).await.unwrap_or_else(|error| panic!("{path} {object}: {error}"))
    }

    pub async fn delete(&self, path: &str, name: &str, how: &DeleteParams) {
        let request = Request::new(path).delete(name, how).unwrap();
        let _: Value = self.client.request(request).await.unwrap_or_else(|error| panic!("{path}/{name}: {error}"));
    }

    pub async fn patch(&self, path: &str, name: &str, patch: Value) {
        let request = Request::new(path).patch(name, &PatchParams::default(), &Patch::Merge(patch)).unwrap();
        let _: Value = self.client.request(request).await.unwrap();
    }
}

/// A reference to an object that was made.
pub fn owner(object: &Value) -> Value {
    json!({
        "apiVersion": object["apiVersion"], "kind": object["kind"],
        "name": object["metadata"]["name"], "uid": object["metadata"]["uid"],
    })
}

/// A reference whose owner waits.
pub fn blocking(object: &Value) -> Value {
    with(owner(object), "blockOwnerDeletion", json!(true))
}

pub fn with(mut object: Value, field: &str, value: Value) -> Value {
    object[field] = value;
    object
}

/// A definition of widgets.
pub fn widgets() -> Value {
    json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            }}}],
        },
    })
}
