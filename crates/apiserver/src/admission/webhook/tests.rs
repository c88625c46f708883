//! Webhooks through the whole server, on real HTTPS servers that behave and misbehave.

use http::Request;
use serde_json::{Value, json};
use setpoint_schema::Edit;
use setpoint_store::Expectation;
use tower::ServiceExt;

use crate::body::full;
use crate::objects;
use crate::registry::Registry;
use crate::testing::Server;
use crate::user::User;
use crate::webhook_client::backend::{Backend, Reply};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"app": "a"}}, "data": {"k": "v"}})
}

/// A webhook for ConfigMaps at a backend; `more` is added to it.
fn hook(name: &str, backend: &Backend, more: Value) -> Value {
    let mut hook = json!({
        "name": name, "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": format!("https://{}/review", backend.address), "caBundle": backend.ca_bundle},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["*"]}],
    });
    more.as_object().unwrap().iter().for_each(|(field, value)| hook.set(field, value.clone()));
    hook
}

async fn configure(server: &Server, kind: &str, name: &str, hooks: Vec<Value>) {
    server.done("POST", kind, json!({"metadata": {"name": name}, "webhooks": hooks})).await;
}

fn allowed() -> Reply {
    Reply::Review(json!({"allowed": true}))
}

fn patch(operations: Value) -> Reply {
    let patch = setpoint_schema::base64::encode(operations.to_string().as_bytes());
    Reply::Review(json!({"allowed": true, "patchType": "JSONPatch", "patch": patch}))
}

