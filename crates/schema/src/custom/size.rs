//! The numbers that the scale subresource reads: whole, not negative, and small enough for a Scale.

use serde_json::Value;
use setpoint_api::{BadValue, FieldError, Path};

use super::behaviour::{Scale, steps};
use crate::errors::Errors;

/// The rules for the desired size.
pub(super) fn check_spec(object: &Value, scale: &Scale, errs: &mut Errors) {
    check_count(object, &scale.spec_replicas, errs);
}

/// The rules for the actual size and the selector.
pub(super) fn check_status(object: &Value, scale: &Scale, errs: &mut Errors) {
    check_count(object, &scale.status_replicas, errs);
    if let Some(path) = &scale.selector
        && let Err(detail) = find(object, path, "string", Value::is_string)
    {
        errs.push(FieldError::invalid(&Path::nil(), "", detail).at(path.as_str()));
    }
}

fn check_count(object: &Value, path: &str, errs: &mut Errors) {
    let (count, detail) = match find(object, path, "int64", Value::is_i64) {
        Err(detail) => (0, detail),
        Ok(None) => return,
        Ok(Some(value)) => match value.as_i64().unwrap_or(0) {
            count @ ..0 => (count, "should be a non-negative integer".to_owned()),
            count if count > i64::from(i32::MAX) => (count, format!("should be less than or equal to {}", i32::MAX)),
            _ => return,
        },
    };
    errs.push(FieldError::invalid(&Path::nil(), BadValue::Int(count), detail).at(path));
}

/// The value at a path, or that something on the way or at its end is of another type than it should be.
fn find<'a>(
    object: &'a Value,
    path: &str,
    wanted: &str,
    fits: fn(&Value) -> bool,
) -> Result<Option<&'a Value>, String> {
    let steps = steps(path);
    let shown = |value: &Value, way: &[String], wanted: &str| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        format!(".{} accessor error: {text} is of the type {}, expected {wanted}", way.join("."), go_type(value))
    };
    let mut at = object;
    for (index, step) in steps.iter().enumerate() {
        match at {
            Value::Null => return Ok(None),
            Value::Object(fields) => match fields.get(step) {
                Some(inner) => at = inner,
                None => return Ok(None),
            },
            other => return Err(shown(other, &steps[..=index], "map[string]interface{}")),
        }
    }
    if fits(at) { Ok(Some(at)) } else { Err(shown(at, &steps, wanted)) }
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}
