//! What is counted of elections.

use std::sync::Arc;

use setpoint_api::metrics::{Counter, Exposition, Gauge};

/// The figures of one election. Clones are the same figures.
#[derive(Clone, Debug, Default)]
pub struct LeaderMetrics(pub(super) Arc<Figures>);

#[derive(Debug, Default)]
pub(super) struct Figures {
    leading: Gauge,
    slow_paths: Counter,
}

impl LeaderMetrics {
    /// Whether this process leads now.
    pub fn leading(&self, leading: bool) {
        self.0.leading.set(i64::from(leading));
    }

    /// What was said last.
    pub fn is_leading(&self) -> bool {
        self.0.leading.value() == 1
    }

    /// So many more renewals had to read the Lease first.
    pub fn slow_paths(&self, count: u64) {
        self.0.slow_paths.add(count);
    }
}

pub(super) fn write(all: &[(String, Arc<Figures>)], out: &mut Exposition) {
    out.family("leader_election_master_status", "gauge", "1 while this process leads, 0 while another may.");
    for (name, figures) in all {
        out.sample("", &[("name", name)], figures.leading.value());
    }
    out.family("leader_election_slowpath_total", "counter", "Renewals that had to read the Lease first.");
    for (name, figures) in all {
        out.sample("", &[("name", name)], figures.slow_paths.value());
    }
}
