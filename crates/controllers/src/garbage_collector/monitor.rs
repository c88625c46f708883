//! One kind, followed: what the server shows of its objects goes into the graph.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::DynamicObject;
use serde::Deserialize;
use serde::de::IgnoredAny;
use setpoint_runtime::Key;
use setpoint_runtime::cache::{Cached, Sink, Target};

use super::Collector;
use super::act::{FOREGROUND, ORPHAN};
use super::graph::{Reference, Sighting};
use super::identity::TypeName;
use super::node::Facts;
use crate::served::Resource;

/// Puts the objects of one kind into the graph.
pub struct Monitor {
    pub collector: Arc<Collector>,
    pub kind: Arc<TypeName>,
    /// Whether objects of this kind say which kinds there are.
    tells_kinds: bool,
    /// The number of the list under way, or of the last one.
    epoch: AtomicU32,
    synced: AtomicBool,
}

impl Monitor {
    pub fn new(collector: &Arc<Collector>, resource: &Resource) -> Monitor {
        let kind = collector.graph().kind(&resource.api_version(), &resource.kind);
        let tells_kinds = matches!(
            (&*resource.group, &*resource.plural),
            ("apiextensions.k8s.io", "customresourcedefinitions") | ("apiregistration.k8s.io", "apiservices")
        );
        let (epoch, synced) = (AtomicU32::new(0), AtomicBool::new(false));
        Monitor { collector: collector.clone(), kind, tells_kinds, epoch, synced }
    }

    /// What a monitor follows.
    pub fn target(resource: &Resource) -> Target {
        Target {
            path: resource.collection(""),
            kind: resource.kind.to_string(),
            api_version: resource.api_version(),
            plural: resource.plural.to_string(),
            metadata_only: true,
            label_selector: None,
            field_selector: None,
        }
    }

    fn tell(&self) {
        if self.tells_kinds && self.synced.load(Ordering::Acquire) {
            self.collector.kinds_changed.notify_one();
        }
    }
}

impl Sink for Monitor {
    type Object = Seen;

    fn listing(&self) {
        self.epoch.fetch_add(1, Ordering::AcqRel);
    }

    fn seen(&self, object: Seen) {
        if !object.metadata.uid.is_empty() {
            let epoch = self.epoch.load(Ordering::Acquire);
            let sighting = object.into_sighting();
            self.collector.change(|graph, effects| graph.observe(&self.kind, epoch, sighting, effects));
        }
        self.tell();
    }

    fn gone(&self, object: Seen) {
        let uid = (&*object.metadata.uid).into();
        self.collector.change(|graph, effects| graph.gone(&uid, effects));
        self.tell();
    }

    fn listed(&self) {
        let epoch = self.epoch.load(Ordering::Acquire);
        self.collector.change(|graph, effects| graph.sweep(&self.kind, epoch, effects));
        self.synced.store(true, Ordering::Release);
    }
}

/// What the collector reads of an object.
#[derive(Debug, Deserialize)]
pub struct Seen {
    metadata: SeenMeta,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SeenMeta {
    name: Box<str>,
    namespace: Option<Box<str>>,
    uid: Box<str>,
    resource_version: Box<str>,
    deletion_timestamp: Option<IgnoredAny>,
    finalizers: Vec<Box<str>>,
    owner_references: Vec<OwnerReference>,
}

impl Seen {
    fn into_sighting(self) -> Sighting {
        let meta = self.metadata;
        let has = |finalizer: &str| meta.finalizers.iter().any(|name| **name == *finalizer);
        let facts = Facts { deleting: meta.deletion_timestamp.is_some(), orphans: has(ORPHAN), waits: has(FOREGROUND) };
        Sighting {
            facts,
            version: meta.resource_version.parse().unwrap_or(0),
            uid: (&*meta.uid).into(),
            namespace: meta.namespace.filter(|namespace| !namespace.is_empty()),
            name: meta.name,
            owners: meta.owner_references.into_iter().map(Reference::from).collect(),
        }
    }
}

impl From<OwnerReference> for Reference {
    fn from(owner: OwnerReference) -> Reference {
        Reference {
            api_version: owner.api_version.into(),
            kind: owner.kind.into(),
            name: owner.name.into(),
            uid: (&*owner.uid).into(),
            blocks: owner.block_owner_deletion == Some(true),
        }
    }
}

impl Cached for Seen {
    type Kind = DynamicObject;

    fn key(&self) -> Key {
        Key::new(self.metadata.namespace.as_deref(), &self.metadata.name)
    }

    fn resource_version(&self) -> &str {
        &self.metadata.resource_version
    }

    fn uid(&self) -> &str {
        &self.metadata.uid
    }
}
