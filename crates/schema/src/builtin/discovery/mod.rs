//! Kinds of the group `discovery.k8s.io`.

use std::sync::Arc;

use crate::behaviour::Behaviour;

pub mod endpointslice;

/// What the kinds of this group decide for themselves.
pub(super) fn behaviour(_version: &str, plural: &str) -> Option<Arc<dyn Behaviour>> {
    Some(match plural {
        "endpointslices" => Arc::new(endpointslice::EndpointSlice),
        _ => return None,
    })
}
