//! Who may do what, and how it is refused.

use http::{Method, Request};
use serde_json::{Value, json};

use crate::body::full;
use crate::testing::Server;

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Asks as another user, for whom the administrator acts. Nodes are in their group.
async fn ask(server: &Server, user: &str, method: &str, path: &str, body: Value) -> (u16, Value) {
    let mut request = Request::new(full(if body.is_null() { String::new() } else { body.to_string() }));
    *request.method_mut() = Method::from_bytes(method.as_bytes()).unwrap();
    *request.uri_mut() = path.parse().unwrap();
    let media = if method == "PATCH" { "application/apply-patch+yaml" } else { "application/json" };
    request.headers_mut().insert("content-type", media.parse().unwrap());
    request.headers_mut().insert("impersonate-user", user.parse().unwrap());
    if user.starts_with("system:node:") {
        request.headers_mut().insert("impersonate-group", "system:nodes".parse().unwrap());
    }
    server.ask(request).await
}

async fn code(server: &Server, user: &str, method: &str, path: &str, body: Value) -> u16 {
    ask(server, user, method, path, body).await.0
}

async fn message(server: &Server, user: &str, method: &str, path: &str, body: Value) -> String {
    let (_, answer) = ask(server, user, method, path, body).await;
    answer["message"].as_str().unwrap_or_default().to_owned()
}

/// A server on which some users have a role with rules.
async fn server(rules: Value, subjects: Value) -> Server {
    let server = Server::start().await;
    server.done("POST", ROLES, json!({"metadata": {"name": "r"}, "rules": rules})).await;
    let reference = json!({"apiGroup": super::GROUP, "kind": "Role", "name": "r"});
    let binding = json!({"metadata": {"name": "b"}, "roleRef": reference, "subjects": subjects});
    server.done("POST", BINDINGS, binding).await;
    server
}

/// For whom a request to list is taken, with such headers.
fn acting(
    server: &Server,
    user: &super::User,
    headers: &[(&'static str, &'static str)],
) -> Result<Option<super::User>, Box<setpoint_api::Status>> {
    let (mut parts, ()) = Request::get(MAPS).body(()).unwrap().into_parts();
    for (name, value) in headers {
        parts.headers.append(*name, value.parse().unwrap());
    }
    let target = crate::path::parse(MAPS);
    Ok(super::impersonated(&server.api.inner, user, &parts, &target)?.map(|acting| acting.user))
}

fn ann() -> Value {
    json!([{"kind": "User", "name": "ann"}])
}

#[tokio::test]
async fn rules_give_verbs_on_resources_and_nothing_else() {
    let rules = json!([
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "create"]},
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": ["mine"]},
        {"apiGroups": [""], "resources": ["pods/log", "*/status"], "verbs": ["*"]},
    ]);
    let server = server(rules, ann()).await;
    let map = |name: &str| json!({"metadata": {"name": name}});
    for (method, path, body, expected) in [
        ("GET", MAPS, Value::Null, 200),
        ("POST", MAPS, map("a"), 201),
        ("GET", "/api/v1/namespaces/default/configmaps/a", Value::Null, 200),
        ("DELETE", "/api/v1/namespaces/default/configmaps/a", Value::Null, 403),
        ("DELETE", MAPS, Value::Null, 403),
        ("GET", "/api/v1/namespaces/default/configmaps?watch=1", Value::Null, 403),
        ("GET", "/api/v1/namespaces/kube-system/configmaps", Value::Null, 403),
        ("GET", "/api/v1/configmaps", Value::Null, 403),
        ("GET", "/api/v1/namespaces/default/secrets/mine", Value::Null, 404),
        ("GET", "/api/v1/namespaces/default/secrets/other", Value::Null, 403),
        ("GET", "/api/v1/namespaces/default/secrets", Value::Null, 403),
        ("GET", "/api/v1/namespaces/default/pods/p", Value::Null, 403),
        ("GET", "/api/v1/namespaces/default/pods/p/status", Value::Null, 404),
        ("GET", "/apis/apps/v1/namespaces/default/deployments/d/status", Value::Null, 403),
        ("GET", "/apis/nowhere.example.com/v1/things", Value::Null, 403),
    ] {
        assert_eq!(code(&server, "ann", method, path, body).await, expected, "{method} {path}");
    }
}

