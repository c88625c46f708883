//! PersistentVolume: storage that exists.

use std::borrow::Cow;

use serde_json::{Value, json};
use setpoint_api::labels::ValueRules;
use setpoint_api::{name, time};

use super::node_label;
use super::persistentvolumeclaim::CLASS_ANNOTATION;
use super::pod::scheduling::validate_node_selector;
use super::resource_list;
use crate::behaviour::{Behaviour, Context, keep};
use crate::columns::{Column, field};
use crate::edit::Edit;
use crate::errors::Errors;
use crate::internal_form::{pretty_as, shown};
use crate::kind::Kind;
use crate::line_diff;
use crate::node::Node;

mod source;

use source::SOURCES;

const MOUNT_OPTIONS: &str = "volume.beta.kubernetes.io/mount-options";

const ACCESS_MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
const RECLAIM_POLICIES: [&str; 3] = ["Delete", "Recycle", "Retain"];
const VOLUME_MODES: [&str; 2] = ["Block", "Filesystem"];

/// Sources that take mount options by annotation.
const MOUNTED: [&str; 13] = [
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "nfs",
    "rbd",
    "quobyte",
    "iscsi",
    "cinder",
    "cephfs",
    "azureFile",
    "vsphereVolume",
    "azureDisk",
    "photonPersistentDisk",
];

/// Labels of nodes that may give way to their successors: before, after.
const RENAMED_LABELS: [(&str, &str); 5] = [
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("beta.kubernetes.io/os", "kubernetes.io/os"),
    ("beta.kubernetes.io/arch", "kubernetes.io/arch"),
    ("beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"),
];

