//! PriorityClass: a name for how important a pod is.

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::behaviour::{Behaviour, Generation};
use crate::columns::{Column, field};
use crate::edit::Edit;
use crate::errors::Errors;
use crate::kind::Kind;
use crate::metadata;
use crate::node::Node;

/// The highest priority that a user may give.
pub const USER_PRIORITY_MAX: i64 = 1_000_000_000;
/// Names that begin so belong to the system.
pub const SYSTEM_PREFIX: &str = "system-";
/// The classes that the system brings along: name and priority.
pub const SYSTEM_CLASSES: [(&str, i64); 2] =
    [("system-node-critical", 2 * USER_PRIORITY_MAX + 1000), ("system-cluster-critical", 2 * USER_PRIORITY_MAX)];

const PREEMPTION_POLICIES: [&str; 2] = ["PreemptLowerPriority", "Never"];

const PRIORITY_CLASS: &str = "io.k8s.api.scheduling.v1.PriorityClass";

const COLUMNS: &[Column<'static>] = &[
    Column::NAME,
    Column::new("Value", "integer", |object, _| json!(object.number("value").unwrap_or(0)))
        .about_field(PRIORITY_CLASS, "value"),
    Column::new("Global-Default", "boolean", |object, _| json!(object.flag("globalDefault")))
        .about_field(PRIORITY_CLASS, "globalDefault"),
    Column::AGE,
    Column::new("PreemptionPolicy", "string", |object, _| field(object, &["preemptionPolicy"]))
        .about_field(PRIORITY_CLASS, "preemptionPolicy"),
];

/// The decisions of PriorityClass.
#[derive(Debug)]
pub struct PriorityClass;

impl Behaviour for PriorityClass {
    fn default(&self, object: &mut Value) {
        object.fill("preemptionPolicy", "PreemptLowerPriority");
    }

    fn validate(&self, object: &Node<'_>, errs: &mut Errors) {
        let metadata = object.get("metadata");
        let (name, value) = (metadata.str("name"), object.int("value").unwrap_or(0));
        if name.starts_with(SYSTEM_PREFIX) {
            if let Some(problem) = not_of_the_system(name, value, object.bool("globalDefault")) {
                let detail = format!(
                    "priority class names with '{SYSTEM_PREFIX}' prefix are reserved for system use only. error: {problem}"
                );
                errs.forbidden(&metadata.get("name"), detail);
            }
        } else if value > USER_PRIORITY_MAX {
            let detail = format!("maximum allowed value of a user defined priority is {USER_PRIORITY_MAX}");
            errs.forbidden(&object.get("value"), detail);
        }
        if object.has("preemptionPolicy") {
            validate_preemption_policy(&object.get("preemptionPolicy"), errs);
        }
    }

    fn check_update(&self, _kind: &Kind, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        metadata::validate_update(new, old, errs);
        if new.int("value") != old.int("value") {
            errs.forbidden(&new.get("value"), "may not be changed in an update.");
        }
        errs.immutable(&new.get("preemptionPolicy"), &old.get("preemptionPolicy"));
    }

    fn generation(&self) -> Generation {
        Generation::On(&[])
    }

    fn columns(&self) -> Cow<'_, [Column<'_>]> {
        COLUMNS.into()
    }
}

/// What to do when there is no room: one of two words.
pub fn validate_preemption_policy(at: &Node<'_>, errs: &mut Errors) {
    match at.as_str() {
        "" => errs.required(at, ""),
        policy if !PREEMPTION_POLICIES.contains(&policy) => errs.not_supported(at, policy, &PREEMPTION_POLICIES),
        _ => {}
    }
}

fn not_of_the_system(name: &str, value: i64, global: bool) -> Option<String> {
    let Some((_, expected)) = SYSTEM_CLASSES.iter().find(|(known, _)| *known == name) else {
        return Some(format!("{name} is not a known system priority class"));
    };
    if *expected != value {
        return Some(format!("value of {name} PriorityClass must be {expected}"));
    }
    global.then(|| format!("globalDefault of {name} PriorityClass must be false"))
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{create, create_fails, update_fails};
    use super::*;

    const V1: &str = "scheduling.k8s.io/v1";

    #[test]
    fn a_class_preempts_unless_told_otherwise() {
        let object = create(V1, "priorityclasses", json!({"metadata": {"name": "a"}, "value": 5}));
        assert_eq!(object["preemptionPolicy"], "PreemptLowerPriority");
        assert_eq!(object["metadata"]["generation"], 1);
    }

    #[test]
    fn the_system_keeps_names_and_high_values_for_itself() {
        create(V1, "priorityclasses", json!({"metadata": {"name": "system-cluster-critical"}, "value": 2_000_000_000}));
        for (name, value, expected) in [
            ("a", 1_000_000_001, "value: Forbidden: maximum allowed value of a user defined priority is 1000000000"),
            (
                "system-node-critical",
                1,
                "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. \
                 error: value of system-node-critical PriorityClass must be 2000001000",
            ),
        ] {
            create_fails(V1, "priorityclasses", json!({"metadata": {"name": name}, "value": value}), expected);
        }
    }

    #[test]
    fn a_value_stays() {
        update_fails(
            V1,
            "priorityclasses",
            json!({"metadata": {"name": "a"}, "value": 5}),
            json!({"metadata": {"name": "a"}, "value": 6, "preemptionPolicy": "Never"}),
            "[value: Forbidden: may not be changed in an update., \
             preemptionPolicy: Invalid value: \"Never\": field is immutable]",
        );
    }
}
