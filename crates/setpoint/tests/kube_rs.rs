//! The Rust client, kube, unchanged, against a running server.

mod server;

use futures_util::{StreamExt, TryStreamExt};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, PropagationPolicy, WatchEvent, WatchParams,
};
use kube::{Api, Client, CustomResource, CustomResourceExt, Discovery, ResourceExt};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;
use server::Server;

/// A kind of our own, as controllers in Rust define theirs.
#[derive(CustomResource, Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[kube(group = "example.com", version = "v1", kind = "Lamp", namespaced, status = "LampStatus", shortname = "lm")]
#[kube(scale(spec_replicas_path = ".spec.bulbs", status_replicas_path = ".status.lit"))]
#[kube(printcolumn(name = "Room", type_ = "string", json_path = ".spec.room"))]
struct LampSpec {
    room: String,
    #[serde(default)]
    bulbs: i32,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
struct LampStatus {
    lit: i32,
}

/// A server for one test, with a client of it.
struct Cluster {
    client: Client,
    _server: Server,
    _folder: tempfile::TempDir,
}

impl Cluster {
    async fn start() -> Cluster {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::start(folder.path());
        Cluster { client: server.client().await, _server: server, _folder: folder }
    }

    fn config_maps(&self) -> Api<ConfigMap> {
        Api::default_namespaced(self.client.clone())
    }
}

fn object<T: DeserializeOwned>(value: serde_json::Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn config_map(name: &str) -> ConfigMap {
    object(json!({"metadata": {"name": name, "labels": {"app": "web"}}, "data": {"color": "red"}}))
}

/// The HTTP code with which the server refused.
fn refused<T: std::fmt::Debug>(answer: kube::Result<T>) -> u16 {
    match answer {
        Err(kube::Error::Api(status)) => status.code,
        other => panic!("not refused by the server: {other:?}"),
    }
}

#[tokio::test]
async fn an_object_is_created_read_listed_and_deleted() {
    let cluster = Cluster::start().await;
    let api = cluster.config_maps();
    let created = api.create(&PostParams::default(), &config_map("one")).await.unwrap();
    assert!(created.uid().is_some() && created.resource_version().is_some() && created.creation_timestamp().is_some());
    assert_eq!(refused(api.create(&PostParams::default(), &config_map("one")).await), 409);
    assert_eq!(api.get("one").await.unwrap(), created);
    assert_eq!(refused(api.get("two").await), 404);
    assert!(api.get_opt("two").await.unwrap().is_none());
    assert_eq!(api.get_metadata("one").await.unwrap().metadata, created.metadata);
    let listed = api.list(&ListParams::default().labels("app=web").fields("metadata.name=one")).await.unwrap();
    assert_eq!(listed.items.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["one"]);
    api.delete("one", &DeleteParams::default()).await.unwrap();
    assert_eq!(refused(api.delete("one", &DeleteParams::default()).await), 404);
}

#[tokio::test]
async fn a_list_comes_in_pages_of_one_moment() {
    let cluster = Cluster::start().await;
    let api = cluster.config_maps();
    for name in ["a", "b", "c", "d", "e"] {
        api.create(&PostParams::default(), &config_map(name)).await.unwrap();
    }
    let (mut names, mut pages) = (Vec::new(), 0);
    let mut asked = ListParams::default().limit(2);
    loop {
        let page = api.list(&asked).await.unwrap();
        names.extend(page.items.iter().map(ResourceExt::name_any));
        pages += 1;
        // Made after the first page, so no later page may show it.
        let _ = api.create(&PostParams::default(), &config_map("z")).await;
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => asked = asked.continue_token(&token),
            None => break,
        }
    }
    assert_eq!((names.concat().as_str(), pages), ("abcde", 3));
}

#[tokio::test]
async fn patches_of_all_types_change_what_they_name() {
    let cluster = Cluster::start().await;
    let api = cluster.config_maps();
    api.create(&PostParams::default(), &config_map("one")).await.unwrap();
    let defaults = PatchParams::default();
    let merge = Patch::Merge(json!({"data": {"color": null, "size": "2"}}));
    assert_eq!(api.patch("one", &defaults, &merge).await.unwrap().data, object(json!({"size": "2"})));
    let operations = object(json!([{"op": "replace", "path": "/data/size", "value": "3"}]));
    assert_eq!(
        api.patch("one", &defaults, &Patch::Json::<()>(operations)).await.unwrap().data,
        object(json!({"size": "3"}))
    );
    let missing = object(json!([{"op": "remove", "path": "/data/none"}]));
    assert_eq!(refused(api.patch("one", &defaults, &Patch::Json::<()>(missing)).await), 422);
}

#[tokio::test]
async fn applied_fields_have_owners() {
    let cluster = Cluster::start().await;
    let api = cluster.config_maps();
    let send = async |data: serde_json::Value, manager: PatchParams| {
        let wanted =
            Patch::Apply(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, "data": data}));
        api.patch("one", &manager, &wanted).await
    };
    let (me, them) = (PatchParams::apply("me"), PatchParams::apply("them"));
    send(json!({"mine": "1"}), me.clone()).await.unwrap();
    let both = send(json!({"theirs": "2"}), them.clone()).await.unwrap();
    assert_eq!(both.data, object(json!({"mine": "1", "theirs": "2"})));
    assert_eq!(refused(send(json!({"mine": "3"}), them.clone()).await), 409);
    let taken = send(json!({"mine": "3"}), them.force()).await.unwrap();
    assert_eq!(taken.data, object(json!({"mine": "3"})));
    let given_up = send(json!({}), me).await.unwrap();
    assert_eq!(given_up.data, object(json!({"mine": "3"})));
}