#[tokio::test]
async fn a_refusal_says_who_may_not_do_what_and_where() {
    let server = Server::start().await;
    for (method, path, expected) in [
        (
            "GET",
            MAPS,
            "configmaps is forbidden: User \"bob\" cannot list resource \"configmaps\" in API group \"\" in the namespace \"default\"",
        ),
        (
            "GET",
            "/apis/apps/v1/namespaces/default/deployments/d/scale",
            "deployments.apps \"d\" is forbidden: User \"bob\" cannot get resource \"deployments/scale\" in API group \"apps\" in the namespace \"default\"",
        ),
        (
            "DELETE",
            "/api/v1/nodes",
            "nodes is forbidden: User \"bob\" cannot deletecollection resource \"nodes\" in API group \"\" at the cluster scope",
        ),
        (
            "GET",
            "/api/v1/namespaces/default",
            "namespaces \"default\" is forbidden: User \"bob\" cannot get resource \"namespaces\" in API group \"\" in the namespace \"default\"",
        ),
        ("GET", "/metrics", "forbidden: User \"bob\" cannot get path \"/metrics\""),
    ] {
        assert_eq!(message(&server, "bob", method, path, Value::Null).await, expected);
    }
}

#[tokio::test]
async fn bindings_are_for_users_groups_and_accounts_and_count_at_once() {
    let subjects = json!([
        {"kind": "Group", "name": "team"},
        {"kind": "ServiceAccount", "name": "robot", "namespace": "default"},
    ]);
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]);
    let server = server(rules, subjects).await;
    let robot = "system:serviceaccount:default:robot";
    assert_eq!(code(&server, robot, "GET", MAPS, Value::Null).await, 200);
    assert_eq!(code(&server, "system:serviceaccount:other:robot", "GET", MAPS, Value::Null).await, 403);
    assert_eq!(code(&server, "team", "GET", MAPS, Value::Null).await, 403);
    server.done("DELETE", &format!("{BINDINGS}/b"), Value::Null).await;
    assert_eq!(code(&server, robot, "GET", MAPS, Value::Null).await, 403);
}

#[tokio::test]
async fn a_binding_of_a_role_that_is_gone_is_named() {
    let server = server(json!([]), ann()).await;
    server.done("DELETE", &format!("{ROLES}/r"), Value::Null).await;
    let why = message(&server, "ann", "GET", MAPS, Value::Null).await;
    assert!(why.ends_with("\"default\": RBAC: role.rbac.authorization.k8s.io \"r\" not found"), "{why}");
}

#[tokio::test]
async fn nobody_gives_away_what_they_dont_have() {
    let rules = json!([
        {"apiGroups": [super::GROUP], "resources": ["roles", "rolebindings"], "verbs": ["create"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
    ]);
    let server = server(rules, ann()).await;
    let role = |name: &str, resource: &str, verbs: &[&str]| {
        let rule = json!({"apiGroups": [""], "resources": [resource], "verbs": verbs});
        json!({"metadata": {"name": name}, "rules": [rule]})
    };
    assert_eq!(code(&server, "ann", "POST", ROLES, role("own", "pods", &["get"])).await, 201);
    let why = message(&server, "ann", "POST", ROLES, role("more", "pods", &["get", "list", "watch"])).await;
    let expected = "roles.rbac.authorization.k8s.io \"more\" is forbidden: user \"ann\" (groups=[\"system:authenticated\"]) is \
                    attempting to grant RBAC permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"pods\"], \
                    Verbs:[\"list\" \"watch\"]}";
    assert_eq!(why, expected);
    server.done("POST", ROLES, role("big", "secrets", &["get"])).await;
    let bind = |role: &str| {
        let reference = json!({"apiGroup": super::GROUP, "kind": "Role", "name": role});
        json!({"metadata": {"name": format!("to-{role}")}, "roleRef": reference, "subjects": ann()})
    };
    assert_eq!(code(&server, "ann", "POST", BINDINGS, bind("own")).await, 201);
    assert_eq!(code(&server, "ann", "POST", BINDINGS, bind("big")).await, 403);
    assert_eq!(code(&server, "ann", "POST", BINDINGS, bind("none")).await, 404);
}

#[tokio::test]
async fn applying_what_is_not_there_needs_the_right_to_create() {
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["patch"]}]);
    let server = server(rules, ann()).await;
    let path = format!("{MAPS}/a?fieldManager=ann");
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    assert_eq!(code(&server, "ann", "PATCH", &path, map.clone()).await, 403);
    server.done("POST", MAPS, map.clone()).await;
    assert_eq!(code(&server, "ann", "PATCH", &path, map).await, 200);
}

