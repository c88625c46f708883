//! Pods that fail on a node again and again are deleted later each time: whoever makes them fail, such as a node that refuses
//! them, would otherwise fight with us.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

/// After the first failure.
const FIRST: Duration = Duration::from_secs(1);

/// The longest wait.
const LAST: Duration = Duration::from_secs(15 * 60);

/// With more places than this, those that have been quiet are forgotten.
const PLACES_MAX: usize = 10_000;

/// A set's identity, the generation that was seen to, and a node.
pub type Place = (Arc<str>, i64, Arc<str>);

/// How long to wait at each place. A process that starts anew waits from the beginning: that costs time, nothing else.
#[derive(Clone, Debug, Default)]
pub struct Backoff(Arc<Mutex<HashMap<Place, Wait>>>);

#[derive(Clone, Copy, Debug)]
struct Wait {
    since: Timestamp,
    delay: Duration,
}

impl Wait {
    fn until(&self) -> Timestamp {
        self.since.checked_add(self.delay).unwrap_or(Timestamp::MAX)
    }

    /// After twice the longest wait without a failure all is forgotten.
    fn is_over(&self, now: Timestamp) -> bool {
        self.since.checked_add(LAST * 2).is_ok_and(|end| end < now)
    }
}

impl Backoff {
    /// Until when a failed pod stays; none if it can go now.
    pub fn until(&self, place: &Place, now: Timestamp) -> Option<Timestamp> {
        let waits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let wait = waits.get(place).filter(|wait| !wait.is_over(now))?;
        Some(wait.until()).filter(|until| *until > now)
    }

    /// A failed pod is deleted: the next one waits for longer.
    pub fn grow(&self, place: Place, now: Timestamp) {
        let mut waits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if waits.len() >= PLACES_MAX {
            waits.retain(|_, wait| !wait.is_over(now));
        }
        let before = waits.get(&place).filter(|wait| !wait.is_over(now)).map(|wait| wait.delay);
        let delay = before.map_or(FIRST, |delay| (delay * 2).min(LAST));
        waits.insert(place, Wait { since: now, delay });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_quarter_of_an_hour_and_are_forgotten() {
        let (backoff, place) = (Backoff::default(), ("u".into(), 1, "node-1".into()));
        let mut now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        assert_eq!(backoff.until(&place, now), None);
        let mut waited = Vec::new();
        for _ in 0..12 {
            backoff.grow(place.clone(), now);
            let until = backoff.until(&place, now).unwrap();
            waited.push(until.duration_since(now).as_secs());
            now = until;
            assert_eq!(backoff.until(&place, now), None, "its time has come");
        }
        assert_eq!(waited, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900]);
        backoff.grow(place.clone(), now.checked_add(LAST * 3).unwrap());
        let until = backoff.until(&place, now.checked_add(LAST * 3).unwrap()).unwrap();
        assert_eq!(until, now.checked_add(LAST * 3 + FIRST).unwrap());
    }
}
