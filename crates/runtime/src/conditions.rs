//! Conditions of a status: one per type, with the generation that they speak about and when they last changed.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::clock::Clock;

/// A condition to be set. The time comes from the clock, and only if the status changes.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
/// use setpoint_runtime::clock::Clock;
/// use setpoint_runtime::conditions::{self, State, Verdict};
///
/// let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
/// let mut status = Vec::new();
/// let ready = Verdict::new("Ready", State::False, "Heating", "19 of 21 degrees").observed(3);
/// assert!(conditions::set(&mut status, ready.clone(), &clock));
/// assert!(!conditions::set(&mut status, ready, &clock), "saying the same again changes nothing");
/// assert!(!conditions::is_true(&status, "Ready"));
/// # });
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    kind: String,
    state: State,
    reason: String,
    message: String,
    observed_generation: Option<i64>,
}

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It holds.
    True,
    /// It doesn't.
    False,
    /// Not known.
    Unknown,
}

impl State {
    /// As the API writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            State::True => "True",
            State::False => "False",
            State::Unknown => "Unknown",
        }
    }
}

impl Verdict {
    /// A condition of type `kind`: `reason` is one word for programs, `message` a sentence for people.
    pub fn new(
        kind: impl Into<String>,
        state: State,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) -> Verdict {
        let (kind, reason, message) = (kind.into(), reason.into(), message.into());
        Verdict { kind, state, reason, message, observed_generation: None }
    }

    /// The same for this generation of the spec.
    #[must_use]
    pub fn observed(self, generation: i64) -> Verdict {
        Verdict { observed_generation: Some(generation), ..self }
    }
}

/// Puts a condition in its place, and says whether anything changed. What was said about a later generation is kept: a
/// reconcile that read an old object must not overrule it.
pub fn set(conditions: &mut Vec<Condition>, verdict: Verdict, clock: &Clock) -> bool {
    let mut new = Condition {
        type_: verdict.kind,
        status: verdict.state.as_str().to_owned(),
        reason: verdict.reason,
        message: verdict.message,
        observed_generation: verdict.observed_generation,
        last_transition_time: clock.time(),
    };
    let Some(old) = conditions.iter_mut().find(|old| old.type_ == new.type_) else {
        conditions.push(new);
        return true;
    };
    if new.observed_generation.is_some() && old.observed_generation > new.observed_generation {
        return false;
    }
    if old.status == new.status {
        new.last_transition_time = old.last_transition_time.clone();
    }
    let changed = *old != new;
    *old = new;
    changed
}

/// Takes a condition away, and says whether it was there.
pub fn remove(conditions: &mut Vec<Condition>, kind: &str) -> bool {
    let before = conditions.len();
    conditions.retain(|condition| condition.type_ != kind);
    conditions.len() != before
}

/// The condition of this type.
pub fn find<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == kind)
}

/// Whether the condition is there and holds.
pub fn is_true(conditions: &[Condition], kind: &str) -> bool {
    find(conditions, kind).is_some_and(|condition| condition.status == "True")
}

/// Whether the condition is there, holds, and speaks about this generation or a later one.
pub fn is_true_for(conditions: &[Condition], kind: &str, generation: i64) -> bool {
    is_true(conditions, kind)
        && find(conditions, kind).and_then(|condition| condition.observed_generation).unwrap_or_default() >= generation
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn ready(state: State, message: &str, generation: i64) -> Verdict {
        Verdict::new("Ready", state, "Tested", message).observed(generation)
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_moves_only_with_the_status() {
        let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
        let mut all = Vec::new();
        let mut check = |verdict: Verdict, changed: bool, since: &str| {
            assert_eq!(set(&mut all, verdict.clone(), &clock), changed, "{verdict:?}");
            assert_eq!(all[0].last_transition_time.0.to_string(), since, "{verdict:?}");
        };
        check(ready(State::False, "not yet", 1), true, "2026-01-01T00:00:00Z");
        tokio::time::advance(Duration::from_secs(60)).await;
        check(ready(State::False, "not yet", 1), false, "2026-01-01T00:00:00Z");
        check(ready(State::False, "soon", 1), true, "2026-01-01T00:00:00Z");
        check(ready(State::True, "now", 2), true, "2026-01-01T00:01:00Z");
        check(ready(State::False, "said too late", 1), false, "2026-01-01T00:01:00Z");
        assert!(is_true_for(&all, "Ready", 2) && !is_true_for(&all, "Ready", 3));
        assert!(remove(&mut all, "Ready") && !remove(&mut all, "Ready"));
    }
}
