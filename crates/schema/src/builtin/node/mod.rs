//! Kinds of the group `node.k8s.io`.

use std::sync::Arc;

use crate::behaviour::Behaviour;

pub mod runtimeclass;

/// What the kinds of this group decide for themselves.
pub(super) fn behaviour(_version: &str, plural: &str) -> Option<Arc<dyn Behaviour>> {
    Some(match plural {
        "runtimeclasses" => Arc::new(runtimeclass::RuntimeClass),
        _ => return None,
    })
}
