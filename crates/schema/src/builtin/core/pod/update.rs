//! What may change in a pod that exists: little, and only through the door made for it.

use std::collections::BTreeMap;

use serde_json::Value;
use setpoint_api::{name, quote};

use super::annotations::{MIRROR, validate_annotation_changes};
use super::containers::{is_sidecar, validate_image_blanks};
use super::options::Options;
use super::quality_of_service::quality_of_service;
use super::scheduling::validate_tolerations;
use super::validate_pod;
use crate::edit::Edit;
use crate::equality;
use crate::errors::Errors;
use crate::internal_form;
use crate::line_diff;
use crate::metadata;
use crate::node::Node;

const CHANGEABLE: &str = "pod updates may not change fields other than `spec.containers[*].image`,\
    `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),\
    `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
const COMPUTE: [&str; 2] = ["cpu", "memory"];
const ONLY_COMPUTE: &str = "only cpu and memory resources are mutable";

/// The rules for an update of the pod itself.
pub fn validate_update(new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
    let options = options(old);
    metadata::validate_update(new, old, errs);
    validate_pod(new, &options, errs);
    let (spec, old_spec) = (new.get("spec"), old.get("spec"));
    let (now, before) = (new.get("metadata").get("annotations"), old.get("metadata").get("annotations"));
    validate_annotation_changes(&now, &before, &spec, &options, errs);
    for list in ["containers", "initContainers"] {
        if spec.count(list) != old_spec.count(list) {
            errs.forbidden(&spec.get(list), "pod updates may not add or remove containers");
            return;
        }
        for container in spec.items(list) {
            if container.str("image").is_empty() {
                errs.required(&container.get("image"), "");
            }
            validate_image_blanks(&container, errs);
        }
    }
    if !validate_deadline(&spec, &old_spec, errs) {
        return;
    }
    validate_added_tolerations(&spec, &old_spec, &options, errs);
    validate_removed_gates(&spec, &old_spec, errs);
    if !spec.same(&old_spec) {
        validate_rest(&spec, &old_spec, errs);
    }
}

/// The rules for adding containers to a pod that runs.
pub fn validate_ephemeral_update(new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
    if old.get("metadata").get("annotations").entry(MIRROR).is_set() {
        errs.forbidden(&new.at("[]"), "static pods do not support ephemeral containers");
        return;
    }
    let options = options(old);
    metadata::validate_update(new, old, errs);
    validate_pod(new, &options, errs);
    let (now, before) = (new.get("metadata").get("annotations"), old.get("metadata").get("annotations"));
    validate_annotation_changes(&now, &before, &new.get("spec"), &options, errs);
    let list = new.get("spec").get("ephemeralContainers");
    let now: BTreeMap<&str, Node<'_>> =
        list.clone().into_items().map(|container| (container.str("name"), container)).collect();
    for before in old.get("spec").items("ephemeralContainers") {
        let name = quote::quote(before.str("name"));
        match now.get(before.str("name")) {
            None => errs.forbidden(&list, format!("existing ephemeral containers {name} may not be removed\n")),
            Some(container) if !container.same(&before) => {
                let diff = diff(before.json(), container.json(), container);
                errs.forbidden(&list, format!("existing ephemeral containers {name} may not be changed\n{diff}"));
            }
            Some(_) => {}
        }
    }
}

/// The rules for giving a running pod more or less.
pub fn validate_resize(new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
    let (spec, old_spec) = (new.get("spec"), old.get("spec"));
    if old.get("metadata").get("annotations").entry(MIRROR).is_set() {
        errs.forbidden(&new.at("[]"), "static pods cannot be resized");
        return;
    }
    if old_spec.get("os").str("name") == "windows" {
        errs.forbidden(&new.at("[]"), "windows pods cannot be resized");
        return;
    }
    metadata::validate_update(new, old, errs);
    validate_pod(new, &options(old), errs);
    let before = old.get("status").str("qosClass");
    let before = if before.is_empty() { quality_of_service(old_spec.json()) } else { before };
    if quality_of_service(spec.json()) != before {
        let class = new.get("status").get("qosClass").at(spec.path());
        errs.invalid(&class, class.as_str(), "Pod QOS Class may not change as a result of resizing");
    }
    if !can_resize(old) {
        errs.forbidden(&spec, "Pod running on node without support for resize");
    }
    let mut rest = spec.json().clone();
    let is_limited =
        |spec: &Node<'_>| spec.get("resources").count("requests") + spec.get("resources").count("limits") > 0;
    if is_limited(&spec) || is_limited(&old_spec) {
        validate_whole_resize(&spec, &old_spec, &mut rest, errs);
    }
    if old.get("status").count("nodeAllocatableResourceClaimStatuses") > 0 {
        errs.forbidden(&spec, "pods with node allocatable resource claims cannot be resized");
    }
    if validate_same_containers(&spec, &old_spec, errs) {
        validate_container_resizes(&spec, &old_spec, &mut rest, errs);
    }
    if errs.is_empty() && !spec.with_value(&rest).same(&old_spec) {
        errs.forbidden(&spec, ONLY_COMPUTE);
    }
}

