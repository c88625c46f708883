//! Every endpoint, with what each kind of user may do there: more than ten thousand cells, from the rules that Kubernetes publishes.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use super::{Asked, What};
use crate::registry::Registry;
use crate::testing::Server;
use crate::user::User;

const TABLE: &str = include_str!("../../facts/access.tsv");
const VERBS: [&str; 8] = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];
const CELLS_MIN: usize = 10_000;

/// The columns of the table: how each is called, and its role if it isn't there from the start.
const USERS: [(&str, &str); 10] = [
    ("ann", ""),
    ("viewer", "view"),
    ("editor", "edit"),
    ("manager", "admin"),
    ("root", "cluster-admin"),
    ("system:kube-scheduler", ""),
    ("system:kube-controller-manager", ""),
    ("system:serviceaccount:kube-system:job-controller", ""),
    ("system:serviceaccount:kube-system:generic-garbage-collector", ""),
    ("system:serviceaccount:kube-system:node-controller", ""),
];

fn rows() -> BTreeMap<(&'static str, &'static str), Vec<&'static str>> {
    let lines = TABLE.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let mut columns = line.split('\t');
            let group = columns.next().unwrap();
            ((if group == "core" { "" } else { group }, columns.next().unwrap()), columns.collect())
        })
        .collect()
}

async fn server_with_users() -> Server {
    let server = Server::start().await;
    server.api.prepare_roles().await.unwrap();
    let api = "/apis/rbac.authorization.k8s.io/v1";
    for (user, role) in USERS.into_iter().filter(|(_, role)| !role.is_empty()) {
        let reference = json!({"apiGroup": super::GROUP, "kind": "ClusterRole", "name": role});
        let subjects = json!([{"kind": "User", "name": user}]);
        let binding = json!({"metadata": {"name": user}, "roleRef": reference, "subjects": subjects});
        let path = match role {
            "cluster-admin" => format!("{api}/clusterrolebindings"),
            _ => format!("{api}/namespaces/default/rolebindings"),
        };
        server.done("POST", &path, binding).await;
    }
    server
}

#[test]
fn no_endpoint_is_without_a_row() {
    let rows = rows();
    let registry = Registry::builtin();
    let mut served = BTreeSet::new();
    for kind in registry.kinds().map(|served| &served.kind) {
        served.insert((kind.group.to_string(), kind.plural.to_string()));
        served.extend(
            kind.subresources.iter().map(|part| (kind.group.to_string(), format!("{}/{}", kind.plural, part.name))),
        );
    }
    let missing: Vec<_> = served.iter().filter(|(group, name)| !rows.contains_key(&(&**group, &**name))).collect();
    assert!(missing.is_empty(), "who may do what here? {missing:?}");
}

