//! What is counted of each controller.

use std::sync::Arc;

use setpoint_api::metrics::{Bounds, Counter, Exposition, Gauge, Held, Histogram};

/// The buckets of controller-runtime.
pub(super) struct ReconcileSeconds;

impl Bounds for ReconcileSeconds {
    const SECONDS: &'static [f64] = &[
        0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5,
        1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0,
    ];
}

/// How a reconcile ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done, until something changes.
    Success,
    /// Again, after a back-off, without an error.
    Requeue,
    /// Again, after a time that the reconciler chose.
    RequeueAfter,
    /// Failed; will be tried again.
    Error,
    /// Failed, and trying again would not help.
    Terminal,
}

/// The `result` labels in the order that they are written in.
const RESULTS: [&str; 4] = ["error", "requeue", "requeue_after", "success"];

/// The figures of one controller. Clones are the same figures.
#[derive(Clone, Debug, Default)]
pub struct ControllerMetrics(pub(super) Arc<Figures>);

#[derive(Debug, Default)]
pub(super) struct Figures {
    results: [Counter; RESULTS.len()],
    errors: Counter,
    terminal: Counter,
    panics: Counter,
    timeouts: Counter,
    seconds: Histogram<ReconcileSeconds>,
    workers_max: Gauge,
    active: Arc<Gauge>,
}

impl ControllerMetrics {
    /// A reconcile ended after so many seconds.
    pub fn reconciled(&self, outcome: Outcome, seconds: f64) {
        let at = match outcome {
            Outcome::Error | Outcome::Terminal => 0,
            Outcome::Requeue => 1,
            Outcome::RequeueAfter => 2,
            Outcome::Success => 3,
        };
        self.0.results[at].add(1);
        self.0.seconds.record(seconds);
        match outcome {
            Outcome::Terminal => {
                self.0.errors.add(1);
                self.0.terminal.add(1);
            }
            Outcome::Error => self.0.errors.add(1),
            Outcome::Success | Outcome::Requeue | Outcome::RequeueAfter => (),
        }
    }

    /// A reconcile panicked. It is counted as an error too, by [`reconciled`](Self::reconciled).
    pub fn panicked(&self) {
        self.0.panics.add(1);
    }

    /// A reconcile ran into its timeout. It is counted as an error too, by [`reconciled`](Self::reconciled).
    pub fn timed_out(&self) {
        self.0.timeouts.add(1);
    }

    /// How many reconciles may run at once.
    pub fn workers_max(&self, count: usize) {
        self.0.workers_max.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// A worker is busy until the result is dropped.
    #[must_use]
    pub fn working(&self) -> Held {
        self.0.active.hold()
    }
}

type All = [(String, Arc<Figures>)];

pub(super) fn write(all: &All, out: &mut Exposition) {
    out.family("controller_runtime_reconcile_total", "counter", "Reconciles by result.");
    for (name, figures) in all {
        for (result, counter) in RESULTS.iter().zip(&figures.results) {
            out.sample("", &[("controller", name), ("result", result)], counter.value());
        }
    }
    let errors = "Reconciles that failed.";
    write_each(all, "controller_runtime_reconcile_errors_total", "counter", errors, out, |it| it.errors.value());
    write_each(all, "controller_reconcile_errors_total", "counter", errors, out, |it| it.errors.value());
    let terminal = "Reconciles that failed for good.";
    write_each(all, "controller_runtime_terminal_reconcile_errors_total", "counter", terminal, out, |it| {
        it.terminal.value()
    });
    let panics = "Reconciles that panicked.";
    write_each(all, "controller_runtime_reconcile_panics_total", "counter", panics, out, |it| it.panics.value());
    let timeouts = "Reconciles that ran into their timeout.";
    write_each(all, "controller_runtime_reconcile_timeouts_total", "counter", timeouts, out, |it| it.timeouts.value());
    let most = "Reconciles that may run at once.";
    write_each(all, "controller_runtime_max_concurrent_reconciles", "gauge", most, out, |it| it.workers_max.value());
    let active = "Reconciles that run now.";
    write_each(all, "controller_runtime_active_workers", "gauge", active, out, |it| it.active.value());
    for family in ["controller_runtime_reconcile_time_seconds", "controller_reconcile_time_seconds"] {
        out.family(family, "histogram", "Seconds that reconciles took.");
        for (name, figures) in all {
            figures.seconds.write(&[("controller", name)], out);
        }
    }
}

fn write_each<V: std::fmt::Display>(
    all: &All,
    family: &'static str,
    kind: &str,
    help: &str,
    out: &mut Exposition,
    value: impl Fn(&Figures) -> V,
) {
    out.family(family, kind, help);
    for (name, figures) in all {
        out.sample("", &[("controller", name)], value(figures));
    }
}
