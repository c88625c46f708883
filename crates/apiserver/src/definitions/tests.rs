//! The life of custom kinds, seen from outside.

use serde_json::{Value, json};

use super::FINALIZER;
use crate::testing::Server;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

fn version(name: &str, storage: bool) -> Value {
    let spec = json!({"type": "object", "properties": {
        "size": {"type": "integer", "default": 1}, "colour": {"type": "string"}, "replicas": {"type": "integer"},
    }});
    let status =
        json!({"type": "object", "properties": {"replicas": {"type": "integer"}, "selector": {"type": "string"}}});
    json!({
        "name": name, "served": true, "storage": storage,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}},
        "subresources": {"status": {}, "scale": {
            "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        }},
    })
}

fn definition(plural: &str, kind: &str) -> Value {
    json!({
        "metadata": {"name": format!("{plural}.example.com")},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
            "versions": [version("v1", true)],
        },
    })
}

fn widget(name: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"colour": "red"}})
}

/// A definition as it is once something holds of it. Whoever writes it wakes us: there is nothing to poll for.
async fn until(server: &Server, name: &str, holds: impl Fn(Option<&Value>) -> bool) -> Option<Value> {
    loop {
        let revision = server.store.snapshot().revision();
        let (code, found) = server.send("GET", &format!("{DEFINITIONS}/{name}"), Value::Null).await;
        let found = (code == 200).then_some(found);
        if holds(found.as_ref()) {
            return found;
        }
        server.store.reached(setpoint_api::Revision::new(revision.get() + 1)).await;
    }
}

fn condition<'a>(definition: Option<&'a Value>, kind: &str) -> (&'a str, &'a str) {
    let conditions = definition.and_then(|found| found["status"]["conditions"].as_array()).into_iter().flatten();
    let found = conditions.into_iter().find(|condition| condition["type"] == kind);
    let text = |field: &str| found.and_then(|found| found[field].as_str()).unwrap_or("");
    (text("status"), text("reason"))
}

#[tokio::test]
async fn an_object_can_be_made_right_after_its_definition() {
    let server = Server::tended().await;
    for round in 0..20 {
        let (plural, kind) = (format!("things{round}"), format!("Thing{round}"));
        server.done("POST", DEFINITIONS, definition(&plural, &kind)).await;
        let path = format!("/apis/example.com/v1/namespaces/default/{plural}");
        let object = json!({"apiVersion": "example.com/v1", "kind": kind, "metadata": {"name": "a"}, "spec": {}});
        let made = server.done("POST", &path, object).await;
        assert_eq!(made["spec"]["size"], 1);
    }
}

#[tokio::test]
async fn conditions_and_names_are_told() {
    let server = Server::tended().await;
    let made = server.done("POST", DEFINITIONS, definition("widgets", "Widget")).await;
    assert_eq!(made["status"]["conditions"], Value::Null);
    let told = until(&server, "widgets.example.com", |found| condition(found, "Established").0 == "True").await;
    assert_eq!(condition(told.as_ref(), "NamesAccepted"), ("True", "NoConflicts"));
    assert_eq!(condition(told.as_ref(), "Established"), ("True", "InitialNamesAccepted"));
    let names = json!({"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"});
    assert_eq!(told.unwrap()["status"]["acceptedNames"], names);
}

#[tokio::test]
async fn a_name_that_is_taken_is_had_once_it_is_free() {
    let server = Server::tended().await;
    server.done("POST", DEFINITIONS, definition("widgets", "Widget")).await;
    server.done("POST", DEFINITIONS, definition("gadgets", "Widget")).await;
    let told = until(&server, "gadgets.example.com", |found| condition(found, "NamesAccepted").0 == "False").await;
    assert_eq!(condition(told.as_ref(), "NamesAccepted").1, "ListKindConflict");
    let gadgets = "/apis/example.com/v1/namespaces/default/gadgets";
    assert_eq!(server.send("GET", gadgets, Value::Null).await.0, 404);
    server.done("DELETE", &format!("{DEFINITIONS}/widgets.example.com"), Value::Null).await;
    until(&server, "gadgets.example.com", |found| condition(found, "Established").0 == "True").await;
    assert_eq!(server.send("GET", gadgets, Value::Null).await.0, 200);
}

