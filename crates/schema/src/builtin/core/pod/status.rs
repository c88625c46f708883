//! The rules for the status of a pod, which its node writes.

use std::collections::BTreeSet;

use setpoint_api::{Path, ip, name};

use super::annotations::validate_annotation_changes;
use super::security::validate_group;
use super::update::options;
use crate::errors::Errors;
use crate::metadata;
use crate::node::Node;

/// Longest message about the health of a resource.
const HEALTH_MESSAGE_BYTES_MAX: usize = 1024;
const SYSTEM_CONDITIONS: [&str; 3] = ["PodScheduled", "Ready", "Initialized"];
const LISTS: [&str; 3] = ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"];
const NO_WAY_BACK: &str = "may not be transitioned to non-terminated state";
const ONE_PER_FAMILY: &str = "may specify no more than one IP for each IP family";

/// The rules for a write to the status.
pub fn validate_status_update(new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
    metadata::validate_update(new, old, errs);
    let (now, before) = (new.get("metadata").get("annotations"), old.get("metadata").get("annotations"));
    validate_annotation_changes(&now, &before, &new.get("spec"), &options(old), errs);
    let (status, old_status) = (new.get("status"), old.get("status"));
    validate_conditions(&status, errs);
    validate_nominated_node(&status, &old_status, old, errs);
    if status.int("observedGeneration").unwrap_or(0) < 0 {
        errs.invalid_here(&status.get("observedGeneration"), "must be a non-negative integer");
    }
    errs.immutable(&status.get("qosClass"), &old_status.get("qosClass"));
    validate_transitions(&status, &old_status, &old.get("spec"), errs);
    validate_claim_statuses(&status, &new.get("spec"), errs);
    validate_extended_claim(&status.get("extendedResourceClaimStatus"), &new.get("spec"), errs);
    validate_addresses(&status, &old_status, "podIPs", errs);
    validate_host_addresses(&status, &old_status, errs);
    validate_users(&status, &new.get("spec"), errs);
    validate_health(&status, &new.get("spec"), errs);
}

fn validate_conditions(status: &Node<'_>, errs: &mut Errors) {
    for condition in status.items("conditions") {
        if condition.int("observedGeneration").unwrap_or(0) < 0 {
            errs.invalid_here(&condition.get("observedGeneration"), "must be a non-negative integer");
        }
        let kind = condition.str("type");
        if !SYSTEM_CONDITIONS.contains(&kind) {
            errs.invalid_each(&condition.at_child("Type"), kind, name::qualified_name(kind));
        }
    }
}

fn validate_nominated_node(status: &Node<'_>, old_status: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
    let at = status.get("nominatedNodeName");
    if at.as_str().is_empty() || at.as_str() == old_status.str("nominatedNodeName") {
        return;
    }
    errs.invalid_each(&at, at.as_str(), name::dns1123_subdomain(at.as_str()));
    if !old.get("spec").str("nodeName").is_empty() {
        errs.forbidden(&at, "may not be set on pods that are already bound to a node");
    }
}

/// That no container comes back to life which its restart policy leaves dead.
fn validate_transitions(status: &Node<'_>, old: &Node<'_>, spec: &Node<'_>, errs: &mut Errors) {
    let restarts_all = |container: Node<'_>| {
        container.items("restartPolicyRules").any(|rule| rule.str("action") == "RestartAllContainers")
    };
    let all_restart = spec.items("initContainers").chain(spec.items("containers")).any(restarts_all);
    for (list, containers) in LISTS.into_iter().zip([Some("containers"), Some("initContainers"), None]) {
        if containers.is_some() && all_restart {
            continue;
        }
        for (index, before) in old.items(list).enumerate() {
            let ended = before.get("state").get("terminated");
            if !ended.is_set() {
                continue;
            }
            let revived = |now: &Node<'_>| now.str("name") == before.str("name") && !now.get("state").has("terminated");
            let count = status.items(list).filter(revived).count();
            let code = ended.int("exitCode").unwrap_or(0);
            let allowed = containers.is_some_and(|containers| {
                let mut found = spec.items(containers).filter(|container| container.str("name") == before.str("name"));
                found.next().is_some_and(|container| restarts(&container, spec, code))
            });
            let complaints = match containers {
                Some(_) if allowed => 0,
                Some(_) => count.min(1),
                None => count,
            };
            for _ in 0..complaints {
                errs.forbidden(&status.get(list).at_index(index).at_child("state"), NO_WAY_BACK);
            }
        }
    }
}

