//! Calls to webhooks over HTTPS, with a bound on everything: time, size, connections. Redirects are not followed.

#[cfg(test)]
pub(crate) mod backend;
mod service;
mod trust;

use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CertificateError, ClientConfig, RootCertStore};
use serde_json::Value;
use setpoint_api::{GroupResource, Status};
use setpoint_schema::Edit;
use setpoint_store::Store;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use trust::Trust;

use crate::clock::Chance;

/// Largest answer: a patch of the largest object that a request may have, in base64, with room to spare.
const ANSWER_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Connections that are kept open for the next call.
const IDLE_MAX: usize = 8;

/// How much of an answer that is none is quoted. Same as in Kubernetes' client.
const QUOTED_BYTES_MAX: usize = 2048;

/// What went wrong with a call.
pub(crate) struct Trouble {
    /// For the client, in the words of Kubernetes.
    pub(crate) why: String,
    /// For the log: without what the webhook said, which may be what it was asked about.
    pub(crate) kept: String,
}

impl Trouble {
    /// With nothing in it that the webhook said.
    pub(crate) fn plain(why: String) -> Trouble {
        Trouble { kept: why.clone(), why }
    }

    /// With words of the webhook's in it, for which the log has others.
    pub(crate) fn quoting(why: String, kept: String) -> Trouble {
        Trouble { why, kept }
    }

    pub(crate) fn within(self, what: &str) -> Trouble {
        Trouble { why: format!("{what}: {}", self.why), kept: format!("{what}: {}", self.kept) }
    }
}

/// What is looked at to find a webhook: Services and their endpoints, of which any may do.
#[derive(Clone, Copy)]
pub(crate) struct Surroundings<'a> {
    pub(crate) store: &'a Store,
    pub(crate) chance: &'a Chance,
}

/// Where a webhook is, and how it is reached.
pub(crate) struct Client {
    place: Place,
    host: String,
    port: u16,
    /// As written in messages, without the query.
    url: String,
    path: String,
    ca_bundle: String,
    tls: OnceLock<Result<Arc<ClientConfig>, String>>,
    idle: Mutex<Vec<Open>>,
}

enum Place {
    Url,
    Service {
        namespace: String,
        name: String,
    },
    /// Nothing that could be called.
    Nowhere(String),
}

type Driver = Connection<TokioIo<TlsStream<TcpStream>>, Full<Bytes>>;

/// A connection, which is driven only while it is used.
struct Open {
    sender: SendRequest<Full<Bytes>>,
    /// None once it has ended: as long as one is kept that has, a request that it took waits for its answer.
    driver: Option<Pin<Box<Driver>>>,
}

impl Client {
    /// From the `clientConfig` of a webhook.
    pub(crate) fn read(config: &Value) -> Client {
        let ca_bundle = config.text("caBundle").to_owned();
        let client = |place, host: String, port, url: String, path: &str| Client {
            place,
            host,
            port,
            url,
            path: clean(path),
            ca_bundle,
            tls: OnceLock::new(),
            idle: Mutex::default(),
        };
        if let Some(service) = config.get("service").filter(|service| service.is_object()) {
            let (namespace, name) = (service.text("namespace").to_owned(), service.text("name").to_owned());
            let port = service.number("port").and_then(|port| u16::try_from(port).ok()).unwrap_or(443);
            let host = format!("{name}.{namespace}.svc");
            let (url, path) = (format!("https://{host}:{port}"), service.text("path"));
            return client(Place::Service { namespace, name }, host, port, url, path);
        }
        match config.text("url").parse::<Uri>() {
            Ok(url) if url.host().is_some() => {
                let authority = url.authority().map(ToString::to_string).unwrap_or_default();
                let host = url.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
                let shown = format!("https://{authority}");
                client(Place::Url, host, url.port_u16().unwrap_or(443), shown, url.path())
            }
            _ => {
                let why = "webhook configuration must have either service or URL".to_owned();
                client(Place::Nowhere(why), String::new(), 0, String::new(), "")
            }
        }
    }

