//! Requests for lists and watches, and the decoding of their answers.

use std::fmt;
use std::marker::PhantomData;

use bytes::{Buf, Bytes, BytesMut};
use futures_util::{Stream, StreamExt};
use http::{Request, header};
use http_body_util::{BodyExt, BodyStream, Limited};
use kube::client::Body;
use kube::core::Status;
use kube::{Client, Resource};
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::Cached;
use super::measure::Measured;

/// Largest answer to a list request; larger collections come in pages.
pub const LIST_BYTES_MAX: usize = 1024 * 1024 * 1024;
/// Longest line of a watch. An object has at most 3 MiB on the wire, JSON escapes may stretch it six times.
pub const LINE_BYTES_MAX: usize = 32 * 1024 * 1024;

const METADATA_ITEM: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// Which objects of the API a cache follows.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use setpoint_runtime::cache::Target;
///
/// let target = Target::of::<Pod>(&(), Some("shop")).labels("app in (web,db)").fields("spec.nodeName=node-1");
/// assert_eq!(target.path, "/api/v1/namespaces/shop/pods");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// The path of the collection.
    pub path: String,
    /// The kind of its objects.
    pub kind: String,
    /// The API version of its objects, with the group.
    pub api_version: String,
    /// The plural name in paths.
    pub plural: String,
    /// Whether only metadata is asked for.
    pub metadata_only: bool,
    /// Only objects with these labels.
    pub label_selector: Option<String>,
    /// Only objects with these fields.
    pub field_selector: Option<String>,
}

impl Target {
    /// The objects of a type, in one namespace or in all.
    #[must_use]
    pub fn of<K: Resource>(dynamic: &K::DynamicType, namespace: Option<&str>) -> Self {
        Self {
            path: K::url_path(dynamic, namespace),
            kind: K::kind(dynamic).into_owned(),
            api_version: K::api_version(dynamic).into_owned(),
            plural: K::plural(dynamic).into_owned(),
            metadata_only: K::metadata_api(),
            label_selector: None,
            field_selector: None,
        }
    }

    /// Only objects whose labels match.
    #[must_use]
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.label_selector = Some(selector.into());
        self
    }

    /// Only objects whose fields match.
    #[must_use]
    pub fn fields(mut self, selector: impl Into<String>) -> Self {
        self.field_selector = Some(selector.into());
        self
    }

    pub(super) fn request(&self, accept_list: bool, query: &[(&str, &str)]) -> Result<Request<Body>, kube::Error> {
        let path = format!("{}?", self.path);
        let query_start = path.len();
        let mut pairs = form_urlencoded::Serializer::for_suffix(path, query_start);
        let selectors = [("labelSelector", &self.label_selector), ("fieldSelector", &self.field_selector)];
        for (name, value) in selectors {
            if let Some(value) = value {
                pairs.append_pair(name, value);
            }
        }
        for (name, value) in query {
            pairs.append_pair(name, value);
        }
        let accept = match (self.metadata_only, accept_list) {
            (false, _) => "application/json",
            (true, true) => METADATA_LIST,
            (true, false) => METADATA_ITEM,
        };
        let request = Request::get(pairs.finish()).header(header::ACCEPT, accept);
        request.body(Body::empty()).map_err(kube::Error::HttpError)
    }
}

/// One page of a list.
pub(super) struct Page<K> {
    pub resource_version: String,
    pub continue_token: Option<String>,
    pub items: Vec<Measured<K>>,
}

/// One event of a watch.
pub(super) enum Line<K> {
    Changed(Measured<K>),
    Deleted(Measured<K>),
    Bookmark {
        resource_version: String,
        ends_initial_events: bool,
    },
    Error(Box<Status>),
    /// An object that this type can't be; told in the log, and passed over.
    Unreadable {
        resource_version: Option<String>,
    },
}

pub(super) async fn list<K: Cached>(
    client: &Client,
    target: &Target,
    query: &[(&str, &str)],
) -> Result<Page<K>, kube::Error> {
    let body = send(client, target.request(true, query)?).await?;
    let collected = Limited::new(body, LIST_BYTES_MAX).collect().await.map_err(kube::Error::Service)?;
    decode_page(&collected.to_bytes(), target).map_err(kube::Error::SerdeError)
}

pub(super) async fn watch<K: Cached>(
    client: &Client,
    target: &Target,
    query: &[(&str, &str)],
) -> Result<impl Stream<Item = Result<Line<K>, kube::Error>> + use<K>, kube::Error> {
    let body = send(client, target.request(false, query)?).await?;
    Ok(decode_lines(Box::pin(BodyStream::new(body)), target.kind.clone()))
}

