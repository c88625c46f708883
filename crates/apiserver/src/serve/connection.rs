//! One connection: its handshake, its protocol, its end.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use hyper::rt::Executor;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::net::sockopt;
use rustls::pki_types::CertificateDer;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::task::TaskTracker;

use super::caller::Caller;
use super::gathered::Gathered;
use super::requests::Requests;
use super::tls::Present;
use super::{LAST_HANDSHAKE, Limits, Tls, stopped};
use crate::body::Body;

/// Most bytes of a request's header: the longest address that the `http` crate holds (64 KiB) and as much again. Over it
/// the answer is 431. On HTTP/1.1 this is also the read buffer, which starts small.
const HEADER_BYTES_MAX: usize = 128 * 1024;

/// Requests in flight on one HTTP/2 connection, as kube-apiserver allows where it is asked to.
const STREAMS_MAX: u32 = 250;

/// Streams that a client opened and reset before we looked at them; more end the connection (rapid reset, CVE-2023-44487).
const PENDING_RESETS_MAX: usize = 100;

/// Streams that we reset because of the client's errors; more end the connection (CVE-2025-8671).
const ERROR_RESETS_MAX: usize = 512;

/// What a client may send ahead on one stream: most bodies arrive without waiting for a window update.
const STREAM_WINDOW: u32 = 1024 * 1024;

/// What a client may send ahead on all streams of a connection: so much can it make us hold.
const CONNECTION_WINDOW: u32 = 8 * 1024 * 1024;

/// How often a connection is asked whether its peer lives, and how long it may take to say so: a watch of a peer that
/// vanished without a word is gone within a minute.
const PING: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(15));

/// The same for peers of HTTP/1.1, which has no ping: idle time before the kernel asks, time between questions, how many.
const KEEP_ALIVE: (Duration, Duration, u32) = (Duration::from_secs(30), Duration::from_secs(10), 3);

/// How long a peer may leave what we sent without taking it: one that asks for much and never reads holds the answer in
/// our memory for no longer.
const UNTAKEN_MAX: Duration = Duration::from_secs(60);

/// What all connections of a server share.
pub(super) struct Connections {
    tls: Tls,
    limits: Limits,
    http1: http1::Builder,
    http2: http2::Builder<Tasks>,
}

