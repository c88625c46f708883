//! Elections against a server in the test, in virtual time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Method;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::{ElectionConfig, Elector, Ended, Fence, Refused};
use crate::clock::{Chance, Clock};
use crate::fake_api::{FakeApi, Fault};
use crate::metrics::Metrics;

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/managers";
const MAP: &str = "/api/v1/namespaces/default/configmaps/owned";

fn clock() -> Clock {
    Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap())
}

/// A candidate that writes its name every 100 ms while the fence lets it.
struct Node {
    fence: Fence,
    stop: CancellationToken,
    leads_since: Arc<Mutex<Option<Instant>>>,
    elector: JoinHandle<Ended>,
    writer: AbortHandle,
}

impl Node {
    fn start(api: &FakeApi, name: &str) -> Node {
        let config = ElectionConfig::new("kube-system", "managers", name);
        let elector = Elector::new(config, api.client(), clock(), Chance::seeded(7).fork(name)).unwrap();
        let fence = elector.fence().clone();
        let (stop, leads_since) = (CancellationToken::new(), Arc::<Mutex<Option<Instant>>>::default());
        let writer = tokio::spawn(write_on(fence.client(&api.client()), name.to_owned())).abort_handle();
        let (stopping, since) = (stop.clone(), Arc::clone(&leads_since));
        let elector = tokio::spawn(async move {
            let stop = async move { stopping.cancelled().await };
            elector.run(stop, move || *since.lock().unwrap() = Some(Instant::now())).await
        });
        Node { fence, stop, leads_since, elector, writer }
    }

    fn leads_since(&self) -> Option<Instant> {
        *self.leads_since.lock().unwrap()
    }

    fn kill(&self) {
        self.elector.abort();
        self.writer.abort();
    }
}

async fn write_on(client: kube::Client, name: String) {
    let maps: Api<ConfigMap> = Api::namespaced(client, "default");
    loop {
        let patch = Patch::Merge(json!({"data": {"writer": name}}));
        let _ = maps.patch("owned", &PatchParams::default(), &patch).await;
        sleep(Duration::from_millis(100)).await;
    }
}

fn api() -> FakeApi {
    let api = FakeApi::default();
    api.put_at(MAP, json!({"metadata": {"name": "owned", "namespace": "default"}}));
    api
}

/// Who wrote, in order and without repetitions, each with the term it wrote in.
fn writers(api: &FakeApi) -> Vec<(String, String)> {
    let writes = api.take_calls().into_iter().filter(|call| call.path == MAP && call.method == Method::PATCH);
    let mut writers: Vec<(String, String)> =
        writes.map(|call| (call.body["data"]["writer"].as_str().unwrap().to_owned(), call.fence.unwrap())).collect();
    writers.dedup();
    writers
}

fn spec(api: &FakeApi) -> Value {
    api.object(LEASE).unwrap()["spec"].clone()
}

