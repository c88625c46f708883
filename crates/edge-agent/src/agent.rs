//! The state machine of a vehicle: events and the time in, actions out.

mod reports;
mod resume;
mod told;
mod work;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use setpoint_fleet_protocol::Desired;
use setpoint_fleet_protocol::metadata::Trust;

use crate::slots::Boot;
use crate::{Facts, Gate, Journal, Step};

/// Who the vehicle is, and what it believes.
#[derive(Clone, Debug)]
pub struct Identity {
    /// `namespace/name`.
    pub vehicle: Box<str>,
    /// Its hardware.
    pub hardware_id: Box<str>,
    /// The version of the agent.
    pub agent_version: &'static str,
    /// Whose signatures count. Without it nothing is checked but digests: for simulations and first trials only.
    pub trust: Option<Arc<Trust>>,
}

/// What happens to an agent.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A session with the hub has begun.
    Connected,
    /// It has ended.
    Disconnected,
    /// The hub says what should be.
    Told(Box<Desired>),
    /// What the vehicle knows of itself has changed.
    Facts(Facts),
    /// Somebody offers the next root.
    Root(Box<str>),
    /// So many bytes of the artifact are there.
    Fetched {
        /// Of the action that it is about.
        ticket: u32,
        /// The bytes.
        have: u64,
    },
    /// An action has ended.
    Done {
        /// Of the action.
        ticket: u32,
        /// How it ended.
        done: Done,
    },
    /// It is time: see [`Agent::wakes_at`].
    Tick,
}

/// How an action ended, by the action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// Of [`Action::Fetch`].
    Fetch(Result<(), FetchError>),
    /// Of [`Action::Check`]: the length and the SHA-256 of what is in the slot.
    Check(Result<(u64, String), String>),
    /// Of [`Action::Install`].
    Install(Result<(), String>),
    /// Of [`Action::Arm`].
    Arm(Result<(), String>),
    /// Of [`Action::Probe`].
    Probe(Result<(), String>),
    /// Of [`Action::Commit`].
    Commit(Result<(), String>),
    /// Of [`Action::Disarm`].
    Disarm(Result<(), String>),
}

/// Why a download ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchError {
    /// The connection or the server failed; another try may do.
    Broken(String),
    /// The server asks to come back later.
    Busy(Duration),
    /// There is no such artifact.
    NotFound(String),
    /// It is longer than what was released.
    TooLong,
    /// What is offered is shorter than what was released.
    TooShort,
    /// There is no room for it.
    NoSpace,
}

/// What is to be done, in the order given. Each with a ticket is answered by one [`Event::Done`] with the same ticket, unless the
/// process ends before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Make [`Agent::journal`] durable before anything that follows.
    Keep,
    /// Send [`Agent::report`], now or when there is a connection; the latest replaces those before.
    Report,
    /// Bring the artifact into the other slot, from where it broke off, or anew.
    Fetch {
        /// To answer with.
        ticket: u32,
        /// Whether what is there is worthless.
        anew: bool,
    },
    /// Stop bringing it.
    StopFetching,
    /// Read what is in the other slot.
    Check(u32),
    /// Make the other slot one that can be started from.
    Install(u32),
    /// Make the next starts ones from the other slot, for a few tries.
    Arm(u32),
    /// Restart.
    Restart,
    /// Run the health checks of the firmware but that of the hub.
    Probe(u32),
    /// Make the slot that runs the one to start from.
    Commit(u32),
    /// Make the slot before the one to start from.
    Disarm(u32),
}

/// A task that goes on is spoken of at least so often, whether there is something new or not: who hears nothing for long takes it for lost.
const SPEAK_PAUSE: Duration = Duration::from_secs(180);

/// A vehicle's agent.
#[derive(Clone, Debug)]
pub struct Agent {
    identity: Identity,
    journal: Journal,
    boot: Boot,
    facts: Facts,
    gate: Option<Gate>,
    connected_since: Option<Timestamp>,
    /// When to look again, in any case.
    wakes_at: Option<Timestamp>,
    /// When to say again what it is at.
    speaks_at: Option<Timestamp>,
    /// The ticket of the action under way; zero if none is.
    pending: u32,
    last_ticket: u32,
    percent: u8,
    /// Downloads that broke off in a row without a byte.
    broken: u8,
    /// When the new firmware started to prove itself, and whether the checks but that of the hub are passed.
    confirming: Option<(Timestamp, bool)>,
    /// Asked for while a task was past giving up.
    next: Option<Box<Desired>>,
    healthy: bool,
}

