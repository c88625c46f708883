//! The rules for metadata, which are the same for all kinds.

use serde_json::Value;
use setpoint_api::metadata::validate_owner_references;
use setpoint_api::{BadValue, OwnerReference, Path, name};

use crate::edit::Edit;
use crate::errors::Errors;
use crate::name_rule::NameRule;
use crate::node::Node;

/// All annotations together, keys and values.
pub const ANNOTATIONS_BYTES_MAX: usize = 256 * 1024;
/// Longest name of a field manager.
const MANAGER_BYTES_MAX: usize = 128;
/// Longest name of a subresource in managed fields.
const SUBRESOURCE_BYTES_MAX: usize = 256;
/// Finalizers without a slash that mean something.
const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];

/// The rules for metadata of a kind: the generic ones and that finalizers are qualified.
pub fn validate(object: &Node<'_>, namespaced: bool, rule: NameRule, errs: &mut Errors) {
    validate_generic(object, namespaced, rule, errs);
    qualified_finalizers(&object.get("metadata"), errs);
}

/// What may not change in metadata of a kind, and that finalizers are qualified.
pub fn validate_update(new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
    validate_generic_update(new, old, errs);
    qualified_finalizers(&new.get("metadata"), errs);
}

/// The rules for metadata of any object.
pub fn validate_generic(object: &Node<'_>, namespaced: bool, rule: NameRule, errs: &mut Errors) {
    let meta = object.get("metadata");
    let (prefix, full) = (meta.str("generateName"), meta.str("name"));
    if !prefix.is_empty() {
        errs.invalid_each(&meta.get("generateName"), prefix, (rule.prefix)(prefix));
    }
    if full.is_empty() {
        errs.required(&meta.get("name"), "name or generateName is required");
    } else {
        errs.invalid_each(&meta.get("name"), full, (rule.name)(full));
    }
    validate_namespace(&meta, namespaced, errs);
    if meta.int("generation").unwrap_or(0) < 0 {
        errs.invalid_here(&meta.get("generation"), "must be greater than or equal to 0");
    }
    validate_labels(&meta.get("labels"), errs);
    validate_annotations(&meta.get("annotations"), errs);
    validate_owners(&meta.get("ownerReferences"), errs);
    validate_finalizers(&meta.get("finalizers"), errs);
    validate_managed_fields(&meta.get("managedFields"), errs);
}

/// What may not change in metadata of any object.
pub fn validate_generic_update(new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
    let (new, old) = (new.get("metadata"), old.get("metadata"));
    if old.has("deletionTimestamp") {
        no_new_finalizers(&new, &old, errs);
    }
    if new.str("resourceVersion").is_empty() {
        errs.invalid(&new.get("resourceVersion"), "", "must be specified for an update");
    }
    let generation = new.int("generation").unwrap_or(0);
    if generation < old.int("generation").unwrap_or(0) {
        errs.invalid(&new.get("generation"), generation, "must not be decremented");
    }
    for field in ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        errs.immutable(&new.get(field), &old.get(field));
    }
    validate_labels(&new.get("labels"), errs);
    validate_annotations(&new.get("annotations"), errs);
    validate_owners(&new.get("ownerReferences"), errs);
    validate_managed_fields(&new.get("managedFields"), errs);
}

/// Labels: keys are qualified names, values short and simple. Used wherever labels stand.
pub fn validate_labels(labels: &Node<'_>, errs: &mut Errors) {
    for (key, value) in labels.clone().into_entries() {
        errs.invalid_each(labels, key, name::qualified_name(key));
        errs.invalid_each(labels, value.as_str(), name::label_value(value.as_str()));
    }
}

/// Annotations: keys are qualified names in any case, and all together are not too large.
pub fn validate_annotations(annotations: &Node<'_>, errs: &mut Errors) {
    let mut total = 0;
    for (key, value) in annotations.clone().into_entries() {
        errs.invalid_each(annotations, key, name::qualified_name(&key.to_lowercase()));
        total += key.len() + value.as_str().len();
    }
    if total > ANNOTATIONS_BYTES_MAX {
        errs.too_long(annotations, ANNOTATIONS_BYTES_MAX);
    }
}

