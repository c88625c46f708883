//! Two managers, one leader: whatever happens to it, at whatever moment, the other goes on, and nobody writes who does not
//! lead.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{AsyncBufReadExt, TryStreamExt};
use http::{Method, Request, Response};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::core::ResourceExt;
use kube::{Client, Error as KubeError};
use serde_json::{Value, json};
use setpoint_runtime::Key;
use setpoint_runtime::clock::{Chance, Clock};
use setpoint_runtime::controller::{Action, Context, Controller, Error};
use setpoint_runtime::election::{ElectionConfig, FENCE_HEADER};
use setpoint_runtime::manager::{Manager, ManagerOptions};
use setpoint_testkit::{ControlPlane, Limits, Process, Scenario, State, exhaust_with};
use tokio::sync::Notify;
use tower::{BoxError, Service};

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases/managers";

/// A manager that gives each ConfigMap what it wants, and signs it.
fn manager(client: Client, clock: Clock, chance: &Chance, identity: &str) -> Manager {
    let election = ElectionConfig::new("default", "managers", identity);
    let options = ManagerOptions { election: Some(election), ..ManagerOptions::default() };
    let manager = Manager::new(client, clock, chance.fork(identity), options).unwrap();
    let maps = manager.informers().all::<ConfigMap>();
    let (identity, cache) = (identity.to_owned(), maps.clone());
    let reconcile = move |context: Context, key: Key| {
        let (map, by) = (context.read(&cache, &key), identity.clone());
        async move {
            let Some(map) = map else { return Ok::<_, Error>(Action::done()) };
            let text = |field: &str| map.data.as_ref().and_then(|data| data.get(field)).cloned();
            if let Some(want) = text("want").filter(|want| text("got").as_ref() != Some(want)) {
                set(context.client(), &map.name_any(), json!({"got": want, "by": by})).await?;
            }
            Ok(Action::done())
        }
    };
    let controller = Controller::builder("led", manager.client().clone(), clock, &maps).build(reconcile);
    manager.add_controller(&[], controller).unwrap();
    manager
}

/// The other process, a little later than the one under test. A manager that has lost the lease ends, and its process starts again
/// under another name.
async fn stand_by(client: Client, clock: Clock, chance: Chance) {
    tokio::time::sleep(Duration::from_secs(3)).await;
    for life in 0.. {
        let identity = format!("other-{life}");
        let _ = manager(client.clone(), clock, &chance, &identity).run(std::future::pending()).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

fn api(client: &Client) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), "default")
}

async fn set(client: &Client, name: &str, data: Value) -> Result<(), KubeError> {
    api(client).patch(name, &PatchParams::default(), &Patch::Merge(json!({ "data": data }))).await.map(drop)
}

/// Users want something new every few seconds, then wait for as long as it takes another to lead, twice.
async fn want_things(plane: &ControlPlane) {
    let client = plane.client();
    for name in ["a", "b"] {
        let map = serde_json::from_value(json!({"metadata": {"name": name}, "data": {"want": "0"}})).unwrap();
        api(&client).create(&PostParams::default(), &map).await.unwrap();
    }
    for step in 1..=5 {
        plane.advance(Duration::from_secs(5)).await;
        let name = if step % 2 == 0 { "a" } else { "b" };
        set(&client, name, json!({"want": step.to_string()})).await.unwrap();
    }
    plane.advance(Duration::from_secs(40)).await;
}

fn all_is_as_wanted(state: &State) -> Result<(), String> {
    let maps = state.objects("", "configmaps");
    let named: Vec<_> = maps.iter().filter(|map| !map["data"]["want"].is_null()).collect();
    match named.len() == 2 && named.iter().all(|map| map["data"]["want"] == map["data"]["got"]) {
        true => Ok(()),
        false => Err(format!("{named:?}")),
    }
}

/// Everything that happened to a resource, in the order of its revisions.
async fn history(client: &Client, path: &str) -> Vec<(u64, Value)> {
    let request =
        Request::get(format!("{path}?watch=true&resourceVersion=1&timeoutSeconds=1")).body(Vec::new()).unwrap();
    let lines = client.request_stream(request).await.unwrap().lines();
    let lines: Vec<String> = lines.try_collect().await.unwrap();
    let events = lines.iter().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let objects = events.filter(|event| event["type"] != "BOOKMARK").map(|event| {
        assert_ne!(event["type"], "ERROR", "{event}");
        event["object"].clone()
    });
    objects.map(|object| (revision(&object), object)).collect()
}

