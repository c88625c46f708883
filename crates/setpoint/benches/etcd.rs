//! What several processes on one etcd are there for: how long it takes until others go on when one dies, and moving to etcd and back.
//! Run by `make bench`.
//!
//! Words after `--` choose parts: `cargo bench -p setpoint --bench etcd -- controllers servers members migrate`.
//! `SETPOINT_BENCH_OBJECTS` says how many objects are moved.

// Shared with the tests of the store, which need more of it.
#[allow(dead_code)]
#[path = "../../store/tests/support/etcd_process.rs"]
mod etcd_process;
mod process;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use etcd_process::Cluster;
use http::Method;
use http_body_util::BodyExt;
use process::is_chosen;
use process::load::{CONFIG_MAPS, Server, config_map, request, send};

/// How often each takeover is measured: the worst counts.
const TIMES: usize = 3;

/// Objects that are moved, unless said otherwise.
const OBJECTS: usize = 100_000;

/// How long anything may take until the figure is of no use.
const PATIENCE: Duration = Duration::from_secs(120);

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        if is_chosen("controllers") {
            controllers().await;
        }
        if is_chosen("servers") {
            servers().await;
        }
        if is_chosen("members") {
            members().await;
        }
        if is_chosen("migrate") {
            migrate().await;
        }
    });
}

/// A manager of controllers; killed with this value.
struct Controllers {
    child: Child,
    url: String,
}

impl Controllers {
    fn start(kubeconfig: &Path) -> Controllers {
        let mut child = Command::new(env!("CARGO_BIN_EXE_setpoint"))
            .args(["controllers", "--listen", "127.0.0.1:0", "--log-level", "error", "--kubeconfig"])
            .arg(kubeconfig)
            .stdout(Stdio::piped())
            .spawn()
            .expect("controllers");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("its output")).read_line(&mut line).expect("a line");
        let url = line.trim().strip_prefix("running ").expect("it runs").to_owned();
        Controllers { child, url }
    }

    fn leads(&self) -> bool {
        let url = format!("{}/metrics", self.url);
        let answer = Command::new("curl").args(["-s", "--max-time", "2", &url]).output().expect("curl runs");
        let text = String::from_utf8_lossy(&answer.stdout).into_owned();
        text.lines().any(|line| line.starts_with("leader_election_master_status{") && line.ends_with(" 1"))
    }
}

