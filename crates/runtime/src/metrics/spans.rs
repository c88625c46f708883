//! Histograms of queues and controllers as Prometheus reads them.

use setpoint_api::metrics::Exposition;

use crate::queue::stats::{BUCKET_BOUNDS, Histogram};

/// Buckets count all that is below their bound.
pub(super) fn write_spans(spans: &Histogram, labels: &[(&str, &str)], out: &mut Exposition) {
    let mut below = 0;
    for (at, count) in spans.buckets.iter().enumerate() {
        below += count;
        let bound = BUCKET_BOUNDS.get(at).map_or_else(|| "+Inf".to_owned(), f64::to_string);
        out.sample("_bucket", &[labels, &[("le", &bound)]].concat(), below);
    }
    out.sample("_sum", labels, spans.sum);
    out.sample("_count", labels, below);
}
