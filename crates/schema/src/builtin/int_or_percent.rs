//! Numbers that may also be a share of something: `3` or `25%`.

use serde_json::Value;
use setpoint_api::{BadValue, name};

use crate::errors::Errors;
use crate::node::Node;

/// That the value is a number that isn't negative, or a percentage.
pub fn validate_positive(at: &Node<'_>, errs: &mut Errors) {
    match at.json() {
        Value::String(text) => {
            for complaint in name::percent(text) {
                errs.invalid(at, BadValue::json(at.json()), complaint);
            }
        }
        _ => validate_non_negative(at, errs),
    }
}

/// That a percentage is at most the whole.
pub fn validate_at_most_whole(at: &Node<'_>, errs: &mut Errors) {
    if percentage(at).is_some_and(|percent| percent > 100) {
        errs.invalid(at, BadValue::json(at.json()), "must not be greater than 100%");
    }
}

/// That a number isn't negative.
pub fn validate_non_negative(at: &Node<'_>, errs: &mut Errors) {
    let number = at.as_int().unwrap_or(0);
    if number < 0 {
        errs.invalid(at, number, "must be greater than or equal to 0");
    }
}

/// The number, or that before the percent sign; 0 for anything else.
pub fn amount(at: &Node<'_>) -> i64 {
    percentage(at).or(at.as_int()).unwrap_or_else(|| at.as_str().parse().unwrap_or(0))
}

fn percentage(at: &Node<'_>) -> Option<i64> {
    let digits = at.as_str().strip_suffix('%')?;
    let good = name::percent(at.as_str()).is_empty();
    good.then(|| digits.parse().unwrap_or(i64::MAX)) // so many digits that only "too much" matters
}
