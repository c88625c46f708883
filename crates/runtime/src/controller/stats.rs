//! What a controller counts.

use std::time::Duration;

use serde::Serialize;

/// Upper bounds of the buckets of [`RunTimes`] in seconds. Same as controller-runtime.
pub const RUN_BOUNDS: [f64; 40] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5,
    1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0,
];

/// The figures of a controller at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ControllerStats {
    /// Runs that went well and asked for nothing.
    pub success: u64,
    /// Runs that went well and asked to run again after a time.
    pub requeue_after: u64,
    /// Runs that lost a race and were put back.
    pub requeue: u64,
    /// Runs that failed, for whatever reason.
    pub errors: u64,
    /// Of those, runs that failed for good.
    pub terminal_errors: u64,
    /// Of those, runs that panicked.
    pub panics: u64,
    /// Of those, runs that took too long.
    pub timeouts: u64,
    /// Keys given up after too many failures.
    pub given_up: u64,
    /// Runs put off because the caches had not seen the key's own writes.
    pub stale: u64,
    /// Warnings of the hot-loop detector.
    pub hot_loops: u64,
    /// Workers that hold a key now.
    pub active_workers: usize,
    /// Workers there are.
    pub max_concurrent: usize,
    /// How long runs took.
    pub time: RunTimes,
}

/// Counts of runs by how long they took, in the buckets of [`RUN_BOUNDS`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunTimes {
    /// Runs per bucket, not cumulative; the last bucket has no bound.
    pub buckets: Box<[u64]>,
    /// Sum of all spans in seconds.
    pub sum: f64,
}

impl Default for RunTimes {
    fn default() -> Self {
        Self { buckets: vec![0; RUN_BOUNDS.len() + 1].into(), sum: 0.0 }
    }
}

impl RunTimes {
    /// How many runs were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    pub(super) fn observe(&mut self, span: Duration) {
        let seconds = span.as_secs_f64();
        self.buckets[RUN_BOUNDS.partition_point(|bound| *bound < seconds)] += 1;
        self.sum += seconds;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_falls_into_the_first_bucket_whose_bound_is_not_below_it() {
        for (millis, bucket) in [(0, 0), (5, 0), (6, 1), (100, 4), (101, 5), (60_000, 39), (60_001, 40)] {
            let mut times = RunTimes::default();
            times.observe(Duration::from_millis(millis));
            assert_eq!(times.buckets.iter().position(|count| *count == 1), Some(bucket), "{millis} ms");
        }
    }
}
