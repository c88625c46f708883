//! What work queues count, under client-go's names, controller-runtime's labels, and the plain names.

use std::fmt::Display;

use setpoint_api::metrics::Exposition;

use super::spans::write_spans;
use crate::queue::stats::{BUCKET_BOUNDS, Histogram, QueueStats};

/// The priorities of [`QueueStats::depth`], as labels.
const PRIORITIES: [&str; 3] = ["low", "normal", "high"];

pub(super) fn write(all: &[(String, QueueStats)], out: &mut Exposition) {
    out.family("workqueue_depth", "gauge", "Keys that are ready for a worker.");
    for (name, stats) in all {
        for (priority, depth) in PRIORITIES.iter().zip(stats.depth) {
            out.sample("", &[("name", name), ("controller", name), ("priority", priority)], depth);
        }
    }
    let depth = "Keys that are ready for a worker.";
    plain(all, "controller_workqueue_depth", "gauge", depth, out, |stats| stats.depth.iter().sum::<usize>());
    let adds = "Keys that were added.";
    each(all, "workqueue_adds_total", "counter", adds, out, |stats| stats.adds);
    plain(all, "controller_workqueue_adds_total", "counter", adds, out, |stats| stats.adds);
    let retries = "Keys that were added again after a back-off.";
    each(all, "workqueue_retries_total", "counter", retries, out, |stats| stats.retries);
    plain(all, "controller_workqueue_retries_total", "counter", retries, out, |stats| stats.retries);
    let unfinished = "Seconds for which keys are being worked on, in sum.";
    each(all, "workqueue_unfinished_work_seconds", "gauge", unfinished, out, |stats| stats.unfinished.as_secs_f64());
    let longest = "Seconds for which the longest running key is being worked on.";
    each(all, "workqueue_longest_running_processor_seconds", "gauge", longest, out, |stats| {
        stats.longest_running.as_secs_f64()
    });
    spans(all, "workqueue_queue_duration_seconds", "Seconds that keys waited for a worker.", out, |stats| {
        &stats.queue_duration
    });
    spans(all, "workqueue_work_duration_seconds", "Seconds that keys were worked on.", out, |stats| {
        &stats.work_duration
    });
}

type All = [(String, QueueStats)];

fn each<V: Display>(
    all: &All,
    family: &'static str,
    kind: &str,
    help: &str,
    out: &mut Exposition,
    value: impl Fn(&QueueStats) -> V,
) {
    out.family(family, kind, help);
    for (name, stats) in all {
        out.sample("", &[("name", name), ("controller", name)], value(stats));
    }
}

fn plain<V: Display>(
    all: &All,
    family: &'static str,
    kind: &str,
    help: &str,
    out: &mut Exposition,
    value: impl Fn(&QueueStats) -> V,
) {
    out.family(family, kind, help);
    for (name, stats) in all {
        out.sample("", &[("controller", name)], value(stats));
    }
}

fn spans(all: &All, family: &'static str, help: &str, out: &mut Exposition, spans: impl Fn(&QueueStats) -> &Histogram) {
    out.family(family, "histogram", help);
    for (name, stats) in all {
        let Histogram { buckets, sum } = spans(stats);
        write_spans(&BUCKET_BOUNDS, buckets, *sum, &[("name", name), ("controller", name)], out);
    }
}
