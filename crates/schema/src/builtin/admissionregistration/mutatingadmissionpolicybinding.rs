//! MutatingAdmissionPolicyBinding: where a mutating policy holds, and with which parameters.

use std::borrow::Cow;

use serde_json::Value;

use super::binding::{COLUMNS, default_binding, validate_binding};
use super::rule::{validate_match_resources, validate_mutable_operations};
use super::static_suffix_warnings;
use crate::behaviour::{Behaviour, Generation};
use crate::columns::Column;
use crate::errors::Errors;
use crate::kind::Kind;
use crate::metadata;
use crate::node::Node;

/// The decisions of MutatingAdmissionPolicyBinding.
#[derive(Debug)]
pub struct MutatingAdmissionPolicyBinding;

impl Behaviour for MutatingAdmissionPolicyBinding {
    fn default(&self, object: &mut Value) {
        default_binding(object);
    }

    fn validate(&self, object: &Node<'_>, errs: &mut Errors) {
        let spec = object.get("spec");
        validate_binding(&spec, errs);
        validate_match_resources(&spec.get("matchResources"), errs);
        validate_mutable_operations(&spec.get("matchResources"), errs);
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