fn revision(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

/// Each signature was put while its signer held the lease: by the one order of all writes, not by anybody's clock.
async fn check_writers(plane: &ControlPlane) -> Vec<String> {
    let client = plane.client();
    let leases = history(&client, "/apis/coordination.k8s.io/v1/namespaces/default/leases").await;
    let holder_at = |revision: u64| {
        let before = leases.iter().take_while(|(at, _)| *at < revision).last();
        before.and_then(|(_, lease)| lease["spec"]["holderIdentity"].as_str()).unwrap_or_default().to_owned()
    };
    let mut writers: Vec<String> = Vec::new();
    let mut got: std::collections::BTreeMap<String, Value> = Default::default();
    for (at, map) in history(&client, "/api/v1/namespaces/default/configmaps").await {
        let name = map["metadata"]["name"].as_str().unwrap().to_owned();
        let signed = json!([map["data"]["got"], map["data"]["by"]]);
        let is_news = got.insert(name, signed.clone()) != Some(signed);
        if let Some(by) = map["data"]["by"].as_str().filter(|_| is_news) {
            assert_eq!(holder_at(at), by, "at revision {at}: {map}");
            writers.push(by.to_owned());
        }
    }
    writers.dedup();
    writers
}

/// The manager under test beside one that stands by, as the kit sees it: every fault at every point.
struct Pair;

impl Scenario for Pair {
    fn name(&self) -> &'static str {
        "whatever_happens_to_the_leader_the_other_goes_on"
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let identity = format!("tested-{}", process.clock.micro_time().0);
            let stopped = process.stopped();
            // A process that fails is started again by the kit.
            let _ = manager(process.client, process.clock, &process.chance, &identity).run(stopped).await;
        })
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            want_things(plane).await;
            check_writers(plane).await;
        })
    }

    fn world<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(stand_by(plane.client(), plane.clock(), plane.chance()))
    }

    fn view(&self, mut object: Value) -> Option<Value> {
        // Who it was that did it may differ.
        if let Some(data) = object["data"].as_object_mut() {
            data.remove("by");
        }
        Some(object)
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        all_is_as_wanted(state)
    }
}

#[test]
fn whatever_happens_to_the_leader_the_other_goes_on() {
    // Two managers renew and look at the lease all the time, so an hour is many calls: a minute tells as much.
    let minute = Duration::from_secs(60);
    let report = exhaust_with(&Pair, 0, Limits { quiet: minute, still: minute, ..Limits::default() });
    report.assert();
    assert!(report.points > 50, "{report}");
}

/// When the leader dies: its n-th call is the last, and does or does not reach the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Death {
    Before(usize),
    After(usize),
}

/// A way to the server that ends with the process.
#[derive(Clone)]
struct Mortal {
    inner: Client,
    calls: Arc<AtomicUsize>,
    death: Option<Death>,
    died: Arc<Notify>,
}

impl Service<Request<Body>> for Mortal {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let wire = self.clone();
        Box::pin(async move {
            let call = wire.calls.fetch_add(1, Ordering::Relaxed) + 1;
            let last = match wire.death {
                Some(Death::Before(n) | Death::After(n)) => n,
                None => usize::MAX,
            };
            if call < last {
                return Ok(wire.inner.send(request).await?);
            }
            if wire.death == Some(Death::After(call)) {
                let _ = wire.inner.send(request).await;
            }
            wire.died.notify_one();
            std::future::pending().await
        })
    }
}

/// One leader that dies as said, and one that stands by; who wrote, and how many calls the leader made.
fn run_with(death: Option<Death>) -> (Vec<String>, usize) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let plane = ControlPlane::start().await;
        let (calls, died) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let wire = Mortal { inner: plane.client(), calls: Arc::clone(&calls), death, died: Arc::clone(&died) };
        let first = manager(Client::new(wire, "default"), plane.clock(), &plane.chance(), "first");
        let life = tokio::spawn(async move {
            tokio::select! {
                _ = first.run(std::future::pending()) => {}
                () = died.notified() => {}
            }
        });
        let (client, clock, chance) = (plane.client(), plane.clock(), plane.chance());
        let other = tokio::spawn(stand_by(client, clock, chance));
        want_things(&plane).await;
        if let Err(why) = all_is_as_wanted(&plane.state()) {
            panic!("{death:?}: {why}");
        }
        let writers = check_writers(&plane).await;
        life.abort();
        other.abort();
        (writers, calls.load(Ordering::Relaxed))
    })
}

