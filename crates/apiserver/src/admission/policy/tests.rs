//! Policies through the whole server.

use http::Request;
use serde_json::{Value, json};
use setpoint_schema::Edit;
use tower::ServiceExt;

use crate::body::full;
use crate::testing::Server;
use crate::user::User;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"k": "v"}})
}

/// A policy for ConfigMaps with one binding; both take over the fields that are given.
async fn make(server: &Server, sort: &str, spec: Value, binding: Value) {
    let rules = json!([{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["*"]}]);
    let mut policy = json!({"metadata": {"name": "p"}, "spec": {"matchConstraints": {"resourceRules": rules}}});
    spec.as_object().unwrap().iter().for_each(|(field, value)| policy["spec"].set(field, value.clone()));
    server.done("POST", &format!("{GROUP}/{sort}policies"), policy).await;
    let mut bound = json!({"metadata": {"name": "b"}, "spec": {"policyName": "p"}});
    if sort.starts_with("validating") {
        bound["spec"].set("validationActions", json!(["Deny"]));
    }
    binding.as_object().unwrap().iter().for_each(|(field, value)| bound["spec"].set(field, value.clone()));
    server.done("POST", &format!("{GROUP}/{sort}policybindings"), bound).await;
}

async fn rule(server: &Server, spec: Value) {
    make(server, "validatingadmission", spec, json!({})).await;
}

async fn change(server: &Server, spec: Value) {
    let mut whole = json!({"reinvocationPolicy": "Never"});
    spec.as_object().unwrap().iter().for_each(|(field, value)| whole.set(field, value.clone()));
    make(server, "mutatingadmission", whole, json!({})).await;
}

/// What a policy with these fields says against a ConfigMap; nothing if it is taken.
async fn check(spec: Value, expected: Option<(u16, &str)>) {
    let server = Server::start().await;
    rule(&server, spec.clone()).await;
    let (code, answer) = server.send("POST", MAPS, map("a")).await;
    match expected {
        None => assert_eq!(code, 201, "{spec}: {answer}"),
        Some((expected, why)) => {
            let why = format!("ValidatingAdmissionPolicy 'p' with binding 'b' denied request: {why}");
            assert_eq!((code, answer.text("message")), (expected, &*format!("configmaps \"a\" is forbidden: {why}")));
            assert_eq!(answer["details"]["causes"], json!([{"message": why}]));
        }
    }
}

#[tokio::test]
async fn an_expression_that_is_not_true_refuses_with_the_best_message_there_is() {
    let validation = |more: Value| {
        let mut validation = json!({"expression": "object.data.size() > 1"});
        more.as_object().unwrap().iter().for_each(|(field, value)| validation.set(field, value.clone()));
        json!({"validations": [validation]})
    };
    check(json!({"validations": [{"expression": "object.data.size() == 1"}]}), None).await;
    check(validation(json!({})), Some((422, "failed expression: object.data.size() > 1"))).await;
    check(validation(json!({"message": "too few", "reason": "Forbidden"})), Some((403, "too few"))).await;
    let expression = json!({"messageExpression": "'few in ' + object.metadata.name"});
    check(validation(expression), Some((422, "few in a"))).await;
    let broken = json!({"messageExpression": "string(object.data.none)", "message": "so"});
    check(validation(broken), Some((422, "so"))).await;
    let failing = "expression 'object.data.none == 'x'' resulted in error: no such key: none";
    check(json!({"validations": [{"expression": "object.data.none == 'x'"}]}), Some((422, failing))).await;
    let lenient = json!({"failurePolicy": "Ignore", "validations": [{"expression": "object.data.none == 'x'"}]});
    check(lenient, None).await;
}

