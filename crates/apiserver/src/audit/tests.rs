//! What the audit log says of requests.

use std::net::SocketAddr;
use std::sync::Arc;

use http::Request;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::{Log, Policy};
use crate::body::full;
use crate::serve::RemoteAddress;
use crate::testing::Server;
use crate::user::{RefusedCertificate, User};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";

/// A server that writes down everything at a level.
async fn server(level: &str) -> (Server, Log) {
    with_policy(&format!("rules: [{{level: {level}}}]")).await
}

async fn with_policy(rules: &str) -> (Server, Log) {
    let server = Server::start().await;
    let log = Log::default();
    let policy = format!("apiVersion: audit.k8s.io/v1\nkind: Policy\n{rules}\n");
    server.api.audit(Policy::parse(policy.as_bytes()).unwrap(), log.clone());
    (server, log)
}

fn events(log: &Log) -> Vec<Value> {
    let text = String::from_utf8(log.drain()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn stages(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["stage"].as_str().unwrap()).collect()
}

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"a": "b"}})
}

#[tokio::test(start_paused = true)]
async fn an_event_tells_who_did_what_and_how_it_ended() {
    let (server, log) = server("Metadata").await;
    let mut request = Request::post(format!("{MAPS}?fieldManager=me"))
        .header("content-type", "application/json")
        .header("user-agent", "kubectl/v1.36")
        .header("x-forwarded-for", "10.1.2.3, nonsense")
        .header("audit-id", "mine")
        .header("authorization", "Bearer canary")
        .body(full(map("m").to_string()))
        .unwrap();
    request.extensions_mut().insert(RemoteAddress(SocketAddr::from(([192, 168, 0, 9], 4711))));
    let (code, _) = server.ask(request).await;
    assert_eq!(code, 201);
    let text = String::from_utf8(log.drain()).unwrap();
    assert!(!text.contains("canary"));
    let lines: Vec<&str> = text.lines().collect();
    let received = concat!(
        r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"mine","stage":"RequestReceived","#,
        r#""requestURI":"/api/v1/namespaces/default/configmaps?fieldManager=me","verb":"create","#,
        r#""user":{"username":"admin","groups":["system:masters","system:authenticated"]},"#,
        r#""sourceIPs":["10.1.2.3","192.168.0.9"],"userAgent":"kubectl/v1.36","#,
        r#""objectRef":{"resource":"configmaps","namespace":"default","apiVersion":"v1"},"#,
        r#""requestReceivedTimestamp":"2023-11-14T22:13:20.000000Z","stageTimestamp":"2023-11-14T22:13:20.000000Z"}"#,
    );
    let completed = concat!(
        r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"mine","stage":"ResponseComplete","#,
        r#""requestURI":"/api/v1/namespaces/default/configmaps?fieldManager=me","verb":"create","#,
        r#""user":{"username":"admin","groups":["system:masters","system:authenticated"]},"#,
        r#""sourceIPs":["10.1.2.3","192.168.0.9"],"userAgent":"kubectl/v1.36","#,
        r#""objectRef":{"resource":"configmaps","namespace":"default","name":"m","apiVersion":"v1"},"#,
        r#""responseStatus":{"metadata":{},"code":201},"#,
        r#""requestReceivedTimestamp":"2023-11-14T22:13:20.000000Z","stageTimestamp":"2023-11-14T22:13:20.000000Z","#,
        r#""annotations":{"authorization.k8s.io/decision":"allow","authorization.k8s.io/reason":""}}"#,
    );
    assert_eq!(lines, [received, completed]);
}

