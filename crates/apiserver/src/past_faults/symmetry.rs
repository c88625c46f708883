//! CVE-2025-4563 once more: what was checked on one way to write was not on another. Each guard is tried on all of them.

use http::{Method, Request};
use serde_json::{Value, json};
use setpoint_schema::Edit;

use crate::body::full;
use crate::testing::Server;

/// Something that may not be written, whoever finds a way.
struct Guard {
    what: &'static str,
    /// Who tries it.
    user: &'static str,
    group: &'static str,
    collection: &'static str,
    /// What may be there.
    good: Value,
    /// What is tried: fields of the object at their top.
    bad: Value,
    /// Whether an object has what it may not have.
    has_it: fn(&Value) -> bool,
    /// Whether a new object may not have it either.
    on_creation: bool,
}

const SERVICES: &str = "/api/v1/namespaces/default/services";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

fn guards() -> Vec<Guard> {
    let service = |more: Value| {
        let mut spec = json!({"ports": [{"port": 80}]});
        more.as_object().unwrap().iter().for_each(|(field, value)| spec.set(field, value.clone()));
        spec
    };
    let all = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    let subset = |address: &str| json!([{"addresses": [{"ip": address}], "ports": [{"port": 80}]}]);
    vec![
        Guard {
            what: "external addresses of Services",
            user: "admin",
            group: "system:masters",
            collection: SERVICES,
            good: json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": service(json!({}))}),
            bad: json!({"spec": service(json!({"externalIPs": ["192.0.2.1"]}))}),
            has_it: |object| object["spec"].has("externalIPs"),
            on_creation: true,
        },
        Guard {
            what: "ports of nodes beyond a quota",
            user: "admin",
            group: "system:masters",
            collection: SERVICES,
            good: json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "q"}, "spec": service(json!({}))}),
            bad: json!({"spec": service(json!({"type": "NodePort"}))}),
            has_it: |object| object["spec"].text("type") == "NodePort",
            on_creation: true,
        },
        Guard {
            what: "labels that choose which pods come to a node",
            user: "system:node:a",
            group: "system:nodes",
            collection: "/api/v1/nodes",
            good: json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}}),
            bad: json!({"metadata": {"name": "a", "labels": {"node-restriction.kubernetes.io/trusted": "yes"}}}),
            has_it: |object| object["metadata"].to_string().contains("node-restriction.kubernetes.io/trusted\":\"yes"),
            on_creation: true,
        },
        Guard {
            what: "rights that one doesn't have",
            user: "ann",
            group: "system:authenticated",
            collection: "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles",
            good: json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "r"}, "rules": []}),
            bad: json!({"rules": all}),
            has_it: |object| object["rules"].as_array().is_some_and(|rules| !rules.is_empty()),
            on_creation: true,
        },
        Guard {
            what: "rights for others that one doesn't have",
            user: "ann",
            group: "system:authenticated",
            collection: "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings",
            good: json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "b"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            }),
            bad: json!({"subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ann"}]}),
            has_it: |object| object.has("subjects"),
            on_creation: true,
        },
        Guard {
            what: "an owner of what one may not delete",
            user: "ann",
            group: "system:authenticated",
            collection: "/api/v1/namespaces/default/configmaps",
            good: json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}}),
            bad: json!({"metadata": {"name": "m", "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}]}}),
            has_it: |object| object["metadata"].has("ownerReferences"),
            // What is new is nobody's yet, as in Kubernetes.
            on_creation: false,
        },
        Guard {
            what: "endpoints on the machine of the server",
            user: "admin",
            group: "system:masters",
            collection: "/api/v1/namespaces/default/endpoints",
            good: json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "e"}, "subsets": subset("10.1.2.3")}),
            bad: json!({"subsets": subset("127.0.0.1")}),
            has_it: |object| object.to_string().contains("127.0.0.1"),
            on_creation: true,
        },
        Guard {
            what: "endpoints where clouds keep credentials",
            user: "admin",
            group: "system:masters",
            collection: "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
            good: json!({
                "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": "e"},
                "addressType": "IPv4", "endpoints": [{"addresses": ["10.1.2.3"]}],
            }),
            bad: json!({"endpoints": [{"addresses": ["169.254.169.254"]}]}),
            has_it: |object| object.to_string().contains("169.254.169.254"),
            on_creation: true,
        },
        Guard {
            what: "pods that take over their node",
            user: "admin",
            group: "system:masters",
            collection: "/api/v1/namespaces/held/pods",
            good: json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}),
            bad: json!({"spec": {"hostNetwork": true, "containers": [{"name": "c", "image": "i"}]}}),
            has_it: |object| object["spec"].flag("hostNetwork"),
            on_creation: true,
        },
        Guard {
            what: "the highest priority, by anybody's pod",
            user: "admin",
            group: "system:masters",
            collection: "/api/v1/namespaces/held/pods",
            good: json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "h"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}),
            bad: json!({"spec": {"priority": 2_000_000_000, "containers": [{"name": "c", "image": "i"}]}}),
            has_it: |object| object["spec"].number("priority").is_some_and(|priority| priority > 0),
            on_creation: true,
        },
    ]
}

