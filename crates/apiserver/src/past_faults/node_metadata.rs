//! CVE-2025-5187 and CVE-2025-4563: a node gave itself an owner and was deleted for it, and a pod that it made could use what it may not.

use http::{Method, Request};
use serde_json::{Value, json};
use setpoint_schema::{Edit, facts};

use crate::body::full;
use crate::testing::Server;

const NODE: &str = "/api/v1/nodes/a";
const POD: &str = "/api/v1/namespaces/default/pods/p";
const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

async fn as_node(server: &Server, method: &str, path: &str, media: &str, body: &Value) -> (u16, Value) {
    let mut request = Request::new(full(body.to_string()));
    *request.method_mut() = Method::from_bytes(method.as_bytes()).unwrap();
    *request.uri_mut() = path.parse().unwrap();
    let headers = request.headers_mut();
    headers.insert("content-type", media.parse().unwrap());
    headers.insert("impersonate-user", "system:node:a".parse().unwrap());
    headers.insert("impersonate-group", "system:nodes".parse().unwrap());
    server.ask(request).await
}

/// A server with node `a` and pod `p` on it.
async fn server() -> Server {
    let server = Server::start().await;
    server.api.prepare_roles().await.unwrap();
    server.done("POST", "/api/v1/nodes", json!({"metadata": {"name": "a"}})).await;
    server.pod("p").await;
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "a"}});
    server.done("POST", &format!("{POD}/binding"), binding).await;
    server
}

