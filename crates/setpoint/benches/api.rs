//! Figures of a running server over TLS, one line each. Run by `make bench`.
//!
//! The server is a process of its own (the release binary); this process is the load generator, on the same machine. Each connection
//! is an HTTP/2 connection of its own with one request in flight. Beside each rate stands the server's CPU time per operation,
//! read from `/proc`: the figure that counts, because the rate also depends on the load generator.
//!
//! Words after `--` choose parts: `cargo bench -p setpoint --bench api -- verbs lists`. One that begins with `etcd://` names an etcd, with
//! nothing in it, to measure on instead of the embedded store. The part `etcd` starts its own, of one member and of three, and measures
//! the same on each of them and on the embedded store.

// Shared with the tests of the store, which need more of it.
#[allow(dead_code)]
#[path = "../../store/tests/support/etcd_process.rs"]
mod etcd_process;
mod process;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use etcd_process::Cluster;
use http::Method;
use http_body_util::BodyExt;
use process::is_chosen;
use process::load::{CONFIG_MAPS, Call, Connection, Server, config_map, request, send};

const APPLY: &str = "application/apply-patch+yaml";

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(run());
}

async fn run() {
    let directory = tempfile::tempdir_in(".").expect("a writable directory");
    let server = Server::start(directory.path());
    println!(
        "start to ready, empty: {:?}; {} MB resident",
        server.process.started_in,
        server.process.resident() / 1_000_000
    );
    let idle = server.process.cpu();
    tokio::time::sleep(Duration::from_secs(3)).await;
    println!("idle: {:.2} % of a core", (server.process.cpu() - idle).as_secs_f64() / 3.0 * 100.0);
    if is_chosen("commands") {
        commands(&server);
    }
    for connections in [1, 32, 128] {
        if is_chosen(&format!("verbs{connections}")) {
            verbs(&server, connections).await;
        }
    }
    if is_chosen("template") {
        template(&server).await;
    }
    if is_chosen("custom") {
        custom(&server).await;
    }
    if is_chosen("lists") {
        lists(&server).await;
    }
    for watchers in [100, 1000] {
        if is_chosen(&format!("watch{watchers}")) {
            watch(&server, watchers).await;
        }
    }
    if is_chosen("filled") {
        filled(server, directory.path()).await;
    }
    if is_chosen("etcd") {
        beside_etcd().await;
    }
}

/// How long a person waits for a command, from its start to its end.
fn commands(server: &Server) {
    const RUNS: usize = 50;
    for words in [&["--help"] as &[&str], &["get", "pods"]] {
        let run = |_| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_setpoint"));
            let start = Instant::now();
            let output = command.args(words).env("KUBECONFIG", &server.process.kubeconfig).output().expect("it runs");
            assert!(output.status.success(), "{words:?}");
            start.elapsed()
        };
        let mut times: Vec<Duration> = (0..RUNS).map(run).collect();
        times.sort_unstable();
        println!("setpoint {}: p50 {:?}, slowest of {RUNS} {:?}", words.join(" "), times[RUNS / 2], times[RUNS - 1]);
    }
}

/// The same load on the embedded store and on etcd.
async fn beside_etcd() {
    let folder = || tempfile::tempdir_in(".").expect("a writable directory");
    {
        let folder = folder();
        println!("embedded:");
        essentials(&Server::start(folder.path())).await;
    }
    for members in [1, 3] {
        // On the same disk as the embedded store.
        let (folder, cluster) = (folder(), Cluster::start_in(".", members));
        println!("etcd, {members} members:");
        essentials(&Server::start_on_etcd(&cluster.store(), folder.path())).await;
    }
}

/// Create, get, list and watch.
async fn essentials(server: &Server) {
    for connections in [1, 32, 128] {
        let count = if connections == 1 { 1_000 } else { 10_000 };
        let name = move |i: usize| format!("e{connections}-{i}");
        let create = |i: usize| (Method::POST, CONFIG_MAPS.to_owned(), config_map(&name(i)), "application/json");
        server.measure("create", connections, count, create).await;
        let get = |i: usize| (Method::GET, format!("{CONFIG_MAPS}/{}", name(i)), Bytes::new(), "");
        server.measure("get", connections, count, get).await;
        let delete = |i: usize| (Method::DELETE, format!("{CONFIG_MAPS}/{}", name(i)), Bytes::new(), "");
        server.run(connections, count, &delete).await;
    }
    lists(server).await;
    watch(server, 100).await;
}

