//! Kinds of the group `apiregistration.k8s.io`.

use std::sync::Arc;

use crate::behaviour::Behaviour;

pub mod apiservice;

/// What the kinds of this group decide for themselves.
pub(super) fn behaviour(_version: &str, plural: &str) -> Option<Arc<dyn Behaviour>> {
    match plural {
        "apiservices" => Some(Arc::new(apiservice::ApiService)),
        _ => None,
    }
}
