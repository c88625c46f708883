//! Where the volumes of a pod appear in its containers: as directories, or as devices.

use std::collections::{BTreeMap, BTreeSet};

use super::volumes::{Volumes, has_backsteps, validate_descending_path};
use crate::errors::Errors;
use crate::node::Node;

const PROPAGATIONS: [&str; 3] = ["Bidirectional", "HostToContainer", "None"];
const RECURSIVE_READ_ONLY: [&str; 3] = ["Disabled", "Enabled", "IfPossible"];

/// The rules for directories.
pub fn validate_mounts(container: &Node<'_>, volumes: &Volumes<'_>, errs: &mut Errors) {
    let list = container.get("volumeMounts");
    let devices = places(container, "volumeDevices", "devicePath");
    let mut taken = BTreeSet::new();
    for mount in list.clone().into_items() {
        let (name, path) = (mount.str("name"), mount.str("mountPath"));
        if name.is_empty() {
            errs.required(&mount.get("name"), "");
        }
        if !volumes.contains_key(name) {
            errs.not_found(&mount.get("name"), name);
        }
        if path.is_empty() {
            errs.required(&mount.get("mountPath"), "");
        }
        if !taken.insert(path) {
            errs.invalid(&mount.get("mountPath"), path, "must be unique");
        }
        if devices.contains_key(name) {
            errs.invalid(&mount.get("name"), name, "must not already exist in volumeDevices");
        }
        if devices.values().any(|device| *device == path) {
            errs.invalid(&mount.get("mountPath"), path, "must not already exist as a path in volumeDevices");
        }
        validate_sub_paths(&list, &mount, errs);
        validate_propagation(&list, &mount, container, errs);
        validate_recursive_read_only(&list, &mount, errs);
    }
}

/// The rules for devices.
pub fn validate_devices(container: &Node<'_>, volumes: &Volumes<'_>, errs: &mut Errors) {
    let mounts = places(container, "volumeMounts", "mountPath");
    let (mut names, mut paths) = (BTreeSet::new(), BTreeSet::new());
    for device in container.items("volumeDevices") {
        let (name, path) = (device.str("name"), device.str("devicePath"));
        let (name_at, path_at) = (device.get("name"), device.get("devicePath"));
        if name.is_empty() {
            errs.required(&name_at, "");
        }
        if names.contains(name) {
            errs.invalid(&name_at, name, "must be unique");
        }
        match volumes.get(name) {
            Some(volume) if !volume.has("persistentVolumeClaim") && !volume.has("ephemeral") => {
                let detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                errs.invalid(&name_at, name, detail);
            }
            Some(_) => {}
            None => errs.not_found(&name_at, name),
        }
        if path.is_empty() {
            errs.required(&path_at, "");
        }
        if paths.contains(path) {
            errs.invalid(&path_at, path, "must be unique");
        }
        if has_backsteps(path) {
            errs.invalid(&path_at, path, "can not contain backsteps ('..')");
        } else {
            paths.insert(path);
        }
        if mounts.contains_key(name) {
            errs.invalid(&name_at, name, "must not already exist in volumeMounts");
        }
        if mounts.values().any(|mount| *mount == path) {
            errs.invalid(&path_at, path, "must not already exist as a path in volumeMounts");
        }
        if !name.is_empty() {
            names.insert(name);
        }
    }
}

fn places<'a>(container: &Node<'a>, list: &'static str, path: &'static str) -> BTreeMap<&'a str, &'a str> {
    container.items(list).map(|item| (item.str("name"), item.str(path))).collect()
}

fn validate_sub_paths(list: &Node<'_>, mount: &Node<'_>, errs: &mut Errors) {
    let (path, expression) = (mount.str("subPath"), mount.str("subPathExpr"));
    if !path.is_empty() {
        validate_descending_path(&list.at_child("subPath"), path, errs);
    }
    if !expression.is_empty() {
        if !path.is_empty() {
            let detail = "subPathExpr and subPath are mutually exclusive";
            errs.invalid(&mount.get("subPathExpr"), expression, detail);
        }
        validate_descending_path(&list.at_child("subPathExpr"), expression, errs);
    }
}

fn validate_propagation(list: &Node<'_>, mount: &Node<'_>, container: &Node<'_>, errs: &mut Errors) {
    let mode = mount.get("mountPropagation").at(list.at_child("mountPropagation").path());
    if !mode.is_set() {
        return;
    }
    if !PROPAGATIONS.contains(&mode.as_str()) {
        errs.not_supported(&mode, mode.as_str(), &PROPAGATIONS);
    }
    if mode.as_str() == "Bidirectional" && !container.get("securityContext").bool("privileged") {
        errs.forbidden(&mode, "Bidirectional mount propagation is available only to privileged containers");
    }
}

fn validate_recursive_read_only(list: &Node<'_>, mount: &Node<'_>, errs: &mut Errors) {
    let mode = mount.get("recursiveReadOnly").at(list.at_child("recursiveReadOnly").path());
    match mode.as_str() {
        _ if !mode.is_set() => {}
        "Disabled" => {}
        "Enabled" | "IfPossible" => {
            if !mount.bool("readOnly") {
                errs.forbidden(&mode, "may only be specified when readOnly is true");
            }
            if !matches!(mount.str("mountPropagation"), "" | "None") {
                errs.forbidden(&mode, "may only be specified when mountPropagation is None or not specified");
            }
        }
        other => errs.not_supported(&mode, other, &RECURSIVE_READ_ONLY),
    }
}
