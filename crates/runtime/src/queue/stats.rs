//! What a queue counts, in the shape that dashboards for work queues expect.

use std::time::Duration;

use serde::Serialize;

/// Upper bounds of the histograms' buckets in seconds: twelve steps of ten from 10 ns. Same as controller-runtime.
pub const BUCKET_BOUNDS: [f64; 12] = [1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1000.0];

/// The figures of a queue at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueStats {
    /// Keys that are ready for a worker, by priority: low, normal, high.
    pub depth: [usize; 3],
    /// Keys that wait for their time.
    pub waiting: usize,
    /// Keys that workers hold.
    pub processing: usize,
    /// Adds that put or kept a key in the queue; repetitions of what is queued already don't count.
    pub adds: u64,
    /// Adds that a limiter delayed.
    pub retries: u64,
    /// How long keys were ready before a worker took them. All are measured up to a million per second; beyond that a
    /// sample is, each standing for those left out, and up to 31 of the last may be missing.
    pub queue_duration: Histogram,
    /// How long workers held keys; measured likewise.
    pub work_duration: Histogram,
    /// For how long, in sum, keys are held now; one that was left out in a burst from when these figures were next asked for.
    pub unfinished: Duration,
    /// For how long the longest held key is held now.
    pub longest_running: Duration,
}

/// Counts of spans by [`BUCKET_BOUNDS`].
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Histogram {
    /// Spans per bucket, not cumulative; the last bucket has no bound.
    pub buckets: [u64; BUCKET_BOUNDS.len() + 1],
    /// Sum of all spans in seconds.
    pub sum: f64,
}

impl Histogram {
    /// How many spans were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Counts a span that stands for so many like it.
    pub(crate) fn observe(&mut self, span: Duration, times: u32) {
        // Decimal digits of the nanoseconds: 10 ns is the first bound, each bucket has one digit more.
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        let bucket = if nanos <= 10 { 0 } else { (nanos - 1).ilog10() as usize };
        self.buckets[bucket.min(BUCKET_BOUNDS.len())] += u64::from(times);
        self.sum += span.as_secs_f64() * f64::from(times);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_falls_into_the_first_bucket_whose_bound_is_not_below_it() {
        for nanos in [
            0,
            1,
            9,
            10,
            11,
            99,
            100,
            101,
            1_000,
            1_001,
            999_999_999,
            1_000_000_000,
            10_000_000_000,
            10_000_000_001,
            5_000_000_000_000,
        ] {
            let mut histogram = Histogram::default();
            histogram.observe(Duration::from_nanos(nanos), 1);
            let seconds = nanos as f64 / 1e9;
            let expected = BUCKET_BOUNDS.iter().position(|bound| seconds <= *bound).unwrap_or(BUCKET_BOUNDS.len());
            assert_eq!(histogram.buckets.iter().position(|count| *count == 1), Some(expected), "{nanos} ns");
        }
    }
}
