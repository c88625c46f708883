//! The hub behind sockets: TLS with a certificate on both ends, WebSockets, long polls, and firmware.

mod budget;
mod depot;
mod enrol;
mod poll;
mod renewal;
mod socket;
mod stall;

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use setpoint_fleet_protocol::enrolment::{ENROL_PATH, RENEW_PATH};
use setpoint_fleet_protocol::metadata::ROOT_PATH;
use setpoint_fleet_protocol::{Party, hex};
use setpoint_runtime::manager::{Lifecycle, RunError, Runnable};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::{Credential, Hub};
use depot::Depot;
pub use depot::root_file;
use enrol::Enrolments;
use poll::Polls;
pub use renewal::keep_new;
pub(crate) use renewal::validity;
use stall::Stalling;

/// Handshakes at once: each takes half a millisecond of a processor, and a whole fleet may come back at the same moment.
const HANDSHAKES: usize = 64;

/// How long a handshake may take, its wait for a place included.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(20);

/// How long one may hold its place: those who are slow must not keep out the others.
const PLACE_LIMIT: Duration = Duration::from_secs(5);

/// How long a connection may take for the header of a request.
const HEADER_LIMIT: Duration = Duration::from_secs(60);

/// How long a connection may take no byte of what is sent: who doesn't read must not hold what others could use.
const STALL_LIMIT: Duration = Duration::from_secs(30);

/// The pause after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What an answer carries.
pub type Body = BoxBody<Bytes, std::io::Error>;

/// How a hub is reached.
pub struct Front {
    /// Where it listens.
    pub listener: TcpListener,
    /// Connections at a time; one more is closed at once, and comes back in its own time.
    pub connections: usize,
    /// Its own certificate and key, and whose certificates vehicles have: those of the moment, for vehicles that connect.
    pub credentials: watch::Receiver<Credentials>,
    /// Where firmware is that it hands out itself: files named by their SHA-256.
    pub firmware: Option<PathBuf>,
    /// Bytes of firmware a second, over all vehicles; none for as fast as it goes.
    pub bytes_per_second: Option<u64>,
}

/// Certificates in PEM.
#[derive(Clone)]
pub struct Credentials {
    /// The hub's certificate, and those by which others find the way from an authority that they know to it.
    pub certificate: String,
    /// Its key.
    pub key: String,
    /// The authority of vehicles' certificates.
    pub authority: String,
}

impl Credentials {
    fn config(&self) -> Result<ServerConfig, rustls::Error> {
        let wrong = |what: &str| rustls::Error::General(format!("the {what} is no PEM"));
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(self.certificate.as_bytes()).collect();
        let chain = chain.map_err(|_| wrong("certificate"))?;
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).map_err(|_| wrong("key"))?;
        let mut roots = RootCertStore::empty();
        for authority in CertificateDer::pem_slice_iter(self.authority.as_bytes()) {
            roots.add(authority.map_err(|_| wrong("authority"))?)?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        // Who has no certificate yet can ask for one, and for nothing else.
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
            .allow_unauthenticated()
            .build()
            .map_err(|error| rustls::Error::General(error.to_string()))?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_client_cert_verifier(clients)
            .with_single_cert(chain, key)?;
        // Tickets let vehicles come back without the costly half of a handshake; one is enough.
        config.ticketer = rustls::crypto::ring::Ticketer::new()?;
        config.send_tls13_tickets = 1;
        Ok(config)
    }
}

/// A hub that listens, for a manager to run.
pub struct Server {
    hub: Hub,
    front: Front,
}

impl Server {
    /// A hub that listens.
    #[must_use]
    pub fn new(hub: Hub, front: Front) -> Server {
        Server { hub, front }
    }
}

impl Runnable for Server {
    fn name(&self) -> &str {
        "fleet-hub-server"
    }

    fn needs_leadership(&self) -> bool {
        false
    }

    fn run(self: Box<Self>, lifecycle: Lifecycle) -> BoxFuture<'static, Result<(), RunError>> {
        Box::pin(async move {
            let mut credentials = self.front.credentials;
            let config = credentials.borrow_and_update().config()?;
            let tls = watch::Sender::new(TlsAcceptor::from(Arc::new(config)));
            let desk = Arc::new(Desk {
                depot: Depot::new(self.front.firmware, self.front.bytes_per_second),
                polls: Polls::default(),
                enrolments: Enrolments::default(),
                hub: self.hub,
            });
            // Before that nobody could be told anything.
            tokio::select! {
                biased;
                () = lifecycle.draining() => return Ok(()),
                () = desk.hub.until_ready() => {}
            }
            lifecycle.ready();
            let mut connections = JoinSet::new();
            let places = Arc::new(Semaphore::new(self.front.connections.min(Semaphore::MAX_PERMITS)));
            tokio::select! {
                biased;
                () = lifecycle.draining() => {}
                () = accept(&self.front.listener, places, &tls, &desk, &mut connections) => {}
                () = renew(&mut credentials, &tls) => {}
            }
            drop(self.front.listener);
            // Vehicles have been told goodbye; who doesn't go is left.
            let _ = timeout(Duration::from_secs(1), async { while connections.join_next().await.is_some() {} }).await;
            connections.shutdown().await;
            Ok(())
        })
    }
}

/// What requests are answered from.
struct Desk {
    hub: Hub,
    depot: Depot,
    polls: Polls,
    enrolments: Enrolments,
}

/// Who is at the other end.
#[derive(Clone)]
enum Caller {
    /// Somebody without a certificate.
    Nobody,
    /// A party, with its certificate.
    Known(Party, Credential),
}

