//! Where an Ingress sends requests: a service or another resource.

use setpoint_api::name;

use crate::errors::Errors;
use crate::node::Node;

/// The rules for one backend.
pub(super) fn validate_backend(backend: &Node<'_>, errs: &mut Errors) {
    match (backend.has("resource"), backend.has("service")) {
        (true, true) => errs.invalid(backend, "", "cannot set both resource and service backends"),
        (true, false) => validate_reference(&backend.get("resource"), errs),
        (false, true) => validate_service(backend, errs),
        (false, false) => errs.invalid(backend, "", "resource or service backend is required"),
    }
}

/// The rules for a group, a kind and a name, here and in the parameters of an IngressClass.
pub(super) fn validate_reference(reference: &Node<'_>, errs: &mut Errors) {
    if reference.has("apiGroup") {
        let group = reference.str("apiGroup");
        errs.invalid_each(&reference.get("apiGroup"), group, name::dns1123_subdomain(group));
    }
    for field in ["kind", "name"] {
        require_path_segment(&reference.get(field), errs);
    }
}

/// That a text is there and can stand in a URL path.
pub(super) fn require_path_segment(at: &Node<'_>, errs: &mut Errors) {
    match at.as_str() {
        "" => errs.required(at, ""),
        text => errs.invalid_each(at, text, name::path_segment_name(text)),
    }
}

fn validate_service(backend: &Node<'_>, errs: &mut Errors) {
    let service = backend.get("service");
    match service.str("name") {
        "" => errs.required(&service.get("name"), ""),
        text => errs.invalid_each(&service.get("name"), text, name::dns1123_label(text)),
    }
    let port = service.get("port");
    match (port.str("name"), port.int("number").unwrap_or(0)) {
        ("", 0) => errs.required(backend, "port name or number is required"),
        ("", number) => {
            for complaint in name::is_valid_port_num(number) {
                errs.invalid(&port.get("number"), number, complaint);
            }
        }
        (text, 0) => errs.invalid_each(&port.get("name"), text, name::port_name(text)),
        (_, _) => errs.invalid(backend, "", "cannot set both port name & port number"),
    }
}
