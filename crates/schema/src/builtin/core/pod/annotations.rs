//! Annotations that mean something on a pod: most of them of a time before there were fields for it.

use serde_json::Value;
use setpoint_api::quote;

use super::containers;
use super::options::Options;
use super::scheduling::validate_tolerations;
use super::volumes::validate_descending_path;
use crate::errors::Errors;
use crate::node::Node;

/// Marks the mirror of a pod that a node has from a file.
pub const MIRROR: &str = "kubernetes.io/config.mirror";
/// Seccomp of a pod.
pub const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
/// Seccomp of a container, whose name follows.
pub const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
/// AppArmor of a container, whose name follows.
pub const APP_ARMOR_CONTAINER: &str = "container.apparmor.security.beta.kubernetes.io/";
const TOLERATIONS: &str = "scheduler.alpha.kubernetes.io/tolerations";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
const LOCALHOST: &str = "localhost/";

/// The rules for annotations of a pod or a template.
pub fn validate_annotations(annotations: &Node<'_>, spec: &Node<'_>, options: &Options, errs: &mut Errors) {
    let mirror = annotations.entry(MIRROR);
    if mirror.is_set() && spec.str("nodeName").is_empty() {
        errs.invalid_here(&mirror, "must set spec.nodeName if mirror pod annotation is set");
    }
    let tolerations = annotations.entry(TOLERATIONS).as_str();
    if !tolerations.is_empty() {
        validate_toleration_text(annotations, tolerations, spec, options, errs);
    }
    if !options.invalid_deletion_cost && !has_valid_deletion_cost(annotations) {
        errs.invalid_here(&annotations.entry(DELETION_COST), "must be a 32bit integer");
    }
    if let Some(profile) = annotations.entry(SECCOMP_POD).value().and_then(Value::as_str) {
        validate_seccomp_text(&annotations.at_child(SECCOMP_POD), profile, errs);
    }
    for (key, profile) in annotations.clone().into_entries() {
        if key.starts_with(SECCOMP_CONTAINER) {
            validate_seccomp_text(&annotations.at_child(key), profile.as_str(), errs);
        }
    }
    for (key, profile) in annotations.clone().into_entries() {
        let Some(container) = key.strip_prefix(APP_ARMOR_CONTAINER) else { continue };
        if !containers::all(spec).any(|other| other.str("name") == container) {
            errs.invalid(&profile, container, "container not found");
        }
        if !is_app_armor_profile(profile.as_str()) {
            let detail = format!("invalid AppArmor profile name: {}", quote::quote(profile.as_str()));
            errs.invalid_here(&profile, detail);
        }
    }
}

/// What may not change, and then the rules for annotations.
pub fn validate_annotation_changes(
    new: &Node<'_>,
    old: &Node<'_>,
    spec: &Node<'_>,
    options: &Options,
    errs: &mut Errors,
) {
    for (key, value) in old.clone().into_entries() {
        let now = new.entry(key);
        if now.is_set() && now.as_str() == value.as_str() {
            continue;
        }
        if key.starts_with(APP_ARMOR_CONTAINER) {
            errs.forbidden(&now, "may not remove or update AppArmor annotations");
        }
        if key == MIRROR {
            errs.forbidden(&now, "may not remove or update mirror pod annotation");
        }
    }
    for (key, now) in new.clone().into_entries() {
        if old.entry(key).is_set() {
            continue;
        }
        if key.starts_with(APP_ARMOR_CONTAINER) {
            errs.forbidden(&now, "may not add AppArmor annotations");
        }
        if key == MIRROR {
            errs.forbidden(&now, "may not add mirror pod annotation");
        }
    }
    validate_annotations(new, spec, options, errs);
}

