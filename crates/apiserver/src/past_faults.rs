//! Faults that other API servers had, one test for each that could happen here. Each is named by its record.

mod node_metadata;
mod old_object;
mod symmetry;

use http::{Method, Request};
use serde_json::{Value, json};

use crate::body::full;
use crate::registry::Registry;
use crate::testing::Server;

const ROBOT: &str = "robot";

/// How many different words clients say.
const WORDS: usize = 100_000;

/// How many series may come of words that nobody knows: some shapes of paths, each with the code of its answer.
const SERIES_MORE_MAX: usize = 200;

/// A server on which `robot` may do everything in the namespace `default`, and nothing elsewhere.
async fn server() -> Server {
    let server = Server::start().await;
    let api = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let rules = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    server.done("POST", &format!("{api}/roles"), json!({"metadata": {"name": "all"}, "rules": rules})).await;
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "all"});
    let subjects = json!([{"kind": "User", "name": ROBOT}]);
    let binding = json!({"metadata": {"name": "all"}, "roleRef": role, "subjects": subjects});
    server.done("POST", &format!("{api}/rolebindings"), binding).await;
    server
}

async fn ask(server: &Server, method: &str, path: &str, headers: &[(&'static str, &str)]) -> (u16, Value) {
    let mut request = Request::new(full(String::new()));
    *request.method_mut() = Method::from_bytes(method.as_bytes()).unwrap();
    *request.uri_mut() = path.parse().unwrap();
    for (name, value) in headers {
        request.headers_mut().insert(*name, value.parse().unwrap());
    }
    server.ask(request).await
}

/// CVE-2019-11247: objects of the cluster were reached through the path of a namespace, with the rights in that namespace.
#[tokio::test]
async fn a_path_of_the_wrong_scope_leads_nowhere() {
    let server = server().await;
    let registry = Registry::builtin();
    for kind in registry.kinds().map(|served| &served.kind) {
        let root = match &*kind.group {
            "" => format!("/api/{}", kind.version),
            group => format!("/apis/{group}/{}", kind.version),
        };
        let plural = &kind.plural;
        let paths = match kind.namespaced {
            true => vec![format!("{root}/{plural}/x")],
            false => {
                vec![format!("{root}/namespaces/default/{plural}"), format!("{root}/namespaces/default/{plural}/x")]
            }
        };
        for path in paths {
            for headers in [&[][..], &[("impersonate-user", ROBOT)]] {
                for method in ["GET", "PUT", "PATCH", "DELETE"] {
                    let (code, answer) = ask(&server, method, &path, headers).await;
                    assert!(matches!(code, 403..=405), "{method} {path}: {code} {answer}");
                }
            }
        }
        if !kind.namespaced && kind.allows("list") {
            let (code, _) = ask(&server, "GET", &format!("{root}/{plural}"), &[("impersonate-user", ROBOT)]).await;
            assert_eq!(code, 403, "{plural}: a role of a namespace gives nothing outside of it");
        }
    }
}

/// CVE-2022-3162 and CVE-2015-5305: a name with parts of a path in it led to objects of another type or namespace.
#[tokio::test]
async fn a_name_never_leads_to_another_object() {
    let server = server().await;
    let canary = json!({"metadata": {"name": "canary"}, "stringData": {"k": "canary-of-the-system"}});
    server.done("POST", "/api/v1/namespaces/kube-system/secrets", canary).await;
    let names = [
        "..%2F..%2Fsecrets%2Fkube-system%2Fcanary",
        "..%2F..%2Fkube-system%2Fsecrets%2Fcanary",
        "../../kube-system/secrets/canary",
        "%2e%2e%2f%2e%2e%2fkube-system%2fsecrets%2fcanary",
        "canary%00",
        "%2Fapi%2Fv1%2Fnamespaces%2Fkube-system%2Fsecrets%2Fcanary",
    ];
    let places = [
        "/api/v1/namespaces/default/configmaps/NAME",
        "/api/v1/namespaces/default/secrets/NAME",
        "/api/v1/namespaces/NAME/secrets/canary",
        "/api/v1/namespaces/NAME/secrets",
        "/api/v1/namespaces/default/secrets?fieldSelector=metadata.name%3DNAME",
        "/api/v1/namespaces/default/secrets?continue=NAME&limit=1",
        "/apis/apps/v1/namespaces/default/deployments/NAME/scale",
    ];
    for place in places {
        for name in names {
            let path = place.replace("NAME", name);
            let (_, answer) = ask(&server, "GET", &path, &[("impersonate-user", ROBOT)]).await;
            assert!(!answer.to_string().contains("canary-of-the-system"), "{path}: {answer}");
            assert!(!answer.to_string().contains("Y2FuYXJ5LW9mLXRoZS1zeXN0ZW0"), "{path}: {answer}");
        }
    }
}

/// CVE-2020-8552: every new word in a request made another series of figures.
#[tokio::test]
async fn figures_dont_grow_with_what_clients_say() {
    let server = server().await;
    let series = |text: String| text.lines().filter(|line| !line.starts_with('#')).count();
    let figures = || async { series(server.text(Request::get("/metrics").body(full("")).unwrap()).await) };
    let speak = |number: usize| {
        let (server, word) = (&server, format!("w{number}"));
        async move {
            let agent = [("user-agent", &*word)];
            ask(
                server,
                "GET",
                &format!("/apis/{word}.example.com/{word}/namespaces/{word}/{word}/{word}/{word}"),
                &agent,
            )
            .await;
            ask(server, "GET", &format!("/{word}/{word}"), &agent).await;
            ask(server, &word.to_uppercase(), &format!("/api/v1/namespaces/{word}/configmaps/{word}"), &agent).await;
            ask(
                server,
                "GET",
                &format!("/api/v1/namespaces/default/configmaps?{word}={word}&fieldSelector={word}"),
                &agent,
            )
            .await;
        }
    };
    speak(0).await;
    // Asking for figures is in them too.
    figures().await;
    let before = figures().await;
    for number in 1..500 {
        speak(number).await;
    }
    assert_eq!(figures().await, before);
    // And once more where requests are counted, with as many words as there are.
    let inner = &server.api.inner;
    let registry = inner.kinds.current(&server.store);
    for number in 0..WORDS {
        let method = Method::from_bytes(format!("W{number}").as_bytes()).unwrap();
        let uris = [
            format!("/apis/g{number}/v{number}/namespaces/n{number}/r{number}/o{number}/s{number}"),
            format!("/api/v1/namespaces/n{number}/pods/p{number}/s{number}?dryRun=d{number}&q{number}"),
            format!("/w{number}/w{number}"),
        ];
        for uri in uris {
            let observation = inner.metrics.begin(&registry, &method, &uri.parse().unwrap());
            let answered = http::Response::builder().status(404).body(full("")).unwrap();
            drop(inner.metrics.end(observation, answered));
        }
    }
    let after = figures().await;
    assert!(after <= before + SERIES_MORE_MAX, "{before} series became {after}");
}

/// CVE-2019-16276: headers of a proxy in front were believed from anybody.
#[tokio::test]
async fn headers_of_a_proxy_mean_nothing() {
    let server = server().await;
    let mut request = Request::get("/api/v1/namespaces/default/configmaps").body(full("")).unwrap();
    for (name, value) in [
        ("x-remote-user", "kubernetes-admin"),
        ("x-remote-group", "system:masters"),
        ("x-remote-extra-a", "b"),
        ("x-forwarded-user", "kubernetes-admin"),
        ("x-forwarded-for", "127.0.0.1"),
    ] {
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    let response = tower::Service::call(&mut server.api.clone(), request).await.unwrap();
    assert_eq!(response.status(), 403, "it is from nobody");
}

/// CVE-2019-1002100: a small patch made the server work without end, or an object grow without bound.
#[tokio::test]
async fn a_patch_has_its_bounds() {
    let server = server().await;
    let map = json!({"metadata": {"name": "a"}, "data": {"k": "0123456789"}});
    server.done("POST", "/api/v1/namespaces/default/configmaps", map).await;
    let patch = |operations: Vec<Value>| {
        let mut request = Request::new(full(Value::from(operations).to_string()));
        *request.method_mut() = Method::PATCH;
        *request.uri_mut() = "/api/v1/namespaces/default/configmaps/a".parse().unwrap();
        request.headers_mut().insert("content-type", "application/json-patch+json".parse().unwrap());
        server.ask(request)
    };
    let many = (0..10_001).map(|_| json!({"op": "test", "path": "/data/k", "value": "0123456789"})).collect();
    assert_eq!(patch(many).await.0, 413);
    let doubling =
        (0..40).map(|number| json!({"op": "copy", "from": "/data", "path": format!("/data/c{number}")})).collect();
    let (code, answer) = patch(doubling).await;
    assert!((400..500).contains(&code), "{code} {answer}");
}

/// CVE-2025-5187 and CVE-2025-4563: a node could give itself an owner and be deleted for it, and what was checked at a change was not
/// at a creation.
#[tokio::test]
async fn a_node_cannot_choose_its_owner_its_labels_or_its_taints() {
    let server = Server::start().await;
    server.api.prepare_roles().await.unwrap();
    server.done("POST", "/api/v1/nodes", json!({"metadata": {"name": "a"}})).await;
    let as_node = [("impersonate-user", "system:node:a"), ("impersonate-group", "system:nodes")];
    let send = |method: &'static str, path: &'static str, media: &'static str, body: Value| {
        let mut request = Request::new(full(body.to_string()));
        *request.method_mut() = Method::from_bytes(method.as_bytes()).unwrap();
        *request.uri_mut() = path.parse().unwrap();
        request.headers_mut().insert("content-type", media.parse().unwrap());
        for (name, value) in as_node {
            request.headers_mut().insert(name, value.parse().unwrap());
        }
        server.ask(request)
    };
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "u"}]);
    let changes = [
        json!({"metadata": {"ownerReferences": owner}}),
        json!({"metadata": {"labels": {"node-restriction.kubernetes.io/trusted": "yes"}}}),
        json!({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}),
        json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}),
    ];
    for change in &changes {
        for path in ["/api/v1/nodes/a", "/api/v1/nodes/a/status"] {
            for media in ["application/merge-patch+json", "application/strategic-merge-patch+json"] {
                let (code, answer) = send("PATCH", path, media, change.clone()).await;
                let changed = server.done("GET", "/api/v1/nodes/a", Value::Null).await;
                let kept = changed["metadata"].get("ownerReferences").is_none()
                    && !changed["metadata"]["labels"].to_string().contains("trusted")
                    && !changed["metadata"]["labels"].to_string().contains("control-plane")
                    && !changed["spec"].to_string().contains("\"k\"");
                assert!(kept, "{path} {change}: {code} {answer}");
            }
        }
    }
    let other = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "b"}});
    let (code, answer) = send("POST", "/api/v1/nodes", "application/json", other).await;
    assert_eq!(code, 403, "a node makes no other node: {answer}");
    server.done("DELETE", "/api/v1/nodes/a", Value::Null).await;
    for (change, expected) in changes.iter().zip([
        // What is new may come with an owner and with taints, as in Kubernetes: it is no way to be deleted and come back as another.
        None,
        Some("is not allowed to set the following labels: node-restriction.kubernetes.io/trusted"),
        Some("is not allowed to set the following labels: node-role.kubernetes.io/control-plane"),
        None,
    ]) {
        let mut made = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}});
        if let (Some(fields), Some(metadata)) = (change["metadata"].as_object(), made["metadata"].as_object_mut()) {
            metadata.extend(fields.clone());
        }
        made["spec"] = change["spec"].clone();
        let (code, answer) = send("POST", "/api/v1/nodes", "application/json", made).await;
        let why = answer["message"].as_str().unwrap_or_default();
        match expected {
            Some(expected) => assert!(code == 403 && why.contains(expected), "{change}: {code} {why}"),
            None => {
                assert_eq!(code, 201, "{change}: {why}");
                server.done("DELETE", "/api/v1/nodes/a", Value::Null).await;
            }
        }
    }
}

