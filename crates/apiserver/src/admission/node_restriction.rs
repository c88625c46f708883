//! What a node writes is its own: its Node, its lease, the pods on it. Where authorization sees only names, this sees the objects.

use serde_json::{Map, Value};
use setpoint_api::quote::quote;
use setpoint_api::{GroupResource, Status};
use setpoint_schema::Edit;

use super::{certificate, find, resource};
use crate::authorization::node::{self, MIRROR};
use crate::call::Call;

/// Labels of the prefixes of Kubernetes that a node may set on itself.
const OWN_LABELS: [&str; 14] = [
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.kubernetes.io/zone",
    "failure-domain.kubernetes.io/region",
    "node.kubernetes.io/windows-build",
];
const OWN_LABEL_SPACES: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];
const RESTRICTED_SPACE: &str = "node-restriction.kubernetes.io";

/// Before a creation.
pub(super) fn create(call: &Call<'_>, object: &Value) -> Result<(), Box<Status>> {
    let Some(node) = restricted(call)? else { return Ok(()) };
    let name = object["metadata"].text("name");
    match resource(call) {
        ("", "pods") => create_pod(call, node, object),
        ("", "nodes") => {
            own_node(call, node, name)?;
            let labels = forbidden_labels(&object["metadata"]["labels"], &Value::Null);
            ensure(call, name, labels.is_empty(), || {
                format!("node {} is not allowed to set the following labels: {}", quote(node), labels.join(", "))
            })
        }
        ("", "persistentvolumeclaims") => refuse(call, name, "may only update PVC status"),
        ("coordination.k8s.io", "leases") => lease(call, node, name),
        ("storage.k8s.io", "csinodes") => csi_node(call, node, name),
        ("resource.k8s.io", "resourceslices") => ensure(call, name, object["spec"].text("nodeName") == node, || {
            "can only create ResourceSlice with the same NodeName as the requesting node".to_owned()
        }),
        ("certificates.k8s.io", "certificatesigningrequests") => create_certificate_request(call, node, object),
        ("certificates.k8s.io", "podcertificaterequests") => {
            let asked = object["spec"].text("nodeName");
            ensure(call, name, asked == node, || {
                format!(
                    "PodCertificateRequest.Spec.NodeName={}, which is not the requesting node {}",
                    quote(asked),
                    quote(node)
                )
            })
        }
        _ => Ok(()),
    }
}

/// Before a change.
pub(super) fn update(call: &Call<'_>, new: &Value, old: &Value) -> Result<(), Box<Status>> {
    let Some(node) = restricted(call)? else { return Ok(()) };
    let name = call.object_name();
    match (resource(call), call.subresource) {
        (("", "pods"), Some("status")) => change_pod_status(call, node, new, old),
        (("", "pods"), None) => refuse(
            call,
            name,
            &format!("unexpected operation \"UPDATE\", node {} can only create and delete mirror pods", quote(node)),
        ),
        (("", "pods"), Some(part)) => refuse(
            call,
            name,
            &format!("unexpected pod subresource {}, only 'status' and 'eviction' are allowed", quote(part)),
        ),
        (("", "nodes"), _) => change_node(call, node, new, old),
        (("", "persistentvolumeclaims"), Some("status")) => change_claim_status(call, node, new, old),
        (("", "persistentvolumeclaims"), _) => refuse(call, name, "may only update PVC status"),
        (("coordination.k8s.io", "leases"), _) => lease(call, node, name),
        (("storage.k8s.io", "csinodes"), _) => csi_node(call, node, name),
        _ => Ok(()),
    }
}

