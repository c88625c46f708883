//! ValidatingAdmissionPolicyBinding: where a validating policy holds, and with which parameters.

use serde_json::Value;
use std::borrow::Cow;
use std::collections::HashSet;

use super::binding::{COLUMNS, default_binding, validate_binding};
use super::rule::validate_match_resources;
use super::static_suffix_warnings;
use crate::behaviour::{Behaviour, Generation};
use crate::columns::Column;
use crate::errors::Errors;
use crate::kind::Kind;
use crate::metadata;
use crate::node::Node;

/// The decisions of ValidatingAdmissionPolicyBinding.
#[derive(Debug)]
pub struct ValidatingAdmissionPolicyBinding;

impl Behaviour for ValidatingAdmissionPolicyBinding {
    fn default(&self, object: &mut Value) {
        default_binding(object);
    }

    fn validate(&self, object: &Node<'_>, errs: &mut Errors) {
        let spec = object.get("spec");
        validate_binding(&spec, errs);
        validate_match_resources(&spec.get("matchResources"), errs);
        validate_actions(&spec.get("validationActions"), errs);
    }

    fn check_create(&self, kind: &Kind, object: &Node<'_>, errs: &mut Errors) {
        metadata::validate_generic(object, kind.namespaced, self.name_rule(), errs);
        self.validate(object, errs);
    }

    fn check_update(&self, kind: &Kind, new: &Node<'_>, _old: &Node<'_>, errs: &mut Errors) {
        self.check_create(kind, new, errs);
    }

    fn warnings(&self, new: &Node<'_>, _old: Option<&Node<'_>>) -> Vec<String> {
        static_suffix_warnings(new)
    }

    fn generation(&self) -> Generation {
        Generation::On(&["spec"])
    }

    fn allow_unconditional_update(&self) -> bool {
        false
    }

    fn columns(&self) -> Cow<'_, [Column<'_>]> {
        COLUMNS.into()
    }
}

fn validate_actions(actions: &Node<'_>, errs: &mut Errors) {
    let mut seen = HashSet::new();
    for action in actions.clone().into_items() {
        let text = action.as_str();
        if !matches!(text, "Deny" | "Warn" | "Audit") {
            errs.not_supported(&action, text, &["Audit", "Deny", "Warn"]);
        }
        if !seen.insert(text) {
            errs.duplicate(&action, text);
        }
    }
    if seen.contains("Deny") && seen.contains("Warn") {
        let detail = "must not contain both Deny and Warn (repeating the same validation failure information in the API \
                      response and headers serves no purpose)";
        errs.invalid_here(actions, detail);
    }
    if seen.is_empty() {
        errs.required(actions, "at least one validation action is required");
    }
}