#[tokio::test]
async fn everyone_may_do_what_the_table_says_and_nothing_else() {
    let server = server_with_users().await;
    let policies = server.api.policies();
    let (mut cells, mut wrong) = (0, Vec::new());
    for ((group, endpoint), columns) in rows() {
        let (resource, subresource) = endpoint.split_once('/').unwrap_or((endpoint, ""));
        assert_eq!(columns.len(), USERS.len() * 2, "{endpoint}");
        for (column, (user, allowed)) in USERS.iter().flat_map(|user| [user, user]).zip(&columns).enumerate() {
            let namespace = if column % 2 == 0 { "default" } else { "" };
            let user =
                User { name: user.0.to_owned(), groups: vec!["system:authenticated".to_owned()], ..User::default() };
            for verb in VERBS {
                let what = What::Resource { group, resource, subresource, namespace, name: "" };
                let expected = *allowed == "*" || allowed.split(',').any(|one| one == verb);
                cells += 1;
                if policies.judge(&user, &Asked::new(verb, what)).is_allowed() != expected {
                    wrong
                        .push(format!("{} {verb} {group}/{endpoint} in {namespace:?}: expected {expected}", user.name));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {cells} are wrong: {:#?}", wrong.len(), &wrong[..wrong.len().min(20)]);
    assert!(cells >= CELLS_MIN, "{cells}");
}

/// Somebody, in these groups.
fn somebody(name: &str, groups: &[&str]) -> User {
    User { name: name.to_owned(), groups: groups.iter().map(|group| (*group).to_owned()).collect(), ..User::default() }
}

/// All cells of the table in which somebody is allowed something, through all that decides and not roles alone.
fn allowed(server: &Server, user: &User, name: &str) -> BTreeSet<String> {
    let access = &server.api.inner.access;
    let mut found = BTreeSet::new();
    for (group, endpoint) in rows().into_keys() {
        let (resource, subresource) = endpoint.split_once('/').unwrap_or((endpoint, ""));
        for (verb, namespace) in VERBS.into_iter().flat_map(|verb| [(verb, "default"), (verb, "")]) {
            let what = What::Resource { group, resource, subresource, namespace, name };
            if access.judge(&server.store, user, &Asked::new(verb, what)).0 {
                found.insert(format!("{verb} {group}/{endpoint} in {namespace:?}"));
            }
        }
    }
    found
}

#[tokio::test]
async fn who_is_nothing_but_known_gets_what_everybody_gets() {
    let server = server_with_users().await;
    assert_eq!(allowed(&server, &somebody("system:anonymous", &["system:unauthenticated"]), ""), BTreeSet::new());
    let everybody = allowed(&server, &somebody("ann", &["system:authenticated"]), "");
    assert!(everybody.iter().all(|cell| cell.starts_with("create auth")), "reviews of oneself: {everybody:?}");
    let accounts = ["system:authenticated", "system:serviceaccounts", "system:serviceaccounts:kube-system"];
    for user in [
        somebody("system:serviceaccount:kube-system:fleet-hub", &accounts),
        somebody("system:serviceaccount:default:robot", &accounts[..2]),
        somebody("system:vehicle:default:v-1", &["system:authenticated", "system:vehicles"]),
        somebody("system:vehicle:default:v-1", &["system:authenticated"]),
        // Its name alone makes nobody a node.
        somebody("system:node:a", &["system:authenticated"]),
    ] {
        assert_eq!(allowed(&server, &user, "v-1"), everybody, "{}", user.name);
    }
}

/// The endpoints where a node may do anything at all: the rules of Kubernetes for nodes, as far as they aren't about the pods of the
/// node, of which this one has none.
const OF_NODES: [&str; 22] = [
    "/nodes",
    "/nodes/status",
    "/services",
    "/events",
    "events.k8s.io/events",
    "/pods",
    "/pods/status",
    "/pods/eviction",
    "/endpoints",
    "authentication.k8s.io/selfsubjectreviews",
    "authentication.k8s.io/tokenreviews",
    "authorization.k8s.io/localsubjectaccessreviews",
    "authorization.k8s.io/selfsubjectaccessreviews",
    "authorization.k8s.io/selfsubjectrulesreviews",
    "authorization.k8s.io/subjectaccessreviews",
    "certificates.k8s.io/certificatesigningrequests",
    "certificates.k8s.io/clustertrustbundles",
    "certificates.k8s.io/podcertificaterequests",
    "storage.k8s.io/csidrivers",
    "storage.k8s.io/csinodes",
    "node.k8s.io/runtimeclasses",
    "resource.k8s.io/resourceslices",
];

#[tokio::test]
async fn a_node_gets_nothing_but_what_nodes_need() {
    let server = server_with_users().await;
    let node = somebody("system:node:a", &["system:authenticated", "system:nodes"]);
    for name in ["a", "b", ""] {
        for cell in allowed(&server, &node, name) {
            let (verb, rest) = cell.split_once(' ').unwrap();
            let (endpoint, _) = rest.split_once(" in ").unwrap();
            assert!(OF_NODES.contains(&endpoint), "{name}: {cell}");
            assert!(verb != "deletecollection" || endpoint == "resource.k8s.io/resourceslices", "{cell}");
            // The name of what is made is for admission to look at.
            let others = name == "b" && endpoint == "storage.k8s.io/csinodes" && verb != "create";
            assert!(!others, "it is another node's: {cell}");
        }
    }
    let own = allowed(&server, &node, "a");
    for cell in ["patch /nodes/status in \"\"", "get storage.k8s.io/csinodes in \"\"", "create /events in \"default\""]
    {
        assert!(own.contains(cell), "{cell}");
    }
}

#[tokio::test]
async fn kinds_of_others_are_only_for_those_who_may_everything() {
    let server = server_with_users().await;
    let access = &server.api.inner.access;
    let kinds = [
        ("fleet.setpoint.dev", "vehicles"),
        ("fleet.setpoint.dev", "firmwares"),
        ("fleet.setpoint.dev", "rollouts"),
        ("metrics.k8s.io", "pods"),
        ("metrics.k8s.io", "nodes"),
    ];
    for (group, resource) in kinds {
        for (verb, namespace) in VERBS.into_iter().flat_map(|verb| [(verb, "default"), (verb, "")]) {
            // They collect and clean up whatever there is, custom kinds too.
            for (user, _) in USERS.into_iter().filter(|(user, _)| !user.starts_with("system:")) {
                let what = What::Resource { group, resource, subresource: "", namespace, name: "" };
                let user = somebody(user, &["system:authenticated"]);
                let is_allowed = access.judge(&server.store, &user, &Asked::new(verb, what)).0;
                assert_eq!(is_allowed, user.name == "root", "{} {verb} {group}/{resource} in {namespace:?}", user.name);
            }
        }
    }
}

#[tokio::test]
async fn paths_are_for_those_whom_the_table_names() {
    let server = server_with_users().await;
    let anonymous = somebody("system:anonymous", &["system:unauthenticated"]);
    let ann = somebody("ann", &["system:authenticated"]);
    let robot = somebody("system:serviceaccount:a:robot", &["system:authenticated", "system:serviceaccounts"]);
    let monitor = somebody("prometheus", &["system:authenticated", "system:monitoring"]);
    let root = somebody("root", &["system:authenticated"]);
    for (path, expected) in [
        ("/version", [true, true, true, true, true]),
        ("/livez", [true, true, true, true, true]),
        ("/readyz", [true, true, true, true, true]),
        ("/healthz", [true, true, true, true, true]),
        ("/livez/ping", [false, false, false, true, true]),
        ("/api", [false, true, true, true, true]),
        ("/apis/apps/v1", [false, true, true, true, true]),
        ("/openapi/v3", [false, true, true, true, true]),
        ("/.well-known/openid-configuration", [false, false, true, false, true]),
        ("/openid/v1/jwks", [false, false, true, false, true]),
        ("/metrics", [false, false, false, true, true]),
        ("/debug/pprof/profile", [false, false, false, false, true]),
        ("/logs/kubelet.log", [false, false, false, false, true]),
        ("/anything", [false, false, false, false, true]),
    ] {
        for (user, expected) in [&anonymous, &ann, &robot, &monitor, &root].into_iter().zip(expected) {
            let asked = |verb: &'static str| Asked::of_path(verb, path);
            let access = &server.api.inner.access;
            assert_eq!(access.judge(&server.store, user, &asked("get")).0, expected, "{} {path}", user.name);
            assert_eq!(
                access.judge(&server.store, user, &asked("post")).0,
                user.name == "root",
                "{} {path}",
                user.name
            );
        }
    }
}