#[tokio::test(start_paused = true)]
async fn the_first_candidate_creates_the_lease_and_renews_it() {
    let api = api();
    let node = Node::start(&api, "one");
    sleep(Duration::from_secs(5)).await;
    let expected = json!({
        "holderIdentity": "one", "leaseDurationSeconds": 15, "leaseTransitions": 0,
        "acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T00:00:04.000000Z",
    });
    assert_eq!(spec(&api), expected);
    assert!(node.fence.is_open());
    let lease_calls: Vec<Method> =
        api.take_calls().into_iter().filter(|call| call.path.contains("leases")).map(|call| call.method).collect();
    assert_eq!(lease_calls, [Method::GET, Method::POST, Method::PUT, Method::PUT], "a renewal is one request");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_given_back_is_taken_at_once() {
    let api = api();
    let one = Node::start(&api, "one");
    sleep(Duration::from_secs(1)).await;
    let two = Node::start(&api, "two");
    sleep(Duration::from_secs(30)).await;
    assert!(one.fence.is_open() && two.leads_since().is_none());
    one.stop.cancel();
    assert_eq!(one.elector.await.unwrap(), Ended::Stopped);
    assert!(!one.fence.is_open());
    let released = spec(&api);
    assert_eq!((&released["holderIdentity"], &released["leaseDurationSeconds"]), (&json!(""), &json!(1)));
    sleep(Duration::from_secs(5)).await;
    assert!(two.fence.is_open());
    assert_eq!((&spec(&api)["holderIdentity"], &spec(&api)["leaseTransitions"]), (&json!("two"), &json!(1)));
    let terms = [("one", "kube-system/managers one 0"), ("two", "kube-system/managers two 1")];
    assert_eq!(writers(&api), terms.map(|(who, term)| (who.to_owned(), term.to_owned())));
}

/// The last renewal is seen after a stretch of 1.2 over 2 s at most; then it runs out, and is taken at once.
const TAKE_OVER_MAX: Duration = Duration::from_millis(15_000 + 4_400);

#[tokio::test(start_paused = true)]
async fn whenever_the_leader_is_killed_the_other_takes_over_and_they_never_mix() {
    for tenth in (0..120).step_by(3) {
        let api = api();
        let one = Node::start(&api, "one");
        sleep(Duration::from_millis(50)).await;
        let two = Node::start(&api, "two");
        sleep(Duration::from_millis(100 * tenth)).await;
        assert!(one.leads_since().is_some());
        one.kill();
        let killed = Instant::now();
        sleep(Duration::from_secs(40)).await;
        let waited = two.leads_since().expect("takes over") - killed;
        assert!(waited <= TAKE_OVER_MAX, "killed at {tenth}: {waited:?}");
        assert!(waited >= Duration::from_secs(13), "killed at {tenth}: too early, {waited:?}");
        let names: Vec<String> = writers(&api).into_iter().map(|(who, _)| who).collect();
        assert!(names == ["one", "two"] || names == ["two"], "killed at {tenth}: {names:?}");
        two.kill();
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_is_cut_off_stops_writing_before_another_starts() {
    let api = api();
    let one = Node::start(&api, "one");
    sleep(Duration::from_secs(1)).await;
    let two = Node::start(&api, "two");
    sleep(Duration::from_secs(9)).await;
    // Only the lease of `one` is out of reach; its other writes would arrive.
    api.plan(|call| match call.body["spec"]["holderIdentity"].as_str() {
        Some("one") => Fault::LoseRequest,
        _ => Fault::None,
    });
    let cut = Instant::now();
    assert_eq!(one.elector.await.unwrap(), Ended::LeadershipLost);
    assert!(cut.elapsed() <= Duration::from_secs(10), "{:?}", cut.elapsed());
    assert!(!one.fence.is_open() && two.leads_since().is_none());
    sleep(Duration::from_secs(30)).await;
    assert!(two.fence.is_open());
    let names: Vec<String> = writers(&api).into_iter().map(|(who, _)| who).collect();
    assert_eq!(names, ["one", "two"]);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_was_paused_can_not_write_when_it_wakes() {
    let api = api();
    let elector =
        Elector::new(ElectionConfig::new("kube-system", "managers", "one"), api.client(), clock(), Chance::seeded(1));
    let elector = elector.unwrap();
    let fence = elector.fence().clone();
    let maps: Api<ConfigMap> = Api::namespaced(fence.client(&api.client()), "default");
    let write = || async {
        let patch = Patch::Merge(json!({"data": {"writer": "one"}}));
        maps.patch("owned", &PatchParams::default(), &patch).await
    };
    assert!(refused(write().await) == Some(Refused::NotLeading));
    let running = tokio::spawn(elector.run(std::future::pending(), || ()));
    sleep(Duration::from_millis(1)).await;
    assert!(write().await.is_ok());
    // The whole process stands still: its tasks don't run, only time passes. Then the writer is the first to wake.
    running.abort();
    tokio::time::advance(Duration::from_secs(10)).await;
    assert!(refused(write().await) == Some(Refused::LeadershipOver));
    assert!(maps.get("owned").await.is_ok(), "reading is for everyone");
}

fn refused<T>(answer: Result<T, kube::Error>) -> Option<Refused> {
    match answer {
        Err(kube::Error::Service(error)) => error.downcast_ref::<Refused>().copied(),
        _ => None,
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_without_an_answer_is_given_up_when_another_may_lead() {
    let api = api();
    let node = Node::start(&api, "one");
    sleep(Duration::from_millis(1)).await;
    let began = Instant::now();
    api.plan(|call| if call.path == MAP { Fault::Delay(Duration::from_secs(3600)) } else { Fault::None });
    let maps: Api<ConfigMap> = Api::namespaced(node.fence.client(&api.client()), "default");
    let patch = Patch::Merge(json!({"data": {"writer": "one"}}));
    let answer = maps.patch("owned", &PatchParams::default(), &patch).await;
    assert_eq!(refused(answer), Some(Refused::OutcomeUnknown));
    assert!(began.elapsed() <= Duration::from_secs(15));
}

#[tokio::test(start_paused = true)]
async fn the_lease_is_not_given_back_while_a_write_is_under_way() {
    let api = api();
    let node = Node::start(&api, "one");
    sleep(Duration::from_millis(1)).await;
    let pass = node.fence.admit().unwrap();
    node.stop.cancel();
    assert_eq!(node.elector.await.unwrap(), Ended::Stopped);
    assert_eq!(spec(&api)["holderIdentity"], json!("one"), "left to run out");
    drop(pass);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_whose_answer_was_lost_is_found_out_by_reading() {
    let api = api();
    let config = ElectionConfig::new("kube-system", "managers", "one");
    let metrics = Metrics::new();
    let elector = Elector::new(config, api.client(), clock(), Chance::seeded(1)).unwrap();
    let elector = elector.with_metrics(metrics.leader("managers"));
    let fence = elector.fence().clone();
    let puts = AtomicU64::new(0);
    api.plan(move |call| match call.method == Method::PUT && puts.fetch_add(1, Ordering::Relaxed) == 0 {
        true => Fault::LoseAnswer,
        false => Fault::None,
    });
    let running = tokio::spawn(elector.run(std::future::pending(), || ()));
    sleep(Duration::from_secs(30)).await;
    assert!(fence.is_open());
    assert_eq!(spec(&api)["leaseTransitions"], json!(0));
    assert!(metrics.text().contains(r#"leader_election_slowpath_total{name="managers"} 1"#));
    assert!(metrics.text().contains(r#"leader_election_master_status{name="managers"} 1"#));
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn what_elections_do_not_use_stays_in_the_lease() {
    let api = api();
    let spec_before =
        json!({"holderIdentity": "gone", "leaseDurationSeconds": 1, "strategy": "OldestEmulationVersion"});
    let metadata = json!({"name": "managers", "namespace": "kube-system", "labels": {"a": "b"}});
    api.put_at(LEASE, json!({"metadata": metadata, "spec": spec_before}));
    let node = Node::start(&api, "one");
    sleep(Duration::from_secs(10)).await;
    assert!(node.fence.is_open());
    assert_eq!(spec(&api)["strategy"], json!("OldestEmulationVersion"));
    assert_eq!(spec(&api)["leaseTransitions"], json!(1));
    assert_eq!(api.object(LEASE).unwrap()["metadata"]["labels"], json!({"a": "b"}));
}
