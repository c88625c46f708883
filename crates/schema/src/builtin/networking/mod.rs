//! Kinds of the group `networking.k8s.io`.

use std::sync::Arc;

use crate::behaviour::Behaviour;

pub mod ingress;
pub mod ingress_backend;
pub mod ingressclass;
pub mod ipaddress;
pub mod networkpolicy;
pub mod servicecidr;

/// What the kinds of this group decide for themselves.
pub(super) fn behaviour(_version: &str, plural: &str) -> Option<Arc<dyn Behaviour>> {
    Some(match plural {
        "ingressclasses" => Arc::new(ingressclass::IngressClass),
        "ingresses" => Arc::new(ingress::Ingress),
        "ipaddresses" => Arc::new(ipaddress::IpAddress),
        "networkpolicies" => Arc::new(networkpolicy::NetworkPolicy),
        "servicecidrs" => Arc::new(servicecidr::ServiceCidr),
        _ => return None,
    })
}
