//! ValidatingAdmissionPolicy: rules in CEL that requests must keep.

use std::borrow::Cow;
use std::collections::HashSet;

use serde_json::{Value, json};
use setpoint_api::{BadValue, name};

use super::super::{conditions, go_value};
use super::expression::{self, Scope};
use super::policy::{conditions_unchanged, count_cell, default_policy, param_kind_cell, validate_policy};
use super::rule::one_of;
use super::static_suffix_warnings;
use crate::behaviour::{Behaviour, Context, Generation, keep, keep_all_but};
use crate::cel::Type;
use crate::columns::Column;
use crate::edit::Edit;
use crate::errors::Errors;
use crate::kind::Kind;
use crate::metadata;
use crate::node::Node;

const AUDIT_ANNOTATIONS_MAX: usize = 20;
const AUDIT_EXPRESSION_BYTES_MAX: usize = 5 * 1024;
const REASONS: &[&str] = &["Forbidden", "Invalid", "RequestEntityTooLarge"];

const COLUMNS: &[Column<'static>] = &[
    Column::NAME,
    Column::new("Validations", "integer", |object, _| count_cell(object, "validations"))
        .about("Validations indicates the number of validation rules defined in this configuration"),
    Column::new("ParamKind", "string", param_kind_cell)
        .about("ParamKind specifies the kind of resources used to parameterize this policy"),
    Column::AGE,
];

/// The decisions of ValidatingAdmissionPolicy.
#[derive(Debug)]
pub struct ValidatingAdmissionPolicy;

impl Behaviour for ValidatingAdmissionPolicy {
    fn default(&self, object: &mut Value) {
        default_policy(object);
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
    }

    fn check_create(&self, kind: &Kind, object: &Node<'_>, errs: &mut Errors) {
        metadata::validate_generic(object, kind.namespaced, self.name_rule(), errs);
        validate_spec(object, false, errs);
    }

    fn check_update(&self, kind: &Kind, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        metadata::validate_generic(new, kind.namespaced, self.name_rule(), errs);
        validate_spec(new, conditions_unchanged(new, old), errs);
    }

    fn check_status_update(&self, _kind: &Kind, new: &Node<'_>, _old: &Node<'_>, errs: &mut Errors) {
        validate_status(&new.get("status"), errs);
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

    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        match subresource {
            "status" => &["spec", "metadata"],
            _ => &["status"],
        }
    }

    fn columns(&self) -> Cow<'_, [Column<'_>]> {
        COLUMNS.into()
    }
}

fn validate_spec(object: &Node<'_>, conditions_unchanged: bool, errs: &mut Errors) {
    let spec = object.get("spec");
    let scope = validate_policy(&spec, conditions_unchanged, |_, _| {}, errs);
    if spec.count("validations") == 0 && spec.count("auditAnnotations") == 0 {
        for field in ["validations", "auditAnnotations"] {
            errs.required(&spec.get(field), "validations or auditAnnotations must contain at least one item");
        }
        return;
    }
    for validation in spec.items("validations") {
        validate_validation(&validation, &scope, errs);
    }
    validate_audit_annotations(object, &spec, &scope, errs);
}

fn validate_validation(validation: &Node<'_>, scope: &Scope, errs: &mut Errors) {
    let text = validation.get("expression");
    if text.as_str().trim().is_empty() {
        errs.required(&text, "expression is not specified");
    } else {
        expression::check(&text, text.as_str(), scope, &[Type::Bool], errs);
    }
    let explains = validation.get("messageExpression");
    if !explains.as_str().trim().is_empty() {
        expression::check(&explains, explains.as_str(), &scope.without_authorizer(), &[Type::String], errs);
    } else if !explains.is_empty() {
        errs.invalid_here(&explains, "must be non-empty if specified");
    }
    let message = validation.get("message");
    let trimmed = message.as_str().trim();
    if trimmed.is_empty() && !message.is_empty() {
        errs.invalid_here(&message, "must be non-empty if specified");
    } else if trimmed.contains(['\n', '\r']) {
        errs.invalid_here(&message, "must not contain line breaks");
    }
    one_of(&validation.get("reason"), REASONS, errs);
}

fn validate_audit_annotations(object: &Node<'_>, spec: &Node<'_>, scope: &Scope, errs: &mut Errors) {
    let mut keys = HashSet::new();
    let all = spec.get("auditAnnotations");
    if spec.count("auditAnnotations") > AUDIT_ANNOTATIONS_MAX {
        let detail = format!("must not have more than {AUDIT_ANNOTATIONS_MAX} auditAnnotations");
        errs.invalid(&all, shown_annotations(&all), detail);
    }
    let policy = object.get("metadata").str("name");
    for annotation in all.into_items() {
        let key = annotation.get("key");
        if policy.is_empty() {
            errs.invalid_here(&key, "requires metadata.name be non-empty");
        } else {
            let full = format!("{policy}/{}", key.as_str());
            errs.invalid_each(&key, &full, name::qualified_name(&full));
        }
        validate_audit_value(&annotation.get("valueExpression"), scope, errs);
        if !keys.insert(key.as_str()) {
            errs.duplicate(&key, key.as_str());
        }
    }
}

