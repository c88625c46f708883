//! What a manager runs, and what it tells those it runs.

use std::error::Error;

use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Why something that a manager ran ended before it was asked to.
pub type RunError = Box<dyn Error + Send + Sync>;

/// Something that a manager starts, watches and stops: a controller, a cache, a timer, a server.
///
/// ```
/// use futures_util::future::BoxFuture;
/// use setpoint_runtime::manager::{Lifecycle, RunError, Runnable};
///
/// struct Greeter;
///
/// impl Runnable for Greeter {
///     fn name(&self) -> &str {
///         "greeter"
///     }
///
///     fn run(self: Box<Self>, lifecycle: Lifecycle) -> BoxFuture<'static, Result<(), RunError>> {
///         Box::pin(async move {
///             lifecycle.ready();
///             lifecycle.draining().await;
///             Ok(())
///         })
///     }
/// }
/// ```
pub trait Runnable: Send + 'static {
    /// Its name, unique within the manager: in logs, in checks, and for others to depend on.
    fn name(&self) -> &str;

    /// Whether it may run only while this process is the leader. Caches and servers say no: a standby keeps them warm.
    fn needs_leadership(&self) -> bool {
        true
    }

    /// Runs until it is told to drain and has done so, or is told to stop. Ending early without an error is fine; an
    /// error stops the manager.
    fn run(self: Box<Self>, lifecycle: Lifecycle) -> BoxFuture<'static, Result<(), RunError>>;
}

/// The line between a manager and one of those it runs.
#[derive(Clone, Debug)]
pub struct Lifecycle {
    ready: watch::Sender<bool>,
    drain: CancellationToken,
    stop: CancellationToken,
}

impl Lifecycle {
    /// A line that nobody has signalled on.
    pub fn new() -> Lifecycle {
        let drain = CancellationToken::new();
        Lifecycle { ready: watch::Sender::new(false), drain, stop: CancellationToken::new() }
    }

    /// Says that those who depend on this may start, and that `/readyz` may say so.
    pub fn ready(&self) {
        self.ready.send_replace(true);
    }

    /// Whether it said that it is ready.
    pub fn is_ready(&self) -> bool {
        *self.ready.borrow()
    }

    /// Waits until it says that it is ready. Never ends if it never does.
    pub async fn until_ready(&self) {
        let mut ready = self.ready.subscribe();
        // The sender is ours, so waiting can't fail.
        let _ = ready.wait_for(|ready| *ready).await;
    }

    /// Waits until no new events are to be taken: finish what is queued, then return.
    pub async fn draining(&self) {
        self.drain.cancelled().await;
    }

    /// Waits until the time for that is over: return at once.
    pub async fn stopping(&self) {
        self.stop.cancelled().await;
    }

    /// Whether no new events are to be taken.
    pub fn is_draining(&self) -> bool {
        self.drain.is_cancelled()
    }

    /// Whether the time for draining is over.
    pub fn is_stopping(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Asks to finish what is queued and return.
    pub fn drain(&self) {
        self.drain.cancel();
    }

    /// Asks to return at once.
    pub fn stop(&self) {
        self.drain.cancel();
        self.stop.cancel();
    }
}

impl Default for Lifecycle {
    fn default() -> Self {
        Lifecycle::new()
    }
}
