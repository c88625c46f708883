//! Single figures.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Only ever grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Counts `count` more.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// What was counted so far.
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Goes up and down.
#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

impl Gauge {
    /// Shows `value` from now on.
    pub fn set(&self, value: i64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Shows `change` more, or less where it is negative.
    pub fn add(&self, change: i64) {
        self.0.fetch_add(change, Ordering::Relaxed);
    }

    /// What it shows.
    pub fn value(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Shows one more until the result is dropped.
    #[must_use]
    pub fn hold(self: &Arc<Self>) -> Held {
        self.add(1);
        Held(Arc::clone(self))
    }
}

/// One that a [`Gauge`] counts while this lives.
#[derive(Debug)]
pub struct Held(Arc<Gauge>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.add(-1);
    }
}
