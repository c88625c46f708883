//! What is settled before addresses are given out: which families a service has, and what it keeps from before.

use serde_json::{Value, json};
use setpoint_api::{BadValue, FieldError, Path};

use super::cluster_ips::{self, FAMILIES, family_of};
use super::{HEADLESS, is_externally_accessible, needs_health_check_port, needs_node_ports, texts};
use crate::builtin;
use crate::edit::Edit;
use crate::errors::Errors;

const PATH: Path<'static> = Path::root("spec");

/// Settles addresses and families of a new service. `cluster` names the families that the server gives addresses of, the
/// default first.
pub fn begin_create(service: &mut Value, cluster: &[&str]) -> Vec<FieldError> {
    let spec = service.ensure("spec");
    if !spec.text("clusterIP").is_empty() && texts(spec, "clusterIPs").is_empty() {
        let first = spec["clusterIP"].clone();
        spec.set("clusterIPs", vec![first]);
    }
    settle_families(service, None, cluster)
}

/// Settles addresses and families of a service that changes: what was given out and not named again is kept.
pub fn begin_update(service: &mut Value, old: &Value, cluster: &[&str]) -> Vec<FieldError> {
    service.ensure("spec");
    keep_given(service, old);
    align_addresses(&mut service["spec"], &old["spec"]);
    settle_families(service, Some(old), cluster)
}

/// Clears what the new type has no use for and the user didn't touch.
pub(super) fn drop_unneeded(new: &mut Value, old: &Value) {
    let (now, before) = (new["spec"].text("type").to_owned(), old["spec"].text("type"));
    let (health, old_health) = (needs_health_check_port(new), needs_health_check_port(old));
    let spec = new.ensure("spec");
    let old = &old["spec"];
    let same = |spec: &Value, field: &str| spec.get(field) == old.get(field);
    if before != "ExternalName" && now == "ExternalName" {
        if same(spec, "clusterIP") && same(spec, "clusterIPs") {
            spec.remove("clusterIP");
            spec.remove("clusterIPs");
        }
        drop_if_same(spec, old, "ipFamilies");
        drop_if_same(spec, old, "ipFamilyPolicy");
    }
    let on_nodes = |kind: &str| matches!(kind, "NodePort" | "LoadBalancer");
    if on_nodes(before) && !on_nodes(&now) && node_ports(spec).iter().all(|port| node_ports(old).contains(port)) {
        spec.items_mut("ports").for_each(|port| drop(port.remove("nodePort")));
    }
    if old_health && !health {
        drop_if_same(spec, old, "healthCheckNodePort");
    }
    if before == "LoadBalancer" && now != "LoadBalancer" {
        drop_if_same(spec, old, "allocateLoadBalancerNodePorts");
        drop_if_same(spec, old, "loadBalancerClass");
    }
    if is_externally_accessible(old) && !is_externally_accessible(spec) {
        drop_if_same(spec, old, "externalTrafficPolicy");
    }
    if now != "LoadBalancer"
        && let Some(status) = new.child("status")
    {
        status.remove("loadBalancer");
    }
}

fn drop_if_same(spec: &mut Value, old: &Value, field: &str) {
    if spec.get(field) == old.get(field) {
        spec.remove(field);
    }
}

fn node_ports(spec: &Value) -> Vec<i64> {
    let ports = spec.get("ports").and_then(Value::as_array).into_iter().flatten();
    ports.filter_map(|port| port.number("nodePort")).filter(|port| *port != 0).collect()
}

/// Addresses and ports from before, where the user says nothing: so that the same file can be sent again.
fn keep_given(new: &mut Value, old: &Value) {
    let ports = needs_node_ports(new) && needs_node_ports(old);
    let health = needs_health_check_port(new) && needs_health_check_port(old);
    let (spec, old) = (&mut new["spec"], &old["spec"]);
    if spec.text("type") != "ExternalName" && old.text("type") != "ExternalName" {
        if !old.text("clusterIP").is_empty() {
            spec.default_to("clusterIP", old.text("clusterIP"));
        }
        if texts(spec, "clusterIPs").is_empty() && !texts(old, "clusterIPs").is_empty() {
            spec.set("clusterIPs", old["clusterIPs"].clone());
        }
    }
    if ports {
        keep_node_ports(spec, old);
    }
    if health && spec.number("healthCheckNodePort").unwrap_or(0) == 0 && old.has("healthCheckNodePort") {
        spec.set("healthCheckNodePort", old["healthCheckNodePort"].clone());
    }
}

