//! The rules for a `PodSpec`, in a pod and in a template.

use std::collections::BTreeSet;

use setpoint_api::{Path, ip, name};

use super::containers::{self, Surroundings, validate_containers};
use super::options::Options;
use super::resources::{Level, validate_overhead, validate_pod_sums, validate_resources};
use super::scheduling::{validate_affinity, validate_gates, validate_spread, validate_tolerations};
use super::security::validate_pod_security;
use super::volumes::validate_volumes;
use super::windows::{validate_host_processes, validate_os};
use crate::errors::Errors;
use crate::metadata;
use crate::node::Node;

const NAMESERVERS_MAX: usize = 3;
const SEARCHES_MAX: usize = 32;
const SEARCH_BYTES_MAX: usize = 2048;
/// Longest host name of Linux.
const HOSTNAME_BYTES_MAX: usize = 64;
const DNS_POLICIES: [&str; 4] = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
const RESTART_POLICIES: [&str; 3] = ["Always", "OnFailure", "Never"];
const OWN_USERS: &str = "when `hostUsers` is false";

/// The rules for a spec. A template has no metadata of a pod.
pub fn validate_spec(spec: &Node<'_>, pod: Option<&Node<'_>>, options: &Options, errs: &mut Errors) {
    if !spec.has("terminationGracePeriodSeconds") {
        errs.required(&spec.get("terminationGracePeriodSeconds"), "");
    }
    let volumes = validate_volumes(spec, pod.map_or("", |metadata| metadata.str("name")), options, errs);
    let claims: BTreeSet<&str> =
        spec.items("resourceClaims").map(|c| c.str("name")).filter(|name| !name.is_empty()).collect();
    validate_claims(spec, pod, errs);
    let surroundings = Surroundings { spec: spec.clone(), volumes, claims, options: *options };
    validate_containers(&surroundings, errs);
    validate_pod_resources(&surroundings, errs);
    validate_host_network_ports(spec, options, errs);
    validate_choice(&spec.get("restartPolicy"), &RESTART_POLICIES, errs);
    validate_choice(&spec.get("dnsPolicy"), &DNS_POLICIES, errs);
    metadata::validate_labels(&spec.get("nodeSelector"), errs);
    validate_pod_security(spec, options, errs);
    validate_affinity(spec, options, errs);
    validate_dns(spec, errs);
    validate_gates(spec, errs);
    validate_spread(spec, options, errs);
    validate_host_processes(spec, errs);
    validate_own_users(spec, options, errs);
    validate_hostname_override(spec, errs);
    validate_names(spec, options, errs);
    validate_os(spec, errs);
    validate_scheduling_group(spec, errs);
    validate_env_files(spec, errs);
}

