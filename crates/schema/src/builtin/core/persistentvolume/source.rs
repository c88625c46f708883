//! Where the storage of a volume is.

use serde_json::{Value, json};
use setpoint_api::name;

use super::super::pod::remote_volumes::validate_remote;
use super::super::pod::volumes::{require, validate_no_backsteps};
use crate::builtin::storage::parameters::validate_driver_name;
use crate::edit::Edit;
use crate::errors::Errors;
use crate::node::Node;

/// The fields of a spec that tell where the storage is, in the order in which they are looked at.
pub(super) const SOURCES: [&str; 22] = [
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "flocker",
    "nfs",
    "rbd",
    "quobyte",
    "cephfs",
    "iscsi",
    "cinder",
    "fc",
    "flexVolume",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "scaleIO",
    "local",
    "storageos",
    "csi",
];

const HOST_PATH_TYPES: [&str; 8] =
    ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];

/// Longest name of a volume and its iSCSI portal together, where the initiator is named.
const PORTAL_BYTES_MAX: usize = 64;

/// Fills in what the user left out of the source.
pub(super) fn default_source(spec: &mut Value) {
    let fill = |source: Option<&mut Value>, fields: &[(&str, Value)]| {
        let Some(source) = source else { return };
        fields.iter().for_each(|(field, value)| source.fill(field, value.clone()));
    };
    fill(spec.child("hostPath"), &[("type", json!(""))]);
    fill(
        spec.child("rbd"),
        &[("pool", json!("rbd")), ("user", json!("admin")), ("keyring", json!("/etc/ceph/keyring"))],
    );
    fill(spec.child("iscsi"), &[("iscsiInterface", json!("default"))]);
    fill(
        spec.child("azureDisk"),
        &[
            ("cachingMode", json!("ReadWrite")),
            ("fsType", json!("ext4")),
            ("readOnly", json!(false)),
            ("kind", json!("Shared")),
        ],
    );
    fill(spec.child("scaleIO"), &[("storageMode", json!("ThinProvisioned")), ("fsType", json!("xfs"))]);
}

/// There is one source, and it is complete.
pub(super) fn validate_source(spec: &Node<'_>, volume: &str, errs: &mut Errors) {
    let mut found = false;
    for kind in SOURCES.into_iter().filter(|kind| spec.has(kind)) {
        // Upstream lets a driver of this kind stand beside another source.
        if found && kind != "flexVolume" {
            let at = if kind == "cephfs" { spec.at_child("cephFS") } else { spec.get(kind) };
            errs.forbidden(&at, "may not specify more than 1 volume type");
            continue;
        }
        found = true;
        validate_kind(kind, spec, volume, errs);
    }
    if !found {
        errs.required(spec, "must specify a volume type");
    }
}

fn validate_kind(kind: &'static str, spec: &Node<'_>, volume: &str, errs: &mut Errors) {
    let source = spec.get(kind);
    match kind {
        "hostPath" => validate_host_path(&source, errs),
        "local" => {
            validate_path(&source, errs);
            if !spec.has("nodeAffinity") {
                errs.required(&spec.get("nodeAffinity"), "Local volume requires node affinity");
            }
        }
        "iscsi" => validate_iscsi(spec, &source, volume, errs),
        "glusterfs" => validate_glusterfs(&source, errs),
        "cinder" => {
            require(&source, &["volumeID"], errs);
            require_secret(&source, errs);
        }
        "azureFile" => {
            require(&source, &["secretName", "shareName"], errs);
            let namespace = source.get("secretNamespace");
            if namespace.is_set() && namespace.is_empty() {
                errs.required(&namespace, "");
            }
        }
        "storageos" => validate_storage_os(&source, errs),
        "csi" => validate_csi(&source, errs),
        _ => validate_remote(kind, spec, &source, errs),
    }
}

fn validate_path(source: &Node<'_>, errs: &mut Errors) {
    let path = source.get("path");
    if path.is_empty() {
        errs.required(&path, "");
    } else {
        validate_no_backsteps(&path, path.as_str(), errs);
    }
}

fn validate_host_path(source: &Node<'_>, errs: &mut Errors) {
    validate_path(source, errs);
    let kind = source.get("type");
    if !source.str("path").is_empty() && kind.is_set() && !HOST_PATH_TYPES.contains(&kind.as_str()) {
        errs.not_supported(&kind, kind.as_str(), &HOST_PATH_TYPES);
    }
}

/// As in a pod, but upstream's words for a name of the wrong kind are fewer here.
fn validate_iscsi(spec: &Node<'_>, source: &Node<'_>, volume: &str, errs: &mut Errors) {
    let portal = source.str("targetPortal");
    if source.has("initiatorName") && volume.len() + 1 + portal.len() > PORTAL_BYTES_MAX {
        let detail = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if \
                      iscsi.initiatorName is specified.";
        errs.invalid(&source.at_child("targetportal"), portal, detail);
    }
    let mut found = Errors::new();
    validate_remote("iscsi", spec, source, &mut found);
    for mut error in found.into_vec() {
        if error.detail.starts_with("must be valid format") {
            error.detail = "must be valid format".to_owned();
        }
        errs.push(error);
    }
    let secret = source.get("secretRef");
    if secret.is_set() && secret.str("name").is_empty() {
        errs.required(&secret.get("name"), "");
    }
}

fn validate_glusterfs(source: &Node<'_>, errs: &mut Errors) {
    require(source, &["endpoints", "path"], errs);
    let namespace = source.get("endpointsNamespace");
    if namespace.is_set() && namespace.is_empty() {
        errs.invalid_here(&namespace, "if the endpointnamespace is set, it must be a valid namespace name");
    } else if namespace.is_set() {
        errs.invalid_each(&namespace, namespace.as_str(), name::dns1123_label(namespace.as_str()));
    }
}

fn validate_storage_os(source: &Node<'_>, errs: &mut Errors) {
    let (volume, namespace) = (source.get("volumeName"), source.get("volumeNamespace"));
    if volume.is_empty() {
        errs.required(&volume, "");
    } else {
        errs.invalid_each(&volume, volume.as_str(), name::dns1123_label(volume.as_str()));
    }
    if !namespace.is_empty() {
        errs.invalid_each(&namespace, namespace.as_str(), name::dns1123_label(namespace.as_str()));
    }
    require_secret(source, errs);
}

fn require_secret(source: &Node<'_>, errs: &mut Errors) {
    let secret = source.get("secretRef");
    if secret.is_set() {
        require(&secret, &["name", "namespace"], errs);
    }
}

fn validate_csi(source: &Node<'_>, errs: &mut Errors) {
    validate_driver_name(&source.get("driver"), errs);
    require(source, &["volumeHandle"], errs);
    for field in
        ["controllerPublishSecretRef", "controllerExpandSecretRef", "nodePublishSecretRef", "nodeExpandSecretRef"]
    {
        let secret = source.get(field);
        if !secret.is_set() {
            continue;
        }
        validate_part(&secret.get("name"), name::dns1123_subdomain, errs);
        validate_part(&secret.get("namespace"), name::dns1123_label, errs);
    }
}

fn validate_part(at: &Node<'_>, rule: fn(&str) -> Vec<String>, errs: &mut Errors) {
    if at.is_empty() {
        errs.required(at, "");
    } else {
        errs.invalid_each(at, at.as_str(), rule(at.as_str()));
    }
}