impl Connections {
    pub(super) fn new(tls: Tls, limits: Limits, tasks: TaskTracker) -> Connections {
        let mut http1 = http1::Builder::new();
        // The number of headers stays at hyper's 100, which it parses without an allocation.
        http1.timer(TokioTimer::new()).header_read_timeout(limits.header).max_buf_size(HEADER_BYTES_MAX);
        let mut http2 = http2::Builder::new(Tasks(tasks));
        http2
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS_MAX)
            .max_pending_accept_reset_streams(PENDING_RESETS_MAX)
            .max_local_error_reset_streams(ERROR_RESETS_MAX)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_header_list_size(HEADER_BYTES_MAX as u32)
            .keep_alive_interval(PING.0)
            .keep_alive_timeout(PING.1);
        Connections { tls, limits, http1, http2 }
    }

    /// Serves one connection to its end. What goes wrong on it concerns only its client, so it is logged low.
    pub(super) async fn run<S>(
        &self,
        stream: TcpStream,
        address: SocketAddr,
        service: S,
        mut stop: watch::Receiver<bool>,
    ) where
        S: tower::Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone + Send + 'static,
        S::Future: Send + 'static,
    {
        let mut following = self.tls.follow();
        let trust = Arc::clone(&following.borrow_and_update());
        let mut handshake = pin!(self.handshake(stream, &trust));
        let shaken = tokio::select! {
            biased;
            shaken = handshake.as_mut() => shaken,
            () = stopped(&mut stop) => match timeout(LAST_HANDSHAKE, handshake).await {
                Ok(shaken) => shaken,
                Err(_) => return,
            },
        };
        let stream = match shaken {
            Ok(stream) => stream,
            Err(error) => return tracing::debug!(%address, %error, "TLS handshake failed"),
        };
        let (_, session) = stream.get_ref();
        let is_http2 = session.alpn_protocol() == Some(b"h2");
        let begun = Arc::new(AtomicBool::new(false));
        let certificates = session.peer_certificates().map(<[_]>::to_vec).unwrap_or_default();
        let caller = Caller::of(&certificates, &trust);
        let let_in = matches!(caller, Caller::Known { .. }).then_some(certificates);
        let untrusted = pin!(untrusted(let_in, following));
        let requests = Requests { service, caller, address, begun: Arc::clone(&begun) };
        let serving = async {
            if is_http2 {
                let output = Gathered::new(stream);
                let connection = self.http2.serve_connection(TokioIo::new(output.clone()), requests);
                let send = |context: &mut Context<'_>| output.poll_send(context);
                self.drive(connection, |connection| connection.graceful_shutdown(), send, &begun, stop).await
            } else {
                let connection = self.http1.serve_connection(TokioIo::new(stream), requests).with_upgrades();
                let sent = |_: &mut Context<'_>| Poll::Ready(Ok(()));
                self.drive(connection, |connection| connection.graceful_shutdown(), sent, &begun, stop).await
            }
        };
        let ended = tokio::select! {
            biased;
            () = untrusted => return tracing::info!(%address, "closed: the authority of its client certificate is not trusted any more"),
            ended = serving => ended,
        };
        if let Err(error) = ended {
            tracing::debug!(%address, %error, "connection ended early");
        }
    }

    async fn handshake(&self, stream: TcpStream, trust: &Present) -> io::Result<TlsStream<TcpStream>> {
        set_up(&stream)?;
        let acceptor = TlsAcceptor::from(Arc::clone(&trust.config));
        timeout(self.limits.handshake, acceptor.accept(stream)).await?
    }

    /// Runs a connection until it ends, or until the server stops and the grace time is over. After each of its steps
    /// `send` sends what it has gathered.
    async fn drive<C: Future<Output = hyper::Result<()>>>(
        &self,
        connection: C,
        finish: fn(Pin<&mut C>),
        send: impl Fn(&mut Context<'_>) -> Poll<io::Result<()>>,
        begun: &AtomicBool,
        mut stop: watch::Receiver<bool>,
    ) -> hyper::Result<()> {
        let mut connection = pin!(connection);
        let mut stop = pin!(stopped(&mut stop));
        // HTTP/2 has no header timeout of its own: a client that says nothing after the handshake would stay for ever.
        let mut first_request = pin!(sleep(self.limits.header));
        let mut silent = true;
        loop {
            tokio::select! {
                biased;
                ended = step_by_step(connection.as_mut(), &send) => return ended,
                () = stop.as_mut() => break,
                () = first_request.as_mut(), if silent => match begun.load(Ordering::Relaxed) {
                    true => silent = false,
                    false => return Ok(()),
                },
            }
        }
        finish(connection.as_mut());
        timeout(self.limits.grace, step_by_step(connection, &send)).await.unwrap_or(Ok(()))
    }
}

/// Returns once the certificate with which a caller was let in counts no more.
async fn untrusted(caller: Option<Vec<CertificateDer<'static>>>, mut following: watch::Receiver<Arc<Present>>) {
    let Some(certificates) = caller else { return std::future::pending().await };
    while following.changed().await.is_ok() {
        let trust = Arc::clone(&following.borrow_and_update());
        if Caller::is_gone(&certificates, &trust) {
            return;
        }
    }
    std::future::pending().await
}

/// A connection to its end, with what it has gathered sent after each of its steps.
async fn step_by_step<C: Future<Output = hyper::Result<()>>>(
    mut connection: Pin<&mut C>,
    send: impl Fn(&mut Context<'_>) -> Poll<io::Result<()>>,
) -> hyper::Result<()> {
    poll_fn(|context| {
        let ended = connection.as_mut().poll(context);
        match send(context) {
            // Nobody takes it any more, so nobody waits for the rest either.
            Poll::Ready(Err(_)) if ended.is_pending() => Poll::Ready(Ok(())),
            _ => ended,
        }
    })
    .await
}

fn set_up(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?; // Answers are whole when they are written: waiting to fill a packet only delays them.
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEP_ALIVE.0)?;
    sockopt::set_tcp_keepintvl(stream, KEEP_ALIVE.1)?;
    sockopt::set_tcp_keepcnt(stream, KEEP_ALIVE.2)?;
    sockopt::set_tcp_user_timeout(stream, UNTAKEN_MAX.as_millis() as u32)?;
    Ok(())
}

/// Runs the requests of HTTP/2 connections, so that the server can wait for them all.
#[derive(Clone)]
struct Tasks(TaskTracker);

impl<F> Executor<F> for Tasks
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, request: F) {
        self.0.spawn(request);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_kernel_notices_peers_that_are_gone_or_do_not_read() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        set_up(&stream).unwrap();
        assert!(stream.nodelay().unwrap());
        assert!(sockopt::socket_keepalive(&stream).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&stream).unwrap(), KEEP_ALIVE.0);
        assert_eq!(u128::from(sockopt::tcp_user_timeout(&stream).unwrap()), UNTAKEN_MAX.as_millis());
    }
}