/// Create, get, merge patch, apply and delete of 1 KB ConfigMaps.
async fn verbs(server: &Server, connections: usize) {
    let count = match connections {
        1 => 2_000,
        _ => 20_000,
    };
    let name = move |i: usize| format!("b{connections}-{i}");
    let create = |i: usize| (Method::POST, CONFIG_MAPS.to_owned(), config_map(&name(i)), "application/json");
    server.measure("create", connections, count, create).await;
    let get = |i: usize| (Method::GET, format!("{CONFIG_MAPS}/{}", name(i)), Bytes::new(), "");
    server.measure("get", connections, count, get).await;
    let patch = |i: usize| {
        let body = Bytes::from(format!(r#"{{"data":{{"patched":"{i}"}}}}"#));
        (Method::PATCH, format!("{CONFIG_MAPS}/{}", name(i)), body, "application/merge-patch+json")
    };
    server.measure("merge patch", connections, count, patch).await;
    let apply = |i: usize| {
        let body = Bytes::from(format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{}","labels":{{"team":"a"}}}},"data":{{"applied":"{i}"}}}}"#,
            name(i)
        ));
        (Method::PATCH, format!("{CONFIG_MAPS}/{}?fieldManager=bench", name(i)), body, APPLY)
    };
    server.measure("apply, its manager is new", connections, count, apply).await;
    let again = |i: usize| apply_whole(&name(i), i);
    server.measure("apply of all of it by force", connections, count, again).await;
    let changed = |i: usize| apply_whole(&name(i), i + 1);
    server.measure("apply of one change", connections, count, changed).await;
    let delete = |i: usize| (Method::DELETE, format!("{CONFIG_MAPS}/{}", name(i)), Bytes::new(), "");
    server.measure("delete", connections, count, delete).await;
}

/// Server-side apply of a whole ConfigMap.
fn apply_whole(name: &str, number: usize) -> Call {
    let whole = String::from_utf8_lossy(&config_map(name))
        .replace(r#""data":{"#, &format!(r#""data":{{"applied":"{number}","#));
    (Method::PATCH, format!("{CONFIG_MAPS}/{name}?fieldManager=bench&force=true"), Bytes::from(whole), APPLY)
}

/// Server-side apply of a Deployment with 50 containers that 5 managers share: each has one variable in every container.
async fn template(server: &Server) {
    let path = "/apis/apps/v1/namespaces/default/deployments/shared";
    let apply = |i: usize| {
        let (manager, round) = (i % 5, i / 5);
        let containers: Vec<serde_json::Value> = (0..50)
            .map(|at| {
                serde_json::json!({
                    "name": format!("c{at}"), "image": "app:1",
                    "env": [{"name": format!("M{manager}"), "value": format!("{round}")}]
                })
            })
            .collect();
        let object = serde_json::json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "shared"},
            "spec": {
                "selector": {"matchLabels": {"app": "shared"}},
                "template": {"metadata": {"labels": {"app": "shared"}}, "spec": {"containers": containers}}
            }
        });
        (Method::PATCH, format!("{path}?fieldManager=m{manager}"), Bytes::from(object.to_string()), APPLY)
    };
    server.run(1, 5, &apply).await;
    server.measure("apply of 50 containers that 5 managers share", 1, 200, |i| apply(i + 5)).await;
    server.run(1, 1, &|_| (Method::DELETE, path.to_owned(), Bytes::new(), "")).await;
}

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Custom kinds: from a definition to its first object, what definitions cost in memory, and the verbs.
async fn custom(server: &Server) {
    let define = |singular: String, more: &str| {
        (Method::POST, DEFINITIONS.to_owned(), definition(&singular, more), "application/json")
    };
    let first = |i: usize| match i % 2 {
        0 => define(format!("first{}", i / 2), ""),
        _ => custom_object(&format!("first{}", i / 2), "a"),
    };
    let times = server.run(1, 200, &first).await;
    let mut pairs: Vec<Duration> = times.chunks(2).map(|pair| pair.iter().sum()).collect();
    pairs.sort();
    println!("definition to first object stored: p50 {:?}, worst of 100 {:?}", pairs[50], pairs[99]);
    let small = 500;
    let before = server.process.resident();
    server.run(1, small, &|i| define(format!("small{i}"), "")).await;
    println!(
        "memory per small definition: {} KB",
        server.process.resident().saturating_sub(before) / small as u64 / 1000
    );
    let fields: String = (0..6_000)
        .map(|i| {
            format!(
                r#","field{i}":{{"type":"string","description":"What the field of number {i} is for.","maxLength":64}}"#
            )
        })
        .collect();
    let large = 8;
    let size = definition("large0", &fields).len();
    let define_large = |i: usize| define(format!("large{i}"), &fields);
    // The first one makes the allocator's working memory grow, once: what each keeps is told by the others.
    server.run(1, 1, &|_| define_large(large)).await;
    let before = server.process.resident();
    server.measure(&format!("definition of {} KB", size / 1000), 1, large, define_large).await;
    println!(
        "memory per definition of {} KB: {} KB",
        size / 1000,
        server.process.resident().saturating_sub(before) / large as u64 / 1000
    );
    let count = 10_000;
    let create = |i: usize| custom_object("first0", &format!("c{i}"));
    server.measure("custom: create", 32, count, create).await;
    let path = |i: usize| format!("/apis/bench.example.com/v1/namespaces/default/first0s/c{i}");
    server.measure("custom: get", 32, count, |i| (Method::GET, path(i), Bytes::new(), "")).await;
    let apply = |i: usize| {
        let body = format!(
            r#"{{"apiVersion":"bench.example.com/v1","kind":"FIRST0","metadata":{{"name":"c{i}"}},"spec":{{"note":"{i}"}}}}"#
        );
        (Method::PATCH, format!("{}?fieldManager=bench&force=true", path(i)), Bytes::from(body), APPLY)
    };
    server.measure("custom: apply", 32, count, apply).await;
    server.measure("custom: delete", 32, count, |i| (Method::DELETE, path(i), Bytes::new(), "")).await;
}

