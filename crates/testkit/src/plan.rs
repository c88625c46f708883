//! What happens to the calls of the process under test: what was counted, and where the fault strikes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::fault::Fault;
use crate::life::Effect;

/// How often things happened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Calls other than watches.
    pub(crate) calls: usize,
    /// Calls that change something, leases and Events apart.
    pub(crate) writes: usize,
    /// Events that watches delivered, bookmarks apart.
    pub(crate) events: usize,
    /// Whether a lease was written.
    pub(crate) leases: bool,
}

/// The fate of one run, shared by all lives of its process.
#[derive(Debug, Clone)]
pub(crate) struct Plan(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    fault: Option<Fault>,
    /// What the fault hit.
    struck: Mutex<Option<(String, Instant)>>,
    counts: Mutex<Counts>,
    /// Moves when the process has to die.
    crashes: watch::Sender<usize>,
    /// The revision at which the process sees the world after it was started again.
    stale: Mutex<Option<String>>,
    /// The revision that streams are held at.
    frozen: watch::Sender<Option<String>>,
}

/// What happens to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Nothing.
    Pass,
    /// It is answered with this code, without effect.
    Fail(u16),
    /// It has its effect, and no answer.
    Lose,
    /// It waits.
    Delay,
    /// It has its effect, then the process dies.
    Crash,
    /// Somebody else takes the leases first.
    LoseLease,
}

impl Plan {
    pub(crate) fn new(fault: Option<Fault>) -> Plan {
        Plan(Arc::new(Inner {
            fault,
            struck: Mutex::default(),
            counts: Mutex::default(),
            crashes: watch::Sender::new(0),
            stale: Mutex::default(),
            frozen: watch::Sender::new(None),
        }))
    }

    pub(crate) fn counts(&self) -> Counts {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nothing goes wrong.
    pub(crate) fn is_clean(&self) -> bool {
        self.0.fault.is_none()
    }

    /// What the fault hit, if it came to that.
    pub(crate) fn struck(&self) -> Option<String> {
        self.strikes().as_ref().map(|(what, _)| what.clone())
    }

    /// Whether the fault came within this time.
    pub(crate) fn has_just_struck(&self, within: Duration) -> bool {
        self.strikes().as_ref().is_some_and(|(_, at)| at.elapsed() < within)
    }

    fn strike(&self, what: String) {
        *self.strikes() = Some((what, Instant::now()));
    }

    fn strikes(&self) -> MutexGuard<'_, Option<(String, Instant)>> {
        self.0.struck.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call and tells its fate. `what` names the call.
    pub(crate) fn call(&self, effect: Effect, what: impl FnOnce() -> String) -> Fate {
        let fate = self.count(effect);
        if fate != Fate::Pass {
            self.strike(what());
        }
        fate
    }

    fn count(&self, effect: Effect) -> Fate {
        let mut counts = self.lock();
        let is_write = match effect {
            Effect::Lease { is_write } => {
                counts.leases |= is_write;
                return Fate::Pass;
            }
            Effect::Word => return Fate::Pass,
            Effect::Write => true,
            Effect::Read => false,
        };
        counts.calls += 1;
        counts.writes += usize::from(is_write);
        let (call, write) = (counts.calls, if is_write { counts.writes } else { 0 });
        match self.0.fault {
            Some(Fault::CrashAfterWrite(n)) if n == write => Fate::Crash,
            Some(Fault::LoseLease(n)) if n == write => Fate::LoseLease,
            Some(Fault::FailCall(n, code)) if n == call => Fate::Fail(code),
            Some(Fault::LoseAnswer(n)) if n == call => Fate::Lose,
            Some(Fault::DelayCall(n)) if n == call => Fate::Delay,
            _ => Fate::Pass,
        }
    }

    /// Counts an event at a revision; true if the process must not see it. `what` names the event.
    pub(crate) fn event(&self, revision: Option<&str>, what: impl FnOnce() -> String) -> bool {
        let n = {
            let mut counts = self.lock();
            counts.events += 1;
            counts.events
        };
        match self.0.fault {
            Some(Fault::HideEvent(hidden)) if hidden == n => {
                self.strike(what());
                true
            }
            Some(Fault::StaleAtEvent(at)) if at == n => {
                self.strike(what());
                *self.0.stale.lock().unwrap_or_else(PoisonError::into_inner) = revision.map(str::to_owned);
                false
            }
            _ => false,
        }
    }

    pub(crate) fn crash(&self) {
        self.0.crashes.send_modify(|crashes| *crashes += 1);
    }

    pub(crate) fn crashes(&self) -> watch::Receiver<usize> {
        self.0.crashes.subscribe()
    }

    /// Shows the next life of the process the world as it was at the chosen event, if the run has come by it.
    pub(crate) fn freeze(&self) -> bool {
        let stale = self.0.stale.lock().unwrap_or_else(PoisonError::into_inner).take();
        let is_stale = stale.is_some();
        self.0.frozen.send_replace(stale);
        is_stale
    }

    /// Lets the process see the world as it is.
    pub(crate) fn thaw(&self) {
        self.0.frozen.send_replace(None);
    }

    pub(crate) fn frozen(&self) -> watch::Receiver<Option<String>> {
        self.0.frozen.subscribe()
    }
}