#[tokio::test]
async fn acting_for_others_is_a_right_of_its_own() {
    let server = Server::start().await;
    server.api.prepare_roles().await.unwrap();
    let review = || json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let (_, answer) = ask(&server, "system:serviceaccount:a:robot", "POST", path, review()).await;
    let groups = json!(["system:serviceaccounts", "system:serviceaccounts:a", "system:authenticated"]);
    assert_eq!(answer["status"]["userInfo"]["groups"], groups);
    assert_eq!(code(&server, "system:anonymous", "POST", path, review()).await, 403);

    let bob = super::User { name: "bob".to_owned(), ..super::User::default() };
    let refused = acting(&server, &bob, &[("impersonate-user", "ann")]).unwrap_err();
    let expected = "configmaps is forbidden: User \"bob\" cannot impersonate-on:user-info:list resource \"configmaps\" in API group \"\" in the namespace \"default\"";
    assert_eq!(refused.message, expected);
    let refused = acting(&server, &bob, &[("impersonate-group", "team")]).unwrap_err();
    assert_eq!((refused.code, refused.reason.as_str()), (400, "BadRequest"));
}

#[tokio::test]
async fn everybody_may_ask_what_there_is_and_what_they_may_do() {
    let server = Server::start().await;
    server.api.prepare_roles().await.unwrap();
    for path in ["/api", "/apis/apps/v1", "/openapi/v2", "/version", "/readyz"] {
        assert_eq!(code(&server, "bob", "GET", path, Value::Null).await, 200, "{path}");
    }
    let review = json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "a"}}});
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let (code, answer) = ask(&server, "bob", "POST", path, review).await;
    assert_eq!((code, &answer["status"]), (201, &json!({"allowed": false})));
}

#[tokio::test]
async fn a_review_tells_which_binding_gives_it() {
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    let server = server(rules, ann()).await;
    let review = |user: &str, groups: &[&str]| {
        let attributes = json!({"verb": "get", "resource": "pods", "namespace": "default"});
        json!({"spec": {"user": user, "groups": groups, "resourceAttributes": attributes}})
    };
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let answer = server.done("POST", path, review("ann", &[])).await;
    let reason = "RBAC: allowed by RoleBinding \"b/default\" of Role \"r\" to User \"ann\"";
    assert_eq!(answer["status"], json!({"allowed": true, "reason": reason}));
    let answer = server.done("POST", path, review("bob", &["system:masters"])).await;
    assert_eq!(answer["status"], json!({"allowed": true}));
    let answer = server.done("POST", path, review("bob", &["others"])).await;
    assert_eq!(answer["status"], json!({"allowed": false}));
}

#[tokio::test]
async fn a_review_is_about_the_groups_that_it_names_and_no_others() {
    let server = Server::start().await;
    server.api.prepare_roles().await.unwrap();
    for (groups, expected) in [(json!([]), false), (json!(["system:authenticated"]), true)] {
        let spec = json!({"user": "bob", "groups": groups, "nonResourceAttributes": {"verb": "get", "path": "/api"}});
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let answer = server.done("POST", path, json!({"spec": spec})).await;
        assert_eq!(answer["status"]["allowed"], expected, "{groups}");
    }
}

/// Two nodes with a pod each. That on `a` needs the service account `robot`, the secret `s` and the map `m`.
async fn two_nodes() -> Server {
    let server = Server::start().await;
    server.api.prepare_roles().await.unwrap();
    for name in ["default", "robot"] {
        server.done("POST", "/api/v1/namespaces/default/serviceaccounts", json!({"metadata": {"name": name}})).await;
    }
    for name in ["s", "other"] {
        server.done("POST", "/api/v1/namespaces/default/secrets", json!({"metadata": {"name": name}})).await;
        server.done("POST", MAPS, json!({"metadata": {"name": name}})).await;
    }
    for (node, account, secret) in [("a", "robot", "s"), ("b", "default", "other")] {
        server.done("POST", "/api/v1/nodes", json!({"metadata": {"name": node}})).await;
        let volumes = json!([{"name": "v", "secret": {"secretName": secret}}]);
        let spec = json!({"nodeName": node, "serviceAccountName": account, "volumes": volumes, "containers": [
            {"name": "c", "image": "i", "envFrom": [{"configMapRef": {"name": secret}}]}]});
        let pod = json!({"metadata": {"name": format!("on-{node}")}, "spec": spec});
        server.done("POST", "/api/v1/namespaces/default/pods", pod).await;
    }
    server
}

