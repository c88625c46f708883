//! The way in for clients in the same process: no socket, no TLS, and an identity of their own.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;

use crate::ApiServer;
use crate::body::{Body, BoxError};
use crate::user::{InProcess, User};

/// The service as one user sees it. `kube::Client::new(server.acting_as(user), "default")` is a client on it.
///
/// Every request is that user's, whatever it carries: who holds it can't be anybody else.
#[derive(Clone)]
pub struct Local {
    server: ApiServer,
    user: Arc<User>,
}

impl ApiServer {
    /// The service for a client in this process.
    pub fn acting_as(&self, user: User) -> Local {
        Local { server: self.clone(), user: Arc::new(user) }
    }
}

impl<B> tower::Service<Request<B>> for Local
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let mut request = request.map(|body| body.map_err(Into::into).boxed_unsync());
        request.extensions_mut().insert(Arc::clone(&self.user));
        request.extensions_mut().insert(InProcess);
        self.server.call(request)
    }
}
