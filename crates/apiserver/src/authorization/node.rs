//! What nodes may do: with what is their own, and with what the pods on them need.
//!
//! A node is `system:node:NAME` in the group `system:nodes`. What it is related to is read from what is stored at the moment of the
//! request; what it may write is narrowed further by admission.

use std::sync::LazyLock;

use serde_json::Value;
use setpoint_api::{GroupResource, fields, labels};
use setpoint_schema::Edit;
use setpoint_store::{Query, Selection, Snapshot};

use super::{Asked, Rule, What};
use crate::objects;
use crate::user::User;

pub(super) const GROUP: &str = "system:nodes";
pub(super) const PREFIX: &str = "system:node:";
const LEASES: &str = "kube-node-lease";
/// A pod that only mirrors one that its node runs by itself: who could make it would choose what to read.
pub(crate) const MIRROR: &str = "kubernetes.io/config.mirror";

/// What every node may do, where it isn't narrowed to its own.
static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    let role = crate::bootstrap::rules_of("system:node");
    Rule::read_all(&serde_json::json!({"rules": role}))
});

/// The node that a user is; an empty name if it says that it is one and not which.
pub(crate) fn of(user: &User) -> Option<&str> {
    let name = user.name.strip_prefix(PREFIX)?;
    user.groups.iter().any(|group| group == GROUP).then_some(name)
}

/// Whether a node may do this; if not, why, in the words of Kubernetes.
pub(super) fn judge(snapshot: &Snapshot, user: &User, node: &str, asked: &Asked<'_>) -> Result<(), String> {
    if node.is_empty() {
        return Err(format!("unknown node for user {}", setpoint_api::quote::quote(&user.name)));
    }
    let What::Resource { group, resource, subresource, namespace, name } = asked.what else { return by_rules(asked) };
    let request = Request { snapshot, node, verb: asked.verb, subresource, namespace, name, on_node: asked.on_node };
    match (group, resource) {
        ("", "secrets" | "configmaps") => request.read(resource),
        ("", "persistentvolumeclaims") if subresource == "status" => match asked.verb {
            "update" | "patch" => request.related(resource),
            _ => no("can only get/update/patch this type"),
        },
        ("", "persistentvolumeclaims" | "persistentvolumes")
        | ("resource.k8s.io", "resourceclaims")
        | ("storage.k8s.io", "volumeattachments") => request.get(resource),
        ("", "serviceaccounts") if asked.verb == "get" && subresource.is_empty() => request.read(resource),
        ("", "serviceaccounts") => request.token(),
        ("coordination.k8s.io", "leases") => request.lease(),
        ("storage.k8s.io", "csinodes") => request.csi_node(),
        ("resource.k8s.io", "resourceslices") => request.slice(),
        ("certificates.k8s.io", "podcertificaterequests") => request.pod_certificate(),
        ("", "nodes") => request.node(),
        ("", "pods") => request.pod(),
        _ => by_rules(asked),
    }
}

fn by_rules(asked: &Asked<'_>) -> Result<(), String> {
    if RULES.iter().any(|rule| rule.allows(asked)) { Ok(()) } else { no("") }
}

fn no(why: &str) -> Result<(), String> {
    Err(why.to_owned())
}

/// A request of a node for objects.
struct Request<'a> {
    snapshot: &'a Snapshot,
    node: &'a str,
    verb: &'a str,
    subresource: &'a str,
    namespace: &'a str,
    name: &'a str,
    on_node: Option<&'a str>,
}