impl Agent {
    /// What it must not forget.
    #[must_use]
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Who it is.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// What it works on.
    #[must_use]
    pub fn desired(&self) -> Option<&Desired> {
        self.journal.task.as_ref().map(|task| &task.desired)
    }

    /// When it wants an [`Event::Tick`].
    #[must_use]
    pub fn wakes_at(&self) -> Option<Timestamp> {
        [self.wakes_at, self.speaks_at].into_iter().flatten().min()
    }

    /// What holds its task.
    #[must_use]
    pub fn gate(&self) -> Option<Gate> {
        self.gate
    }

    /// A new session begins: its number, which has to be kept before it is said.
    ///
    /// It follows the clock, so that a vehicle which lost its journal isn't taken for one of the past.
    pub fn next_epoch(&mut self, now: Timestamp) -> u64 {
        let seconds = u64::try_from(now.as_second()).unwrap_or_default();
        self.journal.epoch = (self.journal.epoch + 1).max(seconds);
        self.journal.epoch
    }

    /// Takes an event, and says what is to be done about it.
    pub fn step(&mut self, event: Event, now: Timestamp) -> Vec<Action> {
        let mut out = Vec::new();
        match event {
            Event::Connected => {
                self.connected_since = Some(now);
                self.look_again(now, &mut out);
            }
            Event::Disconnected => self.connected_since = None,
            Event::Told(desired) => self.told(*desired, now, &mut out),
            Event::Facts(facts) => {
                self.facts = facts;
                self.look_again(now, &mut out);
            }
            Event::Root(text) => self.follow(&text, now, &mut out),
            Event::Fetched { ticket, have } => self.fetched(ticket, have, &mut out),
            Event::Done { ticket, done } => {
                // What belongs to a task that was given up says nothing about this one.
                if ticket == self.pending && ticket != 0 {
                    self.pending = 0;
                    self.done(done, now, &mut out);
                }
            }
            Event::Tick => {
                if self.wakes_at.is_some_and(|at| at <= now) {
                    self.wakes_at = None;
                    self.look_again(now, &mut out);
                }
            }
        }
        self.keep_speaking(now, &mut out);
        out
    }

    /// A task that waits for a gate needs no words: it may wait for as long as it takes.
    fn keep_speaking(&mut self, now: Timestamp, out: &mut Vec<Action>) {
        if self.journal.task.is_none() || self.gate.is_some() {
            self.speaks_at = None;
            return;
        }
        if self.speaks_at.is_some_and(|at| at <= now) {
            self.say(out);
        }
        if self.speaks_at.is_none() || out.contains(&Action::Report) {
            self.speaks_at = Some(later(now, SPEAK_PAUSE));
        }
    }

    /// Which root is believed; none where nothing is signed.
    #[must_use]
    pub fn root_version(&self) -> Option<u64> {
        self.identity.trust.as_ref().map(|trust| trust.version())
    }

    /// Takes the next root, if the one before vouches for it. One that it doesn't vouch for changes nothing.
    fn follow(&mut self, text: &str, now: Timestamp, out: &mut Vec<Action>) {
        let next = self.identity.trust.as_ref().and_then(|trust| trust.followed_by(text, now).ok());
        if let Some(next) = next {
            self.identity.trust = Some(Arc::new(next));
            self.journal.root = text.to_owned();
            out.push(Action::Keep);
        }
    }

    /// What waits for a gate, a time or a connection is looked at again.
    fn look_again(&mut self, now: Timestamp, out: &mut Vec<Action>) {
        let Some(step) = self.step_now() else { return };
        match step {
            Step::Confirm => self.weigh(now, out),
            _ if self.pending == 0 => self.begin(now, out),
            _ => {}
        }
    }

    fn step_now(&self) -> Option<Step> {
        self.journal.task.as_ref().map(|task| task.step())
    }

    fn ticket(&mut self) -> u32 {
        self.last_ticket = self.last_ticket.wrapping_add(1).max(1);
        self.pending = self.last_ticket;
        self.pending
    }

    fn wake_in(&mut self, now: Timestamp, span: Duration) {
        self.wake_at(later(now, span));
    }

    fn wake_at(&mut self, at: Timestamp) {
        self.wakes_at = Some(self.wakes_at.map_or(at, |known| known.min(at)));
    }
}

fn later(now: Timestamp, span: Duration) -> Timestamp {
    let span = SignedDuration::try_from(span).unwrap_or(SignedDuration::MAX);
    now.saturating_add(span).unwrap_or(Timestamp::MAX)
}
