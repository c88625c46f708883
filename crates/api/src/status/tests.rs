//! Facts about `Status`, taken from how Kubernetes answers.

use super::*;
use crate::field::Path;

fn pods() -> GroupResource {
    GroupResource::new("", "pods")
}

fn deployments() -> GroupResource {
    GroupResource::new("apps", "deployments")
}

fn check(status: &Status, wire: &str) {
    assert_eq!(serde_json::to_string(status).unwrap(), wire);
    assert_eq!(&serde_json::from_str::<Status>(wire).unwrap(), status);
}

#[test]
fn the_wire_form_is_that_of_kubernetes() {
    check(
        &Status::not_found(&deployments(), "d"),
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"deployments.apps \"d\" not found","reason":"NotFound","details":{"name":"d","group":"apps","kind":"deployments"},"code":404}"#,
    );
    check(
        &Status::bad_request("no"),
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"no","reason":"BadRequest","code":400}"#,
    );
    check(
        &Status::deleted(&GroupResource::new("", "configmaps"), "c", "u"),
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","details":{"name":"c","kind":"configmaps","uid":"u"}}"#,
    );
    check(&Status::success(201), r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":201}"#);
    check(
        &Status::internal_error("boom"),
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Internal error occurred: boom","reason":"InternalError","details":{"causes":[{"message":"boom"}]},"code":500}"#,
    );
    check(
        &Status::generic_server_response(404, "GET", &GroupResource::new("", ""), "", ""),
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"the server could not find the requested resource","reason":"NotFound","details":{},"code":404}"#,
    );
}

#[test]
fn an_invalid_object_names_each_field_once_in_the_message_and_each_time_in_the_causes() {
    let path = Path::root("spec");
    let errors = [
        FieldError::required(&path.child("a"), ""),
        FieldError::invalid(&path.child("b"), "x", "bad"),
        FieldError::required(&path.child("a"), ""),
    ];
    let status = Status::invalid(&GroupKind::new("apps", "Deployment"), "d", &errors);
    assert_eq!(
        status.message,
        "Deployment.apps \"d\" is invalid: [spec.a: Required value, spec.b: Invalid value: \"x\": bad]"
    );
    let causes = status.details.unwrap().causes;
    assert_eq!(causes.len(), 3);
    assert_eq!(
        causes[1],
        StatusCause {
            reason: "FieldValueInvalid".to_owned(),
            message: "Invalid value: \"x\": bad".to_owned(),
            field: "spec.b".to_owned()
        }
    );
    assert_eq!(Status::invalid(&GroupKind::new("", "Pod"), "p", &[]).message, "Pod \"p\" is invalid");
}

#[test]
fn each_refusal_has_its_code_reason_and_words() {
    let nothing = GroupResource::new("", "");
    for (status, code, reason, message) in [
        (Status::already_exists(&pods(), "p"), 409, "AlreadyExists", r#"pods "p" already exists"#),
        (
            Status::generate_name_conflict(&pods(), "p-1", 1),
            409,
            "AlreadyExists",
            r#"pods "p-1" already exists, the server was not able to generate a unique name for the object"#,
        ),
        (Status::conflict(&pods(), "p", "why"), 409, "Conflict", r#"Operation cannot be fulfilled on pods "p": why"#),
        (Status::forbidden(&pods(), "p", "why"), 403, "Forbidden", r#"pods "p" is forbidden: why"#),
        (Status::forbidden(&deployments(), "", "why"), 403, "Forbidden", "deployments.apps is forbidden: why"),
        (Status::forbidden(&nothing, "", "why"), 403, "Forbidden", "forbidden: why"),
        (Status::unauthorized(""), 401, "Unauthorized", "not authorized"),
        (Status::unauthorized("Unauthorized"), 401, "Unauthorized", "Unauthorized"),
        (Status::gone("g"), 410, "Gone", "g"),
        (Status::expired("e"), 410, "Expired", "e"),
        (
            Status::method_not_supported(&deployments(), "create"),
            405,
            "MethodNotAllowed",
            r#"create is not supported on resources of kind "deployments.apps""#,
        ),
        (
            Status::not_acceptable(&["a/b", "c/d"]),
            406,
            "NotAcceptable",
            "only the following media types are accepted: a/b, c/d",
        ),
        (
            Status::unsupported_media_type(&["a/b"]),
            415,
            "UnsupportedMediaType",
            "the body of the request was in an unknown format - accepted media types include: a/b",
        ),
        (Status::request_entity_too_large("m"), 413, "RequestEntityTooLarge", "Request entity too large: m"),
        (Status::too_many_requests("m", 1), 429, "TooManyRequests", "m"),
        (Status::timeout("m", 0), 504, "Timeout", "Timeout: m"),
        (
            Status::server_timeout(&pods(), "list", 0),
            500,
            "ServerTimeout",
            "The list operation against pods could not be completed at this time, please try again.",
        ),
        (Status::service_unavailable("m"), 503, "ServiceUnavailable", "m"),
        (
            Status::generic_server_response(409, "POST", &nothing, "", ""),
            409,
            "AlreadyExists",
            "the server reported a conflict",
        ),
        (
            Status::generic_server_response(500, "GET", &pods(), "p", "x"),
            500,
            "InternalError",
            r#"an error on the server ("x") has prevented the request from succeeding (get pods p)"#,
        ),
        (
            Status::generic_server_response(418, "GET", &pods(), "", ""),
            418,
            "",
            "the server responded with the status code 418 but did not return more information (get pods)",
        ),
    ] {
        assert_eq!((status.code, status.reason.as_str(), status.message.as_str()), (code, reason, message));
        assert!(status.is_failure());
    }
}