/// Node ports by the names of ports, unless another port has taken them.
fn keep_node_ports(spec: &mut Value, old: &Value) {
    let (now, before) = (node_ports(spec), node_ports(old));
    let used: Vec<i64> = before.into_iter().filter(|port| now.contains(port)).collect();
    let named = |name: &str| {
        let ports = old.get("ports").and_then(Value::as_array)?;
        ports.iter().rev().find(|port| port.text("name") == name)?.number("nodePort").filter(|port| *port != 0)
    };
    for port in spec.items_mut("ports").filter(|port| port.number("nodePort").unwrap_or(0) == 0) {
        if let Some(kept) = named(port.text("name")).filter(|kept| !used.contains(kept)) {
            port.set("nodePort", kept);
        }
    }
}

/// Older clients know one address only: the list follows it.
fn align_addresses(spec: &mut Value, old: &Value) {
    let (first, before) = (spec.text("clusterIP").to_owned(), old.text("clusterIP"));
    if texts(spec, "clusterIPs").is_empty() && first == before && !texts(old, "clusterIPs").is_empty() {
        spec.set("clusterIPs", old["clusterIPs"].clone());
    }
    if first == before || texts(spec, "clusterIPs") != texts(old, "clusterIPs") {
        return;
    }
    if first.is_empty() {
        spec.remove("clusterIPs");
    } else {
        spec.set("clusterIPs", json!([first]));
    }
}

fn settle_families(service: &mut Value, old: Option<&Value>, cluster: &[&str]) -> Vec<FieldError> {
    let old_spec = old.map(|old| &old["spec"]);
    if service["spec"].text("type") == "ExternalName" || stays_dual(&service["spec"], old_spec) {
        return Vec::new();
    }
    settle_policy(&mut service["spec"], old_spec);
    let errors = loosely_wrong(service, old);
    if !errors.is_empty() {
        return errors;
    }
    let spec = &mut service["spec"];
    let mut errors = settle_change(spec, old_spec);
    errors.extend(infer_families(spec, cluster));
    if !errors.is_empty() {
        return errors;
    }
    if spec.text("clusterIP") == HEADLESS && !has_selector(spec) {
        // Nobody knows the endpoints of such a service, so it may have both families anywhere.
        fill_families(spec, cluster, true);
        return Vec::new();
    }
    let errors = not_configured(spec, cluster);
    if errors.is_empty() {
        fill_families(spec, cluster, cluster.len() == 2);
    }
    errors
}

/// A service that prefers two families is neither upgraded nor downgraded by a change of something else.
fn stays_dual(spec: &Value, old: Option<&Value>) -> bool {
    let Some(old) = old else { return false };
    let same = |list| texts(spec, list) == texts(old, list);
    spec.text("ipFamilyPolicy") == "PreferDualStack"
        && (!old.has("ipFamilyPolicy") || old.text("ipFamilyPolicy") == "PreferDualStack")
        && spec.text("type") == old.text("type")
        && matches!(spec.text("type"), "ClusterIP" | "NodePort" | "LoadBalancer")
        && same("clusterIPs")
        && same("ipFamilies")
}

fn settle_policy(spec: &mut Value, old: Option<&Value>) {
    if spec.has("ipFamilyPolicy") {
        return;
    }
    let policy = match old.filter(|old| old.has("ipFamilyPolicy")) {
        Some(old) => old["ipFamilyPolicy"].clone(),
        None if spec.text("clusterIP") == HEADLESS && !has_selector(spec) => json!("RequireDualStack"),
        None => json!("SingleStack"),
    };
    spec.set("ipFamilyPolicy", policy);
}

