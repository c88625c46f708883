//! ServiceCIDR: a range that the addresses of services are taken from.

use std::borrow::Cow;

use serde_json::{Value, json};
use setpoint_api::ip::{self, Cidr};
use setpoint_api::{BadValue, Path};

use super::super::go_value;
use crate::behaviour::{Behaviour, Context, keep, keep_all_but};
use crate::columns::Column;
use crate::edit::Edit;
use crate::errors::Errors;
use crate::kind::Kind;
use crate::metadata;
use crate::node::Node;

const IMMUTABLE: &str = "field is immutable";

const COLUMNS: &[Column<'static>] = &[
    Column::NAME,
    Column::new("CIDRs", "string", |object, _| json!(cidrs(object).join(",")))
        .about_field("io.k8s.api.networking.v1.ServiceCIDRSpec", "cidrs"),
    Column::AGE,
];

/// The decisions of ServiceCIDR.
#[derive(Debug)]
pub struct ServiceCidr;

impl Behaviour for ServiceCidr {
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

    fn validate(&self, object: &Node<'_>, errs: &mut Errors) {
        validate_cidrs(&object.get("spec"), errs);
    }

    fn check_update(&self, _kind: &Kind, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        metadata::validate_update(new, old, errs);
        let (new, old) = (new.get("spec"), old.get("spec"));
        let before: Vec<&str> = old.strings("cidrs").collect();
        let changed = |errs: &mut Errors| {
            for (item, _) in new.items("cidrs").zip(&before).filter(|(item, before)| item.as_str() != **before) {
                errs.invalid(&item, item.as_str(), IMMUTABLE);
            }
        };
        match (before.len(), new.count("cidrs")) {
            (1, 2) => {
                changed(errs);
                validate_cidrs(&new, errs);
            }
            (old, new) if old == new => changed(errs),
            _ => errs.invalid(&new.get("cidrs"), list(&new), IMMUTABLE),
        }
    }

    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        if subresource == "status" { &["metadata", "spec"] } else { &["status"] }
    }

    fn columns(&self) -> Cow<'_, [Column<'_>]> {
        COLUMNS.into()
    }
}

/// One or two ranges, the second of the other family.
fn validate_cidrs(spec: &Node<'_>, errs: &mut Errors) {
    let at = spec.get("cidrs");
    match spec.count("cidrs") {
        0 => return errs.required(&at, "at least one CIDR required"),
        1 | 2 => {}
        _ => {
            let shown = go_value::object([("CIDRs", at.json().clone())]);
            return errs.invalid(&at, shown, "may only hold up to 2 values");
        }
    }
    for item in spec.items("cidrs") {
        errs.extend(ip::validate_cidr(&Path::root(&item.path()), item.as_str()));
    }
    let families: Vec<Option<bool>> = spec
        .strings("cidrs")
        .map(|text| Cidr::parse_sloppy(text).map(|cidr| cidr.address.to_canonical().is_ipv4()))
        .collect();
    if let [Some(first), Some(second)] = families[..]
        && first == second
    {
        let detail = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
        errs.invalid(&at, list(spec), detail);
    }
}

fn list(spec: &Node<'_>) -> BadValue {
    BadValue::json(spec.get("cidrs").json())
}

fn cidrs(object: &Value) -> Vec<&str> {
    object.find(&["spec", "cidrs"]).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{columns, create, create_fails, try_create, update, update_fails};
    use super::*;

    const API: &str = "networking.k8s.io/v1";

    fn ranges(cidrs: &[&str]) -> Value {
        json!({"metadata": {"name": "r"}, "spec": {"cidrs": cidrs}})
    }

    #[test]
    fn an_ipv4_range_in_the_clothes_of_ipv6_is_of_ipv4() {
        let mapped = ranges(&["::ffff:10.0.0.0/112", "2001:db8::/112"]);
        let errors = try_create(API, "servicecidrs", mapped).1.unwrap();
        assert!(errors.starts_with("spec.cidrs[0]: Invalid value"), "{errors}");
    }

    #[test]
    fn a_range_for_each_family() {
        let object = create(API, "servicecidrs", ranges(&["10.0.0.0/24", "2001:db8::/112"]));
        assert_eq!(columns(API, "servicecidrs", &object), json!(["r", "10.0.0.0/24,2001:db8::/112", "<unknown>"]));
        create_fails(
            API,
            "servicecidrs",
            ranges(&["10.0.0.0/24", "10.0.1.0/24"]),
            "spec.cidrs: Invalid value: [\"10.0.0.0/24\",\"10.0.1.0/24\"]: may specify no more than one IP for each IP \
             family, i.e 192.168.0.0/24 and 2001:db8::/64",
        );
        create_fails(
            API,
            "servicecidrs",
            ranges(&["10.0.0.0/24", "10.0.1.0/24", "10.0.2.0/24"]),
            "spec.cidrs: Invalid value: {\"CIDRs\":[\"10.0.0.0/24\",\"10.0.1.0/24\",\"10.0.2.0/24\"]}: \
             may only hold up to 2 values",
        );
    }

    #[test]
    fn a_family_can_be_added_and_nothing_else_changed() {
        update(API, "servicecidrs", ranges(&["10.0.0.0/24"]), ranges(&["10.0.0.0/24", "2001:db8::/112"]));
        update_fails(
            API,
            "servicecidrs",
            ranges(&["10.0.0.0/24"]),
            ranges(&["10.0.1.0/24"]),
            "spec.cidrs[0]: Invalid value: \"10.0.1.0/24\": field is immutable",
        );
        update_fails(
            API,
            "servicecidrs",
            ranges(&["10.0.0.0/24", "2001:db8::/112"]),
            ranges(&["10.0.0.0/24"]),
            "spec.cidrs: Invalid value: [\"10.0.0.0/24\"]: field is immutable",
        );
    }
}
