//! ResourceSlice: devices of one pool that a driver has.

use std::borrow::Cow;

use serde_json::Value;
use setpoint_api::labels::ValueRules;
use setpoint_api::name;
use setpoint_api::quote::quote;
use setpoint_api::time::format_rfc3339;

use super::super::core::pod::scheduling::validate_node_selector;
use super::bounded::set;
use super::device::{validate_counters, validate_device};
use super::names::{validate_driver, validate_pool};
use crate::behaviour::{Behaviour, Context, Generation};
use crate::columns::{Column, field};
use crate::edit::Edit;
use crate::errors::Errors;
use crate::kind::Kind;
use crate::metadata;
use crate::node::Node;
use crate::selectable::{Selectable, as_text};

const DEVICES_MAX: usize = 128;
/// Devices that take more to describe, or to choose from.
const ELABORATE_DEVICES_MAX: usize = 64;
const COUNTER_SETS_MAX: usize = 8;

const SPEC: &str = "io.k8s.api.resource.v1.ResourceSliceSpec";

const COLUMNS: &[Column<'static>] = &[
    Column::NAME,
    Column::new("Node", "string", |object, _| field(object, &["spec", "nodeName"])).about_field(SPEC, "nodeName"),
    Column::new("Driver", "string", |object, _| field(object, &["spec", "driver"])).about_field(SPEC, "driver"),
    Column::new("Pool", "string", |object, _| field(object, &["spec", "pool", "name"]))
        .about_field("io.k8s.api.resource.v1.ResourcePool", "name"),
    Column::AGE,
];

static SELECTABLE: [Selectable; 2] = [
    Selectable::new("spec.nodeName", |object| as_text(object.find(&["spec", "nodeName"]))),
    Selectable::new("spec.driver", |object| as_text(object.find(&["spec", "driver"]))),
];

/// The decisions of ResourceSlice.
#[derive(Debug)]
pub struct ResourceSlice;

impl Behaviour for ResourceSlice {
    fn prepare_create(&self, object: &mut Value, context: &Context) {
        prepare(object, context);
    }

    fn prepare_update(&self, new: &mut Value, _old: &Value, context: &Context) {
        prepare(new, context);
    }

    fn validate(&self, object: &Node<'_>, errs: &mut Errors) {
        validate_spec(&object.get("spec"), None, errs);
    }

    fn check_update(&self, _kind: &Kind, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        metadata::validate_update(new, old, errs);
        validate_spec(&new.get("spec"), Some(&old.get("spec")), errs);
    }

    fn warnings(&self, new: &Node<'_>, _old: Option<&Node<'_>>) -> Vec<String> {
        let driver = new.get("spec").str("driver").to_owned();
        if driver == driver.to_lowercase() {
            return Vec::new();
        }
        vec![format!("spec.driver: driver names should be lowercase; {} contains uppercase characters", quote(&driver))]
    }

    fn generation(&self) -> Generation {
        Generation::On(&["spec"])
    }

    fn selectable(&self) -> &[Selectable] {
        &SELECTABLE
    }

    fn columns(&self) -> Cow<'_, [Column<'_>]> {
        COLUMNS.into()
    }
}

/// Fields that are off in this version go, and taints get the time they were added at.
fn prepare(slice: &mut Value, context: &Context) {
    let Some(spec) = slice.child("spec") else { return };
    for device in spec.items_mut("devices") {
        device.remove("nodeAllocatableResourceMappings");
        if let Some(attributes) = device.child("attributes").and_then(Value::as_object_mut) {
            for attribute in attributes.values_mut() {
                for field in ["ints", "bools", "strings", "versions"] {
                    attribute.remove(field);
                }
            }
        }
        for taint in device.items_mut("taints") {
            taint.default_absent("timeAdded", format_rfc3339(context.now));
        }
    }
}

fn validate_spec(spec: &Node<'_>, old: Option<&Node<'_>>, errs: &mut Errors) {
    validate_driver(&spec.get("driver"), errs);
    validate_slice_pool(&spec.get("pool"), errs);
    if let Some(old) = old {
        errs.immutable(&spec.get("pool").get("name"), &old.get("pool").get("name"));
        errs.immutable(&spec.get("driver"), &old.get("driver"));
        errs.immutable(&spec.get("nodeName"), &old.get("nodeName"));
    }
    validate_placement(spec, errs);
    if spec.has("sharedCounters") && spec.has("devices") {
        errs.invalid(spec, "", "only one of `sharedCounters` or `devices` is allowed");
    }
    let elaborate = spec.items("devices").any(|d| d.count("taints") > 0 || d.count("consumesCounters") > 0);
    let max = if elaborate { ELABORATE_DEVICES_MAX } else { DEVICES_MAX };
    let alone = spec.bool("perDeviceNodeSelection");
    set(
        &spec.get("devices"),
        max,
        errs,
        |device| device.str("name"),
        |device, errs| {
            let before = old.and_then(|old| old.items("devices").find(|other| other.str("name") == device.str("name")));
            validate_device(device, before.as_ref(), alone, errs);
        },
    );
    set(
        &spec.get("sharedCounters"),
        COUNTER_SETS_MAX,
        errs,
        |counters| counters.str("name"),
        |counters, errs| {
            validate_counters(&counters.get("name"), &counters.get("counters"), errs);
        },
    );
}

