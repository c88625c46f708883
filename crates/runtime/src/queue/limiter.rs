//! How long a key waits before it is tried again.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;

/// First delay after a failure. Same as client-go.
pub const BASE_DELAY: Duration = Duration::from_millis(5);
/// Longest delay after failures. Same as client-go.
pub const MAX_DELAY: Duration = Duration::from_secs(1000);
/// Retries per second over all keys of a queue. Same as client-go.
pub const BUCKET_QPS: f64 = 10.0;
/// Retries at once over all keys of a queue. Same as client-go.
pub const BUCKET_BURST: u32 = 100;

/// What a delay means that no clock can show the end of.
const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

/// The end of a delay; any delay is fine.
pub(super) fn later(now: Instant, delay: Duration) -> Instant {
    now.checked_add(delay).unwrap_or_else(|| now + FAR)
}

/// Decides how long a key waits before its next try.
///
/// ```
/// use std::time::Duration;
/// use setpoint_runtime::queue::limiter::{Bucket, Exponential, Limiter, MaxOf};
/// use setpoint_runtime::queue::{QueueOptions, WorkQueue};
///
/// let second = Duration::from_secs(1);
/// let own: MaxOf<&str> = MaxOf::new(vec![
///     Box::new(Exponential::new(second, 60 * second).once_per_window()), // for each key
///     Box::new(Bucket::new(5.0, 20)),                                    // for all of them
/// ]);
/// let queue = WorkQueue::new(QueueOptions { limiter: Box::new(own), ..QueueOptions::default() });
/// queue.add_rate_limited("web");
/// assert_eq!((queue.num_requeues(&"web"), queue.len()), (1, 0));
/// ```
pub trait Limiter<K>: Send {
    /// The delay from `now` for one more try of `key`.
    fn delay(&mut self, key: &K, now: Instant) -> Duration;
    /// Forgets the failures of `key`: its next delay is the first again.
    fn forget(&mut self, key: &K);
    /// How many failures of `key` are remembered.
    fn failures(&self, key: &K) -> u32;
}

/// The limiter that controllers use unless told otherwise: exponential per key, a bucket over all, whichever is longer.
#[must_use]
pub fn controller_limiter<K: Clone + Eq + Hash + Send + 'static>() -> MaxOf<K> {
    MaxOf::new(vec![
        Box::new(Exponential::new(BASE_DELAY, MAX_DELAY).once_per_window()),
        Box::new(Bucket::new(BUCKET_QPS, BUCKET_BURST)),
    ])
}

/// `base * 2^failures` per key, up to a longest delay.
pub struct Exponential<K> {
    base: Duration,
    max: Duration,
    once_per_window: bool,
    failing: HashMap<K, Failing>,
}

struct Failing {
    failures: u32,
    until: Instant,
}

impl<K> Exponential<K> {
    /// Doubles from `base` to `max`, with every call counted as a failure, as client-go does.
    #[must_use]
    pub fn new(base: Duration, max: Duration) -> Self {
        Self { base, max, once_per_window: false, failing: HashMap::new() }
    }

    /// Counts at most one failure per delay: while a delay runs, a further failure waits for the rest of it.
    ///
    /// Events run a key at once even while it waits for its retry. Without this, each such run that fails
    /// doubles the delay, so a busy object that fails for a second may wait for minutes.
    #[must_use]
    pub fn once_per_window(mut self) -> Self {
        self.once_per_window = true;
        self
    }

    fn span(&self, failures: u32) -> Duration {
        let factor = 1_u32.checked_shl(failures);
        factor.and_then(|factor| self.base.checked_mul(factor)).unwrap_or(self.max).min(self.max)
    }
}

impl<K: Clone + Eq + Hash + Send> Limiter<K> for Exponential<K> {
    fn delay(&mut self, key: &K, now: Instant) -> Duration {
        let first = self.span(0);
        let Some(failing) = self.failing.get(key) else {
            self.failing.insert(key.clone(), Failing { failures: 1, until: later(now, first) });
            return first;
        };
        if self.once_per_window && now < failing.until {
            return failing.until - now;
        }
        let failures = failing.failures;
        let span = self.span(failures);
        let until = later(now, span);
        self.failing.insert(key.clone(), Failing { failures: failures.saturating_add(1), until });
        span
    }

    fn forget(&mut self, key: &K) {
        self.failing.remove(key);
    }

    fn failures(&self, key: &K) -> u32 {
        self.failing.get(key).map_or(0, |failing| failing.failures)
    }
}

/// A bucket of tokens over all keys: each try reserves one, and waits until it is there.
#[derive(Debug)]
pub struct Bucket {
    per_second: f64,
    burst: f64,
    tokens: f64,
    filled: Option<Instant>,
}