impl Request<'_> {
    fn read(&self, resource: &str) -> Result<(), String> {
        match self.verb {
            "get" | "list" | "watch" if !self.subresource.is_empty() => no("cannot read subresource"),
            "get" | "list" | "watch" if self.namespace.is_empty() => no("can only read namespaced object of this type"),
            "get" | "list" | "watch" => self.related(resource),
            _ => no("can only read resources of this type"),
        }
    }

    fn get(&self, resource: &str) -> Result<(), String> {
        match (self.verb, self.subresource) {
            ("get", "") => self.related(resource),
            ("get", _) => no("cannot get subresource"),
            _ => no("can only get individual resources of this type"),
        }
    }

    fn token(&self) -> Result<(), String> {
        if self.verb != "create" || self.name.is_empty() {
            return no("can only create tokens for individual service accounts");
        }
        if self.subresource != "token" {
            return no("can only create token subresource of serviceaccount");
        }
        self.related("serviceaccounts")
    }

    fn lease(&self) -> Result<(), String> {
        if !matches!(self.verb, "get" | "create" | "update" | "patch" | "delete") {
            return no("can only get, create, update, patch, or delete a node lease");
        }
        if self.namespace != LEASES {
            return Err(format!("can only access leases in the \"{LEASES}\" system namespace"));
        }
        self.own("can only access node lease with the same name as the requesting node")
    }

    fn csi_node(&self) -> Result<(), String> {
        if !matches!(self.verb, "get" | "create" | "update" | "patch" | "delete") {
            return no("can only get, create, update, patch, or delete a CSINode");
        }
        if !self.subresource.is_empty() {
            return no("cannot authorize CSINode subresources");
        }
        self.own("can only access CSINode with the same name as the requesting node")
    }

    /// What has the name of its node. Which name a new object has, admission knows.
    fn own(&self, otherwise: &str) -> Result<(), String> {
        if self.verb == "create" || self.name == self.node { Ok(()) } else { no(otherwise) }
    }

    fn slice(&self) -> Result<(), String> {
        match self.verb {
            _ if !self.subresource.is_empty() => no("cannot authorize ResourceSlice subresources"),
            "create" => Ok(()),
            "get" | "update" | "patch" | "delete" => self.related("resourceslices"),
            "watch" | "list" | "deletecollection" => {
                self.selected("can only list/watch/deletecollection resourceslices with nodeName field selector")
            }
            _ => no(
                "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection",
            ),
        }
    }

    fn pod_certificate(&self) -> Result<(), String> {
        match self.verb {
            _ if !self.subresource.is_empty() => {
                no("nodes may not access the status subresource of PodCertificateRequests")
            }
            "create" => Ok(()),
            "get" => self.related("podcertificaterequests"),
            "list" | "watch" => {
                self.selected("can only list/watch podcertificaterequests with nodeName field selector")
            }
            verb => Err(format!("nodes may not {verb} podcertificaterequests")),
        }
    }

    fn node(&self) -> Result<(), String> {
        let node = self.node;
        match (self.subresource, self.verb) {
            ("", "create" | "update" | "patch") | ("status", "update" | "patch") => Ok(()),
            ("", "get" | "list" | "watch") => match self.name {
                name if name == node => Ok(()),
                "" => Err(format!("node '{node}' cannot read all nodes, only its own Node object")),
                other => Err(format!("node '{node}' cannot read '{other}', only its own Node object")),
            },
            _ => no(""),
        }
    }

    fn pod(&self) -> Result<(), String> {
        match (self.subresource, self.verb) {
            ("", "get") => self.related("pods"),
            ("", "list" | "watch") => match self.name {
                _ if self.on_node == Some(self.node) => Ok(()),
                "" => no("can only list/watch pods with spec.nodeName field selector"),
                _ => self.related("pods"),
            },
            ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => Ok(()),
            _ => no(""),
        }
    }

    fn selected(&self, otherwise: &str) -> Result<(), String> {
        if self.on_node == Some(self.node) { Ok(()) } else { no(otherwise) }
    }

    /// Whether the named object has to do with the node.
    fn related(&self, resource: &str) -> Result<(), String> {
        if self.name.is_empty() {
            return no("No Object name found");
        }
        let is_related = match resource {
            "pods" => self.names_node("", resource, Some(self.namespace)),
            "podcertificaterequests" => self.names_node("certificates.k8s.io", resource, Some(self.namespace)),
            "volumeattachments" => self.names_node("storage.k8s.io", resource, None),
            "resourceslices" => self.names_node("resource.k8s.io", resource, None),
            "persistentvolumes" => self.is_volume_needed(),
            "secrets" => self.is_needed(resource, self.namespace, self.name) || self.is_secret_of_volume(),
            _ => self.is_needed(resource, self.namespace, self.name),
        };
        match is_related {
            true => Ok(()),
            false => Err(format!("no relationship found between node '{}' and this object", self.node)),
        }
    }

    /// Whether the object's spec names the node.
    fn names_node(&self, group: &str, plural: &str, namespace: Option<&str>) -> bool {
        let found = self.snapshot.get(&GroupResource::new(group, plural), namespace, self.name);
        found.is_some_and(|object| objects::value(&object)["spec"].text("nodeName") == self.node)
    }

    /// Whether a pod on the node needs an object of its namespace.
    fn is_needed(&self, resource: &str, namespace: &str, name: &str) -> bool {
        self.pods(namespace).iter().any(|pod| needs(pod, resource, name))
    }

    fn is_volume_needed(&self) -> bool {
        let found = self.snapshot.get(&GroupResource::new("", "persistentvolumes"), None, self.name);
        found.is_some_and(|volume| self.is_claim_needed(&objects::value(&volume)))
    }

    fn is_claim_needed(&self, volume: &Value) -> bool {
        let claim = &volume["spec"]["claimRef"];
        self.is_needed("persistentvolumeclaims", claim.text("namespace"), claim.text("name"))
    }

    /// Whether a volume needs the secret whose claim is needed on the node.
    fn is_secret_of_volume(&self) -> bool {
        let volumes = GroupResource::new("", "persistentvolumes");
        let selection = Selection::everything();
        let query = Query { resource: &volumes, namespace: None, selection: &selection, after: None, limit: None };
        let items = self.snapshot.list(&query).items;
        items.iter().map(|volume| objects::value(volume)).any(|volume| {
            let claim_namespace = volume["spec"]["claimRef"].text("namespace").to_owned();
            names_secret(&volume["spec"], &claim_namespace, self.namespace, self.name) && self.is_claim_needed(&volume)
        })
    }

    /// The pods on the node in a namespace. Those that mirror what it runs by itself don't count.
    fn pods(&self, namespace: &str) -> Vec<Value> {
        let pods = GroupResource::new("", "pods");
        let everything = labels::Selector::parse("");
        let on_node = fields::Selector::parse(&format!("spec.nodeName={}", self.node));
        let (Ok(everything), Ok(on_node)) = (everything, on_node) else { return Vec::new() };
        let selection = Selection::new(everything, on_node);
        let query =
            Query { resource: &pods, namespace: Some(namespace), selection: &selection, after: None, limit: None };
        let items = self.snapshot.list(&query).items;
        let is_mirror = |pod: &Value| pod["metadata"]["annotations"].has(MIRROR);
        items.iter().map(|pod| objects::value(pod)).filter(|pod| !is_mirror(pod)).collect()
    }
}

