//! kube's client on the service itself: no socket, and an identity that it can't leave.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use setpoint_apiserver::user::User;
use setpoint_apiserver::{ApiServer, Chance, Clock, Registry};
use setpoint_store::{MemoryDisk, Options, Store};
use tokio::sync::watch;

/// The whole server in this test, and the end of its life.
async fn server() -> (ApiServer, watch::Sender<bool>) {
    let registry = Arc::new(Registry::builtin());
    let disk = Arc::new(MemoryDisk::new());
    let (store, _) = Store::open(disk, Arc::clone(&registry) as _, Options::default()).await.unwrap();
    let (stop, stopping) = watch::channel(false);
    let clock = Clock::starting_at(Duration::from_secs(1_700_000_000));
    let api = ApiServer::new(store, registry, clock, Chance::seeded(7), stopping);
    api.prepare(SocketAddr::from(([127, 0, 0, 1], 6443))).await.unwrap();
    (api, stop)
}

fn controller() -> User {
    User {
        name: "system:serviceaccount:kube-system:thermostat".to_owned(),
        groups: vec!["system:masters".to_owned()],
        ..User::default()
    }
}

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": {"color": "red"}})).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_client_without_a_socket_writes_reads_and_watches() {
    let (api, stop) = server().await;
    let client = Client::new(api.acting_as(controller()), "default");
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let created = maps.create(&PostParams::default(), &config_map("one")).await.unwrap();
    let seen = created.resource_version().unwrap();
    let events = maps.watch(&WatchParams::default(), &seen).await.unwrap();
    maps.patch("one", &PatchParams::apply("test"), &Patch::Merge(json!({"data": {"color": "blue"}}))).await.unwrap();
    maps.delete("one", &DeleteParams::default()).await.unwrap();
    let mut events = pin!(events);
    let changed = events.try_next().await.unwrap();
    assert!(matches!(&changed, Some(WatchEvent::Modified(map)) if map.data.as_ref().unwrap()["color"] == "blue"));
    let gone = events.try_next().await.unwrap();
    assert!(matches!(&gone, Some(WatchEvent::Deleted(map)) if map.name_any() == "one"));
    stop.send(true).unwrap();
    assert!(events.try_next().await.unwrap().is_none(), "a watch ends cleanly with the server");
}

#[tokio::test(start_paused = true)]
async fn a_client_is_who_it_was_made_for_and_no_one_else() {
    let (api, _stop) = server().await;
    let client = Client::new(api.acting_as(controller()), "default");
    let reviews: Api<SelfSubjectReview> = Api::all(client.clone());
    let review = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await.unwrap();
    let user = review.status.unwrap().user_info.unwrap();
    assert_eq!(user.username.as_deref(), Some("system:serviceaccount:kube-system:thermostat"));

    let mut forged = http::Request::get("/api/v1/namespaces/default/configmaps").body(Vec::new()).unwrap();
    forged.headers_mut().insert("impersonate-user", "admin".parse().unwrap());
    let answer = client.request_text(forged).await;
    assert!(matches!(&answer, Err(kube::Error::Api(status)) if status.code == 403), "{answer:?}");
}
