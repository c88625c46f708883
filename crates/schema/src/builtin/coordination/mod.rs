//! Kinds of the group `coordination.k8s.io`.

use std::sync::Arc;

use crate::behaviour::Behaviour;

pub mod lease;

/// What the kinds of this group decide for themselves.
pub(super) fn behaviour(_version: &str, plural: &str) -> Option<Arc<dyn Behaviour>> {
    Some(match plural {
        "leases" => Arc::new(lease::Lease),
        _ => return None,
    })
}
