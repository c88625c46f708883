//! Facts about caches, against a small API server with faults, in virtual time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::PartialObjectMeta;
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;

use super::{Cached, Event, Informer, InformerOptions, Informers, LeanMeta, Target};
use crate::clock::Chance;
use crate::fake_api::{FakeApi, bookmark, config_map, pass};
use crate::manager::{Lifecycle, Runnable};
use crate::queue::What;

const PLURAL: &str = "configmaps";

/// An informer that runs, and what it told.
struct Bench {
    api: FakeApi,
    informer: Informer<ConfigMap>,
    told: Arc<Mutex<Vec<String>>>,
}

fn value(map: &ConfigMap) -> String {
    map.data.as_ref().and_then(|data| data.get("value").cloned()).unwrap_or_default()
}

fn said(event: &Event<ConfigMap>) -> String {
    let name = event.object().key().name().to_owned();
    match event {
        Event::Added { object, is_in_initial_list: true } => format!("initial {name}={}", value(object)),
        Event::Added { object, .. } => format!("add {name}={}", value(object)),
        Event::Updated { old, new } if event.is_resync() => format!("resync {name}={}{}", value(old), value(new)),
        Event::Updated { old, new } => format!("update {name}={}>{}", value(old), value(new)),
        Event::Deleted { last, is_final_state_unknown } => {
            format!("delete {name}={}{}", value(last), if *is_final_state_unknown { " missed" } else { "" })
        }
    }
}

impl Bench {
    async fn start(api: FakeApi, options: InformerOptions<ConfigMap>) -> Self {
        let target = Target::of::<ConfigMap>(&(), None);
        let informer = Informer::<ConfigMap>::new(api.client(), target, options, &Chance::seeded(7));
        let told: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = told.clone();
        informer.add_handler(Box::new(move |event| log.lock().unwrap().push(said(event))), None).keep();
        let running = informer.clone();
        tokio::spawn(async move { running.run_until(std::future::pending()).await });
        informer.until_synced().await;
        Self { api, informer, told }
    }

    async fn streaming() -> Self {
        let api = FakeApi::default();
        api.put(PLURAL, config_map("a", "1"));
        api.put(PLURAL, config_map("b", "1"));
        Self::start(api, InformerOptions::default()).await
    }

    /// What was told since the last call, once the cache has reached the newest version.
    async fn told_by(&self, version: u64) -> Vec<String> {
        let version = version.to_string();
        let mut progress = self.informer.progress();
        progress.wait_for(|progress| *progress.resource_version == *version).await.unwrap();
        self.told()
    }

    fn told(&self) -> Vec<String> {
        std::mem::take(&mut *self.told.lock().unwrap())
    }

