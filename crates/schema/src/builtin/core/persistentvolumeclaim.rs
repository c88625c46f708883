//! PersistentVolumeClaim: a wish for storage.

use std::borrow::Cow;

use serde_json::{Value, json};
use setpoint_api::labels::ValueRules;
use setpoint_api::{BadValue, Quantity, name};

use super::persistentvolume::{access_modes, phase, validate_access_modes, validate_basic};
use super::resource_list;
use crate::behaviour::{Behaviour, Context, keep};
use crate::builtin::label_selector;
use crate::columns::{Column, field};
use crate::edit::Edit;
use crate::errors::Errors;
use crate::kind::Kind;
use crate::node::Node;
use crate::{internal_form, line_diff, metadata};

/// The class of a claim, from before there was a field for it.
pub const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

const VOLUME_MODES: [&str; 2] = ["Block", "Filesystem"];
const RESIZE_STATUSES: [&str; 5] = [
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
    "NodeResizePending",
];

const SPEC: &str = "io.k8s.api.core.v1.PersistentVolumeClaimSpec";
const STATUS: &str = "io.k8s.api.core.v1.PersistentVolumeClaimStatus";

const COLUMNS: &[Column<'static>] = &[
    Column::NAME,
    Column::new("Status", "string", |object, _| json!(phase(object))).about_field(STATUS, "phase"),
    Column::new("Volume", "string", |object, _| field(object, &["spec", "volumeName"])).about_field(SPEC, "volumeName"),
    Column::new("Capacity", "string", |object, _| json!(capacity(object))).about_field(STATUS, "capacity"),
    Column::new("Access Modes", "string", |object, _| {
        json!(if is_bound(object) { access_modes(&object["status"]) } else { String::new() })
    })
    .about_field(STATUS, "accessModes"),
    Column::new("StorageClass", "string", |object, _| json!(class(object))).about("StorageClass of the pvc"),
    Column::new("VolumeAttributesClass", "string", |object, _| json!(or_unset(object, "volumeAttributesClassName")))
        .about("VolumeAttributesClass of the pvc"),
    Column::AGE,
    Column::new("VolumeMode", "string", |object, _| json!(or_unset(object, "volumeMode")))
        .about_field(SPEC, "volumeMode")
        .wide(),
];

/// The decisions of PersistentVolumeClaim.
#[derive(Debug)]
pub struct PersistentVolumeClaim;

impl Behaviour for PersistentVolumeClaim {
    fn default(&self, object: &mut Value) {
        object.ensure("status").default_to("phase", "Pending");
        object.ensure("spec").fill("volumeMode", "Filesystem");
        for way in [
            &["spec", "resources", "limits"][..],
            &["spec", "resources", "requests"],
            &["status", "capacity"],
            &["status", "allocatedResources"],
        ] {
            resource_list::round_up(object.find_mut(way));
        }
    }

    fn prepare_create(&self, object: &mut Value, _context: &Context) {
        object.set("status", json!({"phase": "Pending"}));
        prepare_sources(object.ensure("spec"), None);
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, _context: &Context) {
        keep(new, old, &["status"]);
        prepare_sources(new.ensure("spec"), Some(&old["spec"]));
    }

    fn validate(&self, object: &Node<'_>, errs: &mut Errors) {
        validate_spec(&object.get("spec"), None, errs);
    }

    fn check_update(&self, kind: &Kind, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        metadata::validate_update(new, old, errs);
        metadata::validate(new, kind.namespaced, self.name_rule(), errs);
        validate_spec(&new.get("spec"), Some(&old.get("spec")), errs);
        validate_change(new, old, errs);
    }

    fn validate_status_update(&self, new: &Node<'_>, _old: &Node<'_>, errs: &mut Errors) {
        validate_status(new, errs);
    }

    fn warnings(&self, new: &Node<'_>, old: Option<&Node<'_>>) -> Vec<String> {
        // Only a write to /status can change it, and says nothing.
        if old.is_some_and(|old| !new.get("status").same(&old.get("status"))) {
            return Vec::new();
        }
        let mut found = Vec::new();
        if new.get("metadata").get("annotations").json().get(CLASS_ANNOTATION).is_some() {
            found.push(format!(
                "metadata.annotations[{CLASS_ANNOTATION}]: deprecated since v1.8; use \"storageClassName\" attribute instead"
            ));
        }
        found.extend(spec_warnings(&new.get("spec")));
        found
    }

    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        if subresource.is_empty() { &["status"] } else { &["spec"] }
    }

    fn columns(&self) -> Cow<'_, [Column<'_>]> {
        COLUMNS.into()
    }
}