fn restarts(container: &Node<'_>, spec: &Node<'_>, code: i64) -> bool {
    let matches = |rule: &Node<'_>| {
        let codes = rule.get("exitCodes");
        let listed = codes.items("values").any(|value| value.as_int() == Some(code));
        codes.is_set() && listed == (codes.str("operator") == "In")
    };
    let policy = container.get("restartPolicy");
    if policy.is_set() && container.items("restartPolicyRules").any(|rule| matches(&rule)) {
        return true;
    }
    let policy = if policy.is_set() { policy.as_str() } else { spec.str("restartPolicy") };
    match policy {
        "OnFailure" => code != 0,
        "Never" => false,
        _ => true,
    }
}

fn validate_claim_statuses(status: &Node<'_>, spec: &Node<'_>, errs: &mut Errors) {
    let mut seen = BTreeSet::new();
    for claim in status.items("resourceClaimStatuses") {
        let (name, resource) = (claim.str("name"), claim.get("resourceClaimName"));
        if !spec.items("resourceClaims").any(|known| known.str("name") == name) {
            errs.invalid(&claim.get("name"), name, "must match the name of an entry in `spec.resourceClaims`");
        }
        if !seen.insert(name) {
            errs.duplicate(&claim.get("name"), name);
        }
        if resource.is_set() {
            errs.invalid_each(&resource, resource.as_str(), name::dns1123_subdomain(resource.as_str()));
        }
    }
}

fn validate_extended_claim(claim: &Node<'_>, spec: &Node<'_>, errs: &mut Errors) {
    if !claim.is_set() {
        return;
    }
    if claim.count("requestMappings") == 0 {
        errs.required(&claim.get("requestMappings"), "at least one request mapping is required");
    }
    let mut seen = BTreeSet::new();
    for mapping in claim.items("requestMappings") {
        let (container, resource, request) =
            (mapping.str("containerName"), mapping.str("resourceName"), mapping.str("requestName"));
        let mut containers = spec.items("initContainers").chain(spec.items("containers"));
        match containers.find(|other| other.str("name") == container) {
            Some(found) if found.get("resources").get("requests").entry(resource).is_set() => {}
            Some(_) => {
                let detail = "must match the extended resource name of an entry in spec.initContainers.resources.requests \
                              or spec.containers.resources.requests";
                errs.invalid(&mapping.get("resourceName"), resource, detail);
            }
            None => {
                let detail = "must match the name of an entry in spec.initContainers.name or spec.containers.name";
                errs.invalid(&mapping.get("containerName"), container, detail);
            }
        }
        errs.invalid_each(&claim.at_child("requestName"), request, name::dns1123_label(request));
        if !seen.insert((container, resource, request)) {
            for field in ["containerName", "resourceName", "requestName"] {
                errs.duplicate(&mapping.get(field), mapping.str(field));
            }
        }
    }
    let at = claim.get("resourceClaimName");
    if at.as_str().is_empty() {
        errs.required(&at, "");
    } else {
        errs.invalid_each(&at, at.as_str(), name::dns1123_subdomain(at.as_str()));
    }
}

fn validate_host_addresses(status: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
    let Some(first) = status.items("hostIPs").next() else { return };
    if status.str("hostIP") != first.str("ip") {
        errs.invalid(&first.get("ip"), first.str("ip"), "must be equal to `hostIP`");
    }
    validate_addresses(status, old, "hostIPs", errs);
}

