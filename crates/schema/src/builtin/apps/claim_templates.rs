//! The templates from which a StatefulSet makes the claims of its pods.

use serde_json::{Value, json};

use super::super::core::persistentvolumeclaim::{PersistentVolumeClaim, spec_warnings, validate_spec};
use crate::behaviour::Behaviour;
use crate::edit::Edit;
use crate::errors::Errors;
use crate::node::Node;

/// Fills in what a claim has by itself.
pub(super) fn default_claims(spec: &mut Value) {
    for claim in spec.items_mut("volumeClaimTemplates") {
        claim.set("apiVersion", "v1");
        claim.set("kind", "PersistentVolumeClaim");
        PersistentVolumeClaim.default(claim);
    }
}

/// The rules for the claims of a new set.
pub(super) fn validate_claims(spec: &Node<'_>, errs: &mut Errors) {
    for claim in spec.items("volumeClaimTemplates") {
        validate_spec(&claim.get("spec"), None, errs);
    }
}

/// What the user should know about the claims. Upstream names other places than the right ones, and not the same on an
/// update as on creation.
pub(super) fn claim_warnings(spec: &Node<'_>, update: bool) -> Vec<String> {
    let place = if update { ".Spec" } else { "" };
    let claims = spec.items("volumeClaimTemplates");
    claims.flat_map(|claim| spec_warnings(&claim.get("spec").at(format!("{}{place}", claim.path())))).collect()
}

/// The template of pods as it is checked: with a volume for each claim, and without names that are given to each pod.
pub(super) fn template_with_volumes(spec: &Value) -> Value {
    let mut template = spec.get("template").cloned().unwrap_or_else(|| json!({}));
    let claims = spec.get("volumeClaimTemplates").and_then(Value::as_array).map_or(&[] as &[Value], Vec::as_slice);
    let pod = template.ensure("spec");
    pod.remove("subdomain");
    pod.remove("hostname");
    if claims.is_empty() {
        return template;
    }
    let mut volumes: Vec<Value> = Vec::new();
    for name in claims.iter().map(|claim| claim["metadata"].text("name")) {
        if !volumes.iter().any(|volume| volume.text("name") == name) {
            volumes.push(json!({"name": name, "persistentVolumeClaim": {"claimName": name}}));
        }
    }
    let of_claims = volumes.len();
    for volume in pod.get("volumes").and_then(Value::as_array).into_iter().flatten() {
        if !volumes[..of_claims].iter().any(|taken| taken["name"] == volume["name"]) {
            volumes.push(volume.clone());
        }
    }
    pod.set("volumes", volumes);
    template
}