    /// Posts a document and returns the answer, or what went wrong in the words of Kubernetes.
    pub(crate) async fn post(
        &self,
        around: Surroundings<'_>,
        query: &str,
        body: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, Trouble> {
        let path = format!("{}{query}", self.path);
        let url = format!("{}{path}", self.url);
        let failed = |why: String| Trouble::plain(format!("Post {}: {why}", setpoint_api::quote::quote(&url)));
        match tokio::time::timeout(timeout, self.exchange(around, &path, body)).await {
            Err(_) => Err(failed("context deadline exceeded".to_owned())),
            Ok(Err(why)) => Err(failed(why)),
            Ok(Ok((code, answer))) if code == StatusCode::OK || code == StatusCode::CREATED => Ok(answer),
            Ok(Ok((code, answer))) => Err(Trouble::quoting(refused(code, &answer), format!("it answered {code}"))),
        }
    }

    async fn exchange(&self, around: Surroundings<'_>, path: &str, body: Bytes) -> Result<(StatusCode, Bytes), String> {
        // One that was kept may have been closed by the other side meanwhile: then there is no answer, and a new one is
        // opened.
        while let Some(mut open) = self.take_idle() {
            match open.exchange(&self.request(path, body.clone())?).await {
                Ok(answer) => {
                    self.keep(open);
                    return Ok(answer);
                }
                Err(Broken::Before(_)) => {}
                Err(Broken::Within(why)) => return Err(why),
            }
        }
        let mut open = self.open(around).await?;
        match open.exchange(&self.request(path, body)?).await {
            Ok(answer) => {
                self.keep(open);
                Ok(answer)
            }
            Err(Broken::Before(why) | Broken::Within(why)) => Err(why),
        }
    }

    fn take_idle(&self) -> Option<Open> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    fn keep(&self, open: Open) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MAX && !open.sender.is_closed() {
            idle.push(open);
        }
    }

