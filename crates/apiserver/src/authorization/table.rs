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
