//! A whole server in a test's own process, asked like any other.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, Response};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use setpoint_store::{MemoryDisk, Options, Store};
use tokio::sync::watch;
use tower::ServiceExt;

use crate::body::{Body, full};
use crate::user::User;
use crate::{ApiServer, Chance, Clock, Registry};

/// Where the server says that it can be reached.
pub(crate) const ADDRESS: ([u8; 4], u16) = ([192, 168, 7, 7], 6443);

/// A prepared server.
pub(crate) struct Server {
    pub(crate) api: ApiServer,
    pub(crate) store: Store,
    _stop: watch::Sender<bool>,
    /// Ends with the server: a test that has one doesn't outlive it.
    tending: tokio::task::JoinSet<()>,
}

impl Server {
    pub(crate) async fn start() -> Server {
        let registry = Arc::new(Registry::builtin());
        let disk = Arc::new(MemoryDisk::new());
        let (store, _) =
            Store::open(disk, Arc::clone(&registry) as _, Options { segment_bytes: 64 * 1024, ..Options::default() })
                .await
                .unwrap();
        let (stop, stopping) = watch::channel(false);
        let clock = Clock::starting_at(Duration::from_secs(1_700_000_000));
        let api = ApiServer::new(store.clone(), registry, clock, Chance::seeded(7), stopping);
        api.prepare(SocketAddr::from(ADDRESS)).await.unwrap();
        Server { api, store, _stop: stop, tending: tokio::task::JoinSet::new() }
    }

    /// One that keeps definitions of custom kinds in order, and so writes by itself.
    pub(crate) async fn tended() -> Server {
        let mut server = Server::start().await;
        server.tend();
        server
    }

    /// Keeps definitions in order from now on.
    pub(crate) fn tend(&mut self) {
        self.tending.spawn(self.api.tend());
    }

    /// Sends a request as the administrator; an absent body is `null`.
    pub(crate) async fn send(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        let media = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        self.send_as(media, method, path, body).await
    }

    /// Sends a request as the administrator, with a body of this media type.
    pub(crate) async fn send_as(&self, media: &str, method: &str, path: &str, body: Value) -> (u16, Value) {
        let bytes = if body.is_null() { Vec::new() } else { serde_json::to_vec(&body).unwrap() };
        let mut request = Request::new(full(bytes));
        *request.method_mut() = Method::from_bytes(method.as_bytes()).unwrap();
        *request.uri_mut() = path.parse().unwrap();
        request.headers_mut().insert(http::header::CONTENT_TYPE, media.parse().unwrap());
        self.ask(request).await
    }

    /// Sends any request as the administrator.
    pub(crate) async fn ask(&self, request: Request<Body>) -> (u16, Value) {
        let (code, bytes) = self.bytes(request).await;
        (code, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }

    /// Sends any request as the administrator, and reads its answer to the end.
    pub(crate) async fn text(&self, request: Request<Body>) -> String {
        String::from_utf8(self.bytes(request).await.1.to_vec()).unwrap()
    }

    /// Sends any request as the administrator, and leaves the answer's body to be read.
    pub(crate) async fn answer(&self, mut request: Request<Body>) -> Response<Body> {
        let user = User { name: "admin".into(), groups: vec!["system:masters".into()], ..User::default() };
        request.extensions_mut().insert(Arc::new(user));
        let Ok(response) = self.api.clone().oneshot(request).await;
        response
    }

    async fn bytes(&self, request: Request<Body>) -> (u16, bytes::Bytes) {
        let response = self.answer(request).await;
        let code = response.status().as_u16();
        (code, response.into_body().collect().await.unwrap().to_bytes())
    }

    /// Sends what must work, and returns the object.
    pub(crate) async fn done(&self, method: &str, path: &str, body: Value) -> Value {
        let (code, answer) = self.send(method, path, body).await;
        assert!((200..300).contains(&code), "{method} {path}: {answer}");
        answer
    }

    /// Sends what must be refused, and returns code and message.
    pub(crate) async fn refused(&self, method: &str, path: &str, body: Value) -> (u16, String) {
        let (code, answer) = self.send(method, path, body).await;
        assert!(code >= 400, "{method} {path}: {answer}");
        (code, answer["message"].as_str().unwrap_or_default().to_owned())
    }

    /// A pod in the default namespace, with the account that it needs.
    pub(crate) async fn pod(&self, name: &str) -> Value {
        let account = json!({"metadata": {"name": "default"}});
        self.send("POST", "/api/v1/namespaces/default/serviceaccounts", account).await;
        let labels = json!({"app": "a"});
        let pod = json!({"metadata": {"name": name, "labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        self.done("POST", "/api/v1/namespaces/default/pods", pod).await
    }
}
