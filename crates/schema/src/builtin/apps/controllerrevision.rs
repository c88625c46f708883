//! ControllerRevision: an earlier state of a workload, kept so that it can go back.

use std::borrow::Cow;

use serde_json::{Value, json};
use setpoint_api::GroupVersion;

use super::super::cells;
use super::super::int_or_percent::validate_non_negative;
use crate::behaviour::Behaviour;
use crate::columns::Column;
use crate::edit::Edit;
use crate::errors::Errors;
use crate::kind::Kind;
use crate::metadata;
use crate::node::Node;

const COLUMNS: &[Column<'static>] = &[
    Column::NAME,
    Column::new("Controller", "string", |object, _| controller(object)).about("Controller of the object"),
    Column::new("Revision", "string", |object, _| cells::number(object, &["revision"]))
        .about_field("io.k8s.api.apps.v1.ControllerRevision", "revision"),
    Column::AGE,
];

/// The decisions of ControllerRevision.
#[derive(Debug)]
pub struct ControllerRevision;

impl Behaviour for ControllerRevision {
    fn validate(&self, object: &Node<'_>, errs: &mut Errors) {
        validate_non_negative(&object.get("revision"), errs);
        let data = object.get("data");
        match data.value() {
            None => errs.required(&data, "data is mandatory"),
            Some(Value::Object(_)) => {}
            Some(_) => errs.required(&data, "data must be a valid JSON object"),
        }
    }

    fn check_update(&self, kind: &Kind, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        metadata::validate_update(new, old, errs);
        metadata::validate(new, kind.namespaced, self.name_rule(), errs);
        validate_non_negative(&new.get("revision"), errs);
        errs.immutable(&new.get("data"), &old.get("data"));
    }

    fn columns(&self) -> Cow<'_, [Column<'_>]> {
        COLUMNS.into()
    }
}

fn controller(object: &Value) -> Value {
    let owners = object.find(&["metadata", "ownerReferences"]).and_then(Value::as_array);
    let Some(owner) = owners.into_iter().flatten().find(|owner| owner.flag("controller")) else {
        return json!(cells::NONE);
    };
    let group =
        owner.text("apiVersion").parse::<GroupVersion>().map(|parsed| parsed.group.to_string()).unwrap_or_default();
    let dot = if group.is_empty() { "" } else { "." };
    json!(format!("{}{dot}{group}/{}", owner.text("kind").to_lowercase(), owner.text("name")))
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{columns, create, create_fails, update_fails};
    use super::*;

    const API: &str = "apps/v1";

    #[test]
    fn data_is_an_object_and_stays() {
        let body = |data: Value| json!({"metadata": {"name": "r"}, "revision": 1, "data": data});
        create_fails(API, "controllerrevisions", body(Value::Null), "data: Required value: data is mandatory");
        create_fails(
            API,
            "controllerrevisions",
            body(json!([])),
            "data: Required value: data must be a valid JSON object",
        );
        update_fails(
            API,
            "controllerrevisions",
            body(json!({"a": 1})),
            body(json!({"a": 2})),
            "data: Invalid value: {\"a\":2}: field is immutable",
        );
    }

    #[test]
    fn a_row_tells_whose_revision_it_is() {
        let owner =
            json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "uid": "u", "controller": true});
        let body = json!({"metadata": {"name": "r", "ownerReferences": [owner]}, "revision": 2, "data": {}});
        let object = create(API, "controllerrevisions", body);
        assert_eq!(columns(API, "controllerrevisions", &object), json!(["r", "statefulset.apps/s", 2, "<unknown>"]));
    }
}