/// What the old pod may keep.
pub fn options(old: &Node<'_>) -> Options {
    Options::new(true, Some((&old.get("metadata"), &old.get("spec"))))
}

/// Whether the rules after this one count.
fn validate_deadline(spec: &Node<'_>, old: &Node<'_>, errs: &mut Errors) -> bool {
    let at = spec.get("activeDeadlineSeconds");
    match (at.as_int(), old.int("activeDeadlineSeconds")) {
        (Some(now), before) => {
            let complaints = name::in_range(now, 0, i32::MAX.into());
            let grew = before.is_some_and(|before| before < now);
            if complaints.is_empty() && grew {
                errs.invalid(&at, now, "must be less than or equal to previous value");
            }
            let valid = complaints.is_empty();
            complaints.into_iter().for_each(|complaint| errs.invalid(&at, now, complaint));
            valid && !grew
        }
        (None, Some(_)) => {
            errs.invalid_here(&at, "must not update from a positive integer to nil value");
            true
        }
        (None, None) => true,
    }
}

fn validate_added_tolerations(spec: &Node<'_>, old: &Node<'_>, options: &Options, errs: &mut Errors) {
    let without_seconds = |toleration: Node<'_>| {
        let mut value = toleration.json().clone();
        value.remove("tolerationSeconds");
        value
    };
    let now: Vec<Value> = spec.items("tolerations").map(without_seconds).collect();
    let at = spec.get("tolerations");
    if old.items("tolerations").map(without_seconds).any(|before| !now.contains(&before)) {
        errs.forbidden(&at, "existing toleration can not be modified except its tolerationSeconds");
        return;
    }
    validate_tolerations(&at, options, errs);
}

fn validate_removed_gates(spec: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
    let before: Vec<&str> = old.items("schedulingGates").map(|gate| gate.str("name")).collect();
    for gate in spec.items("schedulingGates").filter(|gate| !before.contains(&gate.str("name"))) {
        let detail = format!("only deletion is allowed, but found new scheduling gate '{}'", gate.str("name"));
        errs.forbidden(&gate.get("name"), detail);
    }
}

/// That nothing else changed: what may change is set back to what it was, and then all must be equal.
fn validate_rest(spec: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
    let mut rest = spec.json().clone();
    let before = old.json();
    for list in ["containers", "initContainers"] {
        for (container, old) in rest.items_mut(list).zip(old.items(list)) {
            container.set_or_remove("image", old.json().get("image").cloned());
        }
    }
    for field in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        rest.set_or_remove(field, before.get(field).cloned());
    }
    if before.number("terminationGracePeriodSeconds").is_some_and(|s| s < 0)
        && rest.number("terminationGracePeriodSeconds") == Some(1)
    {
        rest.set("terminationGracePeriodSeconds", before["terminationGracePeriodSeconds"].clone());
    }
    if old.count("schedulingGates") > 0 {
        validate_gated(spec, old, &mut rest, errs);
    }
    if !spec.with_value(&rest).same(old) {
        errs.forbidden(spec, format!("{CHANGEABLE}\n{}", diff(before, &rest, spec)));
    }
}

