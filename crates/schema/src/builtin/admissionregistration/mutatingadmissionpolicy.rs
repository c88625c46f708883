//! MutatingAdmissionPolicy: changes in CEL that objects get on their way.

use std::borrow::Cow;

use serde_json::Value;

use super::expression::{self, Scope};
use super::policy::{conditions_unchanged, count_cell, default_policy, param_kind_cell, validate_policy};
use super::rule::{one_of, validate_mutable_operations};
use super::static_suffix_warnings;
use crate::behaviour::{Behaviour, Generation};
use crate::cel::Type;
use crate::columns::Column;
use crate::errors::Errors;
use crate::kind::Kind;
use crate::metadata;
use crate::node::Node;

const REINVOCATION_POLICIES: &[&str] = &["IfNeeded", "Never"];
const PATCH_TYPES: &[&str] = &["ApplyConfiguration", "JSONPatch"];

const COLUMNS: &[Column<'static>] = &[
    Column::NAME,
    Column::new("Mutations", "integer", |object, _| count_cell(object, "mutations"))
        .about("Mutation indicates the number of mutations rules defined in this configuration"),
    Column::new("ParamKind", "string", param_kind_cell)
        .about("ParamKind specifies the kind of resources used to parameterize this policy"),
    Column::AGE,
];

/// The decisions of MutatingAdmissionPolicy.
#[derive(Debug)]
pub struct MutatingAdmissionPolicy;

impl Behaviour for MutatingAdmissionPolicy {
    fn default(&self, object: &mut Value) {
        default_policy(object);
    }

    fn check_create(&self, kind: &Kind, object: &Node<'_>, errs: &mut Errors) {
        metadata::validate_generic(object, kind.namespaced, self.name_rule(), errs);
        validate_spec(&object.get("spec"), false, errs);
    }

    fn check_update(&self, kind: &Kind, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        metadata::validate_generic(new, kind.namespaced, self.name_rule(), errs);
        validate_spec(&new.get("spec"), conditions_unchanged(new, old), errs);
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

fn validate_spec(spec: &Node<'_>, conditions_unchanged: bool, errs: &mut Errors) {
    let mut scope = validate_policy(spec, conditions_unchanged, validate_mutable_operations, errs);
    // Mutations know variables even where there are none, as upstream.
    if spec.count("variables") == 0 {
        scope.declare_variables();
    }
    if spec.count("mutations") == 0 {
        errs.required(&spec.get("mutations"), "mutations must contain at least one item");
    }
    for mutation in spec.items("mutations") {
        validate_mutation(&mutation, &scope, errs);
    }
    let reinvocation = spec.get("reinvocationPolicy");
    if reinvocation.is_empty() {
        errs.required(&reinvocation, "");
    } else {
        one_of(&reinvocation, REINVOCATION_POLICIES, errs);
    }
}

fn validate_mutation(mutation: &Node<'_>, scope: &Scope, errs: &mut Errors) {
    let (apply, patch, kind) =
        (mutation.get("applyConfiguration"), mutation.get("jsonPatch"), mutation.get("patchType"));
    match kind.as_str() {
        "" => errs.required(&kind, ""),
        "JSONPatch" => {
            let wanted = Type::list(Type::Named("JSONPatch"));
            validate_patch(&patch, wanted, "must be specified when patchType is JSONPatch", scope, errs);
            if apply.is_set() {
                errs.invalid(&apply, "{applyConfiguration}", "must not be specified when patchType is JSONPatch");
            }
        }
        "ApplyConfiguration" => {
            let wanted = Type::Named("Object");
            validate_patch(&apply, wanted, "must be specified when patchType is ApplyConfiguration", scope, errs);
            if patch.is_set() {
                errs.invalid(&patch, "{jsonPatch}", "must not be specified when patchType is ApplyConfiguration");
            }
        }
        other => errs.not_supported(&kind, other, PATCH_TYPES),
    }
}

fn validate_patch(patch: &Node<'_>, wanted: Type, missing: &str, scope: &Scope, errs: &mut Errors) {
    let text = patch.get("expression");
    let trimmed = text.as_str().trim();
    if !patch.is_set() {
        errs.required(patch, missing);
    } else if trimmed.is_empty() {
        errs.required(&text, "");
    } else {
        expression::check(&text, trimmed, &scope.with_patch_types(), &[wanted], errs);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::testing::create_fails;

    #[test]
    fn mutations_know_variables_even_where_there_are_none() {
        let rule =
            json!({"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]});
        let mutation = json!({"patchType": "JSONPatch", "jsonPatch": {"expression": "variables.n"}});
        create_fails(
            "admissionregistration.k8s.io/v1",
            "mutatingadmissionpolicies",
            json!({"metadata": {"name": "p"}, "spec": {
                "matchConstraints": {"resourceRules": [rule]}, "mutations": [mutation], "reinvocationPolicy": "Never",
            }}),
            "spec.mutations[0].jsonPatch.expression: Invalid value: \"variables.n\": compilation failed: ERROR: \
             <input>:1:10: undefined field 'n'\n | variables.n\n | .........^",
        );
    }
}
