//! Amounts by name, and what one object takes of them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, ScopedResourceSelectorRequirement as Scope, Service};
use k8s_openapi::api::resource::v1::ResourceClaim;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use setpoint_api::quantity::{Format, Quantity};

/// Amounts by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage(pub BTreeMap<String, Quantity>);

impl Usage {
    /// Adds an amount.
    pub fn add(&mut self, name: &str, amount: &Quantity) {
        self.0.entry(name.to_owned()).or_insert(Quantity::ZERO).add(amount);
    }

    /// Adds so many.
    pub fn count(&mut self, name: &str, many: usize) {
        let many = i64::try_from(many).unwrap_or(i64::MAX);
        self.add(name, &Quantity::new(many, Format::DecimalSi));
    }

    /// Adds all of another.
    pub fn extend(&mut self, other: &Usage) {
        other.0.iter().for_each(|(name, amount)| self.add(name, amount));
    }

    /// Takes the larger of each amount.
    pub fn at_least(&mut self, other: &Usage) {
        for (name, amount) in &other.0 {
            let mine = self.0.entry(name.clone()).or_insert(Quantity::ZERO);
            if *mine < *amount {
                *mine = amount.clone();
            }
        }
    }

    /// Amounts as objects have them; what can't be read counts as none.
    pub fn read(amounts: Option<&BTreeMap<String, Text>>) -> Usage {
        let parsed = amounts.into_iter().flatten();
        Usage(parsed.filter_map(|(name, text)| Some((name.clone(), Quantity::parse(&text.0).ok()?))).collect())
    }
}

/// What a service takes.
pub fn of_service(service: &Service) -> Usage {
    let mut usage = Usage::default();
    usage.count("services", 1);
    let spec = service.spec.clone().unwrap_or_default();
    let ports = spec.ports.unwrap_or_default();
    match spec.type_.as_deref() {
        Some("NodePort") => usage.count("services.nodeports", ports.len()),
        Some("LoadBalancer") => {
            usage.count("services.loadbalancers", 1);
            let allocated = match spec.allocate_load_balancer_node_ports {
                Some(false) => ports.iter().filter(|port| port.node_port.is_some_and(|port| port != 0)).count(),
                Some(true) | None => ports.len(),
            };
            usage.count("services.nodeports", allocated);
        }
        _ => {}
    }
    usage
}

/// What names of amounts of devices end with.
pub const OF_DEVICE_CLASS: &str = ".deviceclass.resource.k8s.io/devices";

/// A claim for all devices counts as one for the most that an allocation can have.
const DEVICES_MAX: i64 = 32;

/// What a claim of devices takes of each class, at most.
pub fn of_device_claim(claim: &ResourceClaim) -> Usage {
    let many = |mode: Option<&str>, count: Option<i64>| match mode {
        Some("All") => DEVICES_MAX,
        Some("ExactCount") => count.unwrap_or(0),
        _ => 0,
    };
    let mut usage = Usage::default();
    let requests = claim.spec.devices.iter().flat_map(|devices| devices.requests.iter().flatten());
    for request in requests {
        let mut most: BTreeMap<&str, i64> = BTreeMap::new();
        let exactly = request
            .exactly
            .iter()
            .map(|one| (one.device_class_name.as_str(), many(one.allocation_mode.as_deref(), one.count)));
        let first = request
            .first_available
            .iter()
            .flatten()
            .map(|one| (one.device_class_name.as_str(), many(one.allocation_mode.as_deref(), one.count)));
        for (class, many) in exactly.chain(first) {
            let mine = most.entry(class).or_default();
            *mine = many.max(*mine);
        }
        for (class, many) in most {
            usage.add(&format!("{class}{OF_DEVICE_CLASS}"), &Quantity::new(many, Format::DecimalSi));
        }
    }
    usage
}

/// Whether a claim is one of those that a scope means: by the classes of attributes that it has, or is about to have.
pub fn is_in(claim: &PersistentVolumeClaim, scope: &Scope) -> bool {
    if scope.scope_name != "VolumeAttributesClass" {
        return false;
    }
    let (spec, status) = (claim.spec.as_ref(), claim.status.as_ref());
    let wanted = spec.and_then(|spec| spec.volume_attributes_class_name.as_deref());
    let current = status.and_then(|status| status.current_volume_attributes_class_name.as_deref());
    let target = status.and_then(|status| status.modify_volume_status.as_ref());
    let target = target.and_then(|target| target.target_volume_attributes_class_name.as_deref());
    let classes: Vec<&str> = [wanted, current, target].into_iter().flatten().filter(|name| !name.is_empty()).collect();
    let is_listed = |class: &&str| scope.values.iter().flatten().any(|value| value == class);
    match scope.operator.as_str() {
        "Exists" => !classes.is_empty(),
        "DoesNotExist" => classes.is_empty(),
        "In" => classes.iter().any(is_listed),
        "NotIn" => classes.is_empty() || !classes.iter().all(is_listed),
        _ => false,
    }
}

