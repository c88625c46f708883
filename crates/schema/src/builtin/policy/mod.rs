//! Kinds of the group `policy`.

use std::sync::Arc;

use crate::behaviour::Behaviour;

pub mod poddisruptionbudget;

/// What the kinds of this group decide for themselves.
pub(super) fn behaviour(_version: &str, plural: &str) -> Option<Arc<dyn Behaviour>> {
    Some(match plural {
        "poddisruptionbudgets" => Arc::new(poddisruptionbudget::PodDisruptionBudget),
        _ => return None,
    })
}
