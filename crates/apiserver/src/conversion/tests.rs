//! Conversion through the whole server, by real HTTPS servers that behave and misbehave.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::Request;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use setpoint_schema::Edit;

use crate::body::full;
use crate::objects;
use crate::registry::Registry;
use crate::testing::Server;
use crate::webhook_client::backend::{Backend, Reply};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const V1: &str = "/apis/example.com/v1/namespaces/default/points";
const V2: &str = "/apis/example.com/v2/namespaces/default/points";

/// Points are stored as v1, where host and port are two fields. In v2 they are one.
fn definition(client: Value) -> Value {
    let text = json!({"type": "string"});
    let spec = |properties: Value| json!({"type": "object", "properties": properties});
    let status = json!({"type": "object", "properties": {"ready": {"type": "boolean"}}});
    let version = |name: &str, storage: bool, properties: Value| {
        let scale = json!({"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"});
        let schema = json!({"type": "object", "properties": {"spec": spec(properties), "status": status}});
        json!({
            "name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": schema},
            "subresources": {"status": {}, "scale": scale},
        })
    };
    let size = json!({"type": "integer"});
    let color = json!({"type": "string", "default": "red"});
    json!({
        "metadata": {"name": "points.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "points", "singular": "point", "kind": "Point", "listKind": "PointList"},
            "versions": [
                version("v1", true, json!({"host": text, "port": text, "size": size, "color": color})),
                version("v2", false, json!({"hostPort": text, "size": size, "shade": text})),
            ],
            "conversion": {
                "strategy": "Webhook",
                "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": client},
            },
        },
    })
}

fn point(version: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": format!("example.com/{version}"), "kind": "Point", "metadata": {"name": name}, "spec": spec})
}

/// An object in the wanted version, as a good webhook converts it.
fn turned(object: &Value, wanted: &str) -> Value {
    let mut object = object.clone();
    object.set("apiVersion", wanted);
    let mut spec = object["spec"].clone();
    if wanted.ends_with("v2") {
        let (host, port) = (spec.remove("host"), spec.remove("port"));
        if let (Some(host), Some(port)) = (host, port) {
            spec.set("hostPort", format!("{}:{}", host.as_str().unwrap(), port.as_str().unwrap()));
        }
        if let Some(color) = spec.remove("color") {
            spec.set("shade", color);
        }
    } else {
        if let Some(both) = spec.remove("hostPort") {
            let (host, port) = both.as_str().unwrap().split_once(':').unwrap();
            spec.set("host", host);
            spec.set("port", port);
        }
        if let Some(shade) = spec.remove("shade") {
            spec.set("color", shade);
        }
    }
    spec.set("unknown", "is pruned");
    object.set("spec", spec);
    object
}

/// The answer to a review, with each object as it is made.
fn answered(review: &Value, make: impl Fn(Value) -> Value) -> Value {
    let wanted = review["request"].text("desiredAPIVersion");
    let objects = review["request"]["objects"].as_array().unwrap().iter();
    let converted: Vec<Value> = objects.map(|object| make(turned(object, wanted))).collect();
    let response =
        json!({"uid": review["request"]["uid"], "result": {"status": "Success"}, "convertedObjects": converted});
    json!({"apiVersion": review["apiVersion"], "kind": "ConversionReview", "response": response})
}

fn good(review: &Value) -> Reply {
    Reply::Raw(200, answered(review, |object| object).to_string())
}

fn at_url(backend: &Backend) -> Value {
    json!({"url": format!("https://{}/convert", backend.address), "caBundle": backend.ca_bundle})
}

async fn define(server: &Server, definition: Value) {
    server.done("POST", DEFINITIONS, definition).await;
}

/// A server with points, and their webhook.
async fn points() -> (Server, Backend) {
    let (server, backend) = (Server::start().await, Backend::start(good).await);
    define(&server, definition(at_url(&backend))).await;
    (server, backend)
}

