//! CSINode: the storage drivers that run on a node.

use std::borrow::Cow;

use serde_json::{Value, json};
use setpoint_api::name;

use super::parameters::validate_driver_name;
use crate::behaviour::Behaviour;
use crate::columns::Column;
use crate::edit::Edit;
use crate::errors::Errors;
use crate::internal_form::shown;
use crate::kind::Kind;
use crate::node::Node;

/// Longest id that a driver gives a node.
const NODE_ID_BYTES_MAX: usize = 256;

const COLUMNS: &[Column<'static>] = &[
    Column::NAME,
    Column::new("Drivers", "integer", |object, _| {
        json!(object.find(&["spec", "drivers"]).and_then(Value::as_array).map_or(0, Vec::len))
    })
    .about("Drivers indicates the number of CSI drivers registered on the node"),
    Column::AGE,
];

/// The decisions of CSINode.
#[derive(Debug)]
pub struct CsiNode;

impl Behaviour for CsiNode {
    fn validate(&self, object: &Node<'_>, errs: &mut Errors) {
        let mut names = Vec::new();
        for driver in object.get("spec").items("drivers") {
            validate_driver(&driver, names.contains(&driver.str("name")), errs);
            names.push(driver.str("name"));
        }
    }

    fn check_update(&self, kind: &Kind, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        self.check_create(kind, new, errs);
        let (new, old) = (new.get("spec"), old.get("spec"));
        for before in old.items("drivers") {
            for driver in new.items("drivers").filter(|driver| driver.str("name") == before.str("name")) {
                let same = ["nodeID", "topologyKeys"].iter().all(|field| driver.get(field).same(&before.get(field)));
                if !same {
                    // The limit is left out of the comparison and so of the message.
                    let mut value = driver.json().clone();
                    value.remove("allocatable");
                    errs.invalid(&new.get("drivers"), shown(&driver.with_value(&value)), "field is immutable");
                }
            }
        }
    }

    fn allow_unconditional_update(&self) -> bool {
        false
    }

    fn columns(&self) -> Cow<'_, [Column<'_>]> {
        COLUMNS.into()
    }
}

fn validate_driver(driver: &Node<'_>, doubled: bool, errs: &mut Errors) {
    validate_driver_name(&driver.get("name"), errs);
    let id = driver.get("nodeID");
    if id.is_empty() {
        errs.required(&id, "");
    }
    if id.as_str().len() > NODE_ID_BYTES_MAX {
        errs.invalid_here(&id, format!("must be {NODE_ID_BYTES_MAX} characters or less"));
    }
    let count = driver.get("allocatable").get("count");
    if count.as_int().is_some_and(|count| count < 0) {
        errs.invalid_here(&count, "must be greater than or equal to 0");
    }
    if doubled {
        errs.duplicate(&driver.get("name"), driver.str("name"));
    }
    let mut keys = Vec::new();
    for key in driver.strings("topologyKeys") {
        if key.is_empty() {
            errs.required(driver, "");
        }
        if keys.contains(&key) {
            errs.duplicate(driver, key);
        }
        keys.push(key);
        errs.invalid_each(driver, key, name::qualified_name(key));
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{create_fails, update, update_fails};
    use super::*;

    const V1: &str = "storage.k8s.io/v1";

    fn node(drivers: Value) -> Value {
        json!({"metadata": {"name": "n"}, "spec": {"drivers": drivers}})
    }

    #[test]
    fn drivers_are_named_once_and_know_the_node() {
        for (drivers, expected) in [
            (json!([{"name": "d", "nodeID": ""}]), "spec.drivers[0].nodeID: Required value"),
            (
                json!([{"name": "d", "nodeID": "1"}, {"name": "d", "nodeID": "2"}]),
                "spec.drivers[1].name: Duplicate value: \"d\"",
            ),
            (
                json!([{"name": "d", "nodeID": "1", "allocatable": {"count": -1}}]),
                "spec.drivers[0].allocatable.count: Invalid value: -1: must be greater than or equal to 0",
            ),
        ] {
            create_fails(V1, "csinodes", node(drivers), expected);
        }
    }

    #[test]
    fn only_the_limit_of_a_driver_may_change() {
        let old = || node(json!([{"name": "d", "nodeID": "1"}]));
        update(V1, "csinodes", old(), node(json!([{"name": "d", "nodeID": "1", "allocatable": {"count": 5}}])));
        update_fails(
            V1,
            "csinodes",
            old(),
            node(json!([{"name": "d", "nodeID": "2"}])),
            "spec.drivers: Invalid value: {\"Name\":\"d\",\"NodeID\":\"2\",\"TopologyKeys\":null,\"Allocatable\":null}: \
             field is immutable",
        );
    }
}
