//! The documents of discovery in their old form: one per group, one per version.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use ring::digest;
use serde_json::{Value, json};
use setpoint_schema::kind::Subresource;

use super::groups::{Group, groups};
use crate::registry::{Registry, Served};

/// `/`: every path that is served outside of the resources.
pub(super) fn paths(registry: &Registry) -> Value {
    let mut paths: Vec<String> = Vec::new();
    for group in groups(registry) {
        let base = if group.name.is_empty() { "/api".to_owned() } else { format!("/apis/{}", group.name) };
        paths.extend(group.versions.iter().map(|version| format!("{base}/{version}")));
        paths.push(base);
    }
    let others = [
        "/.well-known/openid-configuration",
        "/apis",
        "/healthz",
        "/healthz/etcd",
        "/healthz/log",
        "/healthz/ping",
        "/livez",
        "/livez/etcd",
        "/livez/log",
        "/livez/ping",
        "/metrics",
        "/openapi/v2",
        "/openapi/v3",
        "/openapi/v3/",
        "/openid/v1/jwks",
        "/readyz",
        "/readyz/etcd",
        "/readyz/informer-sync",
        "/readyz/log",
        "/readyz/ping",
        "/readyz/shutdown",
        "/version",
    ];
    paths.extend(others.map(str::to_owned));
    paths.sort();
    json!({ "paths": paths })
}

/// `/api`: the versions of the core group.
pub(super) fn versions(address: &str) -> Value {
    json!({
        "kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    })
}

/// `/apis`: the groups.
pub(super) fn group_list(registry: &Registry, beside: Option<Group>) -> Value {
    let mut groups = groups(registry);
    groups.extend(beside);
    let groups: Vec<Value> = groups.iter().filter(|group| !group.name.is_empty()).map(entry).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/<group>`.
pub(super) fn group(group: &Group) -> Value {
    let mut value = entry(group);
    value["kind"] = json!("APIGroup");
    value["apiVersion"] = json!("v1");
    value
}

fn entry(group: &Group) -> Value {
    let versions: Vec<Value> = group
        .versions
        .iter()
        .map(|version| json!({"groupVersion": format!("{}/{version}", group.name), "version": version}))
        .collect();
    json!({"name": group.name, "preferredVersion": versions[0], "versions": versions})
}

/// `/api/v1` and `/apis/<group>/<version>`: the resources of a version.
pub(super) fn resource_list(registry: &Registry, group: &str, version: &str) -> Value {
    let groups = groups(registry);
    let mut resources = Vec::new();
    let mut name = version.to_owned();
    for served in registry.kinds().filter(|s| s.kind.group == group && s.kind.version == version) {
        name = served.kind.api_version();
        resources.push(resource(&groups, served));
        resources.extend(served.kind.subresources.iter().map(|part| subresource(served, part)));
    }
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": resources})
}

fn resource(groups: &[Group], served: &Served) -> Value {
    let kind = &served.kind;
    let mut value = json!({
        "name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced, "kind": kind.kind,
        "verbs": served.verbs(),
    });
    if !kind.short_names.is_empty() {
        value["shortNames"] = json!(kind.short_names);
    }
    if !kind.categories.is_empty() {
        value["categories"] = json!(kind.categories);
    }
    // Only what is stored can be watched.
    if kind.allows("watch") {
        value["storageVersionHash"] = json!(storage_version_hash(groups, served));
    }
    value
}

fn subresource(served: &Served, part: &Subresource) -> Value {
    let mut value = json!({
        "name": format!("{}/{}", served.kind.plural, part.name), "singularName": "", "namespaced": served.kind.namespaced,
        "kind": part.kind, "verbs": part.verbs,
    });
    if (&part.group, &part.version) != (&served.kind.group, &served.kind.version) {
        value["group"] = json!(part.group);
        value["version"] = json!(part.version);
    }
    value
}

/// Changes when objects begin to be stored in another version; clients that migrate stored objects compare it.
fn storage_version_hash(groups: &[Group], served: &Served) -> String {
    if let Some(custom) = &served.custom {
        return version_hash(&format!("{}/{}", custom.storage, served.kind.kind));
    }
    let stored = groups.iter().find(|group| *group.name == *served.stored.group);
    let version = stored.and_then(|group| group.versions.first()).map_or("", |version| version);
    version_hash(&format!("{}/{version}/{}", served.stored.group, served.kind.kind))
}

fn version_hash(text: &str) -> String {
    BASE64_STANDARD.encode(&digest::digest(&digest::SHA256, text.as_bytes()).as_ref()[..8])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(group: &str, version: &str, name: &str) -> Value {
        let list = resource_list(&Registry::builtin(), group, version);
        list["resources"].as_array().unwrap().iter().find(|r| r["name"] == name).cloned().unwrap_or_default()
    }

    #[test]
    fn resources_tell_their_names_and_verbs() {
        assert_eq!(
            find("", "v1", "pods"),
            json!({
                "name": "pods", "singularName": "pod", "namespaced": true, "kind": "Pod",
                "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
                "shortNames": ["po"], "categories": ["all"], "storageVersionHash": "xPOwRZ+Yhw8=",
            })
        );
        assert_eq!(
            find("apps", "v1", "deployments/scale"),
            json!({
                "name": "deployments/scale", "singularName": "", "namespaced": true, "group": "autoscaling",
                "version": "v1", "kind": "Scale", "verbs": ["get", "patch", "update"],
            })
        );
        assert!(find("", "v1", "bindings").get("storageVersionHash").is_none());
    }

    #[test]
    fn objects_kept_in_one_place_have_one_hash() {
        assert_eq!(find("events.k8s.io", "v1", "events")["storageVersionHash"], "r2yiGXH7wu8=");
        assert_eq!(find("", "v1", "events")["storageVersionHash"], "r2yiGXH7wu8=");
        let hash = |version| find("autoscaling", version, "horizontalpodautoscalers")["storageVersionHash"].clone();
        assert_eq!((hash("v1"), hash("v2")), (json!("qwQve8ut294="), json!("qwQve8ut294=")));
    }

    #[test]
    fn the_preferred_version_comes_first() {
        let list = group_list(&Registry::builtin(), None);
        let scaling = list["groups"].as_array().unwrap().iter().find(|g| g["name"] == "autoscaling").unwrap();
        assert_eq!(scaling["preferredVersion"], json!({"groupVersion": "autoscaling/v2", "version": "v2"}));
        assert_eq!(scaling["versions"][1]["version"], "v1");
        assert!(list["groups"].as_array().unwrap().iter().all(|g| g["name"] != ""));
    }

    #[test]
    fn the_root_lists_paths_in_order() {
        let paths = paths(&Registry::builtin());
        let paths: Vec<&str> = paths["paths"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        assert!(paths.is_sorted() && paths.contains(&"/api/v1") && paths.contains(&"/apis/apps/v1"), "{paths:?}");
    }
}
