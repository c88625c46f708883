//! The way of a request from a connection to the service: what is known of the connection goes with it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::FutureExt;
use futures_util::future::Either;
use http::{Extensions, Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Body as _, Incoming};
use tokio::time::Instant;
use tower::ServiceExt;
use tower::util::Oneshot;

use super::caller::Caller;
use super::unread::{Unread, lend};
use crate::body::Body;
use crate::user::RefusedCertificate;

/// Where a request came from, in its extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteAddress(pub SocketAddr);

/// One connection's requests on their way to the service.
#[derive(Clone)]
pub(super) struct Requests<S> {
    pub(super) service: S,
    pub(super) caller: Caller,
    pub(super) address: SocketAddr,
    /// Set by the first request.
    pub(super) begun: Arc<AtomicBool>,
}

impl<S> Requests<S> {
    fn describe(&self, extensions: &mut Extensions) {
        extensions.insert(RemoteAddress(self.address));
        match &self.caller {
            Caller::Nobody => {}
            Caller::Refused => {
                extensions.insert(RefusedCertificate);
            }
            // Connections outlive certificates: an expired one stops counting at that moment, not at the next handshake.
            Caller::Known { until: Some(until), .. } if *until <= Instant::now() => {
                extensions.insert(RefusedCertificate);
            }
            Caller::Known { user, .. } => {
                extensions.insert(Arc::clone(user));
            }
        }
    }
}

impl<S> hyper::service::Service<Request<Incoming>> for Requests<S>
where
    S: tower::Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Either<Oneshot<S, Request<Body>>, Pin<Box<dyn Future<Output = Answered> + Send>>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        self.begun.store(true, Ordering::Relaxed);
        let (mut request, unread) = with_body(request);
        self.describe(request.extensions_mut());
        let answered = self.service.clone().oneshot(request);
        let Some(unread) = unread else { return Either::Left(answered) };
        Either::Right(Box::pin(answered.then(|response| unread.take_in().map(|()| response))))
    }
}

type Answered = Result<Response<Body>, Infallible>;

/// The body as it comes in, without a copy; one that is empty (every GET) costs no allocation.
fn with_body(request: Request<Incoming>) -> (Request<Body>, Option<Unread<Incoming>>) {
    if request.body().is_end_stream() {
        return (request.map(|_| Empty::new().map_err(|never| match never {}).boxed_unsync()), None);
    }
    let waits_to_be_asked = request.headers().contains_key(http::header::EXPECT);
    let (head, body) = request.into_parts();
    let (body, unread) = lend(body);
    (Request::from_parts(head, body.map_err(Into::into).boxed_unsync()), (!waits_to_be_asked).then_some(unread))
}
