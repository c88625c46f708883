//! The slices that show hand-made Endpoints: one for each family and set of ports.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{EndpointAddress, Endpoints};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use crate::backend::{Family, TRIGGER_TIME};
use crate::endpoint_slice::plan::{MANAGED_BY, Plan, PortKey, SERVICE_NAME, key_of};
use crate::endpoints::plan::normal;

/// What mirrored slices say who looks after them.
pub const MANAGER: &str = "endpointslicemirroring-controller.k8s.io";

/// Most addresses of a subset that are shown.
const ADDRESSES_MAX: usize = 1_000;

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// What slices should show.
#[derive(Default)]
pub struct Wanted {
    slices: BTreeMap<(Family, PortKey), (Vec<EndpointPort>, Vec<Endpoint>)>,
    invalid: usize,
    skipped: usize,
}

impl Wanted {
    /// What users should know about addresses that are not shown.
    pub fn complaints(&self) -> Vec<(&'static str, String)> {
        let mut all = Vec::new();
        if self.invalid > 0 {
            let note = format!("Skipped {} invalid IP addresses when mirroring to EndpointSlices", self.invalid);
            all.push(("InvalidIPAddress", note));
        }
        if self.skipped > self.invalid {
            let skipped = self.skipped;
            let note = format!(
                "A max of {ADDRESSES_MAX} addresses can be mirrored to EndpointSlices per Endpoints subset. {skipped} addresses were skipped"
            );
            all.push(("TooManyAddressesToMirror", note));
        }
        all
    }
}

/// Whether Endpoints are shown as slices. Those of the system are slices already, or are no endpoints at all.
pub fn is_mirrored(endpoints: &Endpoints) -> bool {
    let metadata = &endpoints.metadata;
    let skip = metadata.labels.as_ref().and_then(|labels| labels.get("endpointslice.kubernetes.io/skip-mirror"));
    let is_lock =
        metadata.annotations.as_ref().is_some_and(|all| all.contains_key("control-plane.alpha.kubernetes.io/leader"));
    skip.is_none_or(|skip| skip != "true") && !is_lock && metadata.deletion_timestamp.is_none()
}

/// What slices should show.
pub fn wanted(endpoints: &Endpoints) -> Wanted {
    let mut wanted = Wanted::default();
    for subset in normal(endpoints.subsets.clone().unwrap_or_default()) {
        let ports = subset.ports.into_iter().flatten().map(|port| EndpointPort {
            name: Some(port.name.unwrap_or_default()),
            port: Some(port.port),
            protocol: Some(port.protocol.unwrap_or_else(|| "TCP".to_owned())),
            app_protocol: port.app_protocol,
        });
        let ports: Vec<_> = ports.collect();
        let ready = subset.addresses.into_iter().flatten().map(|address| (address, true));
        let unready = subset.not_ready_addresses.into_iter().flatten().map(|address| (address, false));
        let mut room = ADDRESSES_MAX;
        for (address, is_ready) in ready.chain(unready) {
            let Ok(ip) = address.ip.parse::<IpAddr>() else {
                wanted.invalid += usize::from(room > 0);
                wanted.skipped += 1;
                continue;
            };
            if room == 0 {
                wanted.skipped += 1;
                continue;
            }
            room -= 1;
            let family = if ip.is_ipv4() { Family::V4 } else { Family::V6 };
            let slice = wanted.slices.entry((family, key_of(&ports))).or_insert_with(|| (ports.clone(), Vec::new()));
            slice.1.push(endpoint(address, ip, is_ready));
        }
    }
    wanted
}

fn endpoint(address: EndpointAddress, ip: IpAddr, is_ready: bool) -> Endpoint {
    Endpoint {
        addresses: vec![ip.to_string()],
        conditions: Some(EndpointConditions { ready: Some(is_ready), ..EndpointConditions::default() }),
        hostname: address.hostname.filter(|name| !name.is_empty()),
        node_name: address.node_name,
        target_ref: address.target_ref,
        ..Endpoint::default()
    }
}

/// What to do with the slices that are there.
pub fn plan(endpoints: &Endpoints, owner: &OwnerReference, wanted: Wanted, slices: &[Arc<EndpointSlice>]) -> Plan {
    let mut plan = Plan::default();
    let mut free: Vec<_> = slices.to_vec();
    for ((family, key), (ports, shown)) in wanted.slices {
        let fits = |slice: &Arc<EndpointSlice>| {
            slice.address_type == family.as_str() && key_of(slice.ports.as_deref().unwrap_or_default()) == key
        };
        let old = free.iter().position(fits).map(|at| free.remove(at));
        let metadata = old.as_ref().map(|slice| slice.metadata.clone());
        let new = EndpointSlice {
            metadata: describe(endpoints, owner, metadata),
            address_type: family.as_str().to_owned(),
            endpoints: Some(shown),
            ports: Some(ports),
        };
        match old {
            Some(old) if is_same(&old, &new) => {}
            Some(_) => plan.update.push(new),
            None => plan.create.push(new),
        }
    }
    plan.delete = free;
    plan
}

