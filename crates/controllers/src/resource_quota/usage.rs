//! Amounts by name, and what one object takes of them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Service};
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
}
