//! How many bytes of firmware leave the hub in a second.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// Seconds of the budget that may be owed before nobody new is let in.
const DEBT_MAX: f64 = 2.0;

/// A budget of bytes per second, shared by all downloads.
pub struct Budget {
    level: Mutex<Level>,
}

struct Level {
    /// None for as fast as it goes.
    per_second: Option<f64>,
    /// What is left; below zero it is owed.
    bytes: f64,
    at: Instant,
}

impl Budget {
    pub fn new(per_second: Option<u64>) -> Budget {
        let level = Level { per_second: None, bytes: 0.0, at: Instant::now() };
        let budget = Budget { level: Mutex::new(level) };
        budget.set(per_second);
        budget
    }

    /// So many bytes a second from now on.
    pub fn set(&self, per_second: Option<u64>) {
        // Exact up to 2^53 bytes a second.
        self.level().per_second = per_second.map(|bytes| bytes.max(1) as f64);
    }

    /// Whether one more may begin; if not, when to ask again.
    pub fn admits(&self) -> Result<(), Duration> {
        let owed = self.owes(0);
        if owed.as_secs_f64() < DEBT_MAX { Ok(()) } else { Err(owed) }
    }

    /// Takes bytes, and waits for as long as they are owed.
    pub async fn spend(&self, bytes: usize) {
        let owed = self.owes(bytes);
        if !owed.is_zero() {
            sleep(owed).await;
        }
    }

    /// Takes bytes; how long it is until nothing is owed.
    fn owes(&self, bytes: usize) -> Duration {
        let mut level = self.level();
        let Some(per_second) = level.per_second else { return Duration::ZERO };
        let now = Instant::now();
        let grown = level.bytes + now.saturating_duration_since(level.at).as_secs_f64() * per_second;
        // What isn't used within a second is gone.
        level.bytes = grown.min(per_second) - bytes as f64;
        level.at = now;
        Duration::from_secs_f64((-level.bytes / per_second).max(0.0))
    }

    fn level(&self) -> MutexGuard<'_, Level> {
        self.level.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn as_many_bytes_leave_in_a_second_as_the_budget_says() {
        let budget = Budget::new(Some(1000));
        let start = Instant::now();
        for _ in 0..10 {
            budget.spend(1000).await;
        }
        assert_eq!(start.elapsed().as_secs(), 10);
        assert_eq!(budget.admits(), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_budget_that_changes_counts_at_once() {
        let budget = Budget::new(None);
        budget.spend(1_000_000).await;
        budget.set(Some(1000));
        let start = Instant::now();
        budget.spend(3000).await;
        assert_eq!(start.elapsed().as_secs(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_new_is_let_in_while_too_much_is_owed() {
        let budget = Budget::new(Some(1000));
        budget.owes(5000);
        assert_eq!(budget.admits(), Err(Duration::from_secs(5)));
        tokio::time::advance(Duration::from_secs(4)).await;
        assert_eq!(budget.admits(), Ok(()));
        assert_eq!(Budget::new(None).admits(), Ok(()));
    }
}