/// Whether a pod needs an object.
fn needs(pod: &Value, resource: &str, name: &str) -> bool {
    let spec = &pod["spec"];
    match resource {
        "serviceaccounts" => spec.text("serviceAccountName") == name,
        "persistentvolumeclaims" => list(&spec["volumes"]).any(|volume| {
            let made = || format!("{}-{}", pod["metadata"].text("name"), volume.text("name"));
            volume["persistentVolumeClaim"].text("claimName") == name || volume.has("ephemeral") && made() == name
        }),
        "resourceclaims" => {
            list(&spec["resourceClaims"]).any(|claim| claim.text("resourceClaimName") == name)
                || list(&pod["status"]["resourceClaimStatuses"]).any(|claim| claim.text("resourceClaimName") == name)
        }
        "configmaps" => mentions(spec, &["configMap", "configMapRef", "configMapKeyRef"], &|reference| {
            reference.text("name") == name
        }),
        "secrets" => {
            list(&spec["imagePullSecrets"]).any(|reference| reference.text("name") == name)
                || mentions(spec, &SECRET_FIELDS, &|it| it.text("name") == name || it.text("secretName") == name)
        }
        _ => false,
    }
}

/// The fields that refer to a secret, of containers and of all kinds of volumes.
const SECRET_FIELDS: [&str; 6] =
    ["secret", "secretRef", "secretKeyRef", "nodePublishSecretRef", "azureFile", "nodeStageSecretRef"];

