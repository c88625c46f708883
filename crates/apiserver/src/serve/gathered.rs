//! What an HTTP/2 connection has to say, gathered before it is encrypted and sent.
//!
//! The protocol's implementation flushes after every frame of more than a few hundred bytes. With a hundred watches on one
//! connection that is a TLS record and a system call for each event of each watch. Here frames are gathered instead, and
//! whoever drives the connection sends them when it has nothing more to say.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Gathered at most, and one frame: four full TLS records in one system call.
const GATHERED_BYTES: usize = 64 * 1024;

/// With this much gathered, nothing is won by waiting for more: it fills a TLS record.
const RECORD_BYTES: usize = 16 * 1024;

/// A buffer of this size is kept for the next answer; larger ones are given back once they are sent.
const KEPT_BYTES: usize = 4 * 1024;

/// A stream whose flush is left to [`Gathered::poll_send`].
pub(super) struct Gathered<S>(Arc<Mutex<Inner<S>>>);

struct Inner<S> {
    stream: S,
    waiting: Vec<u8>,
    /// How much of it is sent.
    sent: usize,
    /// Writes since the last time that it was sent.
    writes: usize,
    /// Writes by the time that others were given a turn.
    turn_given_at: Option<usize>,
    /// Whether there was more to send after others had their turn.
    crowded: bool,
}

impl<S> Clone for Gathered<S> {
    fn clone(&self) -> Self {
        Gathered(Arc::clone(&self.0))
    }
}

impl<S: AsyncWrite + Unpin> Gathered<S> {
    pub(super) fn new(stream: S) -> Gathered<S> {
        Gathered(Arc::new(Mutex::new(Inner::new(stream))))
    }

    /// Sends what was gathered; where that has paid before, after the tasks that are ready had a turn to add to it. The
    /// runtime likes to run a connection right after the first of its hundred watches has written to it.
    ///
    /// Pending as long as the peer doesn't take it.
    pub(super) fn poll_send(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut inner = self.inner();
        if inner.gives_turn() {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        inner.poll_send(context)
    }

    /// Only ever held for one step of one task.
    fn inner(&self) -> MutexGuard<'_, Inner<S>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: AsyncWrite + Unpin> Inner<S> {
    fn new(stream: S) -> Inner<S> {
        Inner { stream, waiting: Vec::new(), sent: 0, writes: 0, turn_given_at: None, crowded: false }
    }

    fn gives_turn(&mut self) -> bool {
        let gathers = self.sent == 0 && (1..RECORD_BYTES).contains(&self.waiting.len());
        let gives = gathers && self.crowded && self.turn_given_at.is_none();
        if gives {
            self.turn_given_at = Some(self.writes);
        }
        gives
    }

    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.waiting.is_empty() {
            return Poll::Ready(Ok(()));
        }
        while self.sent < self.waiting.len() {
            match ready!(Pin::new(&mut self.stream).poll_write(context, &self.waiting[self.sent..]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => self.sent += count,
            }
        }
        self.crowded = self.writes > self.turn_given_at.take().unwrap_or(1);
        (self.sent, self.writes) = (0, 0);
        self.waiting.clear();
        if self.waiting.capacity() > KEPT_BYTES {
            self.waiting = Vec::new();
        }
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.waiting.len() < GATHERED_BYTES { Poll::Ready(Ok(())) } else { self.poll_send(context) }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Gathered<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Pin::new(&mut inner.stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Gathered<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let mut inner = self.inner();
        ready!(inner.poll_room(context))?;
        inner.writes += 1;
        inner.waiting.extend_from_slice(data);
        Poll::Ready(Ok(data.len()))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut inner = self.inner();
        ready!(inner.poll_room(context))?;
        inner.writes += 1;
        inner.waiting.reserve(parts.iter().map(|part| part.len()).sum());
        parts.iter().for_each(|part| inner.waiting.extend_from_slice(part));
        Poll::Ready(Ok(parts.iter().map(|part| part.len()).sum()))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Not now: the driver of the connection sends.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut inner = self.inner();
        ready!(inner.poll_send(context))?;
        Pin::new(&mut inner.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Waker;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn nothing_is_sent_before_the_driver_says_so() {
        let (mut peer, stream) = tokio::io::duplex(1024);
        let mut gathered = Gathered::new(stream);
        gathered.write_all(b"one ").await.unwrap();
        gathered.flush().await.unwrap();
        gathered.write_all(b"two").await.unwrap();
        let mut seen = [0; 16];
        let mut context = Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut peer).poll_read(&mut context, &mut ReadBuf::new(&mut seen)).is_pending());
        poll_fn(|context| gathered.poll_send(context)).await.unwrap();
        let count = peer.read(&mut seen).await.unwrap();
        assert_eq!(&seen[..count], b"one two");
    }

    #[tokio::test]
    async fn others_have_a_turn_as_long_as_they_add_something() {
        let (_peer, stream) = tokio::io::duplex(1024);
        let mut gathered = Gathered::new(stream);
        let is_sent = |gathered: &Gathered<_>| gathered.poll_send(&mut Context::from_waker(Waker::noop())).is_ready();
        gathered.write_all(b"alone").await.unwrap();
        assert!(is_sent(&gathered));
        for word in [b"one", b"two"] {
            gathered.write_all(word).await.unwrap();
        }
        assert!(is_sent(&gathered), "nobody was known to add something");
        gathered.write_all(b"three").await.unwrap();
        assert!(!is_sent(&gathered));
        gathered.write_all(b"four").await.unwrap();
        assert!(is_sent(&gathered));
        gathered.write_all(b"five").await.unwrap();
        assert!(!is_sent(&gathered));
        assert!(is_sent(&gathered), "one turn is enough");
        gathered.write_all(b"six").await.unwrap();
        assert!(is_sent(&gathered), "the others had nothing to add");
    }

    #[tokio::test]
    async fn a_peer_that_does_not_read_holds_the_writer_up() {
        let (mut peer, stream) = tokio::io::duplex(16);
        let mut gathered = Gathered::new(stream);
        let mut writer = gathered.clone();
        let frame = vec![7; 16 * 1024];
        let mut taken = 0;
        let full = poll_fn(|context| {
            while let Poll::Ready(count) = Pin::new(&mut gathered).poll_write(context, &frame) {
                taken += count.unwrap();
                assert!(taken <= GATHERED_BYTES + frame.len());
            }
            Poll::Ready(taken)
        });
        let taken = full.await;
        assert!(taken >= GATHERED_BYTES);
        let sent = tokio::spawn(async move { writer.shutdown().await });
        let mut seen = Vec::new();
        peer.read_to_end(&mut seen).await.unwrap();
        sent.await.unwrap().unwrap();
        assert_eq!(seen.len(), taken);
    }
}
