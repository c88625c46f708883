//! Answers that have to be as Kubernetes gives them, across verbs.

use http::Request;
use serde_json::{Value, json};

use crate::body::full;
use crate::testing::Server;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const APPLY: &str = "application/apply-patch+yaml";

async fn ask(server: &Server, method: &str, path: &str, media: &str, accept: &str, body: Value) -> (u16, Value) {
    let request = Request::builder().method(method).uri(path).header("content-type", media).header("accept", accept);
    server.ask(request.body(full(body.to_string())).unwrap()).await
}

async fn warnings(server: &Server, method: &str, path: &str, media: &str, body: Value) -> (u16, Vec<String>) {
    let request = Request::builder().method(method).uri(path).header("content-type", media);
    let answer = server.answer(request.body(full(body.to_string())).unwrap()).await;
    let told = answer.headers().get_all("warning").iter().map(|text| text.to_str().unwrap().to_owned()).collect();
    (answer.status().as_u16(), told)
}

#[tokio::test]
async fn a_patch_that_leaves_no_version_finds_no_name() {
    let server = Server::start().await;
    server.done("POST", MAPS, json!({"metadata": {"name": "c"}, "data": {"a": "1"}})).await;
    let map = format!("{MAPS}/c");
    let remove = json!([{"op": "remove", "path": "/apiVersion"}]);
    let (code, told) = warnings(&server, "PATCH", &map, "application/json-patch+json", remove.clone()).await;
    assert_eq!(
        (code, told),
        (400, vec![r#"299 - "unknown field \"data\"""#.to_owned(), r#"299 - "unknown field \"metadata\"""#.to_owned()])
    );
    let (_, answer) = server.send_as("application/json-patch+json", "PATCH", &map, remove.clone()).await;
    assert_eq!(answer["message"], "the name of the object (c based on URL) was undeterminable: name must be provided");
    let strict = format!("{map}?fieldValidation=Strict");
    let (code, answer) = server.send_as("application/json-patch+json", "PATCH", &strict, remove).await;
    let message = answer["message"].as_str().unwrap();
    assert_eq!(code, 422);
    assert!(
        message.ends_with("strict decoding error: unknown field \"data\", unknown field \"metadata\""),
        "{message}"
    );
    let (code, message) = server.refused("PATCH", &map, json!({"apiVersion": "a/b/c"})).await;
    assert_eq!(code, 422);
    assert!(message.ends_with("unexpected GroupVersion string: a/b/c"), "{message}");
}

#[tokio::test]
async fn options_of_a_patch_are_judged_together() {
    let server = Server::start().await;
    server.done("POST", MAPS, json!({"metadata": {"name": "c"}})).await;
    let path = format!("{MAPS}/c?force=true&dryRun=x");
    let (code, message) = server.refused("PATCH", &path, json!({})).await;
    assert_eq!(code, 422);
    let expected = "[force: Forbidden: may not be specified for non-apply patch, dryRun: Unsupported value: [\"x\"]: supported values: \"All\"]";
    assert!(message.ends_with(expected), "{message}");
}

#[tokio::test]
async fn what_a_body_is_written_in_is_judged_before_options() {
    let server = Server::start().await;
    let (code, _) = server.send_as("text/plain", "POST", &format!("{MAPS}?dryRun=x"), json!({})).await;
    assert_eq!(code, 415);
    let reviews = "/apis/authentication.k8s.io/v1/selfsubjectreviews?dryRun=x";
    let (code, _) = ask(&server, "POST", reviews, "application/json", TABLE, json!({})).await;
    assert_eq!(code, 406);
}

#[tokio::test]
async fn the_table_of_a_dry_run_has_no_version() {
    let server = Server::start().await;
    let map = json!({"metadata": {"name": "c"}});
    let (code, table) = ask(&server, "POST", &format!("{MAPS}?dryRun=All"), "application/json", TABLE, map).await;
    assert_eq!((code, &table["kind"], &table["metadata"]), (201, &json!("Table"), &json!({})));
}

#[tokio::test]
async fn what_is_no_list_is_told_by_its_type_in_go() {
    let server = Server::start().await;
    let list = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    let event = json!({"metadata": {"name": "e"}, "eventTime": "2024-01-01T00:00:00.000000Z", "reportingController": "a.b/c",
        "reportingInstance": "i", "action": "Do", "reason": "Why", "type": "Normal",
        "regarding": {"kind": "Pod", "name": "p", "namespace": "default"}});
    let path = "/apis/events.k8s.io/v1/namespaces/default/events";
    let (code, answer) = ask(&server, "POST", path, "application/json", list, event).await;
    assert_eq!(code, 406);
    let expected = "you requested PartialObjectMetadataList, but the requested object is not a list (*core.Event)";
    assert_eq!(answer["message"], expected);
}

#[tokio::test]
async fn discovery_has_no_tables() {
    let server = Server::start().await;
    for path in ["/apis", "/apis/apps", "/apis/apps/v1", "/api/v1"] {
        assert_eq!(ask(&server, "GET", path, "application/json", TABLE, Value::Null).await.0, 406, "{path}");
        let either = format!("{TABLE},application/json");
        assert_eq!(ask(&server, "GET", path, "application/json", &either, Value::Null).await.0, 200, "{path}");
    }
}

#[tokio::test]
async fn what_is_applied_is_an_object() {
    let server = Server::start().await;
    let path = format!("{MAPS}/c?fieldManager=m");
    for (body, found) in [(json!([1]), "array"), (json!("x"), "string"), (json!(5), "number"), (json!(true), "bool")] {
        let (code, answer) = server.send_as(APPLY, "PATCH", &path, body).await;
        let expected = format!(
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"
        );
        assert_eq!((code, answer["message"].as_str().unwrap()), (400, &*expected));
    }
}

#[tokio::test]
async fn what_is_applied_empty_is_quoted_so() {
    let server = Server::start().await;
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let path = "/apis/apps/v1/namespaces/default/deployments/d?fieldManager=m";
    let (code, answer) = server.send_as(APPLY, "PATCH", path, deployment).await;
    let expected = "Deployment.apps \"d\" is invalid: spec.template.metadata.labels: Invalid value: {}: `selector` does not match template `labels`";
    assert_eq!((code, answer["message"].as_str().unwrap()), (422, expected));
}

#[tokio::test]
async fn an_empty_list_of_managers_in_a_patch_forgets_them() {
    let server = Server::start().await;
    let made = server.done("POST", MAPS, json!({"metadata": {"name": "c"}, "data": {"a": "1"}})).await;
    assert!(made["metadata"]["managedFields"].is_array());
    let map = format!("{MAPS}/c");
    let patched = server.done("PATCH", &map, json!({"metadata": {"managedFields": []}})).await;
    assert!(patched["metadata"].get("managedFields").is_none(), "{patched}");
}

#[tokio::test]
async fn who_is_sent_away_by_the_router_is_not_warned() {
    let server = Server::start().await;
    let path = "/api/v1/namespaces/default/endpoints";
    let endpoints = json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "a"}});
    let (code, told) = warnings(&server, "POST", path, "application/json", endpoints.clone()).await;
    assert_eq!((code, told.len()), (201, 1));
    let at = |part: &str| format!("{path}/a{part}");
    assert_eq!(warnings(&server, "PUT", &at("/status"), "application/json", endpoints.clone()).await, (404, vec![]));
    assert_eq!(warnings(&server, "PATCH", &at(""), "application/json", endpoints).await, (415, vec![]));
}

