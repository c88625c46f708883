//! A small HTTP endpoint beside a manager: `/healthz`, `/readyz`, `/metrics`, `/debug/traces` and profiles.
//!
//! It speaks plain HTTP and asks nobody who they are: bind it to loopback, or to a network that only probes and Prometheus reach.

mod answer;
#[cfg(feature = "cpu-profile")]
mod cpu;
#[cfg(feature = "heap-profile")]
mod heap;
mod process;
mod profile;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

#[cfg(feature = "cpu-profile")]
pub use cpu::cpu_profile;
#[cfg(feature = "heap-profile")]
pub use heap::{ProfiledAllocator, heap_profile};
pub use process::process_figures;
pub use profile::{CpuFormat, Profiles};

use crate::manager::{Lifecycle, Manager, RunError, Runnable};

/// Connections at once. Probes and Prometheus need a handful; more wait.
const CONNECTIONS_MAX: usize = 64;
/// How long a client may take to say what it wants.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves what is known of a manager. A part of it like any other, but one that a standby runs too.
///
/// ```no_run
/// # async fn doc(manager: setpoint_runtime::manager::Manager) -> Result<(), Box<dyn std::error::Error>> {
/// use setpoint_runtime::probes::{Probes, Profiles};
///
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:8081").await?;
/// manager.add(Probes::new(listener, &manager, Profiles::default()))?;
/// # Ok(())
/// # }
/// ```
pub struct Probes {
    listener: TcpListener,
    site: Arc<Site>,
}

/// What is known of a manager, by path: for programs that have a server of their own to show it on.
#[derive(Clone)]
pub struct Site {
    manager: Manager,
    profiles: Profiles,
    /// Whether nobody else tells what the process uses.
    tells_process: bool,
}

impl Site {
    /// The manager's checks, figures and traces, and the profiles that the program can take.
    pub fn new(manager: &Manager, profiles: Profiles) -> Site {
        Site { manager: manager.clone(), profiles, tells_process: false }
    }
}

impl Probes {
    /// Serves the manager's checks, figures and traces, and the profiles that the program can take. What the process uses is told with
    /// the figures.
    pub fn new(listener: TcpListener, manager: &Manager, profiles: Profiles) -> Probes {
        let site = Site { tells_process: true, ..Site::new(manager, profiles) };
        Probes { listener, site: Arc::new(site) }
    }
}

impl Runnable for Probes {
    fn name(&self) -> &str {
        "probes"
    }

    fn needs_leadership(&self) -> bool {
        false
    }

    fn run(self: Box<Self>, lifecycle: Lifecycle) -> BoxFuture<'static, Result<(), RunError>> {
        Box::pin(async move {
            lifecycle.ready();
            let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
            let mut connections = JoinSet::new();
            loop {
                let accept = async {
                    let place = Arc::clone(&places).acquire_owned().await;
                    (self.listener.accept().await, place)
                };
                tokio::select! {
                    biased;
                    () = lifecycle.draining() => break,
                    Some(_) = connections.join_next() => (),
                    (accepted, place) = accept => match accepted {
                        Ok((stream, _)) => {
                            let site = Arc::clone(&self.site);
                            connections.spawn(async move {
                                serve(stream, site).await;
                                drop(place);
                            });
                        }
                        // Out of files, most likely: the next one may fare better, after a while.
                        Err(error) => {
                            tracing::warn!(%error, "a connection could not be taken");
                            tokio::time::sleep(Duration::from_millis(100)).await;
                        }
                    },
                }
            }
            connections.shutdown().await;
            Ok(())
        })
    }
}

async fn serve(stream: TcpStream, site: Arc<Site>) {
    let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
        let site = Arc::clone(&site);
        async move { Ok::<_, Infallible>(site.answer(request.method(), request.uri()).await.map(Full::new)) }
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    if let Err(error) = server.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(%error, "a connection ended early");
    }
}
