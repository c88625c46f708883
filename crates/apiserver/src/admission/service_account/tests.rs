//! No way to a secret that a pod has is passed over.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use setpoint_schema::types::Shape;
use setpoint_schema::{Edit, TypeRef, facts};

use super::*;
use crate::testing::Server;

const PODS: &str = "/api/v1/namespaces/default/pods";

/// One step into a type: a field, or an item of a list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Field(String),
    Item,
}

/// All ways from a type to a field that names a secret: one of a type of references to secrets, or a text that is called so.
fn ways_to_secrets(ty: TypeRef<'_>, way: &[Step], found: &mut BTreeSet<Vec<Step>>) {
    match ty.shape() {
        Shape::List(_) => {
            let way = [way, &[Step::Item]].concat();
            ways_to_secrets(ty.item().expect("a list has items"), &way, found);
        }
        Shape::Struct(_) => {
            for field in ty.fields() {
                let way = [way, &[Step::Field(field.name.to_string())]].concat();
                let child = ty.child(&field.name).expect("a field has a type");
                let is_reference = field.name.to_lowercase().contains("secret") && child.field("name").is_some();
                match child.shape() {
                    Shape::String if &*field.name == "secretName" => found.extend([way]),
                    _ if is_reference => {
                        found.extend([[&way[..], &[Step::Field("name".to_owned())]].concat()]);
                    }
                    // Schemas of claims know no secrets, and are the only ones that go on without end.
                    _ => ways_to_secrets(child, &way, found),
                }
            }
        }
        _ => {}
    }
}

/// A value in which the end of a way is this text.
fn at(way: &[Step], text: &str) -> Value {
    match way {
        [] => json!(text),
        [Step::Item, rest @ ..] => json!([at(rest, text)]),
        [Step::Field(name), rest @ ..] => json!({name: at(rest, text)}),
    }
}

fn ways() -> BTreeSet<Vec<Step>> {
    let spec = facts::type_named("io.k8s.api.core.v1.PodSpec").expect("a built-in type");
    let mut found = BTreeSet::new();
    ways_to_secrets(spec, &[], &mut found);
    found
}

#[test]
fn every_field_that_names_a_secret_is_looked_at() {
    let ways = ways();
    assert!(ways.len() >= 16, "volumes of eleven sorts, three lists of containers, pull secrets: {ways:#?}");
    for way in ways {
        let spec = at(&way, "hidden");
        let lists = CONTAINERS.into_iter().flat_map(|(what, list)| secret_references(&spec, what, list));
        let mut seen = volume_secrets(&spec).chain(lists).map(|(_, name)| name).chain(names(&spec, "imagePullSecrets"));
        assert!(seen.any(|name| name == "hidden"), "{way:?} is passed over");
    }
}

#[test]
fn every_list_of_containers_is_looked_at() {
    let spec = facts::type_named("io.k8s.api.core.v1.PodSpec").expect("a built-in type");
    let holds_environment = |ty: TypeRef<'_>| ty.field("envFrom").is_some();
    let lists = spec
        .fields()
        .iter()
        .filter(|field| spec.child(&field.name).and_then(TypeRef::item).is_some_and(holds_environment));
    let lists: BTreeSet<&str> = lists.map(|field| &*field.name).collect();
    assert_eq!(lists, CONTAINERS.iter().map(|(_, list)| *list).collect());
}

/// A server with an account that allows one secret.
async fn limited() -> Server {
    let server = Server::start().await;
    let limits = json!({"kubernetes.io/enforce-mountable-secrets": "true"});
    let account = json!({"metadata": {"name": "default", "annotations": limits}, "secrets": [{"name": "own"}]});
    server.done("POST", "/api/v1/namespaces/default/serviceaccounts", account).await;
    server
}

fn pod(spec: Value) -> Value {
    let mut pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    spec.as_object().unwrap().iter().for_each(|(field, value)| pod["spec"].set(field, value.clone()));
    pod
}

#[tokio::test]
async fn a_new_pod_uses_no_secret_that_its_account_does_not_name() {
    let server = limited().await;
    let with =
        |name: &str, secret: &str| json!([{"name": name, "image": "i", "envFrom": [{"secretRef": {"name": secret}}]}]);
    let env = |secret: &str| with("c", secret);
    let projected = json!([{"name": "v", "projected": {"sources": [{"secret": {"name": "other"}}]}}]);
    let not = "does not reference that secret";
    for (spec, expected) in [
        (json!({"containers": env("other")}), "container c with envFrom referencing secret.secretName=\"other\""),
        (json!({"initContainers": with("first", "other")}), "init container first with envFrom referencing"),
        (
            json!({"volumes": [{"name": "v", "secret": {"secretName": "other"}}]}),
            "volume with secret.secretName=\"other\"",
        ),
        (json!({"volumes": projected}), "volume with secret.secretName=\"other\""),
    ] {
        let (code, message) = server.refused("POST", PODS, pod(spec)).await;
        assert!(code == 403 && message.contains(expected) && message.contains(not), "{code} {message}");
    }
    server.done("POST", PODS, pod(json!({"containers": env("own")}))).await;
}

/// CVE-2023-2728: a container that was added to a pod later was not asked about.
#[tokio::test]
async fn a_container_that_is_added_uses_no_other_secret_either() {
    let server = limited().await;
    let mut made = server.done("POST", PODS, pod(json!({}))).await;
    let path = format!("{PODS}/p/ephemeralcontainers");
    let added = |secret: &str| {
        let env = json!([{"name": "E", "valueFrom": {"secretKeyRef": {"name": secret, "key": "k"}}}]);
        json!([{"name": "debug", "image": "i", "env": env, "terminationMessagePolicy": "File", "imagePullPolicy": "Always"}])
    };
    let expected = "pods \"p\" is forbidden: ephemeral container debug with envVar E referencing secret.secretName=\"other\" is not allowed because service account default does not reference that secret";
    made["spec"]["ephemeralContainers"] = added("other");
    assert_eq!(server.refused("PUT", &path, made.clone()).await, (403, expected.to_owned()));
    let change = json!({"spec": {"ephemeralContainers": added("other")}});
    let operation = json!([{"op": "add", "path": "/spec/ephemeralContainers", "value": added("other")}]);
    let mut applied = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}});
    applied["spec"] = change["spec"].clone();
    for (media, body) in [
        ("application/merge-patch+json", change.clone()),
        ("application/strategic-merge-patch+json", change.clone()),
        ("application/json-patch+json", operation),
        ("application/apply-patch+yaml", applied),
    ] {
        let mut request = http::Request::patch(format!("{path}?fieldManager=m")).header("content-type", media);
        request = request.header("accept", "application/json");
        let (code, answer) = server.ask(request.body(crate::body::full(body.to_string())).unwrap()).await;
        assert_eq!((code, answer.text("message")), (403, expected), "{media}");
    }
    let (code, _) = server.refused("PATCH", &format!("{PODS}/p"), change).await;
    assert_eq!(code, 422, "the pod itself takes no containers");
    server.done("PATCH", &path, json!({"spec": {"ephemeralContainers": added("own")}})).await;
}