fn validate_claims(spec: &Node<'_>, pod: Option<&Node<'_>>, errs: &mut Errors) {
    let mirrored = pod.is_some_and(|metadata| metadata.get("annotations").entry(super::annotations::MIRROR).is_set());
    let mut names = BTreeSet::new();
    for claim in spec.items("resourceClaims") {
        if mirrored {
            errs.forbidden(&claim.at("[]"), "static pods do not support resource claims");
            continue;
        }
        let name = claim.str("name");
        if name.is_empty() {
            errs.required(&claim.get("name"), "");
        } else if names.insert(name) {
            errs.invalid_each(&claim.get("name"), name, name::dns1123_label(name));
        } else {
            errs.duplicate(&claim.get("name"), name);
        }
        let sources = [claim.get("resourceClaimName"), claim.get("resourceClaimTemplateName")];
        match sources.iter().filter(|source| source.is_set()).count() {
            0 => errs.invalid_here(&claim, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"),
            1 => {}
            _ => {
                let detail = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified";
                errs.invalid_here(&claim, detail);
            }
        }
        for source in sources.iter().filter(|source| source.is_set()) {
            errs.invalid_each(source, source.as_str(), name::dns1123_subdomain(source.as_str()));
        }
    }
}

fn validate_pod_resources(pod: &Surroundings<'_>, errs: &mut Errors) {
    let resources = pod.spec.get("resources");
    if !resources.is_set() {
        return;
    }
    if pod.spec.get("os").str("name") == "windows" {
        errs.forbidden(&resources, "may not be set for a windows pod");
        return;
    }
    if resources.has("claims") {
        errs.forbidden(&resources.get("claims"), "claims may not be set for Resources at pod-level");
    }
    validate_resources(&resources, Level::Pod, &pod.claims, &pod.options, errs);
    validate_pod_sums(&pod.spec, errs);
}

fn validate_host_network_ports(spec: &Node<'_>, options: &Options, errs: &mut Errors) {
    if !spec.bool("hostNetwork") {
        return;
    }
    for port in spec.items("containers").flat_map(|container| container.items("ports")) {
        let (host, own) = (port.int("hostPort").unwrap_or(0), port.int("containerPort").unwrap_or(0));
        if (options.is_pod || host != 0) && host != own {
            let detail = "must match `containerPort` when `hostNetwork` is true";
            errs.invalid(&port.get("hostPort"), host, detail);
        }
    }
}

/// One of these words.
fn validate_choice(at: &Node<'_>, allowed: &[&str], errs: &mut Errors) {
    match at.as_str() {
        "" => errs.required(at, ""),
        other if !allowed.contains(&other) => errs.not_supported(at, other, allowed),
        _ => {}
    }
}

fn validate_dns(spec: &Node<'_>, errs: &mut Errors) {
    let config = spec.get("dnsConfig");
    let servers = config.get("nameservers");
    if spec.str("dnsPolicy") == "None" {
        if !config.is_set() {
            errs.required(&config, "must provide `dnsConfig` when `dnsPolicy` is None");
            return;
        }
        if servers.is_empty() {
            errs.required(&servers, "must provide at least one DNS nameserver when `dnsPolicy` is None");
            return;
        }
    }
    if config.count("nameservers") > NAMESERVERS_MAX {
        errs.invalid_here(&servers, format!("must not have more than {NAMESERVERS_MAX} nameservers"));
    }
    for server in servers.into_items() {
        errs.extend(ip::validate_legacy_ip(&Path::root(&server.path()), server.as_str(), &[]));
    }
    let searches = config.get("searches");
    let words: Vec<&str> = config.strings("searches").collect();
    if words.len() > SEARCHES_MAX {
        errs.invalid_here(&searches, format!("must not have more than {SEARCHES_MAX} search paths"));
    }
    if words.join(" ").len() > SEARCH_BYTES_MAX {
        let detail =
            format!("must not have more than {SEARCH_BYTES_MAX} characters (including spaces) in the search list");
        errs.invalid_here(&searches, detail);
    }
    for search in searches.into_items().filter(|search| search.as_str() != ".") {
        let domain = search.as_str().strip_suffix('.').unwrap_or(search.as_str());
        errs.invalid_each(&search, domain, name::dns1123_subdomain_with_underscore(domain));
    }
    for option in config.items("options").filter(|option| option.str("name").is_empty()) {
        errs.required(&option, "must not be empty");
    }
}

fn validate_own_users(spec: &Node<'_>, options: &Options, errs: &mut Errors) {
    if spec.maybe_bool("hostUsers") != Some(false) {
        return;
    }
    if spec.bool("hostNetwork") && !options.host_network_with_own_users {
        errs.forbidden(&spec.get("hostNetwork"), OWN_USERS);
    }
    for (field, shown) in [("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
        if spec.bool(field) {
            errs.forbidden(&spec.at_child(shown), OWN_USERS);
        }
    }
    if !options.devices_with_own_users {
        for container in containers::all(spec).filter(|container| container.count("volumeDevices") > 0) {
            errs.forbidden(&container.get("volumeDevices"), OWN_USERS);
        }
    }
}

fn validate_hostname_override(spec: &Node<'_>, errs: &mut Errors) {
    let at = spec.get("hostnameOverride");
    if !at.is_set() {
        return;
    }
    if spec.bool("setHostnameAsFQDN") {
        errs.forbidden(&at, "may not be specified when setHostnameAsFQDN is true");
    }
    if spec.bool("hostNetwork") {
        errs.forbidden(&at, "may not be specified when hostNetwork is true");
    }
    if at.as_str().len() > HOSTNAME_BYTES_MAX {
        errs.too_long(&at, HOSTNAME_BYTES_MAX);
    }
    errs.invalid_each(&at, at.as_str(), name::dns1123_subdomain(at.as_str()));
}

fn validate_names(spec: &Node<'_>, options: &Options, errs: &mut Errors) {
    let subdomain = |field, errs: &mut Errors| {
        let at = spec.get(field);
        errs.invalid_each(&at, at.as_str(), name::dns1123_subdomain(at.as_str()));
    };
    for field in ["serviceAccountName", "nodeName"] {
        if !spec.str(field).is_empty() {
            subdomain(field, errs);
        }
    }
    if let Some(seconds) = spec.int("activeDeadlineSeconds") {
        for complaint in name::in_range(seconds, 1, i32::MAX.into()) {
            errs.invalid(&spec.get("activeDeadlineSeconds"), seconds, complaint);
        }
    }
    for field in ["hostname", "subdomain"] {
        let at = spec.get(field);
        if !at.as_str().is_empty() {
            errs.invalid_each(&at, at.as_str(), name::dns1123_label(at.as_str()));
        }
    }
    validate_tolerations(&spec.get("tolerations"), options, errs);
    for alias in spec.items("hostAliases") {
        errs.extend(ip::validate_legacy_ip(&Path::root(&alias.get("ip").path()), alias.str("ip"), &[]));
        for hostname in alias.items("hostnames") {
            errs.invalid_each(&hostname, hostname.as_str(), name::dns1123_subdomain(hostname.as_str()));
        }
    }
    if !spec.str("priorityClassName").is_empty() {
        subdomain("priorityClassName", errs);
    }
    if spec.has("runtimeClassName") {
        subdomain("runtimeClassName", errs);
    }
    if spec.has("preemptionPolicy") {
        validate_choice(&spec.get("preemptionPolicy"), &["PreemptLowerPriority", "Never"], errs);
    }
    validate_overhead(&spec.get("overhead"), options, errs);
}

fn validate_scheduling_group(spec: &Node<'_>, errs: &mut Errors) {
    let group = spec.get("schedulingGroup");
    if !group.is_set() {
        return;
    }
    let at = group.get("podGroupName");
    if at.is_set() {
        errs.invalid_each(&at, at.as_str(), name::dns1123_subdomain(at.as_str()));
    } else {
        errs.invalid_here(&at, "must specify one of: `podGroupName`");
    }
}

/// That files with variables are in volumes that start empty.
fn validate_env_files(spec: &Node<'_>, errs: &mut Errors) {
    for variable in containers::all(spec).flat_map(|container| container.items("env")) {
        let file = variable.get("valueFrom").get("fileKeyRef");
        if !file.is_set() {
            continue;
        }
        let (at, name) = (file.get("volumeName"), file.str("volumeName"));
        match spec.items("volumes").filter(|volume| volume.str("name") == name).last() {
            None => errs.not_found(&at, name),
            Some(volume) if !volume.has("emptyDir") => {
                errs.invalid(&at, name, "referenced volume must be of type emptyDir");
            }
            Some(_) => {}
        }
    }
}
