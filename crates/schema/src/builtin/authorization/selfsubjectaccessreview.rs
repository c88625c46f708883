//! SelfSubjectAccessReview: may I do this?

use super::attributes::{validate_attributes, validate_metadata, validate_selectors};
use crate::behaviour::Behaviour;
use crate::errors::Errors;
use crate::kind::Kind;
use crate::node::Node;

/// The decisions of SelfSubjectAccessReview.
#[derive(Debug)]
pub struct SelfSubjectAccessReview;

impl Behaviour for SelfSubjectAccessReview {
    fn check_create(&self, _kind: &Kind, object: &Node<'_>, errs: &mut Errors) {
        let spec = object.get("spec");
        validate_attributes(&spec, errs);
        validate_selectors(&spec, errs);
        validate_metadata(object, &[], "must be empty", errs);
    }
}
