//! A client that notes what passes through it: versions read, and writes with the versions they made.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::{Method, Request, Response, Uri};
use http_body_util::{BodyExt, Limited};
use kube::Client;
use kube::client::Body;
use serde::{Deserialize, Serialize};
use tower::BoxError;

use crate::Key;

/// Most reads, and most writes, that one run remembers. Of further writes the newest of each resource is known, which is
/// what the next run has to wait for: caches see versions in order.
pub(super) const ACCESSES_MAX: usize = 64;
/// Most deletions that one run remembers: an object that is gone at once has no version that the next run could wait for.
/// More than the largest burst of any controller, 500.
const GONE_MAX: usize = 1_024;
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
    pub(super) answer: Option<Bytes>,
}

/// Which controller a request comes from, among its extensions: it goes no further than this process, and lets test kits
/// tell the writes of several controllers apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Author(pub Arc<str>);

/// What one worker's client noted since the last look.
#[derive(Clone)]
pub struct Recorder {
    author: Author,
    noted: Arc<Mutex<Vec<Access>>>,
}

impl Recorder {
    /// One for a worker of the controller with this name.
    pub fn new(controller: Arc<str>) -> Recorder {
        Recorder { author: Author(controller), noted: Arc::default() }
    }

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
        let same = |known: &&Access| known.is_write() == access.is_write() && known.gone == access.gone;
        let max = if access.is_write() && access.gone { GONE_MAX } else { ACCESSES_MAX };
        if noted.iter().filter(same).count() < max {
            noted.push(access);
        } else if access.is_write()
            && let Some(at) = least_needed(&noted, &access)
        {
            noted[at] = access;
        }
    }

    /// Whether a run has written so much that answers need not be kept for comparison.
    fn is_full(&self) -> bool {
        self.lock().len() >= ACCESSES_MAX
    }

    async fn pass(&self, client: Client, mut request: Request<Body>) -> Result<Response<Body>, BoxError> {
        request.extensions_mut().insert(self.author.clone());
        let about = about(request.method(), request.uri());
        let response = client.send(request).await?;
        let Some(mut access) = about else { return Ok(response) };
        let (parts, body) = response.into_parts();
        let text: Bytes = Limited::new(body, ANSWER_BYTES_MAX).collect().await?.to_bytes();
        access.code = parts.status.as_u16();
        if parts.status.is_success() {
            access.read_answer(&text, !self.is_full());
        }
        self.note(access);
        Ok(Response::from_parts(parts, Body::from(text)))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Access>> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Which of the noted writes can make room for another: one that the other is newer than, or, for the first write of a
/// resource, any that is not the newest of its own.
fn least_needed(noted: &[Access], access: &Access) -> Option<usize> {
    let is_first = || !noted.iter().any(|known| known.is_write() && known.is_of_same_resource(access));
    let is_old = |known: &Access| noted.iter().any(|other| known.is_older_than(other));
    let older = noted.iter().rposition(|known| known.is_older_than(access));
    older.or_else(|| is_first().then(|| noted.iter().position(is_old)).flatten())
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

    /// Whether a cache that has seen the other write has seen this one, too, and the other is the newer.
    pub(super) fn is_older_than(&self, other: &Access) -> bool {
        let is_plain = |access: &Access| access.is_write() && access.is_success() && !access.gone;
        is_plain(self)
            && is_plain(other)
            && self.is_of_same_resource(other)
            && self.version().zip(other.version()).is_some_and(|(own, other)| own < other)
    }

    fn is_of_same_resource(&self, other: &Access) -> bool {
        self.plural == other.plural && self.group == other.group
    }

    fn version(&self) -> Option<u64> {
        self.resource_version.as_ref()?.parse().ok()
    }

    fn read_answer(&mut self, text: &Bytes, keep: bool) {
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
        if self.is_write() && keep {
            self.answer = Some(text.clone());
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

    fn write(verb: Verb, plural: &str, version: u64, gone: bool) -> Access {
        let path = format!("/api/v1/namespaces/a/{plural}/x{version}");
        let about = about(&Method::PUT, &path.parse().unwrap()).unwrap();
        Access { verb, code: 200, resource_version: (!gone).then(|| version.to_string()), gone, ..about }
    }

    #[test]
    fn a_burst_leaves_the_newest_write_of_each_resource_and_every_deletion() {
        let recorder = Recorder::new("any".into());
        for version in 2..500 {
            recorder.note(write(Verb::Create, "pods", version, false));
        }
        // Answers come in any order.
        recorder.note(write(Verb::Create, "pods", 70, false));
        recorder.note(write(Verb::Update, "sets", 501, false));
        (0..500).for_each(|version| recorder.note(write(Verb::Delete, "pods", version, true)));
        let noted = recorder.take();
        let newest = |plural: &str| {
            noted
                .iter()
                .filter(|access| access.plural == plural)
                .filter_map(|access| access.resource_version.as_ref()?.parse::<u64>().ok())
                .max()
        };
        assert_eq!((newest("sets"), newest("pods")), (Some(501), Some(499)));
        assert_eq!(noted.iter().filter(|access| access.gone).count(), 500);
        assert_eq!(noted.len(), ACCESSES_MAX + 500);
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
