//! Hostile requests: whatever comes in, there is an answer, and it is never the server's own failure.

use http::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Method, Request};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::body::full;
use crate::testing::Server;

const REQUESTS: usize = 4_000;

const METHODS: [&str; 8] = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "BREW"];

const PATHS: [&str; 22] = [
    "/api/v1/namespaces/default/configmaps",
    "/api/v1/namespaces/default/configmaps/a",
    "/api/v1/namespaces/default/configmaps/a%2Fb",
    "/api/v1/namespaces/default/configmaps/..",
    "/api/v1/namespaces/%00/pods/%ff",
    "/api/v1/namespaces/default/pods",
    "/api/v1/namespaces/default/pods/p/status",
    "/api/v1/namespaces/default/pods/p/eviction",
    "/api/v1/namespaces/default/pods/p/binding",
    "/api/v1/namespaces/default/pods/p/log",
    "/api/v1/namespaces/default/services",
    "/api/v1/namespaces/default/services/kubernetes",
    "/api/v1/nodes/n/proxy/x/y",
    "/api/v1/watch/configmaps",
    "/apis/apps/v1/namespaces/default/deployments",
    "/apis/apps/v1/namespaces/default/deployments/d/scale",
    "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers/h",
    "/apis/events.k8s.io/v1/namespaces/default/events",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "/apis/batch/v1/namespaces/default/cronjobs",
    "/openapi/v3/apis/apps/v1/x",
    "/apis//v1/a//b///",
];

const QUERIES: [&str; 16] = [
    "",
    "limit=1",
    "limit=-1&continue=%%%",
    "continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiIuLi8ifQ",
    "labelSelector=a%20in%20(b,,c)",
    "labelSelector=!!!",
    "fieldSelector=metadata.name%3D%5C",
    "resourceVersion=18446744073709551615&resourceVersionMatch=Exact",
    "resourceVersion=-0",
    "watch=1&timeoutSeconds=1",
    "dryRun=All&fieldValidation=Strict",
    "dryRun=Some",
    "fieldManager=%00",
    "fieldManager=m&force=1",
    "gracePeriodSeconds=-9223372036854775808&propagationPolicy=Foreground",
    "pretty=%ff&includeObject=Everything",
];

const MEDIA: [&str; 9] = [
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
    "text/plain",
    ";;;",
];

const BODIES: [&str; 16] = [
    "",
    "{}",
    "null",
    "[]",
    r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","labels":{"x":"y"}},"data":{"k":"v"}}"#,
    r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i","ports":[{"containerPort":80}],"resources":{"limits":{"cpu":"1"}}}]}}"#,
    r#"{"apiVersion":"v1","kind":"Service","metadata":{"name":"s"},"spec":{"type":"NodePort","ports":[{"port":80,"nodePort":30001}]}}"#,
    r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}"#,
    r#"{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"d"},"spec":{"replicas":3}}"#,
    r#"[{"op":"add","path":"/data/x","value":"y"},{"op":"copy","from":"/data","path":"/data/z"},{"op":"test","path":"/a"}]"#,
    r#"{"metadata":{"$patch":"replace","name":"a","finalizers":null,"managedFields":[{}]},"$retainKeys":[1]}"#,
    r#"{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"x"},"orphanDependents":true}"#,
    "a: &a [x]\nb: [*a, *a, *a]\nc: {? [1] : 2}\n",
    "k8s\0\u{a}\u{6}\u{a}\u{2}v1\u{12}",
    r#"{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"a.b.c"},"spec":{"group":"b.c","names":{"plural":"a","kind":"A"},"scope":"Namespaced","versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-validations":[{"rule":"self.("}]}}}]}}"#,
    r#"{"apiVersion":"batch/v1","kind":"CronJob","metadata":{"name":"c"},"spec":{"schedule":"*/0 * 99 L-3 ?","timeZone":"Mars/Olympus","jobTemplate":{}}}"#,
];

/// Cuts, doubles or changes bytes of a text.
fn spoilt(text: &str, rng: &mut StdRng) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..rng.random_range(0..4) {
        if bytes.is_empty() {
            break;
        }
        let at = rng.random_range(0..bytes.len());
        match rng.random_range(0..4) {
            0 => bytes.truncate(at),
            1 => bytes[at] = rng.random(),
            2 => bytes.insert(at, b'['),
            _ => {
                let tail = bytes[at..].to_vec();
                bytes.extend(tail);
            }
        }
    }
    bytes
}

fn pick<'a>(from: &[&'a str], rng: &mut StdRng) -> &'a str {
    from[rng.random_range(0..from.len())]
}

#[tokio::test(start_paused = true)]
async fn no_request_makes_the_server_fail() {
    let server = Server::start().await;
    server.pod("p").await;
    let mut rng = StdRng::seed_from_u64(36);
    for number in 0..REQUESTS {
        let (method, path, query) = (pick(&METHODS, &mut rng), pick(&PATHS, &mut rng), pick(&QUERIES, &mut rng));
        let body = spoilt(pick(&BODIES, &mut rng), &mut rng);
        let mut request = Request::new(full(body.clone()));
        *request.method_mut() = Method::from_bytes(method.as_bytes()).unwrap();
        *request.uri_mut() = format!("{path}?{query}").parse().unwrap();
        let media = HeaderValue::from_static(MEDIA[rng.random_range(0..MEDIA.len())]);
        request.headers_mut().insert(CONTENT_TYPE, media);
        let accept = spoilt("application/json;as=Table;v=v1;g=meta.k8s.io,*/*;q=0.5", &mut rng);
        if let Ok(value) = HeaderValue::from_bytes(&accept) {
            request.headers_mut().insert(ACCEPT, value);
        }
        let (code, answer) = server.ask(request).await;
        let own = answer["message"].as_str().is_some_and(|message| message.contains("could not be handled"));
        let body = String::from_utf8_lossy(&body);
        assert!(!own, "request {number}: {method} {path}?{query} {body}: {code} {answer}");
    }
}

#[tokio::test]
async fn acting_for_someone_else_is_refused() {
    let server = Server::start().await;
    let mut request = Request::new(full(""));
    *request.uri_mut() = "/api/v1/namespaces".parse().unwrap();
    request.headers_mut().insert(HeaderName::from_static("impersonate-user"), HeaderValue::from_static("ann"));
    let (code, answer) = server.ask(request).await;
    assert_eq!((code, answer["reason"].as_str()), (403, Some("Forbidden")));
}
