//! Lets the leader write, and nobody who only thinks to be it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use http::{HeaderName, HeaderValue, Method, Response};
use kube::Client;
use kube::client::Body;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use tower::{BoxError, Service};

use super::gate::{Gate, Term};

/// Carries the term of a fenced write: `NAMESPACE/NAME HOLDER TRANSITIONS` of the Lease under which it was made.
pub const FENCE_HEADER: HeaderName = HeaderName::from_static("setpoint-fence");

/// Open for one term, then closed for good. See [the module](super) for what that guarantees.
///
/// Clones are the same fence.
///
/// ```no_run
/// # fn doc(client: kube::Client) {
/// use setpoint_runtime::election::{ElectionConfig, Elector};
/// # use setpoint_runtime::clock::{Chance, Clock};
/// # let (clock, chance) = (Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap()), Chance::seeded(1));
/// let config = ElectionConfig::new("default", "my-operator", "pod-7d9f-1");
/// let elector = Elector::new(config, client.clone(), clock, chance).unwrap();
/// let leader_only = elector.fence().client(&client); // reads always, writes only while leading
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Fence(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Told when a write has ended.
    ended: Notify,
}

#[derive(Debug, Default)]
struct State {
    gate: Gate<HeaderValue>,
    under_way: usize,
}

impl Fence {
    /// A fence that no election has opened yet.
    pub fn new() -> Fence {
        Fence::default()
    }

    /// A client that reads like `inner`, and writes like it while the fence is open. A refused write is
    /// `kube::Error::Service` with [`Refused`] in it.
    pub fn client(&self, inner: &Client) -> Client {
        let namespace = inner.default_namespace().to_owned();
        Client::new(FencedService { inner: inner.clone(), fence: self.clone() }, namespace)
    }

    /// Asks to begin one write. It counts as under way until the pass is dropped.
    pub fn admit(&self) -> Result<Pass, Refused> {
        let mut state = self.state();
        let term = state.gate.admit(Instant::now())?;
        state.under_way += 1;
        Ok(Pass { fence: self.clone(), term })
    }

    /// Whether a write may begin now.
    pub fn is_open(&self) -> bool {
        self.state().gate.is_open(Instant::now())
    }

    /// Nothing begins any more, ever.
    pub fn close(&self) {
        self.state().gate = Gate::Closed;
    }

    /// Opens it, or keeps it open for longer. Once closed, or past its time, it stays closed and the answer is no.
    pub(super) fn extend(&self, term: Term<HeaderValue>) -> bool {
        self.state().gate.extend(Instant::now(), term)
    }

    /// Waits until no write is under way.
    pub async fn idle(&self) {
        loop {
            let ended = self.0.ended.notified();
            if self.state().under_way == 0 {
                return;
            }
            ended.await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Leave for one write.
#[derive(Debug)]
pub struct Pass {
    fence: Fence,
    term: Term<HeaderValue>,
}

impl Pass {
    /// The moment after which the write must not be waited for: another may lead from then on.
    pub fn safe_until(&self) -> Instant {
        self.term.safe_until
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.fence.state().under_way -= 1;
        self.fence.0.ended.notify_waiters();
    }
}

/// Why a write was refused on this side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// This process has not been elected yet.
    NotLeading,
    /// It was, and may not be the leader any more.
    LeadershipOver,
    /// The write was sent, and no answer came while this process was certain to lead. It may have happened.
    OutcomeUnknown,
}

impl fmt::Display for Refused {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Refused::NotLeading => "refused to write: not the leader",
            Refused::LeadershipOver => "refused to write: another may be the leader by now",
            Refused::OutcomeUnknown => "no answer to a write while still the leader: it may have happened",
        })
    }
}

impl std::error::Error for Refused {}

struct FencedService {
    inner: Client,
    fence: Fence,
}

impl Service<http::Request<Body>> for FencedService {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        let (inner, fence) = (self.inner.clone(), self.fence.clone());
        Box::pin(async move {
            if matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS) {
                return Ok(inner.send(request).await?);
            }
            let pass = fence.admit()?;
            request.headers_mut().insert(FENCE_HEADER, pass.term.name.clone());
            match timeout_at(pass.safe_until(), inner.send(request)).await {
                Ok(answer) => Ok(answer?),
                Err(_) => Err(Refused::OutcomeUnknown.into()),
            }
        })
    }
}