#[tokio::test]
async fn what_can_not_be_answered_freshly_is_written_down_too() {
    let (server, log) = server("Metadata").await;
    let mut request = Request::get(MAPS).body(full("")).unwrap();
    request.extensions_mut().insert(std::sync::Arc::new(User { name: "ann".to_owned(), ..User::default() }));
    let away = Err(Box::new(setpoint_api::Status::service_unavailable("the store is away")));
    let (inner, mut record) = (&server.api.inner, None);
    let answer = inner.handle(&inner.kinds.current(&inner.store), request, away, Some("id"), &mut record).await;
    assert_eq!(record.unwrap().answered(answer).status(), 503);
    let events = events(&log);
    assert_eq!(stages(&events), ["RequestReceived", "ResponseComplete"]);
    assert_eq!((&events[1]["user"]["username"], &events[1]["responseStatus"]["code"]), (&json!("ann"), &json!(503)));
}

#[tokio::test]
async fn an_answer_says_what_its_request_is_called() {
    let (server, log) = server("Metadata").await;
    let request = Request::get("/version").body(full("")).unwrap();
    let Ok(response) = server.api.clone().oneshot(request).await;
    assert_eq!(response.headers()["audit-id"], *events(&log)[1]["auditID"].as_str().unwrap());
}

#[tokio::test]
async fn a_refusal_is_told_with_its_words() {
    let (server, log) = server("Metadata").await;
    server.refused("GET", &format!("{MAPS}/none"), Value::Null).await;
    let outcome = &events(&log)[1]["responseStatus"];
    let expected = json!({"metadata": {}, "status": "Failure", "message": "configmaps \"none\" not found", "reason": "NotFound",
        "details": {"name": "none", "kind": "configmaps"}, "code": 404});
    assert_eq!(*outcome, expected);

    let request = Request::get(MAPS).body(full("")).unwrap();
    let Ok(response) = server.api.clone().oneshot(request).await;
    assert_eq!(response.status(), 403);
    let event = &events(&log)[1];
    assert_eq!(event["user"], json!({"username": "system:anonymous", "groups": ["system:unauthenticated"]}));
    assert_eq!(event["annotations"]["authorization.k8s.io/decision"], "forbid");
    assert_eq!(event["objectRef"], json!({"resource": "configmaps", "namespace": "default", "apiVersion": "v1"}));
}

#[tokio::test]
async fn who_is_not_let_in_leaves_one_event() {
    let (server, log) = server("Metadata").await;
    let mut request = Request::get(MAPS).body(full("")).unwrap();
    request.extensions_mut().insert(RefusedCertificate);
    let Ok(response) = server.api.clone().oneshot(request).await;
    assert_eq!(response.status(), 401);
    let events = events(&log);
    assert_eq!(stages(&events), ["ResponseStarted"]);
    assert_eq!((&events[0]["user"], &events[0]["responseStatus"]["code"]), (&json!({}), &json!(401)));
}

#[tokio::test]
async fn both_the_one_who_asks_and_the_one_asked_for_are_named() {
    let (server, log) = server("Metadata").await;
    let request = Request::get(MAPS).header("impersonate-user", "alice").body(full("")).unwrap();
    server.ask(request).await;
    let event = &events(&log)[1];
    assert_eq!(event["user"]["username"], "admin");
    assert_eq!(event["impersonatedUser"], json!({"username": "alice", "groups": ["system:authenticated"]}));
    assert_eq!(event["authenticationMetadata"], json!({"impersonationConstraint": "impersonate:user-info"}));
    assert_eq!(event["responseStatus"]["code"], 403);
    // Such groups are only for the old verb, of which nothing is told.
    let request = Request::get(MAPS).header("impersonate-user", "alice").header("impersonate-group", "system:masters");
    server.ask(request.body(full("")).unwrap()).await;
    let event = &events(&log)[1];
    assert_eq!(event["impersonatedUser"]["groups"], json!(["system:masters", "system:authenticated"]));
    assert_eq!(event.get("authenticationMetadata"), None);
}

