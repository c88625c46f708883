//! The rules for a service as a whole.

use setpoint_api::{Path, ip, name};

use super::{HEADLESS, cluster_ips, ports};
use crate::builtin::core::endpoints::validate_address;
use crate::errors::Errors;
use crate::metadata;
use crate::node::Node;

/// Longest time that a client stays with one pod.
const AFFINITY_SECONDS_MAX: i64 = 86_400;

const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const AFFINITIES: [&str; 2] = ["ClientIP", "None"];
const TRAFFIC_POLICIES: [&str; 2] = ["Cluster", "Local"];
const DISTRIBUTIONS: [&str; 3] = ["PreferClose", "PreferSameZone", "PreferSameNode"];
const IP_MODES: [&str; 2] = ["Proxy", "VIP"];

const TOPOLOGY_HINTS: &str = "service.kubernetes.io/topology-aware-hints";
const TOPOLOGY_MODE: &str = "service.kubernetes.io/topology-mode";
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

const BALANCER_ONLY: &str = "may only be used when `type` is 'LoadBalancer'";

/// All rules but those of metadata. What `old` has stays valid where rules became stricter.
pub(super) fn validate(object: &Node<'_>, old: Option<&Node<'_>>, errs: &mut Errors) {
    let spec = object.get("spec");
    let old_spec = old.map(|old| old.get("spec"));
    validate_topology(object, errs);
    validate_type_needs(&spec, errs);
    ports::validate(&spec, errs);
    metadata::validate_labels(&spec.get("selector"), errs);
    validate_affinity(&spec, errs);
    cluster_ips::validate(&spec, old_spec.as_ref(), errs);
    validate_external_ips(&spec, old_spec.as_ref(), errs);
    if !TYPES.contains(&spec.str("type")) {
        errs.not_supported(&spec.get("type"), spec.str("type"), &TYPES);
    }
    if spec.str("type") == "ClusterIP" {
        for port in spec.items("ports").filter(|port| port.int("nodePort").unwrap_or(0) != 0) {
            errs.forbidden(&port.get("nodePort"), "may not be used when `type` is 'ClusterIP'");
        }
    }
    ports::validate_distinct(&spec, errs);
    validate_source_ranges(object, old, errs);
    validate_balancer_fields(&spec, errs);
    validate_traffic(&spec, errs);
}

/// What may not change, addresses and families apart.
pub(super) fn validate_change(new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
    let balanced = |spec: &Node<'_>| spec.str("type") == "LoadBalancer";
    let class = new.get("loadBalancerClass");
    if balanced(new) && balanced(old) && class.json() != old.get("loadBalancerClass").json() {
        errs.invalid_here(&class, "may not change once set");
    }
    validate_class(new, errs);
    let port = |spec: &Node<'_>| spec.int("healthCheckNodePort").unwrap_or(0);
    if needs_health_check(new) && needs_health_check(old) && port(new) != port(old) {
        errs.forbidden(&new.get("healthCheckNodePort"), "field is immutable");
    }
}

/// The rules for a write to `/status`.
pub(super) fn validate_status(new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
    let ingress = new.get("status").get("loadBalancer").get("ingress");
    if new.get("spec").str("type") != "LoadBalancer" && !ingress.is_empty() {
        return errs.forbidden(&ingress, "may only be used when `spec.type` is 'LoadBalancer'");
    }
    let kept: Vec<&str> = old
        .get("status")
        .get("loadBalancer")
        .items("ingress")
        .map(|item| item.str("ip"))
        .filter(|ip| !ip.is_empty())
        .collect();
    for item in ingress.into_items() {
        let (address, mode, host) = (item.get("ip"), item.get("ipMode"), item.get("hostname"));
        if !address.is_empty() {
            errs.extend(ip::validate_legacy_ip(&Path::root(&address.path()), address.as_str(), &kept));
        }
        match (mode.is_set(), address.is_empty()) {
            (false, false) => errs.required(&mode, "must be specified when `ip` is set"),
            (true, true) => errs.forbidden(&mode, "may not be specified when `ip` is not set"),
            (true, false) if !IP_MODES.contains(&mode.as_str()) => errs.not_supported(&mode, mode.as_str(), &IP_MODES),
            _ => {}
        }
        if !host.is_empty() {
            errs.invalid_each(&host, host.as_str(), name::dns1123_subdomain(host.as_str()));
            if ip::parse_sloppy(host.as_str()).is_some() {
                errs.invalid_here(&host, "must be a DNS name, not an IP address");
            }
        }
    }
}

