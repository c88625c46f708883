//! Wall time and chance, both handed in: a paused tokio runtime is virtual time, and a seed repeats a run.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::time::Instant;

/// Tells the time of day, counted by tokio's timer from a moment given at the start.
///
/// Because it moves with [`tokio::time`], advancing a paused runtime by a year advances the wall by a year.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
/// use std::time::Duration;
/// use setpoint_runtime::clock::Clock;
///
/// let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
/// tokio::time::advance(Duration::from_secs(3600)).await;
/// assert_eq!(clock.wall().to_string(), "2026-01-01T01:00:00Z");
/// # });
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    wall_at_start: Timestamp,
    start: Instant,
}

impl Clock {
    /// A clock whose wall shows `wall` now.
    #[must_use]
    pub fn starting_at(wall: Timestamp) -> Self {
        Self { wall_at_start: wall, start: Instant::now() }
    }

    /// The time of day.
    #[must_use]
    pub fn wall(&self) -> Timestamp {
        self.wall_of(Instant::now())
    }

    /// The moment of tokio's timer; for measuring spans and for deadlines.
    #[must_use]
    pub fn now(&self) -> Instant {
        Instant::now()
    }

    /// The time of day at a moment of the timer.
    ///
    /// Saturates at the ends of what a timestamp can say.
    #[must_use]
    pub fn wall_of(&self, moment: Instant) -> Timestamp {
        match moment.checked_duration_since(self.start) {
            Some(since) => self.wall_at_start.saturating_add(signed(since)).unwrap_or(Timestamp::MAX),
            None => self.wall_at_start.saturating_sub(signed(self.start - moment)).unwrap_or(Timestamp::MIN),
        }
    }

    /// How long from now until a time of day; zero if it has passed.
    #[must_use]
    pub fn until(&self, wall: Timestamp) -> Duration {
        wall.duration_since(self.wall()).try_into().unwrap_or(Duration::ZERO)
    }

    /// The time of day in the form of API objects: whole seconds.
    #[must_use]
    pub fn time(&self) -> Time {
        let wall = self.wall();
        Time(Timestamp::from_second(wall.as_second()).unwrap_or(wall))
    }

    /// The time of day with microseconds, as leases and events carry it.
    #[must_use]
    pub fn micro_time(&self) -> MicroTime {
        let wall = self.wall();
        MicroTime(Timestamp::from_microsecond(wall.as_microsecond()).unwrap_or(wall))
    }
}

fn signed(span: Duration) -> SignedDuration {
    SignedDuration::try_from(span).unwrap_or(SignedDuration::MAX)
}

/// Seeded chance: the same seed gives the same draws.
///
/// Clones share one sequence. Give each part of a program its own by [`Chance::fork`], so that a draw more in
/// one part doesn't change the draws of another.
///
/// ```
/// use setpoint_runtime::clock::Chance;
///
/// let (one, other) = (Chance::seeded(7), Chance::seeded(7));
/// assert_eq!(one.below(100), other.below(100));
/// let queue = one.fork("queue"); // draws of its own, whatever the others draw
/// assert_eq!(queue.bits(), other.fork("queue").bits());
/// ```
#[derive(Clone, Debug)]
pub struct Chance {
    seed: u64,
    draws: Arc<Mutex<SmallRng>>,
}

impl Chance {
    /// Chance that follows from `seed`.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self { seed, draws: Arc::new(Mutex::new(SmallRng::seed_from_u64(seed))) }
    }

    /// A sequence of its own for the part called `name`; depends on the seed and the name only.
    #[must_use]
    pub fn fork(&self, name: &str) -> Self {
        // FNV-1a: stable between runs and versions, which the standard library's hasher is not.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64 ^ self.seed, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        Self::seeded(hash)
    }

    /// The seed that repeats this sequence.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Any 64 bits.
    #[must_use]
    pub fn bits(&self) -> u64 {
        self.with(|rng| rng.random())
    }

    /// A number in `0.0..1.0`.
    #[must_use]
    pub fn unit(&self) -> f64 {
        self.with(|rng| rng.random())
    }

    /// A whole number below `bound`; zero if `bound` is zero.
    #[must_use]
    pub fn below(&self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.with(|rng| rng.random_range(0..bound)) }
    }

    /// A span between `span` and `span * (1 + factor)`.
    #[must_use]
    pub fn jitter(&self, span: Duration, factor: f64) -> Duration {
        let stretched = span.as_secs_f64() * (1.0 + self.unit() * factor.max(0.0));
        Duration::try_from_secs_f64(stretched).unwrap_or(span)
    }

    fn with<T>(&self, draw: impl FnOnce(&mut SmallRng) -> T) -> T {
        draw(&mut self.draws.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock() -> Clock {
        Clock::starting_at("2026-01-01T00:00:00.123456789Z".parse().unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn a_year_passes_when_the_timer_is_advanced_by_a_year() {
        let clock = clock();
        tokio::time::advance(Duration::from_secs(365 * 24 * 3600)).await;
        assert_eq!(clock.wall().to_string(), "2027-01-01T00:00:00.123456789Z");
        assert_eq!(clock.time().0.to_string(), "2027-01-01T00:00:00Z");
        assert_eq!(clock.micro_time().0.to_string(), "2027-01-01T00:00:00.123456Z");
    }

    #[tokio::test(start_paused = true)]
    async fn until_is_zero_for_the_past() {
        let clock = clock();
        assert_eq!(clock.until("2026-01-01T00:00:01.123456789Z".parse().unwrap()), Duration::from_secs(1));
        assert_eq!(clock.until("2025-01-01T00:00:00Z".parse().unwrap()), Duration::ZERO);
    }

    #[test]
    fn the_same_seed_gives_the_same_draws_and_forks_are_apart() {
        let draws = |chance: Chance| (0..8).map(|_| chance.bits()).collect::<Vec<_>>();
        assert_eq!(draws(Chance::seeded(7)), draws(Chance::seeded(7)));
        assert_ne!(draws(Chance::seeded(7)), draws(Chance::seeded(8)));
        let parent = Chance::seeded(7);
        let before = draws(parent.fork("queue"));
        let _ = parent.bits();
        assert_eq!(draws(parent.fork("queue")), before, "a fork does not depend on what its parent drew");
        assert_ne!(before, draws(parent.fork("informer")));
    }

    #[test]
    fn jitter_stays_within_its_factor() {
        let chance = Chance::seeded(1);
        for _ in 0..1000 {
            let span = chance.jitter(Duration::from_secs(2), 1.2);
            assert!((Duration::from_secs(2)..=Duration::from_millis(4400)).contains(&span), "{span:?}");
        }
    }
}
