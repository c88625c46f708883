//! Selectors of devices in CEL, and configuration that only drivers understand.

use serde_json::Value;
use setpoint_api::BadValue;

use super::bounded::each;
use super::names::validate_driver;
use crate::cel::{self, Environment, Type};
use crate::errors::Errors;
use crate::node::Node;

pub(super) const CONFIGS_MAX: usize = 32;
const SELECTORS_MAX: usize = 32;
const EXPRESSION_BYTES_MAX: usize = 10 * 1024;
pub(super) const PARAMETERS_BYTES_MAX: usize = 10 * 1024;

/// Selectors: each an expression about one device.
pub(super) fn validate_selectors(selectors: &Node<'_>, errs: &mut Errors) {
    each(selectors, SELECTORS_MAX, errs, |selector, errs| {
        let cel = selector.get("cel");
        if cel.is_set() {
            validate_expression(&cel.get("expression"), errs);
        } else {
            errs.required(&cel, "");
        }
    });
}

/// Configuration for a driver, as it is.
pub(super) fn validate_configuration(config: &Node<'_>, parameters_kept: bool, errs: &mut Errors) {
    let opaque = config.get("opaque");
    if !opaque.is_set() {
        return errs.required(&opaque, "");
    }
    validate_driver(&opaque.get("driver"), errs);
    validate_raw(&opaque.get("parameters"), parameters_kept, PARAMETERS_BYTES_MAX, errs);
}

/// An object that we don't look into, of a bounded size unless it was there before.
pub(super) fn validate_raw(at: &Node<'_>, kept: bool, bytes_max: usize, errs: &mut Errors) {
    match at.value() {
        None => errs.required(at, ""),
        Some(value) if !kept && value.to_string().len() > bytes_max => errs.too_long(at, bytes_max),
        Some(Value::Object(_)) => {}
        Some(_) => errs.invalid(at, BadValue::from("<value omitted>"), "must be a valid JSON object"),
    }
}

fn validate_expression(at: &Node<'_>, errs: &mut Errors) {
    if at.as_str().len() > EXPRESSION_BYTES_MAX {
        return errs.too_long(at, EXPRESSION_BYTES_MAX);
    }
    match cel::compile(at.as_str(), &device_environment()) {
        Err(detail) => errs.invalid(at, at.as_str(), detail),
        Ok(Type::Bool) => {}
        Ok(other) => errs.invalid(at, at.as_str(), format!("must evaluate to bool or the unknown type, not {other}")),
    }
}

/// What an expression sees of a device.
fn device_environment() -> Environment {
    let map = |value: Type| Type::map(Type::String, value);
    let fields = [
        ("driver", Type::String),
        ("allowMultipleAllocations", Type::Bool),
        ("attributes", map(map(Type::Dyn))),
        ("capacity", map(map(Type::Named("kubernetes.Quantity")))),
    ];
    let fields = fields.map(|(name, ty)| (name.to_owned(), ty)).to_vec();
    let mut environment = Environment::default();
    environment.declare("device", Type::object("kubernetes.DRADevice", fields));
    environment
}