impl Drop for Controllers {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// From the death of the leader, without a word and in order, until the next one has acted on something new.
async fn controllers() {
    let (cluster, folder) = (Cluster::start_in(".", 3), tempfile::tempdir_in(".").expect("a folder"));
    let server = Server::start_on_etcd(&cluster.store(), folder.path());
    let kubeconfig = &server.process.kubeconfig;
    let mut copies = vec![Controllers::start(kubeconfig), Controllers::start(kubeconfig)];
    for (what, in_order) in [("killed", false), ("stopped in order", true)] {
        let mut times = Vec::new();
        for n in 0..TIMES {
            let leader = until("a leader", || copies.iter().position(Controllers::leads)).await;
            let mut leader = copies.remove(leader);
            let start = Instant::now();
            if in_order {
                let _ = Command::new("kill").args(["-TERM", &leader.child.id().to_string()]).status();
                let _ = leader.child.wait();
            }
            drop(leader);
            let name = format!("taken-over-{in_order}-{n}");
            let mut connection = server.connect().await;
            let namespace = Bytes::from(format!(r#"{{"metadata":{{"name":"{name}"}}}}"#));
            send(&mut connection, (Method::POST, "/api/v1/namespaces".to_owned(), namespace, "application/json")).await;
            // Its account is what a controller makes of it.
            let path = format!("/api/v1/namespaces/{name}/serviceaccounts/default");
            loop {
                let call = (Method::GET, path.clone(), Bytes::new(), "");
                if server.call(&mut connection, call).await.0.is_success() {
                    break;
                }
                assert!(start.elapsed() < PATIENCE, "nobody took over");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            times.push(start.elapsed());
            copies.push(Controllers::start(kubeconfig));
        }
        println!("takeover of controllers whose leader is {what} (a lease is 15 s): {times:.2?}");
    }
}

async fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = ask() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "there is not {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// From the death of a server until its client has written to the next one, and its watch has gone on there.
async fn servers() {
    let cluster = Cluster::start_in(".", 3);
    let (mut writes, mut events) = (Vec::new(), Vec::new());
    for n in 0..TIMES {
        let folders = [0, 1].map(|_| tempfile::tempdir_in(".").expect("a folder"));
        let [one, other] = folders.each_ref().map(|folder| Server::start_on_etcd(&cluster.store(), folder.path()));
        let mut connection = one.connect().await;
        let create = |name: String| (Method::POST, CONFIG_MAPS.to_owned(), config_map(&name), "application/json");
        let made = send(&mut connection, create(format!("before-{n}"))).await;
        let made: serde_json::Value = serde_json::from_slice(&made).expect("an object");
        let seen = made["metadata"]["resourceVersion"].as_str().expect("a version").to_owned();
        let pid = one.process.id().to_string();
        let start = Instant::now();
        let killed = Command::new("kill").args(["-KILL", &pid]).status();
        assert!(killed.is_ok_and(|status| status.success()), "it can't be killed");
        let mut connection = other.connect().await;
        send(&mut connection, create(format!("after-{n}"))).await;
        writes.push(start.elapsed());
        let watch = format!("{CONFIG_MAPS}?watch=true&resourceVersion={seen}");
        let answer = other.connect().await.send_request(request((Method::GET, watch, Bytes::new(), ""))).await;
        answer.expect("a watch").into_body().frame().await.expect("an event").expect("a frame");
        events.push(start.elapsed());
    }
    println!(
        "a server is killed; its client has written to the next one after {writes:.1?}, and its watch goes on after {events:.1?}"
    );
}

/// Writes go on while one member of three after the other is killed: the longest that one took.
async fn members() {
    let mut cluster = Cluster::start_in(".", 3);
    let folder = tempfile::tempdir_in(".").expect("a folder");
    let server = Server::start_on_etcd(&cluster.store(), folder.path());
    let mut gaps = Vec::new();
    for at in 0..cluster.len() {
        cluster.kill(at);
        let (begin, mut longest) = (Instant::now(), Duration::ZERO);
        let (mut connection, mut n) = (server.connect().await, 0);
        while begin.elapsed() < Duration::from_secs(6) {
            let start = Instant::now();
            loop {
                let call =
                    (Method::POST, CONFIG_MAPS.to_owned(), config_map(&format!("m{at}-{n}")), "application/json");
                if server.call(&mut connection, call).await.0.is_success() {
                    break;
                }
                assert!(start.elapsed() < PATIENCE, "writes don't go on");
            }
            longest = longest.max(start.elapsed());
            n += 1;
        }
        gaps.push(longest);
        cluster.start_again(at);
        until("a member that is back", || cluster.is_healthy(at).then_some(())).await;
    }
    println!("one member of three is killed, each in turn; the longest that a write took: {gaps:.2?}");
}

/// Everything from a data directory to etcd, and back.
async fn migrate() {
    let objects = std::env::var("SETPOINT_BENCH_OBJECTS").ok().and_then(|text| text.parse().ok()).unwrap_or(OBJECTS);
    let (cluster, folder) = (Cluster::start_in(".", 1), tempfile::tempdir_in(".").expect("a folder"));
    let (from, back) = (folder.path().join("from"), folder.path().join("back"));
    {
        let server = Server::start(&from);
        let create =
            |i: usize| (Method::POST, CONFIG_MAPS.to_owned(), config_map(&format!("m{i}")), "application/json");
        server.run(32, objects, &create).await;
    }
    let folder = |path: &Path| path.to_str().expect("a name").to_owned();
    for (what, from, to) in [
        ("a data directory to etcd", folder(&from), cluster.store()),
        ("etcd to a data directory", cluster.store(), folder(&back)),
    ] {
        let start = Instant::now();
        let moved = Command::new(env!("CARGO_BIN_EXE_setpoint"))
            .args(["migrate", "--from", &from, "--to", &to])
            .env("SETPOINT_LOG", "error")
            .output()
            .expect("it runs");
        let (took, said) = (start.elapsed(), String::from_utf8_lossy(&moved.stdout).into_owned());
        assert!(moved.status.success(), "{said}{}", String::from_utf8_lossy(&moved.stderr));
        println!("migration of {objects} objects of 1 KB from {what}, compared: {took:.2?}");
    }
}