#[tokio::test]
async fn expressions_see_the_request_its_namespace_variables_and_rights() {
    for expression in [
        "request.operation == 'CREATE' && request.userInfo.username == 'admin' && !request.dryRun",
        "request.resource.resource == 'configmaps' && request.kind.kind == 'ConfigMap'",
        "namespaceObject.metadata.name == 'default' && namespaceObject.metadata.labels['kubernetes.io/metadata.name'] == 'default'",
        "oldObject == null",
        "authorizer.group('').resource('secrets').namespace('default').check('get').allowed()",
        "!authorizer.serviceAccount('default', 'x').group('').resource('secrets').namespace('default').check('get').allowed()",
        "authorizer.requestResource.check('create').allowed()",
        "authorizer.path('/healthz').check('get').allowed()",
    ] {
        check(json!({"validations": [{"expression": expression}]}), None).await;
    }
    let variables = json!([
        {"name": "size", "expression": "object.data.size()"},
        {"name": "twice", "expression": "variables.size * 2"},
        {"name": "broken", "expression": "object.data.none"},
    ]);
    let with = |expression: &str| json!({"variables": variables, "validations": [{"expression": expression}]});
    check(with("variables.twice == 2 && has(variables.size)"), None).await;
    // What nobody asks for does no harm.
    check(with("variables.size == 1 || variables.broken == 'x'"), None).await;
    let why = "expression 'variables.broken == 'x'' resulted in error: composited variable \"broken\" fails to evaluate: no such key: none";
    check(with("variables.broken == 'x'"), Some((422, why))).await;
}

#[tokio::test]
async fn conditions_choose_what_a_policy_is_about() {
    let with = |condition: &str| json!({"matchConditions": [{"name": "n", "expression": condition}], "validations": [{"expression": "false", "message": "no"}]});
    check(with("object.metadata.name == 'b'"), None).await;
    check(with("object.metadata.name == 'a'"), Some((422, "no"))).await;
    let why = "expression 'object.data.none == 'x'' resulted in error: no such key: none";
    check(with("object.data.none == 'x'"), Some((422, why))).await;
}

#[tokio::test]
async fn a_binding_says_what_follows_and_where() {
    let server = Server::start().await;
    let elsewhere = json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "other"}}});
    let spec = json!({"validations": [{"expression": "false", "message": "no"}]});
    make(&server, "validatingadmission", spec, json!({"validationActions": ["Warn", "Audit"]})).await;
    let mut request =
        Request::post(MAPS).header("content-type", "application/json").body(full(map("a").to_string())).unwrap();
    let user = User { name: "admin".into(), groups: vec!["system:masters".into()], ..User::default() };
    request.extensions_mut().insert(std::sync::Arc::new(user));
    let Ok(response) = server.api.clone().oneshot(request).await;
    let expected = "299 - \"Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': no\"";
    assert_eq!((response.status().as_u16(), &response.headers()["warning"]), (201, &expected.parse().unwrap()));
    let patch = json!({"spec": {"validationActions": ["Deny"], "matchResources": elsewhere}});
    server.done("PATCH", &format!("{GROUP}/validatingadmissionpolicybindings/b"), patch).await;
    server.done("POST", MAPS, map("b")).await;
}

#[tokio::test]
async fn parameters_come_from_the_objects_that_a_binding_names() {
    let server = Server::start().await;
    let spec = json!({
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "matchConditions": [{"name": "own", "expression": "!has(object.metadata.labels)"}],
        "validations": [{"expression": "object.data.size() <= int(params.data.most)", "messageExpression": "'at most ' + params.data.most"}],
    });
    let reference = json!({"paramRef": {"name": "limits", "parameterNotFoundAction": "Deny"}});
    make(&server, "validatingadmission", spec, reference).await;
    let (code, message) = server.refused("POST", MAPS, map("a")).await;
    let expected = "configmaps \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction";
    assert_eq!((code, &*message), (422, expected));
    let bindings = format!("{GROUP}/validatingadmissionpolicybindings/b");
    server.done("PATCH", &bindings, json!({"spec": {"paramRef": {"parameterNotFoundAction": "Allow"}}})).await;
    let limits = |name: &str, most: &str| json!({"metadata": {"name": name, "labels": {"limits": "yes"}}, "data": {"most": most}});
    server.done("POST", MAPS, limits("limits", "0")).await;
    let (_, message) = server.refused("POST", MAPS, map("a")).await;
    assert!(message.ends_with("denied request: at most 0"), "{message}");
    let selected = json!({"spec": {"paramRef": {"name": null, "selector": {"matchLabels": {"limits": "yes"}}}}});
    server.done("PATCH", &bindings, selected).await;
    server.done("PATCH", &format!("{MAPS}/limits"), json!({"data": {"most": "5"}})).await;
    server.done("POST", MAPS, map("a")).await;
}

