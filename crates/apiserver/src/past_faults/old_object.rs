//! CVE-2021-25735: a webhook was shown another object as the old one than the one that was stored, and could be fooled.

use http::{Method, Request};
use serde_json::{Value, json};
use setpoint_schema::{Edit, Kind};

use crate::body::full;
use crate::every_kind;
use crate::registry::Registry;
use crate::testing::Server;
use crate::webhook_client::backend::{Backend, Reply};

const HOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

/// A server on which a webhook sees every write of every kind.
async fn seen() -> (Server, Backend) {
    let server = Server::start().await;
    let account = json!({"metadata": {"name": "default"}, "automountServiceAccountToken": false});
    server.done("POST", "/api/v1/namespaces/default/serviceaccounts", account).await;
    let backend = Backend::start(|_| Reply::Review(json!({"allowed": true}))).await;
    let rule = json!({"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "operations": ["*"]});
    let hook = json!({
        "name": "all.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"], "rules": [rule],
        "matchPolicy": "Exact", "clientConfig": {"url": format!("https://{}/", backend.address), "caBundle": backend.ca_bundle},
    });
    server.done("POST", HOOKS, json!({"metadata": {"name": "all"}, "webhooks": [hook]})).await;
    (server, backend)
}

/// Sends a request, and returns its code and what the webhook was told of it, if it was asked.
async fn told(
    (server, backend): &(Server, Backend),
    method: &str,
    path: &str,
    media: &str,
    body: &Value,
) -> (u16, Value, Option<Value>) {
    let before = backend.count();
    let mut request = Request::new(full(if body.is_null() { String::new() } else { body.to_string() }));
    *request.method_mut() = Method::from_bytes(method.as_bytes()).unwrap();
    *request.uri_mut() = path.parse().unwrap();
    request.headers_mut().insert("content-type", media.parse().unwrap());
    let (code, answer) = server.ask(request).await;
    let review = backend.body(before).map(|review| review["request"].clone());
    (code, answer, review)
}

/// Each way to change an object without changing it: so that what is old is what is there.
fn changes(kind: &Kind, object: &Value) -> Vec<(&'static str, &'static str, Value)> {
    let mut applied = json!({"apiVersion": kind.api_version(), "kind": &*kind.kind});
    applied.set("metadata", json!({"name": object["metadata"]["name"]}));
    vec![
        ("PUT", "application/json", object.clone()),
        ("PATCH", "application/merge-patch+json", json!({})),
        ("PATCH", "application/strategic-merge-patch+json", json!({})),
        ("PATCH", "application/json-patch+json", json!([])),
        ("PATCH", "application/apply-patch+yaml", applied),
    ]
}

#[tokio::test]
async fn the_old_object_is_the_one_that_is_stored_for_every_kind_and_every_part() {
    let world = seen().await;
    let registry = Registry::builtin();
    let (mut looked_at, mut wrong) = (0, Vec::new());
    for (path, least) in every_kind::least() {
        let group_version: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        let (group, version) =
            if group_version[0] == "api" { ("", "v1") } else { (group_version[1], group_version[2]) };
        // Nobody is asked about these: who is wrong there could never be corrected.
        if group == "admissionregistration.k8s.io" {
            continue;
        }
        let kind = &registry.find(group, version, path.rsplit('/').next().unwrap()).unwrap().kind;
        let (code, created, review) = told(&world, "POST", path, "application/json", &least).await;
        let review = review.unwrap_or_else(|| panic!("{path}: {code} {created}"));
        assert_eq!((code, &review["oldObject"]), (201, &Value::Null), "{path}: {created}");
        let object = format!("{path}/{}", created["metadata"].text("name"));
        let parts = kind
            .subresources
            .iter()
            .filter(|part| part.root == kind.root && part.verbs.iter().any(|verb| verb == "patch" || verb == "update"));
        let places: Vec<String> =
            std::iter::once(object.clone()).chain(parts.map(|part| format!("{object}/{}", part.name))).collect();
        for place in &places {
            let there = world.0.done("GET", &object, Value::Null).await;
            for (method, media, body) in changes(kind, &there) {
                let before = world.0.done("GET", &object, Value::Null).await;
                let body = if method == "PUT" { &before } else { &body };
                let target = match media {
                    "application/apply-patch+yaml" => format!("{place}?fieldManager=seen&force=true"),
                    _ => place.clone(),
                };
                let (code, answer, review) = told(&world, method, &target, media, body).await;
                let Some(review) = review else {
                    // What can't be done at all is nobody's to see.
                    assert!(matches!(code, 405 | 422 | 400), "{method} {media} {place}: {code} {answer}");
                    continue;
                };
                looked_at += 1;
                if review["oldObject"] != before || review["operation"] != "UPDATE" {
                    wrong.push(format!("{method} {media} {place}:\n  {}\n  {before}", review["oldObject"]));
                }
            }
        }
        let before = world.0.done("GET", &object, Value::Null).await;
        let (_, _, review) = told(&world, "DELETE", &object, "application/json", &Value::Null).await;
        let review = review.expect("a delete is seen");
        if review["oldObject"] != before || !review["object"].is_null() {
            wrong.push(format!("DELETE {object}:\n  {}\n  {before}", review["oldObject"]));
        }
    }
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong[..wrong.len().min(5)].join("\n"));
    assert!(looked_at >= 300, "{looked_at}");
}

/// The size of a workload is a small object of its own, and so is the old one.
#[tokio::test]
async fn the_old_scale_is_the_one_that_is_stored() {
    let world = seen().await;
    for (path, least) in every_kind::least().filter(|(path, _)| {
        ["replicasets", "deployments", "statefulsets", "replicationcontrollers"].iter().any(|end| path.ends_with(end))
    }) {
        let created = world.0.done("POST", path, least).await;
        let scale = format!("{path}/{}/scale", created["metadata"].text("name"));
        for size in 2..4 {
            let before = world.0.done("GET", &scale, Value::Null).await;
            let patch = json!({"spec": {"replicas": size}});
            let (code, _, review) = told(&world, "PATCH", &scale, "application/merge-patch+json", &patch).await;
            let review = review.expect("a change of size is seen");
            assert_eq!((code, review["kind"]["kind"].as_str()), (200, Some("Scale")), "{scale}");
            assert_eq!(review["oldObject"]["spec"], before["spec"], "{scale}");
            assert_eq!(review["oldObject"]["metadata"]["uid"], before["metadata"]["uid"], "{scale}");
            assert_eq!(review["oldObject"]["metadata"]["resourceVersion"], before["metadata"]["resourceVersion"]);
            assert_eq!(review["object"]["spec"]["replicas"], size);
        }
    }
}