#[tokio::test]
async fn bodies_are_told_as_the_level_says() {
    let (server, log) = server("Request").await;
    server.done("POST", MAPS, map("m")).await;
    server.done("PATCH", &format!("{MAPS}/m"), json!({"data": {"a": "c"}})).await;
    server.done("DELETE", &format!("{MAPS}/m"), Value::Null).await;
    let told: Vec<Value> = events(&log).into_iter().filter(|event| event["stage"] == "ResponseComplete").collect();
    assert_eq!(told[0]["requestObject"]["data"], json!({"a": "b"}));
    assert_eq!(told[1]["requestObject"], json!({"data": {"a": "c"}}));
    assert_eq!(told[2]["requestObject"]["kind"], "DeleteOptions");
    assert!(told.iter().all(|event| event.get("responseObject").is_none()));

    let (server, log) = with_policy("omitManagedFields: true\nrules: [{level: RequestResponse}]").await;
    server.done("POST", MAPS, map("m")).await;
    server.done("GET", MAPS, Value::Null).await;
    let told: Vec<Value> = events(&log).into_iter().filter(|event| event["stage"] == "ResponseComplete").collect();
    assert_eq!(told[0]["responseObject"]["metadata"]["name"], "m");
    assert_eq!(told[1]["responseObject"]["items"][0]["data"], json!({"a": "b"}));
    assert!(!told.iter().any(|event| event.to_string().contains("managedFields")));
}

#[tokio::test]
async fn secrets_and_tokens_are_never_told() {
    let (server, log) = server("RequestResponse").await;
    let secret = json!({"metadata": {"name": "s"}, "stringData": {"password": "canary"}});
    server.done("POST", SECRETS, secret).await;
    server.done("PATCH", &format!("{SECRETS}/s"), json!({"stringData": {"more": "canary"}})).await;
    server.done("GET", SECRETS, Value::Null).await;
    server
        .refused("POST", SECRETS, json!({"metadata": {"name": "t"}, "type": "canary", "data": {"a": "canary!"}}))
        .await;
    server.refused("POST", SECRETS, json!({"metadata": {"name": "canary_1"}, "data": {"canary/": ""}})).await;
    let review = json!({"spec": {"token": "canary"}});
    server.done("POST", "/apis/authentication.k8s.io/v1/tokenreviews", review).await;
    let request = Request::get(format!("{MAPS}?access_token=canary&limit=1")).header("authorization", "Basic canary");
    server.ask(request.body(full("")).unwrap()).await;
    let text = String::from_utf8(log.drain()).unwrap();
    // The name of an object is not a secret, its content is.
    assert!(!text.replace("canary_1", "").contains("canary"), "{text}");
    assert!(!text.contains("Y2FuYXJ5"), "{text}");
    assert_eq!(text.lines().count(), 14);
}

#[tokio::test]
async fn a_watch_is_told_when_it_begins_and_when_it_ends() {
    let (server, log) = server("RequestResponse").await;
    let mut request = Request::get(format!("{MAPS}?watch=true")).body(full("")).unwrap();
    let admin = User { name: "admin".into(), groups: vec!["system:masters".into()], ..User::default() };
    request.extensions_mut().insert(Arc::new(admin));
    let Ok(response) = server.api.clone().oneshot(request).await;
    let begun = events(&log);
    assert_eq!(stages(&begun), ["RequestReceived", "ResponseStarted"]);
    assert_eq!(begun[1]["verb"], "watch");
    server.done("POST", MAPS, map("m")).await;
    log.drain();
    let mut body = response.into_body();
    assert!(body.frame().await.unwrap().is_ok());
    drop(body);
    let ended = events(&log);
    assert_eq!(stages(&ended), ["ResponseComplete"]);
    assert_eq!(ended[0]["responseStatus"], json!({"metadata": {}, "code": 200}));
}

#[tokio::test]
async fn a_handler_that_breaks_is_told() {
    let (server, log) = server("Metadata").await;
    server.api.show_debug(|_, _| async { panic!("on purpose") });
    let (code, _) = server.ask(Request::get("/debug/pprof").body(full("")).unwrap()).await;
    assert_eq!(code, 500);
    let events = events(&log);
    assert_eq!(stages(&events), ["RequestReceived", "Panic"]);
    assert_eq!(events[1]["responseStatus"]["reason"], "InternalError");
}

