//! Kinds of the core group.

use std::sync::Arc;

use crate::behaviour::Behaviour;

pub mod binding;
pub mod componentstatus;
pub mod configmap;
pub mod endpoints;
pub mod event;
pub mod limitrange;
pub mod namespace;
pub mod node;
pub mod node_label;
pub mod persistentvolume;
pub mod persistentvolumeclaim;
pub mod pod;
pub mod pod_template;
pub mod replicationcontroller;
pub mod resource_list;
pub mod resourcequota;
pub mod secret;
pub mod service;
pub mod serviceaccount;
pub mod toleration;

/// What the kinds of this group decide for themselves.
pub(super) fn behaviour(_version: &str, plural: &str) -> Option<Arc<dyn Behaviour>> {
    Some(match plural {
        "configmaps" => Arc::new(configmap::ConfigMap),
        "namespaces" => Arc::new(namespace::Namespace),
        "pods" => Arc::new(pod::Pod),
        "podtemplates" => Arc::new(pod_template::PodTemplate),
        "secrets" => Arc::new(secret::Secret),
        "serviceaccounts" => Arc::new(serviceaccount::ServiceAccount),
        "limitranges" => Arc::new(limitrange::LimitRange),
        "resourcequotas" => Arc::new(resourcequota::ResourceQuota),
        "services" => Arc::new(service::Service),
        "endpoints" => Arc::new(endpoints::Endpoints),
        "events" => Arc::new(event::Event::Core),
        "nodes" => Arc::new(node::Node),
        "persistentvolumes" => Arc::new(persistentvolume::PersistentVolume),
        "persistentvolumeclaims" => Arc::new(persistentvolumeclaim::PersistentVolumeClaim),
        "replicationcontrollers" => Arc::new(replicationcontroller::ReplicationController),
        "componentstatuses" => Arc::new(componentstatus::ComponentStatus),
        "bindings" => Arc::new(binding::Binding),
        _ => return None,
    })
}
