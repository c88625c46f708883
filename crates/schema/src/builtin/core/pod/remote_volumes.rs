//! Volumes on other machines: network file systems, disks of clouds, drivers.

use setpoint_api::name;

use super::volumes::require;
use crate::errors::Errors;
use crate::node::Node;

const KINDS: [&str; 20] = [
    "awsElasticBlockStore",
    "azureDisk",
    "azureFile",
    "cephfs",
    "cinder",
    "csi",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "glusterfs",
    "iscsi",
    "nfs",
    "photonPersistentDisk",
    "portworxVolume",
    "quobyte",
    "rbd",
    "scaleIO",
    "storageos",
    "vsphereVolume",
];
const LUN_MAX: i64 = 255;
const PARTITION_MAX: i64 = 255;
const DRIVER_BYTES_MAX: usize = 63;
const QUOBYTE_REGISTRY: &str = "must be a host:port pair or multiple pairs separated by commas";
const QUOBYTE_TENANT_BYTES_MAX: usize = 64;

/// Whether the source is one of these.
pub fn is_remote(kind: &str) -> bool {
    KINDS.contains(&kind)
}

/// The rules for a source on another machine.
pub fn validate_remote(kind: &str, volume: &Node<'_>, source: &Node<'_>, errs: &mut Errors) {
    match kind {
        "gcePersistentDisk" => {
            let here = source.at(volume.at_child("persistentDisk").path());
            require(&here, &["pdName"], errs);
            validate_partition(&here, errs);
        }
        "awsElasticBlockStore" => {
            require(source, &["volumeID"], errs);
            validate_partition(source, errs);
        }
        "nfs" => {
            require(source, &["server", "path"], errs);
            if !source.str("path").starts_with('/') {
                errs.invalid(&source.get("path"), source.str("path"), "must be an absolute path");
            }
        }
        "iscsi" => validate_iscsi(source, errs),
        "glusterfs" => require(source, &["endpoints", "path"], errs),
        "flocker" => validate_flocker(source, errs),
        "rbd" => require(source, &["monitors", "image"], errs),
        "cinder" => {
            require(source, &["volumeID"], errs);
            validate_secret_ref(source, errs);
        }
        "cephfs" => require(source, &["monitors"], errs),
        "quobyte" => validate_quobyte(source, errs),
        "fc" => validate_fibre_channel(source, errs),
        "flexVolume" => validate_flex(source, errs),
        "azureFile" => require(source, &["secretName", "shareName"], errs),
        "vsphereVolume" => require(source, &["volumePath"], errs),
        "photonPersistentDisk" => require(source, &["pdID"], errs),
        "portworxVolume" => require(source, &["volumeID"], errs),
        "azureDisk" => validate_azure_disk(source, errs),
        "storageos" => validate_storage_os(source, errs),
        "scaleIO" => require(source, &["gateway", "system", "volumeName"], errs),
        _ => validate_csi(source, errs),
    }
}

fn validate_partition(source: &Node<'_>, errs: &mut Errors) {
    let partition = source.int("partition").unwrap_or(0);
    if !(0..=PARTITION_MAX).contains(&partition) {
        errs.invalid(&source.get("partition"), partition, "must be between 1 and 255, inclusive");
    }
}

fn validate_lun(at: &Node<'_>, errs: &mut Errors) {
    let lun = at.as_int().unwrap_or(0);
    for complaint in name::in_range(lun, 0, LUN_MAX) {
        errs.invalid(at, lun, complaint);
    }
}

fn validate_secret_ref(source: &Node<'_>, errs: &mut Errors) {
    let secret = source.get("secretRef");
    if secret.is_set() && secret.str("name").is_empty() {
        errs.required(&secret.get("name"), "");
    }
}

fn validate_iscsi(source: &Node<'_>, errs: &mut Errors) {
    require(source, &["targetPortal"], errs);
    let target = source.str("iqn");
    if target.is_empty() {
        errs.required(&source.get("iqn"), "");
    } else {
        validate_iscsi_name(&source.get("iqn"), target, errs);
    }
    validate_lun(&source.get("lun"), errs);
    if (source.bool("chapAuthDiscovery") || source.bool("chapAuthSession")) && !source.has("secretRef") {
        errs.required(&source.get("secretRef"), "");
    }
    if source.has("initiatorName") {
        validate_iscsi_name(&source.at_child("initiatorname"), source.str("initiatorName"), errs);
    }
}

fn validate_iscsi_name(at: &Node<'_>, text: &str, errs: &mut Errors) {
    let alphanumeric =
        |text: &str, length: usize| text.len() == length && text.bytes().all(|b| b.is_ascii_alphanumeric());
    let valid = match text.get(..3) {
        Some("iqn") => is_iqn(text),
        Some("eui") => {
            text.chars().count() == 20
                && text.char_indices().nth(4).is_some_and(|(at, _)| alphanumeric(&text[at..], 16))
        }
        Some("naa") => {
            text.chars().count() == 36
                && text.char_indices().nth(4).is_some_and(|(at, _)| alphanumeric(&text[at..], 32))
        }
        _ => {
            errs.invalid(at, text, "must be valid format starting with iqn, eui, or naa");
            return;
        }
    };
    if !valid {
        errs.invalid(at, text, "must be valid format");
    }
}

