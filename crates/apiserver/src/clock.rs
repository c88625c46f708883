//! Wall time and chance, both passed in: wall time follows tokio's timer, so a test that moves the timer moves the date.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::time::Instant;

/// Tells the time of day.
#[derive(Clone, Debug)]
pub struct Clock {
    start: Duration,
    since: Instant,
}

impl Clock {
    /// A clock that shows `now` since 1970 at this moment.
    pub fn starting_at(now: Duration) -> Clock {
        Clock { start: now, since: Instant::now() }
    }

    /// The system's clock.
    pub fn system() -> Clock {
        Clock::starting_at(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
    }

    /// Time since 1970.
    pub fn now(&self) -> Duration {
        self.start + self.since.elapsed()
    }

    /// Seconds since 1970.
    pub fn seconds(&self) -> i64 {
        i64::try_from(self.now().as_secs()).unwrap_or(i64::MAX)
    }

    /// The time as Kubernetes writes it in metadata: seconds, UTC.
    pub fn timestamp(&self) -> String {
        setpoint_api::time::format_rfc3339(self.seconds())
    }
}

/// Letters of generated names: no vowels, so no words; none that look alike.
const NAME_LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// Draws what has to be random: uids and the ends of generated names. The same seed draws the same.
#[derive(Clone, Debug)]
pub struct Chance(Arc<Mutex<StdRng>>);

impl Chance {
    /// Chance from a seed.
    pub fn seeded(seed: u64) -> Chance {
        Chance(Arc::new(Mutex::new(StdRng::seed_from_u64(seed))))
    }

    /// A random (version 4) UUID.
    pub fn uid(&self) -> String {
        let bits: u128 = self.draw(|rng| rng.random());
        let bits = bits & !(0xf << 76 | 0x3 << 62) | 0x4 << 76 | 0x2 << 62;
        let hex = format!("{bits:032x}");
        format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }

    /// The random end of a generated name.
    pub fn suffix(&self) -> String {
        self.draw(|rng| (0..5).map(|_| char::from(NAME_LETTERS[rng.random_range(0..NAME_LETTERS.len())])).collect())
    }

    /// A whole number below `bound`.
    pub fn below(&self, bound: u64) -> u64 {
        self.draw(|rng| rng.random_range(0..bound))
    }

    fn draw<T>(&self, draw: impl FnOnce(&mut StdRng) -> T) -> T {
        draw(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uid_is_a_version_4_uuid() {
        let uid = Chance::seeded(1).uid();
        assert_eq!((uid.len(), &uid[14..15]), (36, "4"));
        assert!("89ab".contains(&uid[19..20]));
        assert_ne!(uid, Chance::seeded(2).uid());
    }
}
