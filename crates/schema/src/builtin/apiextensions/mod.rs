//! Kinds of the group `apiextensions.k8s.io`.

use std::sync::Arc;

use crate::behaviour::Behaviour;

mod conversion;
mod definition;
mod field_path;
mod format;
mod rule;
mod schema;
mod schema_default;
mod structural;

pub mod customresourcedefinition;

/// What the kinds of this group decide for themselves.
pub(super) fn behaviour(_version: &str, plural: &str) -> Option<Arc<dyn Behaviour>> {
    match plural {
        "customresourcedefinitions" => Some(Arc::new(customresourcedefinition::CustomResourceDefinition)),
        _ => None,
    }
}
