//! Who may act as whom, and by which of the rights.

use http::Request;
use serde_json::{Value, json};

use super::{Acting, User};
use crate::body::full;
use crate::testing::Server;

const CLUSTER: &str = "/apis/rbac.authorization.k8s.io/v1";
const AGENT: &str = "system:serviceaccount:default:agent";
const PODS: &str = "/api/v1/namespaces/default/pods";

/// A server on which everybody who is known has these rules. Each is written as `verb resource`, or `verb resource name`, where the
/// resource of an API group other than the core's follows its group and a slash, or as `verb /path`.
async fn server(rules: &[&str]) -> Server {
    let rules: Vec<Value> = rules.iter().map(|rule| rule_of(rule)).collect();
    let server = Server::start().await;
    let role = json!({"metadata": {"name": "acts"}, "rules": rules});
    server.done("POST", &format!("{CLUSTER}/clusterroles"), role).await;
    let reference = json!({"apiGroup": super::super::GROUP, "kind": "ClusterRole", "name": "acts"});
    let subjects = json!([{"kind": "User", "name": "bob"}, {"kind": "User", "name": AGENT}]);
    let binding = json!({"metadata": {"name": "acts"}, "roleRef": reference, "subjects": subjects});
    server.done("POST", &format!("{CLUSTER}/clusterrolebindings"), binding).await;
    server
}

fn rule_of(text: &str) -> Value {
    let words: Vec<&str> = text.split(' ').collect();
    if words[1].starts_with('/') {
        return json!({"nonResourceURLs": [words[1]], "verbs": [words[0]]});
    }
    let (group, resource) = match words[1].strip_prefix("authn/") {
        Some(resource) => ("authentication.k8s.io", resource),
        None => ("", words[1]),
    };
    json!({"apiGroups": [group], "resources": [resource], "verbs": [words[0]], "resourceNames": &words[2..]})
}

/// What becomes of a wish of somebody: `NAME [GROUPS] CONSTRAINT`, or the words of the refusal.
fn outcome(server: &Server, requestor: &User, path: &str, headers: &[(&str, &str)]) -> Result<String, String> {
    let mut request = Request::get(path);
    for (name, value) in headers {
        request = request.header(format!("impersonate-{name}"), *value);
    }
    let (parts, ()) = request.body(()).unwrap().into_parts();
    let target = crate::path::parse(parts.uri.path());
    let acting = super::impersonated(&server.api.inner, requestor, &parts, &target);
    let acting = acting.map_err(|refused| refused.message.clone())?;
    let Acting { user, constraint } = acting.expect("somebody is wished for");
    Ok(format!("{} [{}] {}", user.name, user.groups.join(","), constraint.unwrap_or("legacy")))
}

fn bob() -> User {
    User { name: "bob".to_owned(), groups: vec!["system:authenticated".to_owned()], ..User::default() }
}

/// An account whose token is bound to a pod on this node.
fn agent_on(node: &str) -> User {
    let extra = [("authentication.kubernetes.io/node-name".to_owned(), vec![node.to_owned()])];
    User { name: AGENT.to_owned(), extra: extra.into(), ..User::default() }
}

#[track_caller]
fn check(rules: &[&str], found: &Result<String, String>, expected: Result<&str, &str>) {
    assert_eq!(found.as_ref().map(String::as_str).map_err(String::as_str), expected, "with {rules:?}");
}

#[tokio::test]
async fn both_to_be_somebody_and_to_do_it_as_somebody_has_to_be_allowed() {
    let on = "impersonate-on:user-info:list pods";
    let be = "impersonate:user-info authn/users ann";
    let list = "User \"bob\" cannot impersonate-on:user-info:list resource \"pods\" in API group \"\" in the namespace \"default\"";
    let list = format!("pods is forbidden: {list}");
    let ann = "users.authentication.k8s.io \"ann\" is forbidden: User \"bob\" cannot impersonate:user-info resource \"users\" in API group \"authentication.k8s.io\" at the cluster scope";
    let table: [(&[&str], &str, Result<&str, &str>); 6] = [
        (&[], PODS, Err(&list)),
        (&[on], PODS, Err(ann)),
        (&[be], PODS, Err(&list)),
        (&[on, be], PODS, Ok("ann [system:authenticated] impersonate:user-info")),
        // Another name of the group in which the old right to be users stands is no right.
        (&[on, "impersonate:user-info users ann"], PODS, Err(ann)),
        // What was allowed is to list, and pods.
        (
            &[on, be],
            "/api/v1/namespaces/default/pods/p",
            Err(
                "pods \"p\" is forbidden: User \"bob\" cannot impersonate-on:user-info:get resource \"pods\" in API group \"\" in the namespace \"default\"",
            ),
        ),
    ];
    for (rules, path, expected) in table {
        let server = server(rules).await;
        check(rules, &outcome(&server, &bob(), path, &[("user", "ann")]), expected);
    }
}