/// Before a deletion, and before an eviction.
pub(crate) fn delete(call: &Call<'_>, name: &str) -> Result<(), Box<Status>> {
    let Some(node) = restricted(call)? else { return Ok(()) };
    match resource(call) {
        ("", "pods") => {
            let pod = find(call, "", "pods", call.namespace, name);
            let is_on = pod.is_none_or(|pod| pod["spec"].text("nodeName") == node);
            ensure(call, name, is_on, || match call.subresource {
                Some("eviction") => format!("node {node} can only evict pods with spec.nodeName set to itself"),
                _ => format!("node {} can only delete pods with spec.nodeName set to itself", quote(node)),
            })
        }
        ("", "nodes") => own_node(call, node, name),
        ("", "persistentvolumeclaims") => refuse(call, name, "may only update PVC status"),
        ("coordination.k8s.io", "leases") => lease(call, node, name),
        ("storage.k8s.io", "csinodes") => csi_node(call, node, name),
        ("resource.k8s.io", "resourceslices") => {
            let slice = find(call, "resource.k8s.io", "resourceslices", None, name);
            ensure(call, name, slice.is_none_or(|slice| slice["spec"].text("nodeName") == node), || {
                "can only delete ResourceSlice with the same NodeName as the requesting node".to_owned()
            })
        }
        _ => Ok(()),
    }
}

/// Before a token is made for a service account: a node gets those of pods on it.
pub(crate) fn token(call: &Call<'_>, request: &Value) -> Result<(), Box<Status>> {
    let Some(node) = restricted(call)? else { return Ok(()) };
    let (account, bound) = (call.object_name(), &request["spec"]["boundObjectRef"]);
    if bound.text("apiVersion") != "v1" || bound.text("kind") != "Pod" || bound.text("name").is_empty() {
        return refuse(call, account, "node requested token not bound to a pod");
    }
    if bound.text("uid").is_empty() {
        return refuse(call, account, "node requested token with a pod binding without a uid");
    }
    let Some(pod) = find(call, "", "pods", call.namespace, bound.text("name")) else {
        return Err(Box::new(Status::not_found(&GroupResource::new("", "pods"), bound.text("name"))));
    };
    if pod["metadata"].text("uid") != bound.text("uid") {
        return refuse(
            call,
            account,
            &format!(
                "the UID in the bound object reference ({}) does not match the UID in record. The object might have been deleted and then recreated",
                bound.text("uid")
            ),
        );
    }
    if pod["spec"].text("nodeName") != node {
        return refuse(call, account, "node requested token bound to a pod scheduled on a different node");
    }
    let asked: Vec<&str> =
        request["spec"]["audiences"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let audience = match &*asked {
        [] => "",
        [audience] => audience,
        _ => return refuse(call, account, "node may only request 0 or 1 audiences"),
    };
    ensure(call, account, has_audience(&pod, audience), || {
        let user = &call.user.name;
        format!(
            "audience {} not found in pod spec volume, {user} is not authorized to request tokens for this audience",
            quote(audience)
        )
    })
}

/// Whether a volume of the pod is to have a token for this audience.
fn has_audience(pod: &Value, audience: &str) -> bool {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let sources = list(&pod["spec"]["volumes"]).into_iter().flat_map(|volume| list(&volume["projected"]["sources"]));
    sources
        .into_iter()
        .any(|source| source.get("serviceAccountToken").is_some_and(|token| token.text("audience") == audience))
}

/// The node that asks; nobody else is restricted here.
fn restricted<'a>(call: &Call<'a>) -> Result<Option<&'a str>, Box<Status>> {
    match node::of(call.user) {
        Some("") => {
            let why = format!("could not determine node from user {}", quote(&call.user.name));
            Err(Box::new(Status::forbidden(&call.served.resource, call.name.unwrap_or_default(), why)))
        }
        found => Ok(found),
    }
}

