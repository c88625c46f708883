//! Names such as `acme.io/foo`: a domain, and a path within it that its owner is free to choose.

use setpoint_api::name;

use crate::errors::Errors;
use crate::node::Node;

/// What is wrong with the name at this place.
pub fn validate(at: &Node<'_>, errs: &mut Errors) {
    let text = at.as_str();
    if text.is_empty() {
        return errs.required(at, "");
    }
    for (part, complaint) in name::domain_prefixed_path(text) {
        errs.invalid(at, part, complaint);
    }
}
