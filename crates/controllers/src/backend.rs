//! What a Service says about pods that may answer for it.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Service, ServicePort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::Api;
use setpoint_runtime::Key;
use setpoint_runtime::cache::{Cached, Informer};
use setpoint_runtime::controller::{Context, Error, Predicate};

use crate::pod::Pod;

/// The label that says that a Service has no address of its own.
pub const HEADLESS: &str = "service.kubernetes.io/headless";

/// The annotation with the time of the change that led to a write.
pub const TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// The two sorts of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    V4,
    V6,
}

impl Family {
    /// As Services and EndpointSlices write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        }
    }

    fn of(address: &IpAddr) -> Family {
        if address.is_ipv4() { Family::V4 } else { Family::V6 }
    }
}

/// Whether pods are found by labels; else somebody else says who answers.
pub fn has_selector(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    spec.and_then(|spec| spec.selector.as_ref()).is_some_and(|selector| !selector.is_empty())
}

/// Whether a Service is the name of something outside, and so has no endpoints.
pub fn is_external_name(service: &Service) -> bool {
    service.spec.as_ref().is_some_and(|spec| spec.type_.as_deref() == Some("ExternalName"))
}

/// Whether a pod has the labels that a Service selects.
pub fn selects(service: &Service, pod: &Pod) -> bool {
    let selector = service.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    let has = |(name, value): (&String, &String)| pod.metadata.labels.get(name) == Some(value);
    selector.is_some_and(|selector| !selector.is_empty() && selector.iter().all(has))
}

/// The Services that a pod may answer for.
pub fn services_of(services: &Informer<Service>, pod: &Pod) -> Vec<Key> {
    let snapshot = services.lister().snapshot();
    let all = snapshot.namespace(&pod.metadata.namespace);
    all.filter(|service| selects(service, pod)).map(|service| Cached::key(&**service)).collect()
}

/// What is made for a Service that is gone would be left over: the cache may be behind.
pub async fn ensure_there(context: &Context, service: &Service) -> Result<(), Error> {
    let key = Cached::key(service);
    let api: Api<Service> = Api::namespaced(context.client().clone(), key.namespace().unwrap_or_default());
    match api.get_metadata(key.name()).await?.metadata.uid == service.metadata.uid {
        true => Ok(()),
        false => Err(Error::conflict(format!("{key} is newer than the cache"))),
    }
}

/// Changes of a pod that may matter for who answers.
pub fn matters() -> Predicate<Pod> {
    Predicate::new(|old: Option<&Pod>, new: &Pod| {
        let facts = |pod: &Pod| {
            let spec = &pod.spec;
            (pod.is_ready(), pod.has_ended(), spec.node_name.clone(), spec.hostname.clone(), spec.subdomain.clone())
        };
        old.is_none_or(|old| {
            facts(old) != facts(new)
                || old.metadata.labels != new.metadata.labels
                || old.status.addresses != new.status.addresses
                || old.is_deleting() != new.is_deleting()
        })
    })
}

/// Whether a pod has an address and may still answer. One that is on its way out counts only if asked for.
pub fn may_answer(pod: &Pod, includes_terminating: bool) -> bool {
    !pod.has_ended() && !pod.status.addresses.is_empty() && (includes_terminating || !pod.is_deleting())
}

/// The addresses of a pod in a family, in their usual form.
pub fn addresses(pod: &Pod, family: Family) -> Vec<String> {
    let parsed = pod.status.addresses.iter().filter_map(|text| text.parse::<IpAddr>().ok());
    parsed.filter(|address| Family::of(address) == family).map(|address| address.to_string()).collect()
}

/// The families that a Service is served in, the main one first.
pub fn families(service: &Service) -> Vec<Family> {
    let Some(spec) = &service.spec else { return Vec::new() };
    let named = spec.ip_families.iter().flatten().filter_map(|family| match family.as_str() {
        "IPv4" => Some(Family::V4),
        "IPv6" => Some(Family::V6),
        _ => None,
    });
    let named: Vec<_> = named.collect();
    if !named.is_empty() {
        return named;
    }
    match spec.cluster_ip.as_deref().and_then(|address| address.parse::<IpAddr>().ok()) {
        Some(address) => vec![Family::of(&address)],
        None => vec![Family::V4, Family::V6],
    }
}

/// Whether it has no address of its own.
pub fn is_headless(service: &Service) -> bool {
    let address = service.spec.as_ref().and_then(|spec| spec.cluster_ip.as_deref());
    matches!(address, None | Some("" | "None"))
}

