//! `Status`: the answer that says how a request ended. Every refusal of the API server is one of these.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::field::{FieldError, aggregate};
use crate::kind::{GroupKind, GroupResource};
use crate::metadata::ListMeta;
use crate::quote::quote;

/// How a request ended, in its wire form: the order of the fields is that of Kubernetes' answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Always `Status`.
    #[serde(default)]
    pub kind: String,
    /// Always `v1`.
    #[serde(default)]
    pub api_version: String,
    /// Empty in nearly all answers.
    #[serde(default)]
    pub metadata: ListMeta,
    /// `Success` or `Failure`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub status: String,
    /// For people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// For programs, such as `NotFound`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// What it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<StatusDetails>,
    /// The HTTP status code; left out when zero.
    #[serde(default, skip_serializing_if = "is_zero_code")]
    pub code: u16,
}

/// What a `Status` is about.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusDetails {
    /// The object's name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The API group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The resource, or the kind when the object itself is at fault.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The object's uid.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Why, one by one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<StatusCause>,
    /// How long a client should wait before it tries again; left out when zero.
    #[serde(default, skip_serializing_if = "is_zero_seconds")]
    pub retry_after_seconds: u32,
}

/// One reason of a failure.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StatusCause {
    /// For programs, such as `FieldValueInvalid`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// For people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The field at fault.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub field: String,
}

impl Status {
    fn failure(code: u16, reason: &str, message: impl Into<String>) -> Self {
        Self { code, reason: reason.to_owned(), message: message.into(), ..Self::empty("Failure") }
    }

    fn empty(status: &str) -> Self {
        Self {
            kind: "Status".to_owned(),
            api_version: "v1".to_owned(),
            metadata: ListMeta::default(),
            status: status.to_owned(),
            message: String::new(),
            reason: String::new(),
            details: None,
            code: 0,
        }
    }

    /// It worked, and there is nothing to show.
    pub fn success(code: u16) -> Self {
        Self { code, ..Self::empty("Success") }
    }

    /// An object is gone: the answer to a DELETE that finished.
    pub fn deleted(resource: &GroupResource, name: &str, uid: &str) -> Self {
        let details = StatusDetails { uid: uid.to_owned(), ..StatusDetails::of(resource, name) };
        Self::empty("Success").with_details(details)
    }

    /// No object of this name.
    pub fn not_found(resource: &GroupResource, name: &str) -> Self {
        Self::failure(404, "NotFound", format!("{resource} {} not found", quote(name)))
            .with_details(StatusDetails::of(resource, name))
    }

    /// An object of this name is already there.
    pub fn already_exists(resource: &GroupResource, name: &str) -> Self {
        Self::failure(409, "AlreadyExists", format!("{resource} {} already exists", quote(name)))
            .with_details(StatusDetails::of(resource, name))
    }

    /// Every generated name was taken.
    pub fn generate_name_conflict(resource: &GroupResource, name: &str, retry_after_seconds: u32) -> Self {
        let message = format!(
            "{resource} {} already exists, the server was not able to generate a unique name for the object",
            quote(name)
        );
        Self::failure(409, "AlreadyExists", message)
            .with_details(StatusDetails { retry_after_seconds, ..StatusDetails::of(resource, name) })
    }

    /// The object is not as the request expected it.
    pub fn conflict(resource: &GroupResource, name: &str, cause: impl fmt::Display) -> Self {
        let message = format!("Operation cannot be fulfilled on {resource} {}: {cause}", quote(name));
        Self::failure(409, "Conflict", message).with_details(StatusDetails::of(resource, name))
    }

    /// An apply wants fields that others own.
    pub fn apply_conflict(causes: Vec<StatusCause>, message: impl Into<String>) -> Self {
        Self::failure(409, "Conflict", message).with_details(StatusDetails { causes, ..StatusDetails::default() })
    }

