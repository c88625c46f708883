//! Figures of the framework, one line each, all on one thread: the queue, the way from an event to a run, and caches. Run
//! by `make bench`.
//!
//! The server is a function in the same process that streams prepared lines: what is measured is the framework alone.

use std::convert::Infallible;
use std::hint::black_box;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::client::Body;
use serde::Deserialize;
use setpoint_runtime::Key;
use setpoint_runtime::cache::{Cached, Informer, InformerOptions, LeanMeta, Target};
use setpoint_runtime::clock::{Chance, Clock};
use setpoint_runtime::controller::{Action, Context, Controller};
use setpoint_runtime::manager::{Lifecycle, Runnable};
use setpoint_runtime::queue::{QueueOptions, WorkQueue, limiter};
use tokio::sync::mpsc;

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async {
        // Memory first: what others have freed would be used again, and nothing would seem to be needed.
        memory_of::<LeanPod>("lean view", 100_000).await;
        memory_of::<Pod>("full type", 30_000).await;
        queue_cycles("measured", true).await;
        queue_cycles("not measured", false).await;
        delayed_adds();
        event_to_run().await;
        time_of::<LeanPod>("lean view", 100_000).await;
        time_of::<Pod>("full type", 30_000).await;
    });
}

async fn queue_cycles(how: &str, timed: bool) {
    const CYCLES: usize = 5_000_000;
    let keys: Vec<Key> = (0..1000).map(|number| Key::namespaced("default", &format!("pod-{number}"))).collect();
    let queue = WorkQueue::new(QueueOptions { limiter: Box::new(limiter::controller_limiter()), timed });
    let start = Instant::now();
    for cycle in 0..CYCLES {
        queue.add(keys[cycle % keys.len()].clone());
        queue.get().await.expect("a key").done();
    }
    let rate = CYCLES as f64 / start.elapsed().as_secs_f64() / 1e6;
    println!("queue add+get+done, spans {how}: {rate:.1} M/s");
}

fn delayed_adds() {
    const KEYS: usize = 1_000_000;
    let keys: Vec<Key> = (0..KEYS).map(|number| Key::cluster(&number.to_string())).collect();
    let queue = WorkQueue::default();
    let start = Instant::now();
    for (number, key) in keys.into_iter().enumerate() {
        queue.add_after(key, Duration::from_secs(3600 + (number as u64 * 7919) % 1000));
    }
    println!("queue delayed add, a million keys: {:.2} us", start.elapsed().as_secs_f64() * 1e6 / KEYS as f64);
}

/// From the moment at which an event is in the watch's stream to the first line of the reconciler.
async fn event_to_run() {
    const EVENTS: usize = 20_000;
    let (sender, client) = server(Vec::new().into_iter());
    let pods = Informer::<LeanPod>::new(
        client.clone(),
        Target::of::<Pod>(&(), None),
        InformerOptions::default(),
        &Chance::seeded(1),
    );
    let running = pods.clone();
    let following = tokio::spawn(async move { running.run_until(std::future::pending()).await });
    let started: Arc<Mutex<Option<Instant>>> = Arc::default();
    let (done, mut finished) = mpsc::unbounded_channel();
    let seen = started.clone();
    let reconcile = move |_: Context, _: Key| {
        *seen.lock().expect("a lock") = Some(Instant::now());
        let _ = done.send(());
        async { Ok(Action::done()) }
    };
    let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().expect("a time"));
    let controller = Controller::builder("bench", client, clock, &pods).build(reconcile);
    let lifecycle = Lifecycle::new();
    let working = tokio::spawn(Box::new(controller).run(lifecycle.clone()));
    lifecycle.until_ready().await;
    let mut spans = Vec::with_capacity(EVENTS);
    for number in 0..EVENTS {
        let line = Bytes::from(format!("{{\"type\":\"ADDED\",\"object\":{}}}\n", pod(number)));
        let sent = Instant::now();
        sender.send(line).expect("a watch");
        finished.recv().await.expect("a run");
        let run = started.lock().expect("a lock").take().expect("a time");
        spans.push(run.duration_since(sent));
    }
    spans.sort_unstable();
    let micros = |part: usize| spans[EVENTS * part / 100].as_secs_f64() * 1e6;
    println!("event to reconcile start: p50 {:.1} us, p99 {:.1} us", micros(50), micros(99));
    lifecycle.stop();
    following.abort();
    let _ = (working.await, following.await);
}

/// The memory of a cache by the size of the process; the server makes its lines as they are read, so that it has none to free.
async fn memory_of<K: Cached>(what: &str, count: usize)
where
    K::Kind: kube::Resource<DynamicType = ()>,
{
    let before = resident_bytes();
    let (informer, following) = synced::<K>((0..count.div_ceil(CHUNK)).map(move |chunk| lines(chunk, count))).await;
    let lister = informer.lister();
    assert_eq!(lister.len(), count);
    let wire: usize = (0..100).map(|number| pod(number).len()).sum::<usize>() / 100;
    println!(
        "cache of {count} pods, {what}: per pod {} bytes resident, {} by its own account, {wire} on the wire",
        (resident_bytes() - before) / count,
        lister.memory().bytes / count,
    );
    following.abort();
    let _ = following.await;
    black_box(lister);
}

