//! What classes of storage have in common: a driver and its parameters.

use setpoint_api::name;

use crate::errors::Errors;
use crate::node::Node;

/// Keys and values of all parameters together.
const BYTES_MAX: usize = 256 * 1024;
/// How many parameters there may be.
const COUNT_MAX: usize = 512;
/// Longest name of a CSI driver, given by the CSI specification.
const DRIVER_BYTES_MAX: usize = 63;

/// The name of whoever makes the volumes: a qualified name in any case.
pub(super) fn validate_provisioner(at: &Node<'_>, errs: &mut Errors) {
    match at.as_str().to_lowercase() {
        lower if lower.is_empty() => errs.required(at, ""),
        lower => errs.invalid_each(at, &lower, name::qualified_name(&lower)),
    }
}

/// Free keys and values, bounded in number and size.
pub(super) fn validate_parameters(at: &Node<'_>, errs: &mut Errors) {
    let entries: Vec<_> = at.clone().into_entries().collect();
    if entries.len() > COUNT_MAX {
        return errs.too_long(at, COUNT_MAX);
    }
    for (key, _) in entries.iter().filter(|(key, _)| key.is_empty()) {
        errs.invalid(at, *key, "field can not be empty.");
    }
    let bytes: usize = entries.iter().map(|(key, value)| key.len() + value.as_str().len()).sum();
    if bytes > BYTES_MAX {
        errs.too_long(at, BYTES_MAX);
    }
}

/// The name of a CSI driver: a subdomain in any case.
pub fn validate_driver_name(at: &Node<'_>, errs: &mut Errors) {
    let driver = at.as_str();
    if driver.is_empty() {
        return errs.required(at, "");
    }
    if driver.len() > DRIVER_BYTES_MAX {
        errs.too_long(at, DRIVER_BYTES_MAX);
    }
    errs.invalid_each(at, driver, name::dns1123_subdomain(&driver.to_lowercase()));
}
