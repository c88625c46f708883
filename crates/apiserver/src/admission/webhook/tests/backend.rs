//! A real HTTPS server on loopback that answers reviews, well or badly.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// An answer.
#[derive(Clone)]
pub(super) enum Reply {
    /// A review with this response, which gets the right uid.
    Review(Value),
    /// A code and a body.
    Raw(u16, String),
    /// To another place.
    Redirect(String),
    /// The end of the connection.
    Closed,
    /// None.
    Never,
}

/// A server for one test.
pub(super) struct Backend {
    pub(super) address: SocketAddr,
    /// The certificate to trust, as configurations have it.
    pub(super) ca_bundle: String,
    asked: Arc<Mutex<Vec<(String, Value)>>>,
    _serving: Arc<JoinSet<()>>,
}

impl Backend {
    pub(super) async fn start(answer: impl Fn(&Value) -> Reply + Send + Sync + 'static) -> Backend {
        let names = ["127.0.0.1", "hook.default.svc"].map(str::to_owned);
        let issued = rcgen::generate_simple_self_signed(names).unwrap();
        let key = PrivateKeyDer::try_from(issued.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![issued.cert.der().clone()], key)
            .unwrap();
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let mut serving = JoinSet::new();
        let answer: Arc<Answer> = Arc::new(answer);
        serving.spawn(serve(listener, TlsAcceptor::from(Arc::new(config)), answer, Arc::clone(&asked)));
        let ca_bundle = setpoint_schema::base64::encode(issued.cert.pem().as_bytes());
        Backend { address, ca_bundle, asked, _serving: Arc::new(serving) }
    }

    /// The paths and bodies of all requests so far.
    pub(super) fn asked(&self) -> Vec<(String, Value)> {
        self.asked.lock().unwrap().clone()
    }
}

type Answer = dyn Fn(&Value) -> Reply + Send + Sync;

async fn serve(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    answer: Arc<Answer>,
    asked: Arc<Mutex<Vec<(String, Value)>>>,
) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, answer, asked) = (acceptor.clone(), Arc::clone(&answer), Arc::clone(&asked));
        connections.spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let service = service_fn(|request: Request<Incoming>| reply(request, &*answer, &asked));
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn reply(
    request: Request<Incoming>,
    answer: &Answer,
    asked: &Mutex<Vec<(String, Value)>>,
) -> Result<Response<Full<Bytes>>, std::io::Error> {
    let path = request.uri().to_string();
    let body = request.into_body().collect().await.map_err(std::io::Error::other)?.to_bytes();
    let review: Value = serde_json::from_slice(&body).unwrap();
    asked.lock().unwrap().push((path, review.clone()));
    let reply = answer(&review);
    let plain = |code: u16, body: String| Response::builder().status(code).body(Full::from(body)).unwrap();
    Ok(match reply {
        Reply::Review(mut response) => {
            response["uid"] = review["request"]["uid"].clone();
            let answer = json!({"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response});
            plain(200, answer.to_string())
        }
        Reply::Raw(code, body) => plain(code, body),
        Reply::Redirect(to) => Response::builder().status(302).header("location", to).body(Full::default()).unwrap(),
        Reply::Closed => return Err(std::io::Error::other("closed")),
        Reply::Never => match std::future::pending::<Infallible>().await {},
    })
}
