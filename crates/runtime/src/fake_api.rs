//! A small API server for tests: collections of JSON objects, one order of versions, watches, and faults on request.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use http::{Method, Request, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::mpsc;

/// Lets virtual time pass: the clock of these tests is paused, so it jumps from timer to timer and each fires in its turn.
pub async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

type Answer = Response<UnsyncBoxBody<Bytes, std::io::Error>>;

/// What happens to a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    #[default]
    None,
    /// Answered with this code, without effect.
    Refuse(u16),
    /// Cut off before it arrives.
    LoseRequest,
    /// Carried out, and the answer is lost.
    LoseAnswer,
    /// Carried out after a while.
    Delay(Duration),
}

/// One request as it came.
#[derive(Clone, Debug)]
pub struct Call {
    pub method: Method,
    pub path: String,
    pub media: String,
    pub fence: Option<String>,
    pub body: Value,
}

type Plan = Box<dyn FnMut(&Call) -> Fault + Send>;

/// Clones share one server.
#[derive(Clone, Default)]
pub struct FakeApi(Arc<Mutex<Server>>);

#[derive(Default)]
struct Server {
    version: u64,
    /// By plural, then `namespace/name`.
    objects: BTreeMap<(String, String), Value>,
    history: Vec<(u64, String, Value)>,
    watches: Vec<(String, mpsc::UnboundedSender<Bytes>)>,
    faults: VecDeque<(&'static str, u16, &'static str)>,
    plan: Option<Plan>,
    requests: Vec<String>,
    calls: Vec<Call>,
    compacted: u64,
    no_streaming: bool,
    no_bookmarks: bool,
    hidden: usize,
}

struct Ask {
    plural: String,
    namespace: Option<String>,
    name: Option<String>,
    status: bool,
    query: BTreeMap<String, String>,
}

impl FakeApi {
    pub fn client(&self) -> Client {
        let api = self.clone();
        let service = tower::service_fn(move |request| api.clone().serve(request));
        Client::new(service, "default")
    }

    /// Asks `plan` about each request from now on.
    pub fn plan(&self, plan: impl FnMut(&Call) -> Fault + Send + 'static) {
        self.0.lock().unwrap().plan = Some(Box::new(plan));
    }

