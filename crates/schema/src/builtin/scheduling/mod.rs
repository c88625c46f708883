//! Kinds of the group `scheduling.k8s.io`.

use std::sync::Arc;

use crate::behaviour::Behaviour;

pub mod priorityclass;

/// What the kinds of this group decide for themselves.
pub(super) fn behaviour(_version: &str, plural: &str) -> Option<Arc<dyn Behaviour>> {
    Some(match plural {
        "priorityclasses" => Arc::new(priorityclass::PriorityClass),
        _ => return None,
    })
}