/// Sources whose drivers are gone: field, name in the warning, since when.
const RETIRED: [(&str, &str, &str); 6] = [
    ("cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("photonPersistentDisk", "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("storageos", "storageOS", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

const SPEC: &str = "io.k8s.api.core.v1.PersistentVolumeSpec";
const SOURCE: &str = "io.k8s.api.core.v1.PersistentVolumeSource";
const STATUS: &str = "io.k8s.api.core.v1.PersistentVolumeStatus";

const COLUMNS: &[Column<'static>] = &[
    Column::NAME,
    Column::new("Capacity", "string", |object, _| {
        json!(object.find(&["spec", "capacity", "storage"]).and_then(Value::as_str).unwrap_or("0"))
    })
    .about_field(SPEC, "capacity"),
    Column::new("Access Modes", "string", |object, _| json!(access_modes(&object["spec"])))
        .about_field(SPEC, "accessModes"),
    Column::new("Reclaim Policy", "string", |object, _| field(object, &["spec", "persistentVolumeReclaimPolicy"]))
        .about_field(SPEC, "persistentVolumeReclaimPolicy"),
    Column::new("Status", "string", |object, _| json!(phase(object))).about_field(STATUS, "phase"),
    Column::new("Claim", "string", |object, _| json!(claim(object))).about_field(SPEC, "claimRef"),
    Column::new("StorageClass", "string", |object, _| json!(class(object))).about("StorageClass of the pv"),
    Column::new("VolumeAttributesClass", "string", |object, _| json!(or_unset(object, "volumeAttributesClassName")))
        .about("VolumeAttributesClass of the pv"),
    Column::new("Reason", "string", |object, _| field(object, &["status", "reason"])).about_field(STATUS, "reason"),
    Column::AGE,
    Column::new("VolumeMode", "string", |object, _| json!(or_unset(object, "volumeMode")))
        .about_field(SPEC, "volumeMode")
        .wide(),
];

/// The decisions of PersistentVolume.
#[derive(Debug)]
pub struct PersistentVolume;

impl Behaviour for PersistentVolume {
    fn default(&self, object: &mut Value) {
        object.ensure("status").default_to("phase", "Pending");
        let spec = object.ensure("spec");
        spec.default_to("persistentVolumeReclaimPolicy", "Retain");
        spec.fill("volumeMode", "Filesystem");
        default_inline(spec);
    }

    fn prepare_create(&self, object: &mut Value, context: &Context) {
        let now = time::format_rfc3339(context.now);
        object.set("status", json!({"phase": "Pending", "lastPhaseTransitionTime": now}));
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, _context: &Context) {
        keep(new, old, &["status"]);
    }

    /// The server notes when the phase changed, unless the client does.
    fn prepare_status_update(&self, new: &mut Value, old: &Value, context: &Context) {
        keep(new, old, &["spec"]);
        let before = old["status"].get("lastPhaseTransitionTime").cloned();
        let status = new.ensure("status");
        let given = status.get("lastPhaseTransitionTime").cloned();
        if status.text("phase") == old["status"].text("phase") {
            if given.is_none() {
                status.set_or_remove("lastPhaseTransitionTime", before);
            }
        } else if given.is_none() || given == before {
            status.set("lastPhaseTransitionTime", time::format_rfc3339(context.now));
        }
    }

    fn validate(&self, object: &Node<'_>, errs: &mut Errors) {
        validate_spec(&object.get("spec"), Some(object.get("metadata").str("name")), ValueRules::Strict, errs);
        validate_mount_options(object, errs);
    }

    fn check_update(&self, kind: &Kind, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        let rules = affinity_rules(&old.get("spec"));
        let check = |errs: &mut Errors| {
            crate::metadata::validate(new, kind.namespaced, self.name_rule(), errs);
            validate_spec(&new.get("spec"), Some(new.get("metadata").str("name")), rules, errs);
        };
        check(errs);
        validate_mount_options(new, errs);
        // Upstream checks all of it once more with what may change.
        check(errs);
        validate_change(&new.get("spec"), &old.get("spec"), errs);
    }

    fn warnings(&self, new: &Node<'_>, old: Option<&Node<'_>>) -> Vec<String> {
        // Only a write to /status can change it, and says nothing.
        if old.is_some_and(|old| !new.get("status").same(&old.get("status"))) {
            return Vec::new();
        }
        warnings(new)
    }

    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        if subresource.is_empty() { &["status"] } else { &["spec"] }
    }

    fn columns(&self) -> Cow<'_, [Column<'_>]> {
        COLUMNS.into()
    }
}

/// What is filled in wherever the spec of a volume stands.
pub fn default_inline(spec: &mut Value) {
    resource_list::round_up(spec.child("capacity"));
    source::default_source(spec);
}

/// The rules for the spec of a volume. Without a name it stands inside a VolumeAttachment, where less is allowed.
pub fn validate_spec(spec: &Node<'_>, volume: Option<&str>, affinity: ValueRules, errs: &mut Errors) {
    let inline = volume.is_none();
    if inline {
        validate_inline(spec, errs);
    }
    if spec.count("accessModes") == 0 {
        errs.required(&spec.get("accessModes"), "");
    }
    validate_access_modes(&spec.get("accessModes"), errs);
    if !inline {
        validate_capacity(&spec.get("capacity"), errs);
    }
    validate_policy(&spec.get("persistentVolumeReclaimPolicy"), inline, errs);
    validate_affinity(&spec.get("nodeAffinity"), inline, affinity, errs);
    source::validate_source(spec, volume.unwrap_or(""), errs);
    let root = spec.has("hostPath") && is_root(spec.get("hostPath").str("path"));
    if root && spec.str("persistentVolumeReclaimPolicy") == "Recycle" {
        let at = spec.get("persistentVolumeReclaimPolicy");
        errs.forbidden(&at, "may not be 'recycle' for a hostPath mount of '/'");
    }
    validate_classes(spec, inline, errs);
}

/// Known modes; the one for a single pod stands alone.
pub(super) fn validate_access_modes(at: &Node<'_>, errs: &mut Errors) {
    let modes: Vec<&str> = at.clone().into_items().map(|mode| mode.as_str()).collect();
    for mode in modes.iter().filter(|mode| !ACCESS_MODES.contains(mode)) {
        errs.not_supported(at, *mode, &ACCESS_MODES);
    }
    let single = modes.contains(&"ReadWriteOncePod");
    if single && modes.iter().any(|mode| *mode != "ReadWriteOncePod" && ACCESS_MODES.contains(mode)) {
        errs.forbidden(at, "may not use ReadWriteOncePod with other access modes");
    }
}

/// Not negative, shown as a number.
pub(super) fn validate_basic(at: &Node<'_>, errs: &mut Errors) {
    if let Some(amount) = at.as_quantity().map(|amount| amount.value()).filter(|amount| *amount < 0) {
        errs.invalid(at, amount, "must be a valid resource quantity");
    }
}

/// Access modes as a cell shows them: `RWO,RWX`.
pub(super) fn access_modes(owner: &Value) -> String {
    let modes = owner.get("accessModes").and_then(Value::as_array).map_or(&[] as &[Value], Vec::as_slice);
    let shown =
        [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    let found = shown.iter().filter(|(mode, _)| modes.iter().any(|given| given == mode)).map(|(_, short)| *short);
    found.collect::<Vec<_>>().join(",")
}

/// The phase, or that the object is going.
pub(super) fn phase(object: &Value) -> &str {
    if object["metadata"].has("deletionTimestamp") { "Terminating" } else { object["status"].text("phase") }
}

fn validate_inline(spec: &Node<'_>, errs: &mut Errors) {
    for field in ["claimRef", "capacity"] {
        if !spec.get(field).is_empty() || (field == "claimRef" && spec.has(field)) {
            errs.forbidden(&spec.get(field), "may not be specified in the context of inline volumes");
        }
    }
    if !spec.has("csi") {
        errs.required(&spec.get("csi"), "has to be specified in the context of inline volumes");
    }
}

fn validate_capacity(at: &Node<'_>, errs: &mut Errors) {
    if at.is_empty() {
        errs.required(at, "");
    }
    let entries: Vec<_> = at.clone().into_entries().collect();
    if entries.len() != 1 || entries[0].0 != "storage" {
        errs.not_supported(at, at.json(), &["storage"]);
    }
    for (_, amount) in entries {
        validate_basic(&amount, errs);
        resource_list::validate_positive(&amount, errs);
    }
}

fn validate_policy(at: &Node<'_>, inline: bool, errs: &mut Errors) {
    let policy = at.as_str();
    if inline && !policy.is_empty() && policy != "Retain" {
        errs.forbidden(at, "may only be Retain in the context of inline volumes");
    } else if !inline && !policy.is_empty() && !RECLAIM_POLICIES.contains(&policy) {
        errs.not_supported(at, policy, &RECLAIM_POLICIES);
    }
}

fn validate_affinity(at: &Node<'_>, inline: bool, rules: ValueRules, errs: &mut Errors) {
    if !at.is_set() {
        return;
    }
    let required = at.get("required");
    if inline {
        errs.forbidden(at, "may not be specified in the context of inline volumes");
    } else if required.is_set() {
        validate_node_selector(&required, rules, errs);
    } else {
        errs.required(&required, "must specify required node constraints");
    }
}

fn validate_classes(spec: &Node<'_>, inline: bool, errs: &mut Errors) {
    let (class, mode, attributes) =
        (spec.get("storageClassName"), spec.get("volumeMode"), spec.get("volumeAttributesClassName"));
    if !class.is_empty() {
        if inline {
            errs.forbidden(&class, "may not be specified in the context of inline volumes");
        } else {
            errs.invalid_each(&class, class.as_str(), name::dns1123_subdomain(class.as_str()));
        }
    }
    if mode.is_set() {
        if inline && mode.as_str() != "Filesystem" {
            let detail = "may not specify volumeMode other than Filesystem in the context of inline volumes";
            errs.forbidden(&mode, detail);
        } else if !inline && !VOLUME_MODES.contains(&mode.as_str()) {
            errs.not_supported(&mode, mode.as_str(), &VOLUME_MODES);
        }
    }
    if !attributes.is_set() || inline {
        return;
    }
    if attributes.is_empty() {
        errs.required(&attributes, "an empty string is disallowed");
    } else {
        errs.invalid_each(&attributes, attributes.as_str(), name::dns1123_subdomain(attributes.as_str()));
    }
    if !spec.has("csi") {
        errs.required(&spec.get("csi"), "has to be specified when using volumeAttributesClassName");
    }
}

fn validate_mount_options(object: &Node<'_>, errs: &mut Errors) {
    let annotated = object.get("metadata").get("annotations").json().get(MOUNT_OPTIONS).is_some();
    let spec = object.get("spec");
    if annotated && !MOUNTED.iter().any(|source| spec.has(source)) {
        let at = object.get("metadata").at(format!("metadata.annotations.{MOUNT_OPTIONS}"));
        errs.forbidden(&at, "may not specify mount options for this volume type");
    }
}

/// Where a volume is stays; who may expand it may be told later.
fn validate_change(new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
    let mut wanted = new.json().clone();
    if old.has("csi")
        && !old.get("csi").has("controllerExpandSecretRef")
        && let Some(csi) = wanted.child("csi")
    {
        csi.remove("controllerExpandSecretRef");
    }
    let wanted = new.with_value(&wanted);
    if SOURCES.iter().any(|source| !wanted.get(source).same(&old.get(source)))
        && let Some(ty) = new.ty()
    {
        let text = |spec: &Node<'_>| pretty_as(spec.json(), ty, SOURCE);
        let diff = line_diff::unified(&text(old), &text(&wanted));
        let detail = format!("spec.persistentvolumesource is immutable after creation\n{diff}");
        errs.forbidden(&new.at("spec.persistentvolumesource"), detail);
    }
    errs.immutable(&new.get("volumeMode").at("volumeMode"), &old.get("volumeMode"));
    let (affinity, before) = (new.get("nodeAffinity").at("nodeAffinity"), old.get("nodeAffinity"));
    if before.is_set() && !same_affinity(&affinity, &before) {
        errs.invalid(&affinity, shown(&affinity), "field is immutable, except for updating from beta label to GA");
    }
    let attributes = new.get("volumeAttributesClassName");
    if old.has("volumeAttributesClassName") && !attributes.is_set() {
        errs.forbidden(&attributes, "update from non-nil value to nil is forbidden");
    }
}

/// Equal, but for labels that gave way to their successors.
fn same_affinity(new: &Node<'_>, old: &Node<'_>) -> bool {
    let mut before = old.json().clone();
    let mut keys = new.get("required").items("nodeSelectorTerms").map(|term| {
        term.items("matchExpressions").chain(term.items("matchFields")).map(|e| e.str("key")).collect::<Vec<_>>()
    });
    if let Some(required) = before.child("required") {
        for term in required.items_mut("nodeSelectorTerms") {
            let mut now = keys.next().unwrap_or_default().into_iter();
            for list in ["matchExpressions", "matchFields"] {
                for requirement in term.items_mut(list) {
                    let renamed = now.next().filter(|now| RENAMED_LABELS.contains(&(requirement.text("key"), *now)));
                    if let Some(key) = renamed {
                        requirement.set("key", key);
                    }
                }
            }
        }
    }
    new.same(&old.with_value(&before))
}

fn affinity_rules(old: &Node<'_>) -> ValueRules {
    let terms = old.get("nodeAffinity").get("required").items("nodeSelectorTerms");
    let mut values =
        terms.flat_map(|term| term.items("matchExpressions")).flat_map(|expression| expression.items("values"));
    let bad = values.any(|value| !name::label_value(value.as_str()).is_empty());
    if bad { ValueRules::Lenient } else { ValueRules::Strict }
}

fn warnings(object: &Node<'_>) -> Vec<String> {
    let (annotations, spec) = (object.get("metadata").get("annotations"), object.get("spec"));
    let mut found = Vec::new();
    for (key, message) in [
        (CLASS_ANNOTATION, "deprecated since v1.8; use \"storageClassName\" attribute instead"),
        (MOUNT_OPTIONS, "deprecated since v1.31; use \"mountOptions\" attribute instead"),
    ] {
        if annotations.json().get(key).is_some() {
            found.push(format!("metadata.annotations[{key}]: {message}"));
        }
    }
    if spec.str("persistentVolumeReclaimPolicy") == "Recycle" {
        found.push(
            "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended \
             approach is to use dynamic provisioning."
                .to_owned(),
        );
    }
    for term in spec.get("nodeAffinity").get("required").items("nodeSelectorTerms") {
        found.extend(node_label::term_warnings(&term));
    }
    let retired = RETIRED.iter().filter(|(field, _, _)| spec.has(field));
    found.extend(retired.map(|(_, shown, message)| format!("spec.{shown}: {message}")));
    found
}

/// Whether a path is `/`, however it is written.
fn is_root(path: &str) -> bool {
    let mut depth = 0;
    for part in path.split('/').filter(|part| !part.is_empty() && *part != ".") {
        depth = if part == ".." { (depth - 1).max(0) } else { depth + 1 };
    }
    path.starts_with('/') && depth == 0
}

fn claim(object: &Value) -> String {
    match object.find(&["spec", "claimRef"]) {
        None => String::new(),
        Some(claim) => format!("{}/{}", claim.text("namespace"), claim.text("name")),
    }
}

fn class(object: &Value) -> &str {
    match object["metadata"]["annotations"].get(CLASS_ANNOTATION) {
        Some(class) => class.as_str().unwrap_or(""),
        None => object["spec"].text("storageClassName"),
    }
}

fn or_unset<'a>(object: &'a Value, field: &str) -> &'a str {
    object.find(&["spec", field]).and_then(Value::as_str).unwrap_or("<unset>")
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{columns, create, create_fails, find, update_fails, warnings};
    use super::*;

    fn volume(spec: Value) -> Value {
        let mut body = json!({"metadata": {"name": "a"},
            "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}});
        for (field, value) in spec.as_object().into_iter().flatten() {
            body["spec"].set(field, value.clone());
        }
        body
    }

    #[test]
    fn a_mistake_in_an_update_is_told_twice() {
        let kind = find("v1", "persistentvolumes");
        let old = create("v1", "persistentvolumes", volume(json!({"hostPath": {"path": "/x"}})));
        let mut new = old.clone();
        new["spec"].set("accessModes", json!(["Odd"]));
        new["metadata"].set("resourceVersion", "1");
        let errors = kind.check_update("", &new, &old);
        let told: Vec<_> = errors.iter().map(|error| error.field.as_str()).collect();
        assert_eq!(told, ["spec.accessModes", "spec.accessModes"]);
    }

    #[test]
    fn a_volume_is_kept_and_waits_for_a_claim() {
        let object = create("v1", "persistentvolumes", volume(json!({"hostPath": {"path": "/x"}})));
        assert_eq!(object["spec"]["hostPath"], json!({"path": "/x", "type": ""}));
        assert_eq!(object["status"]["phase"], "Pending");
        assert_eq!(
            columns("v1", "persistentvolumes", &object),
            json!(["a", "1Gi", "RWO", "Retain", "Pending", "", "", "<unset>", "", "<unknown>", "Filesystem"])
        );
    }

    #[test]
    fn a_volume_has_one_source_and_one_size() {
        for (spec, expected) in [
            (json!({}), "spec: Required value: must specify a volume type"),
            (
                json!({"hostPath": {"path": "/x"}, "nfs": {"server": "s", "path": "/x"}}),
                "spec.nfs: Forbidden: may not specify more than 1 volume type",
            ),
            (
                json!({"hostPath": {"path": "/x"}, "capacity": {"cpu": "1"}}),
                "spec.capacity: Unsupported value: {\"cpu\":\"1\"}: supported values: \"storage\"",
            ),
            (
                json!({"hostPath": {"path": "/a/.."}, "persistentVolumeReclaimPolicy": "Recycle"}),
                "[spec.hostPath.path: Invalid value: \"/a/..\": must not contain '..', \
                 spec.persistentVolumeReclaimPolicy: Forbidden: may not be 'recycle' for a hostPath mount of '/']",
            ),
            (
                json!({"local": {"path": "/x"}}),
                "spec.nodeAffinity: Required value: Local volume requires node affinity",
            ),
        ] {
            create_fails("v1", "persistentvolumes", volume(spec), expected);
        }
    }

    #[test]
    fn where_a_volume_is_stays() {
        let with = |path: &str| volume(json!({"hostPath": {"path": path}}));
        update_fails(
            "v1",
            "persistentvolumes",
            with("/x"),
            with("/y"),
            "spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after creation\n\
             @@ -2,7 +2,7 @@\n  \"GCEPersistentDisk\": null,\n  \"AWSElasticBlockStore\": null,\n  \"HostPath\": {\n\
             -  \"Path\": \"/x\",\n+  \"Path\": \"/y\",\n   \"Type\": \"\"\n  },\n  \"Glusterfs\": null,\n",
        );
    }

    #[test]
    fn old_ways_warn() {
        let recycled =
            volume(json!({"nfs": {"server": "s", "path": "/x"}, "persistentVolumeReclaimPolicy": "Recycle"}));
        assert_eq!(
            warnings("v1", "persistentvolumes", recycled),
            [
                "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach \
              is to use dynamic provisioning."
            ]
        );
    }
}
