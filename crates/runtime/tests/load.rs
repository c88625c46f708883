//! Ten thousand objects and a thousand changes a second for a minute: every change is worked on, no key twice at once, in the
//! order in which they came, and nothing grows.
//!
//! Cache, queue and controller are the real ones; the server is a stream that the test writes into.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::client::Body;
use serde_json::json;
use setpoint_runtime::Key;
use setpoint_runtime::cache::{Cached, Informer, InformerOptions, Target};
use setpoint_runtime::clock::{Chance, Clock};
use setpoint_runtime::controller::{Action, Context, Controller, ControllerOptions, Error};
use setpoint_runtime::manager::{Lifecycle, Runnable};
use tokio::sync::mpsc;

const OBJECTS: u64 = 10_000;
const CHANGES_PER_TICK: u64 = 10;
/// A hundred in a second: a thousand changes.
const TICK: Duration = Duration::from_millis(10);
const TICKS: u64 = 60 * 100;
/// With runs of 3 to 12 ms they keep up on average; bursts wait.
const WORKERS: usize = 12;

/// What runs did.
#[derive(Default)]
struct Seen {
    /// The version that the last run of each key read.
    last: HashMap<Key, u64>,
    running: HashMap<Key, usize>,
    at_once_max: usize,
    runs: u64,
    /// In the order in which runs began: the version of the change that woke each first.
    order: Vec<u64>,
}

fn key(number: u64) -> Key {
    Key::namespaced("default", &format!("map-{number:05}"))
}

fn object(number: u64, version: u64) -> String {
    let key = key(number);
    json!({
        "metadata": {"namespace": "default", "name": key.name(), "uid": key.name(), "resourceVersion": version.to_string()},
        "data": {"value": version.to_string()},
    })
    .to_string()
}

fn line(kind: &str, object: &str) -> Bytes {
    Bytes::from(format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n"))
}

/// A server whose one watch is what is sent.
fn server() -> (mpsc::UnboundedSender<Bytes>, Client) {
    let (sender, receiver) = mpsc::unbounded_channel::<Bytes>();
    let receiver = Arc::new(Mutex::new(Some(receiver)));
    let service =
        tower::service_fn(move |_: Request<Body>| {
            let receiver = receiver.lock().unwrap().take().expect("one watch");
            async move {
                let lines = stream::unfold(receiver, |mut receiver| async move {
                    receiver.recv().await.map(|line| (line, receiver))
                });
                let frames = lines.map(|line| Ok::<_, Infallible>(Frame::data(line)));
                Ok::<_, Infallible>(Response::new(StreamBody::new(frames)))
            }
        });
    (sender, Client::new(service, "default"))
}

/// A reconciler that takes a few milliseconds and notes what it saw.
fn reconcile(maps: Informer<ConfigMap>, seen: Arc<Mutex<Seen>>) -> impl setpoint_runtime::controller::Reconciler {
    let chance = Chance::seeded(2);
    move |context: Context, key: Key| {
        let map = context.read(&maps, &key).expect("nothing is deleted");
        let first = context.causes().first.first().and_then(|cause| cause.resource_version.clone());
        let (seen, span) = (Arc::clone(&seen), Duration::from_millis(3 + chance.below(10)));
        async move {
            {
                let mut seen = seen.lock().unwrap();
                let running = seen.running.entry(key.clone()).or_default();
                *running += 1;
                assert_eq!(*running, 1, "{key} runs twice at once");
                seen.runs += 1;
                seen.order.push(first.expect("a cause").parse().unwrap());
                seen.at_once_max = seen.at_once_max.max(seen.running.len());
            }
            tokio::time::sleep(span).await;
            let mut seen = seen.lock().unwrap();
            seen.running.remove(&key);
            seen.last.insert(key, map.resource_version().parse().unwrap());
            Ok::<_, Error>(Action::done())
        }
    }
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_objects_bear_a_thousand_changes_a_second() {
    let (sender, client) = server();
    let target = Target::of::<ConfigMap>(&(), None);
    let maps = Informer::<ConfigMap>::new(client.clone(), target, InformerOptions::default(), &Chance::seeded(1));
    let seen: Arc<Mutex<Seen>> = Arc::default();
    let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
    let options = ControllerOptions { workers: WORKERS, ..ControllerOptions::default() };
    let builder = Controller::builder("load", client, clock, &maps).options(options);
    let controller = builder.build(reconcile(maps.clone(), Arc::clone(&seen)));
    let handle = controller.handle();
    let (lifecycle, following) = (Lifecycle::new(), maps.clone());
    let following = tokio::spawn(async move { following.run_until(std::future::pending()).await });
    let working = tokio::spawn(Box::new(controller).run(lifecycle.clone()));

    for number in 0..OBJECTS {
        sender.send(line("ADDED", &object(number, number + 1))).unwrap();
    }
    let annotations = json!({"k8s.io/initial-events-end": "true"});
    let end = json!({"metadata": {"resourceVersion": OBJECTS.to_string(), "annotations": annotations}});
    sender.send(line("BOOKMARK", &end.to_string())).unwrap();
    lifecycle.until_ready().await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!((seen.lock().unwrap().runs, handle.queue().len()), (OBJECTS, 0), "every object runs once");
    seen.lock().unwrap().order.clear();
    let memory = maps.lister().memory();

    let (mut version, mut wanted, mut depth_max) = (OBJECTS, HashMap::new(), 0);
    let chance = Chance::seeded(3);
    for tick in 0..TICKS {
        for _ in 0..CHANGES_PER_TICK {
            version += 1;
            // Every other tick changes a few of a hundred hot objects.
            let number = chance.below(if tick % 2 == 0 { OBJECTS } else { 100 });
            wanted.insert(key(number), version);
            sender.send(line("MODIFIED", &object(number, version))).unwrap();
        }
        tokio::time::sleep(TICK).await;
        depth_max = depth_max.max(handle.queue().len());
    }
    tokio::time::sleep(Duration::from_secs(5)).await;

    check_runs(&seen.lock().unwrap(), &wanted);
    assert!(depth_max < 1_000, "{depth_max} keys waited");
    // The same objects with longer numbers; nothing else has grown.
    let after = maps.lister().memory();
    assert!(after.objects == memory.objects && after.bytes < memory.bytes + memory.bytes / 20, "{memory:?} {after:?}");
    let stats = handle.queue().stats();
    assert_eq!((stats.depth, stats.waiting, stats.processing), ([0; 3], 0, 0));
    lifecycle.stop();
    following.abort();
    let _ = (working.await, following.await);
}

fn check_runs(seen: &Seen, wanted: &HashMap<Key, u64>) {
    for (key, version) in wanted {
        assert_eq!(seen.last[key], *version, "the last change of {key} is lost");
    }
    assert_eq!(seen.at_once_max, WORKERS);
    assert!(seen.runs > OBJECTS + 40_000, "{} runs of {} changes", seen.runs, TICKS * CHANGES_PER_TICK);
    check_order(&seen.order);
}

/// Keys are first come, first served, but for those that were dirtied while they ran: they stand in line from the moment at
/// which their run ends. So no run is overtaken by one whose cause is younger than a run is long.
fn check_order(order: &[u64]) {
    let mut newest = 0;
    for version in order {
        newest = newest.max(*version);
        assert!(*version + 100 > newest, "version {version} began after {newest}");
    }
}