fn create_pod(call: &Call<'_>, node: &str, pod: &Value) -> Result<(), Box<Status>> {
    let metadata = &pod["metadata"];
    let name = metadata.text("name");
    let itself = quote(node);
    if !metadata["annotations"].has(MIRROR) {
        let why = format!("pod does not have \"{MIRROR}\" annotation, node {itself} can only create mirror pods");
        return refuse(call, name, &why);
    }
    if pod["spec"].text("nodeName") != node {
        return refuse(call, name, &format!("node {itself} can only create pods with spec.nodeName set to itself"));
    }
    let why = match metadata["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default() {
        [owner] if owner.text("apiVersion") != "v1" || owner.text("kind") != "Node" || owner.text("name") != node => {
            format!("node {itself} can only create pods with an owner reference set to itself")
        }
        [owner] if !owner.flag("controller") => {
            format!("node {itself} can only create pods with a controller owner reference set to itself")
        }
        [owner] if owner.flag("blockOwnerDeletion") => {
            format!("node {itself} must not set blockOwnerDeletion on an owner reference")
        }
        [owner] => {
            let Some(stored) = find(call, "", "nodes", None, node) else {
                return Err(Box::new(Status::not_found(&GroupResource::new("", "nodes"), node)));
            };
            let (given, found) = (owner.text("uid"), stored["metadata"].text("uid"));
            match given == found {
                true => return no_references(call, node, pod),
                false => format!("node {node} UID mismatch: expected {given} got {found}"),
            }
        }
        [] => format!("node {itself} can only create pods with an owner reference set to itself"),
        _ => format!("node {itself} can only create pods with a single owner reference set to itself"),
    };
    refuse(call, name, &why)
}

/// A pod that a node makes refers to nothing in the API: the node could read it then.
fn no_references(call: &Call<'_>, node: &str, pod: &Value) -> Result<(), Box<Status>> {
    let name = pod["metadata"].text("name");
    match referenced(&pod["spec"]) {
        Some(what) => refuse(call, name, &format!("node {} can not create pods that reference {what}", quote(node))),
        None => Ok(()),
    }
}

/// What in the API a pod refers to, as Kubernetes calls it.
fn referenced(spec: &Value) -> Option<&'static str> {
    const SECRETS: [&str; 5] = ["secret", "secretRef", "secretKeyRef", "nodePublishSecretRef", "azureFile"];
    const CONFIG_MAPS: [&str; 3] = ["configMap", "configMapRef", "configMapKeyRef"];
    const OTHERS: [(&str, &str); 7] = [
        ("csi", "csidrivers (via CSI volumes)"),
        ("glusterfs", "endpoints (via glusterFS volumes)"),
        ("persistentVolumeClaim", "persistentvolumeclaims"),
        ("ephemeral", "persistentvolumeclaims (via ephemeral volumes)"),
        ("serviceAccountToken", "serviceaccounts (via projected volumes)"),
        ("clusterTrustBundle", "clustertrustbundles"),
        ("podCertificate", "podcertificates"),
    ];
    let has_some = |list: &str| spec[list].as_array().is_some_and(|items| !items.is_empty());
    if !spec.text("serviceAccountName").is_empty() {
        return Some("serviceaccounts");
    }
    if has_some("imagePullSecrets") || SECRETS.iter().any(|field| mentions(spec, field)) {
        return Some("secrets");
    }
    if CONFIG_MAPS.iter().any(|field| mentions(spec, field)) {
        return Some("configmaps");
    }
    if has_some("resourceClaims") {
        return Some("resourceclaims");
    }
    let volumes = &spec["volumes"];
    OTHERS.iter().find(|(field, _)| mentions(volumes, field)).map(|(_, what)| *what)
}

fn mentions(value: &Value, field: &str) -> bool {
    match value {
        Value::Object(fields) => fields.iter().any(|(name, value)| name == field || mentions(value, field)),
        Value::Array(items) => items.iter().any(|item| mentions(item, field)),
        _ => false,
    }
}

fn change_pod_status(call: &Call<'_>, node: &str, new: &Value, old: &Value) -> Result<(), Box<Status>> {
    let (name, itself) = (call.object_name(), quote(node));
    let why = if old["spec"].text("nodeName") != node {
        "can only update pod status for pods with spec.nodeName set to itself"
    } else if old["metadata"].get("labels") != new["metadata"].get("labels") {
        "cannot update labels through pod status"
    } else if old["status"].get("resourceClaimStatuses") != new["status"].get("resourceClaimStatuses") {
        "cannot update resource claim statues"
    } else if old["status"].get("extendedResourceClaimStatus") != new["status"].get("extendedResourceClaimStatus") {
        "cannot update extended resource claim status"
    } else {
        return Ok(());
    };
    refuse(call, name, &format!("node {itself} {why}"))
}