async fn send(client: &Client, request: Request<Body>) -> Result<Body, kube::Error> {
    let response = client.send(request).await?;
    let code = response.status();
    if code.is_success() {
        return Ok(response.into_body());
    }
    let limited = Limited::new(response.into_body(), LINE_BYTES_MAX);
    let text = limited.collect().await.map_err(kube::Error::Service)?.to_bytes();
    let status = serde_json::from_slice::<Status>(&text)
        .unwrap_or_else(|_| Status::failure(&String::from_utf8_lossy(&text), "NotAStatus").with_code(code.as_u16()));
    Err(kube::Error::Api(status.boxed()))
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "T: Deserialize<'de>"))]
struct WireList<T> {
    #[serde(default)]
    metadata: WireListMeta,
    items: Option<Vec<T>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireListMeta {
    #[serde(default)]
    resource_version: String,
    #[serde(default, rename = "continue")]
    continue_token: String,
}

fn decode_page<K: Cached>(text: &[u8], target: &Target) -> Result<Page<K>, serde_json::Error> {
    let (meta, items) = match serde_json::from_slice::<WireList<Measured<K>>>(text) {
        Ok(list) => (list.metadata, list.items.unwrap_or_default()),
        Err(_) => {
            // One object that can't be read must not hide the others.
            let list: WireList<&RawValue> = serde_json::from_slice(text)?;
            let items = list.items.unwrap_or_default();
            (list.metadata, items.into_iter().filter_map(|raw| decode(raw, &target.kind)).collect())
        }
    };
    let continue_token = Some(meta.continue_token).filter(|token| !token.is_empty());
    Ok(Page { resource_version: meta.resource_version, continue_token, items })
}

fn decode<K: Cached>(raw: &RawValue, kind: &str) -> Option<Measured<K>> {
    serde_json::from_str(raw.get())
        .inspect_err(|error| tracing::warn!(kind, %error, "an object could not be read and is left out of the cache"))
        .ok()
}

type Frames = std::pin::Pin<Box<BodyStream<Body>>>;

fn decode_lines<K: Cached>(frames: Frames, kind: String) -> impl Stream<Item = Result<Line<K>, kube::Error>> {
    let start = (frames, BytesMut::new(), 0_usize);
    let lines = futures_util::stream::try_unfold(start, |(mut frames, mut buffer, mut searched)| async move {
        loop {
            if let Some(end) = buffer[searched..].iter().position(|byte| *byte == b'\n') {
                let line: Bytes = buffer.split_to(searched + end).freeze();
                buffer.advance(1);
                return Ok(Some((line, (frames, buffer, 0))));
            }
            searched = buffer.len();
            if searched > LINE_BYTES_MAX {
                return Err(kube::Error::Service("a line of the watch is too long".into()));
            }
            match frames.next().await {
                Some(Ok(frame)) => buffer.extend_from_slice(frame.data_ref().map_or(&[], |data| data)),
                Some(Err(error)) => return Err(kube::Error::Service(error.into())),
                None => return Ok(None),
            }
        }
    });
    lines.map(move |line| line.and_then(|line| decode_line(&line, &kind)))
}

#[derive(Deserialize)]
struct WireEvent<'a> {
    r#type: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Default, Deserialize)]
struct WireBookmark {
    #[serde(default)]
    metadata: WireBookmarkMeta,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireBookmarkMeta {
    #[serde(default)]
    resource_version: String,
    #[serde(default)]
    annotations: std::collections::BTreeMap<String, String>,
}

/// An event whose object is read on the way: the type has come before it, and says that it is one.
struct Quick<K>(Line<K>);

impl<'de, K: Cached> Deserialize<'de> for Quick<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder<K>(PhantomData<K>);
        impl<'de, K: Cached> Visitor<'de> for InOrder<K> {
            type Value = Quick<K>;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("an event")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Quick<K>, A::Error> {
                let other = || A::Error::custom("not an event in the usual order");
                let r#type = match map.next_key::<&str>()? {
                    Some("type") => map.next_value::<&str>()?,
                    _ => return Err(other()),
                };
                match (r#type, map.next_key::<&str>()?) {
                    ("ADDED" | "MODIFIED", Some("object")) => Ok(Quick(Line::Changed(map.next_value()?))),
                    ("DELETED", Some("object")) => Ok(Quick(Line::Deleted(map.next_value()?))),
                    _ => Err(other()),
                }
            }
        }
        deserializer.deserialize_map(InOrder(PhantomData))
    }
}

fn decode_line<K: Cached>(line: &[u8], kind: &str) -> Result<Line<K>, kube::Error> {
    // Servers write the type first; then the object needn't be passed over once to be found, and again to be read.
    if let Ok(Quick(line)) = serde_json::from_slice(line) {
        return Ok(line);
    }
    let event: WireEvent<'_> = serde_json::from_slice(line).map_err(kube::Error::SerdeError)?;
    let changed = |to: fn(Measured<K>) -> Line<K>| match decode(event.object, kind) {
        Some(object) => to(object),
        None => Line::Unreadable { resource_version: bookmark(event.object).map(|meta| meta.resource_version) },
    };
    Ok(match event.r#type {
        "ADDED" | "MODIFIED" => changed(Line::Changed),
        "DELETED" => changed(Line::Deleted),
        "BOOKMARK" => {
            let meta = bookmark(event.object).unwrap_or_default();
            let ends_initial_events =
                meta.annotations.get("k8s.io/initial-events-end").is_some_and(|end| end == "true");
            Line::Bookmark { resource_version: meta.resource_version, ends_initial_events }
        }
        "ERROR" => Line::Error(serde_json::from_str(event.object.get()).map_err(kube::Error::SerdeError)?),
        other => {
            tracing::warn!(kind, r#type = other, "a watch event of an unknown type is passed over");
            Line::Unreadable { resource_version: None }
        }
    })
}

fn bookmark(raw: &RawValue) -> Option<WireBookmarkMeta> {
    serde_json::from_str::<WireBookmark>(raw.get()).ok().map(|bookmark| bookmark.metadata)
}
