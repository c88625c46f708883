//! A vehicle's certificate reaches what is its own, and nothing beside it.

use http::{Method, Request};
use serde_json::{Value, json};

use crate::body::full;
use crate::testing::Server;

const ALL: &str = "/apis/fleet.setpoint.dev/v1alpha1";
const OWN: &str = "/apis/fleet.setpoint.dev/v1alpha1/namespaces/default/vehicles/v-1";

/// Asks as somebody, for whom the administrator acts.
async fn ask(server: &Server, user: &str, groups: &[&str], method: &str, path: &str) -> u16 {
    let body = match method {
        "PATCH" => json!({"status": {"firmwareVersion": "1.0"}}),
        "POST" => json!({"metadata": {"name": "v-9"}, "spec": {}}),
        _ => Value::Null,
    };
    let media = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    send(server, user, groups, method, path, media, &body).await.0
}

/// Sends something as somebody; the code and the text of the answer.
async fn send(
    server: &Server,
    user: &str,
    groups: &[&str],
    method: &str,
    path: &str,
    media: &str,
    body: &Value,
) -> (u16, String) {
    let mut request = Request::new(full(if body.is_null() { String::new() } else { body.to_string() }));
    *request.method_mut() = Method::from_bytes(method.as_bytes()).unwrap();
    *request.uri_mut() = path.parse().unwrap();
    let headers = request.headers_mut();
    headers.insert("content-type", media.parse().unwrap());
    headers.insert("impersonate-user", user.parse().unwrap());
    for group in groups {
        headers.append("impersonate-group", group.parse().unwrap());
    }
    let (code, answer) = server.ask(request).await;
    (code, answer.to_string())
}

