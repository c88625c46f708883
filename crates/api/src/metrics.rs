//! Figures that others count and Prometheus reads: counters, gauges, histograms, series by label, and the text itself.
//!
//! Recording is an atomic addition; nothing here asks for the time or decides when it is read.

mod exposition;
mod figure;
mod histogram;
mod process;
mod series;

pub use exposition::Exposition;
pub use figure::{Counter, Gauge, Held};
pub use histogram::{Bounds, Histogram};
pub use process::Process;
pub use series::{Family, SERIES_MAX};

/// The media type of [`Exposition::into_text`].
pub const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=values";