fn has_selector(spec: &Value) -> bool {
    spec.get("selector").and_then(Value::as_object).is_some_and(|labels| !labels.is_empty())
}

/// The rules that must hold before families can be settled at all.
fn loosely_wrong(service: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let Some(kind) = builtin::by_plural("", "v1", "services") else { return Vec::new() };
    let mut errs = Errors::new();
    let old = old.map(|old| kind.node(old).get("spec"));
    cluster_ips::validate(&kind.node(service).get("spec"), old.as_ref(), &mut errs);
    errs.into_vec()
}

/// The policy and the number of addresses and families agree; going to one family is said by the policy alone.
fn settle_change(spec: &mut Value, old: Option<&Value>) -> Vec<FieldError> {
    let single = spec.text("ipFamilyPolicy") == "SingleStack";
    let mut details = Vec::new();
    if let Some(old) = old {
        for (list, released) in [("clusterIPs", "cluster IP"), ("ipFamilies", "IP family")] {
            let (now, before) = (texts(spec, list), texts(old, list));
            if single && now == before && now.len() > 1 {
                let first = json!([now[0]]);
                spec.set(list, first);
            } else if !single && !now.is_empty() && now.len() < before.len() {
                details.push(format!("must be 'SingleStack' to release the secondary {released}"));
            }
        }
    }
    for (list, several) in [("clusterIPs", "cluster IPs"), ("ipFamilies", "IP families")] {
        if single && texts(spec, list).len() == 2 {
            details
                .push(format!("must be 'RequireDualStack' or 'PreferDualStack' when multiple {several} are specified"));
        }
    }
    details.into_iter().map(|detail| about_policy(spec, &detail)).collect()
}

/// An address tells its family.
fn infer_families(spec: &mut Value, cluster: &[&str]) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut families: Vec<String> = texts(spec, "ipFamilies").into_iter().map(str::to_owned).collect();
    for (index, address) in texts(spec, "clusterIPs").into_iter().enumerate() {
        if address == HEADLESS {
            break;
        }
        if index < families.len() {
            continue;
        }
        let family = family_of(address).unwrap_or("unknown");
        if cluster.contains(&family) {
            families.push(family.to_owned());
        } else {
            let value = BadValue::json(&spec["clusterIPs"]);
            let detail = format!("{family} is not configured on this cluster");
            errors.push(FieldError::invalid(&PATH.child("clusterIPs").index(index), value, detail));
        }
    }
    if !families.is_empty() {
        spec.set("ipFamilies", families);
    }
    errors
}

fn not_configured(spec: &Value, cluster: &[&str]) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if spec.text("ipFamilyPolicy") == "RequireDualStack" && cluster.len() < 2 {
        errors.push(about_policy(spec, "this cluster is not configured for dual-stack services"));
    }
    for (index, family) in texts(spec, "ipFamilies").into_iter().enumerate() {
        if !cluster.contains(&family) {
            let detail = "not configured on this cluster";
            errors.push(FieldError::invalid(&PATH.child("ipFamilies").index(index), family, detail));
        }
    }
    errors
}

/// The default family where none is named, and the other one too where the policy wants it and it can be had.
fn fill_families(spec: &mut Value, cluster: &[&str], both: bool) {
    let mut families: Vec<String> = texts(spec, "ipFamilies").into_iter().map(str::to_owned).collect();
    if families.is_empty() {
        families.extend(cluster.first().map(|family| (*family).to_owned()));
    }
    if both && families.len() == 1 && spec.text("ipFamilyPolicy") != "SingleStack" {
        families.extend(FAMILIES.iter().find(|family| **family != families[0]).map(|family| (*family).to_owned()));
    }
    spec.set("ipFamilies", families);
}

fn about_policy(spec: &Value, detail: &str) -> FieldError {
    FieldError::invalid(&PATH.child("ipFamilyPolicy"), spec.text("ipFamilyPolicy"), detail)
}
