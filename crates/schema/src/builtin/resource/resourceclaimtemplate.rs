//! ResourceClaimTemplate: the claim that each pod gets of its own.

use std::borrow::Cow;

use serde_json::Value;
use setpoint_api::BadValue;

use super::super::core::pod::volumes::validate_template_metadata;
use super::super::go_value;
use super::claim::{default_claim, validate_claim};
use super::claim_layout::SPEC;
use crate::behaviour::Behaviour;
use crate::columns::Column;
use crate::edit::Edit;
use crate::errors::Errors;
use crate::internal_form::compact;
use crate::kind::Kind;
use crate::metadata;
use crate::node::Node;

const COLUMNS: &[Column<'static>] = &[Column::NAME, Column::AGE];

/// The decisions of ResourceClaimTemplate.
#[derive(Debug)]
pub struct ResourceClaimTemplate;

impl Behaviour for ResourceClaimTemplate {
    fn default(&self, object: &mut Value) {
        default_claim(object.ensure("spec").ensure("spec"));
    }

    fn validate(&self, object: &Node<'_>, errs: &mut Errors) {
        let spec = object.get("spec");
        validate_template_metadata(&spec.get("metadata"), errs);
        validate_claim(&spec.get("spec"), errs);
    }

    fn check_update(&self, kind: &Kind, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        self.check_create(kind, new, errs);
        metadata::validate_update(new, old, errs);
        let spec = new.get("spec");
        if !spec.same(&old.get("spec")) {
            errs.invalid(&spec, shown(&spec), "field is immutable");
        }
    }

    fn columns(&self) -> Cow<'_, [Column<'_>]> {
        COLUMNS.into()
    }
}

/// The metadata of the claim stands beside its spec.
fn shown(spec: &Node<'_>) -> BadValue {
    let template = spec.get("metadata");
    let metadata = compact(template.value(), template.ty());
    let fields = metadata.strip_prefix('{').and_then(|text| text.strip_suffix('}')).filter(|text| !text.is_empty());
    let fields = fields.map(|text| format!("{text},")).unwrap_or_default();
    let claim = go_value::laid_out(spec.get("spec").value(), &SPEC);
    BadValue::Json(format!("{{{fields}\"Spec\":{claim}}}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::testing::{create_fails, update_fails};
    use super::*;

    const V1: &str = "resource.k8s.io/v1";

    fn template(metadata: Value) -> Value {
        let requests = json!([{"name": "r", "exactly": {"deviceClassName": "gpu"}}]);
        json!({"metadata": {"name": "t"}, "spec": {"metadata": metadata, "spec": {"devices": {"requests": requests}}}})
    }

    #[test]
    fn a_claim_brings_labels_and_annotations_and_nothing_of_its_own() {
        for (field, value, shown) in
            [("name", json!("x"), "name"), ("uid", json!("x"), "uID"), ("finalizers", json!(["a/b"]), "finalizers")]
        {
            let mut metadata = json!({});
            metadata.set(field, value);
            let expected = format!("spec.metadata.{shown}: Forbidden: cannot be set");
            create_fails(V1, "resourceclaimtemplates", template(metadata), &expected);
        }
    }

    #[test]
    fn a_template_is_for_good_and_shown_as_upstream_declares_it() {
        update_fails(
            V1,
            "resourceclaimtemplates",
            template(json!({})),
            template(json!({"annotations": {"a": "b"}, "labels": {"l": "m"}})),
            "spec: Invalid value: {\"labels\":{\"l\":\"m\"},\"annotations\":{\"a\":\"b\"},\"Spec\":{\"Devices\":{\"Requests\":\
             [{\"Name\":\"r\",\"Exactly\":{\"DeviceClassName\":\"gpu\",\"Selectors\":null,\"AllocationMode\":\"ExactCount\",\"Count\":1,\
             \"AdminAccess\":null,\"Tolerations\":null,\"Capacity\":null},\"FirstAvailable\":null}],\"Constraints\":null,\
             \"Config\":null}}}: field is immutable",
        );
    }
}
