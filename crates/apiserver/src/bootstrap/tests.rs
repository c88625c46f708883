//! What the first start makes, and what a second one leaves.

use std::net::SocketAddr;

use serde_json::{Value, json};
use setpoint_schema::Edit;

use crate::testing::{ADDRESS, Server};

#[tokio::test]
async fn a_second_start_changes_nothing() {
    let server = Server::start().await;
    let before = server.store.snapshot().revision();
    server.api.prepare(SocketAddr::from(ADDRESS)).await.unwrap();
    assert_eq!(server.store.snapshot().revision(), before);
}

#[tokio::test]
async fn a_server_that_moved_says_where_it_is() {
    let server = Server::start().await;
    server.api.prepare(SocketAddr::from(([192, 168, 7, 8], 7443))).await.unwrap();
    let endpoints = server.done("GET", "/api/v1/namespaces/default/endpoints/kubernetes", Value::Null).await;
    assert_eq!(endpoints["subsets"][0]["addresses"][0].text("ip"), "192.168.7.8");
    let slice = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes";
    let slice = server.done("GET", slice, Value::Null).await;
    assert_eq!(slice["endpoints"][0]["addresses"], json!(["192.168.7.8"]));
    assert_eq!(slice["ports"][0].number("port"), Some(7443));
}

#[tokio::test]
async fn the_api_has_a_service_and_everything_has_its_defaults() {
    let server = Server::start().await;
    let service = server.done("GET", "/api/v1/namespaces/default/services/kubernetes", Value::Null).await;
    assert_eq!(service["spec"].text("clusterIP"), "10.0.0.1");
    server.done("GET", "/apis/networking.k8s.io/v1/ipaddresses/10.0.0.1", Value::Null).await;
    server.done("GET", "/apis/networking.k8s.io/v1/servicecidrs/kubernetes", Value::Null).await;
    server.done("GET", "/apis/scheduling.k8s.io/v1/priorityclasses/system-cluster-critical", Value::Null).await;
    let schemas = server.done("GET", "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas", Value::Null).await;
    assert_eq!(schemas["items"].as_array().map(Vec::len), Some(11));
}
