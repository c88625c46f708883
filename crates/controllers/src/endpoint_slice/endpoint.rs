//! How a pod appears in a slice.

use k8s_openapi::api::core::v1::{ObjectReference, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointHints, EndpointPort, ForNode, ForZone};
use k8s_openapi::jiff::Timestamp;
use setpoint_runtime::cache::Cached;

use super::topology;
use crate::backend::{self, Family};
use crate::pod::Pod;

/// A pod that may answer, and the zone that it is in.
pub struct Backend<'a> {
    pub pod: &'a Pod,
    pub zone: Option<String>,
}

/// What tells two endpoints apart.
pub type Identity = (Vec<String>, String, String, String);

/// What a pod is to a Service in one family; none if it has no address in it.
pub fn endpoint(service: &Service, backend: &Backend<'_>, family: Family) -> Option<Endpoint> {
    let (pod, mut addresses) = (backend.pod, backend::addresses(backend.pod, family));
    addresses.sort();
    let (serving, terminating) = (pod.is_ready(), pod.is_deleting());
    let ready = backend::publishes_unready(service) || serving && !terminating;
    let node_name = Some(pod.spec.node_name.to_string()).filter(|name| !name.is_empty());
    let hints = if ready { hints(service, backend.zone.as_deref(), node_name.as_deref()) } else { None };
    let endpoint = Endpoint {
        addresses,
        conditions: Some(EndpointConditions {
            ready: Some(ready),
            serving: Some(serving),
            terminating: Some(terminating),
        }),
        hostname: backend::hostname(service, pod),
        hints,
        node_name,
        target_ref: Some(ObjectReference {
            kind: Some("Pod".to_owned()),
            namespace: Some(pod.metadata.namespace.to_string()),
            name: Some(pod.metadata.name.to_string()),
            uid: Some(pod.metadata.uid.to_string()),
            ..ObjectReference::default()
        }),
        zone: backend.zone.clone(),
        ..Endpoint::default()
    };
    Some(endpoint).filter(|endpoint| !endpoint.addresses.is_empty())
}

/// The ports of a pod that a Service leads to, in one order.
pub fn ports(service: &Service, pod: &Pod) -> Vec<EndpointPort> {
    let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    let found = ports.filter_map(|port| {
        Some(EndpointPort {
            name: Some(port.name.clone().unwrap_or_default()),
            port: Some(backend::port_number(port, pod)?),
            protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".to_owned())),
            app_protocol: port.app_protocol.clone(),
        })
    });
    in_order(found.collect())
}

/// Ports in the order in which equal sets are equal lists.
pub fn in_order(mut ports: Vec<EndpointPort>) -> Vec<EndpointPort> {
    for port in &mut ports {
        port.name.get_or_insert_default();
        port.protocol.get_or_insert_with(|| "TCP".to_owned());
    }
    let rank = |port: &EndpointPort| (port.name.clone(), port.port, port.protocol.clone(), port.app_protocol.clone());
    ports.sort_by_key(rank);
    ports
}

/// What tells an endpoint from others.
pub fn identity(endpoint: &Endpoint) -> Identity {
    let mut addresses = endpoint.addresses.clone();
    addresses.sort();
    let target = endpoint.target_ref.clone().unwrap_or_default();
    let hostname = endpoint.hostname.clone().unwrap_or_default();
    (addresses, hostname, target.namespace.unwrap_or_default(), target.name.unwrap_or_default())
}

/// An endpoint in the form in which two that say the same are equal.
pub fn normal(mut endpoint: Endpoint) -> Endpoint {
    endpoint.addresses.sort();
    if let Some(target) = &mut endpoint.target_ref {
        target.resource_version = None;
    }
    endpoint
}

/// When the pod last became ready or unready, which led to this endpoint.
pub fn changed_at(pod: &Pod) -> Option<Timestamp> {
    pod.status.condition("Ready")?.last_transition_time.as_ref().map(|time| time.0)
}

/// Where traffic to an endpoint should come from, if the Service prefers that it stays close.
fn hints(service: &Service, zone: Option<&str>, node: Option<&str>) -> Option<EndpointHints> {
    if topology::is_asked_for(service) {
        // Said once all of them are known.
        return None;
    }
    let prefers_node = match service.spec.as_ref()?.traffic_distribution.as_deref()? {
        "PreferClose" | "PreferSameZone" => false,
        "PreferSameNode" => true,
        _ => return None,
    };
    let for_zones = zone.map(|zone| vec![ForZone { name: zone.to_owned() }]);
    let for_nodes = node.filter(|_| prefers_node).map(|node| vec![ForNode { name: node.to_owned() }]);
    (for_zones.is_some() || for_nodes.is_some()).then_some(EndpointHints { for_zones, for_nodes })
}
