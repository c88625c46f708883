//! What is tested: a process, what users do while it runs, and what must hold.

use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::Value;

use crate::{ControlPlane, Process, State};

/// A process under test, and what users do while it runs.
/// [`exhaust`](crate::exhaust) has an example.
pub trait Scenario: Sync {
    /// What the name of the test is; it stands in the line that runs one fault again.
    fn name(&self) -> &'static str;

    /// What must be there before the process starts: definitions, objects of others.
    fn prepare<'a>(&'a self, _plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {})
    }

    /// The process. It runs until it is asked to stop, or until its future is dropped, which is how it dies.
    fn process(&self, process: Process) -> BoxFuture<'static, ()>;

    /// What users do while the process runs. Use [`ControlPlane::settle`] to wait until nobody writes.
    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()>;

    /// The rest of the world, such as a [`Kubelet`](crate::Kubelet): runs beside the process from its start until it has
    /// stopped, without faults, in whichever life the process is. Its writes count as activity; it may end early.
    ///
    /// Several actors are joined: `Box::pin(async { tokio::join!(one, other); })`.
    fn world<'a>(&'a self, _plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(std::future::pending())
    }

    /// What must hold at every moment; asked after each write.
    fn invariant(&self, _state: &State) -> Result<(), String> {
        Ok(())
    }

    /// What must hold at the end.
    fn outcome(&self, _state: &State) -> Result<(), String> {
        Ok(())
    }

    /// What of an object counts when two end states are compared; none if it doesn't count at all. Times, versions and
    /// identities are gone from it already.
    fn view(&self, object: Value) -> Option<Value> {
        Some(object)
    }
}

/// How long virtual time may go on, and how much may happen in it.
///
/// ```
/// use std::time::Duration;
/// use setpoint_testkit::Limits;
///
/// // For a controller that looks again every ten minutes, whatever happens: what is quiet for less is not quiet.
/// let limits = Limits { quiet: Duration::from_secs(15 * 60), points: 200, ..Limits::default() };
/// # let _ = limits;
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// How long what users do may take.
    pub drive: Duration,
    /// Nobody writes for so long: all is quiet.
    pub quiet: Duration,
    /// A run that isn't quiet after so long never will be.
    pub settle: Duration,
    /// Once quiet, nobody may write for so long; a sixth of it in runs with a fault.
    pub still: Duration,
    /// How many Events may be written in that time: who is not content says so again and again, but not so often that it is work for
    /// the server. All, unless a scenario says otherwise.
    pub words: usize,
    /// How long a process that is asked to stop may take.
    pub stop: Duration,
    /// How many faults are tried at most; of more, so many that are spread evenly.
    pub points: usize,
    /// Whether every crash after a write is tried, however few other faults are.
    pub every_crash: bool,
    /// How many writes there may be in a run, leases and Events apart. A process whose own writes wake it never lets time pass:
    /// beyond this its calls are held, and the run fails.
    pub writes: usize,
    /// How many steps there may be within one second of virtual time: runs of controllers, calls, turns of the process. Who
    /// answers `requeue_after` with nothing to wait for never lets time pass: beyond this the run fails.
    pub steps: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            drive: Duration::from_secs(24 * 3600),
            quiet: Duration::from_secs(120),
            settle: Duration::from_secs(4 * 3600),
            still: Duration::from_secs(3600),
            words: usize::MAX,
            stop: Duration::from_secs(60),
            points: usize::MAX,
            every_crash: false,
            writes: 5_000,
            steps: 100_000,
        }
    }
}
