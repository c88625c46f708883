//! Volumes of a pod: one source each, and the rules of each source.

use std::collections::{BTreeMap, BTreeSet};

use setpoint_api::{name, quote};

use super::containers::validate_pull_policy;
use super::options::Options;
use super::projected::{validate_downward_file, validate_key_to_path, validate_projected};
use super::remote_volumes::{is_remote, validate_remote};
use crate::builtin::core::persistentvolumeclaim;
use crate::errors::Errors;
use crate::metadata;
use crate::node::Node;

const MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";
const MODE_MAX: i64 = 0o777;
const HOST_PATH_TYPES: [&str; 8] =
    ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];
/// All sources, in the order in which they are checked.
const SOURCES: [&str; 30] = [
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
];

/// The volumes that are valid, by name.
pub type Volumes<'a> = BTreeMap<&'a str, Node<'a>>;

/// The rules for volumes. Only valid ones can be mounted. `pod_name` is absent in templates.
pub fn validate_volumes<'a>(spec: &Node<'a>, pod_name: &str, options: &Options, errs: &mut Errors) -> Volumes<'a> {
    let mut valid = Volumes::new();
    let created: BTreeSet<String> = spec
        .items("volumes")
        .filter(|volume| !pod_name.is_empty() && volume.has("ephemeral"))
        .map(|volume| format!("{pod_name}-{}", volume.str("name")))
        .collect();
    for volume in spec.items("volumes") {
        let before = errs.len();
        let name = volume.str("name");
        validate_source(&volume, pod_name, options, errs);
        if name.is_empty() {
            errs.required(&volume.get("name"), "");
        } else {
            errs.invalid_each(&volume.get("name"), name, name::dns1123_label(name));
        }
        if valid.contains_key(name) {
            errs.duplicate(&volume.get("name"), name);
        }
        let claim = volume.get("persistentVolumeClaim").get("claimName");
        if errs.len() == before {
            valid.insert(name, volume);
        }
        if claim.is_set() && created.contains(claim.as_str()) {
            errs.invalid_here(&claim, "must not reference a PVC that gets created for an ephemeral volume");
        }
    }
    valid
}

/// A file mode from 0 to 0777.
pub fn validate_mode(at: &Node<'_>, errs: &mut Errors) {
    if at.as_int().is_some_and(|mode| !(0..=MODE_MAX).contains(&mode)) {
        errs.invalid_here(at, MODE);
    }
}

/// A path below the place it is used in, that doesn't start with two dots.
pub fn validate_local_path(at: &Node<'_>, path: &str, errs: &mut Errors) {
    validate_descending_path(at, path, errs);
    if path.starts_with("..") && !path.starts_with("../") {
        errs.invalid(at, path, "must not start with '..'");
    }
}

/// A path below the place it is used in.
pub fn validate_descending_path(at: &Node<'_>, path: &str, errs: &mut Errors) {
    if path.starts_with('/') {
        errs.invalid(at, path, "must be a relative path");
    }
    validate_no_backsteps(at, path, errs);
}

/// A path without `..`.
pub fn validate_no_backsteps(at: &Node<'_>, path: &str, errs: &mut Errors) {
    if has_backsteps(path) {
        errs.invalid(at, path, "must not contain '..'");
    }
}

/// Whether a path goes up somewhere.
pub fn has_backsteps(path: &str) -> bool {
    path.split('/').any(|part| part == "..")
}

/// That these fields are there.
pub fn require(at: &Node<'_>, fields: &[&'static str], errs: &mut Errors) {
    for field in fields {
        if at.get(field).is_empty() {
            errs.required(&at.get(field), "");
        }
    }
}

fn validate_source(volume: &Node<'_>, pod_name: &str, options: &Options, errs: &mut Errors) {
    let mut count = 0;
    for kind in SOURCES {
        let source = volume.get(kind);
        if !source.is_set() {
            continue;
        }
        count += 1;
        if count > 1 {
            errs.forbidden(&volume.at_child(doubled_name(kind)), "may not specify more than 1 volume type");
        } else if is_remote(kind) {
            validate_remote(kind, volume, &source, errs);
        } else {
            validate_local(kind, volume, &source, pod_name, options, errs);
        }
        if kind == "iscsi" && source.has("initiatorName") {
            let name = volume.str("name");
            if name.len() + 1 + source.str("targetPortal").len() > 64 {
                let detail = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if \
                              iscsi.initiatorName is specified.";
                errs.invalid(&volume.get("name"), name, detail);
            }
        }
    }
    if count == 0 {
        errs.required(volume, "must specify a volume type");
    }
}