    fn request(&self, path: &str, body: Bytes) -> Result<Request<Full<Bytes>>, String> {
        let host = if self.port == 443 && matches!(self.place, Place::Url) {
            self.host.clone()
        } else if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        };
        Request::post(path)
            .header(header::HOST, host)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json, */*")
            .header(header::USER_AGENT, "kube-apiserver-admission")
            .body(Full::new(body))
            .map_err(|error| error.to_string())
    }

    async fn open(&self, around: Surroundings<'_>) -> Result<Open, String> {
        let addresses = self.addresses(around).await?;
        let mut why = format!("dial tcp: lookup {}: no such host", self.host);
        let mut stream = None;
        for address in addresses {
            match TcpStream::connect(address).await {
                Ok(open) => {
                    stream = Some(open);
                    break;
                }
                Err(error) => why = format!("dial tcp {address}: connect: {}", in_go_words(&error)),
            }
        }
        let stream = stream.ok_or(why)?;
        let config = self.tls.get_or_init(|| trusting(&self.ca_bundle)).clone()?;
        let name = ServerName::try_from(self.host.clone()).map_err(|error| error.to_string())?;
        let stream = TlsConnector::from(config).connect(name, stream).await.map_err(|error| self.tls_words(&error))?;
        let (sender, driver) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
        Ok(Open { sender, driver: Some(Box::pin(driver)) })
    }

    async fn addresses(&self, around: Surroundings<'_>) -> Result<Vec<SocketAddr>, String> {
        let (host, port) = match &self.place {
            Place::Nowhere(why) => return Err(why.clone()),
            Place::Service { namespace, name } => match service::resolve(around, namespace, name, self.port)? {
                service::Resolved::Addresses(addresses) => return Ok(addresses),
                service::Resolved::Name(host) => (host, self.port),
            },
            Place::Url => (self.host.clone(), self.port),
        };
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let found = tokio::net::lookup_host((host.as_str(), port)).await;
        found.map(Iterator::collect).map_err(|_| format!("dial tcp: lookup {host}: no such host"))
    }

    /// What went wrong while the connection was secured, as Go says it.
    fn tls_words(&self, error: &std::io::Error) -> String {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        let unverified = |why: &str| format!("tls: failed to verify certificate: x509: {why}");
        match inner {
            Some(rustls::Error::InvalidCertificate(why)) => match why {
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                    unverified(&format!("certificate is not valid for {}", self.host))
                }
                CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                    unverified("certificate has expired or is not yet valid")
                }
                CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                    unverified("certificate has expired or is not yet valid")
                }
                _ => unverified("certificate signed by unknown authority"),
            },
            Some(rustls::Error::InvalidMessage(_)) => "http: server gave HTTP response to HTTPS client".to_owned(),
            Some(other) => format!("tls: {other}"),
            None if error.kind() == std::io::ErrorKind::UnexpectedEof => "EOF".to_owned(),
            None => in_go_words(error),
        }
    }
}

/// Where a connection broke: before the answer or within it.
enum Broken {
    Before(String),
    Within(String),
}

impl Open {
    async fn exchange(&mut self, request: &Request<Full<Bytes>>) -> Result<(StatusCode, Bytes), Broken> {
        let Open { sender, driver } = self;
        let work = async {
            let answer = sender.send_request(request.clone()).await;
            let answer = answer.map_err(|error| Broken::Before(cut_off(&error)))?;
            let code = answer.status();
            match Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await {
                Ok(body) => Ok((code, body.to_bytes())),
                Err(error) => Err(Broken::Within(error.to_string())),
            }
        };
        tokio::pin!(work);
        if let Some(driving) = driver {
            tokio::select! {
                biased;
                answer = &mut work => return answer,
                _ = driving => *driver = None,
            }
        }
        work.await
    }
}

fn cut_off(error: &hyper::Error) -> String {
    let ended = error.is_incomplete_message() || error.is_canceled() || error.is_closed();
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<std::io::Error>());
    match cause {
        Some(cause) if cause.kind() != std::io::ErrorKind::UnexpectedEof => in_go_words(cause),
        None if !ended => error.to_string(),
        _ => "EOF".to_owned(),
    }
}

/// A path as Kubernetes' client asks for it: without empty parts, dots and a slash at its end. Go's servers answer others with a
/// redirection, which is not followed.
fn clean(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// Trusts the certificates of a bundle; without one those that the machine trusts.
fn trusting(ca_bundle: &str) -> Result<Arc<ClientConfig>, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .map_err(|error| error.to_string())?;
    let mut config = match ca_bundle {
        "" => {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            config.with_root_certificates(roots).with_no_client_auth()
        }
        bundle => {
            let unusable = || "unable to load root certificates: unable to parse bytes as PEM block".to_owned();
            let pem = STANDARD.decode(bundle).map_err(|_| unusable())?;
            let read: Result<Vec<CertificateDer<'static>>, _> = CertificateDer::pem_slice_iter(&pem).collect();
            let read = read.ok().filter(|read| !read.is_empty()).ok_or_else(unusable)?;
            let trust = Arc::new(Trust::in_bundle(read, &provider)?);
            config.dangerous().with_custom_certificate_verifier(trust).with_no_client_auth()
        }
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// The refusal of an answer that is none: what it says if it is a status, or what its code stands for.
fn refused(code: StatusCode, answer: &[u8]) -> String {
    let status: Option<Value> = serde_json::from_slice(answer).ok();
    if let Some(status) = status.filter(|status| status.text("kind") == "Status" && !status.text("message").is_empty())
    {
        return quoted(status.text("message")).to_owned();
    }
    let text = String::from_utf8_lossy(&answer[..answer.len().min(QUOTED_BYTES_MAX)]);
    let nothing = GroupResource::new("", "");
    Status::generic_server_response(code.as_u16(), "POST", &nothing, "", text.trim()).message
}

fn quoted(text: &str) -> &str {
    let end = (0..=QUOTED_BYTES_MAX.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or(0)]
}

fn in_go_words(error: &std::io::Error) -> String {
    use std::io::ErrorKind;
    match error.kind() {
        ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        ErrorKind::ConnectionReset => "connection reset by peer".to_owned(),
        ErrorKind::NetworkUnreachable => "network is unreachable".to_owned(),
        ErrorKind::HostUnreachable => "no route to host".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::clean;

    #[test]
    fn a_path_is_asked_for_as_go_writes_it() {
        for (given, asked) in [
            ("", "/"),
            ("/", "/"),
            ("//failing", "/failing"),
            ("/review/", "/review"),
            ("/a//b/./c/../d", "/a/b/d"),
            ("/../..", "/"),
        ] {
            assert_eq!(clean(given), asked, "{given}");
        }
    }
}
