//! What happens to the calls of the process under test: what was counted, and where faults strike.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::Plan;
use crate::fault::Fault;
use crate::life::Effect;

/// How often things happened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Calls other than watches.
    pub(crate) calls: usize,
    /// Calls that change something, leases and Events apart.
    pub(crate) writes: usize,
    /// How many of them were made in runs of each controller.
    pub(crate) writes_of: BTreeMap<Arc<str>, usize>,
    /// The numbers of those that no controller made.
    pub(crate) writes_of_none: Vec<usize>,
    /// Events that watches delivered, bookmarks apart.
    pub(crate) events: usize,
    /// Whether a lease was written.
    pub(crate) leases: bool,
}

/// The course of one run, shared by all lives of its process.
#[derive(Debug, Clone)]
pub(crate) struct Course(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    plan: Plan,
    /// What the faults hit.
    struck: Mutex<Vec<(String, Instant)>>,
    counts: Mutex<Counts>,
    /// Moves when the process has to die.
    crashes: watch::Sender<usize>,
    /// The revisions at which the process sees the world, each after it was started again.
    stale: Mutex<VecDeque<String>>,
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

impl Course {
    pub(crate) fn new(plan: Plan) -> Course {
        Course(Arc::new(Inner {
            plan,
            struck: Mutex::default(),
            counts: Mutex::default(),
            crashes: watch::Sender::new(0),
            stale: Mutex::default(),
            frozen: watch::Sender::new(None),
        }))
    }

    pub(crate) fn counts(&self) -> Counts {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nothing goes wrong.
    pub(crate) fn is_clean(&self) -> bool {
        self.0.plan.faults().is_empty()
    }

    /// Adds what the faults hit, if it came to that.
    pub(crate) fn told(&self, why: String) -> String {
        let struck: Vec<String> = self.strikes().iter().map(|(what, _)| what.clone()).collect();
        match struck.is_empty() {
            true => why,
            false => format!("{why}\n  it struck {}", struck.join(", then ")),
        }
    }

    /// Whether a fault came within this time.
    pub(crate) fn has_just_struck(&self, within: Duration) -> bool {
        self.strikes().last().is_some_and(|(_, at)| at.elapsed() < within)
    }

    fn strike(&self, what: String) {
        self.strikes().push((what, Instant::now()));
    }

    fn strikes(&self) -> MutexGuard<'_, Vec<(String, Instant)>> {
        self.0.struck.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call and tells its fate. `author` is the controller whose run makes it, `what` names the call.
    pub(crate) fn call(&self, effect: Effect, author: Option<&Arc<str>>, what: impl FnOnce() -> String) -> Fate {
        let fate = self.count(effect, author);
        if fate != Fate::Pass {
            self.strike(match author {
                Some(author) => format!("{} of {author}", what()),
                None => what(),
            });
        }
        fate
    }

    fn count(&self, effect: Effect, author: Option<&Arc<str>>) -> Fate {
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
        let mut own_write = 0;
        match author {
            Some(author) if is_write => {
                let count = counts.writes_of.entry(Arc::clone(author)).or_default();
                *count += 1;
                own_write = *count;
            }
            None if is_write => counts.writes_of_none.push(write),
            _ => {}
        }
        let fate = |fault: &Fault| match fault {
            Fault::CrashAfterWrite(n) if *n == write => Some(Fate::Crash),
            Fault::CrashAfterWriteOf(controller, n) if *n == own_write && Some(controller) == author => {
                Some(Fate::Crash)
            }
            Fault::LoseLease(n) if *n == write => Some(Fate::LoseLease),
            Fault::FailCall(n, code) if *n == call => Some(Fate::Fail(*code)),
            Fault::LoseAnswer(n) if *n == call => Some(Fate::Lose),
            Fault::DelayCall(n) if *n == call => Some(Fate::Delay),
            _ => None,
        };
        // A call has one fate: that of the first fault that is for it.
        self.0.plan.faults().iter().find_map(fate).unwrap_or(Fate::Pass)
    }

    /// Counts an event at a revision; true if the process must not see it. `what` names the event.
    pub(crate) fn event(&self, revision: Option<&str>, what: impl FnOnce() -> String) -> bool {
        let n = {
            let mut counts = self.lock();
            counts.events += 1;
            counts.events
        };
        let is_for_it = |fault: &&Fault| matches!(fault, Fault::HideEvent(at) | Fault::StaleAtEvent(at) if *at == n);
        let Some(fault) = self.0.plan.faults().iter().find(is_for_it) else { return false };
        self.strike(what());
        let is_hidden = matches!(fault, Fault::HideEvent(_));
        if !is_hidden {
            self.0.stale.lock().unwrap_or_else(PoisonError::into_inner).extend(revision.map(str::to_owned));
        }
        is_hidden
    }

    pub(crate) fn crash(&self) {
        self.0.crashes.send_modify(|crashes| *crashes += 1);
    }

    pub(crate) fn crashes(&self) -> watch::Receiver<usize> {
        self.0.crashes.subscribe()
    }

    /// Shows the next life of the process the world as it was at the next chosen event, if the run has come by one.
    pub(crate) fn freeze(&self) -> bool {
        let stale = self.0.stale.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
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
