//! What handlers note of a request for the audit log while they answer it.

use std::collections::BTreeMap;

use http::Response;
use http_body_util::BodyExt;
use serde_json::Value;
use serde_json::value::RawValue;
use setpoint_schema::Edit;

use super::Level;
use super::event::Reference;
use crate::body::{Body, full};

/// Notes of one request. They cost nothing where nobody keeps them.
#[derive(Debug, Default)]
pub(crate) struct Noted {
    pub(super) level: Level,
    pub(super) omit_managed_fields: bool,
    /// The object that was sent, as far as it says what the path doesn't.
    pub(super) sent: Option<Reference>,
    pub(super) request: Option<Box<RawValue>>,
    pub(super) response: Option<Box<RawValue>>,
    pub(super) annotations: BTreeMap<String, String>,
}

impl Noted {
    /// Whether anybody keeps them.
    pub(crate) fn is_kept(&self) -> bool {
        self.level > Level::None
    }

    /// Adds what a part of the server says of the request. What was said first stays.
    pub(crate) fn annotate(&mut self, key: &str, value: impl Into<String>) {
        if self.level > Level::None && !self.annotations.contains_key(key) {
            self.annotations.insert(key.to_owned(), value.into());
        }
    }

    /// Notes the object that was sent.
    pub(crate) fn object(&mut self, object: &Value) {
        if self.level == Level::None {
            return;
        }
        let metadata = &object["metadata"];
        let text = |name: &str| metadata.text(name).to_owned();
        self.sent = Some(Reference {
            name: text("name"),
            namespace: text("namespace"),
            uid: text("uid"),
            resource_version: text("resourceVersion"),
            ..Reference::default()
        });
        if self.level >= Level::Request {
            self.request = self.encoded(object);
        }
    }

    /// Notes the patch that was sent, as it is.
    pub(crate) fn patch(&mut self, patch: &[u8]) {
        if self.level >= Level::Request {
            self.request = serde_json::from_slice(patch).ok();
        }
    }

    /// Notes options that were sent instead of an object.
    pub(crate) fn options(&mut self, options: impl FnOnce() -> Value) {
        if self.level >= Level::Request {
            self.request = self.encoded(&options());
        }
    }

    /// Notes what is answered, if it is JSON and has an end.
    pub(crate) async fn answer(&mut self, response: Response<Body>) -> Response<Body> {
        let media = response.headers().get(http::header::CONTENT_TYPE);
        if self.level < Level::RequestResponse || media.is_none_or(|media| media != "application/json") {
            return response;
        }
        let (parts, body) = response.into_parts();
        let bytes = match body.collect().await {
            Ok(collected) => collected.to_bytes(),
            Err(error) => return Response::from_parts(parts, broken(error)),
        };
        self.response = match self.omit_managed_fields {
            true => serde_json::from_slice(&bytes).ok().and_then(|value| self.encoded(&value)),
            false => serde_json::from_slice(&bytes).ok(),
        };
        Response::from_parts(parts, full(bytes))
    }

    fn encoded(&self, value: &Value) -> Option<Box<RawValue>> {
        if !self.omit_managed_fields {
            return serde_json::value::to_raw_value(value).ok();
        }
        let mut value = value.clone();
        drop_managed_fields(&mut value);
        for item in value.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten() {
            drop_managed_fields(item);
        }
        for row in value.get_mut("rows").and_then(Value::as_array_mut).into_iter().flatten() {
            row.get_mut("object").into_iter().for_each(drop_managed_fields);
        }
        serde_json::value::to_raw_value(&value).ok()
    }
}

fn drop_managed_fields(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
}

/// A body that ends as the one did that it stands for.
fn broken(error: crate::body::BoxError) -> Body {
    let frames = futures_util::stream::once(async move { Err(error) });
    http_body_util::StreamBody::new(frames).boxed_unsync()
}
