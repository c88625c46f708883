//! Kinds of the group `apps`.

use std::sync::Arc;

use crate::behaviour::Behaviour;

mod claim_templates;
pub mod controllerrevision;
pub mod daemonset;
pub mod deployment;
mod replicas;
pub mod replicaset;
pub mod statefulset;
pub(super) mod workload;

/// What the kinds of this group decide for themselves.
pub(super) fn behaviour(_version: &str, plural: &str) -> Option<Arc<dyn Behaviour>> {
    Some(match plural {
        "controllerrevisions" => Arc::new(controllerrevision::ControllerRevision),
        "daemonsets" => Arc::new(daemonset::DaemonSet),
        "deployments" => Arc::new(deployment::Deployment),
        "replicasets" => Arc::new(replicaset::ReplicaSet),
        "statefulsets" => Arc::new(statefulset::StatefulSet),
        _ => return None,
    })
}