/// That a finalizer without a slash is one of the standard ones.
pub fn validate_qualified_finalizer(at: &Node<'_>, finalizer: &str, errs: &mut Errors) {
    if !finalizer.contains('/') && !STANDARD_FINALIZERS.contains(&finalizer) {
        let detail = "name is neither a standard finalizer name nor is it fully qualified";
        errs.invalid(at, BadValue::from(finalizer), detail);
    }
}

/// Takes from the old object what no update can change: identity and the marks of deletion.
pub fn keep_system_fields(new: &mut Value, old: &Value) {
    let (meta, old) = (new.ensure("metadata"), &old["metadata"]);
    if old.has("uid") {
        meta.default_to("uid", old.text("uid"));
    }
    for field in ["creationTimestamp", "deletionTimestamp"] {
        if old.has(field) {
            meta.set(field, old[field].clone());
        }
    }
    if old.has("deletionGracePeriodSeconds") && !meta.has("deletionGracePeriodSeconds") {
        meta.set("deletionGracePeriodSeconds", old["deletionGracePeriodSeconds"].clone());
    }
}

/// Takes from the old object all metadata that a write to `/status` can't change, for the kinds that say so.
pub fn keep_for_status(new: &mut Value, old: &Value) {
    let meta = new.ensure("metadata");
    for field in
        ["deletionTimestamp", "generation", "selfLink", "labels", "annotations", "finalizers", "ownerReferences"]
    {
        meta.set_or_remove(field, old["metadata"].get(field).cloned());
    }
}

fn validate_namespace(meta: &Node<'_>, namespaced: bool, errs: &mut Errors) {
    let namespace = meta.str("namespace");
    let at = meta.get("namespace");
    match (namespaced, namespace.is_empty()) {
        (true, true) => errs.required(&at, ""),
        (true, false) => errs.invalid_each(&at, namespace, name::dns1123_label(namespace)),
        (false, false) => errs.forbidden(&at, "not allowed on this type"),
        (false, true) => {}
    }
}

fn validate_owners(owners: &Node<'_>, errs: &mut Errors) {
    if owners.is_empty() {
        return;
    }
    match serde_json::from_value::<Vec<OwnerReference>>(owners.json().clone()) {
        Ok(list) => errs.extend(validate_owner_references(&list, &Path::root(&owners.path()))),
        Err(error) => errs.internal(owners, error),
    }
}

fn validate_finalizers(finalizers: &Node<'_>, errs: &mut Errors) {
    let names: Vec<&str> = finalizers.clone().into_items().map(|item| item.as_str()).collect();
    for finalizer in &names {
        errs.invalid_each(finalizers, finalizer, name::qualified_name(finalizer));
    }
    if names.contains(&"orphan") && names.contains(&"foregroundDeletion") {
        errs.invalid_here(finalizers, "finalizer orphan and foregroundDeletion cannot be both set");
    }
}

fn qualified_finalizers(meta: &Node<'_>, errs: &mut Errors) {
    for finalizer in meta.items("finalizers") {
        validate_qualified_finalizer(&finalizer, finalizer.as_str(), errs);
    }
}

fn no_new_finalizers(new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
    let kept: Vec<&str> = old.strings("finalizers").collect();
    let mut added: Vec<&str> = new.strings("finalizers").filter(|f| !kept.contains(f)).collect();
    added.sort_unstable();
    added.dedup();
    if !added.is_empty() {
        let quoted: Vec<String> = added.iter().map(|f| setpoint_api::quote::quote(f)).collect();
        let detail = format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
            quoted.join(", ")
        );
        errs.forbidden(&new.get("finalizers"), detail);
    }
}

