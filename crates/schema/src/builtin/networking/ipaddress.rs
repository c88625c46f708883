//! IPAddress: an address that is taken, and who has it. Its name is the address.

use std::borrow::Cow;

use serde_json::{Value, json};
use setpoint_api::{BadValue, Path, ip, name};

use super::super::{cells, go_value};
use super::ingress_backend::require_path_segment;
use crate::behaviour::Behaviour;
use crate::columns::Column;
use crate::edit::Edit;
use crate::errors::Errors;
use crate::human;
use crate::kind::Kind;
use crate::metadata;
use crate::name_rule::NameRule;
use crate::node::Node;

const COLUMNS: &[Column<'static>] = &[
    Column::NAME,
    Column::new("ParentRef", "string", |object, _| parent(object))
        .about_field("io.k8s.api.networking.v1.IPAddressSpec", "parentRef"),
];

/// The decisions of IPAddress.
#[derive(Debug)]
pub struct IpAddress;

impl Behaviour for IpAddress {
    fn validate(&self, object: &Node<'_>, errs: &mut Errors) {
        let parent = object.get("spec").get("parentRef");
        if !parent.is_set() {
            return errs.required(&parent, "");
        }
        let (group, namespace) = (parent.str("group"), parent.str("namespace"));
        if !group.is_empty() {
            errs.invalid_each(&parent.get("group"), group, name::dns1123_subdomain(group));
        }
        require_path_segment(&parent.get("resource"), errs);
        require_path_segment(&parent.get("name"), errs);
        if !namespace.is_empty() {
            errs.invalid_each(&parent.get("namespace"), namespace, name::path_segment_name(namespace));
        }
    }

    fn validate_update(&self, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        let (new, old) = (new.get("spec").get("parentRef"), old.get("spec").get("parentRef"));
        if !new.same(&old) {
            errs.invalid(&new, shown(&new), "field is immutable");
        }
    }

    fn check_update(&self, kind: &Kind, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        self.check_create(kind, new, errs);
        metadata::validate_update(new, old, errs);
        self.validate_update(new, old, errs);
    }

    fn name_rule(&self) -> NameRule {
        NameRule { name: address_complaints, prefix: address_complaints }
    }

    fn columns(&self) -> Cow<'_, [Column<'_>]> {
        COLUMNS.into()
    }

    /// Upstream forgot the heading of the age, not the age.
    fn cells_without_column(&self, object: &Value, now: i64) -> Vec<Value> {
        vec![json!(human::age(object.find(&["metadata", "creationTimestamp"]), now))]
    }
}

fn address_complaints(name: &str) -> Vec<String> {
    ip::validate_ip(&Path::nil(), name).into_iter().map(|error| error.detail).collect()
}

fn shown(parent: &Node<'_>) -> BadValue {
    if !parent.is_set() {
        return BadValue::Json("null".into());
    }
    let fields = [("Group", "group"), ("Resource", "resource"), ("Namespace", "namespace"), ("Name", "name")];
    go_value::object(fields.map(|(go, field)| (go, json!(parent.str(field)))))
}

fn parent(object: &Value) -> Value {
    let Some(parent) = object.find(&["spec", "parentRef"]) else { return json!(cells::NONE) };
    let (group, namespace) = (parent.text("group"), parent.text("namespace"));
    let dot = if group.is_empty() { "" } else { "." };
    let slash = if namespace.is_empty() { "" } else { "/" };
    let resource = format!("{}{dot}{group}", parent.text("resource")).to_lowercase();
    json!(format!("{resource}{slash}{namespace}/{}", parent.text("name")))
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{columns, create, create_fails, find, update_fails};
    use super::*;

    const API: &str = "networking.k8s.io/v1";

    fn address(name: &str, parent: Value) -> Value {
        json!({"metadata": {"name": name}, "spec": {"parentRef": parent}})
    }

    #[test]
    fn a_row_has_a_cell_more_than_columns() {
        let object = create(
            API,
            "ipaddresses",
            address("10.0.0.1", json!({"resource": "services", "namespace": "n", "name": "s"})),
        );
        assert_eq!(columns(API, "ipaddresses", &object), json!(["10.0.0.1", "services/n/s"]));
        assert_eq!(find(API, "ipaddresses").behaviour.cells_without_column(&object, 0), ["<unknown>"]);
    }

    #[test]
    fn the_name_is_an_address_in_its_canonical_form() {
        create_fails(
            API,
            "ipaddresses",
            address("2001:db8:0::9", json!({"resource": "services", "name": "s"})),
            "metadata.name: Invalid value: \"2001:db8:0::9\": must be in canonical form (\"2001:db8::9\")",
        );
    }

    #[test]
    fn the_parent_stays() {
        update_fails(
            API,
            "ipaddresses",
            address("10.0.0.1", json!({"resource": "services", "name": "s"})),
            address("10.0.0.1", json!({"resource": "services", "name": "t"})),
            "spec.parentRef: Invalid value: {\"Group\":\"\",\"Resource\":\"services\",\"Namespace\":\"\",\"Name\":\"t\"}: \
             field is immutable",
        );
    }
}