/// How many reviews the webhook had, and forgets them.
fn reviews(backend: &Backend, before: &mut usize) -> usize {
    let all = backend.asked().len();
    let new = all - *before;
    *before = all;
    new
}

fn stored(server: &Server, name: &str) -> Value {
    let served = server.api.inner.kinds.current(&server.store);
    let served = served.find("example.com", "v1", "points").unwrap();
    let object = objects::find(&server.store.snapshot(), served, Some("default"), name).unwrap();
    objects::value(&object)
}

#[tokio::test]
async fn what_is_written_in_one_version_is_stored_and_read_in_another() {
    let (server, backend) = points().await;
    let made = server.done("POST", V2, point("v2", "a", json!({"hostPort": "h:1", "size": 3}))).await;
    assert_eq!(made["apiVersion"], "example.com/v2");
    // Defaults are those of the stored version.
    assert_eq!(made["spec"], json!({"hostPort": "h:1", "size": 3, "shade": "red"}));
    assert_eq!(stored(&server, "a")["spec"], json!({"host": "h", "port": "1", "size": 3, "color": "red"}));
    assert_eq!(stored(&server, "a")["apiVersion"], "example.com/v1");
    let first = server.done("GET", &format!("{V1}/a"), Value::Null).await;
    assert_eq!(first["spec"], json!({"host": "h", "port": "1", "size": 3, "color": "red"}));
    assert_eq!(first["metadata"], made["metadata"]);

    let (path, review) = backend.asked().remove(0);
    assert_eq!((&*path, review.text("apiVersion")), ("/convert", "apiextensions.k8s.io/v1"));
    assert_eq!(review["request"]["desiredAPIVersion"], "example.com/v1");
    let sent = &review["request"]["objects"][0];
    assert_eq!((sent.text("apiVersion"), &sent["spec"]["hostPort"]), ("example.com/v2", &json!("h:1")));
    assert!(!sent["metadata"].has("resourceVersion") && sent["metadata"].has("uid"));
}

#[tokio::test]
async fn every_verb_takes_and_gives_the_version_of_its_path() {
    let (server, backend) = points().await;
    server.done("POST", V1, point("v1", "a", json!({"host": "h", "port": "1", "size": 1}))).await;
    let mut before = 0;
    assert_eq!(reviews(&backend, &mut before), 0, "nothing is asked of what is written as it is stored");

    let mut read = server.done("GET", &format!("{V2}/a"), Value::Null).await;
    assert_eq!(read["spec"], json!({"hostPort": "h:1", "size": 1, "shade": "red"}));
    read["spec"]["hostPort"] = json!("i:2");
    let put = server.done("PUT", &format!("{V2}/a"), read).await;
    assert_eq!(put["spec"], json!({"hostPort": "i:2", "size": 1, "shade": "red"}));

    let patched = server.done("PATCH", &format!("{V2}/a"), json!({"spec": {"hostPort": "j:3"}})).await;
    assert_eq!(patched["spec"]["hostPort"], "j:3");
    assert_eq!(stored(&server, "a")["spec"], json!({"host": "j", "port": "3", "size": 1, "color": "red"}));

    let path = format!("{V2}/a?fieldManager=me&force=true");
    let media = "application/apply-patch+yaml";
    let (code, applied) = server.send_as(media, "PATCH", &path, point("v2", "a", json!({"hostPort": "k:4"}))).await;
    assert_eq!((code, &applied["spec"]["hostPort"]), (200, &json!("k:4")), "{applied}");

    let status = json!({"status": {"ready": true}});
    let told = server.done("PATCH", &format!("{V2}/a/status"), status).await;
    assert_eq!((&told["status"], &told["spec"]["hostPort"]), (&json!({"ready": true}), &json!("k:4")));
    assert_eq!(server.done("GET", &format!("{V2}/a/status"), Value::Null).await, told);

    let scale = server.done("PATCH", &format!("{V2}/a/scale"), json!({"spec": {"replicas": 7}})).await;
    assert_eq!(scale["spec"]["replicas"], 7);
    assert_eq!(stored(&server, "a")["spec"]["size"], 7);

    let dry = server.done("PATCH", &format!("{V2}/a?dryRun=All"), json!({"spec": {"hostPort": "dry:1"}})).await;
    assert_eq!(dry["spec"]["hostPort"], "dry:1");
    assert_eq!(stored(&server, "a")["spec"]["host"], "k");

    let held = json!({"metadata": {"finalizers": ["example.com/f"]}});
    server.done("PATCH", &format!("{V2}/a"), held).await;
    let going = server.done("DELETE", &format!("{V2}/a"), Value::Null).await;
    assert_eq!((going["metadata"].has("deletionTimestamp"), &going["spec"]["hostPort"]), (true, &json!("k:4")));
    server.done("PATCH", &format!("{V2}/a"), json!({"metadata": {"finalizers": null}})).await;
    assert_eq!(server.refused("GET", &format!("{V2}/a"), Value::Null).await.0, 404);
}

