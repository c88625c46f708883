//! The Endpoints that a Service should have.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{EndpointAddress, EndpointPort, EndpointSubset, Endpoints, ObjectReference, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;

use crate::backend::{self, HEADLESS, TRIGGER_TIME};
use crate::pod::Pod;

/// Most addresses in one object; who wants more reads slices.
const ADDRESSES_MAX: usize = 1_000;

/// The annotation that says that addresses were left out.
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";

/// The label that says who looks after the object.
pub const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";

/// What the label says about those of this controller.
pub const MANAGER: &str = "endpoint-controller";

type PortKey = Vec<(String, i32, String, String)>;

/// The object to write; none if the one that is there says the same.
pub fn plan(service: &Service, pods: &[&Pod], current: Option<&Endpoints>) -> Option<Endpoints> {
    let mut subsets = subsets(service, pods);
    let is_truncated = truncate(&mut subsets);
    let labels = labels(service);
    let old = current.map(|current| &current.metadata);
    let mut annotations = old.and_then(|old| old.annotations.clone()).unwrap_or_default();
    let was_truncated = annotations.remove(OVER_CAPACITY).is_some();
    if let Some(current) = current
        && normal(current.subsets.clone().unwrap_or_default()) == subsets
        && current.metadata.labels.as_ref() == Some(&labels)
        && was_truncated == is_truncated
    {
        return None;
    }
    if is_truncated {
        annotations.insert(OVER_CAPACITY.to_owned(), "truncated".to_owned());
    }
    match trigger(service, pods, current, &subsets) {
        Some(at) => annotations.insert(TRIGGER_TIME.to_owned(), at.to_string()),
        None => annotations.remove(TRIGGER_TIME),
    };
    let metadata = ObjectMeta {
        name: service.metadata.name.clone(),
        namespace: service.metadata.namespace.clone(),
        labels: Some(labels),
        annotations: Some(annotations).filter(|all| !all.is_empty()),
        ..old.cloned().unwrap_or_default()
    };
    Some(Endpoints { metadata, subsets: Some(subsets).filter(|subsets| !subsets.is_empty()) })
}

/// Ports with the same addresses behind them are in one subset.
fn subsets(service: &Service, pods: &[&Pod]) -> Vec<EndpointSubset> {
    let includes_unready = backend::publishes_unready(service);
    let mut behind: BTreeMap<PortKey, (Option<EndpointPort>, Behind)> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| backend::may_answer(pod, includes_unready)) {
        let (Some(address), Some(ports)) = (address(service, pod), ports(service, pod)) else { continue };
        let is_ready = includes_unready || pod.is_ready();
        let ports = if ports.is_empty() { vec![None] } else { ports.into_iter().map(Some).collect() };
        for port in ports {
            let (_, addresses) = behind.entry(key_of(port.as_slice())).or_insert_with(|| (port, Behind::new()));
            addresses.insert((address.ip.clone(), pod.metadata.uid.to_string()), (address.clone(), is_ready));
        }
    }
    let mut subsets: BTreeMap<Vec<(Place, bool)>, EndpointSubset> = BTreeMap::new();
    for (port, addresses) in behind.into_values() {
        let places = addresses.iter().map(|(place, (_, is_ready))| (place.clone(), *is_ready)).collect();
        subsets.entry(places).or_insert_with(|| subset(addresses)).ports.get_or_insert_default().extend(port);
    }
    normal(subsets.into_values().collect())
}

/// An address, and whose it is.
type Place = (String, String);

/// The addresses behind a port, and whether they are ready.
type Behind = BTreeMap<Place, (EndpointAddress, bool)>;

fn subset(addresses: Behind) -> EndpointSubset {
    let (ready, unready): (Vec<_>, Vec<_>) = addresses.into_values().partition(|(_, is_ready)| *is_ready);
    let only = |list: Vec<(EndpointAddress, bool)>| Some(list.into_iter().map(|(address, _)| address).collect());
    EndpointSubset { addresses: only(ready), not_ready_addresses: only(unready), ports: None }
}

