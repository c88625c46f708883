//! Histograms of queues and controllers as Prometheus reads them.

use setpoint_api::metrics::Exposition;

/// Buckets count all that is below their bound.
pub(super) fn write_spans(bounds: &[f64], buckets: &[u64], sum: f64, labels: &[(&str, &str)], out: &mut Exposition) {
    let mut below = 0;
    for (at, count) in buckets.iter().enumerate() {
        below += count;
        let bound = bounds.get(at).map_or_else(|| "+Inf".to_owned(), f64::to_string);
        out.sample("_bucket", &[labels, &[("le", &bound)]].concat(), below);
    }
    out.sample("_sum", labels, sum);
    out.sample("_count", labels, below);
}
