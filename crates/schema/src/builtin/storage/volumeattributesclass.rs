//! VolumeAttributesClass: properties of volumes that can change while they are in use.

use std::borrow::Cow;

use super::parameters::{validate_parameters, validate_provisioner};
use crate::behaviour::Behaviour;
use crate::columns::{Column, field};
use crate::errors::Errors;
use crate::node::Node;

const COLUMNS: &[Column<'static>] = &[
    Column::NAME,
    Column::new("DriverName", "string", |object, _| field(object, &["driverName"]))
        .about_field("io.k8s.api.storage.v1.VolumeAttributesClass", "driverName"),
    Column::AGE,
];

/// The decisions of VolumeAttributesClass.
#[derive(Debug)]
pub struct VolumeAttributesClass;

impl Behaviour for VolumeAttributesClass {
    fn validate(&self, object: &Node<'_>, errs: &mut Errors) {
        validate_provisioner(&object.get("driverName"), errs);
        let parameters = object.get("parameters");
        validate_parameters(&parameters, errs);
        if parameters.is_empty() {
            errs.required(&parameters, "must contain at least one key/value pair");
        }
    }

    fn validate_update(&self, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        for (field, detail) in [
            ("driverName", "updates to driverName are forbidden."),
            ("parameters", "updates to parameters are forbidden."),
        ] {
            if new.get(field).json() != old.get(field).json() {
                errs.forbidden(&new.get(field), detail);
            }
        }
    }

    fn columns(&self) -> Cow<'_, [Column<'_>]> {
        COLUMNS.into()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::testing::{create_fails, update_fails};

    const V1: &str = "storage.k8s.io/v1";

    #[test]
    fn a_class_has_a_driver_and_parameters_that_stay() {
        create_fails(
            V1,
            "volumeattributesclasses",
            json!({"metadata": {"name": "a"}}),
            "[driverName: Required value, parameters: Required value: must contain at least one key/value pair]",
        );
        update_fails(
            V1,
            "volumeattributesclasses",
            json!({"metadata": {"name": "a"}, "driverName": "d", "parameters": {"a": "1"}}),
            json!({"metadata": {"name": "a"}, "driverName": "d", "parameters": {"a": "2"}}),
            "parameters: Forbidden: updates to parameters are forbidden.",
        );
    }
}
