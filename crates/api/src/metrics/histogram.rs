//! How long things took, by bucket.

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Exposition;

/// The upper bounds of a histogram's buckets, in seconds and ascending. A type, so that histograms with other bounds
/// can't be mixed up and each is made without arguments.
pub trait Bounds {
    /// The bounds.
    const SECONDS: &'static [f64];

    /// Into how many parts a second is divided in the sum, which is a whole number of them and must not run over: one for what is
    /// measured in something else that is whole, such as bytes.
    const PARTS: f64 = 1e9;
}

/// Durations by bucket.
pub struct Histogram<B> {
    buckets: Box<[AtomicU64]>,
    /// Nanoseconds, or [`Bounds::PARTS`]: whole numbers can be added without a loop.
    sum: AtomicU64,
    bounds: PhantomData<fn() -> B>,
}

impl<B: Bounds> Default for Histogram<B> {
    fn default() -> Self {
        let buckets = B::SECONDS.iter().map(|_| AtomicU64::default()).chain([AtomicU64::default()]).collect();
        Histogram { buckets, sum: AtomicU64::default(), bounds: PhantomData }
    }
}

impl<B: Bounds> Histogram<B> {
    /// Something took so many seconds.
    pub fn record(&self, seconds: f64) {
        let at = B::SECONDS.partition_point(|bound| *bound < seconds);
        self.buckets[at].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add((seconds.max(0.0) * B::PARTS) as u64, Ordering::Relaxed);
    }

    /// How many were recorded.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).sum()
    }

    /// Buckets count all that is below their bound. Nothing is written where nothing was recorded.
    pub fn write(&self, labels: &[(&str, &str)], out: &mut Exposition) {
        let counts: Vec<u64> = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect();
        let total: u64 = counts.iter().sum();
        if total == 0 {
            return;
        }
        let mut below = 0;
        for (at, count) in counts.iter().enumerate() {
            below += count;
            let bound = B::SECONDS.get(at).map_or_else(|| "+Inf".to_owned(), f64::to_string);
            out.sample("_bucket", &[labels, &[("le", &bound)]].concat(), below);
        }
        out.sample("_sum", labels, self.sum.load(Ordering::Relaxed) as f64 / B::PARTS);
        out.sample("_count", labels, total);
    }
}

impl<B: Bounds> fmt::Debug for Histogram<B> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Histogram").field("count", &self.count()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Two;

    impl Bounds for Two {
        const SECONDS: &'static [f64] = &[0.5, 1.0];
    }

    #[test]
    fn a_bucket_counts_all_that_is_not_above_its_bound() {
        let histogram = Histogram::<Two>::default();
        for seconds in [0.5, 0.75, 3.0] {
            histogram.record(seconds);
        }
        let mut out = Exposition::default();
        out.family("t", "histogram", "T.");
        histogram.write(&[("a", "b")], &mut out);
        let lines = r#"t_bucket{a="b",le="0.5"} 1
t_bucket{a="b",le="1"} 2
t_bucket{a="b",le="+Inf"} 3
t_sum{a="b"} 4.25
t_count{a="b"} 3
"#;
        assert_eq!(out.into_text(), format!("# HELP t T.\n# TYPE t histogram\n{lines}"));
    }

    struct Bytes;

    impl Bounds for Bytes {
        const SECONDS: &'static [f64] = &[1e3];
        const PARTS: f64 = 1.0;
    }

    #[test]
    fn a_sum_of_bytes_holds_more_than_any_process_sends() {
        let histogram = Histogram::<Bytes>::default();
        for _ in 0..3 {
            histogram.record(1e13);
        }
        let mut out = Exposition::default();
        out.family("t", "histogram", "T.");
        histogram.write(&[], &mut out);
        assert!(out.into_text().contains("t_sum 30000000000000\n"));
    }
}