/// A definition with a rule, and more properties of its spec if given.
fn definition(singular: &str, more: &str) -> Bytes {
    let kind = singular.to_uppercase();
    Bytes::from(format!(
        r#"{{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{{"name":"{singular}s.bench.example.com"}},
        "spec":{{"group":"bench.example.com","scope":"Namespaced","names":{{"plural":"{singular}s","singular":"{singular}","kind":"{kind}"}},
        "versions":[{{"name":"v1","served":true,"storage":true,"schema":{{"openAPIV3Schema":{{"type":"object","properties":{{
        "spec":{{"type":"object","properties":{{"replicas":{{"type":"integer","default":1}},"note":{{"type":"string","maxLength":2000}}{more}}},
        "x-kubernetes-validations":[{{"rule":"self.replicas >= 0 && self.replicas <= 10"}}]}},
        "status":{{"type":"object","properties":{{"ready":{{"type":"integer"}}}}}}}}}}}},"subresources":{{"status":{{}}}}}}]}}}}"#
    ))
}

/// An object of such a definition, of about 1 KB.
fn custom_object(singular: &str, name: &str) -> Call {
    let kind = singular.to_uppercase();
    let body = format!(
        r#"{{"apiVersion":"bench.example.com/v1","kind":"{kind}","metadata":{{"name":"{name}"}},"spec":{{"replicas":3,"note":"{}"}}}}"#,
        "x".repeat(900)
    );
    let path = format!("/apis/bench.example.com/v1/namespaces/default/{singular}s");
    (Method::POST, path, Bytes::from(body), "application/json")
}

async fn lists(server: &Server) {
    let objects = 10_000;
    let create = |i: usize| (Method::POST, CONFIG_MAPS.to_owned(), config_map(&format!("l{i}")), "application/json");
    server.run(32, objects, &create).await;
    let whole = |_| (Method::GET, CONFIG_MAPS.to_owned(), Bytes::new(), "");
    server.measure(&format!("list of {objects}"), 1, 20, whole).await;
    let selected = |_| (Method::GET, format!("{CONFIG_MAPS}?labelSelector=shard%3Ds7"), Bytes::new(), "");
    server.measure(&format!("list of {objects} by label, 100 match"), 32, 2_000, selected).await;
    let delete = |i: usize| (Method::DELETE, format!("{CONFIG_MAPS}/l{i}"), Bytes::new(), "");
    server.run(32, objects / 2, &delete).await;
    pages(server, 20).await;
    server.run(32, objects / 2, &|i| delete(i + objects / 2)).await;
}

/// The whole collection in pages of 500, several times over.
async fn pages(server: &Server, times: u32) {
    let mut connection = server.connect().await;
    let (cpu, start) = (server.process.cpu(), Instant::now());
    let mut pages = 0;
    for _ in 0..times {
        let mut token = Some(String::new());
        while let Some(next) = token {
            let path = format!("{CONFIG_MAPS}?limit=500&continue={next}");
            let bytes = send(&mut connection, (Method::GET, path, Bytes::new(), "")).await;
            token = continuation(&bytes);
            pages += 1;
        }
    }
    println!(
        "list in {} pages of 500: {:?}, {:?} of server CPU",
        pages / times,
        start.elapsed() / times,
        (server.process.cpu() - cpu) / times
    );
}