#[tokio::test]
async fn a_list_is_converted_at_once_and_what_was_converted_is_remembered() {
    let (server, backend) = points().await;
    for name in ["a", "b", "c"] {
        server.done("POST", V1, point("v1", name, json!({"host": name, "port": "1"}))).await;
    }
    let mut before = 0;
    let list = server.done("GET", V2, Value::Null).await;
    let hosts: Vec<&str> = list["items"].as_array().unwrap().iter().map(|item| item["spec"].text("hostPort")).collect();
    assert_eq!((list.text("kind"), hosts), ("PointList", vec!["a:1", "b:1", "c:1"]));
    assert_eq!(reviews(&backend, &mut before), 1);
    assert_eq!(server.done("GET", V2, Value::Null).await["items"], list["items"]);
    assert_eq!(reviews(&backend, &mut before), 0);
    server.done("PATCH", &format!("{V1}/b"), json!({"spec": {"host": "x"}})).await;
    assert_eq!(server.done("GET", V2, Value::Null).await["items"][1]["spec"]["hostPort"], "x:1");
    let sent = backend.asked().pop().unwrap().1;
    assert_eq!(sent["request"]["objects"].as_array().unwrap().len(), 1, "only what has changed");
    let partial = Request::get(V2).header("accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1");
    let (code, partial) = server.ask(partial.body(full("")).unwrap()).await;
    assert_eq!((code, partial["items"].as_array().unwrap().len()), (200, 3));
}

#[tokio::test]
async fn a_watch_shows_the_version_of_its_path_and_asks_once_for_all_watchers() {
    let (server, backend) = points().await;
    server.done("POST", V1, point("v1", "a", json!({"host": "a", "port": "1"}))).await;
    let mut watches = Vec::new();
    for _ in 0..3 {
        let mut watch = Watch::of(&server, V2).await;
        let event = watch.next().await;
        assert_eq!((event.text("type"), &event["object"]["spec"]["hostPort"]), ("ADDED", &json!("a:1")));
        watches.push(watch);
    }
    assert_eq!(backend.asked().len(), 1);
    server.done("PATCH", &format!("{V1}/a"), json!({"spec": {"host": "b"}})).await;
    let gone = server.done("DELETE", &format!("{V1}/a"), Value::Null).await;
    assert_eq!(gone["status"], "Success");
    for watch in &mut watches {
        let event = watch.next().await;
        assert_eq!((event.text("type"), &event["object"]["spec"]["hostPort"]), ("MODIFIED", &json!("b:1")));
        let event = watch.next().await;
        assert_eq!((event.text("type"), event["object"].text("apiVersion")), ("DELETED", "example.com/v2"));
    }
    assert!(backend.asked().len() <= 3, "each change is converted once");
}

/// A watch and what was read of it.
struct Watch {
    body: crate::body::Body,
    read: String,
}

impl Watch {
    async fn of(server: &Server, path: &str) -> Watch {
        let request = Request::get(format!("{path}?watch=1")).body(full("")).unwrap();
        Watch { body: server.answer(request).await.into_body(), read: String::new() }
    }

