//! A real HTTPS server on loopback that answers reviews, well or badly.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{Request, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rcgen::{CertificateParams, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::body::{Body, full};

/// An answer.
#[derive(Clone)]
pub(crate) enum Reply {
    /// A review with this response, which gets the right uid.
    Review(Value),
    /// A code and a body.
    Raw(u16, String),
    /// To another place, with this code.
    Redirect(u16, String),
    /// A body that comes in small pieces, with a second between them.
    Drip(String),
    /// The end of the connection.
    Closed,
    /// None.
    Never,
}

/// A server for one test.
pub(crate) struct Backend {
    pub(crate) address: SocketAddr,
    /// The certificate to trust, as configurations have it.
    pub(crate) ca_bundle: String,
    asked: Arc<Mutex<Vec<(String, Value)>>>,
    /// Tells connections to end, and counts those that are open.
    ending: watch::Sender<()>,
    open: watch::Receiver<usize>,
    _serving: Arc<JoinSet<()>>,
}

impl Backend {
    pub(crate) async fn start(answer: impl Fn(&Value) -> Reply + Send + Sync + 'static) -> Backend {
        Backend::start_as(&["127.0.0.1", "hook.default.svc"], |_| {}, answer).await
    }

    /// A server whose certificate has these names, and what `change` makes of it.
    pub(crate) async fn start_as(
        names: &[&str],
        change: impl FnOnce(&mut CertificateParams),
        answer: impl Fn(&Value) -> Reply + Send + Sync + 'static,
    ) -> Backend {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        change(&mut params);
        let pair = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&pair).unwrap();
        let key = PrivateKeyDer::try_from(pair.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let mut serving = JoinSet::new();
        let answer: Arc<Answer> = Arc::new(answer);
        let (ending, open) = (watch::Sender::new(()), watch::Sender::new(0));
        let server = Serving { answer, asked: Arc::clone(&asked), ending: ending.subscribe(), open };
        let counted = server.open.subscribe();
        serving.spawn(server.run(listener, TlsAcceptor::from(Arc::new(config))));
        let ca_bundle = setpoint_schema::base64::encode(certificate.pem().as_bytes());
        Backend { address, ca_bundle, asked, ending, open: counted, _serving: Arc::new(serving) }
    }

    /// Ends all connections that wait for a request, as a server does that is stopped or tired of waiting.
    pub(crate) async fn hang_up(&self) {
        self.ending.send_replace(());
        self.open.clone().wait_for(|open| *open == 0).await.unwrap();
    }

    /// How many requests there were so far.
    pub(crate) fn count(&self) -> usize {
        self.asked.lock().unwrap().len()
    }

    /// The body of one of them.
    pub(crate) fn body(&self, at: usize) -> Option<Value> {
        self.asked.lock().unwrap().get(at).map(|(_, body)| body.clone())
    }

    /// The paths and bodies of all requests so far.
    pub(crate) fn asked(&self) -> Vec<(String, Value)> {
        self.asked.lock().unwrap().clone()
    }
}

type Answer = dyn Fn(&Value) -> Reply + Send + Sync;

#[derive(Clone)]
struct Serving {
    answer: Arc<Answer>,
    asked: Arc<Mutex<Vec<(String, Value)>>>,
    ending: watch::Receiver<()>,
    open: watch::Sender<usize>,
}

impl Serving {
    async fn run(self, listener: TcpListener, acceptor: TlsAcceptor) {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, serving) = (acceptor.clone(), self.clone());
            connections.spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                serving.open.send_modify(|open| *open += 1);
                serving.serve(stream).await;
                serving.open.send_modify(|open| *open -= 1);
            });
        }
    }

    async fn serve(&self, stream: TlsStream<TcpStream>) {
        let mut ending = self.ending.clone();
        ending.mark_unchanged();
        let service = service_fn(|request: Request<Incoming>| reply(request, &*self.answer, &self.asked));
        let serving = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
        tokio::pin!(serving);
        tokio::select! {
            _ = &mut serving => {}
            _ = ending.changed() => {
                serving.as_mut().graceful_shutdown();
                let _ = serving.await;
            }
        }
    }
}

async fn reply(
    request: Request<Incoming>,
    answer: &Answer,
    asked: &Mutex<Vec<(String, Value)>>,
) -> Result<Response<Body>, std::io::Error> {
    let path = request.uri().to_string();
    let body = request.into_body().collect().await.map_err(std::io::Error::other)?.to_bytes();
    let review: Value = serde_json::from_slice(&body).unwrap();
    asked.lock().unwrap().push((path, review.clone()));
    let reply = answer(&review);
    let plain = |code: u16, body: String| Response::builder().status(code).body(full(body)).unwrap();
    Ok(match reply {
        Reply::Review(mut response) => {
            response["uid"] = review["request"]["uid"].clone();
            let answer = json!({"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response});
            plain(200, answer.to_string())
        }
        Reply::Raw(code, body) => plain(code, body),
        Reply::Redirect(code, to) => Response::builder().status(code).header("location", to).body(full("")).unwrap(),
        Reply::Drip(body) => {
            let pieces = body.into_bytes().chunks(16).map(Bytes::copy_from_slice).collect::<Vec<_>>();
            let slow = stream::iter(pieces).then(|piece| async {
                tokio::time::sleep(Duration::from_secs(1)).await;
                Ok::<_, Infallible>(Frame::data(piece))
            });
            Response::new(StreamBody::new(slow).map_err(|never| match never {}).boxed_unsync())
        }
        Reply::Closed => return Err(std::io::Error::other("closed")),
        Reply::Never => match std::future::pending::<Infallible>().await {},
    })
}