#[tokio::test]
async fn a_deployment_is_merged_by_container_name_scaled_and_keeps_its_status_apart() {
    let cluster = Cluster::start().await;
    let api: Api<Deployment> = Api::default_namespaced(cluster.client.clone());
    let pod =
        json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": "nginx"}]}});
    let web =
        json!({"metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": pod}});
    let created = api.create(&PostParams::default(), &object(web)).await.unwrap();
    assert_eq!(created.spec.unwrap().replicas, Some(1));
    let side = json!({"spec": {"template": {"spec": {"containers": [{"name": "side", "image": "busybox"}]}}}});
    let merged = api.patch("web", &PatchParams::default(), &Patch::Strategic(side)).await.unwrap();
    let names = |web: &Deployment| {
        let containers = &web.spec.as_ref().unwrap().template.spec.as_ref().unwrap().containers;
        containers.iter().map(|container| container.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(&merged), ["side", "web"]);
    let scale = Patch::Merge(json!({"spec": {"replicas": 4}}));
    assert_eq!(api.patch_scale("web", &PatchParams::default(), &scale).await.unwrap().spec.unwrap().replicas, Some(4));
    let status = Patch::Merge(json!({"status": {"replicas": 4}, "spec": {"replicas": 9}}));
    let answer = api.patch_status("web", &PatchParams::default(), &status).await.unwrap();
    assert_eq!((answer.spec.unwrap().replicas, answer.status.unwrap().replicas), (Some(4), Some(4)));
    let ignored = Patch::Merge(json!({"status": {"replicas": 7}}));
    let answer = api.patch("web", &PatchParams::default(), &ignored).await.unwrap();
    assert_eq!((answer.metadata.generation, answer.status.unwrap().replicas), (Some(3), Some(4)));
}

#[tokio::test]
async fn an_update_from_an_old_version_is_a_conflict() {
    let cluster = Cluster::start().await;
    let api = cluster.config_maps();
    let mut old = api.create(&PostParams::default(), &config_map("one")).await.unwrap();
    let mut new = old.clone();
    new.data = object(json!({"color": "blue"}));
    let new = api.replace("one", &PostParams::default(), &new).await.unwrap();
    old.data = object(json!({"color": "green"}));
    assert_eq!(refused(api.replace("one", &PostParams::default(), &old).await), 409);
    assert_eq!(api.get("one").await.unwrap(), new);
    let stale = DeleteParams {
        preconditions: Some(kube::api::Preconditions { resource_version: old.resource_version(), uid: None }),
        ..DeleteParams::default()
    };
    assert_eq!(refused(api.delete("one", &stale).await), 409);
    let dry = DeleteParams { dry_run: true, ..DeleteParams::background() };
    api.delete("one", &dry).await.unwrap();
    assert_eq!(api.get("one").await.unwrap(), new);
}

#[tokio::test]
async fn a_watch_tells_every_change_in_order() {
    let cluster = Cluster::start().await;
    let api = cluster.config_maps();
    let from = api.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    api.create(&PostParams::default(), &config_map("one")).await.unwrap();
    api.patch("one", &PatchParams::default(), &Patch::Merge(json!({"data": {"color": "blue"}}))).await.unwrap();
    let events = api.watch(&WatchParams::default().labels("app=web").timeout(30), &from).await.unwrap();
    // The last change comes while the watch is open.
    let end = async { api.delete("one", &DeleteParams::default()).await.unwrap() };
    let (seen, _) = tokio::join!(events.take(3).try_collect::<Vec<_>>(), end);
    let told: Vec<_> = seen.unwrap().into_iter().map(tell).collect();
    assert_eq!(told, ["added red", "modified blue", "deleted blue"]);
}

fn tell(event: WatchEvent<ConfigMap>) -> String {
    let color = |map: ConfigMap| map.data.unwrap_or_default().remove("color").unwrap_or_default();
    match event {
        WatchEvent::Added(map) => format!("added {}", color(map)),
        WatchEvent::Modified(map) => format!("modified {}", color(map)),
        WatchEvent::Deleted(map) => format!("deleted {}", color(map)),
        WatchEvent::Bookmark(_) => "bookmark".to_owned(),
        WatchEvent::Error(status) => format!("error {status:?}"),
    }
}

