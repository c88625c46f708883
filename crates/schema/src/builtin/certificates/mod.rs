//! Kinds of the group `certificates.k8s.io`.

use std::sync::Arc;

use crate::behaviour::Behaviour;

pub mod certificatesigningrequest;
mod conditions;
mod pem;
pub mod request;

/// What the kinds of this group decide for themselves.
pub(super) fn behaviour(_version: &str, plural: &str) -> Option<Arc<dyn Behaviour>> {
    Some(match plural {
        "certificatesigningrequests" => Arc::new(certificatesigningrequest::CertificateSigningRequest),
        _ => return None,
    })
}
