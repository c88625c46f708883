//! What the process uses, as Linux tells it.

use std::fs;

use setpoint_api::metrics::{Exposition, Process};

/// Writes what this process uses, under the names that Prometheus' own clients have (`process_resident_memory_bytes` and its kin);
/// nothing where there is no `/proc`. [`Probes`](super::Probes) tell it by themselves; others add it to their figures, once:
///
/// ```
/// use setpoint_runtime::metrics::Metrics;
/// use setpoint_runtime::probes::process_figures;
///
/// let metrics = Metrics::new();
/// assert!(metrics.add(process_figures));
/// assert_eq!(metrics.text().contains("process_open_fds "), cfg!(target_os = "linux"));
/// ```
pub fn process_figures(out: &mut Exposition) {
    let text = |path| fs::read_to_string(path).unwrap_or_default();
    Process {
        stat: text("/proc/self/stat"),
        status: text("/proc/self/status"),
        limits: text("/proc/self/limits"),
        system: text("/proc/stat"),
        open_files: fs::read_dir("/proc/self/fd").ok().map(Iterator::count),
    }
    .write(out);
}
