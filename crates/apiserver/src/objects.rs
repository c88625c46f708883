//! Objects between the handlers and the store: found, read, encoded and committed.

use std::sync::Arc;

use serde_json::{Map, Value};
use setpoint_api::Status;
use setpoint_schema::Edit;
use setpoint_store::{
    Change, CommitError, Durability, Expectation, Facts, FactsError, Key, Object, Snapshot, Transaction,
};

use crate::call::Call;
use crate::freshness::RETRY_AFTER_SECONDS;
use crate::registry::Served;
use crate::{event_expiry, fence};

/// Where an object is stored.
pub fn key(served: &Served, namespace: Option<&str>, name: &str) -> Key {
    match namespace.filter(|_| served.kind.namespaced) {
        Some(namespace) => Key::namespaced(served.stored.clone(), namespace, name),
        None => Key::cluster(served.stored.clone(), name),
    }
}

/// The object at a path, or 404.
pub fn find(
    snapshot: &Snapshot,
    served: &Served,
    namespace: Option<&str>,
    name: &str,
) -> Result<Arc<Object>, Box<Status>> {
    let namespace = namespace.filter(|_| served.kind.namespaced);
    snapshot.get(&served.stored, namespace, name).ok_or_else(|| Box::new(Status::not_found(&served.resource, name)))
}

/// A stored object as a value.
pub fn value(object: &Object) -> Value {
    serde_json::from_slice(object.json()).expect("what is stored was encoded by us")
}

/// A stored object as one of a kind: other versions of the same objects may have another form.
pub fn shown(served: &Served, object: &Object) -> Value {
    served.show_stored(value(object))
}

/// The bytes to store: what it is first, then metadata, then the rest; and where in them the store adds the
/// resourceVersion. The kind of what is built in comes before its version and that of a custom object after it, as in Kubernetes:
/// there are clients that tell at which letter of an answer they found another kind than they asked for.
pub fn encode(object: &Value, is_custom: bool) -> (Vec<u8>, usize) {
    let empty = Map::new();
    let mut insert_at = 0;
    let fields = object.as_object().unwrap_or(&empty);
    let mut out = Vec::with_capacity(1024);
    out.push(b'{');
    let first = if is_custom { ["apiVersion", "kind", "metadata"] } else { ["kind", "apiVersion", "metadata"] };
    let rest = fields.iter().filter(|(name, _)| !first.contains(&name.as_str()));
    let ordered = first.iter().filter_map(|name| fields.get_key_value(*name)).chain(rest);
    for (index, (name, value)) in ordered.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write(&mut out, name);
        out.push(b':');
        match value {
            Value::Object(metadata) if name == "metadata" => {
                insert_at = out.len() + 1;
                encode_metadata(&mut out, metadata);
            }
            value => write(&mut out, value),
        }
    }
    out.push(b'}');
    (out, insert_at)
}

fn encode_metadata(out: &mut Vec<u8>, metadata: &Map<String, Value>) {
    out.push(b'{');
    let kept = metadata.iter().filter(|(name, _)| *name != "resourceVersion");
    for (index, (name, value)) in kept.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write(out, name);
        out.push(b':');
        write(out, value);
    }
    out.push(b'}');
}

fn write(out: &mut Vec<u8>, value: &impl serde::Serialize) {
    serde_json::to_writer(out, value).expect("writing to memory does not fail");
}

/// Commits an object and returns it as stored.
pub(crate) async fn put(
    call: &Call<'_>,
    served: &Served,
    key: Key,
    expectation: Expectation,
    object: Value,
) -> Result<Arc<Object>, CommitError> {
    let transaction = transaction(served, put_change(served, key, expectation, &object));
    drop(object); // before the wait, while it is in the processor's cache
    let committed = call.commit(transaction).await?;
    Ok(committed.objects.into_iter().flatten().next().expect("a put has an object"))
}

/// The transaction of a change, as durable as its kind needs.
pub fn transaction(served: &Served, change: Change) -> Transaction {
    let transaction = Transaction::of(change);
    match durability(served) {
        Durability::Relaxed => transaction.durability(Durability::Relaxed).kept_for(event_expiry::KEPT),
        Durability::Synced => transaction,
    }
}

/// The change that stores an object.
pub fn put_change(served: &Served, key: Key, expectation: Expectation, object: &Value) -> Change {
    let converted = served.is_converted().then(|| served.to_stored(object.clone()));
    let object = converted.as_ref().unwrap_or(object);
    let (json, insert_at) = encode(object, served.custom.is_some());
    Change::put_known(key, expectation, json, insert_at, facts(served, object).expect("handlers store sound objects"))
}

/// What objects are selected by.
fn facts(served: &Served, object: &Value) -> Result<Facts, FactsError> {
    let metadata = &object["metadata"];
    let labels = metadata.get("labels").and_then(Value::as_object).into_iter().flatten();
    let labels: Vec<_> = labels.map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default())).collect();
    let owners = metadata.get("ownerReferences").and_then(Value::as_array).into_iter().flatten();
    let owners: Vec<_> = owners.map(|owner| owner.text("uid")).collect();
    let values = served.selectable_values(object);
    Facts::new(&labels, Arc::clone(&served.fields), &values, metadata.text("uid"), &owners)
}

/// Events are many and tell of things that can be observed again: they need no sync of their own.
fn durability(served: &Served) -> Durability {
    match (&*served.stored.group, &*served.stored.resource) {
        ("", "events") => Durability::Relaxed,
        _ => Durability::Synced,
    }
}

/// The answer to a commit that did not happen.
pub fn refusal(served: &Served, name: &str, error: CommitError) -> Box<Status> {
    Box::new(match error {
        CommitError::Conflict { .. } => modified(served, name),
        CommitError::Exists { .. } => Status::already_exists(&served.resource, name),
        CommitError::Missing { .. } => Status::not_found(&served.resource, name),
        CommitError::Unmet { key, actual } => fence::broken(served, name, &key, actual.as_deref()),
        CommitError::TooLarge { limit, .. } => Status::request_entity_too_large(&format!("limit is {limit}")),
        CommitError::Malformed(why) => Status::internal_error(why),
        CommitError::Refused(why) => refused(why),
        CommitError::Unknown(_) => Status::timeout(&error.to_string(), RETRY_AFTER_SECONDS),
        CommitError::Unavailable(_) => {
            Status::service_unavailable(error.to_string()).with_retry_after(RETRY_AFTER_SECONDS)
        }
        CommitError::Full(_) | CommitError::Stopped(_) => Status::service_unavailable(error.to_string()),
    })
}

/// What etcd refuses is told in its own words, as Kubernetes does.
fn refused(why: String) -> Status {
    let mut status = Status::internal_error(&why);
    status.message = why;
    status.details = None;
    status
}

/// Someone else was faster.
pub fn modified(served: &Served, name: &str) -> Status {
    let why = "the object has been modified; please apply your changes to the latest version and try again";
    Status::conflict(&served.resource, name, why)
}
