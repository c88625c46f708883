//! The algorithm itself: what to ask next, given what was answered. Pure, so that every order of events can be tried.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::record::Record;

/// One who wants to hold the Lease, or does.
///
/// An attempt begins with [`begin`](Candidate::begin); each request's answer goes to [`answer`](Candidate::answer), which says what comes
/// next. Moments are those of the own timer, counted from any beginning.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Candidate {
    identity: String,
    lease_seconds: i32,
    observed: Option<Observed>,
    asked: Option<Asked>,
    slow_paths: u64,
}

/// The record as it was last seen or written, and since when it hasn't changed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Observed {
    record: Record,
    version: String,
    at: Duration,
}

/// A request that waits for its answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Asked {
    request: Request,
    at: Duration,
    /// A renewal from memory, without having read the Lease first.
    fast: bool,
}

/// What to ask the API server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    /// Read the Lease.
    Get,
    /// Create it.
    Create(Record),
    /// Replace it, if it is still at this resource version.
    Update(Record, String),
}

/// What the API server said.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// The Lease at a resource version: as read, or as written.
    Lease(Record, String),
    /// There is no Lease.
    Missing,
    /// Anything else: a conflict, an error, no answer in time. A write may or may not have happened.
    Failed,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Next {
    /// Ask this.
    Ask(Request),
    /// The Lease is ours, by a write that was asked for at this moment.
    Leading {
        /// When the write that proves it was sent: the beginning of the time in which nobody else can lead.
        asked_at: Duration,
        /// The term, as the Lease counts them.
        transitions: i32,
    },
    /// The Lease is another's and hasn't run out.
    Held {
        /// Who holds it.
        by: String,
    },
    /// The attempt came to nothing; try again later.
    Failed,
}

impl Candidate {
    /// A candidate who has seen nothing yet.
    pub fn new(identity: impl Into<String>, lease_duration: Duration) -> Candidate {
        let lease_seconds = i32::try_from(lease_duration.as_secs()).unwrap_or(i32::MAX);
        Candidate { identity: identity.into(), lease_seconds, observed: None, asked: None, slow_paths: 0 }
    }

    /// Begins an attempt to take or renew the Lease.
    pub fn begin(&mut self, now: Duration, wall: Timestamp) -> Request {
        match &self.observed {
            // The usual renewal is one request: the Lease is expected to be as it was written last.
            Some(observed) if self.holds(&observed.record) && observed.is_valid(now) => {
                let record = self.renewal(&observed.record, wall);
                let version = observed.version.clone();
                self.ask(Request::Update(record, version), now, true)
            }
            _ => self.ask(Request::Get, now, false),
        }
    }

    /// Takes an answer to what was asked last.
    pub fn answer(&mut self, answer: Answer, now: Duration, wall: Timestamp) -> Next {
        let Some(asked) = self.asked.take() else { return Next::Failed };
        match (asked.request, answer) {
            (Request::Get, Answer::Missing) => Next::Ask(self.ask(Request::Create(self.claim(0, wall)), now, false)),
            (Request::Get, Answer::Lease(record, version)) => self.consider(record, version, now, wall),
            (Request::Create(_) | Request::Update(..), Answer::Lease(record, version)) => {
                let transitions = record.transitions;
                self.observed = Some(Observed { record, version, at: now });
                Next::Leading { asked_at: asked.at, transitions }
            }
            (Request::Update(..), _) if asked.fast => Next::Ask(self.ask(Request::Get, now, false)),
            (Request::Get | Request::Create(_) | Request::Update(..), Answer::Missing | Answer::Failed) => Next::Failed,
        }
    }

    /// How to give back a Lease that reads like this; nothing if it isn't ours.
    pub fn release(&self, seen: &Record, version: &str, wall: Timestamp) -> Option<Request> {
        let record = Record {
            holder: String::new(),
            duration_seconds: 1,
            acquired: Some(wall),
            renewed: Some(wall),
            transitions: seen.transitions,
        };
        self.holds(seen).then(|| Request::Update(record, version.to_owned()))
    }

    /// Who held the Lease when it was seen last; empty if nobody did.
    pub fn holder(&self) -> &str {
        self.observed.as_ref().map_or("", |observed| &observed.record.holder)
    }

    /// When the Lease runs out if it is not renewed after it was seen last.
    pub fn runs_out_at(&self) -> Option<Duration> {
        self.observed.as_ref().map(|observed| observed.at + observed.record.duration())
    }

    /// How often a leader had to read the Lease before it could renew it.
    pub fn slow_paths(&self) -> u64 {
        self.slow_paths
    }

    fn consider(&mut self, record: Record, version: String, now: Duration, wall: Timestamp) -> Next {
        // Only a change restarts the wait. The version alone may move without one: other fields of the Lease aren't ours.
        let at = match &self.observed {
            Some(observed) if observed.record == record => observed.at,
            _ => now,
        };
        let observed = Observed { record, version, at };
        let ours = self.holds(&observed.record);
        let held = !observed.record.holder.is_empty() && observed.is_valid(now) && !ours;
        let (by, transitions) = (observed.record.holder.clone(), observed.record.transitions);
        let next = if ours {
            self.slow_paths += 1;
            self.renewal(&observed.record, wall)
        } else {
            self.claim(transitions.saturating_add(1), wall)
        };
        let version = observed.version.clone();
        self.observed = Some(observed);
        if held { Next::Held { by } } else { Next::Ask(self.ask(Request::Update(next, version), now, false)) }
    }

    fn holds(&self, record: &Record) -> bool {
        record.holder == self.identity
    }

    fn claim(&self, transitions: i32, wall: Timestamp) -> Record {
        Record {
            holder: self.identity.clone(),
            duration_seconds: self.lease_seconds,
            acquired: Some(wall),
            renewed: Some(wall),
            transitions,
        }
    }

    fn renewal(&self, record: &Record, wall: Timestamp) -> Record {
        Record { acquired: record.acquired, ..self.claim(record.transitions, wall) }
    }

    fn ask(&mut self, request: Request, at: Duration, fast: bool) -> Request {
        self.asked = Some(Asked { request: request.clone(), at, fast });
        request
    }
}

impl Observed {
    fn is_valid(&self, now: Duration) -> bool {
        self.at + self.record.duration() > now
    }
}
