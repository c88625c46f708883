//! What it costs to know who asks, whether they may, and whether their object is admitted; and what others feel of a noisy user.
//! Run by `make bench`.
//!
//! Costs are told as differences of the server's CPU time per request: an administrator's certificate is looked at once a
//! connection and allows everything, a service account's token and its roles are looked at in every request. Each part ends with one
//! line that begins with `=`: the figure, beside what it should be.
//!
//! Words after `--` choose parts: `cargo bench -p setpoint --bench access -- roles overload`.

mod process;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, StatusCode};
use process::is_chosen;
use process::load::{CONFIG_MAPS, Call, Server, User, config_map, send};
use serde_json::{Value, json};

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    match std::env::var(NOISE) {
        Ok(target) => runtime.block_on(make_noise(&target)),
        Err(_) => runtime.block_on(run()),
    }
}

async fn run() {
    let directory = tempfile::tempdir_in(".").expect("a writable directory");
    let server = Server::start(directory.path());
    let reader = account(&server, "reader").await;
    server.run(32, 1_000, &|i| post(CONFIG_MAPS, config_map(&format!("read{i}")))).await;
    if is_chosen("roles") {
        roles(&server, &reader).await;
    }
    if is_chosen("policies") {
        policies(&server).await;
    }
    if is_chosen("overload") {
        overload(&server, &reader).await;
    }
}

/// Gets by one who may do everything, and by one of many accounts with roles.
async fn roles(server: &Server, reader: &Server) {
    let count = 40_000;
    let first = server.measure("get by an administrator", 32, count, get).await;
    let few = reader.measure("get by an account, few bindings", 32, count, get).await;
    let path = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
    let bind = |i: usize| {
        let binding = json!({
            "metadata": {"name": format!("binding{i}")},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
            "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": format!("account{i}")}],
        });
        post(path, Bytes::from(binding.to_string()))
    };
    server.run(32, 1_000, &bind).await;
    let many = reader.measure("get by an account, 1,000 bindings more in its namespace", 32, count, get).await;
    let last = server.measure("get by an administrator, once more", 32, count, get).await;
    let without = f64::midpoint(first, last);
    println!(
        "= authn + authz of a token: {:.1} µs a request, {:.1} µs with 1,000 bindings more (to reach: 5 µs)",
        few - without,
        many - without
    );
}

/// Creates, without policies and with a hundred that look at each.
async fn policies(server: &Server) {
    let count = 10_000;
    let create = |what: &'static str| move |i: usize| post(CONFIG_MAPS, config_map(&format!("{what}{i}")));
    let without = server.measure("create, no policies", 32, count, create("plain")).await;
    let group = "/apis/admissionregistration.k8s.io/v1";
    for i in 0..100 {
        let policy = json!({
            "metadata": {"name": format!("policy{i}")},
            "spec": {
                "matchConstraints": {"resourceRules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
                ]},
                "validations": [{"expression": format!("!has(object.data.forbidden{i}) && object.metadata.name != 'no{i}'")}],
            },
        });
        let binding = json!({
            "metadata": {"name": format!("policy{i}")},
            "spec": {"policyName": format!("policy{i}"), "validationActions": ["Deny"]},
        });
        for (plural, object) in
            [("validatingadmissionpolicies", policy), ("validatingadmissionpolicybindings", binding)]
        {
            let body = Bytes::from(object.to_string());
            server.run(1, 1, &|_| post(&format!("{group}/{plural}"), body.clone())).await;
        }
    }
    let with = server.measure("create, 100 policies", 32, count, create("judged")).await;
    println!("= 100 policies in CEL: {:.1} µs a create, {:.2} µs each", with - without, (with - without) / 100.0);
}

/// What a few gets a second feel while another account keeps ten times as many requests in flight as kube-apiserver has seats for two
/// processors.
///
/// The other is a process of its own, of the lowest priority: on machines with few processors it would otherwise take them from the server
/// and from who is measured, and the figure would be that of the scheduler of the kernel.
async fn overload(server: &Server, reader: &Server) {
    let token = token_of(server, "noisy").await;
    let quiet = gets_of(reader).await;
    println!("gets of one account, nobody else: p50 {:?}, p99 {:?}", quiet.0, quiet.1);
    let before = server.process.cpu();
    let noise = Noise::start(server, &token);
    let felt = gets_of(reader).await;
    println!(
        "beside {IN_FLIGHT} requests of another in flight: p50 {:?}, p99 {:?}; the other got {}; {:?} of server CPU",
        felt.0,
        felt.1,
        noise.stop(),
        server.process.cpu() - before
    );
    println!(
        "= overload by one user, {IN_FLIGHT} requests in flight: others' p99 {:?}, {:.1} x idle (to reach: 2 x)",
        felt.1,
        felt.1.as_secs_f64() / quiet.1.as_secs_f64().max(f64::MIN_POSITIVE)
    );
}