/// A custom kind of the group `example.com`.
async fn define(server: &Server, plural: &str, kind: &str, scope: &str) {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": schema});
    let names =
        json!({"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List")});
    let definition = json!({"metadata": {"name": format!("{plural}.example.com")}, "spec": {
        "group": "example.com", "scope": scope, "versions": [version], "names": names}});
    server.done("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition).await;
}

/// CVE-2019-11247 once more, with the kinds in which it was found.
#[tokio::test]
async fn custom_objects_of_the_cluster_are_not_reached_through_a_namespace() {
    let server = server().await;
    define(&server, "planets", "Planet", "Cluster").await;
    let planet =
        json!({"apiVersion": "example.com/v1", "kind": "Planet", "metadata": {"name": "x"}, "secret": "canary"});
    server.done("POST", "/apis/example.com/v1/planets", planet.clone()).await;
    for (method, path) in [
        ("GET", "/apis/example.com/v1/namespaces/default/planets"),
        ("GET", "/apis/example.com/v1/namespaces/default/planets/x"),
        ("DELETE", "/apis/example.com/v1/namespaces/default/planets/x"),
        ("DELETE", "/apis/example.com/v1/namespaces/default/planets"),
        ("GET", "/apis/example.com/v1/planets"),
        ("GET", "/apis/example.com/v1/planets/x"),
    ] {
        let (code, answer) = ask(&server, method, path, &[("impersonate-user", ROBOT)]).await;
        assert!(
            matches!(code, 403..=405) && !answer.to_string().contains("canary"),
            "{method} {path}: {code} {answer}"
        );
    }
    assert_eq!(server.done("GET", "/apis/example.com/v1/planets/x", Value::Null).await["secret"], "canary");
}