/// What is allowed and yet not meant.
pub(super) fn warnings(object: &Node<'_>) -> Vec<String> {
    let spec = object.get("spec");
    let (kind, first) = (spec.str("type"), spec.str("clusterIP"));
    let headless = kind == "ClusterIP" && first == HEADLESS;
    let outside = spec.count("externalIPs") > 0;
    let addresses = |field| {
        spec.items(field)
            .flat_map(|item| ip::warnings_for_ip(&Path::root(&item.path()), item.as_str()))
            .collect::<Vec<_>>()
    };
    let mut found = Vec::new();
    if object.get("metadata").get("annotations").has(TOPOLOGY_HINTS) {
        found.push(format!("annotation {TOPOLOGY_HINTS} is deprecated, please use {TOPOLOGY_MODE} instead"));
    }
    if !first.is_empty() && first != HEADLESS {
        found.extend(addresses("clusterIPs"));
    }
    for (field, set) in [
        ("loadBalancerIP", !spec.str("loadBalancerIP").is_empty()),
        ("externalIPs", outside),
        ("SessionAffinity", spec.str("sessionAffinity") != "None"),
    ] {
        if headless && set {
            found.push(format!("spec.{field} is ignored for headless services"));
        }
    }
    found.extend(addresses("externalIPs"));
    if outside && !headless && kind != "ExternalName" {
        found.push("spec.externalIPs is deprecated and may no longer be implemented in some clusters".to_owned());
    }
    found.extend(ip::warnings_for_ip(&Path::root("spec.loadBalancerIP"), spec.str("loadBalancerIP")));
    for range in spec.items("loadBalancerSourceRanges") {
        found.extend(ip::warnings_for_cidr(&Path::root(&range.path()), range.as_str()));
    }
    if kind == "ExternalName" && outside {
        found.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"".to_owned());
    }
    if kind != "ExternalName" && !spec.str("externalName").is_empty() {
        found.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".to_owned());
    }
    if spec.str("trafficDistribution") == "PreferClose" {
        found.push("spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"".to_owned());
    }
    found
}

fn needs_health_check(spec: &Node<'_>) -> bool {
    spec.str("type") == "LoadBalancer" && spec.str("externalTrafficPolicy") == "Local"
}

fn validate_topology(object: &Node<'_>, errs: &mut Errors) {
    let annotations = object.get("metadata").get("annotations");
    let (mode, hints) = (annotations.entry(TOPOLOGY_MODE), annotations.entry(TOPOLOGY_HINTS));
    if mode.is_set() && hints.is_set() && mode.as_str() != hints.as_str() {
        errs.invalid_here(&mode, format!("must match annotations[{TOPOLOGY_HINTS}] when both are specified"));
    }
}

fn validate_type_needs(spec: &Node<'_>, errs: &mut Errors) {
    let (kind, headless) = (spec.str("type"), cluster_ips::is_headless(spec));
    if spec.count("ports") == 0 && !headless && kind != "ExternalName" {
        errs.required(&spec.get("ports"), "");
    }
    if headless && matches!(kind, "LoadBalancer" | "NodePort") {
        let detail = format!("may not be set to 'None' for {kind} services");
        errs.invalid(&spec.get("clusterIPs").at_index(0), HEADLESS, detail);
    }
    if kind != "ExternalName" {
        return;
    }
    for field in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        let at = spec.get(field);
        if at.is_set() && at.json().as_array().is_none_or(|list| !list.is_empty()) {
            errs.forbidden(&at, "may not be set for ExternalName services");
        }
    }
    let at = spec.get("externalName");
    match at.as_str().strip_suffix('.').unwrap_or(at.as_str()) {
        "" => errs.required(&at, ""),
        host => errs.invalid_each(&at, host, name::dns1123_subdomain(host)),
    }
}

fn validate_affinity(spec: &Node<'_>, errs: &mut Errors) {
    let affinity = spec.get("sessionAffinity");
    let config = spec.get("sessionAffinityConfig");
    match affinity.as_str() {
        "" => errs.required(&affinity, ""),
        kind if !AFFINITIES.contains(&kind) => errs.not_supported(&affinity, kind, &AFFINITIES),
        _ => {}
    }
    if affinity.as_str() == "None" && config.is_set() {
        errs.forbidden(&config, "must not be set when session affinity is None");
    }
    if affinity.as_str() != "ClientIP" {
        return;
    }
    let client = config.get("clientIP");
    let timeout = client.get("timeoutSeconds");
    if let Some(absent) = [&config, &client, &timeout].into_iter().find(|at| !at.is_set()) {
        return errs.required(absent, "when session affinity type is ClientIP");
    }
    if timeout.as_int().is_some_and(|seconds| !(1..=AFFINITY_SECONDS_MAX).contains(&seconds)) {
        errs.invalid_here(&timeout, format!("must be greater than 0 and less than {AFFINITY_SECONDS_MAX}"));
    }
}