    /// All requests that arrived so far, and forgets them.
    pub fn take_calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.0.lock().unwrap().calls)
    }

    /// Writes the object at a path as some other client.
    pub fn put_at(&self, path: &str, mut object: Value) {
        let ask = Ask::read(&path.parse().unwrap());
        if let Some(namespace) = &ask.namespace {
            object["metadata"]["namespace"] = json!(namespace);
        }
        self.put(&ask.plural, object);
    }

    /// The object at a path.
    pub fn object(&self, path: &str) -> Option<Value> {
        let ask = Ask::read(&path.parse().unwrap());
        self.get(&ask.plural, &ask.key())
    }

    /// Writes an object as some other client; returns its version.
    pub fn put(&self, plural: &str, mut object: Value) -> u64 {
        let mut server = self.0.lock().unwrap();
        let key = key_of(&object);
        let known = server.objects.get(&(plural.to_owned(), key.clone())).cloned();
        server.version += 1;
        let version = server.version;
        if object["metadata"]["uid"].is_null() {
            let uid = known.as_ref().map_or(json!(format!("uid-{version}")), |known| known["metadata"]["uid"].clone());
            object["metadata"]["uid"] = uid;
        }
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        server.objects.insert((plural.to_owned(), key), object.clone());
        let kind = if known.is_some() { "MODIFIED" } else { "ADDED" };
        server.tell(plural, version, kind, &object);
        version
    }

    pub fn delete(&self, plural: &str, key: &str) {
        let mut server = self.0.lock().unwrap();
        let Some(mut object) = server.objects.remove(&(plural.to_owned(), key.to_owned())) else { return };
        server.version += 1;
        let version = server.version;
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        server.tell(plural, version, "DELETED", &object);
    }

    pub fn get(&self, plural: &str, key: &str) -> Option<Value> {
        self.0.lock().unwrap().objects.get(&(plural.to_owned(), key.to_owned())).cloned()
    }

    /// Every ConfigMap's value by its key.
    pub fn all(&self, plural: &str) -> BTreeMap<String, String> {
        let server = self.0.lock().unwrap();
        let objects = server.objects.iter().filter(|((known, _), _)| known == plural);
        objects.map(|((_, key), object)| (key.clone(), object["data"]["value"].as_str().unwrap().to_owned())).collect()
    }

    /// The next request whose line contains `what` is answered with this status.
    pub fn fail_next(&self, what: &'static str, code: u16, reason: &'static str) {
        self.0.lock().unwrap().faults.push_back((what, code, reason));
    }

    /// Ends all watches as a lost connection does.
    pub fn cut_watches(&self) {
        self.0.lock().unwrap().watches.clear();
    }

    /// Forgets all events so far: a watch from here or before is answered with 410.
    pub fn compact(&self) {
        let mut server = self.0.lock().unwrap();
        server.compacted = server.version;
        server.history.clear();
    }

    pub fn refuse_streaming(&self) {
        self.0.lock().unwrap().no_streaming = true;
    }

    /// Initial events come without an end, as from a server that doesn't know them.
    pub fn forget_bookmarks(&self) {
        self.0.lock().unwrap().no_bookmarks = true;
    }

    /// The next `count` events reach no watch.
    pub fn hide_events(&self, count: usize) {
        self.0.lock().unwrap().hidden = count;
    }

    /// Writes a line into all watches.
    pub fn say(&self, line: &Value) {
        let text = Bytes::from(format!("{line}\n"));
        self.0.lock().unwrap().watches.retain(|(_, watch)| watch.send(text.clone()).is_ok());
    }

    /// Requests that contain `what`.
    pub fn requests(&self, what: &str) -> Vec<String> {
        let server = self.0.lock().unwrap();
        server.requests.iter().filter(|request| request.contains(what)).cloned().collect()
    }

    async fn serve(self, request: Request<Body>) -> Result<Answer, std::io::Error> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
        let header = |name: &str| parts.headers.get(name).and_then(|it| it.to_str().ok()).map(str::to_owned);
        let call = Call {
            method: parts.method.clone(),
            path: parts.uri.path().to_owned(),
            media: header("content-type").unwrap_or_default(),
            fence: header("setpoint-fence"),
            body: serde_json::from_slice(&body).unwrap_or(Value::Null),
        };
        let fault = self.0.lock().unwrap().plan.as_mut().map_or(Fault::None, |plan| plan(&call));
        match fault {
            Fault::Refuse(code) => return Ok(failure(code, "Planned")),
            Fault::LoseRequest => return Err(std::io::Error::other("the request was lost")),
            Fault::Delay(time) => tokio::time::sleep(time).await,
            Fault::None | Fault::LoseAnswer => (),
        }
        self.0.lock().unwrap().calls.push(call.clone());
        let answer = self.answer(&parts.uri, call);
        if fault == Fault::LoseAnswer {
            return Err(std::io::Error::other("the answer was lost"));
        }
        Ok(answer)
    }

    fn answer(&self, uri: &http::Uri, call: Call) -> Answer {
        let line = format!("{} {uri}", call.method);
        {
            let mut server = self.0.lock().unwrap();
            server.requests.push(line.clone());
            if let Some(place) = server.faults.iter().position(|(what, ..)| line.contains(what)) {
                let (_, code, reason) = server.faults.remove(place).unwrap();
                return failure(code, reason);
            }
        }
        let ask = Ask::read(uri);
        match call.method {
            Method::GET if ask.query.contains_key("watch") => self.0.lock().unwrap().watch(&ask),
            Method::GET if ask.name.is_none() => self.0.lock().unwrap().list(&ask),
            Method::GET => found(self.get(&ask.plural, &ask.key())),
            Method::DELETE => self.remove(&ask, &call.body),
            Method::POST => self.create(&ask, call.body),
            _ => self.update(&ask, call),
        }
    }

    fn create(&self, ask: &Ask, mut object: Value) -> Answer {
        if let Some(namespace) = &ask.namespace {
            object["metadata"]["namespace"] = json!(namespace);
        }
        let key = key_of(&object);
        if self.get(&ask.plural, &key).is_some() {
            return failure(409, "AlreadyExists");
        }
        self.put(&ask.plural, object);
        found(self.get(&ask.plural, &key))
    }

    fn remove(&self, ask: &Ask, options: &Value) -> Answer {
        let Some(known) = self.get(&ask.plural, &ask.key()) else { return failure(404, "NotFound") };
        let uid = &options["preconditions"]["uid"];
        if !uid.is_null() && *uid != known["metadata"]["uid"] {
            return failure(409, "Conflict");
        }
        self.delete(&ask.plural, &ask.key());
        found(Some(known))
    }

    fn update(&self, ask: &Ask, Call { method, media, body, .. }: Call) -> Answer {
        let Some(known) = self.get(&ask.plural, &ask.key()) else {
            return if media.contains("apply-patch") { self.create(ask, body) } else { failure(404, "NotFound") };
        };
        let wanted = &body["metadata"]["resourceVersion"];
        if !wanted.is_null() && *wanted != known["metadata"]["resourceVersion"] {
            return failure(409, "Conflict");
        }
        let mut object = known.clone();
        if method == Method::PATCH {
            merge(&mut object, &body);
        } else if ask.status {
            object["status"] = body["status"].clone();
        } else {
            object = body;
        }
        if object != known {
            self.put(&ask.plural, object);
        }
        found(self.get(&ask.plural, &ask.key()))
    }
}