/// The token of the next page, from the metadata at the beginning of a list.
fn continuation(list: &[u8]) -> Option<String> {
    let head = String::from_utf8_lossy(&list[..list.len().min(1024)]);
    let (_, rest) = head.split_once(r#""continue":""#)?;
    rest.split('"').next().map(str::to_owned)
}

/// Creates with 8 in flight while many watch; how long an event takes from the start of its request to each watcher.
async fn watch(server: &Server, watchers: usize) {
    let events = if watchers > 500 { 500 } else { 2_000 };
    let started: Arc<Vec<std::sync::OnceLock<Instant>>> =
        Arc::new((0..events).map(|_| std::sync::OnceLock::new()).collect());
    let list: serde_json::Value = {
        let path = format!("{CONFIG_MAPS}?limit=1");
        serde_json::from_slice(&send(&mut server.connect().await, (Method::GET, path, Bytes::new(), "")).await)
            .expect("a list")
    };
    let from = list["metadata"]["resourceVersion"].as_str().expect("a version").to_owned();
    let mut tasks = Vec::new();
    let ready = Arc::new(tokio::sync::Barrier::new(watchers + 1));
    let mut shared: Vec<Connection> = Vec::new();
    for _ in 0..watchers.div_ceil(100) {
        shared.push(server.connect().await);
    }
    for watcher in 0..watchers {
        let mut connection = shared[watcher / 100].clone();
        let (started, ready) = (Arc::clone(&started), Arc::clone(&ready));
        let path = format!("{CONFIG_MAPS}?watch=true&resourceVersion={from}");
        tasks.push(tokio::spawn(async move {
            let request = request((Method::GET, path, Bytes::new(), ""));
            let mut body = connection.send_request(request).await.expect("a watch").into_body();
            ready.wait().await;
            let (mut seen, mut times, mut line) = (0, Vec::new(), Vec::new());
            while seen < events {
                let frame = body.frame().await.expect("more events").expect("a frame");
                let now = Instant::now();
                let Ok(data) = frame.into_data() else { continue };
                for byte in data {
                    if byte != b'\n' {
                        line.push(byte);
                        continue;
                    }
                    if let Some(number) = number_in(&line)
                        && let Some(start) = started[number].get()
                    {
                        times.push(now - *start);
                    }
                    line.clear();
                    seen += 1;
                }
            }
            times
        }));
    }
    ready.wait().await;
    let (cpu, start) = (server.process.cpu(), Instant::now());
    let next = Arc::new(AtomicUsize::new(0));
    let mut writers = Vec::new();
    for _ in 0..8 {
        let (next, started) = (Arc::clone(&next), Arc::clone(&started));
        let mut connection = server.connect().await;
        writers.push(tokio::spawn(async move {
            loop {
                let i = next.fetch_add(1, Ordering::Relaxed);
                if i >= events {
                    return;
                }
                let body = config_map(&format!("w{watchers}-{i}-x"));
                let _ = started[i].set(Instant::now());
                send(&mut connection, (Method::POST, CONFIG_MAPS.to_owned(), body, "application/json")).await;
            }
        }));
    }
    for writer in writers {
        writer.await.expect("a writer");
    }
    let mut times = Vec::new();
    for task in tasks {
        times.extend(task.await.expect("a watcher"));
    }
    let (seconds, cpu) = (start.elapsed().as_secs_f64(), server.process.cpu() - cpu);
    times.sort();
    let delivered = (events * watchers) as f64;
    println!(
        "{watchers} watchers, creates 8 in flight: {:.0} events/s, delivery p50 {:?} p99 {:?}, {:.2} µs of server CPU per event",
        delivered / seconds,
        times[times.len() / 2],
        times[times.len() * 99 / 100],
        cpu.as_secs_f64() * 1e6 / delivered
    );
    let delete = |i: usize| (Method::DELETE, format!("{CONFIG_MAPS}/w{watchers}-{i}-x"), Bytes::new(), "");
    server.run(8, events, &delete).await;
}

/// The number in the name `w100-17-x` of a watch event.
fn number_in(line: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(line).ok()?;
    let at = text.find(r#""name":"w"#)?;
    text[at..].split('-').nth(1)?.parse().ok()
}

/// Memory and start-up with 100,000 objects.
async fn filled(server: Server, directory: &Path) {
    let objects = 100_000;
    let create = |i: usize| (Method::POST, CONFIG_MAPS.to_owned(), config_map(&format!("m{i}")), "application/json");
    server.run(32, objects, &create).await;
    println!("memory with {objects} ConfigMaps of 1 KB: {} MB resident", server.process.resident() / 1_000_000);
    drop(server);
    let server = Server::start(directory);
    println!(
        "start to ready with {objects} objects: {:?}, {} MB resident",
        server.process.started_in,
        server.process.resident() / 1_000_000
    );
}
