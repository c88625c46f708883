//! Taints of nodes and the tolerations of pods for them.

use setpoint_api::name;

use crate::errors::Errors;
use crate::internal_form::shown;
use crate::node::Node;

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// Tolerations as a RuntimeClass has them: no numeric comparisons, each only once.
pub fn validate_distinct(tolerations: &Node<'_>, errs: &mut Errors) {
    validate_all(tolerations, errs);
    let mut seen = Vec::new();
    for toleration in tolerations.clone().into_items() {
        let key = ["key", "operator", "value", "effect"].map(|field| toleration.str(field));
        if seen.contains(&key) {
            errs.duplicate(&toleration, shown(&toleration));
        } else {
            seen.push(key);
        }
    }
}

fn validate_all(tolerations: &Node<'_>, errs: &mut Errors) {
    for toleration in tolerations.clone().into_items() {
        validate(&toleration, errs);
    }
}

fn validate(toleration: &Node<'_>, errs: &mut Errors) {
    let [key, operator, value, effect] = ["key", "operator", "value", "effect"].map(|field| toleration.str(field));
    let at = toleration.get("operator");
    if !key.is_empty() {
        errs.invalid_each(&toleration.get("key"), key, name::qualified_name(key));
    } else if operator != "Exists" {
        let detail = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
        errs.invalid(&at, operator, detail);
    }
    if toleration.has("tolerationSeconds") && effect != "NoExecute" {
        let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
        errs.invalid(&toleration.get("effect"), effect, detail);
    }
    match operator {
        "" | "Equal" => {
            let complaints = name::label_value(value);
            if !complaints.is_empty() {
                errs.invalid(&at.at(at.path()), value, complaints.join(";"));
            }
        }
        "Exists" if !value.is_empty() => errs.invalid(&at, value, "value must be empty when `operator` is 'Exists'"),
        "Exists" => {}
        "Lt" | "Gt" => errs.not_supported(&at, operator, &["Equal", "Exists", "Lt", "Gt"]),
        _ => errs.not_supported(&at, operator, &["Equal", "Exists"]),
    }
    if !effect.is_empty() {
        validate_effect(&toleration.get("effect"), errs);
    }
}

/// What a taint does is one of three words.
pub fn validate_effect(at: &Node<'_>, errs: &mut Errors) {
    if !EFFECTS.contains(&at.as_str()) {
        errs.not_supported(at, at.as_str(), &EFFECTS);
    }
}
