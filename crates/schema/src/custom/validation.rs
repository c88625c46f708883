//! The rules for custom objects, in upstream's order: the schema, the scale, embedded objects, lists, rules in CEL.

use serde_json::Value;
use setpoint_api::{BadValue, FieldError, FieldErrorKind};

use super::behaviour::Scale;
use super::correlation::Correlation;
use super::part::Part;
use super::tree::Place;
use super::{check, duplicates, embedded, expressions, size};
use crate::errors::Errors;

/// What is wrong with a new object, metadata apart.
pub(super) fn check_create(object: &Value, root: Place<'_>, scale: Option<&Scale>, errs: &mut Errors) {
    errs.extend(check::check(object, Part::Place(root), None, ""));
    if let Some(scale) = scale {
        size::check_spec(object, scale, errs);
        size::check_status(object, scale, errs);
    }
    embedded::validate(object, root, errs);
    errs.extend(duplicates::check(object, root));
    check_expressions(object, None, root, errs);
}

/// What is wrong with an update, metadata apart. What did not change is not looked at again.
pub(super) fn check_update(new: &Value, old: &Value, root: Place<'_>, scale: Option<&Scale>, errs: &mut Errors) {
    let before = Correlation { old, new, place: root };
    errs.extend(check::check(new, Part::Place(root), Some(before), ""));
    if let Some(scale) = scale {
        size::check_spec(new, scale, errs);
        size::check_status(new, scale, errs);
    }
    embedded::validate(new, root, errs);
    if duplicates::check(old, root).is_empty() {
        errs.extend(duplicates::check(new, root));
    }
    check_expressions(new, Some(old), root, errs);
}

/// What is wrong with a write to `/status`, metadata apart.
pub(super) fn check_status_update(new: &Value, old: &Value, root: Place<'_>, scale: Option<&Scale>, errs: &mut Errors) {
    if let (Some(status), Some(place)) = (new.get("status"), root.field("status")) {
        let before = Correlation { old, new, place: root }.key("status");
        errs.extend(check::check(status, Part::Place(place), before, "status"));
    }
    if let Some(scale) = scale {
        size::check_status(new, scale, errs);
    }
    let found = duplicates::check(new, root);
    if !found.is_empty() && duplicates::check(old, root).is_empty() {
        errs.extend(found);
    }
    check_expressions(new, Some(old), root, errs);
}

/// Rules in CEL are only asked about objects of the right shape: they count on it.
fn check_expressions(new: &Value, old: Option<&Value>, root: Place<'_>, errs: &mut Errors) {
    if !root.node().below.validations {
        return;
    }
    if errs.any(is_blocking) {
        let detail = "some validation rules were not checked because the object was invalid; correct the existing errors \
                      to complete validation";
        let nil = setpoint_api::Path::nil();
        return errs.push(FieldError::invalid(&nil, BadValue::Json("null".to_owned()), detail));
    }
    let said = expressions::check(new, old, root);
    errs.extend(said.found);
    errs.forgive(said.forgiven);
}

fn is_blocking(error: &FieldError) -> bool {
    matches!(
        error.kind,
        FieldErrorKind::NotSupported
            | FieldErrorKind::Required
            | FieldErrorKind::TooLong
            | FieldErrorKind::TooMany
            | FieldErrorKind::TypeInvalid
    )
}
