//! Kinds of the group `admissionregistration.k8s.io`.

use std::sync::Arc;

use crate::behaviour::Behaviour;
use crate::node::Node;

mod binding;
mod expression;
mod policy;
mod rule;
mod webhook;

pub use expression::Scope;

pub mod mutatingadmissionpolicy;
pub mod mutatingadmissionpolicybinding;
pub mod mutatingwebhookconfiguration;
pub mod validatingadmissionpolicy;
pub mod validatingadmissionpolicybinding;
pub mod validatingwebhookconfiguration;

/// Names that end so are kept for configurations that come from files.
const STATIC_SUFFIX: &str = ".static.k8s.io";

/// What the kinds of this group decide for themselves.
pub(super) fn behaviour(_version: &str, plural: &str) -> Option<Arc<dyn Behaviour>> {
    Some(match plural {
        "mutatingadmissionpolicies" => Arc::new(mutatingadmissionpolicy::MutatingAdmissionPolicy),
        "mutatingadmissionpolicybindings" => Arc::new(mutatingadmissionpolicybinding::MutatingAdmissionPolicyBinding),
        "mutatingwebhookconfigurations" => Arc::new(mutatingwebhookconfiguration::MutatingWebhookConfiguration),
        "validatingadmissionpolicies" => Arc::new(validatingadmissionpolicy::ValidatingAdmissionPolicy),
        "validatingadmissionpolicybindings" => {
            Arc::new(validatingadmissionpolicybinding::ValidatingAdmissionPolicyBinding)
        }
        "validatingwebhookconfigurations" => Arc::new(validatingwebhookconfiguration::ValidatingWebhookConfiguration),
        _ => return None,
    })
}

fn static_suffix_warnings(object: &Node<'_>) -> Vec<String> {
    if !object.get("metadata").str("name").ends_with(STATIC_SUFFIX) {
        return Vec::new();
    }
    vec![format!(
        "metadata.name: names ending with \"{STATIC_SUFFIX}\" are reserved for static manifest-based configurations and \
         cannot be managed via the API"
    )]
}
