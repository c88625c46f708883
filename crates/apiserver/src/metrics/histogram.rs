//! How long requests took.

use std::sync::atomic::{AtomicU64, Ordering};

use super::exposition::Exposition;

/// Upper bounds in seconds, the same as upstream's.
const BOUNDS: [f64; 23] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
    45.0, 60.0,
];

/// Durations by bucket.
#[derive(Debug, Default)]
pub(super) struct Histogram {
    buckets: [AtomicU64; BOUNDS.len() + 1],
    /// Nanoseconds: whole numbers can be added without a loop.
    sum: AtomicU64,
}

impl Histogram {
    pub(super) fn record(&self, seconds: f64) {
        let at = BOUNDS.partition_point(|bound| *bound < seconds);
        self.buckets[at].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add((seconds.max(0.0) * 1e9) as u64, Ordering::Relaxed);
    }

    /// Buckets count all that is below their bound. Nothing is written where nothing was recorded.
    pub(super) fn write(&self, labels: &[(&str, &str)], out: &mut Exposition) {
        let counts: Vec<u64> = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect();
        let total: u64 = counts.iter().sum();
        if total == 0 {
            return;
        }
        let mut below = 0;
        for (at, count) in counts.iter().enumerate() {
            below += count;
            let bound = BOUNDS.get(at).map_or_else(|| "+Inf".to_owned(), f64::to_string);
            out.sample("_bucket", &[labels, &[("le", &bound)]].concat(), below);
        }
        out.sample("_sum", labels, self.sum.load(Ordering::Relaxed) as f64 / 1e9);
        out.sample("_count", labels, total);
    }
}