impl Bucket {
    /// A full bucket of `burst` tokens that gains `per_second`.
    #[must_use]
    pub fn new(per_second: f64, burst: u32) -> Self {
        let burst = f64::from(burst);
        Self { per_second: per_second.max(f64::MIN_POSITIVE), burst, tokens: burst, filled: None }
    }
}

impl<K> Limiter<K> for Bucket {
    fn delay(&mut self, _: &K, now: Instant) -> Duration {
        if let Some(filled) = self.filled {
            let gained = now.saturating_duration_since(filled).as_secs_f64() * self.per_second;
            self.tokens = (self.tokens + gained).min(self.burst);
        }
        self.filled = Some(now);
        self.tokens -= 1.0;
        let missing = (-self.tokens).max(0.0);
        Duration::try_from_secs_f64(missing / self.per_second).unwrap_or(MAX_DELAY)
    }

    fn forget(&mut self, _: &K) {}

    fn failures(&self, _: &K) -> u32 {
        0
    }
}

/// The longest delay of several limiters; each of them counts the try.
pub struct MaxOf<K> {
    limiters: Vec<Box<dyn Limiter<K>>>,
}

impl<K> MaxOf<K> {
    /// Joins limiters.
    #[must_use]
    pub fn new(limiters: Vec<Box<dyn Limiter<K>>>) -> Self {
        Self { limiters }
    }
}

impl<K> Limiter<K> for MaxOf<K> {
    fn delay(&mut self, key: &K, now: Instant) -> Duration {
        self.limiters.iter_mut().map(|limiter| limiter.delay(key, now)).max().unwrap_or_default()
    }

    fn forget(&mut self, key: &K) {
        self.limiters.iter_mut().for_each(|limiter| limiter.forget(key));
    }

    fn failures(&self, key: &K) -> u32 {
        self.limiters.iter().map(|limiter| limiter.failures(key)).max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[tokio::test(start_paused = true)]
    async fn each_failure_doubles_the_delay_up_to_the_longest() {
        let mut limiter = Exponential::new(BASE_DELAY, Duration::from_millis(50));
        let now = Instant::now();
        let delays: Vec<_> = (0..6).map(|_| limiter.delay(&"a", now)).collect();
        assert_eq!(delays, [5 * MS, 10 * MS, 20 * MS, 40 * MS, 50 * MS, 50 * MS]);
        assert_eq!(limiter.failures(&"a"), 6);
        assert_eq!(limiter.delay(&"b", now), 5 * MS, "each key counts for itself");
        limiter.forget(&"a");
        assert_eq!((limiter.failures(&"a"), limiter.delay(&"a", now)), (0, 5 * MS));
    }

    #[tokio::test(start_paused = true)]
    async fn many_failures_do_not_overflow() {
        let mut limiter = Exponential::new(BASE_DELAY, MAX_DELAY);
        let now = Instant::now();
        let last = (0..100).map(|_| limiter.delay(&"a", now)).last();
        assert_eq!(last, Some(MAX_DELAY));
    }

    #[tokio::test(start_paused = true)]
    async fn failures_within_a_delay_do_not_lengthen_it() {
        let mut limiter = Exponential::new(BASE_DELAY, MAX_DELAY).once_per_window();
        let start = Instant::now();
        assert_eq!(limiter.delay(&"a", start), 5 * MS);
        assert_eq!(limiter.delay(&"a", start + 2 * MS), 3 * MS, "the rest of the delay");
        assert_eq!(limiter.failures(&"a"), 1);
        assert_eq!(limiter.delay(&"a", start + 5 * MS), 10 * MS, "the next delay after the first has passed");
        assert_eq!(limiter.failures(&"a"), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_bucket_lets_its_burst_through_and_then_spaces_tries() {
        let mut bucket = Bucket::new(10.0, 3);
        let now = Instant::now();
        let mut delay = |at| Limiter::<u8>::delay(&mut bucket, &0, at);
        assert_eq!(
            (0..5).map(|_| delay(now)).collect::<Vec<_>>(),
            [Duration::ZERO, Duration::ZERO, Duration::ZERO, 100 * MS, 200 * MS]
        );
        assert_eq!(delay(now + 300 * MS), Duration::ZERO, "300 ms bring three tokens: two were owed");
        assert_eq!(delay(now + 300 * MS), 100 * MS);
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_delay_wins_and_all_count() {
        let mut limiter: MaxOf<&str> =
            MaxOf::new(vec![Box::new(Exponential::new(BASE_DELAY, MAX_DELAY)), Box::new(Bucket::new(10.0, 1))]);
        let now = Instant::now();
        assert_eq!(limiter.delay(&"a", now), 5 * MS, "the bucket's first token is free");
        assert_eq!(limiter.delay(&"a", now), 100 * MS, "the bucket's next is longer than 10 ms");
        assert_eq!(limiter.failures(&"a"), 2);
    }
}