#[tokio::test]
async fn instances_go_before_their_definition() {
    let server = Server::tended().await;
    server.done("POST", DEFINITIONS, definition("widgets", "Widget")).await;
    for index in 0..100 {
        server.done("POST", WIDGETS, widget(&format!("w{index}"))).await;
    }
    let mut held = widget("held");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    server.done("POST", WIDGETS, held).await;
    let path = format!("{DEFINITIONS}/widgets.example.com");
    let marked = server.done("DELETE", &path, Value::Null).await;
    assert_eq!(marked["metadata"]["finalizers"], json!([FINALIZER]));
    assert_eq!(condition(Some(&marked), "Terminating"), ("True", "InstanceDeletionPending"));
    let (code, message) = server.refused("POST", WIDGETS, widget("late")).await;
    let why = "create not allowed while custom resource definition is terminating";
    assert_eq!((code, message), (403, format!("widgets.example.com \"late\" is forbidden: {why}")));
    loop {
        let revision = server.store.snapshot().revision();
        let left = server.done("GET", WIDGETS, Value::Null).await;
        let left = left["items"].as_array().unwrap().clone();
        if left.len() == 1 && left[0]["metadata"]["deletionTimestamp"].is_string() {
            break;
        }
        server.store.reached(setpoint_api::Revision::new(revision.get() + 1)).await;
    }
    server.done("PATCH", &format!("{WIDGETS}/held"), json!({"metadata": {"finalizers": null}})).await;
    assert_eq!(until(&server, "widgets.example.com", |found| found.is_none()).await, None);
    assert_eq!(server.send("GET", WIDGETS, Value::Null).await.0, 404);
}

#[tokio::test]
async fn every_version_shows_the_same_objects() {
    let server = Server::tended().await;
    let mut two = definition("widgets", "Widget");
    two["spec"]["versions"] = json!([version("v1", true), version("v2beta1", false)]);
    server.done("POST", DEFINITIONS, two).await;
    let made = server.done("POST", WIDGETS, widget("w")).await;
    let beta = WIDGETS.replace("v1", "v2beta1");
    let other = server.done("GET", &format!("{beta}/w"), Value::Null).await;
    assert_eq!((&other["apiVersion"], &other["spec"]), (&json!("example.com/v2beta1"), &made["spec"]));
    let changed = server.done("PATCH", &format!("{beta}/w"), json!({"spec": {"colour": "blue"}})).await;
    let back = server.done("GET", &format!("{WIDGETS}/w"), Value::Null).await;
    assert_eq!(back["spec"]["colour"], "blue");
    assert_eq!(back["metadata"]["resourceVersion"], changed["metadata"]["resourceVersion"]);
    let list = server.done("GET", &beta, Value::Null).await;
    assert_eq!(list["items"][0]["apiVersion"], "example.com/v2beta1");
    let group = server.done("GET", "/apis/example.com", Value::Null).await;
    assert_eq!(group["preferredVersion"]["version"], "v1");
}