#[tokio::test]
async fn a_node_gets_what_is_its_own_and_what_its_pods_need() {
    let server = two_nodes().await;
    let n = "/api/v1/namespaces/default";
    let lease = |name: &str| json!({"metadata": {"name": name}, "spec": {}});
    for (method, path, body, expected) in [
        ("GET", "/api/v1/nodes/a", Value::Null, 200),
        ("GET", "/api/v1/nodes/b", Value::Null, 403),
        ("GET", "/api/v1/nodes", Value::Null, 403),
        ("GET", "/api/v1/nodes?fieldSelector=metadata.name%3Da", Value::Null, 200),
        ("DELETE", "/api/v1/nodes/a", Value::Null, 403),
        ("GET", "/api/v1/pods", Value::Null, 403),
        ("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Da", Value::Null, 200),
        ("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Db", Value::Null, 403),
        ("GET", &format!("{n}/pods/on-a"), Value::Null, 200),
        ("GET", &format!("{n}/pods/on-b"), Value::Null, 403),
        ("GET", &format!("{n}/secrets/s"), Value::Null, 200),
        ("GET", &format!("{n}/secrets/other"), Value::Null, 403),
        ("GET", &format!("{n}/secrets"), Value::Null, 403),
        ("GET", &format!("{n}/secrets?fieldSelector=metadata.name%3Ds"), Value::Null, 200),
        ("DELETE", &format!("{n}/secrets/s"), Value::Null, 403),
        ("GET", &format!("{n}/configmaps/s"), Value::Null, 200),
        ("GET", &format!("{n}/configmaps/other"), Value::Null, 403),
        ("GET", &format!("{n}/serviceaccounts/robot"), Value::Null, 200),
        ("GET", &format!("{n}/serviceaccounts/default"), Value::Null, 403),
        ("GET", "/api/v1/services", Value::Null, 200),
        ("GET", "/apis/apps/v1/deployments", Value::Null, 403),
        ("POST", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", lease("a"), 201),
        ("POST", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", lease("b"), 403),
        ("POST", "/apis/coordination.k8s.io/v1/namespaces/default/leases", lease("a"), 403),
        ("POST", "/api/v1/nodes", json!({"metadata": {"name": "c"}}), 403),
        (
            "POST",
            &format!("{n}/pods"),
            json!({"metadata": {"name": "x"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}),
            403,
        ),
        ("DELETE", &format!("{n}/pods/on-b"), Value::Null, 403),
        ("DELETE", &format!("{n}/pods/on-a"), Value::Null, 200),
    ] {
        assert_eq!(code(&server, "system:node:a", method, path, body).await, expected, "{method} {path}");
    }
}

#[tokio::test]
async fn a_node_is_told_why_not() {
    let server = two_nodes().await;
    let said = message(&server, "system:node:a", "GET", "/api/v1/namespaces/default/secrets/other", Value::Null).await;
    let refused = "secrets \"other\" is forbidden: User \"system:node:a\" cannot get resource \"secrets\" in API group \"\" in the namespace \"default\"";
    assert_eq!(said, format!("{refused}: no relationship found between node 'a' and this object"));
    let (_, mut node) = ask(&server, "system:node:a", "GET", "/api/v1/nodes/a", Value::Null).await;
    node["spec"]["taints"] = json!([{"key": "k", "effect": "NoSchedule"}]);
    let said = message(&server, "system:node:a", "PUT", "/api/v1/nodes/a", node).await;
    assert_eq!(said, "nodes \"a\" is forbidden: node \"a\" is not allowed to modify taints");
    let (_, mut node) = ask(&server, "system:node:a", "GET", "/api/v1/nodes/a", Value::Null).await;
    node["metadata"]["labels"]["node-restriction.kubernetes.io/x"] = json!("y");
    let said = message(&server, "system:node:a", "PUT", "/api/v1/nodes/a", node).await;
    assert_eq!(said, "nodes \"a\" is forbidden: is not allowed to modify labels: node-restriction.kubernetes.io/x");
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "on-b"}});
    let said =
        message(&server, "system:node:a", "POST", "/api/v1/namespaces/default/pods/on-b/eviction", eviction).await;
    assert_eq!(said, "pods \"on-b\" is forbidden: node a can only evict pods with spec.nodeName set to itself");
    let token = json!({"spec": {"audiences": []}});
    let said =
        message(&server, "system:node:a", "POST", "/api/v1/namespaces/default/serviceaccounts/robot/token", token)
            .await;
    assert_eq!(said, "serviceaccounts \"robot\" is forbidden: node requested token not bound to a pod");
    let said = message(&server, "system:node:", "GET", "/api/v1/nodes", Value::Null).await;
    assert!(said.ends_with(": unknown node for user \"system:node:\""), "{said}");
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_when_the_right_to_it_does() {
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["watch"]}]);
    let server = server(rules, ann()).await;
    tokio::spawn(server.api.tend());
    let mut request = Request::new(full(String::new()));
    *request.uri_mut() = format!("{MAPS}?watch=1&timeoutSeconds=3600").parse().unwrap();
    request.headers_mut().insert("impersonate-user", "ann".parse().unwrap());
    let watching = server.text(request);
    tokio::pin!(watching);
    let minute = std::time::Duration::from_secs(60);
    server.done("POST", MAPS, json!({"metadata": {"name": "early"}})).await;
    server.done("POST", ROLES, json!({"metadata": {"name": "other"}, "rules": []})).await;
    assert!(tokio::time::timeout(minute, &mut watching).await.is_err(), "a change that takes nothing from ann");
    server.done("DELETE", &format!("{BINDINGS}/b"), Value::Null).await;
    server.done("POST", MAPS, json!({"metadata": {"name": "late"}})).await;
    let seen = tokio::time::timeout(minute, watching).await.expect("it ends at once");
    assert!(seen.contains("\"early\"") && !seen.contains("\"late\""), "{seen}");
}

