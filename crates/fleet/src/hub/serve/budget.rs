//! How many bytes of firmware leave the hub in a second.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// Seconds of the budget that may be owed before nobody new is let in.
const DEBT_MAX: f64 = 2.0;

/// A budget of bytes per second, shared by all downloads.
pub struct Budget {
    per_second: Option<f64>,
    level: Mutex<Level>,
}

struct Level {
    /// What is left; below zero it is owed.
    bytes: f64,
    at: Instant,
}

impl Budget {
    pub fn new(per_second: Option<u64>) -> Budget {
        // Exact up to 2^53 bytes a second.
        let per_second = per_second.map(|bytes| bytes.max(1) as f64);
        Budget { per_second, level: Mutex::new(Level { bytes: 0.0, at: Instant::now() }) }
    }

    /// Whether one more may begin; if not, when to ask again.
    pub fn admits(&self) -> Result<(), Duration> {
        let Some(per_second) = self.per_second else { return Ok(()) };
        let owed = -self.change(per_second, 0.0) / per_second;
        if owed < DEBT_MAX { Ok(()) } else { Err(Duration::from_secs_f64(owed)) }
    }

    /// Takes bytes, and waits for as long as they are owed.
    pub async fn spend(&self, bytes: usize) {
        let Some(per_second) = self.per_second else { return };
        let left = self.change(per_second, bytes as f64);
        if left < 0.0 {
            sleep(Duration::from_secs_f64(-left / per_second)).await;
        }
    }

    fn change(&self, per_second: f64, bytes: f64) -> f64 {
        let mut level = self.level.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let grown = level.bytes + now.saturating_duration_since(level.at).as_secs_f64() * per_second;
        // What isn't used within a second is gone.
        level.bytes = grown.min(per_second) - bytes;
        level.at = now;
        level.bytes
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
    async fn nobody_new_is_let_in_while_too_much_is_owed() {
        let budget = Budget::new(Some(1000));
        budget.change(1000.0, 5000.0);
        assert_eq!(budget.admits(), Err(Duration::from_secs(5)));
        tokio::time::advance(Duration::from_secs(4)).await;
        assert_eq!(budget.admits(), Ok(()));
        assert_eq!(Budget::new(None).admits(), Ok(()));
    }
}