/// The time until a cache is full, from lines that are there.
async fn time_of<K: Cached>(what: &str, count: usize)
where
    K::Kind: kube::Resource<DynamicType = ()>,
{
    let chunks: Vec<Bytes> = (0..count.div_ceil(CHUNK)).map(|chunk| lines(chunk, count)).collect();
    let start = Instant::now();
    let (informer, following) = synced::<K>(chunks.into_iter()).await;
    println!("cache of {count} pods, {what}: synced in {:.2} s", start.elapsed().as_secs_f64());
    assert_eq!(informer.lister().len(), count);
    following.abort();
    let _ = following.await;
}

async fn synced<K: Cached>(
    initial: impl Iterator<Item = Bytes> + Send + 'static,
) -> (Informer<K>, tokio::task::JoinHandle<()>)
where
    K::Kind: kube::Resource<DynamicType = ()>,
{
    let (sender, client) = server(initial);
    let informer =
        Informer::<K>::new(client, Target::of::<K::Kind>(&(), None), InformerOptions::default(), &Chance::seeded(1));
    let running = informer.clone();
    let following = tokio::spawn(async move {
        running.run_until(std::future::pending()).await;
        drop(sender);
    });
    informer.until_synced().await;
    (informer, following)
}

/// Events in one piece of a watch.
const CHUNK: usize = 64;

fn lines(chunk: usize, count: usize) -> Bytes {
    let numbers = chunk * CHUNK..count.min((chunk + 1) * CHUNK);
    let lines = numbers.map(|number| format!("{{\"type\":\"ADDED\",\"object\":{}}}\n", pod(number)));
    Bytes::from(lines.collect::<String>())
}

/// A server whose one watch begins with `initial` lines and goes on with what is sent.
fn server(initial: impl Iterator<Item = Bytes> + Send + 'static) -> (mpsc::UnboundedSender<Bytes>, Client) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let first = Arc::new(Mutex::new(Some((initial, receiver))));
    let service = tower::service_fn(move |_: Request<Body>| {
        let first = first.clone();
        async move {
            let (initial, receiver) = first.lock().expect("a lock").take().expect("one watch");
            let end = r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"1","annotations":{"k8s.io/initial-events-end":"true"}}}}"#;
            let end = stream::iter([Bytes::from(format!("{end}\n"))]);
            let rest = stream::unfold(receiver, |mut receiver: mpsc::UnboundedReceiver<Bytes>| async move {
                receiver.recv().await.map(|line| (line, receiver))
            });
            let frames =
                stream::iter(initial).chain(end).chain(rest).map(|line| Ok::<_, Infallible>(Frame::data(line)));
            Ok::<_, Infallible>(Response::new(StreamBody::new(frames)))
        }
    });
    (sender, Client::new(service, "default"))
}

/// What a controller of pods such as the ReplicaSet's reads.
#[derive(Deserialize)]
#[expect(dead_code, reason = "kept to be measured")]
struct LeanPod {
    metadata: LeanMeta,
    #[serde(default)]
    spec: LeanSpec,
    #[serde(default)]
    status: LeanStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LeanSpec {
    node_name: Option<Box<str>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LeanStatus {
    phase: Box<str>,
    conditions: Box<[LeanCondition]>,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "kept to be measured")]
struct LeanCondition {
    r#type: ConditionType,
    status: ConditionStatus,
}

#[derive(Deserialize)]
enum ConditionType {
    Ready,
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
enum ConditionStatus {
    True,
    #[serde(other)]
    Other,
}

setpoint_runtime::lean_view!(LeanPod of Pod);

/// A pod as a Deployment makes them.
fn pod(number: usize) -> String {
    serde_json::json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": format!("web-5d4f8c7b9-{number:06}"), "generateName": "web-5d4f8c7b9-", "namespace": "shop",
            "uid": format!("3f2b1c9e-7a64-4d0b-9c55-{number:012}"), "resourceVersion": (number + 2).to_string(),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": "web", "pod-template-hash": "5d4f8c7b9", "tier": "front"},
            "annotations": {"kubernetes.io/config.source": "api", "prometheus.io/scrape": "true"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d4f8c7b9",
                "uid": "aa2b1c9e-7a64-4d0b-9c55-000000000001", "controller": true, "blockOwnerDeletion": true}],
            "managedFields": [{"manager": "controller", "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z",
                "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": {"f:labels": {".": {}, "f:app": {}}}, "f:spec": {"f:containers": {}}}}]
        },
        "spec": {
            "containers": [{"name": "web", "image": "web:1.2.3", "imagePullPolicy": "IfNotPresent",
                "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
                "env": [{"name": "MODE", "value": "production"}, {"name": "REGION", "value": "north"}],
                "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
                "readinessProbe": {"httpGet": {"path": "/ready", "port": 8080, "scheme": "HTTP"}, "periodSeconds": 10},
                "volumeMounts": [{"name": "token", "mountPath": "/var/run/secrets/token", "readOnly": true}],
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}],
            "volumes": [{"name": "token", "projected": {"defaultMode": 420, "sources": [{"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}}]}}],
            "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "default", "nodeName": format!("node-{}", number % 100), "schedulerName": "default-scheduler",
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}]
        },
        "status": {
            "phase": "Running", "hostIP": "10.0.0.1", "podIP": "10.1.0.1", "podIPs": [{"ip": "10.1.0.1"}], "qosClass": "Burstable",
            "startTime": "2026-01-01T00:00:00Z",
            "conditions": [
                {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
                {"type": "Initialized", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
            "containerStatuses": [{"name": "web", "ready": true, "restartCount": 0, "image": "web:1.2.3", "imageID": "sha256:abc",
                "containerID": "containerd://abc", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}]
        }
    })
    .to_string()
}

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: usize = statm.split_whitespace().nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * 4096
}