/// The rules for the spec of a claim. What `old` has stays valid where rules became stricter.
pub fn validate_spec(spec: &Node<'_>, old: Option<&Node<'_>>, errs: &mut Errors) {
    if spec.count("accessModes") == 0 {
        errs.required(&spec.get("accessModes"), "at least 1 access mode is required");
    }
    label_selector::validate(&spec.get("selector"), selector_rules(old), errs);
    validate_access_modes(&spec.get("accessModes"), errs);
    let requests = spec.get("resources").get("requests");
    let size = requests.entry("storage").at(spec.get("resources").at_key("storage").path());
    let found = errs.len();
    if size.is_set() {
        resource_list::validate_positive(&size, errs);
    } else {
        errs.required(&size, "");
    }
    if errs.len() == found {
        resource_list::validate_amount(&size, "storage", errs);
    }
    validate_class(&spec.get("storageClassName"), errs);
    let mode = spec.get("volumeMode");
    if mode.is_set() && !VOLUME_MODES.contains(&mode.as_str()) {
        errs.not_supported(&mode, mode.as_str(), &VOLUME_MODES);
    }
    validate_sources(spec, old, errs);
    validate_class(&spec.get("volumeAttributesClassName"), errs);
}

/// What the user should know about the spec of a claim.
pub fn spec_warnings(spec: &Node<'_>) -> Vec<String> {
    let resources = spec.get("resources");
    let sizes = ["requests", "limits"].map(|list| resources.get(list).entry("storage"));
    let fractions = sizes.into_iter().filter(|at| at.as_quantity().is_some_and(|size| size.milli_value() % 1000 != 0));
    fractions
        .map(|at| format!("{}: fractional byte value \"{}\" is invalid, must be an integer", at.path(), at.as_str()))
        .collect()
}

/// The two ways to name a source say the same. Older clients know the first only, and may write anything into it.
fn prepare_sources(spec: &mut Value, old: Option<&Value>) {
    let had = |field: &str| old.is_some_and(|old| old.has(field));
    let elsewhere = spec.find(&["dataSourceRef", "namespace"]).and_then(Value::as_str).is_some_and(|ns| !ns.is_empty());
    if elsewhere && !had("dataSourceRef") {
        // Sources in other namespaces are a feature that is off.
        spec.remove("dataSourceRef");
    }
    if !had("dataSource") && !had("dataSourceRef") && !spec.has("dataSourceRef") {
        let known = spec.get("dataSource").is_some_and(|source| {
            matches!(
                (source.text("apiGroup"), source.text("kind")),
                ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot")
            )
        });
        if !known {
            spec.remove("dataSource");
        }
    }
    let elsewhere = spec.find(&["dataSourceRef", "namespace"]).and_then(Value::as_str).is_some_and(|ns| !ns.is_empty());
    match (spec.has("dataSource"), spec.has("dataSourceRef")) {
        (true, false) => copy_source(spec, "dataSource", "dataSourceRef"),
        (false, true) if !elsewhere => copy_source(spec, "dataSourceRef", "dataSource"),
        _ => {}
    }
}

fn copy_source(spec: &mut Value, from: &str, to: &str) {
    let mut source = spec[from].clone();
    source.remove("namespace");
    spec.set(to, source);
}

fn selector_rules(old: Option<&Node<'_>>) -> ValueRules {
    let mut errs = Errors::new();
    if let Some(old) = old {
        label_selector::validate(&old.get("selector"), ValueRules::Strict, &mut errs);
    }
    if errs.is_empty() { ValueRules::Strict } else { ValueRules::Lenient }
}

fn validate_class(at: &Node<'_>, errs: &mut Errors) {
    if !at.is_empty() {
        errs.invalid_each(at, at.as_str(), name::dns1123_subdomain(at.as_str()));
    }
}

fn validate_sources(spec: &Node<'_>, old: Option<&Node<'_>>, errs: &mut Errors) {
    let (source, reference) = (spec.get("dataSource"), spec.get("dataSourceRef"));
    let bad_group = |old: &Node<'_>| {
        ["dataSource", "dataSourceRef"].iter().any(|field| {
            let group = old.get(field).str("apiGroup");
            !group.is_empty() && !name::dns1123_subdomain(group).is_empty()
        })
    };
    let lenient = old.is_some_and(bad_group);
    for at in [&source, &reference].into_iter().filter(|at| at.is_set()) {
        validate_source(at, lenient, errs);
    }
    let namespace = reference.get("namespace");
    if !namespace.is_empty() {
        errs.invalid_each(&namespace, namespace.as_str(), name::dns1123_label(namespace.as_str()));
    }
    // Upstream shows an empty structure where it means a path.
    let shown = || BadValue::Json("{}".to_owned());
    if !source.is_set() || !reference.is_set() {
        return;
    }
    let same = |field: &'static str| source.get(field).json() == reference.get(field).json();
    if !namespace.is_empty() {
        errs.invalid(spec, shown(), "may not be specified when dataSourceRef.namespace is specified");
    } else if !(same("apiGroup") && same("kind") && same("name")) {
        errs.invalid(spec, shown(), "must match dataSourceRef");
    }
}

