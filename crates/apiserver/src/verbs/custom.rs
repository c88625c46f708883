//! Where requests for custom kinds are taken otherwise than those for built-in ones: upstream has another handler for them.

use http::Method;
use setpoint_api::Status;

use crate::call::Call;

/// The patches that custom kinds take: a strategic merge needs what only Go types say.
pub(super) const PATCHES: [&str; 3] =
    ["application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"];

/// What the method and the path stand for. A name in the path of a creation is passed over.
pub(super) fn verb(call: &Call<'_>, method: &Method) -> Result<&'static str, Box<Status>> {
    let named = call.name.is_some() && !call.watch_path;
    match (method.as_str(), named) {
        ("GET" | "HEAD", true) => Ok("get"),
        ("GET" | "HEAD", false) => Ok("list"),
        ("POST", _) => Ok("create"),
        ("PUT", true) => Ok("update"),
        ("PATCH", true) => Ok("patch"),
        ("PUT" | "PATCH", false) => Err(Box::new(Status::bad_request("name must be provided"))),
        ("DELETE", true) => Ok("delete"),
        ("DELETE", false) => Ok("deletecollection"),
        _ => Err(not_supported(call, "")),
    }
}

/// The answer to a verb that a kind or a part of it doesn't have.
pub(super) fn not_supported(call: &Call<'_>, verb: &str) -> Box<Status> {
    Box::new(Status::method_not_supported(&call.served.resource, verb))
}

/// The answer to a part that the kind doesn't have: as if there were no such object.
pub(super) fn unknown_part(call: &Call<'_>) -> Box<Status> {
    Box::new(Status::not_found(&call.served.resource, call.object_name()))
}

/// New objects are refused while their kind is being deleted.
pub(crate) fn check_lives(call: &Call<'_>, name: &str) -> Result<(), Box<Status>> {
    match &call.served.custom {
        Some(custom) if custom.terminating => {
            let why = "create not allowed while custom resource definition is terminating";
            Err(Box::new(Status::forbidden(&call.served.resource, name, why)))
        }
        _ => Ok(()),
    }
}