#[tokio::test]
async fn the_old_verb_allows_all_that_it_did_and_the_narrower_one_counts_first() {
    let old = "impersonate users ann";
    let (on, be) = ("impersonate-on:user-info:list pods", "impersonate:user-info authn/users ann");
    for (rules, expected) in [
        (&[old][..], "ann [system:authenticated] legacy"),
        (&[old, on], "ann [system:authenticated] legacy"),
        (&[old, be], "ann [system:authenticated] legacy"),
        (&[old, be, on], "ann [system:authenticated] impersonate:user-info"),
    ] {
        let server = server(rules).await;
        check(rules, &outcome(&server, &bob(), PODS, &[("user", "ann")]), Ok(expected));
    }
}

#[tokio::test]
async fn each_mode_is_for_its_own_kind_of_user() {
    let rules: Vec<String> = ["user-info", "serviceaccount", "arbitrary-node"]
        .iter()
        .flat_map(|mode| {
            let be = ["users", "groups", "uids", "userextras/acme.io/scope", "serviceaccounts", "nodes"]
                .map(|resource| format!("impersonate:{mode} authn/{resource}"));
            be.into_iter().chain([format!("impersonate-on:{mode}:list pods")])
        })
        .collect();
    let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
    let server = server(&rules).await;
    let allowed: [(&[(&str, &str)], &str); 6] = [
        (&[("user", "ann")], "ann [system:authenticated] impersonate:user-info"),
        (
            &[("user", "ann"), ("group", "team"), ("uid", "1"), ("extra-acme.io%2fscope", "read")],
            "ann [team,system:authenticated] impersonate:user-info",
        ),
        (&[("user", "system:anonymous")], "system:anonymous [system:unauthenticated] impersonate:user-info"),
        (
            &[("user", "system:serviceaccount:a:b")],
            "system:serviceaccount:a:b [system:serviceaccounts,system:serviceaccounts:a,system:authenticated] impersonate:serviceaccount",
        ),
        (&[("user", "system:node:n")], "system:node:n [system:nodes,system:authenticated] impersonate:arbitrary-node"),
        // None of a node and no account: it only looks like one.
        (&[("user", "system:node:N")], "system:node:N [system:authenticated] impersonate:user-info"),
    ];
    for (headers, expected) in allowed {
        check(&rules, &outcome(&server, &bob(), PODS, headers), Ok(expected));
    }
    // Nodes and accounts with anything but their name are for the old verb alone.
    for (user, more) in [
        ("system:node:n", ("group", "system:nodes")),
        ("system:node:n", ("uid", "1")),
        ("system:serviceaccount:a:b", ("group", "team")),
        ("system:serviceaccount:a:b", ("extra-acme.io%2fscope", "read")),
    ] {
        let said = outcome(&server, &bob(), PODS, &[("user", user), more]).unwrap_err();
        assert!(said.contains("User \"bob\" cannot impersonate resource"), "{user} {more:?}: {said}");
    }
}