/// A pod that waits at a gate may still be told more about where to run.
fn validate_gated(spec: &Node<'_>, old: &Node<'_>, rest: &mut Value, errs: &mut Errors) {
    let (now, before) = (spec.get("nodeSelector"), old.get("nodeSelector"));
    let kept = |(key, value): (&str, Node<'_>)| now.entry(key).value() == value.value();
    if !before.clone().into_entries().all(kept) {
        errs.invalid_here(&now, "only additions to spec.nodeSelector are allowed (no mutations or deletions)");
    }
    rest.set_or_remove("nodeSelector", before.value().cloned());
    let (now, before) = (spec.get("affinity").get("nodeAffinity"), old.get("affinity").get("nodeAffinity"));
    if now.same(&before) {
        return;
    }
    validate_narrowed(&now, &before, errs);
    let others = ["podAffinity", "podAntiAffinity"].iter().any(|field| rest["affinity"].has(field));
    if !old.has("affinity") && !others {
        rest.remove("affinity");
    } else {
        rest.ensure("affinity").set_or_remove("nodeAffinity", before.value().cloned());
    }
}

fn validate_narrowed(now: &Node<'_>, before: &Node<'_>, errs: &mut Errors) {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    let (now, before) = (now.get(REQUIRED).get("nodeSelectorTerms"), before.get(REQUIRED).get("nodeSelectorTerms"));
    if before.is_empty() {
        return;
    }
    let (new_terms, old_terms): (Vec<_>, Vec<_>) = (now.clone().into_items().collect(), before.into_items().collect());
    if new_terms.len() != old_terms.len() {
        errs.invalid_here(&now, "no additions/deletions to non-empty NodeSelectorTerms list are allowed");
        return;
    }
    for (term, old) in new_terms.iter().zip(&old_terms) {
        if !has_only_additions(term, old) {
            errs.invalid_here(term, "only additions are allowed (no mutations or deletions)");
        }
    }
}

fn has_only_additions(term: &Node<'_>, old: &Node<'_>) -> bool {
    const LISTS: [&str; 2] = ["matchExpressions", "matchFields"];
    if LISTS.iter().all(|list| old.count(list) == 0) {
        return LISTS.iter().all(|list| term.count(list) == 0);
    }
    LISTS.iter().all(|list| {
        term.count(list) >= old.count(list) && term.items(list).zip(old.items(list)).all(|(new, old)| new.same(&old))
    })
}

fn diff(before: &Value, after: &Value, like: &Node<'_>) -> String {
    let pretty = |value| internal_form::pretty(Some(value), like.ty());
    line_diff::unified(&pretty(before), &pretty(after))
}

/// Whether the node of the pod can resize it, as far as it has told.
fn can_resize(pod: &Node<'_>) -> bool {
    let mut running = pod.get("status").items("containerStatuses").filter(|c| c.get("state").has("running"));
    running.next().is_none_or(|container| container.has("resources"))
}

fn validate_same_containers(spec: &Node<'_>, old: &Node<'_>, errs: &mut Errors) -> bool {
    let before = errs.len();
    for list in ["containers", "initContainers"] {
        if spec.count(list) != old.count(list) {
            errs.forbidden(&spec.get(list), format!("{list} may not be added or removed on resize"));
            continue;
        }
        for (container, old) in spec.items(list).zip(old.items(list)) {
            if container.str("name") != old.str("name") {
                errs.forbidden(&container.get("name"), format!("{list} may not be renamed or reordered on resize"));
            }
        }
    }
    errs.len() == before
}

fn validate_whole_resize(spec: &Node<'_>, old: &Node<'_>, rest: &mut Value, errs: &mut Errors) {
    let (now, before) = (spec.get("resources"), old.get("resources"));
    if before.is_set() && !now.is_set() {
        errs.forbidden(&now, "pod-level resources cannot be removed");
        return;
    }
    for side in ["requests", "limits"] {
        if is_removed(&now.get(side), &before.get(side)) {
            errs.forbidden(&now.get(side), format!("pod-level resource {side} cannot be removed"));
        }
    }
    if let Some(resources) = rest.child("resources") {
        restore_compute(resources, before.json());
        let is_empty = resources.as_object().is_none_or(|fields| fields.values().all(is_nothing));
        if !before.is_set() && is_empty {
            rest.remove("resources");
        }
    }
    if !equality::semantic(&rest["resources"], before.json(), now.ty()) {
        errs.forbidden(spec, "only cpu and memory resources are mutable at pod-level");
    }
}

fn validate_container_resizes(spec: &Node<'_>, old: &Node<'_>, rest: &mut Value, errs: &mut Errors) {
    for list in ["initContainers", "containers"] {
        for (container, old) in spec.items(list).zip(old.items(list)) {
            let (now, before) = (container.get("resources"), old.get("resources"));
            for side in ["requests", "limits"] {
                if is_removed(&now.get(side), &before.get(side)) {
                    errs.forbidden(&now.get(side), format!("resource {side} cannot be removed"));
                }
            }
        }
    }
    for list in ["containers", "initContainers"] {
        let nodes = spec.items(list).zip(old.items(list));
        for (value, (container, old)) in rest.items_mut(list).zip(nodes) {
            let changed = !container.same(&old);
            let resources = value.ensure("resources");
            restore_compute(resources, old.get("resources").json());
            resources.remove("claims");
            let same = container.with_value(value).same(&old);
            if list == "containers" {
                if !same {
                    errs.forbidden(spec, ONLY_COMPUTE);
                }
                continue;
            }
            if !same {
                let detail = "only cpu and memory resources for init or sidecar containers are mutable";
                errs.forbidden(&container, detail);
            }
            if changed && !is_sidecar(&container) {
                let restarts = container.items("resizePolicy").filter(|p| p.str("restartPolicy") == "RestartContainer");
                restarts.for_each(|_| {
                    let detail =
                        "non-sidecar init containers with a resize policy of RestartContainer cannot be resized";
                    errs.forbidden(&container, detail);
                });
            }
        }
    }
}

/// Sets what may change back to what it was.
fn restore_compute(resources: &mut Value, before: &Value) {
    for side in ["limits", "requests"] {
        if !resources.has(side) && !before.has(side) {
            continue;
        }
        let amounts = resources.ensure(side);
        for name in COMPUTE {
            amounts.set_or_remove(name, before.find(&[side, name]).cloned());
        }
    }
}

fn is_removed(now: &Node<'_>, before: &Node<'_>) -> bool {
    before.clone().into_entries().any(|(name, _)| !now.entry(name).is_set())
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}
