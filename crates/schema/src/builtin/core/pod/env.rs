//! Environment variables: their names, and what their values come from.

use setpoint_api::{Quantity, name};

use super::volumes::validate_no_backsteps;
use crate::errors::Errors;
use crate::node::Node;

/// What a variable can tell of its pod.
const ENV_FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
/// What a file can tell of its pod.
pub const FILE_FIELDS: [&str; 5] =
    ["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];
/// Fields of a pod that have a name in the first place.
const KNOWN_FIELDS: [&str; 14] = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.serviceAccountName",
    "spec.schedulerName",
    "status.phase",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
const CONTAINER_RESOURCES: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];
const BYTE_DIVISORS: [&str; 13] = ["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];

/// The rules for variables.
pub fn validate_env(list: &Node<'_>, errs: &mut Errors) {
    for variable in list.clone().into_items() {
        let name = variable.str("name");
        if name.is_empty() {
            errs.required(&variable.get("name"), "");
        } else {
            errs.invalid_each(&variable.get("name"), name, name::relaxed_env_var_name(name));
        }
        if variable.has("valueFrom") {
            validate_value_from(&variable, errs);
        }
    }
}

/// The rules for taking all variables of a ConfigMap or Secret.
pub fn validate_env_from(list: &Node<'_>, errs: &mut Errors) {
    for source in list.clone().into_items() {
        let prefix = source.str("prefix");
        if !prefix.is_empty() {
            errs.invalid_each(&source.get("prefix"), prefix, name::relaxed_env_var_name(prefix));
        }
        let mut sources = 0;
        for field in ["configMapRef", "secretRef"] {
            let reference = source.get(field);
            if !reference.is_set() {
                continue;
            }
            sources += 1;
            let name = reference.str("name");
            if name.is_empty() {
                errs.required(&reference.get("name"), "");
            } else {
                let complaints = (crate::name_rule::NameRule::SUBDOMAIN.prefix)(name);
                errs.invalid_each(&reference.get("name"), name, complaints);
            }
        }
        match sources {
            0 => errs.invalid(list, "", "must specify one of: `configMapRef` or `secretRef`"),
            1 => {}
            _ => errs.invalid(list, "", "may not have more than one field specified at a time"),
        }
    }
}

/// The rules for a field of the pod: it exists, and is one of those that can be told here.
pub fn validate_field_ref(reference: &Node<'_>, allowed: &[&str], errs: &mut Errors) {
    let (version, path) = (reference.str("apiVersion"), reference.str("fieldPath"));
    for field in ["apiVersion", "fieldPath"] {
        if reference.str(field).is_empty() {
            errs.required(&reference.get(field), "");
            return;
        }
    }
    let at = reference.get("fieldPath");
    if version != "v1" {
        errs.invalid(&at, path, format!("error converting fieldPath: unsupported pod version: {version}"));
        return;
    }
    match split_subscript(path) {
        Some(("metadata.annotations", key)) => {
            let key = key.to_lowercase();
            errs.invalid_each(reference, &key, name::qualified_name(&key));
        }
        Some(("metadata.labels", key)) => errs.invalid_each(reference, key, name::qualified_name(key)),
        Some(_) => {
            errs.invalid(
                &at,
                path,
                format!("error converting fieldPath: field label does not support subscript: {path}"),
            );
        }
        None if path != "spec.host" && !KNOWN_FIELDS.contains(&path) => {
            errs.invalid(&at, path, format!("error converting fieldPath: field label not supported: {path}"));
        }
        None => {
            let path = if path == "spec.host" { "spec.nodeName" } else { path };
            if !allowed.contains(&path) {
                errs.not_supported(&at, path, allowed);
            }
        }
    }
}

/// The rules for a resource of a container. A file must say which container.
pub fn validate_resource_ref(reference: &Node<'_>, needs_container: bool, errs: &mut Errors) {
    let resource = reference.str("resource");
    let huge = ["requests.hugepages-", "limits.hugepages-"].iter().any(|prefix| resource.starts_with(prefix));
    if needs_container && reference.str("containerName").is_empty() {
        errs.required(&reference.get("containerName"), "");
    } else if resource.is_empty() {
        errs.required(&reference.get("resource"), "");
    } else if !CONTAINER_RESOURCES.contains(&resource) && !huge {
        errs.not_supported(&reference.get("resource"), resource, &CONTAINER_RESOURCES);
    }
    let divisor = reference.quantity("divisor").unwrap_or(Quantity::ZERO);
    if divisor.is_zero() {
        return;
    }
    let divisor = divisor.to_string();
    let bytes = BYTE_DIVISORS.contains(&divisor.as_str());
    let kind = match resource {
        "limits.cpu" | "requests.cpu" if !["1m", "1"].contains(&divisor.as_str()) => {
            errs.invalid(
                &reference.get("divisor"),
                resource,
                "only divisor's values 1m and 1 are supported with the cpu resource",
            );
            return;
        }
        "limits.memory" | "requests.memory" if !bytes => "memory",
        "limits.ephemeral-storage" | "requests.ephemeral-storage" if !bytes => "local ephemeral storage",
        _ if huge && !bytes => "hugepages",
        _ => return,
    };
    let detail = format!("only divisor's values {} are supported with the {kind} resource", BYTE_DIVISORS.join(", "));
    errs.invalid(&reference.get("divisor"), resource, detail);
}

fn validate_value_from(variable: &Node<'_>, errs: &mut Errors) {
    let from = variable.get("valueFrom");
    let mut sources = 0;
    let mut given = |field| {
        let source = from.get(field);
        sources += usize::from(source.is_set());
        Some(source).filter(Node::is_set)
    };
    let (field, resource) = (given("fieldRef"), given("resourceFieldRef"));
    let (config, secret, file) = (given("configMapKeyRef"), given("secretKeyRef"), given("fileKeyRef"));
    field.iter().for_each(|source| validate_field_ref(source, &ENV_FIELDS, errs));
    resource.iter().for_each(|source| validate_resource_ref(source, false, errs));
    config.iter().chain(&secret).for_each(|source| validate_key_ref(source, errs));
    file.iter().for_each(|source| validate_file_ref(source, errs));
    let detail = match sources {
        0 => "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
        _ if !variable.str("value").is_empty() => "may not be specified when `value` is not empty",
        1 => return,
        _ => "may not have more than one field specified at a time",
    };
    errs.invalid(&from, "", detail);
}

fn validate_key_ref(source: &Node<'_>, errs: &mut Errors) {
    let (name, key) = (source.str("name"), source.str("key"));
    errs.invalid_each(&source.get("name"), name, name::dns1123_subdomain(name));
    if key.is_empty() {
        errs.required(&source.get("key"), "");
    } else {
        errs.invalid_each(&source.get("key"), key, name::config_map_key(key));
    }
}

fn validate_file_ref(source: &Node<'_>, errs: &mut Errors) {
    let (key, volume, path) = (source.str("key"), source.str("volumeName"), source.str("path"));
    if key.is_empty() {
        errs.required(&source.get("key"), "");
    } else {
        errs.invalid_each(&source.get("key"), key, name::relaxed_env_var_name(key));
    }
    if volume.is_empty() {
        errs.required(&source.get("volumeName"), "");
    } else {
        errs.invalid_each(&source.get("volumeName"), volume, name::dns1123_label(volume));
    }
    if path.is_empty() {
        errs.required(&source.get("path"), "");
    } else {
        validate_no_backsteps(&source.get("path"), path, errs);
    }
}

/// `metadata.labels['a']` is a path and a key.
fn split_subscript(path: &str) -> Option<(&str, &str)> {
    let (path, key) = path.strip_suffix("']")?.split_once("['")?;
    (!path.is_empty()).then_some((path, key))
}