#[tokio::test]
async fn an_account_may_be_the_node_of_its_own_pod_and_no_other() {
    let associated = ["impersonate-on:associated-node:list pods", "impersonate:associated-node authn/nodes"];
    let named = ["impersonate-on:associated-node:list pods", "impersonate:associated-node authn/nodes n"];
    let arbitrary = ["impersonate-on:arbitrary-node:list pods", "impersonate:arbitrary-node authn/nodes n"];
    let both = [associated, arbitrary].concat();
    let as_node = "system:node:n [system:nodes,system:authenticated] impersonate:";
    let every = format!(
        "nodes.authentication.k8s.io \"*\" is forbidden: User \"{AGENT}\" cannot impersonate:associated-node resource \"nodes\" in API group \"authentication.k8s.io\" at the cluster scope"
    );
    let deed = |user: &str, mode: &str| {
        format!(
            "pods is forbidden: User \"{user}\" cannot impersonate-on:{mode}:list resource \"pods\" in API group \"\" in the namespace \"default\""
        )
    };
    let no_pod = User { extra: std::collections::BTreeMap::new(), ..agent_on("n") };
    let somebody = User { name: "bob".to_owned(), ..agent_on("n") };
    let table: [(&[&str], User, Result<String, String>); 9] = [
        (&associated, agent_on("n"), Ok(format!("{as_node}associated-node"))),
        // It is a right to be each node, so a name doesn't narrow it.
        (&named, agent_on("n"), Err(every)),
        (&associated, agent_on("m"), Err(deed(AGENT, "arbitrary-node"))),
        (&associated, no_pod, Err(deed(AGENT, "arbitrary-node"))),
        (&associated, somebody, Err(deed("bob", "arbitrary-node"))),
        (&arbitrary, agent_on("m"), Ok(format!("{as_node}arbitrary-node"))),
        (&arbitrary, agent_on("n"), Ok(format!("{as_node}arbitrary-node"))),
        (&both, agent_on("n"), Ok(format!("{as_node}associated-node"))),
        (&[], agent_on("n"), Err(deed(AGENT, "associated-node"))),
    ];
    for (rules, requestor, expected) in table {
        let server = server(rules).await;
        let found = outcome(&server, &requestor, PODS, &[("user", "system:node:n")]);
        check(rules, &found, expected.as_deref().map_err(String::as_str));
    }
}

#[tokio::test]
async fn what_nobody_gets_is_refused_whatever_the_rules_are() {
    let rules = [
        "impersonate-on:user-info:list pods",
        "impersonate:user-info authn/users",
        "impersonate:user-info authn/groups",
        "impersonate:user-info authn/userextras/*",
    ];
    let server = server(&rules).await;
    let cannot = |resource: &str| {
        format!(
            "is forbidden: User \"bob\" cannot impersonate:user-info resource \"{resource}\" in API group \"authentication.k8s.io\" at the cluster scope"
        )
    };
    let (groups, extra) = (cannot("groups"), cannot("userextras"));
    for (name, value, expected) in [
        (
            "group",
            "",
            format!("groups.authentication.k8s.io {groups}: impersonating the empty string group is not allowed"),
        ),
        (
            "group",
            "system:masters",
            format!(
                "groups.authentication.k8s.io \"system:masters\" {groups}: impersonating the system:masters group is not allowed"
            ),
        ),
        (
            "extra-",
            "a",
            format!(
                "userextras.authentication.k8s.io {extra}: impersonating the empty string key in extra is not allowed"
            ),
        ),
        (
            "extra-scopes",
            "a",
            format!(
                "userextras.authentication.k8s.io {extra}: impersonating an invalid key in extra is not allowed: extra.key: Invalid value: \"scopes\": must be a domain-prefixed path (such as \"acme.io/foo\")"
            ),
        ),
        (
            "extra-acme.io%2f%41",
            "a",
            format!(
                "userextras.authentication.k8s.io {extra}: impersonating a non-lowercase key in extra is not allowed: \"acme.io/A\""
            ),
        ),
        (
            "extra-acme.io%2fa",
            "",
            format!(
                "userextras.authentication.k8s.io {extra}: impersonating the empty string value in extra is not allowed"
            ),
        ),
    ] {
        let found = outcome(&server, &bob(), PODS, &[("user", "ann"), (name, value)]);
        check(&rules, &found, Err(&expected));
    }
    // The old verb still gives what it gave.
    let root = User { groups: vec!["system:masters".to_owned()], ..bob() };
    let headers = [("user", "ann"), ("group", "system:masters")];
    check(&rules, &outcome(&server, &root, PODS, &headers), Ok("ann [system:masters,system:authenticated] legacy"));
    let headers = [("user", "ann"), ("group", "team")];
    let by = "ann [team,system:authenticated] impersonate:user-info";
    check(&rules, &outcome(&server, &root, PODS, &headers), Ok(by));
}