#[tokio::test]
async fn a_schema_that_changes_holds_for_objects_that_are_there() {
    let server = Server::tended().await;
    server.done("POST", DEFINITIONS, definition("widgets", "Widget")).await;
    server.done("POST", WIDGETS, widget("w")).await;
    let path = format!("{DEFINITIONS}/widgets.example.com");
    let mut next = server.done("GET", &path, Value::Null).await;
    let properties = &mut next["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
    properties["shape"] = json!({"type": "string", "default": "round"});
    properties.as_object_mut().unwrap().remove("colour");
    next["spec"]["versions"][0]["selectableFields"] = json!([{"jsonPath": ".spec.size"}]);
    next["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    server.done("PATCH", &path, json!({"spec": {"versions": next["spec"]["versions"]}})).await;
    let shown = json!({"size": 1, "shape": "round"});
    assert_eq!(server.done("GET", &format!("{WIDGETS}/w"), Value::Null).await["spec"], shown);
    let found = server.done("GET", &format!("{WIDGETS}?fieldSelector=spec.size%3D1"), Value::Null).await;
    assert_eq!(found["items"][0]["spec"], shown);
    let none = server.done("GET", &format!("{WIDGETS}?fieldSelector=spec.size%3D2"), Value::Null).await;
    assert_eq!(none["items"], json!([]));
}

#[tokio::test]
async fn a_watch_ends_with_its_kind_and_tells_all_before() {
    let server = Server::tended().await;
    server.done("POST", DEFINITIONS, definition("widgets", "Widget")).await;
    until(&server, "widgets.example.com", |found| condition(found, "Established").0 == "True").await;
    server.done("POST", WIDGETS, widget("w")).await;
    let mut request = http::Request::new(crate::body::full(""));
    *request.uri_mut() = format!("{WIDGETS}?watch=true").parse().unwrap();
    let (watched, ()) = tokio::join!(server.text(request), async {
        server.done("DELETE", &format!("{DEFINITIONS}/widgets.example.com"), Value::Null).await;
    });
    let kinds: Vec<String> = watched
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["type"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(kinds, ["ADDED", "DELETED"]);
}

#[tokio::test]
async fn the_size_has_a_place_of_its_own() {
    let server = Server::tended().await;
    server.done("POST", DEFINITIONS, definition("widgets", "Widget")).await;
    server.done("POST", WIDGETS, widget("w")).await;
    let path = format!("{WIDGETS}/w/scale");
    let (code, message) = server.refused("GET", &path, Value::Null).await;
    assert_eq!(
        (code, &*message),
        (500, r#"Internal error occurred: the spec replicas field ".spec.replicas" does not exist"#)
    );
    let scaled = server.done("PATCH", &path, json!({"spec": {"replicas": 3}})).await;
    assert_eq!((&scaled["kind"], &scaled["spec"]["replicas"]), (&json!("Scale"), &json!(3)));
    assert_eq!(server.done("GET", &format!("{WIDGETS}/w"), Value::Null).await["spec"]["replicas"], 3);
}

#[tokio::test]
async fn groups_are_found_in_discovery_documents_and_services() {
    let server = Server::tended().await;
    server.done("POST", DEFINITIONS, definition("widgets", "Widget")).await;
    until(&server, "widgets.example.com", |found| condition(found, "Established").0 == "True").await;
    let list = server.done("GET", "/apis/example.com/v1", Value::Null).await;
    assert_eq!(list["resources"][0]["storageVersionHash"].as_str().map(str::len), Some(12));
    let document = server.done("GET", "/openapi/v3/apis/example.com/v1", Value::Null).await;
    let schema = &document["components"]["schemas"]["com.example.v1.Widget"];
    assert_eq!(schema["properties"]["spec"]["properties"]["size"], json!({"type": "integer", "default": 1}));
    let kind = json!([{"group": "example.com", "kind": "Widget", "version": "v1"}]);
    assert_eq!(schema["x-kubernetes-group-version-kind"], kind);
    let services = "/apis/apiregistration.k8s.io/v1/apiservices/v1.example.com";
    loop {
        let revision = server.store.snapshot().revision();
        if server.send("GET", services, Value::Null).await.0 == 200 {
            break;
        }
        server.store.reached(setpoint_api::Revision::new(revision.get() + 1)).await;
    }
}

/// A rule that came later doesn't stop who changes something else, but they are told.
#[tokio::test]
async fn what_was_wrong_before_a_change_is_forgiven_and_told() {
    let server = Server::start().await;
    let definition = |rule: &str| {
        let rules = json!([{"rule": rule, "message": "it is too large"}]);
        let size =
            json!({"type": "object", "properties": {"width": {"type": "integer"}}, "x-kubernetes-validations": rules});
        let spec = json!({"type": "object", "properties": {"size": size, "color": {"type": "string"}}});
        let schema = json!({"type": "object", "properties": {"spec": spec}});
        let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
        let names = json!({"plural": "boxes", "singular": "box", "kind": "Box", "listKind": "BoxList"});
        json!({"metadata": {"name": "boxes.example.com"},
            "spec": {"group": "example.com", "scope": "Cluster", "names": names, "versions": [version]}})
    };
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    server.done("POST", path, definition("true")).await;
    let object = json!({"apiVersion": "example.com/v1", "kind": "Box", "metadata": {"name": "b"}, "spec": {"size": {"width": 9}}});
    server.done("POST", "/apis/example.com/v1/boxes", object).await;
    server.done("PATCH", &format!("{path}/boxes.example.com"), definition("self.width < 5")).await;
    let patch = async |spec: Value| {
        let request =
            http::Request::patch("/apis/example.com/v1/boxes/b").header("content-type", "application/merge-patch+json");
        let response = server.answer(request.body(crate::body::full(json!({"spec": spec}).to_string())).unwrap()).await;
        let warnings = response.headers().get_all("warning").iter().map(|text| text.to_str().unwrap().to_owned());
        (response.status().as_u16(), warnings.collect::<Vec<_>>())
    };
    let told = "299 - \"spec.size: Invalid value: it is too large\"";
    assert_eq!(patch(json!({"color": "red"})).await, (200, vec![told.to_owned()]));
    assert_eq!(patch(json!({"size": {"width": 8}})).await.0, 422, "what changes is judged");
    assert_eq!(patch(json!({"size": {"width": 4}})).await, (200, vec![]));
}