/// Requests that a noisy client keeps in flight, over so many connections.
const IN_FLIGHT: usize = 1_000;
const CONNECTIONS: usize = 10;

/// Says to a copy of this program whom to make noise at: an address, a kubeconfig and a token.
const NOISE: &str = "SETPOINT_BENCH_NOISE";

/// A noisy client, as a process of its own.
struct Noise(Child);

impl Noise {
    fn start(server: &Server, token: &str) -> Noise {
        let target = format!("{}\n{}\n{token}", server.process.address, server.process.kubeconfig.display());
        let mut command = Command::new("nice");
        command.args(["-n", "19"]).arg(std::env::current_exe().expect("this program"));
        Noise(
            command
                .env(NOISE, target)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .expect("a copy of this program"),
        )
    }

    /// Ends it, and returns what it tells.
    fn stop(mut self) -> String {
        drop(self.0.stdin.take());
        let output = self.0.wait_with_output().expect("its last words");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }
}

/// Makes noise until nobody listens any more.
async fn make_noise(target: &str) {
    let mut words = target.split('\n');
    let mut word = || words.next().expect("an address, a kubeconfig and a token");
    let user = User::with_token(word().parse().expect("an address"), Path::new(word()), word().to_owned());
    let (stop, done, refused) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        connections.push(user.connect().await);
    }
    let noise = (0..IN_FLIGHT).map(|i| {
        let mut connection = connections[i % connections.len()].clone();
        let (user, stop, done, refused) = (&user, &stop, &done, &refused);
        async move {
            while !stop.load(Ordering::Relaxed) {
                let list = (Method::GET, format!("{CONFIG_MAPS}?labelSelector=shard%3Ds7"), Bytes::new(), "");
                match user.call(&mut connection, list).await.0 {
                    StatusCode::TOO_MANY_REQUESTS => {
                        refused.fetch_add(1, Ordering::Relaxed);
                        tokio::time::sleep(Duration::from_secs(1)).await;
                    }
                    status => {
                        assert!(status.is_success(), "{status}");
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        }
    });
    let told_to_stop = tokio::task::spawn_blocking(|| std::io::stdin().lines().for_each(drop));
    let stopped = async {
        // It can't fail but by a panic, and then it is over too.
        let _ = told_to_stop.await;
        stop.store(true, Ordering::Relaxed);
    };
    tokio::join!(stopped, futures_util::future::join_all(noise));
    println!("{} answers and {} refusals", done.load(Ordering::Relaxed), refused.load(Ordering::Relaxed));
}

/// The middle and the slowest hundredth of 500 gets, fifty a second.
async fn gets_of(reader: &Server) -> (Duration, Duration) {
    let mut connection = reader.connect().await;
    let mut pace = tokio::time::interval(Duration::from_millis(20));
    let mut times = Vec::new();
    for i in 0..500 {
        pace.tick().await;
        let start = Instant::now();
        let (status, _) = reader.call(&mut connection, get(i)).await;
        assert!(status.is_success(), "{status}");
        times.push(start.elapsed());
    }
    times.sort();
    (times[times.len() / 2], times[times.len() * 99 / 100])
}

fn get(i: usize) -> Call {
    (Method::GET, format!("{CONFIG_MAPS}/read{}", i % 1_000), Bytes::new(), "")
}

fn post(path: &str, body: Bytes) -> Call {
    (Method::POST, path.to_owned(), body, "application/json")
}

/// The server as a service account sees it that may read the namespace.
async fn account(server: &Server, name: &str) -> Server {
    server.with_token(token_of(server, name).await)
}

/// The token of a service account that may read the namespace.
async fn token_of(server: &Server, name: &str) -> String {
    let mut connection = server.connect().await;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let mut make = async |path: &str, object: Value| {
        let bytes = send(&mut connection, post(path, Bytes::from(object.to_string()))).await;
        serde_json::from_slice::<Value>(&bytes).expect("an object")
    };
    make(accounts, json!({"metadata": {"name": name}})).await;
    let binding = json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": name}],
    });
    make("/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings", binding).await;
    let token = make(&format!("{accounts}/{name}/token"), json!({"spec": {"expirationSeconds": 3600}})).await;
    token["status"]["token"].as_str().expect("a token").to_owned()
}