    /// The object is not valid.
    pub fn invalid(kind: &GroupKind, name: &str, errors: &[FieldError]) -> Self {
        let subject = format!("{kind} {} is invalid", quote(name));
        let message = match aggregate(errors) {
            None => subject,
            Some(causes) => format!("{subject}: {causes}"),
        };
        Self::failure(422, "Invalid", message).with_details(StatusDetails {
            name: name.to_owned(),
            group: kind.group.to_string(),
            kind: kind.kind.to_string(),
            causes: errors.iter().map(StatusCause::from).collect(),
            ..StatusDetails::default()
        })
    }

    /// The caller is known but may not do this. An empty name speaks of the whole collection.
    pub fn forbidden(resource: &GroupResource, name: &str, cause: impl fmt::Display) -> Self {
        let message = match (resource.is_empty(), name.is_empty()) {
            (true, _) => format!("forbidden: {cause}"),
            (false, true) => format!("{resource} is forbidden: {cause}"),
            (false, false) => format!("{resource} {} is forbidden: {cause}", quote(name)),
        };
        Self::failure(403, "Forbidden", message).with_details(StatusDetails::of(resource, name))
    }

    /// The caller is not known.
    pub fn unauthorized(message: &str) -> Self {
        Self::failure(401, "Unauthorized", if message.is_empty() { "not authorized" } else { message })
    }

    /// It was there once and will not come back.
    pub fn gone(message: impl Into<String>) -> Self {
        Self::failure(410, "Gone", message)
    }

    /// The revision asked for is no longer kept.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::failure(410, "Expired", message)
    }

    /// The request itself makes no sense.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::failure(400, "BadRequest", message)
    }

    /// The resource does not do this.
    pub fn method_not_supported(resource: &GroupResource, action: &str) -> Self {
        let message = format!("{action} is not supported on resources of kind {}", quote(&resource.to_string()));
        Self::failure(405, "MethodNotAllowed", message).with_details(StatusDetails::of(resource, ""))
    }

    /// None of the media types that the client accepts can be made.
    pub fn not_acceptable(accepted: &[&str]) -> Self {
        let message = format!("only the following media types are accepted: {}", accepted.join(", "));
        Self::failure(406, "NotAcceptable", message)
    }

    /// The body is in a media type that nobody here reads.
    pub fn unsupported_media_type(accepted: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Self::failure(415, "UnsupportedMediaType", message)
    }

    /// The body is over the bound.
    pub fn request_entity_too_large(message: &str) -> Self {
        Self::failure(413, "RequestEntityTooLarge", format!("Request entity too large: {message}"))
    }

    /// Not now.
    pub fn too_many_requests(message: impl Into<String>, retry_after_seconds: u32) -> Self {
        Self::failure(429, "TooManyRequests", message).with_retry_after(retry_after_seconds)
    }

    /// The request took too long; it may still take effect.
    pub fn timeout(message: &str, retry_after_seconds: u32) -> Self {
        Self::failure(504, "Timeout", format!("Timeout: {message}")).with_retry_after(retry_after_seconds)
    }

    /// Something passing went wrong; trying again will help.
    pub fn server_timeout(resource: &GroupResource, operation: &str, retry_after_seconds: u32) -> Self {
        let message = format!(
            "The {operation} operation against {resource} could not be completed at this time, please try again."
        );
        Self::failure(500, "ServerTimeout", message)
            .with_details(StatusDetails { retry_after_seconds, ..StatusDetails::of(resource, operation) })
    }

    /// The server's own fault. The cause is shown to the client, so it must hold nothing secret.
    pub fn internal_error(cause: impl fmt::Display) -> Self {
        let message = cause.to_string();
        Self::failure(500, "InternalError", format!("Internal error occurred: {message}")).with_details(StatusDetails {
            causes: vec![StatusCause { message, ..StatusCause::default() }],
            ..StatusDetails::default()
        })
    }

    /// The service does not answer at present.
    pub fn service_unavailable(message: impl Into<String>) -> Self {
        Self::failure(503, "ServiceUnavailable", message)
    }

    /// An error of which only the code is known, in the words that Kubernetes has for that code. `verb` is the HTTP
    /// method; an empty resource leaves the request out of the message.
    pub fn generic_server_response(
        code: u16,
        verb: &str,
        resource: &GroupResource,
        name: &str,
        server_message: &str,
    ) -> Self {
        let (reason, mut message) = generic_reason(code, verb, server_message);
        if !resource.is_empty() {
            let verb = verb.to_lowercase();
            let subject = if name.is_empty() { String::new() } else { format!(" {name}") };
            message = format!("{message} ({verb} {resource}{subject})");
        }
        Self::failure(code, reason, message).with_details(StatusDetails::of(resource, name))
    }

    /// The same answer about these details.
    #[must_use]
    pub fn with_details(mut self, details: StatusDetails) -> Self {
        self.details = Some(details);
        self
    }

    /// The same answer with one more cause.
    #[must_use]
    pub fn with_cause(mut self, cause: StatusCause) -> Self {
        self.details.get_or_insert_default().causes.push(cause);
        self
    }

    /// The same answer with advice on when to come back.
    #[must_use]
    pub fn with_retry_after(mut self, seconds: u32) -> Self {
        self.details.get_or_insert_default().retry_after_seconds = seconds;
        self
    }

    /// Whether this is a failure.
    pub fn is_failure(&self) -> bool {
        self.status == "Failure"
    }
}

