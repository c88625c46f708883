//! A client that notes what passes through it: versions read, and writes with the versions they made.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::{Method, Request, Response, Uri};
use http_body_util::{BodyExt, Limited};
use kube::Client;
use kube::client::Body;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tower::BoxError;

use crate::Key;

/// Most reads, and most writes, that one run remembers; further writes still happen but aren't traced.
const ACCESSES_MAX: usize = 64;
/// Largest answer to a write that is looked into. An object has at most 3 MiB on the wire.
const ANSWER_BYTES_MAX: usize = 32 * 1024 * 1024;

/// What was done to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Verb {
    /// Read from the server or from a cache.
    Get,
    /// POST.
    Create,
    /// PUT.
    Update,
    /// PATCH, apply among them.
    Patch,
    /// DELETE.
    Delete,
}

/// One access of a run to an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Access {
    /// What was done.
    pub verb: Verb,
    /// The group of the API; empty for the core.
    pub group: String,
    /// The plural name in paths.
    pub plural: String,
    /// The part of the object, such as `status`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subresource: Option<String>,
    /// The object.
    pub key: Key,
    /// The code of the answer.
    pub code: u16,
    /// The version that was read or made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
    /// The identity of the object.
    #[serde(skip)]
    pub uid: Option<String>,
    /// Whether the object is gone for good.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub gone: bool,
    #[serde(skip)]
    pub(super) answer: Option<Arc<Value>>,
}

/// What one worker's client noted since the last look.
#[derive(Clone, Default)]
pub struct Recorder {
    noted: Arc<Mutex<Vec<Access>>>,
}

impl Recorder {
    /// A client whose requests are noted here.
    pub fn wrap(&self, client: Client) -> Client {
        let namespace = client.default_namespace().to_owned();
        let recorder = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (client, recorder) = (client.clone(), recorder.clone());
            async move { recorder.pass(client, request).await }
        });
        Client::new(service, namespace)
    }

    pub fn take(&self) -> Vec<Access> {
        std::mem::take(&mut *self.lock())
    }

    pub fn note(&self, access: Access) {
        let mut noted = self.lock();
        let same = |known: &&Access| (known.verb == Verb::Get) == (access.verb == Verb::Get);
        if noted.iter().filter(same).count() < ACCESSES_MAX {
            noted.push(access);
        }
    }

    async fn pass(&self, client: Client, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        let about = about(request.method(), request.uri());
        let response = client.send(request).await?;
        let Some(mut access) = about else { return Ok(response) };
        let (parts, body) = response.into_parts();
        let text: Bytes = Limited::new(body, ANSWER_BYTES_MAX).collect().await?.to_bytes();
        access.code = parts.status.as_u16();
        if parts.status.is_success() {
            access.read_answer(&text);
        }
        self.note(access);
        Ok(Response::from_parts(parts, Body::from(text)))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Access>> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Head {
    kind: String,
    metadata: HeadMeta,
    details: Option<HeadDetails>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct HeadMeta {
    name: String,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    deletion_timestamp: Option<serde::de::IgnoredAny>,
    deletion_grace_period_seconds: Option<i64>,
    finalizers: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct HeadDetails {
    uid: Option<String>,
}

impl Access {
    /// Whether it was a write, successful or not.
    #[must_use]
    pub fn is_write(&self) -> bool {
        self.verb != Verb::Get
    }

    /// Whether the server did it.
    #[must_use]
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.code)
    }

    fn read_answer(&mut self, text: &[u8]) {
        let head: Head = serde_json::from_slice(text).unwrap_or_default();
        if head.kind == "Status" {
            self.gone = self.verb == Verb::Delete;
            self.uid = head.details.and_then(|details| details.uid);
            return;
        }
        let meta = head.metadata;
        self.key = Key::new(meta.namespace.as_deref(), &meta.name);
        self.uid = meta.uid;
        self.resource_version = meta.resource_version;
        let waits = !meta.finalizers.is_empty() || meta.deletion_grace_period_seconds.is_some_and(|grace| grace > 0);
        let deletes = self.verb == Verb::Delete || meta.deletion_timestamp.is_some();
        self.gone = deletes && !waits && self.is_write();
        if self.is_write() {
            self.answer = serde_json::from_slice(text).ok().map(Arc::new);
        }
    }
}

/// What a request is about; `None` for lists, watches, collections, dry runs and what is no object.
fn about(method: &Method, uri: &Uri) -> Option<Access> {
    let verb = match *method {
        Method::GET => Verb::Get,
        Method::POST => Verb::Create,
        Method::PUT => Verb::Update,
        Method::PATCH => Verb::Patch,
        Method::DELETE => Verb::Delete,
        _ => return None,
    };
    if uri.query().is_some_and(|query| query.contains("dryRun=") || query.contains("watch=")) {
        return None;
    }
    let parts: Vec<_> = uri.path().trim_matches('/').split('/').collect();
    let (group, rest) = match parts.as_slice() {
        ["api", _, rest @ ..] => ("", rest),
        ["apis", group, _, rest @ ..] => (*group, rest),
        _ => return None,
    };
    let (namespace, rest) = match rest {
        ["namespaces", name, rest @ ..] if !matches!(rest, [] | ["status" | "finalize"]) => (Some(*name), rest),
        rest => (None, rest),
    };
    let (plural, name, subresource) = match rest {
        [plural] => (plural, "", None),
        [plural, name] => (plural, *name, None),
        [plural, name, subresource] => (plural, *name, Some((*subresource).to_owned())),
        _ => return None,
    };
    if name.is_empty() != (verb == Verb::Create) || (verb == Verb::Create && subresource.is_some()) {
        return None;
    }
    Some(Access {
        verb,
        group: group.to_owned(),
        plural: (*plural).to_owned(),
        subresource,
        key: Key::new(namespace, name),
        code: 0,
        resource_version: None,
        uid: None,
        gone: false,
        answer: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(method: Method, path: &str, expected: &str) {
        let said = about(&method, &path.parse().unwrap()).map_or("nothing".to_owned(), |access| {
            let Access { verb, group, plural, key, subresource, .. } = access;
            format!("{verb:?} {group}/{plural} {key} {}", subresource.unwrap_or_default()).trim_end().to_owned()
        });
        assert_eq!(said, expected, "{method} {path}");
    }

    #[test]
    fn paths_tell_what_a_request_is_about() {
        check(Method::GET, "/api/v1/namespaces/a/pods/b", "Get /pods a/b");
        check(Method::PUT, "/apis/apps/v1/namespaces/a/deployments/b/status", "Update apps/deployments a/b status");
        check(Method::POST, "/api/v1/namespaces/a/pods?fieldManager=x", "Create /pods a/");
        check(Method::POST, "/api/v1/namespaces", "Create /namespaces");
        check(Method::PATCH, "/api/v1/namespaces/a", "Patch /namespaces a");
        check(Method::PUT, "/api/v1/namespaces/a/finalize", "Update /namespaces a finalize");
        check(Method::DELETE, "/api/v1/nodes/n", "Delete /nodes n");
        check(Method::GET, "/api/v1/namespaces/a/pods", "nothing");
        check(Method::DELETE, "/api/v1/namespaces/a/pods", "nothing");
        check(Method::GET, "/version", "nothing");
        check(Method::PATCH, "/api/v1/nodes/n?dryRun=All", "nothing");
    }
}