fn describe(endpoints: &Endpoints, owner: &OwnerReference, old: Option<ObjectMeta>) -> ObjectMeta {
    let name = endpoints.metadata.name.clone().unwrap_or_default();
    let mut labels = endpoints.metadata.labels.clone().unwrap_or_default();
    labels.insert(SERVICE_NAME.to_owned(), name.clone());
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    let mut annotations = endpoints.metadata.annotations.clone().unwrap_or_default();
    annotations.retain(|name, _| name != TRIGGER_TIME && name != LAST_APPLIED);
    let base = old.unwrap_or_else(|| ObjectMeta { generate_name: Some(format!("{name}-")), ..ObjectMeta::default() });
    ObjectMeta {
        labels: Some(labels),
        annotations: Some(annotations).filter(|all| !all.is_empty()),
        owner_references: Some(vec![owner.clone()]),
        namespace: endpoints.metadata.namespace.clone(),
        ..base
    }
}

fn is_same(old: &EndpointSlice, new: &EndpointSlice) -> bool {
    let (one, other) = (&old.metadata, &new.metadata);
    let mut endpoints = old.endpoints.clone().unwrap_or_default();
    for endpoint in &mut endpoints {
        if let Some(target) = &mut endpoint.target_ref {
            target.resource_version = None;
        }
    }
    Some(endpoints) == new.endpoints
        && one.labels == other.labels
        && one.annotations.clone().unwrap_or_default() == other.annotations.clone().unwrap_or_default()
        && one.owner_references == other.owner_references
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn endpoints(subsets: Value) -> Endpoints {
        let metadata = json!({"name": "db", "namespace": "shop", "uid": "e", "labels": {"tier": "data"},
            "annotations": {"note": "x", LAST_APPLIED: "{}"}});
        serde_json::from_value(json!({"metadata": metadata, "subsets": subsets})).unwrap()
    }

    fn owner() -> OwnerReference {
        OwnerReference { uid: "e".to_owned(), ..OwnerReference::default() }
    }

    #[test]
    fn each_family_and_set_of_ports_has_a_slice() {
        let ports = json!([{"name": "sql", "port": 5432}]);
        let addresses = json!([{"ip": "10.0.0.1"}, {"ip": "fd00::1"}, {"ip": "nonsense"}]);
        let made =
            endpoints(json!([{"addresses": addresses, "notReadyAddresses": [{"ip": "10.0.0.2"}], "ports": ports}]));
        let wanted = wanted(&made);
        assert_eq!(
            wanted.complaints(),
            [("InvalidIPAddress", "Skipped 1 invalid IP addresses when mirroring to EndpointSlices".to_owned())]
        );
        let plan = plan(&made, &owner(), wanted, &[]);
        let kinds: Vec<_> = plan
            .create
            .iter()
            .map(|slice| (slice.address_type.as_str(), slice.endpoints.as_ref().map_or(0, Vec::len)))
            .collect();
        assert_eq!(kinds, [("IPv4", 2), ("IPv6", 1)]);
        let metadata = serde_json::to_value(&plan.create[0].metadata).unwrap();
        assert_eq!(metadata["labels"], json!({"tier": "data", SERVICE_NAME: "db", MANAGED_BY: MANAGER}));
        assert_eq!(metadata["annotations"], json!({"note": "x"}));
    }

    #[test]
    fn a_slice_that_shows_the_same_is_left_alone() {
        let made = endpoints(json!([{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 1}]}]));
        let slices: Vec<_> = plan(&made, &owner(), wanted(&made), &[]).create.into_iter().map(Arc::new).collect();
        let again = plan(&made, &owner(), wanted(&made), &slices);
        assert_eq!((again.create.len(), again.update.len(), again.delete.len()), (0, 0, 0));
        let changed = endpoints(json!([{"addresses": [{"ip": "10.0.0.9"}], "ports": [{"port": 1}]}]));
        let change = plan(&changed, &owner(), wanted(&changed), &slices);
        assert_eq!((change.create.len(), change.update.len(), change.delete.len()), (0, 1, 0));
        let none = plan(&endpoints(json!([])), &owner(), wanted(&endpoints(json!([]))), &slices);
        assert_eq!((none.create.len(), none.update.len(), none.delete.len()), (0, 0, 1));
    }

    #[test]
    fn those_of_the_system_are_not_shown() {
        let mut made = endpoints(json!([]));
        assert!(is_mirrored(&made));
        let skip = ("endpointslice.kubernetes.io/skip-mirror".to_owned(), "true".to_owned());
        made.metadata.labels = Some([skip].into());
        assert!(!is_mirrored(&made));
    }
}
