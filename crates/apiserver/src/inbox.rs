//! Bodies of requests that are still on their way.
//!
//! A body is taken in before its request gets a place in the flow of requests: who sends it slowly, or not at all, holds up nobody
//! else. What is taken in so has bounds of its own, in time and in memory; where memory is short, the rest is read in the request's
//! place, as if there were no inbox.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::Method;
use http_body_util::{BodyExt, BodyStream, StreamBody};
use hyper::body::Frame;
use setpoint_api::Status;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::body::{Body, full};
use crate::content::{BODY_BYTES_MAX, Pieces};
use crate::path::ResourcePath;

/// Longest wait for a body. Same as kube-apiserver's limit for requests that end by themselves.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Memory for the bodies of all requests that wait for their rest or for their turn: some eighty of the largest, some hundred
/// thousand of the usual ones.
const BYTES_MAX: usize = 256 * 1024 * 1024;

/// Where bodies are gathered.
pub(crate) struct Inbox {
    room: Arc<Semaphore>,
}

/// A body that is there, and the room that it takes.
pub(crate) struct Received {
    pub(crate) body: Body,
    _room: Option<OwnedSemaphorePermit>,
}

impl Received {
    /// A body that nobody has to wait for.
    pub(crate) fn at_hand(body: Body) -> Received {
        Received { body, _room: None }
    }
}

impl Default for Inbox {
    fn default() -> Inbox {
        Inbox { room: Arc::new(Semaphore::new(BYTES_MAX)) }
    }
}

impl Inbox {
    /// Takes in the body of a request, or leaves it be where none is expected or it goes on for as long as the connection.
    pub(crate) async fn take(
        &self,
        method: &Method,
        path: &ResourcePath<'_>,
        body: Body,
    ) -> Result<Received, Box<Status>> {
        let has_body = matches!(*method, Method::POST | Method::PUT | Method::PATCH | Method::DELETE);
        let is_stream = matches!(path.subresource, Some("attach" | "exec" | "portforward" | "proxy"));
        if !has_body || is_stream {
            return Ok(Received::at_hand(body));
        }
        in_time(self.gather(body)).await
    }

    async fn gather(&self, mut body: Body) -> Result<Received, Box<Status>> {
        let mut pieces = Pieces::default();
        let mut room: Option<OwnedSemaphorePermit> = None;
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|error| unreadable(&error))?.into_data() else { continue };
            let taken = self.make_room(&data);
            pieces.push(data);
            match (&mut room, taken) {
                (_, None) => return Ok(Received { body: begun(pieces.join(), body), _room: room }),
                (Some(room), Some(taken)) => room.merge(taken),
                (None, taken) => room = taken,
            }
            // Who reads the object refuses it, after what comes before that.
            if pieces.len() > BODY_BYTES_MAX {
                break;
            }
        }
        Ok(Received { body: full(pieces.join()), _room: room })
    }

    fn make_room(&self, data: &Bytes) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.room).try_acquire_many_owned(u32::try_from(data.len()).ok()?).ok()
    }
}

/// A body of which the beginning is there.
fn begun(first: Bytes, rest: Body) -> Body {
    let first = stream::iter([Ok(Frame::data(first))]);
    StreamBody::new(first.chain(BodyStream::new(rest))).boxed_unsync()
}

/// What comes of reading a body, unless it takes too long.
pub(crate) async fn in_time<T>(reading: impl Future<Output = Result<T, Box<Status>>>) -> Result<T, Box<Status>> {
    match tokio::time::timeout(WAIT_MAX, reading).await {
        Ok(read) => read,
        Err(_) => Err(Box::new(Status::timeout("request did not complete within the allotted timeout", 0))),
    }
}

pub(crate) fn unreadable(error: &crate::body::BoxError) -> Box<Status> {
    Box::new(Status::bad_request(format!("the body could not be read: {error}")))
}

#[cfg(test)]
mod tests;
