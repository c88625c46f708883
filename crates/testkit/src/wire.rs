//! The way from a client to the server, and what can go wrong on it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Method, Request, Response, Uri};
use kube::client::Body as ClientBody;
use serde_json::json;
use setpoint_apiserver::Local;
use setpoint_apiserver::body::{Body, BoxError, full};
use setpoint_runtime::controller::Author;
use tower::Service;

use crate::course::Course;
use crate::events;
use crate::life::{Broken, Effect, Life};
use crate::plane::Activity;

/// The service that clients of a test call.
#[derive(Clone)]
pub(crate) struct Wire {
    local: Local,
    activity: Arc<Activity>,
    /// Whose calls these are, if faults can strike them.
    life: Option<Life>,
    /// Whether what is said about the status of nodes is a heartbeat.
    has_heartbeats: bool,
}

impl Wire {
    pub(crate) fn plain(local: Local, activity: Arc<Activity>) -> Wire {
        Wire { local, activity, life: None, has_heartbeats: false }
    }

    /// For those who play nodes: the status of a node is written again and again, whatever happens.
    #[cfg(feature = "controllers")]
    pub(crate) fn of_nodes(local: Local, activity: Arc<Activity>) -> Wire {
        Wire { local, activity, life: None, has_heartbeats: true }
    }

    pub(crate) fn mortal(local: Local, activity: Arc<Activity>, life: Life) -> Wire {
        Wire { local, activity, life: Some(life), has_heartbeats: false }
    }

    /// Sends a request and counts it if it writes.
    async fn send(&mut self, request: Request<ClientBody>, call: &Call) -> Response<Body> {
        let is_heartbeat = self.has_heartbeats && is_node_status(request.uri().path());
        let is_too_much = call.is_change() && !is_heartbeat && !self.activity.note();
        if is_too_much && self.life.is_some() {
            return std::future::pending().await;
        }
        if call.is_write && call.is_event {
            self.activity.note_word();
        }
        let Ok(response) = self.local.call(request).await;
        if let Some(life) = self.life.as_ref().filter(|_| call.is_change()) {
            life.changed();
        }
        response
    }

    async fn run(mut self, request: Request<ClientBody>) -> Result<Response<Body>, BoxError> {
        if !self.activity.pulse().step(|| format!("the call {} {}", request.method(), request.uri().path())) {
            return std::future::pending().await;
        }
        let call = Call::of(&request);
        let Some(life) = self.life.clone() else { return Ok(self.send(request, &call).await) };
        life.go_on().await;
        let request = match as_seen(life.course(), request, &call).await {
            Ok(request) => request,
            Err(refused) => return Ok(*refused),
        };
        if call.is_watch {
            let response = self.send(request, &call).await;
            return Ok(response.map(|body| events::follow(body, life.course().clone())));
        }
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let author = request.extensions().get::<Author>().map(|author| Arc::clone(&author.0));
        let what = || format!("{method} {path}");
        match life.call(call.effect(), author.as_ref(), what, self.send(request, &call)).await {
            Err(Broken::Refused(code)) => Ok(refusal(code)),
            answer => Ok(answer?),
        }
    }
}

impl Service<Request<ClientBody>> for Wire {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<ClientBody>) -> Self::Future {
        Box::pin(self.clone().run(request))
    }
}

/// What becomes of a request while the process sees an old world: lists show that one, streams wait.
async fn as_seen(
    course: &Course,
    request: Request<ClientBody>,
    call: &Call,
) -> Result<Request<ClientBody>, Box<Response<Body>>> {
    let mut frozen = course.frozen();
    let Some(revision) = frozen.borrow().clone() else { return Ok(request) };
    if call.is_lease || !call.is_collection || call.is_write {
        return Ok(request);
    }
    if call.has_initial_events {
        return Err(Box::new(refusal(400)));
    }
    if call.is_watch {
        // The run ends with the course, and then nobody asks.
        let _ = frozen.wait_for(Option::is_none).await;
        return Ok(request);
    }
    Ok(at_revision(request, &revision))
}