fn change_node(call: &Call<'_>, node: &str, new: &Value, old: &Value) -> Result<(), Box<Status>> {
    let name = call.object_name();
    own_node(call, node, name)?;
    let itself = quote(node);
    if new["spec"].has("configSource") && new["spec"]["configSource"] != old["spec"]["configSource"] {
        let why = format!("node {itself} is not allowed to update configSource to a new non-nil configSource");
        return refuse(call, name, &why);
    }
    if new["spec"].get("taints") != old["spec"].get("taints") {
        return refuse(call, name, &format!("node {itself} is not allowed to modify taints"));
    }
    if new["metadata"].get("ownerReferences") != old["metadata"].get("ownerReferences") {
        return refuse(call, name, &format!("node {itself} is not allowed to modify ownerReferences"));
    }
    let labels = forbidden_labels(&new["metadata"]["labels"], &old["metadata"]["labels"]);
    ensure(call, name, labels.is_empty(), || format!("is not allowed to modify labels: {}", labels.join(", ")))
}

/// Of a claim a node tells its size and its conditions.
fn change_claim_status(call: &Call<'_>, node: &str, new: &Value, old: &Value) -> Result<(), Box<Status>> {
    let rest = |claim: &Value| {
        let mut claim = claim.clone();
        for field in ["resourceVersion", "managedFields"] {
            claim["metadata"].remove(field);
        }
        for field in ["capacity", "conditions", "allocatedResources", "allocatedResourceStatuses"] {
            claim["status"].remove(field);
        }
        claim
    };
    ensure(call, call.object_name(), rest(new) == rest(old), || {
        format!("node {} is not allowed to update fields other than status.quantity and status.conditions", quote(node))
    })
}

fn create_certificate_request(call: &Call<'_>, node: &str, request: &Value) -> Result<(), Box<Status>> {
    const SIGNERS: [&str; 2] = ["kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet"];
    if !SIGNERS.contains(&request["spec"].text("signerName")) {
        return Ok(());
    }
    let name = request["metadata"].text("name");
    match certificate::common_name(request) {
        Err(why) => refuse(call, name, &format!("unable to parse csr: {why}")),
        Ok(subject) => ensure(call, name, subject == format!("system:node:{node}"), || {
            format!("can only create a node CSR with CN=system:node:{node}")
        }),
    }
}

fn own_node(call: &Call<'_>, node: &str, name: &str) -> Result<(), Box<Status>> {
    ensure(call, name, name == node, || format!("node {} is not allowed to modify node {}", quote(node), quote(name)))
}

fn lease(call: &Call<'_>, node: &str, name: &str) -> Result<(), Box<Status>> {
    const NAMESPACE: &str = "kube-node-lease";
    ensure(call, name, call.namespace == Some(NAMESPACE), || {
        format!("can only access leases in the \"{NAMESPACE}\" system namespace")
    })?;
    ensure(call, name, name == node, || {
        "can only access node lease with the same name as the requesting node".to_owned()
    })
}

fn csi_node(call: &Call<'_>, node: &str, name: &str) -> Result<(), Box<Status>> {
    ensure(call, name, name == node, || "can only access CSINode with the same name as the requesting node".to_owned())
}

/// The labels that differ and that a node may not set on itself: they say which pods come to it.
fn forbidden_labels(new: &Value, old: &Value) -> Vec<String> {
    let empty = Map::new();
    let (new, old) = (new.as_object().unwrap_or(&empty), old.as_object().unwrap_or(&empty));
    let differs = |name: &&String| new.get(*name) != old.get(*name);
    let mut names: Vec<String> =
        new.keys().chain(old.keys()).filter(differs).filter(|name| is_forbidden(name)).cloned().collect();
    names.sort();
    names.dedup();
    names
}

