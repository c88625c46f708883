//! LimitRange: bounds and defaults for what the pods and claims of a namespace ask for.

use std::collections::BTreeSet;

use serde_json::{Map, Value};
use setpoint_api::{Quantity, name};

use super::resource_list;
use crate::behaviour::{Behaviour, Context};
use crate::edit::Edit;
use crate::errors::Errors;
use crate::kind::Kind;
use crate::node::Node;

const TYPES: [&str; 3] = ["Pod", "Container", "PersistentVolumeClaim"];
const LISTS: [&str; 5] = ["default", "defaultRequest", "max", "maxLimitRequestRatio", "min"];
/// Above this an amount has no thousandths that fit 64 bits.
const MILLI_VALUE_MAX: i64 = i64::MAX / 1000;

/// The decisions of LimitRange.
#[derive(Debug)]
pub struct LimitRange;

impl Behaviour for LimitRange {
    fn default(&self, object: &mut Value) {
        let Some(spec) = object.child("spec") else { return };
        for limit in spec.items_mut("limits") {
            if limit.text("type") == "Container" {
                default_container(limit);
            }
            LISTS.iter().for_each(|list| resource_list::round_up(limit.child(list)));
        }
    }

    /// A range without a name takes its own uid for one.
    fn prepare_create(&self, object: &mut Value, _context: &Context) {
        let metadata = object.ensure("metadata");
        if metadata.has("uid") {
            let uid = metadata.text("uid").to_owned();
            metadata.default_to("name", uid);
        }
    }

    fn validate(&self, object: &Node<'_>, errs: &mut Errors) {
        let mut types = BTreeSet::new();
        for limit in object.get("spec").items("limits") {
            validate_type(&limit.get("type"), errs);
            if !types.insert(limit.str("type")) {
                errs.duplicate(&limit.get("type"), limit.str("type"));
            }
            validate_limit(&limit, errs);
        }
    }

    fn check_update(&self, kind: &Kind, new: &Node<'_>, _old: &Node<'_>, errs: &mut Errors) {
        self.check_create(kind, new, errs);
    }

    fn allow_create_on_update(&self) -> bool {
        true
    }
}

/// A container that asks for nothing gets the most or the least that is allowed.
fn default_container(limit: &mut Value) {
    fill_from(limit, "default", "max");
    fill_from(limit, "defaultRequest", "default");
    fill_from(limit, "defaultRequest", "min");
}

fn fill_from(limit: &mut Value, to: &str, from: &str) {
    let amounts = limit.get(from).and_then(Value::as_object).cloned().unwrap_or_default();
    if !limit.has(to) {
        limit.set(to, Map::new());
    }
    for (resource, amount) in amounts {
        limit[to].fill(&resource, amount);
    }
}

fn validate_type(at: &Node<'_>, errs: &mut Errors) {
    let complaints = name::qualified_name(at.as_str());
    if !complaints.is_empty() {
        errs.invalid_each(at, at.as_str(), complaints);
    } else if !at.as_str().contains('/') && !TYPES.contains(&at.as_str()) {
        errs.invalid(at, at.as_str(), "must be a standard limit type or fully qualified");
    }
}

fn validate_limit(limit: &Node<'_>, errs: &mut Errors) {
    let kind = limit.str("type");
    let pod = kind == "Pod";
    let mut names = BTreeSet::new();
    for list in ["max", "min", "default", "defaultRequest"] {
        if pod && list.starts_with("default") {
            if limit.count(list) > 0 {
                errs.forbidden(&limit.get(list), "may not be specified when `type` is 'Pod'");
            }
            continue;
        }
        validate_names(limit, list, &mut names, errs);
    }
    let bounded = |list| limit.get(list).entry("storage").is_set();
    if kind == "PersistentVolumeClaim" && !bounded("min") && !bounded("max") {
        let detail = "either minimum or maximum storage value is required, but neither was provided";
        errs.required(&limit.at_child("limits"), detail);
    }
    validate_names(limit, "maxLimitRequestRatio", &mut names, errs);
    names.into_iter().for_each(|resource| validate_amounts(limit, resource, pod, errs));
}

fn validate_names<'a>(limit: &Node<'a>, list: &'static str, names: &mut BTreeSet<&'a str>, errs: &mut Errors) {
    for (resource, at) in limit.entries(list) {
        match limit.str("type") {
            "Pod" | "Container" => resource_list::validate_container_name(&at, resource, errs),
            _ => resource_list::validate_name(&at, resource, errs),
        }
        names.insert(resource);
    }
}