#[tokio::test]
async fn a_strategic_patch_is_warned_of_without_the_entries_of_maps() {
    let server = Server::start().await;
    let slice = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": {
        "driver": "d.example.com", "nodeName": "n", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "d", "attributes": {"model": {"string": "x"}}}]}});
    server.done("POST", "/apis/resource.k8s.io/v1/resourceslices", slice).await;
    let path = "/apis/resource.k8s.io/v1/resourceslices/s";
    let patch = json!({"spec": {"devices": [{"name": "d", "attributes": {"model": {"string": "x", "bogus": 1}}}]}});
    let (_, told) = warnings(&server, "PATCH", path, "application/strategic-merge-patch+json", patch).await;
    assert_eq!(told, [r#"299 - "unknown field \"spec.devices[0].attributes.bogus\"""#]);
}

#[tokio::test]
async fn reviews_say_who_asked() {
    let server = Server::start().await;
    let review = json!({"spec": {"user": "ann", "resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let answer = server.done("POST", path, review).await;
    let owned = json!({"f:spec": {"f:resourceAttributes": {".": {}, "f:resource": {}, "f:verb": {}}, "f:user": {}}});
    assert_eq!(answer["metadata"]["managedFields"][0]["fieldsV1"], owned);
}

#[tokio::test]
async fn a_document_ends_with_a_line_break_unless_it_is_for_people() {
    let server = Server::start().await;
    server.done("POST", MAPS, json!({"metadata": {"name": "c"}, "data": {"a": "1"}})).await;
    for (path, accept) in [
        (format!("{MAPS}/c"), "application/json"),
        (format!("{MAPS}/c"), TABLE),
        (MAPS.to_owned(), "application/json"),
        (MAPS.to_owned(), TABLE),
        (format!("{MAPS}/missing"), "application/json"),
        ("/api".to_owned(), "application/json"),
        ("/apis/apps/v1".to_owned(), "application/json"),
        ("/apis".to_owned(), "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"),
    ] {
        let text = |query: &str| {
            let request = Request::builder().uri(format!("{path}{query}")).header("accept", accept);
            server.text(request.body(full("")).unwrap())
        };
        let line = text("").await;
        assert!(line.ends_with("}\n") && line.lines().count() == 1, "{path} {accept}: {line:?}");
        let pretty = text("?pretty=true").await;
        let is_always_a_line = accept.contains("apidiscovery");
        assert!(is_always_a_line || (pretty.ends_with("\n}") && pretty.lines().count() > 4), "{path}: {pretty:?}");
    }
    let version = server.text(Request::builder().uri("/version").body(full("")).unwrap()).await;
    assert!(version.ends_with("\n}") && version.lines().count() > 4, "{version:?}");
}
