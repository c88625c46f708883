//! A server and the load on it: HTTP/2 connections over TLS, one request in flight on each.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use base64::Engine;
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsConnector;

use super::Process;

/// Where the ConfigMaps of the default namespace are.
pub const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// An HTTP/2 connection.
pub type Connection = SendRequest<Full<Bytes>>;

/// A ConfigMap of about 1 KB.
pub fn config_map(name: &str) -> Bytes {
    let shard = name.bytes().map(usize::from).sum::<usize>() % 100;
    let payload = "x".repeat(700);
    Bytes::from(format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}","labels":{{"app":"bench","shard":"s{shard}"}}}},"data":{{"payload":"{payload}"}}}}"#
    ))
}

/// Method, path, body and media type.
pub type Call = (Method, String, Bytes, &'static str);

/// The request of a call.
pub fn request((method, path, body, media): Call) -> Request<Full<Bytes>> {
    let builder = Request::builder().method(method).uri(format!("https://localhost{path}"));
    let builder = if media.is_empty() { builder } else { builder.header("content-type", media) };
    builder.body(Full::new(body)).expect("a request")
}

/// The body of an answer that has to be a success.
pub async fn send(connection: &mut Connection, call: Call) -> Bytes {
    let (status, bytes) = answer(connection, request(call)).await;
    assert!(status.is_success(), "{status}: {}", String::from_utf8_lossy(&bytes));
    bytes
}

async fn answer(connection: &mut Connection, request: Request<Full<Bytes>>) -> (StatusCode, Bytes) {
    let response = connection.send_request(request).await.expect("an answer");
    let status = response.status();
    (status, response.into_body().collect().await.expect("a body").to_bytes())
}

/// A server process, and one of its users.
pub struct Server {
    /// What is measured.
    pub process: Arc<Process>,
    user: User,
}

/// What is needed to call a server as one of its users.
pub struct User {
    address: SocketAddr,
    connector: TlsConnector,
    token: Option<String>,
}

impl Server {
    /// Starts one on a folder.
    pub fn start(directory: &Path) -> Server {
        Server::of(Process::start(&["server"], directory))
    }

    /// Starts one on an etcd, as the command line names it.
    pub fn start_on_etcd(etcd: &str, directory: &Path) -> Server {
        Server::of(Process::start_on(&["--store".to_owned(), etcd.to_owned()], &["server"], directory))
    }

    fn of(process: Process) -> Server {
        let connector = connector(&process.kubeconfig, true);
        let user = User { address: process.address, connector, token: None };
        Server { process: Arc::new(process), user }
    }

    /// The same server as one who has a token sees it.
    pub fn with_token(&self, token: String) -> Server {
        let user = User::with_token(self.process.address, &self.process.kubeconfig, token);
        Server { process: Arc::clone(&self.process), user }
    }

    /// A connection of its own.
    pub async fn connect(&self) -> Connection {
        self.user.connect().await
    }

    /// What the server answers, be it a success or not.
    pub async fn call(&self, connection: &mut Connection, call: Call) -> (StatusCode, Bytes) {
        self.user.call(connection, call).await
    }

    /// Runs `count` calls over so many connections and returns how long each took.
    pub async fn run(&self, connections: usize, count: usize, call: &(impl Fn(usize) -> Call + Sync)) -> Vec<Duration> {
        let next = AtomicUsize::new(0);
        let next = &next;
        let mut clients = Vec::new();
        for _ in 0..connections {
            let mut connection = self.connect().await;
            clients.push(async move {
                let mut times = Vec::new();
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    if i >= count {
                        return times;
                    }
                    let start = Instant::now();
                    let (status, bytes) = self.call(&mut connection, call(i)).await;
                    assert!(status.is_success(), "{status}: {}", String::from_utf8_lossy(&bytes));
                    times.push(start.elapsed());
                }
            });
        }
        futures_util::future::join_all(clients).await.concat()
    }

    /// Runs calls as [`Server::run`] does, and prints what they cost. Returns the microseconds of the server's CPU for each.
    pub async fn measure(
        &self,
        what: &str,
        connections: usize,
        count: usize,
        call: impl Fn(usize) -> Call + Sync,
    ) -> f64 {
        let (cpu, start) = (self.process.cpu(), Instant::now());
        let mut times = self.run(connections, count, &call).await;
        let (seconds, cpu) = (start.elapsed().as_secs_f64(), self.process.cpu() - cpu);
        times.sort();
        let each = cpu.as_secs_f64() * 1e6 / count as f64;
        println!(
            "{what}, {connections} connections: {:.0} op/s, p50 {:?} p99 {:?}, {each:.1} µs of server CPU each",
            count as f64 / seconds,
            times[times.len() / 2],
            times[times.len() * 99 / 100],
        );
        each
    }
}

impl User {
    /// Who has a token. Whom to trust is in a kubeconfig.
    pub fn with_token(address: SocketAddr, kubeconfig: &Path, token: String) -> User {
        User { address, connector: connector(kubeconfig, false), token: Some(token) }
    }

    /// A connection of its own.
    pub async fn connect(&self) -> Connection {
        let socket = tokio::net::TcpStream::connect(self.address).await.expect("a connection");
        socket.set_nodelay(true).expect("a socket");
        let name = "localhost".try_into().expect("a name");
        let stream = self.connector.connect(name, socket).await.expect("TLS");
        let builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.expect("HTTP/2");
        tokio::spawn(connection);
        sender
    }

    /// What the server answers, be it a success or not.
    pub async fn call(&self, connection: &mut Connection, call: Call) -> (StatusCode, Bytes) {
        let mut request = request(call);
        if let Some(token) = &self.token {
            let value = format!("Bearer {token}").parse().expect("a header");
            request.headers_mut().insert(http::header::AUTHORIZATION, value);
        }
        answer(connection, request).await
    }
}

/// TLS as an admin kubeconfig has it, with its client certificate or without.
fn connector(kubeconfig: &Path, is_admin: bool) -> TlsConnector {
    let text = std::fs::read_to_string(kubeconfig).expect("a kubeconfig");
    let pem = |key: &str| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(key)).expect("a key of the kubeconfig");
        base64::engine::general_purpose::STANDARD.decode(line.trim().trim_matches('"')).expect("base64")
    };
    let mut roots = rustls::RootCertStore::empty();
    let authority = CertificateDer::from_pem_slice(&pem("certificate-authority-data:")).expect("a certificate");
    roots.add(authority).expect("a CA");
    let certificate = CertificateDer::from_pem_slice(&pem("client-certificate-data:")).expect("a certificate");
    let key = PrivateKeyDer::from_pem_slice(&pem("client-key-data:")).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("TLS versions")
        .with_root_certificates(roots);
    let mut config = match is_admin {
        true => builder.with_client_auth_cert(vec![certificate], key).expect("a client certificate"),
        false => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    TlsConnector::from(Arc::new(config))
}