fn validate_external_ips(spec: &Node<'_>, old: Option<&Node<'_>>, errs: &mut Errors) {
    let kept: Vec<&str> = old.into_iter().flat_map(|old| old.strings("externalIPs")).collect();
    for address in spec.items("externalIPs") {
        let wrong = ip::validate_legacy_ip(&Path::root(&address.path()), address.as_str(), &kept);
        if wrong.is_empty() {
            validate_address(&address, errs);
        }
        errs.extend(wrong);
    }
}

/// Ranges may be padded with blanks: they were once parts of an annotation, which still counts where there are none.
fn validate_source_ranges(object: &Node<'_>, old: Option<&Node<'_>>, errs: &mut Errors) {
    let spec = object.get("spec");
    let balanced = spec.str("type") == "LoadBalancer";
    let ranges = spec.get("loadBalancerSourceRanges");
    if !ranges.is_empty() {
        let at = ranges.at("spec.LoadBalancerSourceRanges");
        if !balanced {
            errs.forbidden(&at, BALANCER_ONLY);
        }
        let kept: Vec<&str> = old
            .into_iter()
            .flat_map(|old| old.get("spec").strings("loadBalancerSourceRanges"))
            .map(str::trim)
            .collect();
        for range in at.into_items() {
            errs.extend(ip::validate_legacy_cidr(&Path::root(&range.path()), range.as_str().trim(), &kept));
        }
        return;
    }
    let annotation = |object: &Node<'_>| object.get("metadata").get("annotations").json().get(SOURCE_RANGES).cloned();
    let Some(text) = annotation(object) else { return };
    let at = object.get("metadata").get("annotations").entry(SOURCE_RANGES);
    if !balanced {
        errs.forbidden(&at, BALANCER_ONLY);
    }
    if old.and_then(annotation) != Some(text) {
        for range in at.as_str().split(',').map(str::trim).filter(|_| !at.as_str().trim().is_empty()) {
            errs.extend(ip::validate_legacy_cidr(&Path::root(&at.path()), range, &[]));
        }
    }
}

fn validate_balancer_fields(spec: &Node<'_>, errs: &mut Errors) {
    let allocate = spec.get("allocateLoadBalancerNodePorts");
    let balanced = spec.str("type") == "LoadBalancer";
    if allocate.is_set() && !balanced {
        errs.forbidden(&allocate, BALANCER_ONLY);
    }
    if balanced && !allocate.is_set() {
        errs.required(&allocate.at("allocateLoadBalancerNodePorts"), "");
    }
    validate_class(spec, errs);
}

fn validate_class(spec: &Node<'_>, errs: &mut Errors) {
    let class = spec.get("loadBalancerClass");
    if !class.is_set() {
        return;
    }
    match spec.str("type") {
        "LoadBalancer" => errs.invalid_each(&class, class.as_str(), name::qualified_name(class.as_str())),
        _ => errs.forbidden(&class, BALANCER_ONLY),
    }
}

fn validate_traffic(spec: &Node<'_>, errs: &mut Errors) {
    let external = spec.get("externalTrafficPolicy");
    let kind = spec.str("type");
    let accessible =
        matches!(kind, "LoadBalancer" | "NodePort") || (kind == "ClusterIP" && spec.count("externalIPs") > 0);
    match (accessible, external.as_str()) {
        (false, "") => {}
        (false, _) => errs.invalid_here(&external, "may only be set for externally-accessible services"),
        (true, "") => errs.required(&external, ""),
        (true, policy) if !TRAFFIC_POLICIES.contains(&policy) => {
            errs.not_supported(&external, policy, &TRAFFIC_POLICIES)
        }
        (true, _) => {}
    }
    validate_health_check_port(spec, errs);
    let internal = spec.get("internalTrafficPolicy");
    if !internal.is_set() && matches!(kind, "NodePort" | "LoadBalancer" | "ClusterIP") {
        errs.required(&internal, "");
    }
    if internal.is_set() && !TRAFFIC_POLICIES.contains(&internal.as_str()) {
        errs.not_supported(&internal, internal.as_str(), &TRAFFIC_POLICIES);
    }
    let distribution = spec.get("trafficDistribution");
    if distribution.is_set() && !DISTRIBUTIONS.contains(&distribution.as_str()) {
        errs.not_supported(&distribution, distribution.as_str(), &DISTRIBUTIONS);
    }
}

fn validate_health_check_port(spec: &Node<'_>, errs: &mut Errors) {
    let at = spec.get("healthCheckNodePort");
    let port = at.as_int().unwrap_or(0);
    match (needs_health_check(spec), port) {
        (false, 0) => {}
        (false, _) => errs
            .invalid_here(&at, "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"),
        (true, 0) => errs.required(&at, ""),
        (true, port) => {
            for complaint in name::is_valid_port_num(port) {
                errs.invalid(&at, port, complaint);
            }
        }
    }
}
