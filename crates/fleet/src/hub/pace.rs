//! How often is written of one vehicle, whatever it says: some writes one after the other, then one now and then.

use std::time::Duration;

use tokio::time::Instant;

/// Writes of a vehicle that may follow each other: more than several upgrades take.
const BURST: u32 = 20;

/// After those, one in so long.
const EVERY: Duration = Duration::from_secs(10);

/// What a vehicle has used of it.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// When all writes are made up for.
    even_at: Instant,
}

impl Pace {
    pub fn new(now: Instant) -> Pace {
        Pace { even_at: now }
    }

    /// Something was written.
    pub fn wrote(&mut self, now: Instant) {
        self.even_at = self.even_at.max(now) + EVERY;
    }

    /// How long the next write has to wait.
    pub fn rest(&self, now: Instant) -> Duration {
        self.even_at.saturating_duration_since(now).saturating_sub(EVERY * (BURST - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_writes_follow_each_other_and_then_one_now_and_then() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        for _ in 0..BURST {
            assert_eq!(pace.rest(start), Duration::ZERO);
            pace.wrote(start);
        }
        assert_eq!(pace.rest(start), EVERY);
        let later = start + EVERY;
        assert_eq!(pace.rest(later), Duration::ZERO);
        pace.wrote(later);
        assert_eq!(pace.rest(later), EVERY);
        assert_eq!(pace.rest(start + EVERY * BURST * 2), Duration::ZERO);
    }
}