    async fn next(&mut self) -> Value {
        loop {
            if let Some((line, rest)) = self.read.split_once('\n') {
                let event = serde_json::from_str(line).unwrap();
                self.read = rest.to_owned();
                return event;
            }
            let piece = self.body.frame().await.expect("the watch goes on").unwrap().into_data().unwrap();
            self.read.push_str(std::str::from_utf8(&piece).unwrap());
        }
    }
}

/// A failure of a webhook: what it answers to a review, and what is said of it.
type Failure = (Box<dyn Fn(&Value) -> Reply + Send + Sync>, &'static str);

fn changed(change: impl Fn(&mut Value) + Send + Sync + 'static) -> Box<dyn Fn(&Value) -> Reply + Send + Sync> {
    Box::new(move |review| {
        let make = |mut object: Value| {
            change(&mut object);
            object
        };
        Reply::Raw(200, answered(review, make).to_string())
    })
}

fn said(change: impl Fn(&mut Value) + Send + Sync + 'static) -> Box<dyn Fn(&Value) -> Reply + Send + Sync> {
    Box::new(move |review| {
        let mut answer = answered(review, |object| object);
        change(&mut answer);
        Reply::Raw(200, answer.to_string())
    })
}

fn failures() -> Vec<Failure> {
    let failed = |result: Value| said(move |answer| answer["response"]["result"] = result.clone());
    vec![
        (said(|a| a["response"]["uid"] = json!("x")), "failed: expected response.uid=\"UID\", got \"x\""),
        (
            said(|a| a["kind"] = json!("AdmissionReview")),
            "failed: expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got apiextensions.k8s.io/v1, Kind=AdmissionReview",
        ),
        (said(|a| a["response"] = Value::Null), "failed: no response provided"),
        (failed(json!({"status": "Failure", "message": "not today"})), "failed: not today"),
        (failed(json!({"status": "Failure"})), "failed: response.result.status was 'Failure', not 'Success'"),
        (failed(json!({})), "failed: response.result.status was '', not 'Success'"),
        (said(|a| a["response"]["convertedObjects"] = json!([])), "returned 0 objects, expected 1"),
        (
            changed(|o| o.set("apiVersion", "example.com/v1")),
            "returned invalid object at index 0: invalid groupVersion (expected example.com/v2, received example.com/v1)",
        ),
        (
            changed(|o| o.set("kind", "Line")),
            "returned invalid object at index 0: invalid kind (expected Point, received Line)",
        ),
        (changed(|o| o["metadata"].set("name", "b")), "returned invalid object: must have the same name: a != b"),
        (
            changed(|o| o["metadata"].set("namespace", "other")),
            "returned invalid object: must have the same namespace: default != other",
        ),
        (changed(|o| o["metadata"].set("uid", "u")), "returned invalid object: must have the same UID: UID != u"),
        (
            changed(|o| o["metadata"].set("labels", json!({"a": 1}))),
            "returned invalid metadata: metadata.labels[a] must be a string, but is int64 in converted object",
        ),
        (
            changed(|o| o["metadata"].set("labels", json!("a"))),
            "returned invalid metadata: invalid metadata.labels of type string in converted object",
        ),
        (
            changed(|o| o["metadata"].set("labels", json!({"a": "-"}))),
            "returned invalid metadata: metadata.labels: Invalid value: \"-\": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
        ),
        (
            changed(|o| o["metadata"].set("annotations", json!({"?": "-"}))),
            "returned invalid metadata: metadata.annotation: Invalid value: \"?\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
        ),
        (
            Box::new(|_| Reply::Raw(503, "down".to_owned())),
            "failed: the server is currently unable to handle the request",
        ),
        (Box::new(|_| Reply::Closed), "failed: Post \"URL\": EOF"),
    ]
}

/// What a webhook says wrong is told in the words of Kubernetes, for each way of asking, and the object stays as it was.
#[tokio::test]
async fn what_a_webhook_does_wrong_is_told_and_changes_nothing() {
    for (reply, expected) in failures() {
        let (server, backend) = (Server::start().await, Backend::start(reply).await);
        define(&server, definition(at_url(&backend))).await;
        let made = server.done("POST", V1, point("v1", "a", json!({"host": "h", "port": "1"}))).await;
        let before = stored(&server, "a");
        for (method, path, body) in [
            ("GET", format!("{V2}/a"), Value::Null),
            ("GET", V2.to_owned(), Value::Null),
            ("PATCH", format!("{V2}/a"), json!({"spec": {"size": 2}})),
            ("DELETE", format!("{V2}/a"), Value::Null),
            ("GET", format!("{V2}/a/status"), Value::Null),
            ("GET", format!("{V2}/a/scale"), Value::Null),
        ] {
            let (code, answer) = server.send(method, &path, body).await;
            let why = answer["message"].as_str().unwrap_or_default().to_owned();
            let review = backend.asked().pop().expect("it was asked").1;
            let expected = expected
                .replace("got", "GOT")
                .replace("uid=\"UID\"", &format!("uid=\"{}\"", review["request"].text("uid")))
                .replace("UID != u", &format!("{} != u", made["metadata"].text("uid")))
                .replace("URL", &format!("https://{}/convert", backend.address))
                .replace("GOT", "got");
            let expected = format!("conversion webhook for example.com/v1, Kind=Point {expected}");
            assert_eq!((code, &*why), (500, &*expected), "{method} {path}");
            assert_eq!(answer.get("reason"), None);
        }
        let mut watch = Watch::of(&server, V2).await;
        let event = watch.next().await;
        assert_eq!((event.text("type"), event["object"].number("code")), ("ERROR", Some(500)), "{expected}");
        assert_eq!(stored(&server, "a"), before);
        assert_eq!(server.done("GET", &format!("{V1}/a"), Value::Null).await["spec"]["host"], "h");
    }
}

#[tokio::test]
async fn an_object_that_can_not_be_brought_into_the_stored_version_is_not_stored() {
    let broken = changed(|object| object["metadata"].set("name", "other"));
    let (server, backend) = (Server::start().await, Backend::start(broken).await);
    define(&server, definition(at_url(&backend))).await;
    let (code, why) = server.refused("POST", V2, point("v2", "a", json!({"hostPort": "h:1"}))).await;
    let expected = "conversion webhook for example.com/v2, Kind=Point returned invalid object: must have the same name: a != other";
    assert_eq!((code, &*why), (500, expected));
    assert_eq!(server.refused("GET", &format!("{V1}/a"), Value::Null).await.0, 404);
}

/// Labels and annotations are the webhook's to change; all else about an object stays the server's.
#[tokio::test]
async fn of_metadata_labels_and_annotations_may_differ_and_nothing_else() {
    let changing = changed(|object| {
        let metadata = object.ensure("metadata");
        metadata.set("labels", json!({"by": "webhook"}));
        metadata.set("annotations", Value::Null);
        metadata.set("finalizers", json!(["example.com/mine"]));
        metadata.set("ownerReferences", json!([{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}]));
        metadata.set("creationTimestamp", "2001-01-01T00:00:00Z");
        metadata.set("generation", 77);
        metadata.remove("managedFields");
    });
    let (server, backend) = (Server::start().await, Backend::start(changing).await);
    define(&server, definition(at_url(&backend))).await;
    let mut given = point("v1", "a", json!({"host": "h", "port": "1"}));
    given["metadata"].set("labels", json!({"a": "b"}));
    given["metadata"].set("annotations", json!({"c": "d"}));
    let mut expected = server.done("POST", V1, given).await["metadata"].clone();
    expected.set("labels", json!({"by": "webhook"}));
    expected.remove("annotations");
    assert_eq!(server.done("GET", &format!("{V2}/a"), Value::Null).await["metadata"], expected);
}

/// Each code that sends on to elsewhere is an error, and nobody goes there.
#[tokio::test]
async fn a_webhook_can_not_send_the_server_elsewhere() {
    for code in [301, 302, 303, 307, 308] {
        let elsewhere = Backend::start(good).await;
        let to = format!("https://{}/convert", elsewhere.address);
        let (server, backend) =
            (Server::start().await, Backend::start(move |_| Reply::Redirect(code, to.clone())).await);
        define(&server, definition(at_url(&backend))).await;
        server.done("POST", V1, point("v1", "a", json!({"host": "h", "port": "1"}))).await;
        let (refused, why) = server.refused("GET", &format!("{V2}/a"), Value::Null).await;
        assert_eq!(refused, 500, "{code}: {why}");
        assert!(why.starts_with("conversion webhook for example.com/v1, Kind=Point failed: "), "{why}");
        assert_eq!((backend.asked().len(), elsewhere.asked().len()), (1, 0), "{code}");
    }
}

#[tokio::test]
async fn a_certificate_that_is_not_vouched_for_is_not_trusted() {
    let (backend, other) = (Backend::start(good).await, Backend::start(good).await);
    let client = json!({"url": format!("https://{}/convert", backend.address), "caBundle": other.ca_bundle});
    let server = Server::start().await;
    define(&server, definition(client)).await;
    server.done("POST", V1, point("v1", "a", json!({"host": "h", "port": "1"}))).await;
    let (code, why) = server.refused("GET", &format!("{V2}/a"), Value::Null).await;
    let expected = format!(
        "conversion webhook for example.com/v1, Kind=Point failed: Post \"https://{}/convert\": tls: failed to verify certificate: x509: certificate signed by unknown authority",
        backend.address
    );
    assert_eq!((code, why), (500, expected));
    assert_eq!(backend.asked().len(), 0);
}

#[tokio::test]
async fn a_webhook_behind_a_service_is_asked_at_its_endpoints() {
    let (server, backend) = (Server::start().await, Backend::start(good).await);
    let service = json!({"metadata": {"name": "hook"}, "spec": {"ports": [{"port": 8443}], "selector": {"app": "h"}}});
    server.done("POST", "/api/v1/namespaces/default/services", service).await;
    let service = json!({"namespace": "default", "name": "hook", "port": 8443, "path": "/crd"});
    define(&server, definition(json!({"service": service, "caBundle": backend.ca_bundle}))).await;
    server.done("POST", V1, point("v1", "a", json!({"host": "h", "port": "1"}))).await;
    let (_, why) = server.refused("GET", &format!("{V2}/a"), Value::Null).await;
    let expected = "conversion webhook for example.com/v1, Kind=Point failed: Post \"https://hook.default.svc:8443/crd\": no endpoints available for service \"hook\"";
    assert_eq!(why, expected);
    let slice = json!({
        "metadata": {"name": "hook-1", "labels": {"kubernetes.io/service-name": "hook"}}, "addressType": "IPv4",
        "ports": [{"name": "", "port": backend.address.port()}], "endpoints": [{"addresses": ["10.9.8.7"]}],
    });
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    let mut slice = server.done("POST", slices, slice).await;
    // Nobody may write loopback there; a test reaches nothing else.
    slice["endpoints"][0]["addresses"][0] = json!("127.0.0.1");
    let registry = Registry::builtin();
    let served = registry.find("discovery.k8s.io", "v1", "endpointslices").unwrap();
    let key = objects::key(served, Some("default"), "hook-1");
    let change = objects::put_change(served, key, setpoint_store::Expectation::Any, &slice);
    server.store.commit(setpoint_store::Transaction::of(change)).await.unwrap();
    assert_eq!(server.done("GET", &format!("{V2}/a"), Value::Null).await["spec"]["hostPort"], "h:1");
    assert_eq!(backend.asked()[0].0, "/crd");
}

/// One that takes its time is given up, and one that says too much.
#[tokio::test(start_paused = true)]
async fn a_webhook_has_only_so_much_time() {
    let backend = Backend::start(|_| Reply::Never).await;
    let server = Server::start().await;
    define(&server, definition(at_url(&backend))).await;
    server.done("POST", V1, point("v1", "a", json!({"host": "h", "port": "1"}))).await;
    let begun = tokio::time::Instant::now();
    let (code, why) = server.refused("GET", &format!("{V2}/a"), Value::Null).await;
    assert_eq!(code, 500);
    assert!(why.ends_with(": context deadline exceeded"), "{why}");
    assert!(begun.elapsed() >= super::TIMEOUT);
}

#[tokio::test]
async fn a_webhook_has_only_so_much_to_say() {
    let backend = Backend::start(|_| Reply::Raw(200, " ".repeat(9 * 1024 * 1024))).await;
    let server = Server::start().await;
    define(&server, definition(at_url(&backend))).await;
    server.done("POST", V1, point("v1", "a", json!({"host": "h", "port": "1"}))).await;
    let (code, why) = server.refused("GET", &format!("{V2}/a"), Value::Null).await;
    assert_eq!(code, 500);
    assert!(why.contains("length limit exceeded"), "{why}");
}

/// Whoever has nothing to do with a broken webhook doesn't notice it: other kinds, the definition, and a new server on the same store.
#[tokio::test]
async fn a_broken_webhook_is_a_trouble_of_its_own_kind_only() {
    let works = Arc::new(AtomicBool::new(true));
    let seen = Arc::clone(&works);
    let backend = Backend::start(move |review| match seen.load(Ordering::Relaxed) {
        true => good(review),
        false => Reply::Closed,
    });
    let (mut server, backend) = (Server::start().await, backend.await);
    define(&server, definition(at_url(&backend))).await;
    server.done("POST", V2, point("v2", "a", json!({"hostPort": "h:1"}))).await;
    works.store(false, Ordering::Relaxed);
    assert_eq!(server.refused("GET", &format!("{V2}/a"), Value::Null).await.0, 500);
    for path in ["/api/v1/namespaces/default/configmaps", DEFINITIONS, "/apis/example.com/v1", "/apis", "/readyz", V1] {
        server.send("GET", path, Value::Null).await;
        assert_eq!(server.send("GET", path, Value::Null).await.0, 200, "{path}");
    }
    // A definition can still be deleted, and its instances go with it, whatever the webhook says: nobody asks for another version.
    server.tend();
    server.done("DELETE", &format!("{DEFINITIONS}/points.example.com"), Value::Null).await;
    let mut tries = 0;
    while server.send("GET", &format!("{DEFINITIONS}/points.example.com"), Value::Null).await.0 != 404 {
        tries += 1;
        assert!(tries < 10_000, "it is still there: {}", server.done("GET", DEFINITIONS, Value::Null).await);
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn what_was_stored_in_another_version_is_read_by_the_version_that_it_says() {
    let (server, backend) = points().await;
    server.done("POST", V1, point("v1", "old", json!({"host": "h", "port": "1"}))).await;
    let path = format!("{DEFINITIONS}/points.example.com");
    let mut moved = server.done("GET", &path, Value::Null).await;
    moved["spec"]["versions"][0]["storage"] = json!(false);
    moved["spec"]["versions"][1]["storage"] = json!(true);
    server.done("PUT", &path, moved).await;
    let mut before = backend.asked().len();
    server.done("POST", V2, point("v2", "new", json!({"hostPort": "i:2"}))).await;
    assert_eq!(reviews(&backend, &mut before), 0);
    let list = server.done("GET", V2, Value::Null).await;
    let hosts: Vec<&str> = list["items"].as_array().unwrap().iter().map(|item| item["spec"].text("hostPort")).collect();
    assert_eq!(hosts, ["i:2", "h:1"]);
    let list = server.done("GET", V1, Value::Null).await;
    let hosts: Vec<&str> = list["items"].as_array().unwrap().iter().map(|item| item["spec"].text("host")).collect();
    assert_eq!(hosts, ["i", "h"]);
    // A write brings it to the version of today.
    server.done("PATCH", &format!("{V1}/old"), json!({"spec": {"size": 1}})).await;
    assert_eq!(stored(&server, "old")["apiVersion"], "example.com/v2");
    assert_eq!(stored(&server, "old")["spec"]["hostPort"], "h:1");
}

/// Who owns a field in one version is known in the other, where it has another name.
#[tokio::test]
async fn fields_are_owned_in_the_version_in_which_they_were_set() {
    let (server, _backend) = points().await;
    let media = "application/apply-patch+yaml";
    let apply = async |path: &str, version: &str, who: &str, spec: Value| {
        let path = format!("{path}/a?fieldManager={who}");
        server.send_as(media, "PATCH", &path, point(version, "a", spec)).await
    };
    assert_eq!(apply(V2, "v2", "two", json!({"hostPort": "h:1"})).await.0, 201);
    assert_eq!(apply(V1, "v1", "one", json!({"size": 1})).await.0, 200);
    // In v1 the field of the first manager is host and port.
    let (code, conflict) = apply(V1, "v1", "one", json!({"size": 1, "host": "x", "port": "1"})).await;
    assert_eq!(code, 409, "{conflict}");
    assert!(conflict["message"].as_str().unwrap().contains("\"two\""), "{conflict}");
    // What the first one mentions no more goes, and with it what it is in the other version.
    let (code, left) = apply(V2, "v2", "two", json!({"shade": "blue"})).await;
    assert_eq!((code, &left["spec"]), (200, &json!({"size": 1, "shade": "blue"})), "{left}");
    // A plain write takes over what it changes, in its own words.
    let put = server.done("PATCH", &format!("{V1}/a?fieldManager=other"), json!({"spec": {"color": "green"}})).await;
    let owners: Vec<(&str, &str)> = put["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|entry| {
            entry["fieldsV1"].to_string().contains("f:color") || entry["fieldsV1"].to_string().contains("f:shade")
        })
        .map(|entry| (entry.text("manager"), entry.text("apiVersion")))
        .collect();
    assert_eq!(owners, [("other", "example.com/v1")]);
}

/// Policies and webhooks of admission that ask for one version see it, whichever a client writes.
#[tokio::test]
async fn admission_sees_the_version_that_it_asks_for() {
    let (server, _backend) = points().await;
    let group = "/apis/admissionregistration.k8s.io/v1";
    let rules =
        json!([{"apiGroups": ["example.com"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["points"]}]);
    let validations = json!([{"expression": "object.spec.host != 'bad'", "message": "no such host"}]);
    let policy = json!({"metadata": {"name": "p"}, "spec": {"matchConstraints": {"resourceRules": rules}, "validations": validations}});
    server.done("POST", &format!("{group}/validatingadmissionpolicies"), policy).await;
    let binding = json!({"metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": ["Deny"]}});
    server.done("POST", &format!("{group}/validatingadmissionpolicybindings"), binding).await;
    let allows = Backend::start(|_| Reply::Review(json!({"allowed": true}))).await;
    let hook = json!({
        "name": "h.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"], "rules": rules,
        "clientConfig": {"url": format!("https://{}/review", allows.address), "caBundle": allows.ca_bundle},
    });
    let hooks = json!({"metadata": {"name": "h"}, "webhooks": [hook]});
    server.done("POST", &format!("{group}/validatingwebhookconfigurations"), hooks).await;
    let (code, why) = server.refused("POST", V2, point("v2", "a", json!({"hostPort": "bad:1"}))).await;
    assert!(code == 422 && why.contains("no such host"), "{code} {why}");
    server.done("POST", V2, point("v2", "a", json!({"hostPort": "good:1"}))).await;
    let request = &allows.asked()[0].1["request"];
    assert_eq!(request["object"]["spec"]["host"], "good");
    assert_eq!((&request["kind"]["version"], &request["requestKind"]["version"]), (&json!("v1"), &json!("v2")));
}