#[tokio::test]
async fn a_policy_changes_objects_by_applying_and_by_patching() {
    let server = Server::start().await;
    let apply = "Object{metadata: Object.metadata{labels: {'made-by': request.userInfo.username}}}";
    let patch = "[JSONPatch{op: 'test', path: '/data/k', value: 'v'}, JSONPatch{op: 'add', path: '/data/' + jsonpatch.escapeKey('a.b'), value: variables.size}]";
    let mutations = json!([
        {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": apply}},
        {"patchType": "JSONPatch", "jsonPatch": {"expression": patch}},
    ]);
    let variables = json!([{"name": "size", "expression": "string(object.data.size())"}]);
    change(&server, json!({"mutations": mutations, "variables": variables})).await;
    let made = server.done("POST", MAPS, map("a")).await;
    assert_eq!(
        (&made["metadata"]["labels"], &made["data"]),
        (&json!({"made-by": "admin"}), &json!({"a.b": "1", "k": "v"}))
    );
    let other = json!({"metadata": {"name": "b"}, "data": {"k": "w"}});
    let made = server.done("POST", MAPS, other).await;
    assert_eq!(made["data"], json!({"k": "w"}), "the test fails, so nothing is patched");
    server.done("DELETE", &format!("{MAPS}/a"), Value::Null).await;
}

#[tokio::test]
async fn a_change_that_can_not_be_made_refuses() {
    let server = Server::start().await;
    let expression = "Object{spec: Object.spec{size: 1}}";
    let mutations = json!([{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}]);
    change(&server, json!({"mutations": mutations})).await;
    let (code, answer) = server.send("POST", MAPS, map("a")).await;
    let expected = "policy 'p' with binding 'b' denied request: error applying patch: failed to convert patch object to typed object: .spec: field not declared in schema";
    assert_eq!((code, answer.text("reason"), answer.text("message")), (403, "Invalid", expected));
    let policy = format!("{GROUP}/mutatingadmissionpolicies/p");
    server.done("PATCH", &policy, json!({"spec": {"failurePolicy": "Ignore"}})).await;
    server.done("POST", MAPS, map("a")).await;
}

#[tokio::test]
async fn expressions_are_checked_against_the_kinds_that_a_policy_names() {
    let server = Server::start().await;
    let rules = |resource: &str, group: &str| json!({"resourceRules": [{"apiGroups": [group], "apiVersions": ["v1"], "resources": [resource], "operations": ["*"]}]});
    let policy = |name: &str, constraints: Value, expression: &str| json!({"metadata": {"name": name}, "spec": {"matchConstraints": constraints, "validations": [{"expression": expression}]}});
    let policies = format!("{GROUP}/validatingadmissionpolicies");
    server.done("POST", &policies, policy("good", rules("deployments", "apps"), "object.spec.replicas > 1")).await;
    server.done("POST", &policies, policy("bad", rules("deployments", "apps"), "object.spec.replicas > '1'")).await;
    server.done("POST", &policies, policy("wide", rules("*", "apps"), "object.spec.replicas > '1'")).await;
    let checking = tokio::spawn(server.api.check_policies());
    let status = async |name: &str| loop {
        let status = server.done("GET", &format!("{policies}/{name}"), Value::Null).await["status"].clone();
        if status.has("observedGeneration") {
            return status;
        }
        tokio::task::yield_now().await;
    };
    for name in ["good", "wide"] {
        assert_eq!(status(name).await, json!({"observedGeneration": 1, "typeChecking": {}}), "{name}");
    }
    let warning = status("bad").await["typeChecking"]["expressionWarnings"][0].clone();
    assert_eq!(warning.text("fieldRef"), "spec.validations[0].expression");
    let expected = "apps/v1, Kind=Deployment: compilation failed: ERROR: <input>:1:22: found no matching overload for '_>_' applied to '(int, string)'\n | object.spec.replicas > '1'\n | .....................^\n";
    assert_eq!(warning.text("warning"), expected);
    checking.abort();
}
