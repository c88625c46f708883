//! What a controller has done and its cache hasn't shown yet, so that it isn't done twice.
//!
//! Set **before** the calls, lowered as the events arrive or as calls fail. Until then the controller may still write
//! status, but must not create or delete again.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Expectations older than this are dropped: an event must have been missed, and doing nothing for ever is worse than doing it twice.
pub const TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// Expectations by the key of the owner.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use setpoint_runtime::expectations::Expectations;
///
/// let expectations = Expectations::<&str>::new();
/// expectations.creations("shop/web", 2);
/// assert!(!expectations.satisfied(&"shop/web"));
/// expectations.created(&"shop/web"); // the event of the first pod
/// expectations.created(&"shop/web"); // the second create failed: no event will come
/// assert!(expectations.satisfied(&"shop/web"));
/// # });
/// ```
#[derive(Debug, Default)]
pub struct Expectations<K>(Mutex<HashMap<K, Expected>>);

#[derive(Debug)]
struct Expected {
    creations: usize,
    /// By name, so that a child that is first marked and then removed counts once.
    deletions: BTreeSet<String>,
    since: Instant,
}

impl<K: Eq + Hash> Expectations<K> {
    /// Nothing is expected.
    pub fn new() -> Expectations<K> {
        Expectations(Mutex::new(HashMap::new()))
    }

    /// So many children are about to be created. Replaces what was expected before.
    pub fn creations(&self, owner: K, count: usize) {
        self.expect(owner, count, BTreeSet::new());
    }

    /// The children with these names are about to be deleted. Replaces what was expected before.
    pub fn deletions(&self, owner: K, names: impl IntoIterator<Item = String>) {
        self.expect(owner, 0, names.into_iter().collect());
    }

    /// A child was seen for the first time, or its creation failed.
    pub fn created(&self, owner: &K) {
        if let Some(expected) = self.all().get_mut(owner) {
            expected.creations = expected.creations.saturating_sub(1);
        }
    }

    /// A child was seen to be deleted or to be on its way there, or its deletion failed.
    pub fn deleted(&self, owner: &K, name: &str) {
        if let Some(expected) = self.all().get_mut(owner) {
            expected.deletions.remove(name);
        }
    }

    /// So many creations that were expected are not going to be tried.
    pub fn lower(&self, owner: &K, creations: usize) {
        if let Some(expected) = self.all().get_mut(owner) {
            expected.creations = expected.creations.saturating_sub(creations);
        }
    }

    /// Whether the cache shows all that was done: everything was seen, or nothing was expected, or it was too long ago.
    pub fn satisfied(&self, owner: &K) -> bool {
        self.all().get(owner).is_none_or(|expected| {
            expected.creations == 0 && expected.deletions.is_empty() || expected.since.elapsed() > TIMEOUT
        })
    }

    /// The owner is gone.
    pub fn forget(&self, owner: &K) {
        self.all().remove(owner);
    }

    fn expect(&self, owner: K, creations: usize, deletions: BTreeSet<String>) {
        self.all().insert(owner, Expected { creations, deletions, since: Instant::now() });
    }

    fn all(&self) -> MutexGuard<'_, HashMap<K, Expected>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn they_hold_until_seen_replaced_forgotten_or_old() {
        let all = Expectations::new();
        assert!(all.satisfied(&1), "nothing is expected");
        all.creations(1, 2);
        all.created(&1);
        assert!(!all.satisfied(&1));
        all.creations(1, 1);
        all.created(&1);
        assert!(all.satisfied(&1), "replaced, not added up");
        all.created(&1);
        all.creations(1, 1);
        assert!(!all.satisfied(&1), "what was seen too often isn't saved up");
        all.lower(&1, 1);
        assert!(all.satisfied(&1));
        all.deletions(1, ["a".to_owned(), "b".to_owned()]);
        all.deleted(&1, "a");
        all.deleted(&1, "a");
        assert!(!all.satisfied(&1), "the same child counts once");
        tokio::time::advance(TIMEOUT).await;
        assert!(!all.satisfied(&1));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(all.satisfied(&1), "an event must have been missed");
        all.creations(1, 1);
        all.forget(&1);
        assert!(all.satisfied(&1));
    }
}