async fn server() -> Server {
    let server = Server::start().await;
    server.api.prepare_roles().await.unwrap();
    let rules = json!([
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "create", "update", "patch"]},
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"], "verbs": ["get", "create", "update", "patch"]},
    ]);
    server.done("POST", &format!("{RBAC}/clusterroles"), json!({"metadata": {"name": "writes"}, "rules": rules})).await;
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "writes"});
    let binding = json!({"metadata": {"name": "w"}, "roleRef": role, "subjects": [{"kind": "User", "name": "ann"}]});
    server.done("POST", &format!("{RBAC}/namespaces/default/rolebindings"), binding).await;
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"services.nodeports": "0"}}});
    let made = server.done("POST", "/api/v1/namespaces/default/resourcequotas", quota).await;
    let status = json!({"status": {"hard": made["spec"]["hard"], "used": {"services.nodeports": "0"}}});
    server.done("PATCH", "/api/v1/namespaces/default/resourcequotas/q/status", status).await;
    let labels = json!({"pod-security.kubernetes.io/enforce": "baseline"});
    server.done("POST", "/api/v1/namespaces", json!({"metadata": {"name": "held", "labels": labels}})).await;
    let account = json!({"metadata": {"name": "default"}, "automountServiceAccountToken": false});
    server.done("POST", "/api/v1/namespaces/held/serviceaccounts", account).await;
    server
}

async fn ask(server: &Server, guard: &Guard, method: &str, path: &str, media: &str, body: &Value) -> (u16, Value) {
    let mut request = Request::new(full(body.to_string()));
    *request.method_mut() = Method::from_bytes(method.as_bytes()).unwrap();
    *request.uri_mut() = path.parse().unwrap();
    let headers = request.headers_mut();
    headers.insert("content-type", media.parse().unwrap());
    headers.insert("impersonate-user", guard.user.parse().unwrap());
    headers.insert("impersonate-group", guard.group.parse().unwrap());
    server.ask(request).await
}

/// Every way to bring an object to be as it is tried, from where it is.
fn ways(guard: &Guard, there: &Value, path: &str) -> Vec<(&'static str, &'static str, String, Value)> {
    let with = |object: &Value| {
        let mut object = object.clone();
        for (field, value) in guard.bad.as_object().unwrap() {
            match field.as_str() {
                "metadata" => {
                    value.as_object().unwrap().iter().for_each(|(name, it)| object["metadata"].set(name, it.clone()));
                }
                _ => object.set(field, value.clone()),
            }
        }
        object
    };
    let mut whole = with(there);
    // What the server adds to a spec stays as it is.
    if let (Some(spec), Some(given)) = (there["spec"].as_object(), whole["spec"].as_object_mut()) {
        for (field, value) in spec {
            given.entry(field.clone()).or_insert(value.clone());
        }
    }
    let metadata = guard.bad.has("metadata");
    let operations: Vec<Value> = match metadata {
        true => {
            let fields = guard.bad["metadata"].as_object().unwrap().iter();
            fields
                .map(|(field, value)| json!({"op": "add", "path": format!("/metadata/{field}"), "value": value}))
                .collect()
        }
        false => guard
            .bad
            .as_object()
            .unwrap()
            .keys()
            .map(|field| json!({"op": "add", "path": format!("/{field}"), "value": whole[field]}))
            .collect(),
    };
    let plain = path.to_owned();
    vec![
        ("PUT", "application/json", plain.clone(), whole),
        ("PATCH", "application/merge-patch+json", plain.clone(), guard.bad.clone()),
        ("PATCH", "application/strategic-merge-patch+json", plain.clone(), guard.bad.clone()),
        ("PATCH", "application/json-patch+json", plain, operations.into()),
        ("PATCH", "application/apply-patch+yaml", format!("{path}?fieldManager=m&force=true"), with(&guard.good)),
    ]
}

#[tokio::test]
async fn a_guard_stands_on_every_way_to_write() {
    let server = server().await;
    let mut open = Vec::new();
    for guard in guards() {
        let json = "application/json";
        let name = guard.good["metadata"].text("name").to_owned();
        let object = format!("{}/{name}", guard.collection);
        if guard.on_creation {
            let mut new = guard.good.clone();
            for (field, value) in guard.bad.as_object().unwrap() {
                new.set(field, value.clone());
            }
            for (method, path, media) in [
                ("POST", guard.collection.to_owned(), json),
                ("PATCH", format!("{object}?fieldManager=m"), "application/apply-patch+yaml"),
            ] {
                let (code, answer) = ask(&server, &guard, method, &path, media, &new).await;
                assert!(matches!(code, 403 | 422), "{}: {method} {path}: {code} {answer}", guard.what);
                assert_eq!(server.send("GET", &object, Value::Null).await.0, 404, "{}", guard.what);
            }
        }
        server.done("POST", guard.collection, guard.good.clone()).await;
        for part in ["", "/status", "/finalize", "/resize", "/ephemeralcontainers", "/approval"] {
            let place = format!("{object}{part}");
            let there = server.done("GET", &object, Value::Null).await;
            assert!(!(guard.has_it)(&there), "{}: {there}", guard.what);
            for (method, media, path, body) in ways(&guard, &there, &place) {
                let (code, answer) = ask(&server, &guard, method, &path, media, &body).await;
                let after = server.done("GET", &object, Value::Null).await;
                if (guard.has_it)(&after) || part.is_empty() && !matches!(code, 403 | 422) {
                    open.push(format!("{}: {method} {media} {path}: {code} {answer}", guard.what));
                }
            }
        }
    }
    assert!(open.is_empty(), "{}", open.join("\n"));
}