impl Server {
    fn tell(&mut self, plural: &str, version: u64, kind: &str, object: &Value) {
        let event = json!({"type": kind, "object": object});
        self.history.push((version, plural.to_owned(), event.clone()));
        if self.hidden > 0 {
            self.hidden -= 1;
            return;
        }
        let text = Bytes::from(format!("{event}\n"));
        self.watches.retain(|(watched, watch)| watched != plural || watch.send(text.clone()).is_ok());
    }

    fn list(&self, ask: &Ask) -> Answer {
        let from: usize = ask.query.get("continue").map_or(0, |token| token.parse().unwrap());
        let limit = ask.query.get("limit").map_or(usize::MAX, |limit| limit.parse().unwrap());
        let is_asked_for = |key: &str| ask.namespace.as_ref().is_none_or(|it| key.starts_with(&format!("{it}/")));
        let asked = self.objects.iter().filter(|((plural, key), _)| *plural == ask.plural && is_asked_for(key));
        let all: Vec<_> = asked.map(|(_, object)| object).collect();
        let items: Vec<_> = all.iter().skip(from).take(limit).collect();
        let next = from + items.len();
        let token = if next < all.len() { next.to_string() } else { String::new() };
        let meta = json!({"resourceVersion": self.version.to_string(), "continue": token});
        found(Some(json!({"metadata": meta, "items": items})))
    }

    fn watch(&mut self, ask: &Ask) -> Answer {
        let (sender, receiver) = mpsc::unbounded_channel();
        let say = |event: Value| drop(sender.send(Bytes::from(format!("{event}\n"))));
        if ask.query.contains_key("sendInitialEvents") {
            if self.no_streaming {
                return failure(422, "Invalid");
            }
            for (_, object) in self.objects.iter().filter(|((plural, _), _)| *plural == ask.plural) {
                say(json!({"type": "ADDED", "object": object}));
            }
            if !self.no_bookmarks {
                say(bookmark(self.version, true));
            }
        } else {
            let from: u64 = ask.query["resourceVersion"].parse().unwrap();
            if from < self.compacted {
                say(json!({"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "too old"}}));
                return stream(receiver);
            }
            for (_, _, event) in self.history.iter().filter(|(at, plural, _)| *at > from && *plural == ask.plural) {
                say(event.clone());
            }
        }
        self.watches.push((ask.plural.clone(), sender));
        stream(receiver)
    }
}

impl Ask {
    fn read(uri: &http::Uri) -> Self {
        let mut parts: Vec<_> = uri.path().trim_matches('/').split('/').collect();
        let prefix = if parts[0] == "api" { 2 } else { 3 };
        let mut parts = parts.split_off(prefix).into_iter().map(str::to_owned).peekable();
        let mut namespace = None;
        if parts.peek().is_some_and(|part| part == "namespaces") {
            parts.next();
            namespace = parts.next();
        }
        let query = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()).into_owned().collect();
        let plural = parts.next().unwrap_or_default();
        Self { plural, namespace, name: parts.next(), status: parts.next().is_some(), query }
    }

    fn key(&self) -> String {
        crate::Key::new(self.namespace.as_deref(), self.name.as_deref().unwrap_or_default()).to_string()
    }
}

/// A bookmark, maybe the one that ends the initial events.
pub fn bookmark(version: u64, ends_initial_events: bool) -> Value {
    let annotations = if ends_initial_events { json!({"k8s.io/initial-events-end": "true"}) } else { json!({}) };
    json!({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": version.to_string(), "annotations": annotations}}})
}

/// A ConfigMap with one value.
pub fn config_map(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "default", "name": name}, "data": {"value": value}})
}

fn key_of(object: &Value) -> String {
    let meta = &object["metadata"];
    crate::Key::new(meta["namespace"].as_str(), meta["name"].as_str().unwrap()).to_string()
}

fn merge(into: &mut Value, patch: &Value) {
    match patch {
        Value::Object(fields) => {
            if !into.is_object() {
                *into = json!({});
            }
            for (name, value) in fields {
                if value.is_null() {
                    into.as_object_mut().unwrap().remove(name);
                } else {
                    merge(&mut into[name], value);
                }
            }
        }
        other => *into = other.clone(),
    }
}

fn found(object: Option<Value>) -> Answer {
    let Some(object) = object else { return failure(404, "NotFound") };
    let body = Full::new(Bytes::from(object.to_string())).map_err(|never| match never {}).boxed_unsync();
    Response::new(body)
}

fn failure(code: u16, reason: &str) -> Answer {
    let status = json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": reason});
    let mut answer = found(Some(status));
    *answer.status_mut() = http::StatusCode::from_u16(code).unwrap();
    answer
}

fn stream(receiver: mpsc::UnboundedReceiver<Bytes>) -> Answer {
    let lines = futures_util::stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|line| (line, receiver))
    });
    Response::new(StreamBody::new(lines.map(|line| Ok(Frame::data(line)))).boxed_unsync())
}