fn is_forbidden(label: &str) -> bool {
    let Some((space, _)) = label.split_once('/') else { return false };
    let within = |parent: &str| space == parent || space.strip_suffix(parent).is_some_and(|rest| rest.ends_with('.'));
    let is_own = OWN_LABELS.contains(&label) || OWN_LABEL_SPACES.into_iter().any(within);
    within(RESTRICTED_SPACE) || (within("kubernetes.io") || within("k8s.io")) && !is_own
}

fn ensure(call: &Call<'_>, name: &str, holds: bool, why: impl FnOnce() -> String) -> Result<(), Box<Status>> {
    if holds { Ok(()) } else { refuse(call, name, &why()) }
}

fn refuse(call: &Call<'_>, name: &str, why: &str) -> Result<(), Box<Status>> {
    Err(Box::new(Status::forbidden(&call.served.resource, name, why)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_pod_refers_to_has_its_name() {
        let volume = |source: Value| json!({"volumes": [{"name": "a"}, source]});
        let projected = |source: Value| volume(json!({"projected": {"sources": [{"downwardAPI": {}}, source]}}));
        let env = |from: Value| json!({"containers": [{"env": [{"name": "A", "valueFrom": from}]}]});
        for (spec, expected) in [
            (json!({"serviceAccountName": "s"}), "serviceaccounts"),
            (json!({"imagePullSecrets": [{"name": "s"}]}), "secrets"),
            (env(json!({"secretKeyRef": {}})), "secrets"),
            (volume(json!({"azureFile": {}})), "secrets"),
            (volume(json!({"csi": {"nodePublishSecretRef": {}}})), "secrets"),
            (projected(json!({"secret": {}})), "secrets"),
            (env(json!({"configMapKeyRef": {}})), "configmaps"),
            (projected(json!({"configMap": {}})), "configmaps"),
            (json!({"resourceClaims": [{"name": "r"}]}), "resourceclaims"),
            (volume(json!({"csi": {"driver": "d"}})), "csidrivers (via CSI volumes)"),
            (volume(json!({"glusterfs": {}})), "endpoints (via glusterFS volumes)"),
            (volume(json!({"persistentVolumeClaim": {}})), "persistentvolumeclaims"),
            (volume(json!({"ephemeral": {}})), "persistentvolumeclaims (via ephemeral volumes)"),
            (projected(json!({"serviceAccountToken": {}})), "serviceaccounts (via projected volumes)"),
            (projected(json!({"clusterTrustBundle": {}})), "clustertrustbundles"),
            (projected(json!({"podCertificate": {}})), "podcertificates"),
        ] {
            assert_eq!(referenced(&spec), Some(expected), "{spec}");
        }
        for spec in [json!({}), volume(json!({"hostPath": {}})), volume(json!({"emptyDir": {}})), projected(json!({}))]
        {
            assert_eq!(referenced(&spec), None, "{spec}");
        }
    }

    #[test]
    fn labels_that_choose_pods_are_not_a_nodes_own() {
        let own = [
            "kubernetes.io/hostname",
            "topology.kubernetes.io/zone",
            "node.kubernetes.io/x",
            "a.kubelet.kubernetes.io/x",
            "company.example/x",
            "plain",
        ];
        let others = [
            "kubernetes.io/role",
            "node-restriction.kubernetes.io/x",
            "a.node-restriction.kubernetes.io/x",
            "x.k8s.io/y",
            "node-role.kubernetes.io/control-plane",
        ];
        for label in own {
            assert!(!is_forbidden(label), "{label}");
        }
        for label in others {
            assert!(is_forbidden(label), "{label}");
        }
        let (new, old) =
            (json!({"x.k8s.io/a": "1", "x.k8s.io/same": "1"}), json!({"x.k8s.io/b": "1", "x.k8s.io/same": "1"}));
        assert_eq!(forbidden_labels(&new, &old), ["x.k8s.io/a", "x.k8s.io/b"]);
    }
}
