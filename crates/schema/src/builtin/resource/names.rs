//! Names of drivers, pools, requests and attributes.

use setpoint_api::name;

use crate::errors::Errors;
use crate::node::Node;

const DRIVER_BYTES_MAX: usize = 63;
const POOL_BYTES_MAX: usize = 253;
const IDENTIFIER_BYTES_MAX: usize = 32;

/// A driver is a DNS name in any case.
pub(super) fn validate_driver(at: &Node<'_>, errs: &mut Errors) {
    if at.is_empty() { errs.required(at, "") } else { driver(at, at.as_str(), errs) }
}

/// A pool is one or more DNS names with slashes between them.
pub(super) fn validate_pool(at: &Node<'_>, errs: &mut Errors) {
    let text = at.as_str();
    if text.is_empty() {
        return errs.required(at, "");
    }
    if text.len() > POOL_BYTES_MAX {
        errs.too_long(at, POOL_BYTES_MAX);
    }
    for part in text.split('/') {
        errs.invalid_each(at, part, name::dns1123_subdomain(part));
    }
}

/// Devices, requests and counters have names that are DNS labels.
pub(super) fn validate_label(at: &Node<'_>, errs: &mut Errors) {
    errs.invalid_each(at, at.as_str(), name::dns1123_label(at.as_str()));
}

/// The name of an attribute or a capacity: an identifier, optionally after a domain and a slash.
pub(super) fn validate_qualified(at: &Node<'_>, text: &str, errs: &mut Errors) {
    let parts: Vec<&str> = text.split('/').collect();
    match parts.as_slice() {
        [id] => identifier(at, id, errs),
        [domain, id] => {
            if domain.is_empty() {
                errs.invalid(at, "", "the domain must not be empty");
            } else {
                driver(at, domain, errs);
            }
            if id.is_empty() {
                errs.invalid(at, "", "the name must not be empty");
            } else {
                identifier(at, id, errs);
            }
        }
        // Upstream takes what has more slashes.
        _ => {}
    }
}

/// The same with the domain required.
pub(super) fn validate_fully_qualified(at: &Node<'_>, errs: &mut Errors) {
    validate_qualified(at, at.as_str(), errs);
    if !at.as_str().contains('/') {
        errs.invalid_here(at, "a fully qualified name must be a domain and a name separated by a slash");
    }
}

/// A unique id in its usual form.
pub(super) fn validate_uid(at: &Node<'_>, errs: &mut Errors) {
    let text = at.as_str();
    let dashes = [8, 13, 18, 23];
    let is_digit = |byte: u8| byte.is_ascii_hexdigit();
    if text.len() != 36 {
        let detail = format!("error validating uid: invalid UUID length: {}", text.len());
        return errs.invalid(at, text, detail);
    }
    let good =
        text.bytes().enumerate().all(|(i, byte)| if dashes.contains(&i) { byte == b'-' } else { is_digit(byte) });
    if !good {
        errs.invalid(at, text, "error validating uid: invalid UUID format");
    } else if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
        let detail = "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase \
                      hexadecimal characters";
        errs.invalid(at, text, detail);
    }
}

fn driver(at: &Node<'_>, text: &str, errs: &mut Errors) {
    if text.len() > DRIVER_BYTES_MAX {
        errs.too_long(at, DRIVER_BYTES_MAX);
    }
    errs.invalid_each(at, text, name::dns1123_subdomain(&text.to_lowercase()));
}

fn identifier(at: &Node<'_>, text: &str, errs: &mut Errors) {
    if text.len() > IDENTIFIER_BYTES_MAX {
        errs.too_long(at, IDENTIFIER_BYTES_MAX);
    }
    errs.invalid_each(at, text, name::c_identifier(text));
}