/// Meets vehicles with the credentials of the moment; never ends.
async fn renew(credentials: &mut watch::Receiver<Credentials>, tls: &watch::Sender<TlsAcceptor>) {
    while credentials.changed().await.is_ok() {
        match credentials.borrow_and_update().config() {
            Ok(config) => drop(tls.send_replace(TlsAcceptor::from(Arc::new(config)))),
            Err(error) => tracing::warn!(%error, "new certificates can't be used; the hub goes on with those before"),
        }
    }
    std::future::pending().await
}

async fn accept(
    listener: &TcpListener,
    places: Arc<Semaphore>,
    tls: &watch::Sender<TlsAcceptor>,
    desk: &Arc<Desk>,
    connections: &mut JoinSet<()>,
) {
    let handshakes = Arc::new(Semaphore::new(HANDSHAKES));
    loop {
        while connections.try_join_next().is_some() {}
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::debug!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Ok(place) = places.clone().try_acquire_owned() else { continue };
        let tls = tls.borrow().clone();
        connections.spawn(serve(stream, tls, handshakes.clone(), desk.clone(), place));
    }
}

async fn serve(
    stream: TcpStream,
    tls: TlsAcceptor,
    handshakes: Arc<Semaphore>,
    desk: Arc<Desk>,
    _place: OwnedSemaphorePermit,
) {
    let _ = stream.set_nodelay(true);
    let handshake = timeout(HANDSHAKE_LIMIT, handshake(stream, tls, handshakes));
    let Ok(Some(stream)) = handshake.await else { return };
    let Some(caller) = caller(&stream, desk.hub.now().as_second()) else { return };
    // Left to the end of this task: an upgraded connection lives in it, not in one of its own.
    let (upgraded_in, mut upgraded) = tokio::sync::mpsc::channel(1);
    let service = service_fn(|request| {
        let (desk, caller, upgraded) = (desk.clone(), caller.clone(), upgraded_in.clone());
        async move { Ok::<_, Infallible>(answer(&desk, &caller, request, upgraded).await) }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_LIMIT)
        .max_buf_size(16 * 1024)
        .serve_connection(TokioIo::new(Stalling::new(stream, STALL_LIMIT)), service)
        .with_upgrades();
    if connection.await.is_err() {
        return;
    }
    if let (Ok(upgrading), Caller::Known(party, credential)) = (upgraded.try_recv(), caller) {
        socket::session(&desk.hub, party, credential, upgrading).await;
    }
}

async fn handshake(stream: TcpStream, tls: TlsAcceptor, places: Arc<Semaphore>) -> Option<TlsStream<TcpStream>> {
    // Who says nothing takes no place from those who do. Only a byte that is there proves it: a socket may be called readable
    // when it is not.
    if stream.peek(&mut [0]).await.ok()? == 0 {
        return None;
    }
    let _place = places.acquire().await.ok()?;
    timeout(PLACE_LIMIT, tls.accept(stream)).await.ok()?.ok()
}

/// Who the certificate of a connection is for; none if it is for nobody, or its time is over. Sessions that are resumed bring the
/// certificate of the first one.
fn caller(stream: &TlsStream<TcpStream>, now: i64) -> Option<Caller> {
    let Some(certificate) = stream.get_ref().1.peer_certificates().and_then(<[_]>::first) else {
        return Some(Caller::Nobody);
    };
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let subject = parsed.subject();
    let name = subject.iter_common_name().last()?.as_str().ok()?;
    let organizations: Vec<&str> = subject.iter_organization().filter_map(|value| value.as_str().ok()).collect();
    let credential = Credential {
        key: hex::encode(&parsed.public_key().subject_public_key.data),
        from: parsed.validity().not_before.timestamp(),
        until: parsed.validity().not_after.timestamp(),
    };
    let party = Party::of(name, &organizations).filter(|_| now <= credential.until)?;
    Some(Caller::Known(party, credential))
}

async fn answer(
    desk: &Desk,
    caller: &Caller,
    request: Request<Incoming>,
    upgraded: tokio::sync::mpsc::Sender<hyper::upgrade::OnUpgrade>,
) -> Response<Body> {
    let path = request.uri().path();
    let (party, credential) = match (caller, request.method(), path) {
        (_, &Method::POST, ENROL_PATH) => return enrol::answer(&desk.hub, &desk.enrolments, None, request).await,
        (Caller::Nobody, ..) => return plain(StatusCode::UNAUTHORIZED, "this needs a certificate"),
        (Caller::Known(party, credential), ..) => (party, credential),
    };
    match (request.method(), path) {
        (&Method::GET, "/v1/connect") => socket::upgrade(request, &upgraded),
        (&Method::POST, "/v1/poll") => poll::answer(&desk.hub, &desk.polls, (party, credential), request).await,
        (&Method::POST, RENEW_PATH) => {
            enrol::answer(&desk.hub, &desk.enrolments, Some((party, credential)), request).await
        }
        (&Method::GET | &Method::HEAD, _) if path.starts_with(depot::PATH) => {
            depot::answer(desk, (party, credential), &request).await
        }
        (&Method::GET, _) if path.starts_with(ROOT_PATH) => depot::root(desk, path).await,
        _ => plain(StatusCode::NOT_FOUND, "there is nothing here"),
    }
}

/// An answer in words.
fn plain(status: StatusCode, text: impl Into<String>) -> Response<Body> {
    let mut response = Response::new(full(text.into()));
    *response.status_mut() = status;
    response
}

fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed()
}

#[cfg(test)]
mod tests;
