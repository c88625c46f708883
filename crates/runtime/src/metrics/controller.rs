//! What controllers count, under controller-runtime's names and the plain ones.

use std::fmt::Display;

use setpoint_api::metrics::Exposition;

use super::spans::write_spans;
use crate::controller::{ControllerStats, RUN_BOUNDS};

type All = [(String, ControllerStats)];

pub(super) fn write(all: &All, out: &mut Exposition) {
    out.family("controller_runtime_reconcile_total", "counter", "Reconciles by result.");
    for (name, stats) in all {
        let results = [
            ("error", stats.errors),
            ("requeue", stats.requeue),
            ("requeue_after", stats.requeue_after),
            ("success", stats.success),
        ];
        for (result, count) in results {
            out.sample("", &[("controller", name), ("result", result)], count);
        }
    }
    let errors = "Reconciles that failed.";
    each(all, "controller_runtime_reconcile_errors_total", "counter", errors, out, |it| it.errors);
    each(all, "controller_reconcile_errors_total", "counter", errors, out, |it| it.errors);
    let terminal = "Reconciles that failed for good.";
    each(all, "controller_runtime_terminal_reconcile_errors_total", "counter", terminal, out, |it| it.terminal_errors);
    let panics = "Reconciles that panicked.";
    each(all, "controller_runtime_reconcile_panics_total", "counter", panics, out, |it| it.panics);
    let timeouts = "Reconciles that ran into their timeout.";
    each(all, "controller_runtime_reconcile_timeouts_total", "counter", timeouts, out, |it| it.timeouts);
    let most = "Reconciles that may run at once.";
    each(all, "controller_runtime_max_concurrent_reconciles", "gauge", most, out, |it| it.max_concurrent);
    let active = "Reconciles that run now.";
    each(all, "controller_runtime_active_workers", "gauge", active, out, |it| it.active_workers);
    let given_up = "Keys that were given up after too many failures.";
    each(all, "controller_given_up_total", "counter", given_up, out, |it| it.given_up);
    let stale = "Reconciles that were put off until the caches had seen the controller's own writes.";
    each(all, "controller_stale_total", "counter", stale, out, |it| it.stale);
    let loops = "Warnings of controllers whose own writes wake them again and again.";
    each(all, "controller_hot_loops_total", "counter", loops, out, |it| it.hot_loops);
    for family in ["controller_runtime_reconcile_time_seconds", "controller_reconcile_time_seconds"] {
        out.family(family, "histogram", "Seconds that reconciles took.");
        for (name, stats) in all {
            write_spans(&RUN_BOUNDS, &stats.time.buckets, stats.time.sum, &[("controller", name)], out);
        }
    }
}

fn each<V: Display>(
    all: &All,
    family: &'static str,
    kind: &str,
    help: &str,
    out: &mut Exposition,
    value: impl Fn(&ControllerStats) -> V,
) {
    out.family(family, kind, help);
    for (name, stats) in all {
        out.sample("", &[("controller", name)], value(stats));
    }
}
