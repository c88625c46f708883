//! Bodies of requests and answers, one type for sockets and for in-process clients.

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};

/// Any error that can end a body early.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body of a request or an answer.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;

/// A body that is there already.
pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}
