//! `/binding`: assigning a pod to a node.

use http::StatusCode;
use serde_json::{Map, Value, json};
use setpoint_api::{FieldError, GroupResource, Path, Status, field};
use setpoint_schema::Edit;
use setpoint_store::{CommitError, Expectation};

use super::read;
use crate::answer::{self, Answer};
use crate::body::Body;
use crate::call::Call;
use crate::query::WriteOptions;
use crate::{admission, objects};

/// How often an assignment that named no version is tried again on a newer one.
const CONFLICT_TRIES_MAX: usize = 16;

/// What a pod takes over from the labels of its node.
const TOPOLOGY: [&str; 2] = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];

pub(super) async fn run(call: &mut Call<'_>, body: Body) -> Answer {
    let (mut binding, options) = read(call, body).await?;
    let name = call.object_name();
    if !binding["metadata"].text("name").is_empty() && binding["metadata"].text("name") != name {
        return Err(Box::new(Status::bad_request("name in URL does not match name in Binding object")));
    }
    admission::post(call, &mut binding, name, &options).await?;
    bind(call, name, &binding, &options).await
}

/// Assigns the pod of a name as the binding says.
pub(crate) async fn bind(call: &Call<'_>, name: &str, binding: &Value, options: &WriteOptions) -> Answer {
    if name.is_empty() {
        return Err(Box::new(Status::bad_request("Name parameter required.")));
    }
    check(binding)?;
    let served = call.server.registry.find("", "v1", "pods").expect("a built-in kind");
    let mut tries = 0;
    loop {
        let current = objects::find(&call.server.store.snapshot(), served, call.namespace, name)?;
        let mut pod = objects::value(&current);
        check_preconditions(call, name, binding, &pod)?;
        assign(call, &mut pod, binding)
            .map_err(|why| Box::new(Status::conflict(&GroupResource::new("", "pods/binding"), name, why)))?;
        served.kind.normalize(&mut pod);
        if options.dry_run {
            return Ok(done());
        }
        let key = objects::key(served, call.namespace, name);
        let expectation = Expectation::Unchanged(current.revision());
        match objects::put(call, served, key, expectation, pod).await {
            Ok(_) => return Ok(done()),
            Err(CommitError::Conflict { .. } | CommitError::Missing { .. }) if tries < CONFLICT_TRIES_MAX => tries += 1,
            Err(error) => return Err(objects::refusal(served, name, error)),
        }
    }
}

fn done() -> http::Response<Body> {
    answer::status(&Status::success(StatusCode::CREATED.as_u16()))
}

fn check(binding: &Value) -> Result<(), Box<Status>> {
    let path = Path::root("target");
    let (kind, name) = (binding["target"].text("kind"), binding["target"].text("name"));
    let mut errors = Vec::new();
    if !kind.is_empty() && kind != "Node" {
        errors.push(FieldError::not_supported(&path.child("kind"), kind, &["Node", "<empty>"]));
    }
    if name.is_empty() {
        errors.push(FieldError::required(&path.child("name"), ""));
    }
    match field::aggregate(&errors) {
        None => Ok(()),
        Some(why) => {
            // Upstream answers with a bare error here, and clients have learned to read it.
            let mut status = Status::bad_request(why);
            (status.code, status.reason) = (500, String::new());
            Err(Box::new(status))
        }
    }
}

fn check_preconditions(call: &Call<'_>, name: &str, binding: &Value, pod: &Value) -> Result<(), Box<Status>> {
    for (field, what) in [("uid", "UID"), ("resourceVersion", "ResourceVersion")] {
        let (given, actual) = (binding["metadata"].text(field), pod["metadata"].text(field));
        if given.is_empty() || given == actual {
            continue;
        }
        let namespace = call.namespace.unwrap_or_default();
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: /registry/pods/{namespace}/{name}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: {what} in precondition: {given}, {what} in object meta: {actual}"
        );
        return Err(Box::new(Status::conflict(&GroupResource::new("", "pods"), name, why)));
    }
    Ok(())
}

fn assign(call: &Call<'_>, pod: &mut Value, binding: &Value) -> Result<(), String> {
    let name = pod["metadata"].text("name").to_owned();
    if pod["metadata"].has("deletionTimestamp") {
        return Err(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    let assigned = pod["spec"].text("nodeName");
    if !assigned.is_empty() {
        return Err(format!("pod {name} is already assigned to node {}", setpoint_api::quote::quote(assigned)));
    }
    if pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
        return Err(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    let node = binding["target"].text("name");
    pod.ensure("spec").set("nodeName", node);
    merge(pod.ensure("metadata"), "annotations", &binding["metadata"]["annotations"]);
    merge(pod.ensure("metadata"), "labels", &binding["metadata"]["labels"]);
    merge(pod.ensure("metadata"), "labels", &topology(call, node));
    let now = call.server.clock.timestamp();
    let status = pod.ensure("status");
    status.remove("nominatedNodeName");
    set_condition(status, json!({"type": "PodScheduled", "status": "True"}), &now);
    Ok(())
}

fn topology(call: &Call<'_>, node: &str) -> Value {
    let found = call.server.store.snapshot().get(&GroupResource::new("", "nodes"), None, node);
    let labels = found.map(|node| objects::value(&node)["metadata"]["labels"].clone()).unwrap_or_default();
    let kept = TOPOLOGY.iter().filter_map(|key| Some(((*key).to_owned(), labels.get(*key)?.clone())));
    Value::Object(kept.collect())
}

fn merge(metadata: &mut Value, field: &str, added: &Value) {
    let Some(added) = added.as_object().filter(|added| !added.is_empty()) else { return };
    let mut all: Map<String, Value> = metadata[field].as_object().cloned().unwrap_or_default();
    all.extend(added.iter().map(|(key, value)| (key.clone(), value.clone())));
    metadata.set(field, Value::Object(all));
}

/// Sets a pod's condition. Its time moves only if its status does.
pub(super) fn set_condition(status: &mut Value, mut condition: Value, now: &str) {
    let mut all = status["conditions"].as_array().cloned().unwrap_or_default();
    let place = all.iter().position(|known| known.text("type") == condition.text("type"));
    condition.set("lastProbeTime", Value::Null);
    match place {
        Some(place) => {
            let before = &all[place];
            let same = before.text("status") == condition.text("status");
            let time = if same { before["lastTransitionTime"].clone() } else { now.into() };
            condition.set("lastTransitionTime", time);
            all[place] = condition;
        }
        None => {
            condition.set("lastTransitionTime", now);
            all.push(condition);
        }
    }
    status.set("conditions", all);
}
