//! Kinds of the group `authentication.k8s.io`.

use std::sync::Arc;

use crate::behaviour::Behaviour;

/// What the kinds of this group decide for themselves.
pub(super) fn behaviour(_version: &str, _plural: &str) -> Option<Arc<dyn Behaviour>> {
    None
}
