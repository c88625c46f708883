//! Answers: objects, statuses and plain text as HTTP.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, WARNING};
use http::{Response, StatusCode};
use serde_json::Value;
use setpoint_api::Status;

use crate::body::{Body, full};

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// What a handler returns: an answer, or the refusal to send instead.
pub type Answer = Result<Response<Body>, Box<Status>>;

/// A JSON document that is encoded already.
pub fn json(code: StatusCode, bytes: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(full(bytes));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

/// A JSON document.
pub fn value(code: StatusCode, value: &Value) -> Response<Body> {
    json(code, serde_json::to_vec(value).expect("a value is always encodable"))
}

/// A status: a refusal, or the answer to a delete. The audit log finds it in the extensions.
pub fn status(status: &Status) -> Response<Body> {
    let code = if status.code == 0 { 200 } else { status.code };
    let bytes = serde_json::to_vec(status).expect("a status is always encodable");
    let mut response = json(StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), bytes);
    response.extensions_mut().insert(Arc::new(status.clone()));
    if let Some(seconds) = status.details.as_ref().map(|details| details.retry_after_seconds).filter(|s| *s > 0) {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// Plain text.
pub fn text(code: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(full(text));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, TEXT);
    response
}

/// What a path that nobody serves is answered with.
pub fn page_not_found() -> Response<Body> {
    text(StatusCode::NOT_FOUND, "404 page not found\n")
}

/// Adds warnings as kubectl shows them.
pub fn warn(response: &mut Response<Body>, warnings: impl IntoIterator<Item = String>) {
    for warning in warnings {
        let quoted = warning.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(header) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
            response.headers_mut().append(WARNING, header);
        }
    }
}