/// What a node would like each field of metadata to be.
fn wishes() -> Vec<(&'static str, Value)> {
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "u"}]);
    let time = "2001-01-01T00:00:00Z";
    let manager =
        json!([{"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {}}]);
    vec![
        ("name", json!("other")),
        ("generateName", json!("other-")),
        ("namespace", json!("other")),
        ("selfLink", json!("/other")),
        ("uid", json!("other")),
        ("resourceVersion", json!("1")),
        ("generation", json!(99)),
        ("creationTimestamp", json!(time)),
        ("deletionTimestamp", json!(time)),
        ("deletionGracePeriodSeconds", json!(0)),
        ("labels", json!({"node-restriction.kubernetes.io/trusted": "yes", "app": "b"})),
        ("annotations", json!({"example.com/note": "mine"})),
        ("ownerReferences", owner),
        ("finalizers", json!(["example.com/hold"])),
        ("managedFields", manager),
    ]
}

/// The fields of metadata that differ, but for those that every write moves.
fn changed(before: &Value, after: &Value) -> Vec<String> {
    let (before, after) = (before["metadata"].as_object().unwrap(), after["metadata"].as_object().unwrap());
    let names = before.keys().chain(after.keys().filter(|name| !before.contains_key(*name)));
    let moves = |name: &&String| matches!(name.as_str(), "resourceVersion" | "managedFields");
    names.filter(|name| !moves(name) && before.get(*name) != after.get(*name)).cloned().collect()
}

#[test]
fn no_field_of_metadata_is_without_a_wish() {
    let meta = facts::type_named(OBJECT_META).unwrap();
    let wishes = wishes();
    for (name, _) in &wishes {
        assert!(meta.field(name).is_some(), "{name}");
    }
    let known = meta.fields().len();
    assert_eq!(known, wishes.len(), "each field of metadata has a wish");
}

#[tokio::test]
async fn of_its_metadata_a_node_changes_notes_and_finalizers_only() {
    let free: [(&str, &[&str]); 4] = [
        (NODE, &["generateName", "annotations", "finalizers"]),
        ("/api/v1/nodes/a/status", &["generateName", "annotations", "finalizers"]),
        (POD, &[]),
        ("/api/v1/namespaces/default/pods/p/status", &["generateName", "annotations", "finalizers"]),
    ];
    let server = server().await;
    for (path, free) in free {
        let object = if path.contains("/nodes/") { NODE } else { POD };
        let kind = if object == NODE { "Node" } else { "Pod" };
        for (field, wish) in wishes() {
            let before = server.done("GET", object, Value::Null).await;
            let name = before["metadata"]["name"].clone();
            let mut whole = before.clone();
            whole["metadata"].set(field, wish.clone());
            let mut metadata = json!({"name": name});
            metadata.set(field, wish.clone());
            let merge = json!({"metadata": {field: wish}});
            let applied = json!({"apiVersion": "v1", "kind": kind, "metadata": metadata});
            let operations = json!([{"op": "add", "path": format!("/metadata/{field}"), "value": wish}]);
            for (method, media, body) in [
                ("PATCH", "application/merge-patch+json", &merge),
                ("PATCH", "application/strategic-merge-patch+json", &merge),
                ("PATCH", "application/json-patch+json", &operations),
                ("PATCH", "application/apply-patch+yaml", &applied),
                ("PUT", "application/json", &whole),
            ] {
                let target = match media {
                    "application/apply-patch+yaml" => format!("{path}?fieldManager=kubelet&force=true"),
                    _ => path.to_owned(),
                };
                let (code, answer) = as_node(&server, method, &target, media, body).await;
                let after = server.done("GET", object, Value::Null).await;
                let differs = changed(&before, &after);
                let allowed = differs.iter().all(|name| name == field && free.contains(&field));
                assert!(allowed, "{method} {media} {path} {field}: {code} {answer}\nchanged {differs:?}");
            }
            let after = server.done("GET", object, Value::Null).await;
            let is_free = free.contains(&field);
            assert_eq!(changed(&before, &after).contains(&field.to_owned()), is_free, "{path} {field}");
            let cleared = json!({"metadata": {"generateName": null, "annotations": null, "finalizers": null}});
            server.done("PATCH", object, cleared).await;
        }
    }
}

/// A pod that a node makes by itself refers to nothing in the API, however it would: what it referred to, the node could read.
#[tokio::test]
async fn a_pod_that_a_node_makes_refers_to_nothing() {
    let server = server().await;
    let node = server.done("GET", NODE, Value::Null).await;
    let mirror = |more: &Value| {
        let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": "a", "uid": node["metadata"]["uid"], "controller": true}]);
        let mut spec = json!({"nodeName": "a", "containers": [{"name": "c", "image": "i"}]});
        more.as_object().unwrap().iter().for_each(|(field, value)| spec.set(field, value.clone()));
        let annotations = json!({"kubernetes.io/config.mirror": "x"});
        json!({"metadata": {"name": "m", "ownerReferences": owner, "annotations": annotations}, "spec": spec})
    };
    let container = |more: Value| {
        let mut container = json!({"name": "c", "image": "i"});
        more.as_object().unwrap().iter().for_each(|(field, value)| container.set(field, value.clone()));
        json!({"containers": [container]})
    };
    let volume = |source: Value| {
        let mut volume = json!({"name": "v"});
        source.as_object().unwrap().iter().for_each(|(field, value)| volume.set(field, value.clone()));
        json!({"volumes": [volume]})
    };
    let projected = |source: Value| volume(json!({"projected": {"sources": [source]}}));
    let claim = json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let key = json!({"name": "s", "key": "k"});
    for more in [
        json!({"serviceAccountName": "default"}),
        json!({"imagePullSecrets": [{"name": "s"}]}),
        container(json!({"env": [{"name": "A", "valueFrom": {"secretKeyRef": key}}]})),
        container(json!({"envFrom": [{"secretRef": {"name": "s"}}]})),
        volume(json!({"secret": {"secretName": "s"}})),
        volume(json!({"csi": {"driver": "d", "nodePublishSecretRef": {"name": "s"}}})),
        volume(json!({"azureFile": {"secretName": "s", "shareName": "n"}})),
        projected(json!({"secret": {"name": "s"}})),
        container(json!({"env": [{"name": "A", "valueFrom": {"configMapKeyRef": key}}]})),
        container(json!({"envFrom": [{"configMapRef": {"name": "s"}}]})),
        volume(json!({"configMap": {"name": "s"}})),
        projected(json!({"configMap": {"name": "s"}})),
        json!({"resourceClaims": [{"name": "r", "resourceClaimName": "c"}]}),
        volume(json!({"csi": {"driver": "d"}})),
        volume(json!({"persistentVolumeClaim": {"claimName": "c"}})),
        volume(json!({"ephemeral": {"volumeClaimTemplate": claim}})),
        projected(json!({"serviceAccountToken": {"path": "t"}})),
    ] {
        let (code, answer) =
            as_node(&server, "POST", "/api/v1/namespaces/default/pods", "application/json", &mirror(&more)).await;
        let why = answer["message"].as_str().unwrap_or_default();
        let is_told = why.contains("can not create pods that reference") || why.contains("a mirror pod may not");
        assert!(code == 403 && is_told, "{more}: {code} {answer}");
    }
    for more in [json!({}), volume(json!({"hostPath": {"path": "/x"}})), volume(json!({"emptyDir": {}}))] {
        let (code, answer) =
            as_node(&server, "POST", "/api/v1/namespaces/default/pods", "application/json", &mirror(&more)).await;
        assert_eq!(code, 201, "{more}: {answer}");
        server.done("DELETE", "/api/v1/namespaces/default/pods/m?gracePeriodSeconds=0", Value::Null).await;
    }
}
