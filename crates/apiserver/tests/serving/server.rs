//! The server under test, and a service that tells what it was given.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use setpoint_apiserver::body::{Body, full};
use setpoint_apiserver::serve::{Limits, RemoteAddress, Tls, serve};
use setpoint_apiserver::user::{RefusedCertificate, User};
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

/// No test waits longer than this for anything.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A certificate with its key.
pub type Pair = (CertificateDer<'static>, PrivateKeyDer<'static>);

/// A certificate authority of a test.
pub struct Authority {
    pub certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub fn new() -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap().der().clone();
        Authority { certificate, issuer: Issuer::new(params, key) }
    }

    pub fn issue(&self, params: &CertificateParams) -> Pair {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.der().clone(), PrivateKeyDer::try_from(key.serialize_der()).unwrap())
    }

    /// A certificate of `fleet-bot` in two groups.
    pub fn client(&self) -> Pair {
        self.issue(&client_params())
    }

    /// One that ends at a time before or after now.
    pub fn client_until(&self, not_after: SystemTime) -> Pair {
        let since_epoch = not_after.duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let mut params = client_params();
        params.not_after = rcgen::date_time_ymd(1970, 1, 1) + since_epoch;
        self.issue(&params)
    }
}

pub fn client_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "drivers");
    params.distinguished_name.push(DnType::CommonName, "fleet-bot");
    params
}

pub struct Server {
    pub address: SocketAddr,
    pub authority: Authority,
    pub gate: Arc<Gate>,
    /// How its connections are secured, for a change.
    pub tls: Tls,
    stop: watch::Sender<bool>,
    serving: JoinHandle<()>,
}

impl Server {
    pub async fn start() -> Server {
        Server::with(Limits::default()).await
    }

    pub async fn with(limits: Limits) -> Server {
        let authority = Authority::new();
        let (certificate, key) = authority.issue(&CertificateParams::new(["localhost".to_owned()]).unwrap());
        let tls = Tls::new(vec![certificate], key, vec![authority.certificate.clone()]).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopping) = watch::channel(false);
        let gate = Arc::new(Gate::default());
        let inner = Arc::clone(&gate);
        let service = tower::service_fn(move |request| answer(request, Arc::clone(&inner)));
        let serving = tokio::spawn(serve(listener, tls.clone(), service, limits, stopping));
        Server { address, authority, gate, tls, stop, serving }
    }

    /// Tells it to stop, without waiting.
    pub fn begin_stop(&self) {
        self.stop.send_replace(true);
    }

    /// Stops it and waits until every task is gone.
    pub async fn stop(self) {
        self.begin_stop();
        tokio::time::timeout(PATIENCE, self.serving).await.expect("it does not end").expect("it panicked");
    }
}

/// Holds requests to `/hold` until the test lets them go.
#[derive(Default)]
pub struct Gate {
    pub arrived: Notify,
    pub open: Notify,
}

async fn answer(request: Request<Body>, gate: Arc<Gate>) -> Result<Response<Body>, Infallible> {
    Ok(match request.uri().path() {
        "/hold" => {
            gate.arrived.notify_one();
            gate.open.notified().await;
            Response::new(full("held"))
        }
        "/echo" => Response::new(request.into_body()),
        "/upgrade" => upgrade(request),
        _ => Response::new(full(who(&request))),
    })
}

fn who(request: &Request<Body>) -> String {
    let extensions = request.extensions();
    let user = match (User::of(extensions), extensions.get::<RefusedCertificate>()) {
        (Some(user), None) => format!("{} of {} uid {:?}", user.name, user.groups.join("+"), user.uid),
        (None, Some(_)) => "refused".into(),
        (None, None) => "nobody".into(),
        (Some(_), Some(_)) => "both known and refused".into(),
    };
    let from = extensions.get::<RemoteAddress>().map(|address| address.0.to_string()).unwrap_or_default();
    format!("{:?} {user} from {from}", request.version())
}

fn upgrade(mut request: Request<Body>) -> Response<Body> {
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let mut stream = TokioIo::new(upgraded.await.unwrap());
        let mut ping = [0; 4];
        tokio::io::AsyncReadExt::read_exact(&mut stream, &mut ping).await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut stream, &ping).await.unwrap();
        tokio::io::AsyncWriteExt::flush(&mut stream).await.unwrap();
    });
    let mut response = Response::new(http_body_util::Empty::new().map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().insert("connection", http::HeaderValue::from_static("upgrade"));
    response.headers_mut().insert("upgrade", http::HeaderValue::from_static("echo"));
    response
}
