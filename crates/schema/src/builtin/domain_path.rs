//! Names such as `acme.io/foo`: a domain, and a path within it that its owner is free to choose.

use setpoint_api::name;

use crate::errors::Errors;
use crate::node::Node;

/// What a path may be made of, as upstream shows it.
const PATH_REGEX: &str = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+";

/// What is wrong with the name at this place.
pub fn validate(at: &Node<'_>, errs: &mut Errors) {
    let text = at.as_str();
    if text.is_empty() {
        return errs.required(at, "");
    }
    match text.split_once('/') {
        Some((host, path)) if !host.is_empty() && !path.is_empty() => {
            errs.invalid_each(at, host, name::dns1123_subdomain(host));
            let good = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte);
            if !path.bytes().all(good) {
                errs.invalid(at, path, name::regex_error("Invalid path", PATH_REGEX, &[]));
            }
        }
        _ => errs.invalid(at, text, "must be a domain-prefixed path (such as \"acme.io/foo\")"),
    }
}
