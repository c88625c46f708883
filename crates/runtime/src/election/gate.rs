//! When a write may begin: the rule of the fence, without the locks around it, so that every order of events can be tried.

use tokio::time::Instant;

use super::fence::Refused;

/// Not yet open, open until a moment, or closed for good.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Gate<T> {
    #[default]
    NotYet,
    Open(Term<T>),
    Closed,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Term<T> {
    /// No write begins at or after this moment.
    pub(super) begin_until: Instant,
    /// Nobody else leads before this moment.
    pub(super) safe_until: Instant,
    pub(super) name: T,
}

impl<T: Clone> Gate<T> {
    /// Asks to begin one write now.
    pub(super) fn admit(&mut self, now: Instant) -> Result<Term<T>, Refused> {
        match self {
            Gate::NotYet => Err(Refused::NotLeading),
            Gate::Closed => Err(Refused::LeadershipOver),
            Gate::Open(term) if now < term.begin_until => Ok(term.clone()),
            Gate::Open(_) => {
                // Whoever was paused for so long must not go on, even if a renewal were to succeed after all.
                *self = Gate::Closed;
                Err(Refused::LeadershipOver)
            }
        }
    }

    /// Opens it, or keeps it open for longer. Once closed, or past its time, it stays closed and the answer is no.
    pub(super) fn extend(&mut self, now: Instant, term: Term<T>) -> bool {
        match self {
            Gate::Closed => return false,
            // Nothing was written in this term yet: a later renewal may still open it.
            Gate::NotYet if now >= term.begin_until => return false,
            Gate::Open(old) if now >= old.begin_until => {
                *self = Gate::Closed;
                return false;
            }
            Gate::NotYet | Gate::Open(_) => (),
        }
        *self = Gate::Open(term);
        true
    }

    pub(super) fn is_open(&self, now: Instant) -> bool {
        matches!(self, Gate::Open(term) if now < term.begin_until)
    }
}
