//! One life of the process under test: what becomes of its calls.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use setpoint_apiserver::Local;
use setpoint_apiserver::body::full;
use tower::Service;

use crate::course::{Course, Fate};
use crate::plane::Activity;

/// How long a call is held back.
const DELAY: Duration = Duration::from_secs(30);

/// How long a caller waits for an answer that never comes.
const PATIENCE: Duration = Duration::from_secs(60);

/// One life of the process. Once it has died its calls go nowhere.
#[derive(Clone)]
pub(crate) struct Life {
    course: Course,
    number: usize,
    local: Local,
    activity: Arc<Activity>,
    /// Called when a write is done.
    tell: Arc<dyn Fn() + Send + Sync>,
}

/// What a call does, as far as faults are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// It reads.
    Read,
    /// It changes something.
    Write,
    /// It reads or writes a lease: heartbeats are neither counted nor broken.
    Lease {
        /// Whether it writes.
        is_write: bool,
    },
    /// It is about an Event. Whoever tells one doesn't wait for it, and its count goes on being written for a while:
    /// neither counted nor broken.
    Word,
}

/// Why a call has no good answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    /// It was refused with this code, without effect.
    Refused(u16),
    /// The connection was lost before the answer came; it may have had its effect.
    Lost,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Broken::Refused(code) => write!(f, "the call was refused with {code}"),
            Broken::Lost => write!(f, "the connection was lost before the answer came"),
        }
    }
}

impl std::error::Error for Broken {}

impl Life {
    pub(crate) fn new(
        course: &Course,
        local: Local,
        activity: Arc<Activity>,
        tell: Arc<dyn Fn() + Send + Sync>,
    ) -> Life {
        let number = *course.crashes().borrow();
        Life { course: course.clone(), number, local, activity, tell }
    }

    pub(crate) fn course(&self) -> &Course {
        &self.course
    }

    /// Waits for ever if the process has died.
    pub(crate) async fn go_on(&self) {
        if *self.course.crashes().borrow() > self.number {
            std::future::pending().await
        }
    }

    /// Makes a call, with whatever the course has for it. `author` is the controller that makes it, `what` names it.
    pub(crate) async fn call<T>(
        &self,
        effect: Effect,
        author: Option<&Arc<str>>,
        what: impl FnOnce() -> String,
        call: impl Future<Output = T>,
    ) -> Result<T, Broken> {
        self.go_on().await;
        let answer = match self.course.call(effect, author, what) {
            Fate::Pass => Ok(call.await),
            Fate::Fail(code) => Err(Broken::Refused(code)),
            Fate::Delay => {
                tokio::time::sleep(DELAY).await;
                Ok(call.await)
            }
            Fate::Lose => {
                drop(call.await);
                tokio::time::sleep(PATIENCE).await;
                Err(Broken::Lost)
            }
            Fate::Crash => {
                drop(call.await);
                self.course.crash();
                std::future::pending().await
            }
            Fate::LoseLease => {
                take_leases(&mut self.local.clone()).await;
                Ok(call.await)
            }
        };
        self.go_on().await;
        answer
    }

    /// Reads from something outside of the cluster.
    pub(crate) async fn read<T>(&self, call: impl Future<Output = T>) -> Result<T, Broken> {
        self.call(Effect::Read, None, || "a call outside that reads".to_owned(), call).await
    }

    /// Makes a change to something outside of the cluster.
    pub(crate) async fn change<T>(&self, change: impl Future<Output = T>) -> Result<T, Broken> {
        let noted = async {
            if !self.activity.note() {
                return std::future::pending().await;
            }
            let answer = change.await;
            self.changed();
            answer
        };
        self.call(Effect::Write, None, || "a call outside that writes".to_owned(), noted).await
    }

    /// Tells that a write is done.
    pub(crate) fn changed(&self) {
        (self.tell)();
    }
}

/// Puts somebody else's name on every lease, as if they had won it a moment ago.
async fn take_leases(local: &mut Local) {
    const LEASES: &str = "/apis/coordination.k8s.io/v1/leases";
    let list = ask(local, Method::GET, LEASES, None).await;
    for lease in list["items"].as_array().into_iter().flatten() {
        let text = |name: &str| lease["metadata"][name].as_str().unwrap_or("");
        let transitions = lease["spec"]["leaseTransitions"].as_i64().unwrap_or(0) + 1;
        let patch = json!({"spec": {"holderIdentity": "somebody-else", "leaseTransitions": transitions}});
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases/{}", text("namespace"), text("name"));
        ask(local, Method::PATCH, &path, Some(patch)).await;
    }
}

async fn ask(local: &mut Local, method: Method, path: &str, body: Option<Value>) -> Value {
    let bytes = body.map_or(Cow::Borrowed(""), |body| Cow::Owned(body.to_string()));
    let mut request = Request::new(full(bytes.into_owned()));
    *request.method_mut() = method;
    *request.uri_mut() = path.parse().expect("a path");
    let merge = http::HeaderValue::from_static("application/merge-patch+json");
    request.headers_mut().insert(http::header::CONTENT_TYPE, merge);
    let Ok(response) = local.call(request).await;
    let bytes = response.into_body().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}