fn validate_addresses(status: &Node<'_>, old: &Node<'_>, field: &'static str, errs: &mut Errors) {
    let known: Vec<&str> = old.items(field).map(|address| address.str("ip")).collect();
    let list = status.get(field);
    for address in list.clone().into_items() {
        errs.extend(ip::validate_legacy_ip(&Path::root(&address.path()), address.str("ip"), &known));
    }
    let texts: Vec<&str> = list.clone().into_items().map(|address| address.str("ip")).collect();
    if texts.len() < 2 {
        return;
    }
    let parsed: Option<Vec<_>> = texts.iter().map(|text| ip::parse_sloppy(text)).collect();
    let Some(parsed) = parsed else {
        let bad = texts.iter().enumerate().find(|(_, text)| ip::parse_sloppy(text).is_none());
        let (index, text) = bad.unwrap_or((0, &""));
        errs.internal(&list, format!("failed to check for dual stack with error:invalid IP[{index}]: {text}"));
        errs.invalid_here(&list, ONE_PER_FAMILY);
        return;
    };
    let is_v4 = |address: &std::net::IpAddr| address.to_canonical().is_ipv4();
    let dual = parsed.iter().any(is_v4) && !parsed.iter().all(is_v4);
    if !dual || texts.len() > 2 {
        errs.invalid_here(&list, ONE_PER_FAMILY);
    }
}

fn validate_users(status: &Node<'_>, spec: &Node<'_>, errs: &mut Errors) {
    let os = spec.get("os");
    for list in LISTS {
        for container in status.items(list) {
            let user = container.get("user").get("linux");
            if !user.is_set() {
                continue;
            }
            match os.str("name") {
                "windows" => errs.forbidden(&user, "cannot be set for a windows pod"),
                "" | "linux" => {
                    validate_group(&user.get("uid"), errs);
                    validate_group(&user.get("gid"), errs);
                    user.items("supplementalGroups").for_each(|group| validate_group(&group, errs));
                }
                _ => {}
            }
        }
    }
}

fn validate_health(status: &Node<'_>, spec: &Node<'_>, errs: &mut Errors) {
    for (list, containers) in [("containerStatuses", "containers"), ("initContainerStatuses", "initContainers")] {
        for container in status.items(list) {
            let own = spec.items(containers).find(|other| other.str("name") == container.str("name"));
            for resource in container.items("allocatedResourcesStatus") {
                if let Some(own) = &own {
                    validate_allocated_name(&resource, own, errs);
                }
                validate_resource_health(&resource, errs);
            }
        }
    }
    for container in status.items("ephemeralContainerStatuses") {
        if container.count("allocatedResourcesStatus") > 0 {
            errs.forbidden(&container.get("allocatedResourcesStatus"), "must not be specified in container status");
        }
    }
}

fn validate_allocated_name(resource: &Node<'_>, container: &Node<'_>, errs: &mut Errors) {
    let at = resource.get("name");
    let resources = container.get("resources");
    let claim_name = |claim: Node<'_>| match claim.str("request") {
        "" => format!("claim:{}", claim.str("name")),
        request => format!("claim:{}/{request}", claim.str("name")),
    };
    let (found, detail) = if at.as_str().starts_with("claim:") {
        let found = resources.items("claims").any(|claim| claim_name(claim) == at.as_str());
        let detail = "must match one of the container's resource claims in a format 'claim:<claimName>/<request>' or \
                      'claim:<claimName>' if request is empty";
        (found, detail)
    } else {
        let found = resources.get("requests").entry(at.as_str()).is_set();
        (found, "must match one of the container's resource requests")
    };
    if !found {
        errs.invalid(&at, at.as_str(), detail);
    }
}

fn validate_resource_health(resource: &Node<'_>, errs: &mut Errors) {
    const HEALTH: [&str; 3] = ["Healthy", "Unhealthy", "Unknown"];
    let mut seen = BTreeSet::new();
    for item in resource.items("resources") {
        let (health, message) = (item.get("health"), item.get("message"));
        if !HEALTH.contains(&health.as_str()) {
            errs.not_supported(&health, health.as_str(), &HEALTH);
        }
        if message.is_set() && message.as_str().is_empty() {
            errs.required(&message, "must be non-empty if specified");
        } else if message.as_str().len() > HEALTH_MESSAGE_BYTES_MAX {
            errs.too_long(&message, HEALTH_MESSAGE_BYTES_MAX);
        }
        if !seen.insert(item.str("resourceID")) {
            errs.duplicate(&item.get("resourceID"), item.str("resourceID"));
        }
    }
}
