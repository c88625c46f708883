//! The service behind TLS sockets: accepts connections, knows who is calling, and stops in order.
//!
//! Start at [`serve`]. What one connection does is in `connection`; how a request reaches the service in `requests`; who
//! a client certificate belongs to in `caller`.

mod caller;
mod connection;
mod gathered;
mod requests;
mod tls;
mod unread;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_util::task::TaskTracker;

pub use requests::RemoteAddress;
pub use tls::Tls;

use crate::body::Body;
use connection::Connections;

/// Most connections at a time. Each costs a file and, idle, some tens of KiB; a fleet of this size keeps one each.
pub const CONNECTIONS_MAX: usize = 10_000;

/// How long a TLS handshake may take: slow links need a few round trips, nobody needs longer.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a client may take to send the header of a request, as kube-apiserver allows. On HTTP/1.1 the wait for the
/// next request counts as well, so this also closes idle connections.
pub const HEADER_TIMEOUT: Duration = Duration::from_secs(32);

/// How long running requests may go on once the server stops: less than the ten seconds that container engines wait
/// before they kill.
pub const GRACE: Duration = Duration::from_secs(8);

/// Connections that may be in the queue of the kernel when the server stops: its usual bound.
const QUEUE_MAX: usize = 4096;

/// How long a handshake may go on that had begun when the server stopped: who is about to ask is answered, who is silent is not waited
/// for.
const LAST_HANDSHAKE: Duration = Duration::from_secs(1);

/// First pause after a failed accept, and the longest one: files run out for a while, not for ever.
const ACCEPT_PAUSE: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(1));

/// Bounds that a server may be given others of.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at a time; one more is closed at once.
    pub connections: usize,
    /// Time for a TLS handshake.
    pub handshake: Duration,
    /// Time for the header of a request.
    pub header: Duration,
    /// Time for running requests after the stop.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { connections: CONNECTIONS_MAX, handshake: HANDSHAKE_TIMEOUT, header: HEADER_TIMEOUT, grace: GRACE }
    }
}

/// Serves until `stop` becomes true or its sender is gone.
///
/// Then it accepts no more but who is in the queue already, asks every connection to end after the requests that it has, waits up to the grace time, drops
/// what is left, and returns when every task is gone. Requests that have no end of their own, such as watches, must be
/// ended by the service.
pub async fn serve<S>(listener: TcpListener, tls: Tls, service: S, limits: Limits, mut stop: watch::Receiver<bool>)
where
    S: tower::Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Send + 'static,
{
    let tasks = TaskTracker::new();
    let connections = Arc::new(Connections::new(tls, limits, tasks.clone()));
    let mut door = Door { room: Arc::new(Semaphore::new(limits.connections)), full: false, pause: ACCEPT_PAUSE.0 };
    let mut queued = QUEUE_MAX;
    loop {
        let accepted = tokio::select! {
            biased;
            // Who is in the queue of the kernel was let in already: closed now, a client would see a lost answer, not a closed door.
            () = stopped(&mut stop) => match listener.accept().now_or_never() {
                Some(accepted @ Ok(_)) if queued > 0 => {
                    queued -= 1;
                    accepted
                }
                _ => break,
            },
            accepted = listener.accept() => accepted,
        };
        let Some((stream, address, permit)) = door.admit(accepted).await else { continue };
        let (connections, service, stop) = (Arc::clone(&connections), service.clone(), stop.clone());
        tasks.spawn(async move {
            connections.run(stream, address, service, stop).await;
            drop(permit);
        });
    }
    drop(listener);
    tasks.close();
    tasks.wait().await;
}

/// Returns once the server has to stop.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that the sender is gone, and with it whoever could ever stop the server in order.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Decides which accepted connections are served.
struct Door {
    room: Arc<Semaphore>,
    /// Whether the last one was turned away, so that a flood leaves one line in the log.
    full: bool,
    pause: Duration,
}

impl Door {
    async fn admit(
        &mut self,
        accepted: io::Result<(TcpStream, SocketAddr)>,
    ) -> Option<(TcpStream, SocketAddr, tokio::sync::OwnedSemaphorePermit)> {
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                self.failed(&error).await;
                return None;
            }
        };
        self.pause = ACCEPT_PAUSE.0;
        let permit = Arc::clone(&self.room).try_acquire_owned().ok();
        if permit.is_none() && !self.full {
            tracing::warn!(%address, "no room for more connections; new ones are closed until others end");
        }
        self.full = permit.is_none();
        Some((stream, address, permit?))
    }

    async fn failed(&mut self, error: &io::Error) {
        use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
        if matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted) {
            return; // That one connection ended before we took it.
        }
        tracing::warn!(%error, pause = ?self.pause, "can't accept connections; trying again after a pause");
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(ACCEPT_PAUSE.1);
    }
}