/// That annotations and fields don't contradict each other.
pub fn validate_profiles_match(annotations: &Node<'_>, spec: &Node<'_>, errs: &mut Errors) {
    let own = spec.get("securityContext").get("seccompProfile");
    validate_match(&own, annotations.entry(SECCOMP_POD).value(), &SECCOMP, &own, errs);
    for container in containers::all(spec) {
        let own = container.get("securityContext").get("seccompProfile");
        let key = format!("{SECCOMP_CONTAINER}{}", container.str("name"));
        validate_match(&own, annotations.json().get(&key), &SECCOMP, &own, errs);
    }
    if spec.get("os").str("name") == "windows" {
        return;
    }
    let of_pod = spec.get("securityContext").get("appArmorProfile");
    for container in containers::all(spec) {
        let own = container.get("securityContext").get("appArmorProfile");
        let profile = if own.is_set() { &own } else { &of_pod };
        let key = format!("{APP_ARMOR_CONTAINER}{}", container.str("name"));
        validate_match(profile, annotations.json().get(&key), &APP_ARMOR, &own, errs);
    }
}

/// Whether the cost of deletion is a number, or not given.
pub fn has_valid_deletion_cost(annotations: &Node<'_>) -> bool {
    let Some(cost) = annotations.entry(DELETION_COST).value().and_then(Value::as_str) else { return true };
    let plain = cost == "0" || cost.starts_with(|first: char| first == '-' || ('1'..='9').contains(&first));
    plain && cost.parse::<i32>().is_ok()
}

/// The profile that an annotation of AppArmor stands for.
pub fn app_armor_profile(annotation: &str) -> Option<Value> {
    match annotation {
        "unconfined" => Some(serde_json::json!({"type": "Unconfined"})),
        "runtime/default" => Some(serde_json::json!({"type": "RuntimeDefault"})),
        other => {
            let path = other.strip_prefix(LOCALHOST).filter(|path| !path.is_empty())?;
            Some(serde_json::json!({"type": "Localhost", "localhostProfile": path}))
        }
    }
}

/// The words of one kind of profile.
struct Words {
    name: &'static str,
    defaults: &'static [&'static str],
}

const SECCOMP: Words = Words { name: "seccomp", defaults: &["runtime/default", "docker/default"] };
const APP_ARMOR: Words = Words { name: "apparmor", defaults: &["runtime/default"] };

fn validate_match(profile: &Node<'_>, annotation: Option<&Value>, words: &Words, at: &Node<'_>, errs: &mut Errors) {
    let Some(text) = annotation.and_then(Value::as_str).filter(|_| profile.is_set()) else { return };
    let name = words.name;
    let same_type = match profile.str("type") {
        "Unconfined" => text == "unconfined",
        "RuntimeDefault" => words.defaults.contains(&text),
        "Localhost" => text.starts_with(LOCALHOST),
        _ => return,
    };
    if !same_type {
        errs.forbidden(&at.at_child("type"), format!("{name} type in annotation and field must match"));
    } else if profile.str("type") == "Localhost" {
        let local = profile.get("localhostProfile");
        if !local.is_set() || text.strip_prefix(LOCALHOST) != Some(local.as_str()) {
            errs.forbidden(
                &at.at_child("localhostProfile"),
                format!("{name} profile in annotation and field must match"),
            );
        }
    }
}

fn validate_toleration_text(annotations: &Node<'_>, text: &str, spec: &Node<'_>, options: &Options, errs: &mut Errors) {
    match serde_json::from_str::<Value>(text) {
        Ok(list @ Value::Array(_)) => {
            let at = spec.get("tolerations").at(annotations.at_child(TOLERATIONS).path());
            validate_tolerations(&at.with_value(&list), options, errs);
        }
        Ok(_) => errs.invalid(annotations, TOLERATIONS, "json: cannot unmarshal into Go value of type []v1.Toleration"),
        Err(error) => errs.invalid(annotations, TOLERATIONS, error.to_string()),
    }
}

fn validate_seccomp_text(at: &Node<'_>, profile: &str, errs: &mut Errors) {
    match profile.strip_prefix(LOCALHOST) {
        Some(path) => validate_descending_path(at, path, errs),
        None if matches!(profile, "runtime/default" | "docker/default" | "unconfined") => {}
        None => errs.invalid(at, profile, "must be a valid seccomp profile"),
    }
}

fn is_app_armor_profile(profile: &str) -> bool {
    matches!(profile, "" | "runtime/default" | "unconfined") || profile.starts_with(LOCALHOST)
}
