//! ResourceClaim: devices that pods want, and which they got.

use std::borrow::Cow;

use serde_json::{Value, json};
use setpoint_api::BadValue;

use super::super::go_value;
use super::claim::{default_claim, validate_claim};
use super::claim_layout::SPEC;
use super::resourceclaim_status::{drop_deallocated, validate_status};
use crate::behaviour::{Behaviour, Context, keep, keep_all_but};
use crate::columns::Column;
use crate::edit::Edit;
use crate::errors::Errors;
use crate::kind::Kind;
use crate::metadata;
use crate::node::Node;

const COLUMNS: &[Column<'static>] = &[
    Column::NAME,
    Column::new("State", "string", |object, _| json!(state(object)))
        .about("A summary of the current state (allocated, pending, reserved, etc.)."),
    Column::AGE,
];

/// The decisions of ResourceClaim.
#[derive(Debug)]
pub struct ResourceClaim;

impl Behaviour for ResourceClaim {
    fn default(&self, object: &mut Value) {
        default_claim(object.ensure("spec"));
    }

    fn prepare_create(&self, object: &mut Value, _context: &Context) {
        object.remove("status");
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, _context: &Context) {
        keep(new, old, &["status"]);
    }

    fn prepare_status_update(&self, new: &mut Value, old: &Value, _context: &Context) {
        keep_all_but(new, old, &["status", "metadata", "kind", "apiVersion"]);
        metadata::keep_for_status(new, old);
        drop_deallocated(new, old);
    }

    fn validate(&self, object: &Node<'_>, errs: &mut Errors) {
        validate_claim(&object.get("spec"), errs);
    }

    fn check_update(&self, kind: &Kind, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        metadata::validate(new, kind.namespaced, self.name_rule(), errs);
        metadata::validate_update(new, old, errs);
        let spec = new.get("spec");
        if !spec.same(&old.get("spec")) {
            errs.invalid(&spec, BadValue::Json(go_value::laid_out(spec.value(), &SPEC)), "field is immutable");
        }
    }

    fn validate_status_update(&self, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        validate_status(new, old, errs);
    }

    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        match subresource {
            "status" => &["metadata", "spec"],
            _ => &["status"],
        }
    }

    fn columns(&self) -> Cow<'_, [Column<'_>]> {
        COLUMNS.into()
    }
}

fn state(claim: &Value) -> String {
    let deleted = claim["metadata"].has("deletionTimestamp");
    let allocated = claim.find(&["status", "allocation"]).is_some();
    let reserved =
        claim.find(&["status", "reservedFor"]).and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    let states = [
        deleted.then_some("deleted"),
        (!allocated && !deleted).then_some("pending"),
        allocated.then_some("allocated"),
        (allocated && reserved).then_some("reserved"),
    ];
    states.into_iter().flatten().collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{columns, create, create_fails, status_update_fails, update_fails};
    use super::*;

    const V1: &str = "resource.k8s.io/v1";

    fn claim(requests: Value) -> Value {
        json!({"metadata": {"name": "c"}, "spec": {"devices": {"requests": requests}}})
    }

    #[test]
    fn a_request_is_for_one_device() {
        let object = create(V1, "resourceclaims", claim(json!([{"name": "r", "exactly": {"deviceClassName": "gpu"}}])));
        let exactly = &object["spec"]["devices"]["requests"][0]["exactly"];
        assert_eq!(exactly, &json!({"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}));
        assert_eq!(columns(V1, "resourceclaims", &object), json!(["c", "pending", "<unknown>"]));
    }

    #[test]
    fn a_taint_is_tolerated_by_its_value_unless_the_claim_says_otherwise() {
        let tolerations = json!([{"key": "k", "value": "v"}]);
        let exactly = json!({"deviceClassName": "gpu", "tolerations": tolerations});
        let object = create(V1, "resourceclaims", claim(json!([{"name": "r", "exactly": exactly}])));
        assert_eq!(
            object["spec"]["devices"]["requests"][0]["exactly"]["tolerations"],
            json!([{"key": "k", "operator": "Equal", "value": "v"}])
        );
    }

    #[test]
    fn a_selector_is_about_a_device() {
        let selected = |text: &str| {
            claim(json!([{
                "name": "r", "exactly": {"deviceClassName": "gpu", "selectors": [{"cel": {"expression": text}}]},
            }]))
        };
        create(V1, "resourceclaims", selected("device.attributes['gpu.example.com'].model == 'x'"));
        create_fails(
            V1,
            "resourceclaims",
            selected("device.driver"),
            "spec.devices.requests[0].exactly.selectors[0].cel.expression: Invalid value: \"device.driver\": must evaluate \
             to bool or the unknown type, not string",
        );
    }

    #[test]
    fn what_is_asked_for_stays() {
        let body = |name: &str| claim(json!([{"name": name, "exactly": {"deviceClassName": "gpu"}}]));
        update_fails(
            V1,
            "resourceclaims",
            body("r"),
            body("s"),
            "spec: Invalid value: {\"Devices\":{\"Requests\":[{\"Name\":\"s\",\"Exactly\":{\"DeviceClassName\":\"gpu\",\
             \"Selectors\":null,\"AllocationMode\":\"ExactCount\",\"Count\":1,\"AdminAccess\":null,\"Tolerations\":null,\
             \"Capacity\":null},\"FirstAvailable\":null}],\"Constraints\":null,\"Config\":null}}: field is immutable",
        );
    }

    #[test]
    fn only_an_allocated_claim_is_reserved() {
        let mut new = claim(json!([]));
        new["status"] = json!({"reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]});
        status_update_fails(
            V1,
            "resourceclaims",
            claim(json!([])),
            new,
            "status.reservedFor: Forbidden: may not be specified when `allocated` is not set",
        );
    }
}
