//! What a call costs inside of the server, one line each: no socket, no TLS, no disk. Run by `make bench`.
//!
//! One thread does everything, so the time that passes is the time that a processor spends.
//!
//! Words after `--` choose parts, a number says how many rounds: `cargo bench -p setpoint-apiserver --bench calls -- pods 3`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use setpoint_apiserver::body::{Body, full};
use setpoint_apiserver::tokens::Signer;
use setpoint_apiserver::user::User;
use setpoint_apiserver::{ApiServer, Chance, Clock, Local, Registry};
use setpoint_store::{MemoryDisk, Options, Store};
use tokio::sync::watch;
use tower::ServiceExt;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Objects in each measurement.
const OBJECTS: usize = 4_000;

const PODS: &str = "/api/v1/namespaces/default/pods";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn main() {
    let rounds = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(1);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async {
        for _ in 0..rounds {
            let server = Server::start().await;
            if is_chosen("maps") {
                server.maps().await;
            }
            if is_chosen("pods") {
                server.pods().await;
            }
            if is_chosen("askers") {
                server.askers().await;
            }
        }
    });
}

/// Whether a part is to run: all do, unless some are named.
fn is_chosen(part: &str) -> bool {
    let mut words = std::env::args().skip(1).filter(|word| !word.starts_with('-') && word.parse::<usize>().is_err());
    let first = words.next();
    first.is_none() || first.into_iter().chain(words).any(|word| word == part)
}

struct Server {
    client: Local,
    api: ApiServer,
    _stop: watch::Sender<bool>,
}

/// How somebody on the network shows who they are.
enum Credentials {
    Certificate(Arc<User>),
    Token(String),
}

impl Server {
    async fn start() -> Server {
        let registry = Arc::new(Registry::builtin());
        let disk = Arc::new(MemoryDisk::new());
        let (store, _) =
            Store::open(disk, Arc::clone(&registry) as _, Options::default()).await.expect("a store in memory");
        let (stop, stopping) = watch::channel(false);
        let clock = Clock::starting_at(Duration::from_secs(1_700_000_000));
        let api = ApiServer::new(store, registry, clock, Chance::seeded(7), stopping);
        api.prepare(SocketAddr::from(([192, 168, 7, 7], 6443))).await.expect("what must always be there");
        let key = rcgen::KeyPair::generate().expect("a key");
        let public = rcgen::PublicKeyData::subject_public_key_info(&key);
        api.sign_with(Signer::new(&key.serialize_der(), &public).expect("a key to sign with"));
        let server = Server { client: api.acting_as(administrator()), api, _stop: stop };
        let account = json!({"metadata": {"name": "default"}});
        server.send("POST", "/api/v1/namespaces/default/serviceaccounts", &account).await;
        server
    }

    async fn send(&self, method: &str, path: &str, body: &Value) -> Bytes {
        let request = request(method, path, body);
        let Ok(response) = self.client.clone().oneshot(request).await;
        read(&format!("{method} {path}"), response).await
    }

    /// Sends a request as it comes from the network.
    async fn ask(&self, path: &str, credentials: &Credentials) {
        let mut request = request("GET", path, &Value::Null);
        match credentials {
            Credentials::Certificate(user) => {
                request.extensions_mut().insert(Arc::clone(user));
            }
            Credentials::Token(token) => {
                let header = format!("Bearer {token}").parse().expect("a header");
                request.headers_mut().insert(http::header::AUTHORIZATION, header);
            }
        }
        let Ok(response) = self.api.clone().oneshot(request).await;
        read(path, response).await;
    }
    async fn measure(&self, what: &str, method: &str, call: impl Fn(usize) -> (String, Value)) {
        let calls: Vec<(String, Value)> = (0..OBJECTS).map(call).collect();
        let (begin, mut bytes) = (Instant::now(), 0);
        for (path, body) in &calls {
            bytes += self.send(method, path, body).await.len();
        }
        let each = begin.elapsed().as_secs_f64() * 1e6 / OBJECTS as f64;
        println!("{what}: {each:.1} us, {} bytes", bytes / OBJECTS);
    }

    async fn maps(&self) {
        let payload = "x".repeat(820);
        self.measure("create a ConfigMap of 1 KB", "POST", |number| {
            (MAPS.to_owned(), json!({"metadata": {"name": format!("map-{number}")}, "data": {"payload": payload}}))
        })
        .await;
        let change = json!({"data": {"more": "a value"}});
        self.measure("patch it", "PATCH", |number| (format!("{MAPS}/map-{number}"), change.clone())).await;
        self.measure("read it", "GET", |number| (format!("{MAPS}/map-{number}"), Value::Null)).await;
        self.measure("delete it", "DELETE", |number| (format!("{MAPS}/map-{number}"), Value::Null)).await;
    }

