//! What is counted of a cache while it follows the server.

use setpoint_api::metrics::{Bounds, Counter, Gauge, Histogram};
use tokio::time::Instant;

/// The buckets of client-go.
#[derive(Debug)]
pub struct ProcessingSeconds;

impl Bounds for ProcessingSeconds {
    const SECONDS: &'static [f64] = &[0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
}

/// Counted by whoever follows, read by [`Metrics`](crate::metrics::Metrics).
#[derive(Debug, Default)]
pub struct Figures {
    /// Objects of a list that have come and are not in the cache yet.
    pub queued: Gauge,
    /// How long it took to put a change into the cache and to tell handlers of it.
    pub processing: Histogram<ProcessingSeconds>,
    /// Watches that were opened.
    pub watches: Counter,
    /// Those that ended within a second without an event.
    pub short_watches: Counter,
    /// How often following had to wait before it was tried again.
    pub failures: Counter,
}

impl Figures {
    /// Notes how long a change took.
    pub fn processed<T>(&self, change: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let done = change();
        self.processing.record(began.elapsed().as_secs_f64());
        done
    }
}
