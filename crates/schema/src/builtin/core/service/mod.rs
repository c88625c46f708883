//! Service: a stable name and address for a set of pods.
//!
//! # Contract with the server
//!
//! Addresses and ports are given out by whoever holds the pools. Around [`Kind`](crate::Kind)'s own steps the server does,
//! in this order:
//! 1. [`begin_create`] or [`begin_update`], before `prepare_*`: they settle `clusterIPs`, `ipFamilies` and
//!    `ipFamilyPolicy`, and keep what was given out before. Their errors end the request.
//! 2. An address in `clusterIPs[i]` for every `ipFamilies[i]` that has none, if [`needs_cluster_ip`], and `clusterIP` equal to
//!    the first. A node port for every port without, if [`needs_node_ports`]; `healthCheckNodePort`, if
//!    [`needs_health_check_port`]. Addresses and ports that the user chose are claimed or refused.
//! 3. `prepare_*` and `check_*`; afterwards what the stored object no longer names goes back to the pools.

use std::borrow::Cow;

use serde_json::{Value, json};
use setpoint_api::{Path, ip};

use crate::behaviour::{Behaviour, Context, keep};
use crate::builtin::cells;
use crate::columns::{Column, field};
use crate::edit::Edit;
use crate::errors::Errors;
use crate::kind::Kind;
use crate::metadata;
use crate::name_rule::NameRule;
use crate::node::Node;
use crate::selectable::{Selectable, as_text};

mod cluster_ips;
mod families;
mod ports;
mod rules;

pub use families::{begin_create, begin_update};
pub(super) use ports::validate_protocol;

/// The address of a service that has none.
pub const HEADLESS: &str = "None";

/// How long a client stays with one pod when nothing else is said: three hours.
const AFFINITY_SECONDS: i64 = 10_800;

const SPEC: &str = "io.k8s.api.core.v1.ServiceSpec";

const COLUMNS: &[Column<'static>] = &[
    Column::NAME,
    Column::new("Type", "string", |object, _| field(object, &["spec", "type"])).about_field(SPEC, "type"),
    Column::new("Cluster-IP", "string", |object, _| json!(first_cluster_ip(object))).about_field(SPEC, "clusterIP"),
    Column::new("External-IP", "string", |object, _| json!(external_ips(object))).about_field(SPEC, "externalIPs"),
    Column::new("Port(s)", "string", |object, _| json!(ports::shown(object))).about_field(SPEC, "ports"),
    Column::AGE,
    Column::new("Selector", "string", |object, _| cells::labels(object.find(&["spec", "selector"])))
        .about_field(SPEC, "selector")
        .wide(),
];

static SELECTABLE: [Selectable; 2] = [
    Selectable::new("spec.clusterIP", |object| as_text(object.find(&["spec", "clusterIP"]))),
    Selectable::new("spec.type", |object| as_text(object.find(&["spec", "type"]))),
];

/// The decisions of Service.
#[derive(Debug)]
pub struct Service;

impl Behaviour for Service {
    fn default(&self, object: &mut Value) {
        default_spec(object.ensure("spec"));
        if object["spec"].text("type") == "LoadBalancer"
            && let Some(balancer) = object.find_mut(&["status", "loadBalancer"])
        {
            for ingress in balancer.items_mut("ingress").filter(|ingress| !ingress.text("ip").is_empty()) {
                ingress.fill("ipMode", "VIP");
            }
        }
    }

    fn prepare_create(&self, object: &mut Value, _context: &Context) {
        object.remove("status");
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, _context: &Context) {
        keep(new, old, &["status"]);
        families::drop_unneeded(new, old);
    }

    fn validate(&self, object: &Node<'_>, errs: &mut Errors) {
        rules::validate(object, None, errs);
    }

    fn check_update(&self, _kind: &Kind, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        metadata::validate_update(new, old, errs);
        cluster_ips::validate_change(&new.get("spec"), &old.get("spec"), errs);
        rules::validate_change(&new.get("spec"), &old.get("spec"), errs);
        rules::validate(new, Some(old), errs);
    }

    fn validate_status_update(&self, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        rules::validate_status(new, old, errs);
    }

    fn warnings(&self, new: &Node<'_>, old: Option<&Node<'_>>) -> Vec<String> {
        match old {
            // Only a write to /status can change it.
            Some(old) if !new.get("status").same(&old.get("status")) => {
                let ingress = new.get("status").get("loadBalancer").items("ingress");
                ingress.flat_map(|item| ip::warnings_for_ip(&Path::root(&item.path()), item.str("ip"))).collect()
            }
            _ => rules::warnings(new),
        }
    }

