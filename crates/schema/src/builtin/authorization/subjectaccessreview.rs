//! SubjectAccessReview: may somebody do this?

use super::attributes::{validate_attributes, validate_metadata, validate_selectors, validate_subject};
use crate::behaviour::Behaviour;
use crate::errors::Errors;
use crate::kind::Kind;
use crate::node::Node;

/// The decisions of SubjectAccessReview.
#[derive(Debug)]
pub struct SubjectAccessReview;

impl Behaviour for SubjectAccessReview {
    fn check_create(&self, _kind: &Kind, object: &Node<'_>, errs: &mut Errors) {
        let spec = object.get("spec");
        validate_attributes(&spec, errs);
        validate_subject(&spec, errs);
        validate_selectors(&spec, errs);
        validate_metadata(object, &[], "must be empty", errs);
    }
}
