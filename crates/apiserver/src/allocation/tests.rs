//! Addresses and ports through the whole server.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use setpoint_schema::Edit;

use crate::testing::Server;

const SERVICES: &str = "/api/v1/namespaces/default/services";

fn service(name: &str, spec: Value) -> Value {
    let mut service = json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}});
    for (field, value) in spec.as_object().unwrap() {
        service["spec"].set(field, value.clone());
    }
    service
}

#[tokio::test]
async fn services_that_come_at_once_get_addresses_of_their_own() {
    let server = Server::start().await;
    let creations =
        (0..64).map(|n| server.done("POST", SERVICES, service(&format!("s{n}"), json!({"type": "NodePort"}))));
    let made = futures_util::future::join_all(creations).await;
    let addresses: BTreeSet<&str> = made.iter().map(|service| service["spec"].text("clusterIP")).collect();
    let ports: BTreeSet<i64> =
        made.iter().filter_map(|service| service["spec"]["ports"][0].number("nodePort")).collect();
    assert_eq!((addresses.len(), ports.len()), (64, 64));
    let first = server
        .done(
            "GET",
            &format!("/apis/networking.k8s.io/v1/ipaddresses/{}", made[0]["spec"].text("clusterIP")),
            Value::Null,
        )
        .await;
    assert_eq!(first["spec"]["parentRef"], json!({"name": "s0", "namespace": "default", "resource": "services"}));
}

#[tokio::test]
async fn an_address_is_free_again_after_its_service() {
    let server = Server::start().await;
    let asked = json!({"clusterIP": "10.0.0.9"});
    server.done("POST", SERVICES, service("a", asked.clone())).await;
    let (code, message) = server.refused("POST", SERVICES, service("b", asked.clone())).await;
    let expected = "Service \"b\" is invalid: spec.clusterIPs: Invalid value: [\"10.0.0.9\"]: failed to allocate IP 10.0.0.9: provided IP is already allocated";
    assert_eq!((code, &*message), (422, expected));
    server.done("DELETE", &format!("{SERVICES}/a"), Value::Null).await;
    server.done("POST", SERVICES, service("b", asked)).await;
}

#[tokio::test]
async fn a_dry_run_asks_the_first_range_and_takes_what_is_taken() {
    let server = Server::start().await;
    let dry = format!("{SERVICES}?dryRun=All");
    let (code, message) = server.refused("POST", &dry, service("a", json!({"clusterIP": "1.2.3.4"}))).await;
    assert_eq!(code, 422);
    let expected = "failed to allocate IP 1.2.3.4: the provided IP (1.2.3.4) is not in the valid range. The range of valid IPs is 10.0.0.0/16";
    assert!(message.ends_with(expected), "{message}");
    let asked = json!({"clusterIP": "10.0.0.9"});
    server.done("POST", SERVICES, service("a", asked.clone())).await;
    server.done("POST", &dry, service("b", asked)).await;
}

#[tokio::test]
async fn an_address_outside_of_every_range_is_refused() {
    let server = Server::start().await;
    let (code, message) = server.refused("POST", SERVICES, service("a", json!({"clusterIP": "1.2.3.4"}))).await;
    assert_eq!(code, 422);
    assert!(
        message.ends_with("failed to allocate IP 1.2.3.4: the provided network does not match the current range"),
        "{message}"
    );
}

#[tokio::test]
async fn a_dry_run_takes_nothing() {
    let server = Server::start().await;
    let before = server.store.snapshot().revision();
    let spec = json!({"type": "NodePort", "clusterIP": "10.0.0.9", "ports": [{"port": 80, "nodePort": 30001}]});
    server.done("POST", &format!("{SERVICES}?dryRun=All"), service("a", spec.clone())).await;
    assert_eq!(server.store.snapshot().revision(), before);
    server.done("POST", SERVICES, service("a", spec)).await;
}

#[tokio::test]
async fn a_service_that_changes_its_type_gives_back_and_takes() {
    let server = Server::start().await;
    let spec = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30001}]});
    server.done("POST", SERVICES, service("a", spec.clone())).await;
    let (code, message) = server.refused("POST", SERVICES, service("b", spec.clone())).await;
    let expected =
        "Service \"b\" is invalid: spec.ports[0].nodePort: Invalid value: 30001: provided port is already allocated";
    assert_eq!((code, &*message), (422, expected));
    let address = server.done("GET", &format!("{SERVICES}/a"), Value::Null).await["spec"].text("clusterIP").to_owned();
    let inside = server.done("PUT", &format!("{SERVICES}/a"), service("a", json!({"type": "ClusterIP"}))).await;
    assert_eq!(inside["spec"].text("clusterIP"), address);
    server.done("POST", SERVICES, service("b", spec)).await;
    let named = json!({"metadata": {"name": "a"}, "spec": {"type": "ExternalName", "externalName": "x.example"}});
    let named = server.done("PUT", &format!("{SERVICES}/a"), named).await;
    assert!(!named["spec"].has("clusterIP"));
    let (code, _) = server.send("GET", &format!("/apis/networking.k8s.io/v1/ipaddresses/{address}"), Value::Null).await;
    assert_eq!(code, 404);
}

#[tokio::test]
async fn an_added_range_can_be_chosen_from() {
    let server = Server::start().await;
    let ranges = "/apis/networking.k8s.io/v1/servicecidrs";
    let range = json!({"metadata": {"name": "more"}, "spec": {"cidrs": ["10.9.0.0/28"]}});
    server.done("POST", ranges, range).await;
    let asked = server.done("POST", SERVICES, service("a", json!({"clusterIP": "10.9.0.3"}))).await;
    assert_eq!(asked["spec"]["clusterIPs"], json!(["10.9.0.3"]));
}
