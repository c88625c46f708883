//! How long requests took.

use setpoint_api::metrics::Bounds;

/// Upper bounds in seconds, the same as upstream's.
#[derive(Debug)]
pub(super) struct Seconds;

impl Bounds for Seconds {
    const SECONDS: &'static [f64] = &[
        0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0,
        30.0, 45.0, 60.0,
    ];
}
