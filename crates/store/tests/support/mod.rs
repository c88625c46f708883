//! What the suites of the store share: a world of small objects, a disk that can be looked into, and the truth to compare with.

// Each suite uses a part of this.
#![allow(dead_code)]

pub mod apart;
pub mod etcd;
pub mod etcd_process;
pub mod linearizability;
pub mod planted;
pub mod proxy;
pub mod traced_disk;
pub mod truth;
pub mod watch_checker;
pub mod workload;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use setpoint_api::kind::GroupResource;
use setpoint_api::{Revision, fields, labels};
use setpoint_store::{
    Change, Disk, Expectation, FieldNames, Fields, Key, Object, OpenError, Options, Query, Report, Selection, Snapshot,
    Store, WindowBounds,
};

/// Namespaces that objects live in.
pub const NAMESPACES: [&str; 3] = ["blue", "green", "red"];

/// How many seeds a suite tries: the number for each commit, times `SETPOINT_SEEDS` for longer runs.
pub fn seeds(each_commit: u64) -> std::ops::Range<u64> {
    let factor = std::env::var("SETPOINT_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    0..each_commit * factor
}

/// Runs on one thread with a clock that only moves when everyone waits for it.
pub fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(future)
}

/// Everything under way comes to rest: all tasks have done what they can without the clock.
pub async fn rest() {
    for _ in 0..64 {
        tokio::task::yield_now().await;
    }
}

/// The resource that most objects belong to.
pub fn pods() -> GroupResource {
    GroupResource::new("", "pods")
}

/// A second one.
pub fn nodes() -> GroupResource {
    GroupResource::new("infra", "nodes")
}

/// A key of [`pods`].
pub fn pod(namespace: &str, name: &str) -> Key {
    Key::namespaced(pods(), namespace, name)
}

/// A key of [`nodes`], which have no namespace.
pub fn node(name: &str) -> Key {
    Key::cluster(nodes(), name)
}

/// Selects by `spec.node` besides name and namespace.
pub struct ByNode;

impl Fields for ByNode {
    fn names(&self, resource: &GroupResource) -> FieldNames {
        if *resource == pods() { Arc::from([Box::from("spec.node")]) } else { Arc::from([]) }
    }

    fn values(&self, _: &GroupResource, json: &[u8]) -> Vec<String> {
        vec![text_at(std::str::from_utf8(json).expect("JSON is UTF-8"), "node").unwrap_or_default().to_owned()]
    }
}

/// The JSON of an object: a label `color`, a field `spec.node`, and a value that tells each version from all others.
pub fn json(key: &Key, color: &str, node: &str, value: &str) -> Vec<u8> {
    let namespace = key.namespace().map(|namespace| format!(r#""namespace":"{namespace}","#)).unwrap_or_default();
    let name = key.name();
    format!(
        r#"{{"metadata":{{{namespace}"name":"{name}","labels":{{"color":"{color}"}}}},"spec":{{"node":"{node}","value":"{value}"}}}}"#
    )
    .into_bytes()
}

/// The string under a name that occurs once. Parsing would be most of what these suites do.
pub fn text_at<'a>(json: &'a str, name: &str) -> Option<&'a str> {
    let start = json.find(&format!("\"{name}\":\""))? + name.len() + 4;
    json[start..].split('"').next()
}

/// Stores a version of an object that only differs by its value.
pub fn put(key: &Key, expectation: Expectation, value: &str) -> Change {
    Change::put(key.clone(), expectation, json(key, "grey", "n1", value), &ByNode).expect("an object")
}

/// The value of an object made by [`json`].
pub fn value_of(json: &[u8]) -> String {
    let text = std::str::from_utf8(json).expect("JSON is UTF-8");
    text_at(text, "value").expect("stored objects have a value").to_owned()
}

/// A selection by label and field, either of which may be empty.
pub fn selection(label: &str, field: &str) -> Selection {
    Selection::new(labels::Selector::parse(label).expect("labels"), fields::Selector::parse(field).expect("fields"))
}

/// Small segments and checkpoints, so that a short run has many of both.
pub fn small() -> Options {
    Options {
        identity: [7; 16],
        segment_bytes: 2048,
        checkpoint_bytes: 4096,
        relaxed_max: 16,
        window: WindowBounds { events: 4096, bytes: 1024 * 1024, ..WindowBounds::default() },
        seal: None,
    }
}

/// Opens a store with [`ByNode`].
pub async fn open(disk: impl Disk, options: Options) -> Result<(Store, Report), OpenError> {
    Store::open(Arc::new(disk), Arc::new(ByNode), options).await
}

/// Every object by key, with its revision and its JSON.
pub type Dump = BTreeMap<Key, (Revision, String)>;

/// An object's JSON.
pub fn text(object: &Object) -> String {
    String::from_utf8(object.json().to_vec()).expect("JSON is UTF-8")
}

/// All objects of a snapshot.
pub fn dump(snapshot: &Snapshot) -> Dump {
    snapshot.counts().keys().flat_map(|resource| dump_of(snapshot, resource)).collect()
}

/// All objects of one resource.
pub fn dump_of(snapshot: &Snapshot, resource: &GroupResource) -> Dump {
    let everything = Selection::everything();
    let query = Query { resource, namespace: None, selection: &everything, after: None, limit: None };
    let entry = |object: &Arc<Object>| {
        let json = text(object);
        let version = format!(r#"{{"metadata":{{"resourceVersion":"{}","#, object.revision());
        assert!(json.starts_with(&version), "the JSON tells another revision than {}: {json}", object.revision());
        let name = text_at(&json, "name").expect("a name");
        let key = match text_at(&json, "namespace") {
            Some(namespace) => Key::namespaced(resource.clone(), namespace, name),
            None => Key::cluster(resource.clone(), name),
        };
        (key, (object.revision(), json))
    };
    snapshot.list(&query).items.iter().map(entry).collect()
}
