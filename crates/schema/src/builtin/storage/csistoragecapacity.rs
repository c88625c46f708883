//! CSIStorageCapacity: how much a driver can still give, and where.

use setpoint_api::labels::ValueRules;
use setpoint_api::name;

use crate::behaviour::Behaviour;
use crate::builtin::core::{node_label, resource_list};
use crate::builtin::label_selector;
use crate::errors::Errors;
use crate::kind::Kind;
use crate::metadata;
use crate::node::Node;

/// The decisions of CSIStorageCapacity.
#[derive(Debug)]
pub struct CsiStorageCapacity;

impl Behaviour for CsiStorageCapacity {
    fn validate(&self, object: &Node<'_>, errs: &mut Errors) {
        label_selector::validate(&object.get("nodeTopology"), ValueRules::Strict, errs);
        let class = object.get("storageClassName");
        errs.invalid_each(&class, class.as_str(), name::dns1123_subdomain(class.as_str()));
        resource_list::validate_non_negative(&object.get("capacity"), errs);
    }

    fn check_update(&self, kind: &Kind, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        self.check_create(kind, new, errs);
        metadata::validate_update(new, old, errs);
        errs.immutable(&new.get("nodeTopology"), &old.get("nodeTopology"));
        errs.immutable(&new.get("storageClassName"), &old.get("storageClassName"));
    }

    fn warnings(&self, new: &Node<'_>, _old: Option<&Node<'_>>) -> Vec<String> {
        node_label::selector_warnings(&new.get("nodeTopology"))
    }

    fn allow_unconditional_update(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::testing::{create_fails, update_fails, warnings};

    const V1: &str = "storage.k8s.io/v1";

    #[test]
    fn a_capacity_is_of_a_class_and_not_negative() {
        create_fails(
            V1,
            "csistoragecapacities",
            json!({"metadata": {"name": "a"}, "storageClassName": "fast", "capacity": "-1"}),
            "capacity: Invalid value: \"-1\": must be greater than or equal to 0",
        );
        update_fails(
            V1,
            "csistoragecapacities",
            json!({"metadata": {"name": "a"}, "storageClassName": "fast"}),
            json!({"metadata": {"name": "a"}, "storageClassName": "slow"}),
            "storageClassName: Invalid value: \"slow\": field is immutable",
        );
    }

    #[test]
    fn an_old_label_warns() {
        let topology = json!({"matchLabels": {"failure-domain.beta.kubernetes.io/zone": "z"}});
        let body = json!({"metadata": {"name": "a"}, "storageClassName": "fast", "nodeTopology": topology});
        assert_eq!(
            warnings(V1, "csistoragecapacities", body),
            ["nodeTopology.matchLabels.failure-domain.beta.kubernetes.io/zone: deprecated since v1.17; use \
              \"topology.kubernetes.io/zone\" instead"]
        );
    }
}