/// CVE-2022-3162 once more: a list of one kind showed the objects of another in the same group, whose name begins alike.
#[tokio::test]
async fn kinds_whose_names_begin_alike_are_told_apart() {
    let server = server().await;
    for (plural, kind) in [("boxes", "Box"), ("boxess", "Boxess"), ("boxes-x", "BoxesX")] {
        define(&server, plural, kind, "Namespaced").await;
        for namespace in ["default", "kube-system"] {
            let object =
                json!({"apiVersion": "example.com/v1", "kind": kind, "metadata": {"name": format!("of-{plural}")}});
            server.done("POST", &format!("/apis/example.com/v1/namespaces/{namespace}/{plural}"), object).await;
        }
    }
    let namespace = json!({"metadata": {"name": "default-x"}});
    server.done("POST", "/api/v1/namespaces", namespace).await;
    let object = json!({"apiVersion": "example.com/v1", "kind": "Box", "metadata": {"name": "elsewhere"}});
    server.done("POST", "/apis/example.com/v1/namespaces/default-x/boxes", object).await;
    for (path, expected) in [
        ("/apis/example.com/v1/namespaces/default/boxes", vec!["of-boxes"]),
        ("/apis/example.com/v1/namespaces/default/boxess", vec!["of-boxess"]),
        ("/apis/example.com/v1/namespaces/default/boxes?limit=500", vec!["of-boxes"]),
        ("/apis/example.com/v1/namespaces/default/boxes?resourceVersion=0", vec!["of-boxes"]),
    ] {
        let (code, answer) = ask(&server, "GET", path, &[("impersonate-user", ROBOT)]).await;
        let names: Vec<&str> =
            answer["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect();
        assert_eq!((code, names), (200, expected), "{path}");
    }
    for path in ["/apis/example.com/v1/namespaces/default-x/boxes", "/apis/example.com/v1/namespaces/kube-system/boxes"]
    {
        assert_eq!(ask(&server, "GET", path, &[("impersonate-user", ROBOT)]).await.0, 403, "{path}");
    }
}

/// CVE-2018-1002105, CVE-2020-8559, CVE-2020-8562, CVE-2022-3172 and CVE-2022-3294: what a server connected to on behalf of a client, by an address that
/// somebody else had written down, was this machine, another client's connection, or a way on to elsewhere. This one connects to
/// nobody: not for a node, nor a pod, nor a Service, nor an API that another server is said to have.
#[tokio::test]
async fn no_address_that_an_object_names_is_connected_to() {
    use futures_util::FutureExt;
    let server = Server::start().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let status = json!({
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    });
    server.done("POST", "/api/v1/nodes", json!({"metadata": {"name": "n"}})).await;
    server.done("PATCH", "/api/v1/nodes/n/status", json!({ "status": status })).await;
    server.pod("p").await;
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    server.done("POST", "/api/v1/namespaces/default/pods/p/binding", binding).await;
    let status = json!({"status": {"phase": "Running", "podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}});
    server.done("PATCH", "/api/v1/namespaces/default/pods/p/status", status).await;
    let group = "/apis/apiregistration.k8s.io/v1/apiservices";
    let elsewhere = json!({"metadata": {"name": "v1.elsewhere.example.com"}, "spec": {
        "group": "elsewhere.example.com", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1,
        "insecureSkipTLSVerify": true, "service": {"namespace": "default", "name": "s", "port": port},
    }});
    server.done("POST", group, elsewhere).await;
    let upgrade: &[(&'static str, &str)] =
        &[("connection", "Upgrade"), ("upgrade", "SPDY/3.1"), ("x-stream-protocol-version", "v4.channel.k8s.io")];
    let (pod, node) = ("/api/v1/namespaces/default/pods/p", "/api/v1/nodes/n");
    let paths = [
        format!("{pod}/exec?command=id&stdout=true"),
        format!("{pod}/attach?stdout=true"),
        format!("{pod}/portforward?ports={port}"),
        format!("{pod}/log"),
        format!("{pod}/proxy"),
        format!("{pod}/proxy/secret"),
        format!("/api/v1/namespaces/default/pods/p:{port}/proxy/"),
        format!("{node}/proxy"),
        format!("{node}/proxy/exec/default/p/c"),
        format!("/api/v1/nodes/https:n:{port}/proxy/pods"),
        format!("/api/v1/namespaces/default/services/s:{port}/proxy/"),
        "/apis/elsewhere.example.com/v1/things".to_owned(),
    ];
    for path in &paths {
        for headers in [&[][..], upgrade] {
            for method in ["GET", "POST"] {
                let (code, answer) = ask(&server, method, path, headers).await;
                assert!((400..600).contains(&code), "{method} {path}: {code} {answer}");
            }
        }
    }
    tokio::task::yield_now().await;
    assert!(listener.accept().now_or_never().is_none(), "somebody came");
}