#[test]
fn a_leader_may_die_before_or_after_any_of_its_calls() {
    let (writers, calls) = run_with(None);
    assert_eq!(writers, ["first"]);
    assert!(calls > 40, "{calls}");
    for n in 1..=calls {
        for death in [Death::Before(n), Death::After(n)] {
            let (writers, _) = run_with(Some(death));
            let expected: &[&[&str]] = &[&["other-0"], &["first", "other-0"], &["first"]];
            assert!(expected.iter().any(|those| writers == **those), "{death:?}: {writers:?}");
        }
    }
}

/// A way to the server on which everything waits while the process is paused, and arrives when it wakes up.
#[derive(Clone)]
struct Pausable {
    inner: Client,
    paused: tokio::sync::watch::Receiver<bool>,
}

impl Service<Request<Body>> for Pausable {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let mut wire = self.clone();
        // What was handed to the socket goes out although nobody waits for the answer any more.
        let sent = tokio::spawn(async move {
            let _ = wire.paused.wait_for(|paused| !paused).await;
            wire.inner.send(request).await
        });
        Box::pin(async move { Ok(sent.await??) })
    }
}

#[tokio::test(start_paused = true)]
async fn a_paused_leader_that_wakes_up_can_not_write() {
    let plane = ControlPlane::start().await;
    let client = plane.client();
    let map = serde_json::from_value(json!({"metadata": {"name": "a"}, "data": {"want": "0"}})).unwrap();
    api(&client).create(&PostParams::default(), &map).await.unwrap();
    let (pause, paused) = tokio::sync::watch::channel(false);
    let wire = Pausable { inner: client.clone(), paused };
    let first = manager(Client::new(wire, "default"), plane.clock(), &plane.chance(), "first");
    let fenced = first.client().clone();
    let life = tokio::spawn(async move { first.run(std::future::pending()).await });
    plane.advance(Duration::from_secs(1)).await;
    let second = manager(client.clone(), plane.clock(), &plane.chance(), "second");
    tokio::spawn(async move { second.run(std::future::pending()).await });
    plane.advance(Duration::from_secs(9)).await;

    pause.send_replace(true);
    // Handed over while it leads; on its way until the other leads.
    let late = tokio::spawn(async move { set(&fenced, "a", json!({"by": "first", "late": "yes"})).await });
    plane.advance(Duration::from_secs(60)).await;
    let lease = client.request::<Value>(Request::get(LEASE).body(Vec::new()).unwrap()).await.unwrap();
    assert_eq!((&lease["spec"]["holderIdentity"], &lease["spec"]["leaseTransitions"]), (&json!("second"), &json!(1)));
    set(&client, "a", json!({"want": "1"})).await.unwrap();
    plane.advance(Duration::from_secs(10)).await;
    pause.send_replace(false);
    plane.settle().await.unwrap();

    assert!(late.await.unwrap().is_err());
    assert!(life.await.unwrap().is_err(), "it has lost the lease and must end");
    let map = plane.state().object("", "configmaps", "default", "a").unwrap();
    assert_eq!(map["data"], json!({"want": "1", "got": "1", "by": "second"}));
    assert_eq!(check_writers(&plane).await, ["first", "second"]);
}

#[tokio::test(start_paused = true)]
async fn a_write_in_a_term_that_is_over_is_told_who_leads() {
    let plane = ControlPlane::start().await;
    let client = plane.client();
    let leader = manager(client.clone(), plane.clock(), &plane.chance(), "first");
    tokio::spawn(async move { leader.run(std::future::pending()).await });
    plane.advance(Duration::from_secs(5)).await;
    let write = |fence: &str| {
        let map = json!({"metadata": {"generateName": "a-"}}).to_string();
        let path = "/api/v1/namespaces/default/configmaps";
        let request = Request::builder().method(Method::POST).uri(path).header(FENCE_HEADER, fence);
        client.request::<Value>(request.header("content-type", "application/json").body(map.into_bytes()).unwrap())
    };
    write("default/managers first 0").await.unwrap();
    let refused = write("default/managers second 0").await.unwrap_err();
    let KubeError::Api(status) = refused else { panic!("{refused}") };
    let led = "the writer does not lead any more: the lease default/managers is held by \"first\" in term 0";
    assert!(status.code == 409 && status.reason == "Conflict" && status.message.ends_with(led), "{status:?}");
}