fn validate_managed_fields(entries: &Node<'_>, errs: &mut Errors) {
    for entry in entries.clone().into_items() {
        if !matches!(entry.str("operation"), "Apply" | "Update") {
            errs.invalid(&entry.get("operation"), entry.str("operation"), "must be `Apply` or `Update`");
        }
        if !matches!(entry.str("fieldsType"), "" | "FieldsV1") {
            errs.invalid(&entry.get("fieldsType"), entry.str("fieldsType"), "must be `FieldsV1`");
        }
        validate_field_manager(&entry.get("manager"), entry.str("manager"), errs);
        if entry.str("subresource").len() > SUBRESOURCE_BYTES_MAX {
            errs.too_long(&entry.get("subresource"), SUBRESOURCE_BYTES_MAX);
        }
    }
}

/// The name of a field manager: not too long, and printable.
pub fn validate_field_manager(at: &Node<'_>, manager: &str, errs: &mut Errors) {
    if manager.len() > MANAGER_BYTES_MAX {
        errs.too_long(at, MANAGER_BYTES_MAX);
    }
    for (place, letter) in manager.char_indices().filter(|(_, letter)| letter.is_control()) {
        let detail = format!("invalid character U+{:04X} (at position {place})", u32::from(letter));
        errs.invalid(at, manager, detail);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use setpoint_api::field::aggregate;

    use super::*;
    use crate::facts::kind_type;

    #[track_caller]
    fn check(meta: Value, expected: &str) {
        let object = json!({"metadata": meta});
        let mut errs = Errors::new();
        let node = Node::root(&object, kind_type("v1", "ConfigMap").unwrap());
        validate(&node, true, NameRule::SUBDOMAIN, &mut errs);
        assert_eq!(aggregate(&errs.into_vec()).unwrap_or_default(), expected);
    }

    #[track_caller]
    fn check_update(new: Value, old: Value, expected: &str) {
        let (new, old) = (json!({"metadata": new}), json!({"metadata": old}));
        let ty = kind_type("v1", "ConfigMap").unwrap();
        let mut errs = Errors::new();
        validate_update(&Node::root(&new, ty), &Node::root(&old, ty), &mut errs);
        assert_eq!(aggregate(&errs.into_vec()).unwrap_or_default(), expected);
    }

    #[test]
    fn an_object_has_a_name_and_a_namespace() {
        check(json!({"name": "a", "namespace": "n"}), "");
        check(
            json!({}),
            "[metadata.name: Required value: name or generateName is required, metadata.namespace: Required value]",
        );
    }

    #[test]
    fn finalizers_are_qualified_and_do_not_contradict() {
        check(
            json!({"name": "a", "namespace": "n", "finalizers": ["x"]}),
            "metadata.finalizers[0]: Invalid value: \"x\": \
             name is neither a standard finalizer name nor is it fully qualified",
        );
        check(
            json!({"name": "a", "namespace": "n", "finalizers": ["orphan", "foregroundDeletion"]}),
            "metadata.finalizers: Invalid value: [\"orphan\",\"foregroundDeletion\"]: \
             finalizer orphan and foregroundDeletion cannot be both set",
        );
    }

    #[test]
    fn annotations_are_bounded_together() {
        let big = "x".repeat(ANNOTATIONS_BYTES_MAX);
        check(
            json!({"name": "a", "namespace": "n", "annotations": {"k": big}}),
            "metadata.annotations: Too long: may not be more than 262144 bytes",
        );
    }

    #[test]
    fn identity_stays() {
        let old = json!({"name": "a", "namespace": "n", "uid": "1", "resourceVersion": "1"});
        check_update(json!({"name": "a", "namespace": "n", "uid": "1", "resourceVersion": "1"}), old.clone(), "");
        check_update(
            json!({"name": "b", "namespace": "n", "uid": "2"}),
            old,
            "[metadata.resourceVersion: Invalid value: \"\": must be specified for an update, \
             metadata.name: Invalid value: \"b\": field is immutable, metadata.uid: Invalid value: \"2\": field is immutable]",
        );
    }

    #[test]
    fn an_object_on_its_way_out_gets_no_new_finalizers() {
        let dying = json!({"name": "a", "resourceVersion": "1", "deletionTimestamp": "2024-01-01T00:00:00Z"});
        let mut new = dying.clone();
        new["finalizers"] = json!(["example.com/more"]);
        check_update(
            new,
            dying,
            "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, \
             found new finalizers []string{\"example.com/more\"}",
        );
    }
}