fn validate_slice_pool(pool: &Node<'_>, errs: &mut Errors) {
    validate_pool(&pool.get("name"), errs);
    let (count, generation) = (pool.int("resourceSliceCount").unwrap_or(0), pool.int("generation").unwrap_or(0));
    if count <= 0 {
        errs.invalid(&pool.get("resourceSliceCount"), count, "must be greater than zero");
    }
    if generation < 0 {
        errs.invalid(&pool.get("generation"), generation, "must be greater than or equal to zero");
    }
}

/// Where the devices are: exactly one way of saying so.
fn validate_placement(spec: &Node<'_>, errs: &mut Errors) {
    const ONE: &str = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    let mut ways = Vec::new();
    let (node, selector) = (spec.get("nodeName"), spec.get("nodeSelector"));
    if node.is_set() && node.is_empty() {
        errs.invalid_here(&node, "must be either unset or set to a non-empty string");
    } else if node.is_set() {
        ways.push("`nodeName`");
        errs.invalid_each(&node, node.as_str(), name::dns1123_subdomain(node.as_str()));
    }
    if selector.is_set() {
        ways.push("`nodeSelector`");
        validate_node_selector(&selector, ValueRules::Strict, errs);
        if selector.count("nodeSelectorTerms") != 1 {
            errs.invalid_here(&selector.get("nodeSelectorTerms"), "must have exactly one node selector term");
        }
    }
    for (field, way) in [("allNodes", "`allNodes`"), ("perDeviceNodeSelection", "`perDeviceNodeSelection`")] {
        match spec.maybe_bool(field) {
            Some(true) => ways.push(way),
            Some(false) => errs.invalid_here(&spec.get(field), "must be either unset or set to true"),
            None => {}
        }
    }
    match ways.len() {
        0 => errs.required(spec, ONE),
        1 => {}
        _ => errs.invalid(spec, format!("{{{}}}", ways.join(", ")), format!("{ONE}, but multiple fields are set")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{columns, create, create_fails, selected, update_fails, warnings};
    use super::*;
    use serde_json::json;

    const V1: &str = "resource.k8s.io/v1";

    fn slice(driver: &str, devices: Value) -> Value {
        let pool = json!({"name": "p", "resourceSliceCount": 1});
        json!({"metadata": {"name": "s"}, "spec": {"driver": driver, "pool": pool, "nodeName": "n", "devices": devices}})
    }

    #[test]
    fn a_slice_is_found_by_node_and_driver() {
        let taint = json!({"key": "a", "effect": "NoSchedule"});
        let object = create(V1, "resourceslices", slice("gpu.example.com", json!([{"name": "d", "taints": [taint]}])));
        assert!(object["spec"]["devices"][0]["taints"][0]["timeAdded"].is_string());
        assert_eq!(selected(V1, "resourceslices", &object, "spec.nodeName"), "n");
        let row = columns(V1, "resourceslices", &object);
        assert_eq!(row, json!(["s", "n", "gpu.example.com", "p", "<unknown>"]));
    }

    #[test]
    fn devices_differ_in_their_names() {
        create_fails(
            V1,
            "resourceslices",
            slice("gpu.example.com", json!([{"name": "d"}, {"name": "d"}])),
            "spec.devices[1]: Duplicate value: \"d\"",
        );
    }

    #[test]
    fn the_driver_of_a_slice_stays() {
        update_fails(
            V1,
            "resourceslices",
            slice("a.example.com", json!([])),
            slice("b.example.com", json!([])),
            "spec.driver: Invalid value: \"b.example.com\": field is immutable",
        );
    }

    #[test]
    fn a_driver_with_capitals_is_warned_of() {
        let slice = slice("None", json!([]));
        let expected = r#"spec.driver: driver names should be lowercase; "None" contains uppercase characters"#;
        assert_eq!(warnings(V1, "resourceslices", slice), [expected]);
    }
}
