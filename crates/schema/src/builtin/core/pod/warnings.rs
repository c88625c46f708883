//! What the author of a pod should know although it is allowed.

use std::collections::{BTreeMap, BTreeSet};

use setpoint_api::quote::quote;
use setpoint_api::{Path, ip};

use super::annotations::{APP_ARMOR_CONTAINER, SECCOMP_CONTAINER, SECCOMP_POD, app_armor_profile};
use super::containers;
use super::overlaps::overlap_warnings;
use crate::builtin::core::{node_label, persistentvolumeclaim};
use crate::node::Node;

const DEPRECATED_ANNOTATIONS: [(&str, &str); 3] = [
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        r#"non-functional in v1.16+; use the "priorityClassName" field instead"#,
    ),
    ("security.alpha.kubernetes.io/sysctls", r#"non-functional in v1.11+; use the "sysctls" field instead"#),
    ("security.alpha.kubernetes.io/unsafe-sysctls", r#"non-functional in v1.11+; use the "sysctls" field instead"#),
];
/// Kinds of volumes that are going or gone, and the names under which they are warned about.
const DEPRECATED_VOLUMES: [(&str, &str, &str); 9] = [
    ("photonPersistentDisk", "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("gitRepo", "gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    ("scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "storageOS", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
];
const USE_SECCOMP_FIELD: &str = r#"non-functional in v1.27+; use the "seccompProfile" field instead"#;
const USE_APP_ARMOR_FIELD: &str = r#"deprecated since v1.30; use the "appArmorProfile" field instead"#;
const NULL_SELECTOR: &str = "a null labelSelector results in matching no pod";
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// What annotations of AppArmor on a new pod deserve: the field has taken their place, and was set from them.
pub fn app_armor_warnings(pod: &Node<'_>) -> Vec<String> {
    let annotations = pod.get("metadata").get("annotations");
    let spec = pod.get("spec");
    if spec.get("os").str("name") == "windows" {
        return Vec::new();
    }
    let of_pod = spec.get("securityContext").get("appArmorProfile");
    let deserves = |container: &Node<'_>| {
        let key = format!("{APP_ARMOR_CONTAINER}{}", container.str("name"));
        let annotation = annotations.json().get(&key)?.as_str()?;
        let own = container.get("securityContext").get("appArmorProfile");
        let meant = app_armor_profile(annotation);
        let warn = match &meant {
            None => !own.is_set(),
            Some(meant) => own.value() == Some(meant) && of_pod.value() != Some(meant),
        };
        warn.then(|| format!("{}: {USE_APP_ARMOR_FIELD}", annotations.at_key(&key).path()))
    };
    containers::all(&spec).filter_map(|container| deserves(&container)).collect()
}

/// Warnings about the metadata and spec of a pod or a template.
pub fn warnings(object: &Node<'_>, is_template: bool) -> Vec<String> {
    let (spec, annotations) = (object.get("spec"), object.get("metadata").get("annotations"));
    let mut found = Warnings::default();
    node_warnings(&spec, &mut found);
    for (key, message) in DEPRECATED_ANNOTATIONS {
        if annotations.entry(key).is_set() {
            found.add(&annotations.entry(key), message);
        }
    }
    volume_warnings(&spec, &mut found);
    list_warnings(&spec, &mut found);
    if !spec.get("securityContext").has("seccompProfile") && annotations.entry(SECCOMP_POD).is_set() {
        found.add(&annotations.entry(SECCOMP_POD), USE_SECCOMP_FIELD);
    }
    for container in containers::all(&spec) {
        container_warnings(&container, &spec, &annotations, is_template, &mut found);
    }
    port_warnings(&spec, &mut found);
    let grace = spec.get("terminationGracePeriodSeconds");
    if grace.as_int().is_some_and(|seconds| seconds < 0) {
        found.add(&grace, "must be >= 0; negative values are invalid and will be treated as 1");
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let pods = spec.get("affinity").get(kind);
        let weighted = pods.items(PREFERRED).map(|term| term.get("podAffinityTerm"));
        for term in pods.items(REQUIRED).chain(weighted).filter(|term| !term.has("labelSelector")) {
            found.add(&term.get("labelSelector"), NULL_SELECTOR);
        }
    }
    let addresses =
        spec.get("dnsConfig").items("nameservers").chain(spec.items("hostAliases").map(|alias| alias.get("ip")));
    for address in addresses {
        found.0.extend(ip::warnings_for_ip(&Path::root(&address.path()), address.as_str()));
    }
    found.0
}

/// Warnings in the order in which they were found.
#[derive(Default)]
struct Warnings(Vec<String>);

impl Warnings {
    fn add(&mut self, at: &Node<'_>, message: impl AsRef<str>) {
        self.0.push(format!("{}: {}", at.path(), message.as_ref()));
    }

    /// Bytes come in whole numbers.
    fn add_fraction(&mut self, at: &Node<'_>) {
        if let Some(amount) = at.as_quantity().filter(|amount| amount.milli_value() % 1000 != 0) {
            self.add(
                at,
                format!("fractional byte value {} is invalid, must be an integer", quote(&amount.to_string())),
            );
        }
    }
}

fn node_warnings(spec: &Node<'_>, found: &mut Warnings) {
    for (key, value) in spec.entries("nodeSelector") {
        node_label::deprecated(key).into_iter().for_each(|message| found.add(&value, message));
    }
    let affinity = spec.get("affinity").get("nodeAffinity");
    let terms = affinity.get(REQUIRED).items("nodeSelectorTerms");
    for key in terms.flat_map(|term| term.items("matchExpressions")).map(|expression| expression.get("key")) {
        if let Some(message) = node_label::deprecated(key.as_str()) {
            found.add(&key, format!("{} is {message}", key.as_str()));
        }
    }
    for term in affinity.items(PREFERRED) {
        found.0.extend(node_label::term_warnings(&term.get("preference")));
    }
    for constraint in spec.items("topologySpreadConstraints") {
        let key = constraint.get("topologyKey");
        if let Some(message) = node_label::deprecated(key.as_str()) {
            found.add(&key, format!("{} is {message}", key.as_str()));
        }
        if !constraint.has("labelSelector") {
            found.add(&constraint.get("labelSelector"), NULL_SELECTOR);
        }
    }
}

fn volume_warnings(spec: &Node<'_>, found: &mut Warnings) {
    for volume in spec.items("volumes") {
        for (kind, shown, message) in DEPRECATED_VOLUMES {
            if kind == "cephfs" {
                // Upstream's order: claims come before the last two kinds.
                let template = volume.get("ephemeral").get("volumeClaimTemplate");
                found.0.extend(persistentvolumeclaim::spec_warnings(&template.get("spec")));
            }
            if volume.has(kind) {
                found.add(&volume.at_child(shown), message);
            }
        }
    }
    found.0.extend(overlap_warnings(spec));
}

fn list_warnings(spec: &Node<'_>, found: &mut Warnings) {
    for (list, field) in [("hostAliases", "ip"), ("imagePullSecrets", "name")] {
        let mut seen = BTreeSet::new();
        for item in spec.items(list) {
            if !seen.insert(item.str(field)) {
                found.add(&item.get(field), format!("duplicate {field} {}", quote(item.str(field))));
            }
        }
    }
    for secret in spec.items("imagePullSecrets").filter(|secret| secret.str("name").is_empty()) {
        found.add(&secret.get("name"), "invalid empty name \"\"");
    }
    for resource in ["memory", "ephemeral-storage"] {
        found.add_fraction(&spec.get("overhead").entry(resource));
    }
}

fn container_warnings(
    container: &Node<'_>,
    spec: &Node<'_>,
    annotations: &Node<'_>,
    is_template: bool,
    found: &mut Warnings,
) {
    let (name, security) = (container.str("name"), container.get("securityContext"));
    let seccomp = format!("{SECCOMP_CONTAINER}{name}");
    if !security.has("seccompProfile") && annotations.json().get(&seccomp).is_some() {
        found.add(&annotations.at_key(&seccomp), USE_SECCOMP_FIELD);
    }
    let app_armor = format!("{APP_ARMOR_CONTAINER}{name}");
    if let Some(annotation) = annotations.json().get(&app_armor).and_then(|value| value.as_str())
        && is_template
        && !security.has("appArmorProfile")
    {
        let of_pod = spec.get("securityContext").get("appArmorProfile");
        if !of_pod.is_set() || of_pod.value() != app_armor_profile(annotation).as_ref() {
            found.add(&annotations.at_key(&app_armor), USE_APP_ARMOR_FIELD);
        }
    }
    for resource in ["memory", "ephemeral-storage"] {
        for side in ["limits", "requests"] {
            found.add_fraction(&container.get("resources").get(side).entry(resource));
        }
    }
    let mut seen = BTreeSet::new();
    for variable in container.items("env") {
        let (name, value) = (variable.str("name"), variable.str("value"));
        let reference = format!("$({name})");
        let hides = variable.has("valueFrom") || value == reference || !value.contains(&reference);
        if !seen.insert(name) && hides {
            let message =
                format!("hides previous definition of {}, which may be dropped when using apply", quote(name));
            found.add(&variable, message);
        }
    }
}

fn port_warnings(spec: &Node<'_>, found: &mut Warnings) {
    let ports = || containers::all(spec).flat_map(|container| container.items("ports"));
    let mut known: BTreeMap<(i64, &str), Vec<Node<'_>>> = BTreeMap::new();
    for port in ports() {
        let (address, number) = (port.str("hostIP"), port.int("hostPort").unwrap_or(0));
        if !address.is_empty() && number == 0 {
            let message = format!(
                "hostIP set without hostPort: {{Name:{} HostPort:0 ContainerPort:{} Protocol:{} HostIP:{address}}}",
                port.str("name"),
                port.int("containerPort").unwrap_or(0),
                port.str("protocol"),
            );
            found.add(&port, message);
        }
        let others = known.entry((port.int("containerPort").unwrap_or(0), port.str("protocol"))).or_default();
        for other in others.iter() {
            let (other_address, other_number) = (other.str("hostIP"), other.int("hostPort").unwrap_or(0));
            let kind = if (address, number) == (other_address, other_number) {
                "duplicate"
            } else if number == 0 || other_number == 0 {
                "overlapping"
            } else if number == other_number && address.is_empty() != other_address.is_empty() {
                "dangerously ambiguous"
            } else {
                continue;
            };
            found.add(&port, format!("{kind} port definition with {}", other.path()));
        }
        others.push(port);
    }
    let mut names: BTreeMap<&str, String> = BTreeMap::new();
    for port in ports().filter(|port| !port.str("name").is_empty()) {
        let name = port.str("name");
        match names.get(name) {
            Some(other) => found.add(
                &port,
                format!(
                    "duplicate port name {} with {other}, services and probes that select ports by name will use {other}",
                    quote(name)
                ),
            ),
            None => drop(names.insert(name, port.path())),
        }
    }
}