    /// What it costs to know who asks and whether they may: a read by somebody with a token and a role, beside the same by somebody
    /// whose certificate was looked at when the connection began and who may do everything.
    async fn askers(&self) {
        let map = format!("{MAPS}/asked-for");
        let object = json!({"metadata": {"name": "asked-for"}, "data": {"key": "value"}});
        self.send("POST", MAPS, &object).await;
        self.api.prepare_roles().await.expect("the default roles");
        let accounts = "/api/v1/namespaces/default/serviceaccounts";
        self.bind("reader").await;
        self.send("POST", accounts, &json!({"metadata": {"name": "reader"}})).await;
        let answer = self.send("POST", &format!("{accounts}/reader/token"), &json!({"spec": {}})).await;
        let answer: Value = serde_json::from_slice(&answer).expect("a token request");
        let token = Credentials::Token(answer["status"]["token"].as_str().expect("a token").to_owned());
        let certificate = Credentials::Certificate(Arc::new(administrator()));
        let few = self.difference(&map, &token, &certificate).await;
        for number in 0..1_000 {
            self.bind(&format!("other-{number}")).await;
        }
        let many = self.difference(&map, &token, &certificate).await;
        println!(
            "authentication by a token, authorization by a role and a fair turn: {few:.2} us, {many:.2} us with 1,000 bindings more"
        );
    }

    async fn bind(&self, account: &str) {
        let binding = json!({
            "metadata": {"name": account},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
            "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": account}],
        });
        self.send("POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings", &binding).await;
    }

    /// How much more a read costs by one than by the other, in microseconds: the middle of several rounds, each of both by turns.
    async fn difference(&self, path: &str, more: &Credentials, less: &Credentials) -> f64 {
        let mut differences = Vec::new();
        for _ in 0..15 {
            let mut times = [0.0; 2];
            for (time, credentials) in times.iter_mut().zip([more, less]) {
                let begin = Instant::now();
                for _ in 0..OBJECTS {
                    self.ask(path, credentials).await;
                }
                *time = begin.elapsed().as_secs_f64() * 1e6 / OBJECTS as f64;
            }
            differences.push(times[0] - times[1]);
        }
        differences.sort_by(f64::total_cmp);
        differences[differences.len() / 2]
    }

    async fn pods(&self) {
        self.measure("create a pod", "POST", |number| (PODS.to_owned(), pod(number))).await;
        self.measure("bind it", "POST", |number| {
            let target = json!({"apiVersion": "v1", "kind": "Node", "name": "node-1"});
            (
                format!("{PODS}/web-{number}/binding"),
                json!({"metadata": {"name": format!("web-{number}")}, "target": target}),
            )
        })
        .await;
        self.measure("say that it runs", "PATCH", |number| (format!("{PODS}/web-{number}/status"), running(number)))
            .await;
        self.measure("begin to delete it", "DELETE", |number| (format!("{PODS}/web-{number}"), Value::Null)).await;
        self.measure("end to delete it", "DELETE", |number| {
            (
                format!("{PODS}/web-{number}"),
                json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}),
            )
        })
        .await;
    }
}

/// Somebody who may do everything.
fn administrator() -> User {
    User {
        name: "admin".into(),
        groups: vec!["system:masters".into(), "system:authenticated".into()],
        ..User::default()
    }
}

fn request(method: &str, path: &str, body: &Value) -> Request<Body> {
    let bytes = if body.is_null() { Vec::new() } else { serde_json::to_vec(body).expect("a document") };
    let media = match method {
        "PATCH" => "application/strategic-merge-patch+json",
        _ => "application/json",
    };
    let mut request: Request<Body> = Request::new(full(bytes));
    *request.method_mut() = Method::from_bytes(method.as_bytes()).expect("a method");
    *request.uri_mut() = path.parse().expect("a path");
    request.headers_mut().insert(http::header::CONTENT_TYPE, media.parse().expect("a media type"));
    request.headers_mut().insert(http::header::USER_AGENT, "bench/1".parse().expect("a name"));
    request
}

async fn read(what: &str, response: http::Response<Body>) -> Bytes {
    let code = response.status();
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    assert!(code.is_success(), "{what}: {}", String::from_utf8_lossy(&body));
    body
}

/// A pod as the controller of a Deployment makes it.
fn pod(number: usize) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": format!("web-{number}"),
            "labels": {"app": "web", "pod-template-hash": "5b5cdc9d9f"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5b5cdc9d9f",
                "uid": "7c2f9a3e-5a43-4f7e-9c3e-0d9a1c4f7e11", "controller": true, "blockOwnerDeletion": true}],
        },
        "spec": {
            "containers": [{"name": "nginx", "image": "nginx:1.27", "imagePullPolicy": "IfNotPresent",
                "resources": {"requests": {"cpu": "10m"}}, "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File"}],
            "dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "schedulerName": "default-scheduler",
            "securityContext": {}, "terminationGracePeriodSeconds": 30,
        },
    })
}

/// What a node says of a pod that it has started.
fn running(number: usize) -> Value {
    let since = "2023-11-14T22:13:20Z";
    let condition = |kind: &str| {
        json!({"type": kind, "status": "True", "reason": null, "message": null, "lastProbeTime": null,
            "lastTransitionTime": since, "observedGeneration": 1})
    };
    let conditions =
        ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"].map(condition);
    let address = format!("10.244.{}.{}", number / 250, number % 250 + 1);
    json!({"status": {
        "phase": "Running",
        "conditions": conditions,
        "containerStatuses": [{"name": "nginx", "image": "nginx:1.27", "imageID": "simulated://sha256:1", "ready": true,
            "containerID": format!("simulated://{number:064}"), "restartCount": 0, "started": true,
            "state": {"running": {"startedAt": since}}, "lastState": {}}],
        "hostIP": "10.1.0.1", "hostIPs": [{"ip": "10.1.0.1"}], "podIP": address, "podIPs": [{"ip": address}],
        "startTime": since, "observedGeneration": 1, "qosClass": "Burstable",
    }})
}
