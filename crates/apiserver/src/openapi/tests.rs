//! Documents as clients get them.

use http_body_util::BodyExt;

use super::*;

async fn get(path: &str, headers: &[(&str, &str)]) -> (http::response::Parts, Vec<u8>) {
    let mut request = http::Request::builder().uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let (parts, ()) = request.body(()).unwrap().into_parts();
    let path = parts.uri.path().to_owned();
    let segments: Vec<&str> = path.trim_start_matches("/openapi/").split('/').collect();
    let (head, body) = answer(&Registry::builtin(), &parts, &segments).into_parts();
    (head, body.collect().await.unwrap().to_bytes().to_vec())
}

async fn document(path: &str) -> Value {
    serde_json::from_slice(&get(path, &[]).await.1).unwrap()
}

/// Every reference leads somewhere: clients refuse a document with a loose end.
fn check_references(value: &Value, prefix: &str, definitions: &Value) {
    match value {
        Value::Object(map) => {
            if let Some(Value::String(reference)) = map.get("$ref") {
                let name = reference.strip_prefix(prefix).unwrap();
                assert!(definitions.get(name).is_some(), "{name}");
            }
            map.values().for_each(|value| check_references(value, prefix, definitions));
        }
        Value::Array(items) => items.iter().for_each(|value| check_references(value, prefix, definitions)),
        _ => {}
    }
}

#[tokio::test]
async fn every_group_version_has_a_document_without_loose_ends() {
    let index = document("/openapi/v3").await;
    let paths = index["paths"].as_object().unwrap();
    assert!(paths.contains_key("api/v1") && paths.contains_key("apis/apps/v1"));
    for entry in paths.values() {
        let found = document(entry["serverRelativeURL"].as_str().unwrap()).await;
        let schemas = &found["components"]["schemas"];
        check_references(&found, "#/components/schemas/", schemas);
        assert!(found["paths"].as_object().is_some_and(|paths| !paths.is_empty()));
    }
    let whole = document("/openapi/v2").await;
    check_references(&whole, "#/definitions/", &whole["definitions"]);
}

/// Kubernetes' own test of kubectl looks for these.
#[tokio::test]
async fn the_old_form_tells_lists_and_watches_in_known_words() {
    let text = String::from_utf8(get("/openapi/v2", &[]).await.1).unwrap();
    for words in ["list of returned", "List of services", "Watch for changes to the described resources"] {
        assert!(text.contains(words), "{words}");
    }
}

#[tokio::test]
async fn schemas_say_what_fields_mean_and_how_they_merge() {
    let core = document("/openapi/v3/api/v1").await;
    let schemas = &core["components"]["schemas"];
    let containers = &schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"];
    assert_eq!(containers["x-kubernetes-list-map-keys"], json!(["name"]));
    assert_eq!(containers["x-kubernetes-patch-strategy"], "merge");
    assert_eq!(containers["items"]["allOf"][0]["$ref"], "#/components/schemas/io.k8s.api.core.v1.Container");
    assert_eq!(schemas["io.k8s.api.core.v1.PodSpec"]["required"], json!(["containers"]));
    assert_eq!(schemas["io.k8s.api.core.v1.PodList"]["required"], json!(["items"]));
    assert!(schemas["io.k8s.api.core.v1.LocalObjectReference"].get("required").is_none());
    let pod = &schemas["io.k8s.api.core.v1.Pod"];
    assert_eq!(pod["x-kubernetes-group-version-kind"], json!([{"group": "", "kind": "Pod", "version": "v1"}]));
    assert!(pod["description"].as_str().is_some_and(|text| text.starts_with("Pod is a collection of containers")));
    let port = &schemas["io.k8s.api.core.v1.ContainerPort"]["properties"];
    assert_eq!((&port["protocol"]["default"], &port["containerPort"]["format"]), (&json!("TCP"), &json!("int32")));
}

#[tokio::test]
async fn the_old_form_has_neither_defaults_nor_choices() {
    let whole = document("/openapi/v2").await;
    let definitions = &whole["definitions"];
    assert_eq!(definitions["io.k8s.apimachinery.pkg.util.intstr.IntOrString"]["type"], "string");
    let port = &definitions["io.k8s.api.core.v1.ContainerPort"]["properties"]["protocol"];
    assert!(port.get("default").is_none());
    let options = &definitions["io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"]["x-kubernetes-group-version-kind"];
    assert!(options.as_array().unwrap().contains(&json!({"group": "apps", "kind": "DeleteOptions", "version": "v1"})));
}

#[tokio::test]
async fn clients_that_have_it_are_not_sent_it_again() {
    let (head, body) = get("/openapi/v2", &[]).await;
    let tag = head.headers["etag"].to_str().unwrap();
    let (again, nothing) = get("/openapi/v2", &[("if-none-match", tag)]).await;
    assert_eq!((again.status, nothing.len()), (StatusCode::NOT_MODIFIED, 0));
    let (packed, bytes) = get("/openapi/v2", &[("accept-encoding", "br, gzip;q=0.5")]).await;
    assert_eq!(packed.headers["content-encoding"], "gzip");
    assert!(bytes.len() < body.len() / 4, "{} of {}", bytes.len(), body.len());
}

#[tokio::test]
async fn an_old_address_leads_to_the_new_one() {
    let (head, _) = get("/openapi/v3/apis/apps/v1?hash=OLD", &[]).await;
    assert_eq!(head.status, StatusCode::MOVED_PERMANENTLY);
    let new = head.headers["location"].to_str().unwrap().to_owned();
    let (head, _) = get(&new, &[]).await;
    assert_eq!(
        (head.status, &head.headers["cache-control"]),
        (StatusCode::OK, &HeaderValue::from_static("public, immutable"))
    );
    let (head, body) = get("/openapi/v3/apis/none/v1", &[]).await;
    assert_eq!((head.status, body.len()), (StatusCode::NOT_FOUND, 0));
}

#[tokio::test]
async fn kubectl_gets_protobuf() {
    let accept = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    let (head, body) = get("/openapi/v2", &[("accept", accept)]).await;
    assert_eq!(head.headers["content-type"], "application/com.github.proto-openapi.spec.v2.v1.0+protobuf");
    assert_eq!(&body[..5], b"\x0a\x032.0");
    let (head, _) = get("/openapi/v2", &[("accept", "text/html")]).await;
    assert_eq!(head.status, StatusCode::NOT_ACCEPTABLE);
}