#[tokio::test]
async fn a_later_start_gives_default_roles_what_they_lack_and_keeps_what_was_added() {
    let server = Server::start().await;
    server.api.prepare_roles().await.unwrap();
    let role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:controller:job-controller";
    let binding = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/system:controller:job-controller";
    let before = server.done("GET", role, Value::Null).await;
    let own = json!({"apiGroups": ["example.com"], "resources": ["things"], "verbs": ["get"]});
    let kept = before["rules"][0].clone();
    server.done("PATCH", role, json!({"rules": [own, kept]})).await;
    let ann = json!({"kind": "User", "name": "ann", "apiGroup": super::GROUP});
    server.done("PATCH", binding, json!({"subjects": [ann]})).await;
    server.api.prepare_roles().await.unwrap();
    let after = server.done("GET", role, Value::Null).await;
    let rules = after["rules"].as_array().unwrap();
    assert_eq!(rules.len(), before["rules"].as_array().unwrap().len() + 1, "{after}");
    assert!(rules.contains(&own) && before["rules"].as_array().unwrap().iter().all(|rule| rules.contains(rule)));
    let subjects = server.done("GET", binding, Value::Null).await["subjects"].as_array().unwrap().len();
    assert_eq!(subjects, 2, "ann and the controller");
    let version = after["metadata"]["resourceVersion"].clone();
    server.api.prepare_roles().await.unwrap();
    assert_eq!(
        server.done("GET", role, Value::Null).await["metadata"]["resourceVersion"],
        version,
        "nothing is lacking"
    );
    let left =
        json!({"metadata": {"annotations": {"rbac.authorization.kubernetes.io/autoupdate": "false"}}, "rules": []});
    server.done("PATCH", role, left).await;
    server.api.prepare_roles().await.unwrap();
    let alone = server.done("GET", role, Value::Null).await;
    assert!(alone["rules"].as_array().is_none_or(Vec::is_empty), "{alone}");
}

