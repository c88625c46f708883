//! Answers: objects, statuses and plain text as HTTP.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, WARNING};
use http::{Response, StatusCode};
use serde::Serialize;
use setpoint_api::Status;

use crate::body::{Body, full};

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// What a handler returns: an answer, or the refusal to send instead.
pub type Answer = Result<Response<Body>, Box<Status>>;

/// Bytes as JSON, as they are.
pub fn json(code: StatusCode, bytes: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(full(bytes));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

/// A JSON document that is encoded already, as a line: Kubernetes ends what it encodes with a line break, unless it was asked for
/// pretty text, and there are programs that compare whole answers.
///
/// It is copied for that: a frame of its own for one byte would cost more, but for the largest.
pub fn line(code: StatusCode, document: &[u8]) -> Response<Body> {
    let mut bytes = Vec::with_capacity(document.len() + LINE_END.len());
    bytes.extend_from_slice(document);
    bytes.extend_from_slice(LINE_END);
    json(code, bytes)
}

/// What a document ends with.
pub const LINE_END: &[u8] = b"\n";

/// Encodes a document as a line.
pub fn encoded(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(value).expect("a document is always encodable");
    bytes.extend_from_slice(LINE_END);
    bytes
}

/// A JSON document, as a line.
pub fn value(code: StatusCode, value: &impl Serialize) -> Response<Body> {
    json(code, encoded(value))
}

/// A JSON document with line breaks for people: none at its end, as in Kubernetes.
pub fn pretty(code: StatusCode, value: &impl Serialize) -> Response<Body> {
    json(code, serde_json::to_vec_pretty(value).expect("a document is always encodable"))
}

/// A status: a refusal, or the answer to a delete. The audit log finds it in the extensions.
pub fn status(status: &Status) -> Response<Body> {
    let code = if status.code == 0 { 200 } else { status.code };
    let mut response = value(StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), status);
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

/// Most characters of all warnings of an answer; with more, each is cut to [`WARNING_CHARS_MAX`]. As kube-apiserver, whose clients
/// have headers of a bounded size.
const WARNINGS_CHARS_MAX: usize = 4 * 1024;
/// Most characters of one warning where there are too many.
const WARNING_CHARS_MAX: usize = 256;

/// Adds warnings as kubectl shows them, each once.
pub fn warn(response: &mut Response<Body>, warnings: impl IntoIterator<Item = String>) {
    let mut told: Vec<String> = Vec::new();
    for warning in warnings {
        if !warning.is_empty() && !told.contains(&warning) {
            told.push(warning);
        }
    }
    let chars = |warning: &String| warning.chars().count();
    let is_cut = told.iter().map(chars).sum::<usize>() > WARNINGS_CHARS_MAX;
    let mut written = 0;
    for warning in told {
        if is_cut && written >= WARNINGS_CHARS_MAX {
            return;
        }
        let shown: String = if is_cut { warning.chars().take(WARNING_CHARS_MAX).collect() } else { warning };
        // What a header can't hold is not told.
        if shown.chars().any(char::is_control) {
            continue;
        }
        written += shown.chars().count();
        let quoted = shown.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(header) = HeaderValue::from_bytes(format!("299 - \"{quoted}\"").as_bytes()) {
            response.headers_mut().append(WARNING, header);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(warnings: &[String]) -> Vec<String> {
        let mut response = page_not_found();
        warn(&mut response, warnings.iter().cloned());
        let headers = response.headers().get_all(WARNING).into_iter();
        headers.map(|header| String::from_utf8_lossy(header.as_bytes()).into_owned()).collect()
    }

    #[test]
    fn a_warning_is_told_once_and_cut_where_there_are_too_many() {
        let of = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        assert_eq!(
            told(&of(&["a \"b\"", "\u{e9}", "a \"b\"", "", "x\ny"])),
            [r#"299 - "a \"b\"""#, "299 - \"\u{e9}\""]
        );
        let many: Vec<String> = (0..30).map(|n| format!("{n:0>300}")).collect();
        let cut = told(&many);
        assert_eq!((cut.len(), cut[0].len()), (16, "299 - \"\"".len() + WARNING_CHARS_MAX));
    }
}
