//! What the process uses, as Linux tells it. Elsewhere nothing is told.

use std::fs;

use setpoint_api::metrics::{Exposition, Process};

/// Writes what can be known.
pub(super) fn write(out: &mut Exposition) {
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