/// The right to write the approval or the status of a request is not enough: it takes one for the signer, by name or for all of
/// its domain.
#[tokio::test]
async fn who_approves_or_signs_has_to_be_allowed_to_signer_by_signer() {
    const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
    let server = Server::start().await;
    let key = rcgen::KeyPair::generate().unwrap();
    let pem = rcgen::CertificateParams::default().serialize_request(&key).unwrap().pem().unwrap();
    let spec = json!({
        "request": setpoint_schema::base64::encode(pem.as_bytes()),
        "signerName": "example.com/one", "usages": ["client auth"],
    });
    server.done("POST", REQUESTS, json!({"metadata": {"name": "c"}, "spec": spec})).await;
    for (user, verb, signer) in [
        ("nobody", "", ""),
        ("other", "*", "example.com/two"),
        ("approver", "approve", "example.com/one"),
        ("signer", "sign", "example.com/*"),
    ] {
        let parts = ["certificatesigningrequests/approval", "certificatesigningrequests/status"];
        let mut rules = vec![json!({"apiGroups": ["certificates.k8s.io"], "resources": parts, "verbs": ["update"]})];
        if !verb.is_empty() {
            let signers = json!({"apiGroups": ["certificates.k8s.io"], "resources": ["signers"], "resourceNames": [signer], "verbs": [verb]});
            rules.push(signers);
        }
        server.done("POST", &format!("{RBAC}/clusterroles"), json!({"metadata": {"name": user}, "rules": rules})).await;
        let reference = json!({"apiGroup": super::GROUP, "kind": "ClusterRole", "name": user});
        let subjects = json!([{"kind": "User", "name": user}]);
        let binding = json!({"metadata": {"name": user}, "roleRef": reference, "subjects": subjects});
        server.done("POST", &format!("{RBAC}/clusterrolebindings"), binding).await;
    }
    let refusal = |verb: &str| {
        format!(
            "certificatesigningrequests.certificates.k8s.io \"c\" is forbidden: user not permitted to {verb} requests with \
             signerName \"example.com/one\""
        )
    };
    let condition = |kind: &str| json!([{"type": kind, "status": "True", "reason": "Tested", "message": "by a test"}]);
    let mut request = server.done("GET", &format!("{REQUESTS}/c"), Value::Null).await;
    request["status"]["conditions"] = condition("Approved");
    for user in ["nobody", "other", "signer"] {
        let said = message(&server, user, "PUT", &format!("{REQUESTS}/c/approval"), request.clone()).await;
        assert_eq!(said, refusal("approve"), "{user}");
    }
    let (code, mut request) = ask(&server, "approver", "PUT", &format!("{REQUESTS}/c/approval"), request).await;
    assert_eq!(code, 200, "{request}");
    let unchanged = request.clone();
    request["status"]["conditions"].as_array_mut().unwrap().extend(condition("Failed").as_array().unwrap().clone());
    for user in ["nobody", "other", "approver"] {
        let said = message(&server, user, "PUT", &format!("{REQUESTS}/c/status"), request.clone()).await;
        assert_eq!(said, refusal("sign"), "{user}");
        assert_eq!(self::code(&server, user, "PUT", &format!("{REQUESTS}/c/status"), unchanged.clone()).await, 200);
    }
    assert_eq!(self::code(&server, "signer", "PUT", &format!("{REQUESTS}/c/status"), request).await, 200);
}

/// Sends a body of a media type as another user.
async fn send(server: &Server, user: &str, method: &str, path: &str, media: &str, body: &Value) -> u16 {
    let request = Request::builder().method(method).uri(path).header("content-type", media);
    server.ask(request.header("impersonate-user", user).body(full(body.to_string())).unwrap()).await.0
}