#[tokio::test]
async fn many_groups_or_values_at_once_may_be_allowed_by_a_star() {
    let base = ["impersonate-on:user-info:list pods", "impersonate:user-info authn/users"];
    let star = ["impersonate:user-info authn/groups *", "impersonate:user-info authn/userextras/* *"];
    let rules = [base, star].concat();
    let server = server(&rules).await;
    let groups = |count: usize| {
        let names = ["a", "b", "c", "d"];
        let mut headers = vec![("user", "ann")];
        headers.extend(names[..count].iter().map(|name| ("group", *name)));
        headers
    };
    let few = outcome(&server, &bob(), PODS, &groups(3)).unwrap_err();
    assert!(few.starts_with("groups.authentication.k8s.io \"a\" is forbidden"), "{few}");
    let many = outcome(&server, &bob(), PODS, &groups(4));
    check(&rules, &many, Ok("ann [a,b,c,d,system:authenticated] impersonate:user-info"));
    let values = |count: usize| {
        let names = ["a", "b", "c", "d"];
        let mut headers = vec![("user", "ann")];
        headers.extend(names[..count].iter().map(|value| ("extra-acme.io%2fs", *value)));
        headers
    };
    let few = outcome(&server, &bob(), PODS, &values(3)).unwrap_err();
    assert!(few.starts_with("userextras.authentication.k8s.io \"a\" is forbidden"), "{few}");
    check(&rules, &outcome(&server, &bob(), PODS, &values(4)), Ok("ann [system:authenticated] impersonate:user-info"));
}

#[tokio::test]
async fn parts_are_asked_for_in_the_order_name_identity_groups_rest() {
    let all = [
        "impersonate-on:user-info:list pods",
        "impersonate:user-info authn/users ann",
        "impersonate:user-info authn/uids 1",
        "impersonate:user-info authn/groups team",
        "impersonate:user-info authn/userextras/acme.io/s read",
    ];
    let headers = [("user", "ann"), ("uid", "1"), ("group", "team"), ("extra-acme.io%2fs", "read")];
    let missing = ["pods", "users", "uids", "groups", "userextras/acme.io/s"];
    for (count, resource) in missing.iter().enumerate() {
        let server = server(&all[..count]).await;
        let said = outcome(&server, &bob(), PODS, &headers).unwrap_err();
        assert!(said.contains(&format!("resource \"{resource}\"")), "{count}: {said}");
    }
    let server = server(&all).await;
    let by = "ann [team,system:authenticated] impersonate:user-info";
    check(&all, &outcome(&server, &bob(), PODS, &headers), Ok(by));
}

#[tokio::test]
async fn paths_outside_of_resources_have_their_verbs_too() {
    let rules = ["impersonate-on:user-info:get /version", "impersonate:user-info authn/users"];
    let server = server(&rules).await;
    let user = [("user", "ann")];
    let by = "ann [system:authenticated] impersonate:user-info";
    check(&rules, &outcome(&server, &bob(), "/version", &user), Ok(by));
    let expected = "forbidden: User \"bob\" cannot impersonate-on:user-info:get path \"/metrics\"";
    check(&rules, &outcome(&server, &bob(), "/metrics", &user), Err(expected));
}

#[tokio::test]
async fn a_right_to_do_something_as_others_is_none_to_do_it_oneself() {
    let rules = ["impersonate-on:user-info:list pods", "impersonate:user-info authn/users", "list services"];
    let server = server(&rules).await;
    for (path, acts, expected) in [(PODS, false, 403), (PODS, true, 403), ("/api/v1/services", false, 200)] {
        let mut request = Request::get(path);
        if acts {
            request = request.header("impersonate-user", "ann");
        }
        let mut request = request.body(full("")).unwrap();
        request.extensions_mut().insert(std::sync::Arc::new(bob()));
        let response = tower::Service::call(&mut server.api.clone(), request).await.unwrap();
        // Bob may be ann, and ann may do nothing.
        assert_eq!(response.status(), expected, "{path} {acts}");
    }
}
