//! Kinds of the group `authorization.k8s.io`: questions that the server answers and never stores.
//!
//! Only the rules for their bodies are here. They have no name, so the rules of stored objects don't hold for them:
//! [`Behaviour::check_create`] alone is the whole check.

use std::sync::Arc;

use crate::behaviour::Behaviour;

mod attributes;

pub mod localsubjectaccessreview;
pub mod selfsubjectaccessreview;
pub mod subjectaccessreview;

/// What the kinds of this group decide for themselves.
pub(super) fn behaviour(_version: &str, plural: &str) -> Option<Arc<dyn Behaviour>> {
    Some(match plural {
        "localsubjectaccessreviews" => Arc::new(localsubjectaccessreview::LocalSubjectAccessReview),
        "selfsubjectaccessreviews" => Arc::new(selfsubjectaccessreview::SelfSubjectAccessReview),
        "subjectaccessreviews" => Arc::new(subjectaccessreview::SubjectAccessReview),
        _ => return None,
    })
}