#[tokio::test]
async fn a_role_grows_by_no_other_way_either() {
    let rules = json!([
        {"apiGroups": [super::GROUP], "resources": ["roles", "rolebindings"], "verbs": ["create", "get", "update", "patch"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
    ]);
    let server = server(rules, ann()).await;
    let small = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    let big = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]);
    let role = server.done("POST", ROLES, json!({"metadata": {"name": "small"}, "rules": small})).await;
    let path = format!("{ROLES}/small");
    let mut whole = role.clone();
    whole["rules"] = big.clone();
    let head = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "small"}});
    let mut applied = head.clone();
    applied["rules"] = big.clone();
    let operation = json!([{"op": "replace", "path": "/rules", "value": big}]);
    for (method, query, media, body) in [
        ("PUT", "", "application/json", &whole),
        ("PATCH", "", "application/merge-patch+json", &json!({"rules": big})),
        ("PATCH", "", "application/strategic-merge-patch+json", &json!({"rules": big})),
        ("PATCH", "", "application/json-patch+json", &operation),
        ("PATCH", "?fieldManager=ann&force=true", "application/apply-patch+yaml", &applied),
    ] {
        let code = send(&server, "ann", method, &format!("{path}{query}"), media, body).await;
        assert_eq!(code, 403, "{method} {media}");
    }
    assert_eq!(server.done("GET", &path, Value::Null).await["rules"], small);
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    assert_eq!(send(&server, "ann", "PATCH", &path, "application/merge-patch+json", &label).await, 200);

    // Nor does a binding come to give more to others than its author has.
    server.done("POST", ROLES, json!({"metadata": {"name": "big"}, "rules": big})).await;
    let reference = json!({"apiGroup": super::GROUP, "kind": "Role", "name": "big"});
    let binding = json!({"metadata": {"name": "big"}, "roleRef": reference, "subjects": []});
    server.done("POST", BINDINGS, binding).await;
    let subjects = json!({"subjects": [{"kind": "User", "name": "ann", "apiGroup": super::GROUP}]});
    let code =
        send(&server, "ann", "PATCH", &format!("{BINDINGS}/big"), "application/merge-patch+json", &subjects).await;
    assert_eq!(code, 403);
}

