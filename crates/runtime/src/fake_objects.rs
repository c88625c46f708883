//! An API server for tests in a map: objects by path, resource versions, conflicts, and faults on request. It knows
//! nothing of kinds, watches or validation.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tower::BoxError;

/// What happens to a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Fault {
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
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) media: String,
    pub(crate) fence: Option<String>,
    pub(crate) body: Value,
}

type Plan = Box<dyn FnMut(&Call) -> Fault + Send>;

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Value>,
    version: u64,
    calls: Vec<Call>,
    plan: Option<Plan>,
}

/// Clones are the same server.
#[derive(Clone, Default)]
pub(crate) struct FakeObjects(Arc<Mutex<State>>);

impl FakeObjects {
    pub(crate) fn new() -> FakeObjects {
        FakeObjects::default()
    }

    /// Asks `plan` about each request from now on.
    pub(crate) fn plan(&self, plan: impl FnMut(&Call) -> Fault + Send + 'static) {
        self.state().plan = Some(Box::new(plan));
    }

    pub(crate) fn client(&self) -> Client {
        let api = self.clone();
        let service = tower::service_fn(move |request| api.clone().serve(request));
        Client::new(service, "default")
    }

    pub(crate) fn put(&self, path: &str, object: Value) {
        let mut state = self.state();
        state.store(path, object);
    }

    pub(crate) fn object(&self, path: &str) -> Option<Value> {
        self.state().objects.get(path).cloned()
    }

    /// All requests so far, and forgets them.
    pub(crate) fn take_calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.state().calls)
    }

    async fn serve(self, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        let (parts, body) = request.into_parts();
        let header = |name: &str| parts.headers.get(name).and_then(|it| it.to_str().ok()).map(str::to_owned);
        let bytes = body.collect_bytes().await?;
        let call = Call {
            method: parts.method.clone(),
            path: parts.uri.path().to_owned(),
            media: header("content-type").unwrap_or_default(),
            fence: header("setpoint-fence"),
            body: serde_json::from_slice(&bytes).unwrap_or(Value::Null),
        };
        let fault = {
            let mut state = self.state();
            state.plan.as_mut().map_or(Fault::None, |plan| plan(&call))
        };
        match fault {
            Fault::Refuse(code) => return Ok(answer(code, &status(code, "Planned"))),
            Fault::LoseRequest => return Err("the request was lost".into()),
            Fault::Delay(time) => tokio::time::sleep(time).await,
            Fault::None | Fault::LoseAnswer => (),
        }
        let (code, value) = self.state().perform(call);
        if fault == Fault::LoseAnswer {
            return Err("the answer was lost".into());
        }
        Ok(answer(code, &value))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }
}

impl State {
    fn perform(&mut self, call: Call) -> (u16, Value) {
        self.calls.push(call.clone());
        let Call { method, path, body, media, .. } = call;
        let found = self.objects.get(&path).cloned();
        match (method.as_str(), found) {
            ("GET", Some(object)) => (200, object),
            ("GET", None) if is_collection(&path) => (200, self.list(&path)),
            ("POST", _) => {
                let name = body["metadata"]["name"].as_str().unwrap_or_default();
                let path = format!("{path}/{name}");
                match self.objects.contains_key(&path) {
                    true => (409, status(409, "AlreadyExists")),
                    false => (201, self.store(&path, body)),
                }
            }
            ("PUT", Some(old)) => match &body["metadata"]["resourceVersion"] {
                Value::String(version) if *version != old["metadata"]["resourceVersion"] => {
                    (409, status(409, "Conflict"))
                }
                _ => (200, self.store(&path, body)),
            },
            ("PATCH", found) if found.is_some() || media.contains("apply-patch") => {
                let mut merged = found.unwrap_or(json!({}));
                let version = body["metadata"]["resourceVersion"].clone();
                if !version.is_null() && version != merged["metadata"]["resourceVersion"] {
                    return (409, status(409, "Conflict"));
                }
                merge(&mut merged, &body);
                (200, self.store(&path, merged))
            }
            ("DELETE", Some(object)) => {
                let uid = &body["preconditions"]["uid"];
                if !uid.is_null() && *uid != object["metadata"]["uid"] {
                    return (409, status(409, "Conflict"));
                }
                self.objects.remove(&path);
                (200, object)
            }
            _ => (404, status(404, "NotFound")),
        }
    }

    fn store(&mut self, path: &str, mut object: Value) -> Value {
        self.version += 1;
        let metadata = &mut object["metadata"];
        metadata["resourceVersion"] = json!(self.version.to_string());
        if metadata["uid"].is_null() {
            metadata["uid"] = json!(format!("uid-{}", self.version));
        }
        self.objects.insert(path.to_owned(), object.clone());
        object
    }

    fn list(&self, path: &str) -> Value {
        let prefix = format!("{path}/");
        let items: Vec<&Value> =
            self.objects.iter().filter(|(at, _)| at.starts_with(&prefix)).map(|(_, object)| object).collect();
        json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": self.version.to_string()}, "items": items})
    }
}

/// `/api/v1/pods` and `/apis/g/v/namespaces/n/things` are, `/api/v1/namespaces/n/pods/p` isn't.
fn is_collection(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    let rest = if parts[0] == "api" { &parts[2..] } else { &parts[3..] };
    matches!(rest.len(), 1 | 3)
}

fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in patch {
        match value {
            Value::Null => drop(target.as_object_mut().map(|fields| fields.remove(key))),
            _ => merge(&mut target[key], value),
        }
    }
}

fn status(code: u16, reason: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": reason, "reason": reason, "code": code})
}

fn answer(code: u16, value: &Value) -> Response<Body> {
    let body = Body::from(value.to_string().into_bytes());
    Response::builder().status(code).header("content-type", "application/json").body(body).unwrap()
}