    /// A name for something outside has no traffic of its own. Upstream stores the policy and hides it when it is read.
    fn canonicalize(&self, object: &mut Value) {
        if object["spec"].text("type") == "ExternalName" {
            object["spec"].remove("internalTrafficPolicy");
        }
    }

    fn name_rule(&self) -> NameRule {
        NameRule::LABEL
    }

    fn allow_create_on_update(&self) -> bool {
        true
    }

    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        if subresource.is_empty() { &["status"] } else { &["spec"] }
    }

    fn selectable(&self) -> &[Selectable] {
        &SELECTABLE
    }

    fn columns(&self) -> Cow<'_, [Column<'_>]> {
        COLUMNS.into()
    }
}

/// Whether the service has addresses from the pool, or none on purpose.
pub fn needs_cluster_ip(service: &Value) -> bool {
    service["spec"].text("type") != "ExternalName" && service["spec"]["clusterIPs"][0] != HEADLESS
}

/// Whether every port needs a port on the nodes.
pub fn needs_node_ports(service: &Value) -> bool {
    let spec = &service["spec"];
    match spec.text("type") {
        "NodePort" => true,
        "LoadBalancer" => spec["allocateLoadBalancerNodePorts"] != false,
        _ => false,
    }
}

/// Whether the load balancer asks each node for its health, on a port of its own.
pub fn needs_health_check_port(service: &Value) -> bool {
    let spec = &service["spec"];
    spec.text("type") == "LoadBalancer" && spec.text("externalTrafficPolicy") == "Local"
}

fn default_spec(spec: &mut Value) {
    spec.default_to("sessionAffinity", "None");
    match spec.text("sessionAffinity") {
        "None" => drop(spec.remove("sessionAffinityConfig")),
        "ClientIP" if spec.find(&["sessionAffinityConfig", "clientIP", "timeoutSeconds"]).is_none() => {
            spec.set("sessionAffinityConfig", json!({"clientIP": {"timeoutSeconds": AFFINITY_SECONDS}}));
        }
        _ => {}
    }
    spec.default_to("type", "ClusterIP");
    spec.items_mut("ports").for_each(ports::default_port);
    if is_externally_accessible(spec) {
        spec.default_to("externalTrafficPolicy", "Cluster");
    }
    if matches!(spec.text("type"), "ClusterIP" | "NodePort" | "LoadBalancer") {
        spec.fill("internalTrafficPolicy", "Cluster");
    }
    if spec.text("type") == "LoadBalancer" {
        spec.fill("allocateLoadBalancerNodePorts", true);
    }
}

fn is_externally_accessible(spec: &Value) -> bool {
    match spec.text("type") {
        "LoadBalancer" | "NodePort" => true,
        "ClusterIP" => spec.get("externalIPs").and_then(Value::as_array).is_some_and(|list| !list.is_empty()),
        _ => false,
    }
}

fn texts<'a>(spec: &'a Value, list: &str) -> Vec<&'a str> {
    spec.get(list).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}

fn first_cluster_ip(object: &Value) -> &str {
    object["spec"]["clusterIPs"][0].as_str().unwrap_or(cells::NONE)
}

fn external_ips(object: &Value) -> String {
    let spec = &object["spec"];
    let mut addresses = texts(spec, "externalIPs");
    match spec.text("type") {
        "ClusterIP" | "NodePort" if addresses.is_empty() => cells::NONE.to_owned(),
        "ClusterIP" | "NodePort" => addresses.join(","),
        "LoadBalancer" => {
            let ingress = object["status"]["loadBalancer"]["ingress"].as_array().map_or(&[] as &[Value], Vec::as_slice);
            let name = |item: &'_ Value| if item.text("ip").is_empty() { "hostname" } else { "ip" };
            let mut given: Vec<&str> =
                ingress.iter().map(|item| item.text(name(item))).filter(|t| !t.is_empty()).collect();
            given.sort_unstable();
            given.dedup();
            given.append(&mut addresses);
            if given.is_empty() { "<pending>".to_owned() } else { given.join(",") }
        }
        "ExternalName" => spec.text("externalName").to_owned(),
        _ => "<unknown>".to_owned(),
    }
}

#[cfg(test)]
mod tests;