#[tokio::test]
async fn escalate_and_bind_are_rights_of_their_own() {
    let rule = |resources: Value, verbs: Value, names: Value| {
        let mut rule = json!({"apiGroups": [super::GROUP], "resources": resources, "verbs": verbs});
        if !names.is_null() {
            rule["resourceNames"] = names;
        }
        rule
    };
    let rules = json!([
        rule(json!(["roles", "rolebindings"]), json!(["create"]), Value::Null),
        rule(json!(["roles"]), json!(["bind"]), json!(["named"])),
    ]);
    let server = server(rules, ann()).await;
    let secrets = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["*"]}]);
    for name in ["named", "other"] {
        server.done("POST", ROLES, json!({"metadata": {"name": name}, "rules": secrets})).await;
    }
    let bind = |role: &str| {
        let reference = json!({"apiGroup": super::GROUP, "kind": "Role", "name": role});
        json!({"metadata": {"name": format!("to-{role}")}, "roleRef": reference, "subjects": ann()})
    };
    assert_eq!(code(&server, "ann", "POST", BINDINGS, bind("other")).await, 403);
    assert_eq!(code(&server, "ann", "POST", BINDINGS, bind("named")).await, 201);
    let role = |name: &str| json!({"metadata": {"name": name}, "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]});
    assert_eq!(code(&server, "ann", "POST", ROLES, role("all")).await, 403);
    // What is wrong with it is not told to who may not give it.
    assert_eq!(code(&server, "ann", "POST", ROLES, role("no/name")).await, 403);
    let more = rule(json!(["roles"]), json!(["escalate"]), Value::Null);
    server.done("POST", ROLES, json!({"metadata": {"name": "escalates"}, "rules": [more]})).await;
    server.done("POST", BINDINGS, bind("escalates")).await;
    assert_eq!(code(&server, "ann", "POST", ROLES, role("all")).await, 201);
}

#[tokio::test]
async fn only_who_may_everything_lets_a_role_take_in_others() {
    const CLUSTER: &str = "/apis/rbac.authorization.k8s.io/v1";
    let server = Server::start().await;
    let selectors = json!({"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]});
    let role = |name: &str| json!({"metadata": {"name": name}, "rules": [], "aggregationRule": selectors});
    let create = json!({"apiGroups": [super::GROUP], "resources": ["clusterroles"], "verbs": ["create"]});
    let everything = [
        json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}),
        json!({"nonResourceURLs": ["*"], "verbs": ["*"]}),
    ];
    for (user, rules) in [("ann", vec![create]), ("root", everything.to_vec())] {
        server
            .done("POST", &format!("{CLUSTER}/clusterroles"), json!({"metadata": {"name": user}, "rules": rules}))
            .await;
        let reference = json!({"apiGroup": super::GROUP, "kind": "ClusterRole", "name": user});
        let subjects = json!([{"kind": "User", "name": user}]);
        let binding = json!({"metadata": {"name": user}, "roleRef": reference, "subjects": subjects});
        server.done("POST", &format!("{CLUSTER}/clusterrolebindings"), binding).await;
    }
    let path = format!("{CLUSTER}/clusterroles");
    let why = message(&server, "ann", "POST", &path, role("wide")).await;
    let expected = "clusterroles.rbac.authorization.k8s.io \"wide\" is forbidden: must have cluster-admin privileges to use the aggregationRule";
    assert_eq!(why, expected);
    assert_eq!(code(&server, "root", "POST", &path, role("wide")).await, 201);
}

#[tokio::test]
async fn each_part_of_somebody_else_is_a_right_of_its_own() {
    let server = Server::start().await;
    let user =
        super::User { name: "bob".to_owned(), groups: vec!["system:authenticated".into()], ..super::User::default() };
    const CLUSTER: &str = "/apis/rbac.authorization.k8s.io/v1";
    let rules = json!([
        {"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"], "resourceNames": ["ann"]},
        {"apiGroups": [""], "resources": ["groups"], "verbs": ["impersonate"], "resourceNames": ["team"]},
        {"apiGroups": ["authentication.k8s.io"], "resources": ["userextras/scopes"], "verbs": ["impersonate"], "resourceNames": ["read"]},
        {"apiGroups": ["authentication.k8s.io"], "resources": ["uids"], "verbs": ["impersonate"], "resourceNames": ["1-2"]},
    ]);
    server
        .done("POST", &format!("{CLUSTER}/clusterroles"), json!({"metadata": {"name": "acts"}, "rules": rules}))
        .await;
    let reference = json!({"apiGroup": super::GROUP, "kind": "ClusterRole", "name": "acts"});
    let binding =
        json!({"metadata": {"name": "acts"}, "roleRef": reference, "subjects": [{"kind": "User", "name": "bob"}]});
    server.done("POST", &format!("{CLUSTER}/clusterrolebindings"), binding).await;
    let act = |headers: &[(&'static str, &'static str)]| acting(&server, &user, headers);
    let ann = ("impersonate-user", "ann");
    let all = [ann, ("impersonate-group", "team"), ("impersonate-uid", "1-2"), ("impersonate-extra-scopes", "read")];
    assert!(act(&all).unwrap().is_some_and(|acted| acted.uid == "1-2" && acted.extra["scopes"] == ["read"]));
    for more in [
        ("impersonate-user", "root"),
        ("impersonate-group", "system:masters"),
        ("impersonate-uid", "3-4"),
        ("impersonate-extra-scopes", "write"),
        ("impersonate-extra-other", "read"),
        ("impersonate-user", "system:serviceaccount:a:b"),
    ] {
        let headers =
            if more.0 == "impersonate-user" { vec![more] } else { vec![ann, ("impersonate-group", "team"), more] };
        let refused = act(&headers).map(|_| ()).unwrap_err();
        assert!(refused.code == 403 && refused.message.contains("cannot impersonate"), "{more:?}: {refused}");
    }
}

#[tokio::test]
async fn nobody_asks_for_a_certificate_of_those_who_may_everything() {
    const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let server = Server::start().await;
    let key = rcgen::KeyPair::generate().unwrap();
    let request = |name: &str, groups: &[&str], signer: &str| {
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::CommonName, "eve");
        groups.iter().for_each(|group| params.distinguished_name.push(rcgen::DnType::OrganizationName, *group));
        let pem = params.serialize_request(&key).unwrap().pem().unwrap();
        let request = setpoint_schema::base64::encode(pem.as_bytes());
        json!({"metadata": {"name": name}, "spec": {"request": request, "signerName": signer, "usages": ["client auth"]}})
    };
    let client = "kubernetes.io/kube-apiserver-client";
    let (code, why) = server.refused("POST", REQUESTS, request("masters", &["system:masters"], client)).await;
    let expected = "certificatesigningrequests.certificates.k8s.io \"masters\" is forbidden: use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed";
    assert_eq!((code, &*why), (403, expected));
    server.done("POST", REQUESTS, request("team", &["team"], client)).await;
}