#[tokio::test]
async fn what_the_policy_leaves_out_is_left_out() {
    let (server, log) = with_policy(
        "omitStages: [RequestReceived]\nrules: [{level: None, verbs: [get]}, {level: Metadata, resources: [{resources: [configmaps]}]}]",
    )
    .await;
    server.done("POST", MAPS, map("m")).await;
    server.done("GET", &format!("{MAPS}/m"), Value::Null).await;
    server.done("GET", "/api/v1/namespaces", Value::Null).await;
    assert_eq!(stages(&events(&log)), ["ResponseComplete"]);
    let text = server.text(Request::get("/metrics").body(full("")).unwrap()).await;
    assert!(text.contains("apiserver_audit_event_total 1\n"), "{text}");
    assert!(text.contains("apiserver_audit_level_total{level=\"Metadata\"} 1\n"), "{text}");
    assert!(text.contains("apiserver_audit_error_total{plugin=\"log\"} 0\n"), "{text}");
}

#[tokio::test]
async fn what_policies_say_for_the_log_is_told() {
    const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
    let (server, log) = server("Metadata").await;
    let rules =
        json!([{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}]);
    let spec = json!({
        "matchConstraints": {"resourceRules": rules},
        "validations": [{"expression": "object.data.a != 'b'", "message": "not b"}],
        "auditAnnotations": [{"key": "size", "valueExpression": "'entries: ' + string(object.data.size())"}],
    });
    let policy = json!({"metadata": {"name": "p"}, "spec": spec});
    server.done("POST", &format!("{GROUP}/validatingadmissionpolicies"), policy).await;
    let binding = json!({"metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": ["Audit"]}});
    server.done("POST", &format!("{GROUP}/validatingadmissionpolicybindings"), binding).await;
    log.drain();
    server.done("POST", MAPS, map("m")).await;
    let events = events(&log);
    let annotations = &events.last().unwrap()["annotations"];
    assert_eq!(annotations["p/size"], "entries: 1");
    let failures: Value =
        serde_json::from_str(annotations["validation.policy.admission.k8s.io/validation_failure"].as_str().unwrap())
            .unwrap();
    let expected = json!([{"message": "not b", "policy": "p", "binding": "b", "expressionIndex": 0, "validationActions": ["Audit"]}]);
    assert_eq!(failures, expected);
}

#[tokio::test]
async fn a_webhook_that_was_passed_over_is_told() {
    const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
    let (server, log) = server("Metadata").await;
    let rules =
        json!([{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}]);
    for kind in ["mutating", "validating"] {
        let hook = json!({
            "name": format!("{kind}.example.com"), "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "failurePolicy": "Ignore", "rules": rules, "clientConfig": {"url": "https://127.0.0.1:9/nobody"},
        });
        let configuration = json!({"metadata": {"name": kind}, "webhooks": [hook]});
        server.done("POST", &format!("{GROUP}/{kind}webhookconfigurations"), configuration).await;
    }
    log.drain();
    server.done("POST", MAPS, map("m")).await;
    let events = events(&log);
    let annotations = &events.last().unwrap()["annotations"];
    let told = |key: &str| annotations[key].as_str().unwrap_or_else(|| panic!("{key}: {annotations}")).to_owned();
    assert_eq!(told("failed-open.mutation.webhook.admission.k8s.io/round_0_index_0"), "mutating.example.com");
    assert_eq!(told("failed-open.validating.webhook.admission.k8s.io/round_0_index_0"), "validating.example.com");
    let mutation: Value = serde_json::from_str(&told("mutation.webhook.admission.k8s.io/round_0_index_0")).unwrap();
    assert_eq!(mutation, json!({"configuration": "mutating", "webhook": "mutating.example.com", "mutated": false}));
}