fn definition(kind: &str, plural: &str) -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = json!({
        "name": "v1alpha1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    });
    let names = json!({"kind": kind, "plural": plural, "singular": kind.to_lowercase()});
    json!({
        "metadata": {"name": format!("{plural}.fleet.setpoint.dev")},
        "spec": {"group": "fleet.setpoint.dev", "scope": "Namespaced", "names": names, "versions": [version]},
    })
}

async fn fleet() -> Server {
    let server = Server::start().await;
    for (kind, plural) in [("Vehicle", "vehicles"), ("Firmware", "firmwares")] {
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        server.done("POST", path, definition(kind, plural)).await;
    }
    let object = |kind: &str, name: &str, spec: Value| json!({"apiVersion": "fleet.setpoint.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec});
    for name in ["v-1", "v-2"] {
        let vehicle = object("Vehicle", name, json!({"firmwareVersion": "2.0+HW_b"}));
        server.done("POST", &format!("{ALL}/namespaces/default/vehicles"), vehicle).await;
    }
    for name in ["2.0-hw-b", "3.0"] {
        server.done("POST", &format!("{ALL}/namespaces/default/firmwares"), object("Firmware", name, json!({}))).await;
    }
    server
}

#[tokio::test]
async fn a_vehicle_may_do_this_and_nothing_else() {
    let server = fleet().await;
    for (method, path, expected) in [
        ("GET", OWN.to_owned(), 200),
        ("GET", format!("{OWN}/status"), 200),
        ("PATCH", format!("{OWN}/status"), 200),
        ("GET", format!("{ALL}/namespaces/default/vehicles?fieldSelector=metadata.name%3Dv-1"), 200),
        ("GET", format!("{ALL}/namespaces/default/firmwares/2.0-hw-b"), 200),
        // Itself, but for what it says of itself.
        ("PATCH", OWN.to_owned(), 403),
        ("PUT", OWN.to_owned(), 403),
        ("PUT", format!("{OWN}/status"), 403),
        ("DELETE", OWN.to_owned(), 403),
        // Others.
        ("GET", format!("{ALL}/namespaces/default/vehicles/v-2"), 403),
        ("PATCH", format!("{ALL}/namespaces/default/vehicles/v-2/status"), 403),
        ("GET", format!("{ALL}/namespaces/default/vehicles"), 403),
        ("GET", format!("{ALL}/vehicles"), 403),
        ("GET", format!("{ALL}/namespaces/default/vehicles?watch=1"), 403),
        ("GET", format!("{ALL}/namespaces/default/vehicles?fieldSelector=metadata.name%3Dv-2"), 403),
        ("GET", format!("{ALL}/namespaces/other/vehicles/v-1"), 403),
        ("PATCH", format!("{ALL}/namespaces/other/vehicles/v-1/status"), 403),
        ("POST", format!("{ALL}/namespaces/default/vehicles"), 403),
        ("DELETE", format!("{ALL}/namespaces/default/vehicles"), 403),
        // Firmware that isn't for it.
        ("GET", format!("{ALL}/namespaces/default/firmwares/3.0"), 403),
        ("GET", format!("{ALL}/namespaces/default/firmwares"), 403),
        ("PATCH", format!("{ALL}/namespaces/default/firmwares/2.0-hw-b"), 403),
        ("PATCH", format!("{ALL}/namespaces/default/firmwares/2.0-hw-b/status"), 403),
        // The rest of the cluster.
        ("GET", "/api/v1/namespaces/default/secrets".to_owned(), 403),
        ("GET", "/api/v1/nodes".to_owned(), 403),
        ("POST", "/api/v1/namespaces/default/configmaps".to_owned(), 403),
        ("POST", "/apis/certificates.k8s.io/v1/certificatesigningrequests".to_owned(), 403),
    ] {
        let code = ask(&server, "system:vehicle:default:v-1", &["system:vehicles"], method, &path).await;
        assert_eq!(code, expected, "{method} {path}");
    }
}

#[tokio::test]
async fn a_vehicle_that_is_revoked_or_whose_keys_are_known_has_nothing_to_say_but_through_hubs() {
    let server = fleet().await;
    let vehicle = |extra: &[&str]| crate::user::User {
        name: "system:vehicle:default:v-1".into(),
        groups: vec!["system:vehicles".into()],
        extra: extra.iter().map(|name| ((*name).to_owned(), vec!["X509SHA256=00".to_owned()])).collect(),
        ..Default::default()
    };
    let direct = [super::CREDENTIAL_ID];
    for (access, by_itself) in [
        (json!({}), true),
        (json!({"token": {"key": "00", "expires": "2026-01-01T00:00:00Z"}}), true),
        (json!({"keys": ["04"]}), false),
        (json!({"keys": ["04"], "revoked": true}), false),
        (json!({"revoked": true}), false),
    ] {
        let spec = json!({"firmwareVersion": "2.0", "access": access});
        let mut body = server.done("GET", OWN, Value::Null).await;
        body["spec"] = spec;
        server.done("PUT", OWN, body).await;
        for (subresource, verb) in [("", "get"), ("status", "patch")] {
            let what = super::What::Resource {
                group: super::GROUP,
                resource: "vehicles",
                subresource,
                namespace: "default",
                name: "v-1",
            };
            let asked = super::Asked { verb, what, on_node: None };
            let may = |user| super::allows(&server.store, &user, &asked);
            assert_eq!((may(vehicle(&[])), may(vehicle(&direct))), (true, by_itself), "{verb} {access}");
        }
    }
}

#[tokio::test]
async fn a_name_without_the_group_or_the_group_without_a_name_is_nothing() {
    let server = fleet().await;
    for (user, groups) in [
        ("system:vehicle:default:v-1", &[][..]),
        ("system:vehicle:default:v-2", &["system:vehicles"]),
        ("system:vehicle:default", &["system:vehicles"]),
        ("system:vehicle:default:v-1:x", &["system:vehicles"]),
        ("v-1", &["system:vehicles"]),
        ("system:serviceaccount:kube-system:fleet-hub", &[]),
    ] {
        assert_eq!(ask(&server, user, groups, "GET", OWN).await, 403, "{user} {groups:?}");
    }
}

#[tokio::test]
async fn the_hub_acts_as_vehicles_and_as_nobody_else() {
    let server = fleet().await;
    let hub = crate::user::User { name: super::HUB.into(), ..Default::default() };
    for (resource, name, expected) in [
        ("users", "system:vehicle:default:v-1", true),
        ("groups", "system:vehicles", true),
        ("users", "system:kube-controller-manager", false),
        ("users", "system:vehicle:default", false),
        ("groups", "system:masters", false),
        ("serviceaccounts", "system:vehicle:default:v-1", false),
    ] {
        let what = super::What::Resource { group: "", resource, subresource: "", namespace: "", name };
        let asked = super::Asked { verb: "impersonate", what, on_node: None };
        assert_eq!(super::allows(&server.store, &hub, &asked), expected, "{resource} {name}");
    }
}

/// A task is what a controller wrote. A vehicle that could write one would name itself the firmware that it reads.
#[tokio::test]
async fn a_vehicle_says_how_it_is_and_never_what_it_was_told() {
    let server = fleet().await;
    let status = format!("{OWN}/status");
    let condition = |kind: &str, holds: &str| json!({"type": kind, "status": holds, "reason": "Told", "message": ""});
    let task = json!({"id": "t-1", "attempt": 1, "firmwareVersion": "2.0+HW_b", "digest": "00"});
    let told = json!({"status": {
        "phase": "Downloading", "task": task, "conditions": [condition("UpToDate", "False"), condition("Healthy", "True")],
    }});
    let by_controller = format!("{status}?fieldManager=vehicle-controller");
    let control = async |body: &Value| {
        let (controller, masters) = ("vehicle-controller", &["system:masters"][..]);
        let media = "application/merge-patch+json";
        let (code, text) = send(&server, controller, masters, "PATCH", &by_controller, media, body).await;
        assert_eq!(code, 200, "{text}");
    };
    control(&told).await;
    let whole = |fields: Value| {
        let (api, kind) = ("fleet.setpoint.dev/v1alpha1", "Vehicle");
        json!({"apiVersion": api, "kind": kind, "metadata": {"name": "v-1"}, "status": fields})
    };
    let own = json!([condition("Connected", "True"), condition("Healthy", "False"), condition("UpToDate", "False")]);
    let forged = json!([condition("UpToDate", "True"), condition("Healthy", "True")]);
    let (merge, apply) = ("merge-patch+json", "apply-patch+yaml");
    for (what, media, manager, body, part) in [
        ("its version", merge, "v", json!({"status": {"firmwareVersion": "1.0"}}), ""),
        ("its conditions", merge, "v", json!({"status": {"conditions": own}}), ""),
        ("what it is told, as it is", merge, "v", told.clone(), ""),
        ("the firmware of its task", merge, "v", json!({"status": {"task": {"firmwareVersion": "3.0"}}}), "task"),
        ("the digest of its task", merge, "v", json!({"status": {"task": {"digest": "ff"}}}), "task"),
        ("no task", merge, "v", json!({"status": {"task": null}}), "task"),
        ("no status", merge, "v", json!({"status": null}), "phase"),
        ("another phase", merge, "v", json!({"status": {"phase": "UpToDate"}}), "phase"),
        ("that nothing failed", merge, "v", json!({"status": {"retry": {"attempt": 1}}}), "retry"),
        ("another generation", merge, "v", json!({"status": {"observedGeneration": 7}}), "observedGeneration"),
        ("a field that nobody knows", merge, "v", json!({"status": {"more": true}}), "more"),
        ("a controller's condition", merge, "v", json!({"status": {"conditions": forged}}), "conditions"),
        ("its version, applied", apply, "v", whole(json!({"firmwareVersion": "2.0"})), ""),
        ("a task beside the controller's", apply, "v", whole(json!({"task": {"firmwareVersion": "3.0"}})), "task"),
        ("the task that it has, to keep it", apply, "v", whole(json!({"task": task})), "task"),
        ("as the controller", apply, "vehicle-controller", whole(json!({"task": {"digest": "ff"}})), "task"),
    ] {
        let path = format!("{status}?fieldManager={manager}&force={}", media == apply);
        let path = if media == merge { path.replace("&force=false", "") } else { path };
        let (user, groups) = ("system:vehicle:default:v-1", &["system:vehicles"][..]);
        let media = format!("application/{media}");
        let (code, text) = send(&server, user, groups, "PATCH", &path, &media, &body).await;
        match part {
            "" => assert_eq!(code, 200, "{what}: {text}"),
            part => assert!(code == 403 && text.contains(&format!("status.{part}:")), "{what}: {code} {text}"),
        }
    }
    for (firmware, expected) in [("2.0-hw-b", 200), ("3.0", 403)] {
        let path = format!("{ALL}/namespaces/default/firmwares/{firmware}");
        let code = ask(&server, "system:vehicle:default:v-1", &["system:vehicles"], "GET", &path).await;
        assert_eq!(code, expected, "{firmware}");
    }
    // What a controller writes is not a vehicle's matter.
    let patch = json!({"status": {"task": {"firmwareVersion": "3.0"}}});
    control(&patch).await;
    let path = format!("{ALL}/namespaces/default/firmwares/3.0");
    assert_eq!(ask(&server, "system:vehicle:default:v-1", &["system:vehicles"], "GET", &path).await, 200);
}
