//! How much of a device there is, and in which portions it may be taken.

use setpoint_api::Quantity;

use super::bounded::set;
use crate::errors::Errors;
use crate::node::Node;

const OPTIONS_MAX: usize = 10;

/// A policy for portions needs a device that several claims may share.
pub(super) fn validate_capacity(capacity: &Node<'_>, shared: bool, errs: &mut Errors) {
    let policy = capacity.get("requestPolicy");
    if !policy.is_set() {
        return;
    }
    if !shared {
        return errs.forbidden(&policy, "allowMultipleAllocations must be true");
    }
    let (options, range) = (policy.get("validValues"), policy.get("validRange"));
    if !options.is_empty() && range.is_set() {
        let detail =
            "exactly one policy can be specified, cannot specify \"validValues\" and \"validRange\" at the same time";
        return errs.forbidden(&policy, detail);
    }
    let Some(total) = capacity.quantity("value") else { return };
    match policy.quantity("default") {
        None if !options.is_empty() => errs.required(&policy.get("default"), "required when validValues is defined"),
        None if range.is_set() => errs.required(&policy.get("default"), "required when validRange is defined"),
        Some(usual) if !options.is_empty() => validate_options(&options, &usual, &total, errs),
        Some(usual) if range.is_set() => validate_range(&range, &usual, &total, errs),
        _ => {}
    }
}

fn validate_options(options: &Node<'_>, usual: &Quantity, total: &Quantity, errs: &mut Errors) {
    let amounts: Vec<Option<Quantity>> = options.clone().into_items().map(|item| item.as_quantity()).collect();
    for (item, pair) in options.clone().into_items().skip(1).zip(amounts.windows(2)) {
        if pair[0] > pair[1] {
            errs.invalid(&item, shown(&pair[1]), "values must be sorted in ascending order");
        }
    }
    let key = |item: &Node<'_>| item.as_quantity().map_or(0, |amount| amount.value()).to_string();
    set(options, OPTIONS_MAX, errs, key, |item, errs| {
        if let Some(amount) = item.as_quantity().filter(|amount| amount > total) {
            errs.invalid(item, amount.to_string(), format!("option is larger than capacity value: {total}"));
        }
    });
    if !amounts.iter().flatten().any(|amount| amount == usual) {
        errs.invalid(options, usual.to_string(), "default value is not valid according to the requestPolicy");
    }
}

fn validate_range(range: &Node<'_>, usual: &Quantity, total: &Quantity, errs: &mut Errors) {
    let (at_min, at_max, at_step) = (range.get("min"), range.get("max"), range.get("step"));
    let Some(min) = at_min.as_quantity() else {
        return errs.required(&at_min, "required when validRange is defined");
    };
    let max = at_max.as_quantity();
    if min > *total {
        errs.invalid(&at_min, min.to_string(), format!("min is larger than capacity value: {total}"));
    }
    if *usual < min {
        errs.invalid(&at_min, usual.to_string(), format!("default is less than min: {min}"));
    }
    if let Some(max) = &max {
        if min > *max {
            errs.invalid(&at_max, min.to_string(), format!("min is larger than max: {max}"));
        }
        if max > total {
            errs.invalid(&at_max, max.to_string(), format!("max is larger than capacity value: {total}"));
        }
        if usual > max {
            errs.invalid(&at_max, usual.to_string(), format!("default is more than max: {max}"));
        }
    }
    let Some(step) = at_step.as_quantity() else { return };
    let mut first = min.clone();
    first.add(&step);
    if first > *total {
        let detail = format!("one step {first} is larger than capacity value: {total}");
        errs.invalid(&at_step, step.to_string(), detail);
    }
    for value in [Some(usual), max.as_ref()].into_iter().flatten() {
        let way = value.value().saturating_sub(min.value());
        if step.value() == 0 || way % step.value() != 0 {
            let detail = format!("value is not a multiple of a given step ({step}) from ({min})");
            errs.invalid(&at_step, value.to_string(), detail);
        }
    }
}

fn shown(amount: &Option<Quantity>) -> String {
    amount.as_ref().map(ToString::to_string).unwrap_or_default()
}
