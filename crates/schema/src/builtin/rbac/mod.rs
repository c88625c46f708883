//! Kinds of the group `rbac.authorization.k8s.io`.

use std::sync::Arc;

use setpoint_api::name;

use crate::behaviour::Behaviour;
use crate::name_rule::NameRule;

pub mod clusterrole;
pub mod clusterrolebinding;
pub mod role;
pub mod rolebinding;

/// The API group of roles, which bindings name again.
const GROUP: &str = "rbac.authorization.k8s.io";

/// Names of roles and bindings may be anything that stands in a path, such as `system:node`.
const NAMES: NameRule = NameRule { name: name::path_segment_name, prefix: name::path_segment_name };

/// What the kinds of this group decide for themselves.
pub(super) fn behaviour(_version: &str, plural: &str) -> Option<Arc<dyn Behaviour>> {
    Some(match plural {
        "clusterrolebindings" => Arc::new(clusterrolebinding::ClusterRoleBinding),
        "clusterroles" => Arc::new(clusterrole::ClusterRole),
        "rolebindings" => Arc::new(rolebinding::RoleBinding),
        "roles" => Arc::new(role::Role),
        _ => return None,
    })
}