/// Lists at exactly this revision.
fn at_revision(mut request: Request<ClientBody>, revision: &str) -> Request<ClientBody> {
    let kept = |part: &&str| !part.starts_with("resourceVersion") && !part.is_empty();
    let query = request.uri().query().unwrap_or("").split('&').filter(kept).collect::<Vec<_>>().join("&");
    let path = request.uri().path();
    let uri = format!("{path}?{query}&resourceVersion={revision}&resourceVersionMatch=Exact");
    if let Ok(uri) = uri.parse::<Uri>() {
        *request.uri_mut() = uri;
    }
    request
}

/// What a request is.
struct Call {
    is_write: bool,
    is_watch: bool,
    is_lease: bool,
    is_event: bool,
    is_collection: bool,
    has_initial_events: bool,
}

impl Call {
    fn of(request: &Request<ClientBody>) -> Call {
        let query = request.uri().query().unwrap_or("");
        let has = |wanted: &str| query.split('&').any(|part| part == wanted);
        let path = request.uri().path();
        Call {
            is_write: ![Method::GET, Method::HEAD].contains(request.method())
                && !path.contains(".authorization.k8s.io/"),
            is_watch: has("watch=true") || has("watch=1"),
            is_lease: path.contains("/coordination.k8s.io/"),
            is_event: path.contains("/events.k8s.io/") || is_core_event(path),
            is_collection: is_collection(path),
            has_initial_events: has("sendInitialEvents=true"),
        }
    }

    fn effect(&self) -> Effect {
        match (self.is_lease, self.is_write) {
            _ if self.is_event => Effect::Word,
            (true, is_write) => Effect::Lease { is_write },
            (false, true) => Effect::Write,
            (false, false) => Effect::Read,
        }
    }

    /// Whether it changes anything but a heartbeat, or what is told about things.
    fn is_change(&self) -> bool {
        self.is_write && !self.is_lease && !self.is_event
    }
}

/// Whether a path names events in the form of `v1`.
fn is_core_event(path: &str) -> bool {
    let Some(rest) = path.strip_prefix("/api/v1/") else { return false };
    let mut parts = rest.split('/');
    match parts.next() {
        Some("namespaces") => parts.nth(1) == Some("events"),
        first => first == Some("events"),
    }
}

/// Whether a path names the status of a node.
fn is_node_status(path: &str) -> bool {
    path.strip_prefix("/api/v1/nodes/").is_some_and(|rest| rest.ends_with("/status"))
}

/// Whether a path names all objects of a kind, in a namespace or everywhere.
fn is_collection(path: &str) -> bool {
    let mut parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let head = if parts.first() == Some(&"apis") { 3 } else { 2 };
    parts.drain(..head.min(parts.len()));
    matches!(parts[..], [_] | ["namespaces", _, _])
}

fn refusal(code: u16) -> Response<Body> {
    let (reason, message) = match code {
        400 => ("BadRequest", "sendInitialEvents is not supported"),
        409 => {
            ("Conflict", "the object has been modified; please apply your changes to the latest version and try again")
        }
        429 => ("TooManyRequests", "the server is currently unable to handle the request"),
        _ => ("InternalError", "an error on the server has prevented the request from succeeding"),
    };
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code,
        "reason": reason, "message": message,
    });
    let mut response = Response::new(full(status.to_string()));
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(http::header::CONTENT_TYPE, json);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collections_are_told_from_objects() {
        for path in ["/api/v1/pods", "/api/v1/namespaces/a/pods", "/apis/apps/v1/deployments", "/api/v1/namespaces"] {
            assert!(is_collection(path), "{path}");
        }
        for path in ["/api/v1/namespaces/a/pods/b", "/api/v1/nodes/a", "/apis/apps/v1/namespaces/a/deployments/b/scale"]
        {
            assert!(!is_collection(path), "{path}");
        }
    }

    #[test]
    fn events_of_v1_are_told_from_the_rest() {
        for path in ["/api/v1/namespaces/a/events", "/api/v1/namespaces/a/events/b", "/api/v1/events"] {
            assert!(is_core_event(path), "{path}");
        }
        for path in ["/api/v1/namespaces/events", "/api/v1/namespaces/events/pods", "/apis/apps/v1/events"] {
            assert!(!is_core_event(path), "{path}");
        }
    }
}