/// The amounts of one resource fit together: min, default request, default, max, ratio.
fn validate_amounts<'a>(limit: &Node<'a>, resource: &'a str, pod: bool, errs: &mut Errors) {
    let at = |list: &'static str| limit.get(list).entry(resource);
    let amount = |list: &'static str| at(list).as_quantity();
    let (min, max, ratio) = (amount("min"), amount("max"), amount("maxLimitRequestRatio"));
    let default = amount("default").filter(|_| !pod);
    let request = amount("defaultRequest").filter(|_| !pod);
    // Each row: the smaller one and its name, the larger one and its name, where the error is, which of the two is shown.
    for (low, low_name, high, high_name, place, shown) in [
        (&min, "min", &max, "max", "min", "min"),
        (&min, "min", &request, "default request", "defaultRequest", "defaultRequest"),
        (&request, "default request", &max, "max", "defaultRequest", "defaultRequest"),
        (&request, "default request", &default, "default limit", "defaultRequest", "defaultRequest"),
        (&min, "min", &default, "default", "default", "min"),
        (&default, "default", &max, "max", "default", "max"),
    ] {
        if let (Some(low), Some(high)) = (low, high)
            && low > high
        {
            let detail = format!("{low_name} value {low} is greater than {high_name} value {high}");
            errs.invalid(&at(place), at(shown).json(), detail);
        }
    }
    if let Some(ratio) = &ratio {
        validate_ratio(&at("maxLimitRequestRatio"), ratio, min.zip(max), errs);
    }
    if let (Some(default), Some(request)) = (&default, &request)
        && !resource_list::allows_overcommit(resource)
        && default != request
    {
        let detail = format!("default value {default} must equal to defaultRequest value {request} in {resource}");
        errs.invalid_here(&at("defaultRequest"), detail);
    }
}

fn validate_ratio(at: &Node<'_>, ratio: &Quantity, bounds: Option<(Quantity, Quantity)>, errs: &mut Errors) {
    if *ratio < Quantity::from_milli(1000, ratio.format()) {
        errs.invalid_here(at, format!("ratio {ratio} is less than 1"));
    }
    let Some((min, max)) = bounds else { return };
    let exact = [ratio, &min, &max].iter().all(|amount| amount.value() < MILLI_VALUE_MAX);
    let number = |amount: &Quantity| if exact { amount.milli_value() as f64 } else { amount.value() as f64 };
    let most = number(&max) / number(&min);
    let actual = if exact { number(ratio) / 1000.0 } else { number(ratio) };
    if actual > most {
        errs.invalid_here(at, format!("ratio {ratio} is greater than max/min = {most:.6}"));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::testing::{create, create_fails};

    fn range(limits: serde_json::Value) -> serde_json::Value {
        json!({"metadata": {"name": "a"}, "spec": {"limits": limits}})
    }

    #[test]
    fn containers_get_defaults_from_bounds() {
        let limit =
            json!({"type": "Container", "max": {"cpu": "2"}, "min": {"memory": "1Gi"}, "default": {"memory": "2Gi"}});
        let object = create("v1", "limitranges", range(json!([limit])));
        assert_eq!(
            object["spec"]["limits"][0],
            json!({
                "type": "Container", "max": {"cpu": "2"}, "min": {"memory": "1Gi"},
                "default": {"cpu": "2", "memory": "2Gi"}, "defaultRequest": {"cpu": "2", "memory": "2Gi"},
            })
        );
    }

    #[test]
    fn a_range_needs_no_name_of_its_own() {
        let object = create("v1", "limitranges", json!({"metadata": {"uid": "1b4e28ba"}}));
        assert_eq!(object["metadata"]["name"], "1b4e28ba");
    }

    #[test]
    fn amounts_fit_together() {
        for (limit, expected) in [
            (
                json!({"type": "Pod", "min": {"cpu": "2"}, "max": {"cpu": "1"}}),
                "spec.limits[0].min[cpu]: Invalid value: \"2\": min value 2 is greater than max value 1",
            ),
            (
                json!({"type": "Pod", "default": {"cpu": "1"}}),
                "spec.limits[0].default: Forbidden: may not be specified when `type` is 'Pod'",
            ),
            (
                json!({"type": "Pod", "min": {"cpu": "1"}, "max": {"cpu": "3"}, "maxLimitRequestRatio": {"cpu": "4"}}),
                "spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: \"4\": ratio 4 is greater than max/min = 3.000000",
            ),
            (
                json!({"type": "PersistentVolumeClaim"}),
                "spec.limits[0].limits: Required value: either minimum or maximum storage value is required, but neither \
                 was provided",
            ),
            (
                json!({"type": "wibble"}),
                "spec.limits[0].type: Invalid value: \"wibble\": must be a standard limit type or fully qualified",
            ),
        ] {
            create_fails("v1", "limitranges", range(json!([limit])), expected);
        }
    }
}