    fn values(&self) -> Vec<String> {
        self.informer.lister().snapshot().iter().map(|map| format!("{}={}", map.key().name(), value(map))).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn initial_objects_are_streamed_and_then_changes() {
    let bench = Bench::streaming().await;
    assert_eq!(bench.told(), ["initial a=1", "initial b=1"]);
    bench.api.put(PLURAL, config_map("a", "2"));
    bench.api.put(PLURAL, config_map("c", "1"));
    bench.api.delete(PLURAL, "default/b");
    assert_eq!(bench.told_by(5).await, ["update a=1>2", "add c=1", "delete b=1"]);
    assert_eq!(bench.values(), ["a=2", "c=1"]);
    assert_eq!(bench.api.requests("GET").len(), 1, "one request for all of this");
    assert!(bench.api.requests("sendInitialEvents=true&resourceVersionMatch=NotOlderThan").len() == 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_without_streaming_is_listed_in_pages_from_its_cache() {
    let api = FakeApi::default();
    api.refuse_streaming();
    for name in ["a", "b", "c"] {
        api.put(PLURAL, config_map(name, "1"));
    }
    let bench = Bench::start(api, InformerOptions { page_size: 2, ..InformerOptions::default() }).await;
    bench.api.put(PLURAL, config_map("d", "1"));
    assert_eq!(bench.told_by(4).await, ["initial a=1", "initial b=1", "initial c=1", "add d=1"]);
    let lists = bench.api.requests("limit=");
    assert_eq!(
        lists,
        ["GET /api/v1/configmaps?limit=2&resourceVersion=0", "GET /api/v1/configmaps?limit=2&continue=2"]
    );
    assert!(bench.api.requests("resourceVersion=3").len() == 1, "the watch starts where the list ended");
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_initial_objects_that_never_ends_turns_into_a_list() {
    let api = FakeApi::default();
    api.put(PLURAL, config_map("a", "1"));
    api.forget_bookmarks();
    let start = Instant::now();
    let bench = Bench::start(api, InformerOptions::default()).await;
    assert_eq!((bench.values(), start.elapsed().as_secs()), (vec!["a=1".to_owned()], 60));
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_hangs_is_dropped_and_resumed() {
    let bench = Bench::streaming().await;
    bench.api.hide_events(1);
    bench.api.put(PLURAL, config_map("a", "2"));
    let _ = bench.told_by(3).await;
    assert_eq!(bench.values(), ["a=2", "b=1"]);
    assert_eq!(bench.informer.progress().borrow().lists, 1);
}

#[tokio::test(start_paused = true)]
async fn a_page_that_expired_turns_into_one_list_without_pages() {
    let api = FakeApi::default();
    api.refuse_streaming();
    for name in ["a", "b", "c"] {
        api.put(PLURAL, config_map(name, "1"));
    }
    api.fail_next("continue", 410, "Expired");
    let bench = Bench::start(api, InformerOptions { page_size: 2, ..InformerOptions::default() }).await;
    assert_eq!(bench.values(), ["a=1", "b=1", "c=1"]);
}

#[tokio::test(start_paused = true)]
async fn a_cut_watch_resumes_from_the_last_version_without_a_list() {
    let bench = Bench::streaming().await;
    bench.api.cut_watches();
    bench.api.put(PLURAL, config_map("a", "2"));
    bench.told();
    let seen = bench.told_by(3).await;
    assert_eq!(seen, ["update a=1>2"]);
    assert_eq!(bench.informer.progress().borrow().lists, 1);
    assert!(bench.api.requests("resourceVersion=2&timeout").len() == 1);
}

#[tokio::test(start_paused = true)]
async fn an_expired_watch_lists_again_and_missed_deletes_become_tombstones() {
    let bench = Bench::streaming().await;
    bench.told();
    bench.api.hide_events(3);
    bench.api.delete(PLURAL, "default/b");
    bench.api.put(PLURAL, config_map("a", "2"));
    bench.api.put(PLURAL, config_map("c", "1"));
    bench.api.compact();
    bench.api.cut_watches();
    assert_eq!(bench.told_by(5).await, ["delete b=1 missed", "update a=1>2", "add c=1"]);
    assert_eq!(bench.informer.progress().borrow().lists, 2);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_expired_is_tried_at_once_from_the_newest() {
    let bench = Bench::streaming().await;
    bench.api.refuse_streaming();
    bench.api.put(PLURAL, config_map("a", "2"));
    let _ = bench.told_by(3).await;
    bench.api.hide_events(1);
    bench.api.put(PLURAL, config_map("a", "3"));
    bench.api.compact();
    bench.api.fail_next("configmaps?resourceVersion=3", 410, "Expired");
    bench.api.cut_watches();
    let start = Instant::now();
    assert_eq!(bench.told_by(4).await, ["update a=2>3"]);
    assert_eq!(bench.api.requests("limit="), ["GET /api/v1/configmaps?limit=500"], "without a version");
    assert!(start.elapsed() < Duration::from_millis(800), "no wait: {:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_object_recreated_unseen_is_told_as_deleted_and_added() {
    let bench = Bench::streaming().await;
    bench.told();
    bench.api.hide_events(1);
    bench.api.delete(PLURAL, "default/a");
    bench.api.put(PLURAL, config_map("a", "new"));
    assert_eq!(bench.told_by(4).await, ["delete a=1 missed", "add a=new"]);
}

#[tokio::test(start_paused = true)]
async fn repeated_and_late_events_are_not_told_twice() {
    let bench = Bench::streaming().await;
    bench.api.put(PLURAL, config_map("a", "2"));
    let _ = bench.told_by(3).await;
    let mut late = config_map("a", "1");
    late["metadata"]["uid"] = json!("uid-1");
    for version in ["3", "1"] {
        late["metadata"]["resourceVersion"] = json!(version);
        bench.api.say(&json!({"type": "MODIFIED", "object": late}));
    }
    bench.api.put(PLURAL, config_map("b", "2"));
    assert_eq!(bench.told_by(4).await, ["update b=1>2"]);
}

#[tokio::test(start_paused = true)]
async fn a_bookmark_moves_the_version_only() {
    let bench = Bench::streaming().await;
    bench.told();
    bench.api.say(&bookmark(90, false));
    assert_eq!(bench.told_by(90).await, Vec::<String>::new());
    assert_eq!(bench.informer.lister().snapshot().resource_version(), "90");
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_read_is_left_out_and_the_rest_goes_on() {
    let api = FakeApi::default();
    api.refuse_streaming();
    api.put(PLURAL, json!({"metadata": {"namespace": "default", "name": "bad"}, "data": 7}));
    api.put(PLURAL, config_map("good", "1"));
    let bench = Bench::start(api, InformerOptions::default()).await;
    assert_eq!(bench.values(), ["good=1"]);
    bench.api.put(PLURAL, json!({"metadata": {"namespace": "default", "name": "bad"}, "data": 8}));
    let _ = bench.told_by(3).await;
    assert_eq!(bench.values(), ["good=1"]);
}

#[tokio::test(start_paused = true)]
async fn a_failing_server_is_asked_again_after_a_wait() {
    let api = FakeApi::default();
    api.put(PLURAL, config_map("a", "1"));
    for _ in 0..3 {
        api.fail_next("watch", 500, "InternalError");
    }
    let start = Instant::now();
    let bench = Bench::start(api, InformerOptions::default()).await;
    let waited = start.elapsed().as_millis();
    assert!((5_600..=11_200).contains(&waited), "0.8 + 1.6 + 3.2 s and up to twice that: {waited} ms");
    assert_eq!(bench.values(), ["a=1"]);
}

#[tokio::test(start_paused = true)]
async fn too_many_requests_on_a_watch_waits_and_resumes_without_a_list() {
    let bench = Bench::streaming().await;
    bench.api.fail_next("watch=true", 429, "TooManyRequests");
    bench.api.cut_watches();
    bench.api.put(PLURAL, config_map("a", "2"));
    let _ = bench.told_by(3).await;
    assert_eq!(bench.informer.progress().borrow().lists, 1);
}

#[tokio::test(start_paused = true)]
async fn a_late_handler_is_told_what_is_there_and_a_removed_one_nothing_more() {
    let bench = Bench::streaming().await;
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = told.clone();
    let registration = bench.informer.add_handler(Box::new(move |event| log.lock().unwrap().push(said(event))), None);
    assert_eq!(*told.lock().unwrap(), ["initial a=1", "initial b=1"]);
    drop(registration);
    bench.api.put(PLURAL, config_map("a", "2"));
    let _ = bench.told_by(3).await;
    assert_eq!(told.lock().unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_resync_replays_the_cache_to_those_who_asked_without_the_server() {
    let bench = Bench::streaming().await;
    let told: Arc<Mutex<Vec<What>>> = Arc::default();
    let log = told.clone();
    let handler = Box::new(move |event: &Event<ConfigMap>| log.lock().unwrap().push(event.what()));
    bench.informer.add_handler(handler, Some(Duration::from_secs(60))).keep();
    bench.told();
    let requests = bench.api.requests("").len();
    pass(Duration::from_secs(130)).await;
    let resyncs = told.lock().unwrap().iter().filter(|what| **what == What::Resync).count();
    assert_eq!(resyncs, 4, "two objects, twice");
    assert_eq!(bench.told(), Vec::<String>::new());
    assert_eq!(bench.api.requests("").len(), requests);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_does_not_stop_the_others() {
    let bench = Bench::streaming().await;
    bench.informer.add_handler(Box::new(|_| panic!("on purpose")), None).keep();
    bench.told();
    bench.api.put(PLURAL, config_map("a", "2"));
    assert_eq!(bench.told_by(3).await, ["update a=1>2"]);
}

#[tokio::test(start_paused = true)]
async fn indexes_follow_changes_and_a_snapshot_stays() {
    let bench = Bench::streaming().await;
    bench.informer.add_index("value", |map| vec![value(map)]);
    let names = |found: &super::Snapshot<ConfigMap>, of: &str| {
        found.by_index("value", of).map(|map| map.key().name().to_owned()).collect::<Vec<_>>()
    };
    let before = bench.informer.lister().snapshot();
    assert_eq!(names(&before, "1"), ["a", "b"]);
    bench.api.put(PLURAL, config_map("a", "2"));
    bench.api.delete(PLURAL, "default/b");
    let _ = bench.told_by(4).await;
    let after = bench.informer.lister().snapshot();
    assert_eq!((names(&after, "1"), names(&after, "2")), (vec![], vec!["a".to_owned()]));
    assert_eq!(after.index_values("value").collect::<Vec<_>>(), ["2"]);
    assert_eq!(
        ["1", "2"].map(|of| (before.index_count("value", of), after.index_count("value", of))),
        [(2, 0), (0, 1)]
    );
    assert_eq!(names(&before, "1"), ["a", "b"], "a snapshot doesn't change");
}

#[tokio::test(start_paused = true)]
async fn a_namespace_is_read_without_its_neighbours() {
    let api = FakeApi::default();
    for (namespace, name) in [("a", "x"), ("a", "y"), ("a-b", "x"), ("a0", "x"), ("ab", "x")] {
        api.put(PLURAL, json!({"metadata": {"namespace": namespace, "name": name}}));
    }
    let bench = Bench::start(api, InformerOptions::default()).await;
    let snapshot = bench.informer.lister().snapshot();
    let keys: Vec<_> = snapshot.namespace("a").map(|map| map.key().to_string()).collect();
    assert_eq!(keys, ["a/x", "a/y"]);
}

#[tokio::test(start_paused = true)]
async fn a_transform_drops_what_nobody_reads() {
    let api = FakeApi::default();
    api.put(PLURAL, config_map("a", "secret"));
    let transform: Box<dyn Fn(&mut ConfigMap) + Send + Sync> = Box::new(|map| map.data = None);
    let bench = Bench::start(api, InformerOptions { transform: Some(transform), ..InformerOptions::default() }).await;
    assert_eq!(bench.values(), ["a="]);
}

#[derive(Deserialize)]
struct View {
    metadata: LeanMeta,
}

crate::lean_view!(View of ConfigMap);

#[tokio::test(start_paused = true)]
async fn informers_are_shared_by_type_and_target_and_come_and_go_while_running() {
    let api = FakeApi::default();
    let mut object = config_map("a", "1");
    object["metadata"]["labels"] = json!({"zone": "b", "app": "web"});
    api.put(PLURAL, object);
    let informers = Informers::new(api.client(), &Chance::seeded(1));
    let full = informers.all::<ConfigMap>();
    let lifecycle = Lifecycle::new();
    let running = tokio::spawn(Box::new(informers.clone()).run(lifecycle.clone()));
    lifecycle.until_ready().await;
    assert!(full.is_synced());

    let lean = informers.all::<View>();
    let again = informers.all::<View>();
    let meta = informers.all::<PartialObjectMeta<ConfigMap>>();
    lean.until_synced().await;
    meta.until_synced().await;
    assert!(again.is_synced(), "the same informer");
    assert_eq!(lean.lister().get("default/a").unwrap().metadata.label("zone"), Some("b"));
    assert_eq!(api.requests("sendInitialEvents").len(), 3, "one per type");
    assert!(lean.lister().memory().bytes < full.lister().memory().bytes / 2);
    assert_eq!(informers.memory().len(), 3);

    informers.remove::<View>(lean.target());
    api.put(PLURAL, config_map("b", "1"));
    full.progress().wait_for(|progress| &*progress.resource_version == "2").await.unwrap();
    assert_eq!((lean.lister().len(), full.lister().len()), (1, 2));
    lifecycle.drain();
    running.await.unwrap().unwrap();
}