fn address(service: &Service, pod: &Pod) -> Option<EndpointAddress> {
    let family = *backend::families(service).first()?;
    Some(EndpointAddress {
        ip: backend::addresses(pod, family).into_iter().next()?,
        hostname: backend::hostname(service, pod),
        node_name: Some(pod.spec.node_name.to_string()),
        target_ref: Some(ObjectReference {
            kind: Some("Pod".to_owned()),
            namespace: Some(pod.metadata.namespace.to_string()),
            name: Some(pod.metadata.name.to_string()),
            uid: Some(pod.metadata.uid.to_string()),
            ..ObjectReference::default()
        }),
    })
}

/// The ports of a pod; none if the Service has some but the pod has none of them.
fn ports(service: &Service, pod: &Pod) -> Option<Vec<EndpointPort>> {
    let wanted = service.spec.as_ref()?.ports.as_deref().unwrap_or_default();
    let found = wanted.iter().filter_map(|port| {
        Some(EndpointPort {
            name: port.name.clone().filter(|name| !name.is_empty()),
            port: backend::port_number(port, pod)?,
            protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".to_owned())),
            app_protocol: port.app_protocol.clone(),
        })
    });
    let found: Vec<_> = found.collect();
    let is_portless = wanted.is_empty() && backend::is_headless(service);
    (is_portless || !found.is_empty()).then_some(found)
}

fn key_of(ports: &[EndpointPort]) -> PortKey {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let mut key: PortKey = ports
        .iter()
        .map(|port| (text(&port.name), port.port, text(&port.protocol), text(&port.app_protocol)))
        .collect();
    key.sort();
    key
}

/// Subsets in the order and form in which two that say the same are equal.
pub fn normal(mut subsets: Vec<EndpointSubset>) -> Vec<EndpointSubset> {
    for subset in &mut subsets {
        let order = |list: Option<Vec<EndpointAddress>>| {
            let mut list = list.filter(|list| !list.is_empty())?;
            for address in &mut list {
                if let Some(target) = &mut address.target_ref {
                    target.resource_version = None;
                }
            }
            let uid = |one: &EndpointAddress| one.target_ref.as_ref().and_then(|target| target.uid.clone());
            list.sort_by_key(|one| (one.ip.clone(), uid(one)));
            Some(list)
        };
        subset.addresses = order(subset.addresses.take());
        subset.not_ready_addresses = order(subset.not_ready_addresses.take());
        subset.ports = subset.ports.take().filter(|ports| !ports.is_empty());
        for port in subset.ports.iter_mut().flatten() {
            port.name = port.name.take().filter(|name| !name.is_empty());
        }
        if let Some(ports) = &mut subset.ports {
            ports.sort_by_key(|port| (port.name.clone(), port.port, port.protocol.clone()));
        }
    }
    subsets.sort_by_key(|subset| key_of(subset.ports.as_deref().unwrap_or_default()));
    subsets
}

/// Leaves addresses out if there are too many: those that aren't ready first, of each subset its share. Says whether it did.
fn truncate(subsets: &mut [EndpointSubset]) -> bool {
    let count = |list: &Option<Vec<EndpointAddress>>| list.as_ref().map_or(0, Vec::len);
    let ready: usize = subsets.iter().map(|subset| count(&subset.addresses)).sum();
    let unready: usize = subsets.iter().map(|subset| count(&subset.not_ready_addresses)).sum();
    if ready + unready <= ADDRESSES_MAX {
        return false;
    }
    let cuts_ready = ready > ADDRESSES_MAX;
    let (room, total) = if cuts_ready { (ADDRESSES_MAX, ready) } else { (ADDRESSES_MAX - ready, unready) };
    let mut left = room;
    for subset in subsets {
        let list = if cuts_ready { &mut subset.addresses } else { &mut subset.not_ready_addresses };
        let share = (count(list) * room).div_ceil(total).min(left);
        if let Some(list) = list {
            list.truncate(share);
            left -= list.len();
        }
        *list = list.take().filter(|list| !list.is_empty());
        if cuts_ready {
            subset.not_ready_addresses = None;
        }
    }
    true
}

