//! RuntimeClass: a way to run containers that nodes offer.

use std::borrow::Cow;

use serde_json::Value;
use setpoint_api::name;

use crate::behaviour::Behaviour;
use crate::builtin::core::{node_label, resource_list, toleration};
use crate::columns::{Column, field};
use crate::edit::Edit;
use crate::errors::Errors;
use crate::kind::Kind;
use crate::metadata;
use crate::node::Node;

const COLUMNS: &[Column<'static>] =
    &[Column::NAME, Column::new("Handler", "string", |object, _| field(object, &["handler"])), Column::AGE];

/// The decisions of RuntimeClass.
#[derive(Debug)]
pub struct RuntimeClass;

impl Behaviour for RuntimeClass {
    fn default(&self, object: &mut Value) {
        resource_list::round_up(object.find_mut(&["overhead", "podFixed"]));
    }

    fn validate(&self, object: &Node<'_>, errs: &mut Errors) {
        match object.str("handler") {
            "" => errs.required(&object.get("handler"), ""),
            handler => errs.invalid_each(&object.get("handler"), handler, name::dns1123_label(handler)),
        }
        let overhead = object.get("overhead");
        resource_list::validate_limits(&overhead.get("podFixed").at(overhead.path()), errs);
        let scheduling = object.get("scheduling");
        metadata::validate_labels(&scheduling.get("nodeSelector"), errs);
        toleration::validate_distinct(&scheduling.get("tolerations"), errs);
    }

    fn check_create(&self, kind: &Kind, object: &Node<'_>, errs: &mut Errors) {
        metadata::validate_generic(object, kind.namespaced, self.name_rule(), errs);
        self.validate(object, errs);
    }

    fn check_update(&self, kind: &Kind, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        self.check_create(kind, new, errs);
        metadata::validate_generic_update(new, old, errs);
        errs.immutable(&new.get("handler"), &old.get("handler"));
    }

    fn warnings(&self, new: &Node<'_>, _old: Option<&Node<'_>>) -> Vec<String> {
        let labels = new.get("scheduling").get("nodeSelector");
        let deprecated = labels.clone().into_entries().filter_map(|(label, _)| node_label::deprecated(label));
        deprecated.map(|message| format!("{}: {message}", labels.path())).collect()
    }

    fn allow_create_on_update(&self) -> bool {
        true
    }

    fn allow_unconditional_update(&self) -> bool {
        false
    }

    fn columns(&self) -> Cow<'_, [Column<'_>]> {
        COLUMNS.into()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::testing::{create_fails, update_fails, warnings};

    const V1: &str = "node.k8s.io/v1";

    #[test]
    fn a_handler_is_a_label_that_stays() {
        let with = |handler: &str| json!({"metadata": {"name": "a"}, "handler": handler});
        create_fails(V1, "runtimeclasses", json!({"metadata": {"name": "a"}}), "handler: Required value");
        let expected = "handler: Invalid value: \"b\": field is immutable";
        update_fails(V1, "runtimeclasses", with("a"), with("b"), expected);
    }

    #[test]
    fn overhead_and_tolerations_follow_the_rules_of_pods() {
        for (field, value, expected) in [
            (
                "overhead",
                json!({"podFixed": {"hugepages-2Mi": "3Mi"}}),
                "[overhead.limits[hugepages-2Mi]: Invalid value: \"3Mi\": 3Mi is not positive integer multiple of \
                 hugepages-2Mi, overhead: Forbidden: HugePages require cpu or memory]",
            ),
            (
                "scheduling",
                json!({"tolerations": [{"operator": "Exists", "value": "x"}]}),
                "scheduling.tolerations[0].operator: Invalid value: \"x\": value must be empty when `operator` is 'Exists'",
            ),
            (
                "scheduling",
                json!({"tolerations": [{"key": "k"}, {"key": "k"}]}),
                "scheduling.tolerations[1]: Duplicate value: \
                 {\"Key\":\"k\",\"Operator\":\"\",\"Value\":\"\",\"Effect\":\"\",\"TolerationSeconds\":null}",
            ),
        ] {
            create_fails(
                V1,
                "runtimeclasses",
                json!({"metadata": {"name": "a"}, "handler": "h", field: value}),
                expected,
            );
        }
    }

    #[test]
    fn an_old_label_warns() {
        let scheduling = json!({"nodeSelector": {"beta.kubernetes.io/os": "linux"}});
        assert_eq!(
            warnings(
                V1,
                "runtimeclasses",
                json!({"metadata": {"name": "a"}, "handler": "h", "scheduling": scheduling})
            ),
            ["scheduling.nodeSelector: deprecated since v1.14; use \"kubernetes.io/os\" instead"]
        );
    }
}