fn validate_audit_value(at: &Node<'_>, scope: &Scope, errs: &mut Errors) {
    let trimmed = at.as_str().trim();
    if trimmed.is_empty() {
        errs.required(at, "valueExpression is not specified");
    } else if trimmed.len() > AUDIT_EXPRESSION_BYTES_MAX {
        errs.required(at, format!("must not exceed {AUDIT_EXPRESSION_BYTES_MAX} bytes in length"));
    } else {
        expression::check_shown_as(at, trimmed, at.as_str(), scope, &[Type::String, Type::Null], errs);
    }
}

fn shown_annotations(all: &Node<'_>) -> BadValue {
    let shown = all.clone().into_items().map(|annotation| {
        let fields = [("Key", "key"), ("ValueExpression", "valueExpression")];
        go_value::object(fields.map(|(go, field)| (go, json!(annotation.str(field))))).to_string()
    });
    BadValue::Json(format!("[{}]", shown.collect::<Vec<_>>().join(",")))
}

fn validate_status(status: &Node<'_>, errs: &mut Errors) {
    for warning in status.get("typeChecking").items("expressionWarnings") {
        if warning.str("warning").is_empty() {
            errs.required(&warning.get("warning"), "");
        }
        if warning.str("fieldRef").trim().is_empty() {
            errs.required(&warning.get("fieldRef"), "");
        }
    }
    conditions::validate(&status.get("conditions"), errs);
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{columns, create, create_fails, status_update_fails, update};
    use super::*;

    const V1: &str = "admissionregistration.k8s.io/v1";

    fn policy(validations: Value) -> Value {
        let rule =
            json!({"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]});
        json!({
            "metadata": {"name": "p"},
            "spec": {"matchConstraints": {"resourceRules": [rule]}, "validations": validations},
        })
    }

    #[test]
    fn a_condition_is_whole() {
        let mut new = policy(json!([{"expression": "true"}]));
        new["status"] = json!({"conditions": [{"type": "Ready", "status": "True", "reason": "R", "message": "m"}]});
        status_update_fails(
            V1,
            "validatingadmissionpolicies",
            policy(json!([{"expression": "true"}])),
            new,
            "status.conditions[0].lastTransitionTime: Required value",
        );
    }

    #[test]
    fn a_policy_fails_closed_and_matches_equivalent_requests_by_default() {
        let object = create(V1, "validatingadmissionpolicies", policy(json!([{"expression": "true"}])));
        assert_eq!(object["spec"]["failurePolicy"], "Fail");
        assert_eq!(object["spec"]["matchConstraints"]["matchPolicy"], "Equivalent");
        assert_eq!(object["spec"]["matchConstraints"]["resourceRules"][0]["scope"], "*");
        assert_eq!(columns(V1, "validatingadmissionpolicies", &object), json!(["p", 1, "<unset>", "<unknown>"]));
    }

    #[test]
    fn a_policy_has_something_to_do() {
        create_fails(
            V1,
            "validatingadmissionpolicies",
            policy(json!([])),
            "[spec.validations: Required value: validations or auditAnnotations must contain at least one item, \
             spec.auditAnnotations: Required value: validations or auditAnnotations must contain at least one item]",
        );
    }

    #[test]
    fn an_expression_is_true_or_false_and_knows_its_variables() {
        create_fails(
            V1,
            "validatingadmissionpolicies",
            policy(json!([{"expression": "1 + 1"}])),
            "spec.validations[0].expression: Invalid value: \"1 + 1\": must evaluate to bool but got int",
        );
        create_fails(
            V1,
            "validatingadmissionpolicies",
            policy(json!([{"expression": "params.x == 1"}])),
            "spec.validations[0].expression: Invalid value: \"params.x == 1\": compilation failed: ERROR: <input>:1:1: \
             undeclared reference to 'params' (in container '')\n | params.x == 1\n | ^",
        );
    }

    #[test]
    fn a_change_of_the_rules_moves_the_generation() {
        let (old, new) = (policy(json!([{"expression": "true"}])), policy(json!([{"expression": "false"}])));
        assert_eq!(update(V1, "validatingadmissionpolicies", old.clone(), new)["metadata"]["generation"], 2);
        assert_eq!(update(V1, "validatingadmissionpolicies", old.clone(), old)["metadata"]["generation"], 1);
    }
}