/// `iqn.2020-01.org.example:disk`: anywhere in the text a year and month, a name, and after a colon something without
/// separators up to the end.
fn is_iqn(text: &str) -> bool {
    text.match_indices("iqn.").any(|(start, _)| {
        let rest = &text.as_bytes()[start + 4..];
        let date = rest.len() > 8
            && rest[..4].iter().all(u8::is_ascii_digit)
            && rest[4] == b'-'
            && rest[5..7].iter().all(u8::is_ascii_digit)
            && rest[7] == b'.';
        if !date {
            return false;
        }
        let name = rest[8..].iter().take_while(|b| b.is_ascii_alphanumeric() || **b == b'-' || **b == b'.').count();
        let tail = &rest[8 + name..];
        let allowed = |byte: &u8| !b",;*&$|".contains(byte) && !byte.is_ascii_whitespace();
        name > 0 && tail.len() > 1 && tail[0] == b':' && tail[1..].iter().all(allowed)
    })
}

fn validate_flocker(source: &Node<'_>, errs: &mut Errors) {
    let (name, uuid) = (source.str("datasetName"), source.str("datasetUUID"));
    if name.is_empty() && uuid.is_empty() {
        errs.required(source, "one of datasetName and datasetUUID is required");
    }
    if !name.is_empty() && !uuid.is_empty() {
        errs.invalid(source, "resource", "datasetName and datasetUUID can not be specified simultaneously");
    }
    if name.contains('/') {
        errs.invalid(&source.get("datasetName"), name, "must not contain '/'");
    }
}

fn validate_quobyte(source: &Node<'_>, errs: &mut Errors) {
    let registry = source.get("registry");
    if registry.as_str().is_empty() {
        errs.required(&registry, QUOBYTE_REGISTRY);
    } else if source.str("tenant").len() > QUOBYTE_TENANT_BYTES_MAX {
        errs.required(&source.get("tenant"), "must be a UUID and may not exceed a length of 64 characters");
    } else {
        for _ in registry.as_str().split(',').filter(|pair| !is_host_and_port(pair)) {
            errs.invalid(&registry, registry.as_str(), QUOBYTE_REGISTRY);
        }
    }
    require(source, &["volume"], errs);
}

fn is_host_and_port(pair: &str) -> bool {
    match pair.strip_prefix('[') {
        Some(rest) => rest
            .split_once("]:")
            .is_some_and(|(host, port)| !host.contains(['[', ']']) && !port.contains([':', '[', ']'])),
        None => pair.matches(':').count() == 1 && !pair.contains(['[', ']']),
    }
}

fn validate_fibre_channel(source: &Node<'_>, errs: &mut Errors) {
    let (targets, ids) = (source.get("targetWWNs"), source.get("wwids"));
    if targets.is_empty() && ids.is_empty() {
        errs.required(&targets, "must specify either targetWWNs or wwids, but not both");
    }
    if targets.is_empty() {
        return;
    }
    if !ids.is_empty() {
        errs.invalid_here(&targets, "targetWWNs and wwids can not be specified simultaneously");
    }
    let lun = source.get("lun");
    if lun.is_set() {
        validate_lun(&lun, errs);
    } else {
        errs.required(&lun, "lun is required if targetWWNs is specified");
    }
}

fn validate_flex(source: &Node<'_>, errs: &mut Errors) {
    require(source, &["driver"], errs);
    for (key, value) in source.entries("options") {
        let domain = format!(".{}", key.split_once('/').map_or(key, |(domain, _)| domain).to_lowercase());
        if domain.ends_with(".kubernetes.io") || domain.ends_with(".k8s.io") {
            errs.invalid(&value, key, "kubernetes.io and k8s.io namespaces are reserved");
        }
    }
}

fn validate_azure_disk(source: &Node<'_>, errs: &mut Errors) {
    const CACHING: [&str; 3] = ["None", "ReadOnly", "ReadWrite"];
    const DISKS: [&str; 3] = ["Dedicated", "Managed", "Shared"];
    require(source, &["diskName", "diskURI"], errs);
    let (caching, kind, uri) = (source.get("cachingMode"), source.get("kind"), source.get("diskURI"));
    if caching.is_set() && !CACHING.contains(&caching.as_str()) {
        errs.not_supported(&caching, caching.as_str(), &CACHING);
    }
    if kind.is_set() && !DISKS.contains(&kind.as_str()) {
        errs.not_supported(&kind, kind.as_str(), &DISKS);
    }
    let (start, form) = if kind.as_str() == "Managed" {
        (
            "/subscriptions/",
            "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}",
        )
    } else {
        ("https://", "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd")
    };
    if kind.is_set() && !uri.as_str().starts_with(start) {
        errs.not_supported(&uri, uri.as_str(), &[form]);
    }
}

fn validate_storage_os(source: &Node<'_>, errs: &mut Errors) {
    let (name, namespace) = (source.str("volumeName"), source.str("volumeNamespace"));
    if name.is_empty() {
        errs.required(&source.get("volumeName"), "");
    } else {
        errs.invalid_each(&source.get("volumeName"), name, name::dns1123_label(name));
    }
    if !namespace.is_empty() {
        errs.invalid_each(&source.get("volumeNamespace"), namespace, name::dns1123_label(namespace));
    }
    validate_secret_ref(source, errs);
}

fn validate_csi(source: &Node<'_>, errs: &mut Errors) {
    let (driver, at) = (source.str("driver"), source.get("driver"));
    if driver.is_empty() {
        errs.required(&at, "");
    } else {
        if driver.len() > DRIVER_BYTES_MAX {
            errs.too_long(&at, DRIVER_BYTES_MAX);
        }
        errs.invalid_each(&at, driver, name::dns1123_subdomain(&driver.to_lowercase()));
    }
    let secret = source.get("nodePublishSecretRef");
    if secret.is_set() {
        let name = secret.str("name");
        if name.is_empty() {
            errs.required(&secret.get("name"), "");
        } else {
            errs.invalid_each(&source.at_child("name"), name, name::dns1123_subdomain(name));
        }
    }
}