#[tokio::test]
async fn a_collection_is_deleted_by_selector_and_finalizers_hold() {
    let cluster = Cluster::start().await;
    let api = cluster.config_maps();
    for name in ["a", "b"] {
        api.create(&PostParams::default(), &config_map(name)).await.unwrap();
    }
    let other: ConfigMap = object(json!({"metadata": {"name": "c", "finalizers": ["example.com/hold"]}}));
    api.create(&PostParams::default(), &other).await.unwrap();
    api.delete_collection(&DeleteParams::default(), &ListParams::default().labels("app=web")).await.unwrap();
    let left = api.list(&ListParams::default()).await.unwrap();
    assert_eq!(left.items.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["c"]);
    let held = api.delete("c", &DeleteParams::default()).await.unwrap().left().expect("the object, not yet gone");
    assert!(held.metadata.deletion_timestamp.is_some());
    api.patch("c", &PatchParams::default(), &Patch::Merge(json!({"metadata": {"finalizers": null}}))).await.unwrap();
    assert!(api.get_opt("c").await.unwrap().is_none());
    let foreground =
        DeleteParams { propagation_policy: Some(PropagationPolicy::Foreground), ..DeleteParams::default() };
    assert_eq!(refused(api.delete("c", &foreground).await), 404);
}

#[tokio::test]
async fn kinds_are_discovered_and_used_without_types() {
    let cluster = Cluster::start().await;
    assert!(cluster.client.apiserver_version().await.unwrap().git_version.starts_with("v1."));
    let discovery = Discovery::new(cluster.client.clone()).run().await.unwrap();
    let (resource, capabilities) = discovery
        .groups()
        .flat_map(|group| group.recommended_resources())
        .find(|(resource, _)| resource.kind == "StatefulSet")
        .expect("served");
    assert_eq!((resource.plural.as_str(), capabilities.subresources.is_empty()), ("statefulsets", false));
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    namespaces.create(&PostParams::default(), &object(json!({"metadata": {"name": "shop"}}))).await.unwrap();
    let api: Api<DynamicObject> = Api::namespaced_with(cluster.client.clone(), "shop", &resource);
    assert!(api.list(&ListParams::default()).await.unwrap().items.is_empty());
}

#[tokio::test]
async fn a_kind_of_ones_own_is_defined_applied_and_scaled() {
    let cluster = Cluster::start().await;
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client.clone());
    let apply = PatchParams::apply("lamps");
    definitions.patch("lamps.example.com", &apply, &Patch::Apply(Lamp::crd())).await.unwrap();
    let lamps: Api<Lamp> = Api::default_namespaced(cluster.client.clone());
    let lamp = Lamp::new("desk", LampSpec { room: "study".into(), bulbs: 2 });
    let made = lamps.patch("desk", &apply, &Patch::Apply(&lamp)).await.unwrap();
    assert_eq!((made.spec, made.metadata.generation), (lamp.spec.clone(), Some(1)));
    let again = lamps.patch("desk", &apply, &Patch::Apply(&lamp)).await.unwrap();
    assert_eq!(again.metadata.resource_version, made.metadata.resource_version);

    let status = json!({"apiVersion": "example.com/v1", "kind": "Lamp", "status": {"lit": 1}});
    let told = lamps.patch_status("desk", &PatchParams::apply("switch"), &Patch::Apply(&status)).await.unwrap();
    assert_eq!((told.status, told.metadata.generation), (Some(LampStatus { lit: 1 }), Some(1)));
    let scale = lamps.get_scale("desk").await.unwrap();
    assert_eq!((scale.spec.unwrap().replicas, scale.status.unwrap().replicas), (Some(2), 1));
    let patch = Patch::Merge(json!({"spec": {"replicas": 5}}));
    lamps.patch_scale("desk", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(lamps.get("desk").await.unwrap().spec.bulbs, 5);

    let other = Lamp::new("desk", LampSpec { room: "hall".into(), bulbs: 5 });
    assert_eq!(refused(lamps.patch("desk", &PatchParams::apply("mover"), &Patch::Apply(&other)).await), 409);
    lamps.patch("desk", &PatchParams::apply("mover").force(), &Patch::Apply(&other)).await.unwrap();
    assert_eq!(lamps.get("desk").await.unwrap().spec.room, "hall");
}

#[tokio::test]
async fn custom_kinds_outlive_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path());
    let client = server.client().await;
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    definitions.create(&PostParams::default(), &Lamp::crd()).await.unwrap();
    let lamp: Lamp = object(json!({"apiVersion": "example.com/v1", "kind": "Lamp", "metadata": {"name": "desk"},
        "spec": {"room": "office", "bulbs": 2}}));
    let made = Api::<Lamp>::default_namespaced(client).create(&PostParams::default(), &lamp).await.unwrap();
    server.kill();

    let server = Server::start(folder.path());
    let lamps: Api<Lamp> = Api::default_namespaced(server.client().await);
    let kept = lamps.get("desk").await.unwrap();
    assert_eq!((&kept.spec, &kept.metadata), (&made.spec, &made.metadata));
    let wrong = Patch::Merge(json!({"spec": {"bulbs": "many"}}));
    assert_eq!(refused(lamps.patch("desk", &PatchParams::default(), &wrong).await), 422);
    assert_eq!(lamps.get_scale("desk").await.unwrap().spec.unwrap().replicas, Some(2));
}
