//! DeviceClass: devices that are known by one name.

use std::borrow::Cow;

use setpoint_api::name;

use super::bounded::each;
use super::configuration::{CONFIGS_MAX, validate_configuration, validate_selectors};
use crate::behaviour::{Behaviour, Generation};
use crate::columns::Column;
use crate::errors::Errors;
use crate::kind::Kind;
use crate::metadata;
use crate::node::Node;

const COLUMNS: &[Column<'static>] = &[Column::NAME, Column::AGE];

/// The decisions of DeviceClass.
#[derive(Debug)]
pub struct DeviceClass;

impl Behaviour for DeviceClass {
    fn validate(&self, object: &Node<'_>, errs: &mut Errors) {
        validate_spec(&object.get("spec"), None, errs);
    }

    fn check_update(&self, kind: &Kind, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        metadata::validate(new, kind.namespaced, self.name_rule(), errs);
        metadata::validate_update(new, old, errs);
        validate_spec(&new.get("spec"), Some(&old.get("spec")), errs);
    }

    fn generation(&self) -> Generation {
        Generation::On(&["spec"])
    }

    fn columns(&self) -> Cow<'_, [Column<'_>]> {
        COLUMNS.into()
    }
}

fn validate_spec(spec: &Node<'_>, old: Option<&Node<'_>>, errs: &mut Errors) {
    validate_selectors(&spec.get("selectors"), errs);
    let configs = spec.get("config");
    let kept = old.is_some_and(|old| configs.same(&old.get("config")));
    each(&configs, CONFIGS_MAX, errs, |config, errs| validate_configuration(config, kept, errs));
    let extended = spec.get("extendedResourceName");
    if extended.is_set() && !is_extended_resource(extended.as_str()) {
        errs.invalid_here(&extended, "must be a valid extended resource name");
    }
}

/// A resource that Kubernetes itself doesn't know.
fn is_extended_resource(text: &str) -> bool {
    let native = !text.contains('/') || text.contains("kubernetes.io/");
    !native && !text.starts_with("requests.") && name::qualified_name(&format!("requests.{text}")).is_empty()
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{create, create_fails};
    use serde_json::json;

    #[test]
    fn a_class_may_stand_for_an_extended_resource() {
        let class = |name: &str| json!({"metadata": {"name": "c"}, "spec": {"extendedResourceName": name}});
        create("resource.k8s.io/v1", "deviceclasses", class("example.com/gpu"));
        create_fails(
            "resource.k8s.io/v1",
            "deviceclasses",
            class("cpu"),
            "spec.extendedResourceName: Invalid value: \"cpu\": must be a valid extended resource name",
        );
    }
}