/// The secrets that a value refers to, at any depth.
pub(crate) fn secrets_in(value: &Value) -> Vec<&str> {
    let mut found = Vec::new();
    collect_secrets(value, &mut found);
    found
}

fn collect_secrets<'v>(value: &'v Value, found: &mut Vec<&'v str>) {
    match value {
        Value::Object(entries) => {
            for (name, value) in entries {
                if SECRET_FIELDS.contains(&name.as_str()) && value.is_object() {
                    found.push(if value.has("secretName") { value.text("secretName") } else { value.text("name") });
                }
                collect_secrets(value, found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_secrets(item, found)),
        _ => {}
    }
}

/// Whether a volume's spec names a secret, in the namespace of its claim unless it says another.
fn names_secret(spec: &Value, claim_namespace: &str, namespace: &str, name: &str) -> bool {
    let fields = [&SECRET_FIELDS[..], &["nodeExpandSecretRef"]].concat();
    mentions(spec, &fields, &|it| {
        let said = [it.text("namespace"), it.text("secretNamespace")].into_iter().find(|text| !text.is_empty());
        let is_named = it.text("name") == name || it.text("secretName") == name;
        is_named && said.unwrap_or(claim_namespace) == namespace
    })
}

/// Whether one of these fields, at any depth, is as `is` says.
fn mentions(value: &Value, fields: &[&str], is: &dyn Fn(&Value) -> bool) -> bool {
    match value {
        Value::Object(entries) => entries
            .iter()
            .any(|(name, value)| (fields.contains(&name.as_str()) && is(value)) || mentions(value, fields, is)),
        Value::Array(items) => items.iter().any(|item| mentions(item, fields, is)),
        _ => false,
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_needs_what_it_mentions() {
        let pod = json!({
            "metadata": {"name": "p"},
            "spec": {
                "serviceAccountName": "robot",
                "imagePullSecrets": [{"name": "pull"}],
                "containers": [{"envFrom": [{"secretRef": {"name": "env"}}, {"configMapRef": {"name": "settings"}}],
                    "env": [{"valueFrom": {"secretKeyRef": {"name": "key", "key": "k"}}}, {"valueFrom": {"configMapKeyRef": {"name": "one", "key": "k"}}}]}],
                "volumes": [
                    {"name": "v", "secret": {"secretName": "files"}},
                    {"name": "w", "projected": {"sources": [{"secret": {"name": "part"}}, {"configMap": {"name": "piece"}}]}},
                    {"name": "x", "persistentVolumeClaim": {"claimName": "data"}},
                    {"name": "y", "ephemeral": {}},
                    {"name": "z", "csi": {"nodePublishSecretRef": {"name": "publish"}}},
                ],
            },
        });
        let needed = [
            ("serviceaccounts", "robot"),
            ("secrets", "pull"),
            ("secrets", "env"),
            ("secrets", "key"),
            ("secrets", "files"),
            ("secrets", "part"),
            ("secrets", "publish"),
            ("configmaps", "settings"),
            ("configmaps", "one"),
            ("configmaps", "piece"),
            ("persistentvolumeclaims", "data"),
            ("persistentvolumeclaims", "p-y"),
        ];
        for (resource, name) in needed {
            assert!(needs(&pod, resource, name), "{resource} {name}");
        }
        for (resource, name) in [
            ("secrets", "settings"),
            ("configmaps", "env"),
            ("secrets", "v"),
            ("serviceaccounts", "p"),
            ("persistentvolumeclaims", "p-x"),
            ("pods", "p"),
        ] {
            assert!(!needs(&pod, resource, name), "{resource} {name}");
        }
    }
}
