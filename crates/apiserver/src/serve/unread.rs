//! What is left of a body when its request has been answered without it.
//!
//! A request is often refused before its body was looked at. To end the exchange there, HTTP/2 has to reset the stream and HTTP/1.1 to
//! close the connection, and clients that are still sending, curl among them, take that for a failure and never see the answer. So a
//! rest that is small and on its way is taken in first.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::{Body, Buf, Frame, SizeHint};
use tokio::time::timeout;

/// The largest rest that is taken in. Same as Go's servers, and so what clients of kube-apiserver are used to.
const BYTES_MAX: u64 = 256 * 1024;

/// How long an answer waits for a rest.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// A body that is given back if it is dropped before its end.
pub(super) struct Lent<B: Body + Unpin> {
    body: Option<B>,
    unread: Arc<Mutex<Option<B>>>,
}

/// Where such a body is given back.
pub(super) struct Unread<B>(Arc<Mutex<Option<B>>>);

/// Lends a body to whoever answers its request.
pub(super) fn lend<B: Body + Unpin>(body: B) -> (Lent<B>, Unread<B>) {
    let unread = Arc::new(Mutex::new(None));
    (Lent { body: Some(body), unread: Arc::clone(&unread) }, Unread(unread))
}

impl<B: Body + Unpin> Unread<B> {
    /// Reads what was given back and forgets it.
    pub(super) async fn take_in(self) {
        let given_back = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut body) = given_back.filter(|body| body.size_hint().lower() <= BYTES_MAX) else { return };
        let reading = async {
            let mut read = 0;
            while let Some(Ok(frame)) = body.frame().await
                && read <= BYTES_MAX
            {
                read += frame.data_ref().map_or(0, |data| data.remaining() as u64);
            }
        };
        let _ = timeout(WAIT_MAX, reading).await;
    }
}

impl<B: Body + Unpin> Body for Lent<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        match &mut self.body {
            Some(body) => Pin::new(body).poll_frame(context),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map(Body::size_hint).unwrap_or_default()
    }
}

impl<B: Body + Unpin> Drop for Lent<B> {
    fn drop(&mut self) {
        if let Some(body) = self.body.take().filter(|body| !body.is_end_stream()) {
            *self.unread.lock().unwrap_or_else(PoisonError::into_inner) = Some(body);
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures_util::{StreamExt, stream};
    use http_body_util::StreamBody;
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// A body of `pieces` of 64 KiB, with a count of those that were read.
    fn body(pieces: usize, read: &Arc<AtomicUsize>) -> impl Body<Data = Bytes, Error = Infallible> + Unpin + use<> {
        let read = Arc::clone(read);
        StreamBody::new(stream::iter(0..pieces).map(move |_| {
            read.fetch_add(1, Ordering::Relaxed);
            Ok(Frame::data(Bytes::from(vec![0; 64 * 1024])))
        }))
    }

    #[tokio::test]
    async fn what_nobody_read_is_taken_in_up_to_a_bound() {
        for (pieces, looked_at, read_in_all) in [(3, 0, 3), (3, 1, 3), (3, 3, 3), (9, 0, 6)] {
            let read = Arc::new(AtomicUsize::new(0));
            let (mut lent, unread) = lend(body(pieces, &read));
            for _ in 0..looked_at {
                lent.frame().await.unwrap().unwrap();
            }
            drop(lent);
            unread.take_in().await;
            assert_eq!(read.load(Ordering::Relaxed), read_in_all, "{looked_at} of {pieces}");
        }
    }

    #[tokio::test]
    async fn a_body_that_is_still_in_use_is_left_alone() {
        let read = Arc::new(AtomicUsize::new(0));
        let (lent, unread) = lend(body(3, &read));
        unread.take_in().await;
        assert_eq!(read.load(Ordering::Relaxed), 0);
        drop(lent);
    }

    #[tokio::test(start_paused = true)]
    async fn a_rest_that_does_not_come_is_not_waited_for() {
        let (lent, unread) = lend(StreamBody::new(stream::pending::<Result<Frame<Bytes>, Infallible>>()));
        drop(lent);
        let begun = tokio::time::Instant::now();
        unread.take_in().await;
        assert_eq!(begun.elapsed(), WAIT_MAX);
    }
}
