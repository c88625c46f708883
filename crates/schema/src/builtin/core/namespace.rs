//! Namespace: a room for names.

use std::borrow::Cow;

use serde_json::{Value, json};
use setpoint_api::name;

use crate::behaviour::{Behaviour, Context, keep};
use crate::columns::{Column, field};
use crate::edit::Edit;
use crate::errors::Errors;
use crate::kind::Kind;
use crate::metadata;
use crate::name_rule::NameRule;
use crate::node::Node;
use crate::selectable::{Selectable, as_text};

/// The label that lets selectors find a namespace by name.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// The finalizer that lets the namespace be emptied before it goes.
const FINALIZER: &str = "kubernetes";

const COLUMNS: &[Column<'static>] = &[
    Column::NAME,
    Column::new("Status", "string", |object, _| field(object, &["status", "phase"]))
        .about("The status of the namespace"),
    Column::AGE,
];

static SELECTABLE: [Selectable; 1] = [Selectable::new("status.phase", phase)];

/// The decisions of Namespace.
#[derive(Debug)]
pub struct Namespace;

impl Behaviour for Namespace {
    fn default(&self, object: &mut Value) {
        label_with_name(object);
        object.ensure("status").default_to("phase", "Active");
    }

    fn prepare_create(&self, object: &mut Value, _context: &Context) {
        object.set("status", json!({"phase": "Active"}));
        let spec = object.ensure("spec");
        if !spec.get("finalizers").is_some_and(|list| contains(list, FINALIZER)) {
            match spec.child("finalizers").and_then(Value::as_array_mut) {
                Some(list) => list.push(FINALIZER.into()),
                None => spec.set("finalizers", json!([FINALIZER])),
            }
        }
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, _context: &Context) {
        let finalizers = old.find(&["spec", "finalizers"]).cloned();
        new.ensure("spec").set_or_remove("finalizers", finalizers);
        keep(new, old, &["status"]);
    }

    fn prepare_subresource_update(&self, _finalize: &str, new: &mut Value, old: &Value, _context: &Context) {
        keep(new, old, &["status"]);
    }

    fn validate(&self, object: &Node<'_>, errs: &mut Errors) {
        let finalizers = object.get("spec").get("finalizers");
        for finalizer in finalizers.clone().into_items() {
            validate_finalizer(&finalizers, finalizer.as_str(), errs);
        }
    }

    fn check_update(&self, kind: &Kind, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        self.check_create(kind, new, errs);
        metadata::validate_update(new, old, errs);
    }

    fn validate_status_update(&self, new: &Node<'_>, _old: &Node<'_>, errs: &mut Errors) {
        let (phase, at) = (new.get("status").str("phase"), new.get("status").get("phase").at("status.Phase"));
        let deleting = new.get("metadata").has("deletionTimestamp");
        if !deleting && phase != "Active" {
            errs.invalid(&at, phase, "may only be 'Active' if `deletionTimestamp` is empty");
        }
        if deleting && phase != "Terminating" {
            errs.invalid(&at, phase, "may only be 'Terminating' if `deletionTimestamp` is not empty");
        }
    }

    fn check_subresource_update(
        &self,
        _finalize: &str,
        _kind: &Kind,
        new: &Node<'_>,
        old: &Node<'_>,
        errs: &mut Errors,
    ) {
        metadata::validate_update(new, old, errs);
        for finalizer in new.get("spec").items("finalizers") {
            validate_finalizer(&finalizer, finalizer.as_str(), errs);
        }
    }

    fn canonicalize(&self, object: &mut Value) {
        label_with_name(object);
    }

    fn name_rule(&self) -> NameRule {
        NameRule::LABEL
    }

    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        match subresource {
            "" | "finalize" => &["status"],
            _ => &["spec"],
        }
    }

    fn selectable(&self) -> &[Selectable] {
        &SELECTABLE
    }

    fn columns(&self) -> Cow<'_, [Column<'_>]> {
        COLUMNS.into()
    }
}

fn validate_finalizer(at: &Node<'_>, finalizer: &str, errs: &mut Errors) {
    errs.invalid_each(at, finalizer, name::qualified_name(finalizer));
    metadata::validate_qualified_finalizer(at, finalizer, errs);
}

fn label_with_name(object: &mut Value) {
    let metadata = object.ensure("metadata");
    let name = metadata.text("name").to_owned();
    if !name.is_empty() {
        metadata.ensure("labels").set(NAME_LABEL, name);
    }
}

fn phase(object: &Value) -> String {
    as_text(object.find(&["status", "phase"]))
}

fn contains(list: &Value, word: &str) -> bool {
    list.as_array().is_some_and(|items| items.iter().any(|item| item == word))
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{create, create_fails, status_update_fails, update};
    use super::*;

    #[test]
    fn a_new_namespace_is_active_labelled_and_held() {
        let object = create("v1", "namespaces", json!({"metadata": {"name": "n"}, "status": {"phase": "Terminating"}}));
        assert_eq!(object["metadata"]["labels"], json!({"kubernetes.io/metadata.name": "n"}));
        assert_eq!(object["spec"], json!({"finalizers": ["kubernetes"]}));
        assert_eq!(object["status"], json!({"phase": "Active"}));
    }

    #[test]
    fn an_update_can_not_change_finalizers_or_status() {
        let old = json!({"metadata": {"name": "n"}});
        let new =
            json!({"metadata": {"name": "n"}, "spec": {"finalizers": ["a/b"]}, "status": {"phase": "Terminating"}});
        let object = update("v1", "namespaces", old, new);
        assert_eq!(object["spec"], json!({"finalizers": ["kubernetes"]}));
        assert_eq!(object["status"], json!({"phase": "Active"}));
    }

    #[test]
    fn finalizers_are_qualified() {
        create_fails(
            "v1",
            "namespaces",
            json!({"metadata": {"name": "n"}, "spec": {"finalizers": ["bad"]}}),
            "spec.finalizers: Invalid value: \"bad\": name is neither a standard finalizer name nor is it fully qualified",
        );
    }

    #[test]
    fn a_name_is_a_label() {
        create_fails(
            "v1",
            "namespaces",
            json!({"metadata": {"name": "A"}}),
            "metadata.name: Invalid value: \"A\": a lowercase RFC 1123 label must consist of lower case alphanumeric \
             characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', \
             regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
        );
    }

    #[test]
    fn the_phase_follows_deletion() {
        status_update_fails(
            "v1",
            "namespaces",
            json!({"metadata": {"name": "n"}}),
            json!({"metadata": {"name": "n"}, "status": {"phase": "Terminating"}}),
            "status.Phase: Invalid value: \"Terminating\": may only be 'Active' if `deletionTimestamp` is empty",
        );
    }
}