fn validate_source(at: &Node<'_>, lenient: bool, errs: &mut Errors) {
    for field in ["name", "kind"] {
        if at.str(field).is_empty() {
            errs.required(&at.get(field), "");
        }
    }
    let (group, kind) = (at.str("apiGroup"), at.str("kind"));
    if group.is_empty() && kind != "PersistentVolumeClaim" {
        errs.invalid(at, kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup");
    }
    if !group.is_empty() && !lenient {
        errs.invalid_each(&at.get("apiGroup"), group, name::dns1123_subdomain(group));
    }
}

/// A claim stays as it is, but it may grow once it is bound, and its class may be filled in.
fn validate_change(new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
    let (spec, before) = (new.get("spec"), old.get("spec"));
    let annotation =
        |object: &Node<'_>| object.get("metadata").get("annotations").json().get(CLASS_ANNOTATION).cloned();
    let (now_annotated, annotated) = (annotation(new), annotation(old));
    let class = spec.get("storageClassName").value();
    let unclassed = !before.has("storageClassName");
    let mut wanted = spec.json().clone();
    let mut kept = before.json().clone();
    if !kept.has("volumeName") {
        kept.set_or_remove("volumeName", wanted.get("volumeName").cloned());
    }
    let from_annotation = annotated.is_some()
        && unclassed
        && class == annotated.as_ref()
        && (now_annotated.is_none() || now_annotated == annotated);
    if from_annotation {
        wanted.remove("storageClassName");
    } else {
        if now_annotated.clone().unwrap_or_default() != annotated.clone().unwrap_or_default() {
            let at = new.get("metadata").at(format!("metadata.annotations.{CLASS_ANNOTATION}"));
            let text = now_annotated.as_ref().and_then(Value::as_str).unwrap_or("");
            errs.invalid(&at, text, "field is immutable");
        }
        if class.is_some() && unclassed && (annotated.is_none() || class == annotated.as_ref()) {
            wanted.remove("storageClassName");
        }
    }
    if new.get("status").str("phase") == "Bound" {
        let size = kept.find(&["resources", "requests", "storage"]).cloned();
        if let (Some(requests), Some(size)) = (wanted.find_mut(&["resources", "requests"]), size) {
            requests.set("storage", size);
        }
        wanted.set_or_remove("volumeAttributesClassName", kept.get("volumeAttributesClassName").cloned());
    }
    if !spec.with_value(&wanted).same(&before.with_value(&kept)) {
        let text = |value: &Value| internal_form::pretty(Some(value), spec.ty());
        let diff = line_diff::unified(&text(&kept), &text(&wanted));
        let detail = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound \
                      claims\n";
        errs.forbidden(&spec, format!("{detail}{diff}"));
    }
    validate_size_change(new, old, errs);
    errs.immutable(&spec.get("volumeMode").at("volumeMode"), &before.get("volumeMode"));
    validate_attributes_change(&spec.get("volumeAttributesClassName"), old, errs);
}

/// A claim shrinks only to recover from a failed expansion, and never below what it has.
fn validate_size_change(new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
    let size = |list: Node<'_>| list.entry("storage").as_quantity().unwrap_or(Quantity::ZERO);
    let requested = |object: &Node<'_>| size(object.get("spec").get("resources").get("requests"));
    let (now, before) = (requested(new), requested(old));
    if now < before && now <= size(old.get("status").get("capacity")) {
        let at = new.get("spec").at("spec.resources.requests.storage");
        errs.forbidden(&at, "field can not be less than status.capacity");
    }
}

fn validate_attributes_change(at: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
    let unchanged = at.json() == old.get("spec").get("volumeAttributesClassName").json();
    if unchanged || !old.get("status").has("currentVolumeAttributesClassName") {
        return;
    }
    let to = match at.value() {
        None => "nil",
        Some(_) if at.as_str().is_empty() => "empty string",
        Some(_) => return,
    };
    errs.forbidden(at, format!("update to {to} is forbidden when status.currentVolumeAttributesClassName is not nil"));
}

fn validate_status(new: &Node<'_>, errs: &mut Errors) {
    let (spec, status) = (new.get("spec"), new.get("status"));
    if spec.count("accessModes") == 0 {
        errs.required(&spec.at("Spec.accessModes"), "");
    }
    for (_, amount) in status.entries("capacity") {
        validate_basic(&amount, errs);
    }
    let statuses = status.get("allocatedResourceStatuses");
    for (resource, state) in statuses.clone().into_entries() {
        validate_key(&statuses, resource, errs);
        if !RESIZE_STATUSES.contains(&state.as_str()) {
            errs.not_supported(&statuses, resource, &RESIZE_STATUSES);
        }
    }
    let resources = status.get("allocatedResources");
    for (resource, amount) in resources.clone().into_entries() {
        let found = errs.len();
        validate_key(&resources, resource, errs);
        if errs.len() == found {
            validate_basic(&amount, errs);
        }
        if errs.len() == found {
            resource_list::validate_amount(&amount, "storage", errs);
        }
    }
}

fn validate_key(at: &Node<'_>, resource: &str, errs: &mut Errors) {
    let complaints = name::qualified_name(resource);
    let native = !resource.contains('/') || resource.contains("kubernetes.io/");
    if !complaints.is_empty() {
        errs.invalid_each(at, resource, complaints);
    } else if native && resource != "storage" {
        errs.not_supported(at, resource, &["storage"]);
    }
}

fn is_bound(object: &Value) -> bool {
    !object["spec"].text("volumeName").is_empty()
}

fn capacity(object: &Value) -> String {
    match object.find(&["status", "capacity", "storage"]).and_then(Value::as_str) {
        _ if !is_bound(object) => String::new(),
        None => "0".to_owned(),
        Some(size) => size.to_owned(),
    }
}

fn class(object: &Value) -> &str {
    match object["metadata"]["annotations"].get(CLASS_ANNOTATION) {
        Some(class) => class.as_str().unwrap_or(""),
        None => object["spec"].text("storageClassName"),
    }
}

fn or_unset<'a>(object: &'a Value, field: &str) -> &'a str {
    object.find(&["spec", field]).and_then(Value::as_str).unwrap_or("<unset>")
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{columns, create, create_fails, update, update_fails, warnings};
    use super::*;

    fn claim(spec: Value) -> Value {
        let mut body = json!({"metadata": {"name": "a"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
        for (field, value) in spec.as_object().into_iter().flatten() {
            body["spec"].set(field, value.clone());
        }
        body
    }

    #[test]
    fn a_claim_waits_for_a_file_system() {
        let object = create("v1", "persistentvolumeclaims", claim(json!({})));
        assert_eq!(
            columns("v1", "persistentvolumeclaims", &object),
            json!(["a", "Pending", "", "", "", "", "<unset>", "<unknown>", "Filesystem"])
        );
    }

    #[test]
    fn the_two_ways_to_name_a_source_say_the_same() {
        let source = json!({"kind": "PersistentVolumeClaim", "name": "x"});
        let object = create("v1", "persistentvolumeclaims", claim(json!({"dataSource": source})));
        assert_eq!(object["spec"]["dataSourceRef"]["name"], "x");
        let odd = json!({"dataSource": {"kind": "Odd", "name": "x"}});
        assert_eq!(create("v1", "persistentvolumeclaims", claim(odd))["spec"].get("dataSource"), None);
        let other = json!({"kind": "PersistentVolumeClaim", "name": "y"});
        create_fails(
            "v1",
            "persistentvolumeclaims",
            claim(json!({"dataSource": source, "dataSourceRef": other})),
            "spec: Invalid value: {}: must match dataSourceRef",
        );
    }

    #[test]
    fn modes_and_sizes_are_checked() {
        for (spec, expected) in [
            (json!({"accessModes": []}), "spec.accessModes: Required value: at least 1 access mode is required"),
            (json!({"resources": {}}), "spec.resources[storage]: Required value"),
            (
                json!({"resources": {"requests": {"storage": "0"}}}),
                "spec.resources[storage]: Invalid value: \"0\": must be greater than zero",
            ),
        ] {
            create_fails("v1", "persistentvolumeclaims", claim(spec), expected);
        }
        let fraction = json!({"resources": {"requests": {"storage": "1500m"}}});
        assert_eq!(
            warnings("v1", "persistentvolumeclaims", claim(fraction)),
            ["spec.resources.requests[storage]: fractional byte value \"1500m\" is invalid, must be an integer"]
        );
    }

    #[test]
    fn a_claim_stays_but_may_learn_its_volume_and_class() {
        update(
            "v1",
            "persistentvolumeclaims",
            claim(json!({})),
            claim(json!({"volumeName": "v", "storageClassName": "s"})),
        );
        update_fails(
            "v1",
            "persistentvolumeclaims",
            claim(json!({})),
            claim(json!({"accessModes": ["ReadWriteMany"]})),
            "spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for \
             bound claims\n@@ -1,6 +1,6 @@\n {\n  \"AccessModes\": [\n-  \"ReadWriteOnce\"\n+  \"ReadWriteMany\"\n  ],\n  \
             \"Selector\": null,\n  \"Resources\": {\n",
        );
    }
}
