//! The documents of discovery in their old form: one per group, one per version.
//!
//! Fields are written in the order in which Kubernetes writes them: scripts compare these documents as text.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use ring::digest;
use serde::Serialize;
use setpoint_schema::kind::Subresource;

use super::groups::{Group, groups};
use crate::registry::{Registry, Served};

/// `/`: every path that is served outside of the resources.
pub(super) fn paths(registry: &Registry) -> Paths {
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
    Paths { paths }
}

/// `/api`: the versions of the core group.
pub(super) fn versions(address: &str) -> Versions<'_> {
    let addresses = [Address { client_cidr: "0.0.0.0/0", server_address: address }];
    Versions { kind: "APIVersions", versions: ["v1"], server_address_by_client_cidrs: addresses }
}

/// `/apis`: the groups.
pub(super) fn group_list(registry: &Registry, beside: Option<Group>) -> GroupList {
    let mut groups = groups(registry);
    groups.extend(beside);
    let groups = groups.iter().filter(|group| !group.name.is_empty()).map(entry).collect();
    GroupList { kind: "APIGroupList", api_version: "v1", groups }
}

/// `/apis/<group>`.
pub(super) fn group(group: &Group) -> GroupEntry {
    GroupEntry { kind: Some("APIGroup"), api_version: Some("v1"), ..entry(group) }
}

fn entry(group: &Group) -> GroupEntry {
    let version =
        |version: &String| Version { group_version: format!("{}/{version}", group.name), version: version.clone() };
    let versions: Vec<Version> = group.versions.iter().map(version).collect();
    let preferred_version = versions[0].clone();
    GroupEntry { kind: None, api_version: None, name: group.name.clone(), versions, preferred_version }
}

/// `/api/v1` and `/apis/<group>/<version>`: the resources of a version.
pub(super) fn resource_list(registry: &Registry, group: &str, version: &str) -> ResourceList {
    let groups = groups(registry);
    let mut resources = Vec::new();
    let mut name = version.to_owned();
    for served in registry.kinds().filter(|s| s.kind.group == group && s.kind.version == version) {
        name = served.kind.api_version();
        resources.push(resource(&groups, served));
        resources.extend(served.kind.subresources.iter().map(|part| subresource(served, part)));
    }
    ResourceList { kind: "APIResourceList", api_version: "v1", group_version: name, resources }
}

fn resource(groups: &[Group], served: &Served) -> Resource {
    let kind = &served.kind;
    Resource {
        name: kind.plural.to_string(),
        singular_name: kind.singular.to_string(),
        namespaced: kind.namespaced,
        group: None,
        version: None,
        kind: kind.kind.to_string(),
        verbs: served.verbs().into_iter().map(str::to_owned).collect(),
        short_names: kind.short_names.iter().map(ToString::to_string).collect(),
        categories: kind.categories.iter().map(ToString::to_string).collect(),
        // Only what is stored can be watched.
        storage_version_hash: kind.allows("watch").then(|| storage_version_hash(groups, served)),
    }
}

fn subresource(served: &Served, part: &Subresource) -> Resource {
    let is_other = (&part.group, &part.version) != (&served.kind.group, &served.kind.version);
    Resource {
        name: format!("{}/{}", served.kind.plural, part.name),
        singular_name: String::new(),
        namespaced: served.kind.namespaced,
        group: is_other.then(|| part.group.to_string()),
        version: is_other.then(|| part.version.to_string()),
        kind: part.kind.to_string(),
        verbs: part.verbs.iter().map(ToString::to_string).collect(),
        short_names: Vec::new(),
        categories: Vec::new(),
        storage_version_hash: None,
    }
}

#[derive(Serialize)]
pub(super) struct Paths {
    paths: Vec<String>,
}

#[derive(Serialize)]
pub(super) struct Versions<'a> {
    kind: &'static str,
    versions: [&'static str; 1],
    #[serde(rename = "serverAddressByClientCIDRs")]
    server_address_by_client_cidrs: [Address<'a>; 1],
}

#[derive(Serialize)]
struct Address<'a> {
    #[serde(rename = "clientCIDR")]
    client_cidr: &'static str,
    #[serde(rename = "serverAddress")]
    server_address: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GroupList {
    kind: &'static str,
    api_version: &'static str,
    groups: Vec<GroupEntry>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GroupEntry {
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    api_version: Option<&'static str>,
    name: String,
    versions: Vec<Version>,
    preferred_version: Version,
}

#[derive(Clone, Serialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    group_version: String,
    version: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ResourceList {
    kind: &'static str,
    api_version: &'static str,
    group_version: String,
    resources: Vec<Resource>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Resource {
    name: String,
    singular_name: String,
    namespaced: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    kind: String,
    verbs: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    short_names: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    categories: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    storage_version_hash: Option<String>,
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
    use serde_json::{Value, json};

    use super::*;

    fn value(document: impl Serialize) -> Value {
        serde_json::to_value(document).unwrap()
    }

    #[test]
    fn fields_come_in_the_order_of_kubernetes() {
        let text = serde_json::to_string(&resource_list(&Registry::builtin(), "", "v1")).unwrap();
        let verbs = r#""verbs":["create","delete","deletecollection","get","list","patch","update","watch"]"#;
        let maps = format!(
            r#"{{"name":"configmaps","singularName":"configmap","namespaced":true,"kind":"ConfigMap",{verbs},"shortNames":["cm"],"storageVersionHash":"#
        );
        assert!(text.starts_with(r#"{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"v1","resources":[{"#));
        assert!(text.contains(&maps), "{text}");
    }

    fn find(group: &str, version: &str, name: &str) -> Value {
        let list = value(resource_list(&Registry::builtin(), group, version));
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
        let list = value(group_list(&Registry::builtin(), None));
        let scaling = list["groups"].as_array().unwrap().iter().find(|g| g["name"] == "autoscaling").unwrap();
        assert_eq!(scaling["preferredVersion"], json!({"groupVersion": "autoscaling/v2", "version": "v2"}));
        assert_eq!(scaling["versions"][1]["version"], "v1");
        assert!(list["groups"].as_array().unwrap().iter().all(|g| g["name"] != ""));
    }

    #[test]
    fn the_root_lists_paths_in_order() {
        let paths = value(paths(&Registry::builtin()));
        let paths: Vec<&str> = paths["paths"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        assert!(paths.is_sorted() && paths.contains(&"/api/v1") && paths.contains(&"/apis/apps/v1"), "{paths:?}");
    }
}