impl fmt::Display for Status {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for Status {}

impl StatusDetails {
    /// About one object of a resource, or about the resource when the name is empty.
    pub fn of(resource: &GroupResource, name: &str) -> Self {
        Self {
            name: name.to_owned(),
            group: resource.group.to_string(),
            kind: resource.resource.to_string(),
            ..Self::default()
        }
    }
}

impl From<&FieldError> for StatusCause {
    fn from(error: &FieldError) -> Self {
        Self { reason: error.kind.reason().to_owned(), message: error.body(), field: error.field.clone() }
    }
}

fn generic_reason(code: u16, verb: &str, server_message: &str) -> (&'static str, String) {
    let (reason, message) = match code {
        409 if verb == "POST" => ("AlreadyExists", "the server reported a conflict"),
        409 => ("Conflict", "the server reported a conflict"),
        404 => ("NotFound", "the server could not find the requested resource"),
        400 => ("BadRequest", "the server rejected our request for an unknown reason"),
        401 => ("Unauthorized", "the server has asked for the client to provide credentials"),
        403 => ("Forbidden", server_message),
        406 if server_message.is_empty() || server_message == "unknown" => {
            ("NotAcceptable", "the server was unable to respond with a content type that the client supports")
        }
        406 => ("NotAcceptable", server_message),
        415 => ("UnsupportedMediaType", server_message),
        405 => ("MethodNotAllowed", "the server does not allow this method on the requested resource"),
        422 => ("Invalid", "the server rejected our request due to an error in our request"),
        503 => ("ServiceUnavailable", "the server is currently unable to handle the request"),
        504 => (
            "Timeout",
            "the server was unable to return a response in the time allotted, but may still be processing the request",
        ),
        429 => ("TooManyRequests", "the server has received too many requests and has asked us to try again later"),
        500.. => {
            let message =
                format!("an error on the server ({}) has prevented the request from succeeding", quote(server_message));
            return ("InternalError", message);
        }
        _ => {
            let message =
                format!("the server responded with the status code {code} but did not return more information");
            return ("", message);
        }
    };
    (reason, message.to_owned())
}

fn is_zero_code(code: &u16) -> bool {
    *code == 0
}

fn is_zero_seconds(seconds: &u32) -> bool {
    *seconds == 0
}

#[cfg(test)]
mod tests;