#[tokio::test]
async fn a_webhook_changes_what_is_written_and_sees_all_of_the_request() {
    let server = Server::start().await;
    let backend = Backend::start(|_| patch(json!([{"op": "add", "path": "/data/added", "value": "by webhook"}]))).await;
    configure(&server, MUTATING, "m", vec![hook("m.example.com", &backend, json!({}))]).await;
    let made = server.done("POST", &format!("{MAPS}?fieldManager=me"), map("a")).await;
    assert_eq!(made["data"], json!({"added": "by webhook", "k": "v"}));
    let (path, review) = backend.asked().remove(0);
    assert_eq!((&*path, review.text("apiVersion")), ("/review?timeout=10s", "admission.k8s.io/v1"));
    let request = &review["request"];
    let kind = json!({"group": "", "version": "v1", "kind": "ConfigMap"});
    let resource = json!({"group": "", "version": "v1", "resource": "configmaps"});
    for (field, expected) in [
        ("kind", kind.clone()),
        ("requestKind", kind),
        ("resource", resource.clone()),
        ("requestResource", resource),
        ("name", json!("a")),
        ("namespace", json!("default")),
        ("operation", json!("CREATE")),
        ("userInfo", json!({"username": "admin", "groups": ["system:masters", "system:authenticated"]})),
        ("oldObject", Value::Null),
        ("dryRun", json!(false)),
        ("options", json!({"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "me"})),
    ] {
        assert_eq!(request[field], expected, "{field}");
    }
    assert_eq!(request["object"]["data"], json!({"k": "v"}));
    assert!(!request["object"]["metadata"].has("uid"), "it has none before it is admitted");
}

#[tokio::test]
async fn a_refusal_is_told_in_the_webhooks_words() {
    let server = Server::start().await;
    let backend = Backend::start(|review| match review["request"]["object"]["metadata"].text("name") {
        "silent" => Reply::Review(json!({"allowed": false})),
        "reason" => Reply::Review(json!({"allowed": false, "status": {"reason": "Because"}})),
        "spoken" => Reply::Review(
            json!({"allowed": false, "status": {"code": 403, "message": "not this", "reason": "Forbidden"}}),
        ),
        _ => allowed(),
    })
    .await;
    configure(&server, VALIDATING, "v", vec![hook("v.example.com", &backend, json!({}))]).await;
    let denied = "admission webhook \"v.example.com\" denied the request";
    for (name, code, expected) in [
        ("silent", 400, format!("{denied} without explanation")),
        ("reason", 400, format!("{denied}: Because")),
        ("spoken", 403, format!("{denied}: not this")),
    ] {
        let (status, answer) = server.send("POST", MAPS, map(name)).await;
        assert_eq!((status, answer.text("message")), (code, &*expected));
        assert_eq!((answer.text("kind"), answer.text("apiVersion")), ("Status", "v1"), "{answer}");
    }
    server.done("POST", MAPS, map("fine")).await;
    // Judged as it will be stored.
    let (_, review) = backend.asked().pop().unwrap();
    assert!(review["request"]["object"]["metadata"].has("uid"));
}

#[tokio::test]
async fn changes_and_deletions_show_the_stored_object() {
    let server = Server::start().await;
    server.done("POST", MAPS, map("a")).await;
    let backend = Backend::start(|review| match review["request"].text("operation") {
        "DELETE" => Reply::Review(json!({"allowed": false, "status": {"message": "stays"}})),
        _ => allowed(),
    })
    .await;
    configure(&server, VALIDATING, "v", vec![hook("v.example.com", &backend, json!({}))]).await;
    server.done("PATCH", &format!("{MAPS}/a"), json!({"data": {"k": "w"}})).await;
    let request = backend.asked().remove(0).1["request"].clone();
    assert_eq!((request.text("operation"), request["options"].text("kind")), ("UPDATE", "PatchOptions"));
    assert_eq!((&request["object"]["data"]["k"], &request["oldObject"]["data"]["k"]), (&json!("w"), &json!("v")));
    let (code, message) = server.refused("DELETE", &format!("{MAPS}/a"), Value::Null).await;
    let expected = "admission webhook \"v.example.com\" denied the request: stays";
    assert_eq!((code, &*message), (400, expected));
    let request = backend.asked().remove(1).1["request"].clone();
    assert_eq!((&request["object"], &request["oldObject"]["data"]["k"]), (&Value::Null, &json!("w")));
    assert_eq!(request["options"], json!({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"}));
    let (code, _) = server.refused("DELETE", MAPS, Value::Null).await;
    assert_eq!(code, 400, "a deletion of many is one of each");
}

#[tokio::test]
async fn what_goes_wrong_is_told_and_refused_or_passed_over() {
    let server = Server::start().await;
    for (reply, expected) in [
        (Reply::Raw(500, "boom".into()), "an error on the server (\"boom\") has prevented the request from succeeding"),
        (Reply::Raw(404, "".into()), "the server could not find the requested resource"),
        (Reply::Raw(500, "x".repeat(100_000)), "\") has prevented the request from succeeding"),
        (Reply::Raw(200, "<html>".into()), "invalid character '<' looking for beginning of value"),
        (Reply::Raw(200, "".into()), "unexpected end of JSON input"),
        (Reply::Closed, "EOF"),
        (Reply::Raw(200, "x".repeat(9 * 1024 * 1024)), "length limit exceeded"),
    ] {
        check_failure(&server, Backend::start(move |_| reply.clone()).await, "failed to call webhook: ", expected)
            .await;
    }
    for (answer, expected) in [
        (json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}), "webhook response was absent"),
        (
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {"uid": "x"}}),
            "expected response.uid=",
        ),
    ] {
        let reply = Reply::Raw(200, answer.to_string());
        let backend = Backend::start(move |_| reply.clone()).await;
        check_failure(&server, backend, "received invalid webhook response: ", expected).await;
    }
    let reply = Reply::Review(json!({"allowed": true, "patch": "W10=", "patchType": "JSONPatch"}));
    let backend = Backend::start(move |_| reply.clone()).await;
    let expected = "validating webhook may not return response.patch";
    check_failure(&server, backend, "received invalid webhook response: ", expected).await;
    let mut stranger = Backend::start(|_| allowed()).await;
    stranger.ca_bundle = Backend::start(|_| allowed()).await.ca_bundle;
    let expected = "tls: failed to verify certificate: x509: certificate signed by unknown authority";
    check_failure(&server, stranger, "failed to call webhook: ", expected).await;
    for code in [301, 302, 303, 307, 308] {
        let elsewhere = Backend::start(|_| allowed()).await;
        let to = format!("https://{}/elsewhere", elsewhere.address);
        let backend = Backend::start(move |_| Reply::Redirect(code, to.clone())).await;
        let expected = format!("the server responded with the status code {code} but did not return more information");
        check_failure(&server, backend, "failed to call webhook: ", &expected).await;
        assert_eq!(elsewhere.asked().len(), 0, "{code} is not followed");
    }
    let other = Backend::start_as(&["other.example.com"], |_| {}, |_| allowed()).await;
    let expected = "tls: failed to verify certificate: x509: certificate is not valid for 127.0.0.1";
    check_failure(&server, other, "failed to call webhook: ", expected).await;
    for (from, to) in [(1975, 2000), (4000, 4001)] {
        let change = move |params: &mut rcgen::CertificateParams| {
            params.not_before = rcgen::date_time_ymd(from, 1, 1);
            params.not_after = rcgen::date_time_ymd(to, 1, 1);
        };
        let late = Backend::start_as(&["127.0.0.1"], change, |_| allowed()).await;
        let expected = "tls: failed to verify certificate: x509: certificate has expired or is not yet valid";
        check_failure(&server, late, "failed to call webhook: ", expected).await;
    }
    let mut nobody = Backend::start(|_| allowed()).await;
    nobody.address = ([127, 0, 0, 1], 9).into();
    let expected = "Post \"https://127.0.0.1:9/review?timeout=10s\": dial tcp 127.0.0.1:9: connect: connection refused";
    check_failure(&server, nobody, "failed to call webhook: ", expected).await;
}

async fn check_failure(server: &Server, backend: Backend, place: &str, expected: &str) {
    configure(server, VALIDATING, "v", vec![hook("v.example.com", &backend, json!({}))]).await;
    let (code, message) = server.refused("POST", MAPS, map("a")).await;
    let begins = format!("Internal error occurred: failed calling webhook \"v.example.com\": {place}");
    assert!(code == 500 && message.starts_with(&begins) && message.contains(expected), "{message}");
    assert!(message.len() < 4_096, "not all of what a webhook says is repeated");
    server.done("DELETE", &format!("{VALIDATING}/v"), Value::Null).await;
    let lenient = hook("v.example.com", &backend, json!({"failurePolicy": "Ignore"}));
    configure(server, VALIDATING, "v", vec![lenient]).await;
    server.done("POST", &format!("{MAPS}?dryRun=All"), map("a")).await;
    server.done("DELETE", &format!("{VALIDATING}/v"), Value::Null).await;
}

#[tokio::test(start_paused = true)]
async fn a_webhook_that_never_answers_is_not_waited_for() {
    let server = Server::start().await;
    let backend = Backend::start(|_| Reply::Never).await;
    let hooks = vec![hook("v.example.com", &backend, json!({"timeoutSeconds": 1}))];
    configure(&server, VALIDATING, "v", hooks).await;
    let (code, message) = server.refused("POST", MAPS, map("a")).await;
    let expected = format!(
        "Internal error occurred: failed calling webhook \"v.example.com\": failed to call webhook: Post \"https://{}/review?timeout=1s\": context deadline exceeded",
        backend.address
    );
    assert_eq!((code, message), (500, expected));
}

/// Its last connection was kept for the next call, and is of no use any more.
#[tokio::test]
async fn a_webhook_that_was_stopped_meanwhile_is_asked_over_a_new_connection() {
    let server = Server::start().await;
    let backend = Backend::start(|_| allowed()).await;
    configure(&server, VALIDATING, "v", vec![hook("v.example.com", &backend, json!({}))]).await;
    for (asked, name) in ["a", "b", "c"].into_iter().enumerate() {
        server.done("POST", MAPS, map(name)).await;
        assert_eq!(backend.count(), asked + 1);
        backend.hang_up().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_webhook_that_answers_drop_by_drop_is_not_waited_for() {
    let server = Server::start().await;
    let backend = Backend::start(|_| Reply::Drip(" ".repeat(1_000))).await;
    let hooks = vec![hook("v.example.com", &backend, json!({"timeoutSeconds": 5}))];
    configure(&server, VALIDATING, "v", hooks).await;
    let (code, message) = server.refused("POST", MAPS, map("a")).await;
    assert!(code == 500 && message.ends_with("context deadline exceeded"), "{message}");
}

#[tokio::test]
async fn a_patch_that_can_not_be_applied_changes_nothing() {
    let server = Server::start().await;
    let encoded = |text: &str| setpoint_schema::base64::encode(text.as_bytes());
    let with = |patch: &str, kind: &str| json!({"allowed": true, "patch": encoded(patch), "patchType": kind});
    for (response, is_passed_over) in [
        (with("no json", "JSONPatch"), true),
        (with("{}", "JSONPatch"), true),
        (with(r#"[{"op": "add", "path": "/data/x", "value": "y"}]"#, "MergePatch"), true),
        (with(r#"[{"op": "remove", "path": "/data/none"}]"#, "JSONPatch"), false),
        (with(r#"[{"op": "test", "path": "/data/k", "value": "other"}]"#, "JSONPatch"), false),
        (with(r#"[{"op": "replace", "path": "/data", "value": ["k"]}]"#, "JSONPatch"), false),
        (
            with(r#"[{"op": "replace", "path": "", "value": {"apiVersion": "v1", "kind": "Secret"}}]"#, "JSONPatch"),
            false,
        ),
    ] {
        for (policy, is_refused) in [("Fail", true), ("Ignore", !is_passed_over)] {
            let reply = Reply::Review(response.clone());
            let backend = Backend::start(move |_| reply.clone()).await;
            let hook = hook("m.example.com", &backend, json!({"failurePolicy": policy}));
            configure(&server, MUTATING, "m", vec![hook]).await;
            let (code, answer) = server.send("POST", &format!("{MAPS}?dryRun=All"), map("a")).await;
            assert_eq!(code >= 400, is_refused, "{policy} {response}: {answer}");
            assert!(code >= 400 || answer["data"] == json!({"k": "v"}), "{answer}");
            server.done("DELETE", &format!("{MUTATING}/m"), Value::Null).await;
        }
    }
}

#[tokio::test]
async fn a_dry_run_asks_only_webhooks_without_side_effects() {
    let server = Server::start().await;
    let backend = Backend::start(|_| allowed()).await;
    let hooks = vec![hook("v.example.com", &backend, json!({"sideEffects": "NoneOnDryRun"}))];
    configure(&server, VALIDATING, "v", hooks).await;
    server.done("POST", &format!("{MAPS}?dryRun=All"), map("a")).await;
    let request = backend.asked().remove(0).1["request"].clone();
    assert_eq!((request.flag("dryRun"), &request["options"]["dryRun"]), (true, &json!(["All"])));
}

#[tokio::test]
async fn selectors_rules_and_conditions_choose_what_a_webhook_is_asked_about() {
    let server = Server::start().await;
    for (more, is_asked) in [
        (json!({}), true),
        (json!({"objectSelector": {"matchLabels": {"app": "a"}}}), true),
        (json!({"objectSelector": {"matchLabels": {"app": "b"}}}), false),
        (json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}}), true),
        (json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "other"}}}), false),
        (json!({"matchConditions": [{"name": "n", "expression": "object.metadata.name == 'a'"}]}), true),
        (json!({"matchConditions": [{"name": "n", "expression": "request.userInfo.username != 'admin'"}]}), false),
        (
            json!({"matchConditions": [{"name": "n", "expression": "authorizer.group('').resource('pods').check('get').allowed()"}]}),
            true,
        ),
        (
            json!({"rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "operations": ["DELETE"]}]}),
            false,
        ),
        (
            json!({"rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "operations": ["*"], "scope": "Cluster"}]}),
            false,
        ),
        (
            json!({"rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["configmaps/status"], "operations": ["*"]}]}),
            false,
        ),
    ] {
        let backend = Backend::start(|_| allowed()).await;
        configure(&server, VALIDATING, "v", vec![hook("v.example.com", &backend, more.clone())]).await;
        server.done("POST", &format!("{MAPS}?dryRun=All"), map("a")).await;
        assert_eq!(!backend.asked().is_empty(), is_asked, "{more}");
        server.done("DELETE", &format!("{VALIDATING}/v"), Value::Null).await;
    }
    let condition = json!({"matchConditions": [{"name": "n", "expression": "object.data.missing == 'x'"}]});
    let backend = Backend::start(|_| allowed()).await;
    configure(&server, VALIDATING, "v", vec![hook("v.example.com", &backend, condition)]).await;
    let (code, message) = server.refused("POST", MAPS, map("a")).await;
    let expected = "configmaps \"a\" is forbidden: expression 'object.data.missing == 'x'' resulted in error: no such key: missing";
    assert_eq!((code, &*message), (403, expected));
}

#[tokio::test]
async fn who_wants_to_sees_what_later_webhooks_changed() {
    let server = Server::start().await;
    let early = Backend::start(|_| allowed()).await;
    let late = Backend::start(|_| patch(json!([{"op": "add", "path": "/data/late", "value": "x"}]))).await;
    let hooks = vec![
        hook("early.example.com", &early, json!({"reinvocationPolicy": "IfNeeded"})),
        hook("late.example.com", &late, json!({})),
    ];
    configure(&server, MUTATING, "m", hooks).await;
    server.done("POST", MAPS, map("a")).await;
    let seen: Vec<Value> =
        early.asked().iter().map(|(_, review)| review["request"]["object"]["data"].clone()).collect();
    assert_eq!(seen, [json!({"k": "v"}), json!({"k": "v", "late": "x"})]);
    assert_eq!(late.asked().len(), 1);
}

#[tokio::test]
async fn webhooks_are_never_asked_about_webhooks() {
    let server = Server::start().await;
    let backend = Backend::start(|_| Reply::Review(json!({"allowed": false}))).await;
    let everything = json!([{"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "operations": ["*"]}]);
    let hooks = vec![hook("v.example.com", &backend, json!({"rules": everything}))];
    configure(&server, VALIDATING, "v", hooks).await;
    server.refused("POST", MAPS, map("a")).await;
    server.done("DELETE", &format!("{VALIDATING}/v"), Value::Null).await;
    assert_eq!(backend.asked().len(), 1);
}

#[tokio::test]
async fn a_webhook_behind_a_service_is_reached_at_its_endpoints() {
    let server = Server::start().await;
    let backend = Backend::start(|_| allowed()).await;
    let client =
        json!({"service": {"namespace": "default", "name": "hook", "path": "/x"}, "caBundle": backend.ca_bundle});
    configure(&server, VALIDATING, "v", vec![hook("v.example.com", &backend, json!({"clientConfig": client}))]).await;
    let url = "Internal error occurred: failed calling webhook \"v.example.com\": failed to call webhook: Post \"https://hook.default.svc:443/x?timeout=10s\"";
    let (_, message) = server.refused("POST", MAPS, map("a")).await;
    assert_eq!(message, format!("{url}: service \"hook\" not found"));
    let service = json!({"metadata": {"name": "hook"}, "spec": {"selector": {"a": "b"}, "ports": [{"name": "web", "port": 443}]}});
    server.done("POST", "/api/v1/namespaces/default/services", service).await;
    let (_, message) = server.refused("POST", MAPS, map("a")).await;
    assert_eq!(message, format!("{url}: no endpoints available for service \"hook\""));
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": "hook-1", "namespace": "default", "uid": "u", "labels": {"kubernetes.io/service-name": "hook"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["127.0.0.2"], "conditions": {"ready": false}}, {"addresses": ["127.0.0.1"]}],
        "ports": [{"name": "web", "port": backend.address.port()}],
    });
    // Stored by hand: loopback addresses are refused.
    let registry = Registry::builtin();
    let served = registry.find("discovery.k8s.io", "v1", "endpointslices").unwrap();
    let key = objects::key(served, Some("default"), "hook-1");
    let change = objects::put_change(served, key, Expectation::Absent, &slice);
    server.store.commit(objects::transaction(served, change)).await.unwrap();
    server.done("POST", MAPS, map("a")).await;
    assert_eq!(backend.asked()[0].0, "/x?timeout=10s");
}

#[tokio::test]
async fn warnings_reach_the_client() {
    let server = Server::start().await;
    let backend = Backend::start(|_| Reply::Review(json!({"allowed": true, "warnings": ["mind this"]}))).await;
    configure(&server, VALIDATING, "v", vec![hook("v.example.com", &backend, json!({}))]).await;
    let mut request =
        Request::post(MAPS).header("content-type", "application/json").body(full(map("a").to_string())).unwrap();
    let user = User { name: "admin".into(), groups: vec!["system:masters".into()], ..User::default() };
    request.extensions_mut().insert(std::sync::Arc::new(user));
    let Ok(response) = server.api.clone().oneshot(request).await;
    assert_eq!(response.headers()["warning"], "299 - \"mind this\"");
}

#[tokio::test]
async fn a_custom_object_is_shown_in_the_version_that_the_rule_names() {
    let server = Server::start().await;
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}}}});
    let version =
        |name: &str, storage: bool| json!({"name": name, "served": true, "storage": storage, "schema": schema});
    let definition = json!({"metadata": {"name": "widgets.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced", "versions": [version("v1", true), version("v2", false)],
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"}}});
    server.done("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition).await;
    let backend = Backend::start(|_| {
        patch(
            json!([{"op": "add", "path": "/spec/size", "value": 7}, {"op": "add", "path": "/spec/pruned", "value": 1}]),
        )
    })
    .await;
    let rules = json!([{"apiGroups": ["example.com"], "apiVersions": ["v1"], "resources": ["widgets"], "operations": ["CREATE"]}]);
    configure(&server, MUTATING, "m", vec![hook("m.example.com", &backend, json!({"rules": rules}))]).await;
    let widget =
        json!({"apiVersion": "example.com/v2", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": 1}});
    let made = server.done("POST", "/apis/example.com/v2/namespaces/default/widgets", widget).await;
    assert_eq!((made.text("apiVersion"), &made["spec"]), ("example.com/v2", &json!({"size": 7})));
    let request = backend.asked().remove(0).1["request"].clone();
    assert_eq!((request["kind"].text("version"), request["requestKind"].text("version")), ("v1", "v2"));
    assert_eq!(request["object"].text("apiVersion"), "example.com/v1");
}

#[tokio::test]
async fn an_exact_rule_is_about_the_version_that_it_names_and_no_other() {
    let server = Server::start().await;
    let scale = |version: &str, name: &str| {
        let target = json!({"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"});
        let spec = json!({"maxReplicas": 3, "scaleTargetRef": target});
        let path = format!("/apis/autoscaling/{version}/namespaces/default/horizontalpodautoscalers");
        (path, json!({"metadata": {"name": name}, "spec": spec}))
    };
    for (policy, asked) in [("Exact", [false, true]), ("Equivalent", [true, true])] {
        let backend = Backend::start(|_| allowed()).await;
        let rules = json!([{"apiGroups": ["autoscaling"], "apiVersions": ["v2"], "resources": ["horizontalpodautoscalers"], "operations": ["CREATE"]}]);
        let more = json!({"matchPolicy": policy, "rules": rules});
        configure(&server, VALIDATING, "v", vec![hook("v.example.com", &backend, more)]).await;
        for (version, is_asked) in ["v1", "v2"].into_iter().zip(asked) {
            let before = backend.asked().len();
            let (path, object) = scale(version, "a");
            server.done("POST", &format!("{path}?dryRun=All"), object).await;
            assert_eq!(backend.asked().len() > before, is_asked, "{policy} {version}");
        }
        server.done("DELETE", &format!("{VALIDATING}/v"), Value::Null).await;
    }
}

/// CVE-2021-25735: what a webhook was told that an object had been was what the client said that it had been.
#[tokio::test]
async fn what_an_object_was_is_what_is_stored() {
    let server = Server::start().await;
    let (maps, nodes) = (MAPS.to_owned(), "/api/v1/nodes".to_owned());
    let sets = "/apis/apps/v1/namespaces/default/replicasets".to_owned();
    let pod = json!({"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"replicas": 1, "selector": {"matchLabels": {"app": "a"}}, "template": pod});
    let backend = Backend::start(|_| allowed()).await;
    let rules = json!([{"apiGroups": ["", "apps"], "apiVersions": ["*"], "resources": ["configmaps", "nodes", "nodes/status", "replicasets", "replicasets/*"], "operations": ["UPDATE"]}]);
    configure(&server, VALIDATING, "v", vec![hook("v.example.com", &backend, json!({"rules": rules}))]).await;
    for (list, part, object) in [
        (&maps, "", json!({"data": {"k": "v"}})),
        (&nodes, "", json!({})),
        (&nodes, "/status", json!({})),
        (&sets, "", json!({"spec": spec})),
        (&sets, "/status", json!({"spec": spec})),
    ] {
        let mut object = object;
        object["metadata"] = json!({"name": "x", "labels": {"trusted": "no"}});
        let stored = server.done("POST", list, object).await;
        let mut lied = stored.clone();
        lied["metadata"]["labels"] = json!({"trusted": "yes"});
        lied["metadata"]["generation"] = json!(77);
        lied["metadata"]["creationTimestamp"] = json!("2001-01-01T00:00:00Z");
        server.done("PUT", &format!("{list}/x{part}"), lied).await;
        let told = backend.asked().pop().unwrap().1["request"]["oldObject"].clone();
        let facts = |object: &Value| {
            let metadata = &object["metadata"];
            [
                &metadata["labels"],
                &metadata["creationTimestamp"],
                &metadata["generation"],
                &metadata["uid"],
                &object["spec"],
                &object["data"],
            ]
            .map(Clone::clone)
        };
        assert_eq!(facts(&told), facts(&stored), "{list}{part}");
        server.done("DELETE", &format!("{list}/x"), Value::Null).await;
    }
}

#[tokio::test]
async fn parts_of_objects_are_shown_as_what_they_are() {
    let server = Server::start().await;
    server.pod("p").await;
    let pod = json!({"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"replicas": 1, "selector": {"matchLabels": {"app": "a"}}, "template": pod});
    let sets = "/apis/apps/v1/namespaces/default/replicasets";
    server.done("POST", sets, json!({"metadata": {"name": "r"}, "spec": spec})).await;
    let backend = Backend::start(|review| match review["request"].text("operation") {
        "CONNECT" => Reply::Review(json!({"allowed": false, "status": {"message": "nobody looks inside"}})),
        _ => allowed(),
    })
    .await;
    let rules = json!([
        {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/exec", "pods/attach", "pods/portforward", "pods/binding"], "operations": ["*"]},
        {"apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["replicasets/scale"], "operations": ["UPDATE"]},
    ]);
    configure(&server, VALIDATING, "v", vec![hook("v.example.com", &backend, json!({"rules": rules}))]).await;
    let seen = || backend.asked().pop().unwrap().1["request"].clone();

    let exec = "/api/v1/namespaces/default/pods/p/exec?command=ls&command=-l&container=c&stdout=true";
    let (code, message) = server.refused("POST", exec, Value::Null).await;
    let refusal = "admission webhook \"v.example.com\" denied the request: nobody looks inside";
    assert_eq!((code, &*message), (400, refusal));
    let request = seen();
    assert_eq!(
        (&request["kind"], request.text("subResource"), request.text("name"), &request["oldObject"]),
        (&json!({"group": "", "version": "v1", "kind": "PodExecOptions"}), "exec", "p", &Value::Null)
    );
    let options = json!({
        "kind": "PodExecOptions", "apiVersion": "v1", "container": "c", "stdout": true, "command": ["ls", "-l"],
    });
    assert_eq!(request["object"], options);
    for (path, kind) in [("attach?stdin=true", "PodAttachOptions"), ("portforward?ports=80", "PodPortForwardOptions")] {
        let (code, _) = server.refused("GET", &format!("/api/v1/namespaces/default/pods/p/{path}"), Value::Null).await;
        assert_eq!((code, seen()["kind"].text("kind")), (400, kind));
    }

    server.done("PATCH", &format!("{sets}/r/scale"), json!({"spec": {"replicas": 3}})).await;
    let request = seen();
    assert_eq!(
        (&request["kind"], request.text("subResource"), request["resource"].text("resource")),
        (&json!({"group": "autoscaling", "version": "v1", "kind": "Scale"}), "scale", "replicasets")
    );
    let replicas = |object: &str| request[object]["spec"].number("replicas");
    assert_eq!((replicas("object"), replicas("oldObject")), (Some(3), Some(1)));
    assert_eq!(request["object"].text("kind"), "Scale");

    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    server.done("POST", "/api/v1/namespaces/default/pods/p/binding", binding).await;
    let request = seen();
    assert_eq!((request.text("operation"), request["kind"].text("kind")), ("CREATE", "Binding"));
    assert_eq!(request["object"]["target"].text("name"), "n");
}
