//! Kinds of the group `batch`.

use std::sync::Arc;

use crate::behaviour::Behaviour;

pub mod cronjob;
mod failure_policy;
mod indexes;
pub mod job;
mod job_spec;
mod job_status;
mod job_update;
mod success_policy;
mod time_zone;

/// What the kinds of this group decide for themselves.
pub(super) fn behaviour(_version: &str, plural: &str) -> Option<Arc<dyn Behaviour>> {
    Some(match plural {
        "cronjobs" => Arc::new(cronjob::CronJob),
        "jobs" => Arc::new(job::Job),
        _ => return None,
    })
}
