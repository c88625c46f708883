//! ResourceClaimTemplate: the claim that each pod gets of its own.

use std::borrow::Cow;

use serde_json::Value;
use setpoint_api::BadValue;

use super::super::go_value;
use super::claim::{default_claim, validate_claim};
use super::claim_layout::SPEC;
use crate::behaviour::Behaviour;
use crate::columns::Column;
use crate::edit::Edit;
use crate::errors::Errors;
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
        let template = spec.get("metadata");
        metadata::validate_annotations(&template.get("annotations"), errs);
        metadata::validate_labels(&template.get("labels"), errs);
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
    let metadata = ["name", "generateName", "namespace", "labels", "annotations", "ownerReferences", "finalizers"];
    let present = metadata.iter().filter(|field| template.json().has(field));
    let mut fields: Vec<(&str, String)> =
        present.map(|field| (*field, go_value::scalar(template.json().get(*field)))).collect();
    fields.push(("Spec", go_value::laid_out(spec.get("spec").value(), &SPEC)));
    BadValue::Json(go_value::structure(fields))
}