/// What a claim takes, in all and of its class.
pub fn of_claim(claim: &PersistentVolumeClaim) -> Usage {
    const OF_CLASS: &str = ".storageclass.storage.k8s.io/";
    let mut usage = Usage::default();
    let class = claim
        .metadata
        .annotations
        .iter()
        .flatten()
        .find(|(name, _)| *name == "volume.beta.kubernetes.io/storage-class");
    let class = class.map(|(_, class)| class.as_str());
    let spec = claim.spec.clone().unwrap_or_default();
    let class = class.or(spec.storage_class_name.as_deref()).unwrap_or_default();
    let allocated = claim.status.as_ref().and_then(|status| status.allocated_resources.as_ref());
    let mut asked = Usage::read(spec.resources.as_ref().and_then(|resources| resources.requests.as_ref()));
    asked.at_least(&Usage::read(allocated));
    usage.count("persistentvolumeclaims", 1);
    if !class.is_empty() {
        usage.count(&format!("{class}{OF_CLASS}persistentvolumeclaims"), 1);
    }
    if let Some(storage) = asked.0.get("storage") {
        usage.add("requests.storage", storage);
        if !class.is_empty() {
            usage.add(&format!("{class}{OF_CLASS}requests.storage"), storage);
        }
    }
    usage
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn said(usage: &Usage) -> Value {
        usage.0.iter().map(|(name, amount)| (name.clone(), json!(amount.to_string()))).collect()
    }

    #[test]
    fn services_take_node_ports_and_balancers() {
        let ports = json!([{"port": 1}, {"port": 2, "nodePort": 30000}]);
        for (spec, usage) in [
            (json!({"ports": ports}), json!({"services": "1"})),
            (json!({"type": "NodePort", "ports": ports}), json!({"services": "1", "services.nodeports": "2"})),
            (
                json!({"type": "LoadBalancer", "ports": ports, "allocateLoadBalancerNodePorts": false}),
                json!({"services": "1", "services.loadbalancers": "1", "services.nodeports": "1"}),
            ),
        ] {
            let service: Service = serde_json::from_value(json!({"spec": spec})).unwrap();
            assert_eq!(said(&of_service(&service)), usage);
        }
    }

    #[test]
    fn claims_take_storage_of_their_class() {
        let claim: PersistentVolumeClaim = serde_json::from_value(json!({
            "spec": {"storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}}},
            "status": {"allocatedResources": {"storage": "2Gi"}}}))
        .unwrap();
        assert_eq!(
            said(&of_claim(&claim)),
            json!({
            "persistentvolumeclaims": "1", "requests.storage": "2Gi",
            "fast.storageclass.storage.k8s.io/persistentvolumeclaims": "1", "fast.storageclass.storage.k8s.io/requests.storage": "2Gi"})
        );
    }

    #[test]
    fn claims_of_devices_count_for_the_most_that_they_may_get() {
        let exactly =
            |mode: &str, count: i64| json!({"deviceClassName": "gpu", "allocationMode": mode, "count": count});
        let first = json!([exactly("ExactCount", 2), exactly("ExactCount", 3)]);
        for (request, devices) in [
            (json!({"name": "r", "exactly": exactly("ExactCount", 2)}), "2"),
            (json!({"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}}), "32"),
            (json!({"name": "r", "firstAvailable": first}), "3"),
        ] {
            let claim = json!({"metadata": {}, "spec": {"devices": {"requests": [request]}}});
            let claim: ResourceClaim = serde_json::from_value(claim).unwrap();
            assert_eq!(said(&of_device_claim(&claim)), json!({"gpu.deviceclass.resource.k8s.io/devices": devices}));
        }
    }

    #[test]
    fn scopes_choose_claims_by_their_classes_of_attributes() {
        let claim = |class: Value| -> PersistentVolumeClaim {
            serde_json::from_value(json!({"spec": {"volumeAttributesClassName": class}})).unwrap()
        };
        let scope = |operator: &str| -> Scope {
            serde_json::from_value(
                json!({"scopeName": "VolumeAttributesClass", "operator": operator, "values": ["gold"]}),
            )
            .unwrap()
        };
        for (class, operator, expected) in [
            (json!("gold"), "In", true),
            (json!("silver"), "In", false),
            (json!("silver"), "NotIn", true),
            (Value::Null, "Exists", false),
            (Value::Null, "DoesNotExist", true),
        ] {
            assert_eq!(is_in(&claim(class.clone()), &scope(operator)), expected, "{class} {operator}");
        }
    }
}