/// Whether pods that aren't ready are published too.
pub fn publishes_unready(service: &Service) -> bool {
    service.spec.as_ref().is_some_and(|spec| spec.publish_not_ready_addresses == Some(true))
}

/// The number of the port of a pod that a port of the Service leads to; none if the pod has no port of that name.
pub fn port_number(port: &ServicePort, pod: &Pod) -> Option<i32> {
    let protocol = port.protocol.as_deref().unwrap_or("TCP");
    match port.target_port.as_ref() {
        None => Some(port.port),
        Some(IntOrString::Int(number)) => Some(*number),
        Some(IntOrString::String(name)) => {
            let sidecars = pod.spec.sidecars.iter().flat_map(|sidecar| &sidecar.ports);
            let protocol_of = |text: &str| if text.is_empty() { "TCP".to_owned() } else { text.to_owned() };
            let mut ports = pod.spec.ports.iter().chain(sidecars);
            let found = ports.find(|port| *port.name == **name && protocol_of(&port.protocol) == protocol);
            found.map(|port| port.container_port)
        }
    }
}

/// The name that a pod has in the domain of a headless Service.
pub fn hostname(service: &Service, pod: &Pod) -> Option<String> {
    let is_member = service.metadata.name.as_deref() == Some(&*pod.spec.subdomain);
    (is_member && !pod.spec.hostname.is_empty()).then(|| pod.spec.hostname.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(spec: Value, addresses: Value) -> Pod {
        let metadata = json!({"name": "a", "namespace": "shop", "labels": {"app": "web", "tier": "front"}});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": {"podIPs": addresses}})).unwrap()
    }

    fn service(spec: Value) -> Service {
        serde_json::from_value(json!({"metadata": {"name": "web", "namespace": "shop"}, "spec": spec})).unwrap()
    }

    #[test]
    fn a_service_selects_by_all_of_its_labels() {
        for (selector, selected) in [
            (json!({"app": "web"}), true),
            (json!({"app": "web", "tier": "back"}), false),
            (json!({}), false),
            (json!(null), false),
        ] {
            let service = service(json!({ "selector": selector }));
            assert_eq!(selects(&service, &pod(json!({}), json!([]))), selected, "{selector}");
        }
    }

    #[test]
    fn ports_are_found_by_name_in_containers_and_sidecars() {
        let spec = json!({
            "containers": [{"name": "main", "ports": [{"name": "http", "containerPort": 8080}, {"containerPort": 1}]}],
            "initContainers": [
                {"name": "side", "restartPolicy": "Always", "ports": [{"name": "dns", "containerPort": 53, "protocol": "UDP"}]},
                {"name": "first", "ports": [{"name": "early", "containerPort": 5}]}],
        });
        let pod = pod(spec, json!([]));
        for (port, expected) in [
            (json!({"port": 80}), Some(80)),
            (json!({"port": 80, "targetPort": 8081}), Some(8081)),
            (json!({"port": 80, "targetPort": "http"}), Some(8080)),
            (json!({"port": 80, "targetPort": "http", "protocol": "UDP"}), None),
            (json!({"port": 80, "targetPort": "dns", "protocol": "UDP"}), Some(53)),
            (json!({"port": 80, "targetPort": "early"}), None),
        ] {
            let port: ServicePort = serde_json::from_value(port.clone()).unwrap();
            assert_eq!(port_number(&port, &pod), expected, "{port:?}");
        }
    }

    #[test]
    fn families_follow_from_the_spec_or_the_address() {
        for (spec, expected) in [
            (json!({"ipFamilies": ["IPv6", "IPv4"]}), vec![Family::V6, Family::V4]),
            (json!({"clusterIP": "10.0.0.1"}), vec![Family::V4]),
            (json!({"clusterIP": "fd00::1"}), vec![Family::V6]),
            (json!({"clusterIP": "None"}), vec![Family::V4, Family::V6]),
        ] {
            assert_eq!(families(&service(spec.clone())), expected, "{spec}");
        }
        let pod = pod(json!({}), json!([{"ip": "10.1.0.1"}, {"ip": "FD00:0::2"}, {"ip": "nonsense"}]));
        assert_eq!(addresses(&pod, Family::V4), ["10.1.0.1"]);
        assert_eq!(addresses(&pod, Family::V6), ["fd00::2"]);
    }
}
