//! Kinds of the group `flowcontrol.apiserver.k8s.io`.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::Value;

use crate::behaviour::{Behaviour, keep_all_but};
use crate::edit::Edit;
use crate::errors::Errors;
use crate::node::Node;

pub mod flowschema;
pub mod prioritylevelconfiguration;

/// What the kinds of this group decide for themselves.
pub(super) fn behaviour(_version: &str, plural: &str) -> Option<Arc<dyn Behaviour>> {
    Some(match plural {
        "flowschemas" => Arc::new(flowschema::FlowSchema),
        "prioritylevelconfigurations" => Arc::new(prioritylevelconfiguration::PriorityLevelConfiguration),
        _ => return None,
    })
}

/// A write to `/status` leaves everything else as it was, metadata too.
fn keep_all_but_status(new: &mut Value, old: &Value) {
    let managed = new.find(&["metadata", "managedFields"]).cloned();
    let version = new.find(&["metadata", "resourceVersion"]).cloned();
    keep_all_but(new, old, &["status", "kind", "apiVersion"]);
    let metadata = new.ensure("metadata");
    metadata.set_or_remove("managedFields", managed);
    metadata.set_or_remove("resourceVersion", version);
}

fn validate_conditions(object: &Node<'_>, errs: &mut Errors) {
    let mut seen = HashSet::new();
    for condition in object.get("status").items("conditions") {
        let ty = condition.get("type");
        if !seen.insert(ty.as_str()) {
            errs.duplicate(&ty, ty.as_str());
        }
        if ty.is_empty() {
            errs.required(&ty, "");
        }
    }
}