/// Two sources are called otherwise in this complaint.
fn doubled_name(kind: &'static str) -> &'static str {
    match kind {
        "cephfs" => "cephFS",
        "downwardAPI" => "downwarAPI",
        other => other,
    }
}

fn validate_local(
    kind: &str,
    volume: &Node<'_>,
    source: &Node<'_>,
    pod_name: &str,
    options: &Options,
    errs: &mut Errors,
) {
    match kind {
        "emptyDir" if source.quantity("sizeLimit").is_some_and(|limit| limit.is_negative()) => {
            errs.forbidden(&source.get("sizeLimit"), "SizeLimit field must be a valid resource quantity");
        }
        "hostPath" => validate_host_path(source, errs),
        "gitRepo" => {
            require(source, &["repository"], errs);
            validate_descending_path(&source.get("directory"), source.str("directory"), errs);
        }
        "secret" | "configMap" => {
            require(source, if kind == "secret" { &["secretName"] } else { &["name"] }, errs);
            validate_mode(&source.get("defaultMode"), errs);
            source.items("items").for_each(|item| validate_key_to_path(&item, errs));
        }
        "persistentVolumeClaim" => require(source, &["claimName"], errs),
        "downwardAPI" => {
            validate_mode(&source.get("defaultMode"), errs);
            source.items("items").for_each(|item| validate_downward_file(&item.at(source.path()), errs));
        }
        "projected" => validate_projected(source, options, errs),
        "ephemeral" => validate_ephemeral(volume, source, pod_name, errs),
        "image" => {
            if options.is_pod && source.str("reference").is_empty() {
                errs.required(&source.get("reference"), "");
            }
            validate_pull_policy(&source.get("pullPolicy"), errs);
        }
        _ => {}
    }
}

fn validate_host_path(source: &Node<'_>, errs: &mut Errors) {
    if source.str("path").is_empty() {
        errs.required(&source.get("path"), "");
        return;
    }
    validate_no_backsteps(&source.get("path"), source.str("path"), errs);
    let kind = source.get("type");
    if kind.is_set() && !HOST_PATH_TYPES.contains(&kind.as_str()) {
        errs.not_supported(&kind, kind.as_str(), &HOST_PATH_TYPES);
    }
}

fn validate_ephemeral(volume: &Node<'_>, source: &Node<'_>, pod_name: &str, errs: &mut Errors) {
    let template = source.get("volumeClaimTemplate");
    if template.is_set() {
        validate_claim_template(&template, errs);
    } else {
        errs.required(&template, "");
    }
    let name = volume.str("name");
    if !pod_name.is_empty() && !name.is_empty() {
        let claim = format!("{pod_name}-{name}");
        for complaint in name::dns1123_subdomain(&claim) {
            errs.invalid(&volume.get("name"), name, format!("PVC name {}: {complaint}", quote::quote(&claim)));
        }
    }
}

fn validate_claim_template(template: &Node<'_>, errs: &mut Errors) {
    validate_template_metadata(&template.get("metadata"), errs);
    persistentvolumeclaim::validate_spec(&template.get("spec"), None, errs);
}

/// The metadata of what a pod is going to get: labels and annotations, and nothing that an object has of its own.
pub fn validate_template_metadata(meta: &Node<'_>, errs: &mut Errors) {
    metadata::validate_annotations(&meta.get("annotations"), errs);
    metadata::validate_labels(&meta.get("labels"), errs);
    for field in [
        "name",
        "generateName",
        "namespace",
        "selfLink",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "ownerReferences",
        "finalizers",
        "managedFields",
    ] {
        let at = meta.get(field);
        if at.is_set() && !at.is_empty() {
            let shown = if field == "uid" { "uID" } else { field };
            errs.forbidden(&meta.at_child(shown), "cannot be set");
        }
    }
}