fn labels(service: &Service) -> BTreeMap<String, String> {
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    labels.remove(HEADLESS);
    if backend::is_headless(service) {
        labels.insert(HEADLESS.to_owned(), String::new());
    }
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    labels
}

/// The earliest change of a pod that led to this write; of an object that was not looked after before, when its Service was made.
fn trigger(
    service: &Service,
    pods: &[&Pod],
    current: Option<&Endpoints>,
    wanted: &[EndpointSubset],
) -> Option<Timestamp> {
    let is_own = |current: &&Endpoints| current.metadata.labels.iter().flatten().any(|(name, _)| name == MANAGED_BY);
    let Some(current) = current.filter(is_own) else {
        return service.metadata.creation_timestamp.as_ref().map(|time| time.0);
    };
    let has = |list: &Option<Vec<EndpointAddress>>, uid: &str| {
        list.iter().flatten().any(|one| one.target_ref.as_ref().and_then(|target| target.uid.as_deref()) == Some(uid))
    };
    let old = current.subsets.as_deref().unwrap_or_default();
    let is_known = |pod: &Pod| {
        let uid = &*pod.metadata.uid;
        let place = |subset: &EndpointSubset| {
            if pod.is_ready() { has(&subset.addresses, uid) } else { has(&subset.not_ready_addresses, uid) }
        };
        old.iter().any(place)
    };
    let is_in = |subsets: &[EndpointSubset], pod: &Pod| {
        let uid = &*pod.metadata.uid;
        subsets.iter().any(|subset| has(&subset.addresses, uid) || has(&subset.not_ready_addresses, uid))
    };
    // One that neither was there nor is now makes no difference.
    let matters = |pod: &&&Pod| !is_known(pod) && (is_in(old, pod) || is_in(wanted, pod));
    let changed = pods.iter().filter(matters).filter_map(|pod| {
        pod.status.condition("Ready").and_then(|ready| ready.last_transition_time.as_ref()).map(|time| time.0)
    });
    changed.min()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(name: &str, ready: &str, port: i32) -> Pod {
        let number = name.bytes().fold(0_u32, |sum, byte| sum * 7 + u32::from(byte)) % 60_000;
        let ip = format!("10.0.{}.{}", number / 250, number % 250);
        let conditions = json!([{"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T00:00:09Z"}]);
        let containers = json!([{"ports": [{"name": "http", "containerPort": port}]}]);
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "shop", "uid": name},
            "spec": {"nodeName": "n", "containers": containers},
            "status": {"phase": "Running", "podIPs": [{"ip": ip}], "conditions": conditions},
        }))
        .unwrap()
    }

    fn service(extra: Value) -> Service {
        let mut spec = json!({"clusterIP": "10.96.0.1", "ipFamilies": ["IPv4"],
            "ports": [{"name": "web", "port": 80, "targetPort": "http"}], "selector": {"app": "web"}});
        spec.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        let metadata = json!({"name": "web", "namespace": "shop", "creationTimestamp": "2026-01-01T00:00:00Z"});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
    }

    /// Subsets as words: ports, then names of those that are ready, then of those that aren't.
    fn words(endpoints: &Endpoints) -> String {
        let names = |list: &Option<Vec<EndpointAddress>>| {
            let names = list.iter().flatten().map(|one| one.target_ref.clone().unwrap().name.unwrap());
            names.collect::<Vec<_>>().join("")
        };
        let ports = |subset: &EndpointSubset| {
            subset.ports.iter().flatten().map(|port| port.port.to_string()).collect::<Vec<_>>().join("+")
        };
        let subset = |one: &EndpointSubset| {
            format!("{}:{}|{}", ports(one), names(&one.addresses), names(&one.not_ready_addresses))
        };
        endpoints.subsets.iter().flatten().map(subset).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn pods_are_packed_by_their_ports() {
        let (a, b, c) = (pod("a", "True", 8080), pod("b", "False", 8080), pod("c", "True", 9090));
        let made = plan(&service(json!({})), &[&a, &b, &c], None).unwrap();
        assert_eq!(words(&made), "8080:a|b 9090:c|");
        assert_eq!(made.metadata.labels.as_ref().unwrap()[MANAGED_BY], MANAGER);
        assert_eq!(made.metadata.annotations.as_ref().unwrap()[TRIGGER_TIME], "2026-01-01T00:00:00Z");
        assert_eq!(plan(&service(json!({})), &[&c, &b, &a], Some(&made)).map(|new| words(&new)), None);
        let changed = plan(&service(json!({})), &[&a], Some(&made)).unwrap();
        assert_eq!((words(&changed).as_str(), changed.metadata.annotations), ("8080:a|", None));
    }

    #[test]
    fn a_port_that_all_pods_have_is_in_a_subset_of_its_own() {
        let two = json!({"ports": [{"name": "web", "port": 80, "targetPort": "http"}, {"name": "m", "port": 81}]});
        let (a, c) = (pod("a", "True", 8080), pod("c", "True", 9090));
        let made = plan(&service(two.clone()), &[&a, &c], None).unwrap();
        assert_eq!(words(&made), "81:ac| 8080:a| 9090:c|");
        assert_eq!(words(&plan(&service(two), &[&a], None).unwrap()), "81+8080:a|", "the same addresses: one subset");
    }

    #[test]
    fn the_trigger_is_a_change_of_a_pod_that_makes_a_difference() {
        let at = |plan: &Endpoints| plan.metadata.annotations.as_ref().and_then(|all| all.get(TRIGGER_TIME).cloned());
        let (a, b) = (pod("a", "True", 8080), pod("b", "True", 8080));
        let web = service(json!({}));
        let made = plan(&web, &[&a, &b], None).unwrap();
        let mut ended = pod("z", "False", 8080);
        ended.status.phase = "Failed".into();
        let fewer = plan(&web, &[&a, &ended], Some(&made)).unwrap();
        assert_eq!(at(&fewer), None, "one that has ended was never there");
        let unready = plan(&web, &[&a, &pod("b", "False", 8080)], Some(&made)).unwrap();
        assert_eq!(at(&unready).as_deref(), Some("2026-01-01T00:00:09Z"));
        let foreign = Endpoints { subsets: made.subsets.clone(), ..Endpoints::default() };
        assert_eq!(at(&plan(&web, &[&a], Some(&foreign)).unwrap()).as_deref(), Some("2026-01-01T00:00:00Z"));
    }

    #[test]
    fn unready_pods_are_published_if_asked_for() {
        let b = pod("b", "False", 8080);
        let all = plan(&service(json!({"publishNotReadyAddresses": true})), &[&b], None).unwrap();
        assert_eq!(words(&all), "8080:b|");
        let headless = plan(&service(json!({"clusterIP": "None", "ports": []})), &[&b], None).unwrap();
        assert_eq!((words(&headless).as_str(), headless.metadata.labels.unwrap()[HEADLESS].as_str()), (":|b", ""));
        assert_eq!(words(&plan(&service(json!({"ports": []})), &[&b], None).unwrap()), "");
    }

    #[test]
    fn a_thousand_addresses_are_enough() {
        let pods: Vec<_> =
            (0..1_200).map(|n| pod(&format!("p{n}"), if n < 900 { "True" } else { "False" }, 1)).collect();
        let pods: Vec<&Pod> = pods.iter().collect();
        let made = plan(&service(json!({})), &pods, None).unwrap();
        let subset = &made.subsets.as_ref().unwrap()[0];
        assert_eq!(subset.addresses.as_ref().map(Vec::len), Some(900));
        assert_eq!(subset.not_ready_addresses.as_ref().map(Vec::len), Some(100));
        assert_eq!(made.metadata.annotations.as_ref().unwrap()[OVER_CAPACITY], "truncated");
        assert!(plan(&service(json!({})), &pods, Some(&made)).is_none());
    }
}
