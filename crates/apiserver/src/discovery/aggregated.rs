//! Discovery in one document: all groups with all their resources.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use bytes::Bytes;
use serde_json::{Value, json};
use setpoint_schema::kind::Subresource;

use super::etag;
use super::groups::{Group, groups};
use crate::answer;
use crate::node_metrics;
use crate::registry::{Registry, Served};

/// An `APIGroupDiscoveryList`, encoded.
#[derive(Clone, Debug)]
pub(crate) struct Aggregated {
    pub(crate) bytes: Bytes,
    pub(crate) etag: Arc<str>,
}

/// Most documents that are kept: a few for each registry that is in use.
const KEPT_MAX: usize = 16;

/// Which of the two documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// `/api`: the core group.
    Core,
    /// `/apis`: all groups with a name.
    Named,
    /// The same, with the figures of nodes and pods.
    NamedWithMetrics,
}

static KEPT: Mutex<Vec<(Weak<Registry>, Part, Aggregated)>> = Mutex::new(Vec::new());

/// The document for a registry. A registry is never changed in place, so each is described once.
pub(super) fn of(registry: &Arc<Registry>, part: Part) -> Aggregated {
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let is_ours = |known: &Weak<Registry>| std::ptr::eq(known.as_ptr(), Arc::as_ptr(registry));
    if let Some((_, _, found)) = kept.iter().find(|(known, kept_part, _)| *kept_part == part && is_ours(known)) {
        return found.clone();
    }
    let document = match part {
        Part::Core => build(registry, |group| group.name.is_empty(), None),
        Part::Named => build(registry, |group| !group.name.is_empty(), None),
        Part::NamedWithMetrics => build(registry, |group| !group.name.is_empty(), Some(node_metrics::discovery_item())),
    };
    kept.retain(|(known, _, _)| known.strong_count() > 0);
    if kept.len() >= KEPT_MAX {
        kept.remove(0);
    }
    kept.push((Arc::downgrade(registry), part, document.clone()));
    document
}

fn build(registry: &Registry, wanted: impl Fn(&Group) -> bool, last: Option<Value>) -> Aggregated {
    let groups = groups(registry);
    let items = groups.iter().filter(|group| wanted(group)).map(|group| item(registry, group));
    let items: Vec<Value> = items.chain(last).collect();
    let list = json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items,
    });
    let bytes = Bytes::from(answer::encoded(&list));
    Aggregated { etag: etag::of(&bytes).into(), bytes }
}

fn item(registry: &Registry, group: &Group) -> Value {
    let versions: Vec<Value> = group.versions.iter().map(|name| version(registry, &group.name, name)).collect();
    let metadata = if group.name.is_empty() { json!({}) } else { json!({"name": group.name}) };
    json!({"metadata": metadata, "versions": versions})
}

fn version(registry: &Registry, group: &str, version: &str) -> Value {
    let kinds = registry.kinds().filter(|s| s.kind.group == group && s.kind.version == version);
    let resources: Vec<Value> = kinds.map(|served| resource(served)).collect();
    json!({"version": version, "resources": resources, "freshness": "Current"})
}

fn resource(served: &Served) -> Value {
    let kind = &served.kind;
    let mut value = json!({
        "resource": kind.plural, "responseKind": response_kind(served, &kind.group, &kind.version, &kind.kind),
        "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": kind.singular, "verbs": served.verbs(),
    });
    if !kind.short_names.is_empty() {
        value["shortNames"] = json!(kind.short_names);
    }
    if !kind.categories.is_empty() {
        value["categories"] = json!(kind.categories);
    }
    if !kind.subresources.is_empty() {
        value["subresources"] = kind.subresources.iter().map(|part| subresource(served, part)).collect();
    }
    value
}

fn subresource(served: &Served, part: &Subresource) -> Value {
    json!({
        "subresource": part.name, "responseKind": response_kind(served, &part.group, &part.version, &part.kind),
        "verbs": part.verbs,
    })
}

/// Group and version are told only where they are not those of the document.
fn response_kind(served: &Served, group: &str, version: &str, kind: &str) -> Value {
    // Only documents of built-in groups leave out what is the same for all.
    if served.custom.is_none() && served.kind.group == group && served.kind.version == version {
        json!({"group": "", "version": "", "kind": kind})
    } else {
        json!({"group": group, "version": version, "kind": kind})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(document: &Aggregated) -> Value {
        serde_json::from_slice(&document.bytes).unwrap()
    }

    #[test]
    fn the_core_group_has_no_name_and_all_its_resources() {
        let list = parsed(&of(&Arc::new(Registry::builtin()), Part::Core));
        assert_eq!(list["items"].as_array().map(Vec::len), Some(1));
        assert_eq!(list["items"][0]["metadata"], json!({}));
        let resources = list["items"][0]["versions"][0]["resources"].as_array().unwrap();
        let pods = resources.iter().find(|r| r["resource"] == "pods").unwrap();
        let eviction =
            pods["subresources"].as_array().unwrap().iter().find(|s| s["subresource"] == "eviction").unwrap();
        assert_eq!(eviction["responseKind"], json!({"group": "policy", "version": "v1", "kind": "Eviction"}));
    }

    #[test]
    fn each_registry_is_described_once() {
        let registry = Arc::new(Registry::builtin());
        let (first, again) = (of(&registry, Part::Named), of(&registry, Part::Named));
        assert!(Arc::ptr_eq(&first.etag, &again.etag));
        assert_ne!(first.etag, of(&registry, Part::Core).etag);
        let other = of(&Arc::new(Registry::builtin()), Part::Named);
        assert!(!Arc::ptr_eq(&first.etag, &other.etag) && first.etag == other.etag);
    }
}
