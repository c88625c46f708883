//! One device of a slice: its attributes, its taints, where it is.

use std::collections::HashSet;

use serde_json::Value;
use setpoint_api::labels::ValueRules;
use setpoint_api::{BadValue, name};

use super::super::core::pod::scheduling::validate_node_selector;
use super::super::go_value::{self, Layout};
use super::bounded::{each, set};
use super::claim::TAINT_EFFECTS;
use super::device_capacity::validate_capacity;
use super::names::{validate_label, validate_qualified};
use crate::errors::Errors;
use crate::node::Node;

const PROPERTIES_MAX: usize = 32;
const TAINTS_MAX: usize = 16;
const CONSUMPTIONS_MAX: usize = 2;
const COUNTERS_MAX: usize = 32;
const BINDING_CONDITIONS_MAX: usize = 4;
const VALUE_BYTES_MAX: usize = 64;
/// Longest name of an attribute that messages show whole.
const SHOWN_KEY_BYTES_MAX: usize = 63 + 1 + 32;

const ATTRIBUTE: Layout = Layout::Struct(&[
    ("IntValue", "int", Layout::Json),
    ("BoolValue", "bool", Layout::Json),
    ("StringValue", "string", Layout::Json),
    ("VersionValue", "version", Layout::Json),
    ("IntValues", "ints", Layout::Json),
    ("BoolValues", "bools", Layout::Json),
    ("StringValues", "strings", Layout::Json),
    ("VersionValues", "versions", Layout::Json),
]);

/// The rules for a device. `old` is the device of the same name before an update.
pub(super) fn validate_device(device: &Node<'_>, old: Option<&Node<'_>>, placed_alone: bool, errs: &mut Errors) {
    validate_label(&device.get("name"), errs);
    let properties = device.count("attributes") + device.count("capacity");
    if properties > PROPERTIES_MAX {
        let detail = format!("the total number of attributes and capacities must not exceed {PROPERTIES_MAX}");
        errs.invalid(device, properties as i64, detail);
    }
    for (key, attribute) in device.entries("attributes") {
        validate_qualified(&device.get("attributes"), key, errs);
        validate_attribute(&shortened(device, "attributes", key, &attribute), errs);
    }
    let shared = device.bool("allowMultipleAllocations");
    for (key, capacity) in device.entries("capacity") {
        validate_qualified(&device.get("capacity"), key, errs);
        validate_capacity(&shortened(device, "capacity", key, &capacity), shared, errs);
    }
    let taints = device.get("taints");
    if old.is_none_or(|old| !taints.same(&old.get("taints"))) {
        each(&taints, TAINTS_MAX, errs, validate_taint);
    }
    let consumed = device.get("consumesCounters");
    set(
        &consumed,
        CONSUMPTIONS_MAX,
        errs,
        |item| item.str("counterSet"),
        |item, errs| {
            validate_counters(&item.get("counterSet"), &item.get("counters"), errs);
        },
    );
    validate_placement(device, placed_alone, errs);
    validate_binding_conditions(device, errs);
}

/// Counters of a set: a name and at least one of them.
pub(super) fn validate_counters(name: &Node<'_>, counters: &Node<'_>, errs: &mut Errors) {
    if name.is_empty() {
        errs.required(name, "");
    } else {
        validate_label(name, errs);
    }
    let count = counters.clone().into_entries().count();
    if count == 0 {
        return errs.required(counters, "");
    }
    if count > COUNTERS_MAX {
        return errs.too_many(counters, count, COUNTERS_MAX);
    }
    for (key, _) in counters.clone().into_entries() {
        errs.invalid_each(counters, key, name::dns1123_label(key));
    }
}

/// Conditions that a device waits for when it is bound, and those that make it fail.
pub(super) fn validate_binding_conditions(at: &Node<'_>, errs: &mut Errors) {
    let (wanted, failing) = (at.get("bindingConditions"), at.get("bindingFailureConditions"));
    for list in [&wanted, &failing] {
        each(list, BINDING_CONDITIONS_MAX, errs, |item, errs| {
            errs.invalid_each(item, item.as_str(), name::qualified_name(item.as_str()));
        });
    }
    let mut seen = HashSet::new();
    for item in wanted.clone().into_items() {
        if !seen.insert(item.as_str()) {
            errs.duplicate(&item, item.as_str());
        }
    }
    let mut failures = HashSet::new();
    for item in failing.clone().into_items() {
        if !failures.insert(item.as_str()) {
            errs.duplicate(&item, item.as_str());
        }
        if seen.contains(item.as_str()) {
            errs.invalid_here(&item, "bindingFailureConditions must not overlap with bindingConditions");
        }
    }
    if wanted.is_empty() && !failing.is_empty() {
        errs.invalid(&wanted, wanted.json(), "bindingConditions are required to use bindingFailureConditions");
    }
    if failing.is_empty() && !wanted.is_empty() {
        errs.invalid(&failing, failing.json(), "bindingFailureConditions are required to use bindingConditions");
    }
}

/// The value at a key that is shown shortened if it is long.
fn shortened<'a>(device: &Node<'a>, field: &'static str, key: &str, value: &Node<'a>) -> Node<'a> {
    if key.len() <= SHOWN_KEY_BYTES_MAX {
        return value.clone();
    }
    let rest = SHOWN_KEY_BYTES_MAX - 3;
    let start = key.get(..rest.div_ceil(2)).unwrap_or(key);
    let end = key.get(key.len() - rest / 2..).unwrap_or("");
    value.at(format!("{}[{start}...{end}]", device.get(field).path()))
}

fn validate_attribute(attribute: &Node<'_>, errs: &mut Errors) {
    let (text, version) = (attribute.get("string"), attribute.get("version"));
    if text.is_set() {
        validate_length(&text, errs);
    }
    if version.is_set() {
        if !is_semver(version.as_str()) {
            errs.invalid_here(&version, "must be a string compatible with semver.org spec 2.0.0");
        }
        validate_length(&version, errs);
    }
    let values = ["int", "bool", "string", "version"].iter().filter(|field| attribute.json().get(**field).is_some());
    match values.count() {
        0 => errs.invalid(attribute, "", "exactly one value must be specified"),
        1 => {}
        _ => {
            let shown = BadValue::Json(go_value::laid_out(attribute.value(), &ATTRIBUTE));
            errs.invalid(attribute, shown, "exactly one value must be specified");
        }
    }
}

fn validate_length(at: &Node<'_>, errs: &mut Errors) {
    if at.as_str().len() > VALUE_BYTES_MAX {
        errs.too_long(at, VALUE_BYTES_MAX);
    }
}

/// A version as semver.org has it: three numbers, then perhaps a pre-release and a build.
fn is_semver(text: &str) -> bool {
    let is_number = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()) && (part == "0" || !part.starts_with('0'))
    };
    let is_identifier =
        |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let is_prerelease =
        |part: &str| is_identifier(part) && (is_number(part) || !part.bytes().all(|byte| byte.is_ascii_digit()));
    let (text, build) = text.split_once('+').map_or((text, None), |(text, build)| (text, Some(build)));
    let (core, pre) = text.split_once('-').map_or((text, None), |(core, pre)| (core, Some(pre)));
    core.split('.').count() == 3
        && core.split('.').all(is_number)
        && pre.is_none_or(|pre| pre.split('.').all(is_prerelease))
        && build.is_none_or(|build| build.split('.').all(is_identifier))
}

fn validate_taint(taint: &Node<'_>, errs: &mut Errors) {
    let (key, value, effect) = (taint.get("key"), taint.get("value"), taint.get("effect"));
    errs.invalid_each(&key, key.as_str(), name::qualified_name(key.as_str()));
    if !value.is_empty() {
        errs.invalid_each(&value, value.as_str(), name::label_value(value.as_str()));
    }
    if effect.is_empty() {
        errs.required(&effect, "");
    } else if !TAINT_EFFECTS.contains(&effect.as_str()) {
        errs.not_supported(&effect, effect.as_str(), TAINT_EFFECTS);
    }
}

/// A device says where it is only if the slice leaves that to each device.
fn validate_placement(device: &Node<'_>, placed_alone: bool, errs: &mut Errors) {
    const ONE: &str = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when \
                       `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
    let (node, selector, all) = (device.get("nodeName"), device.get("nodeSelector"), device.get("allNodes"));
    if !placed_alone {
        if node.is_set() || selector.is_set() || all.is_set() {
            let detail = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to \
                          true in the ResourceSlice spec";
            errs.invalid(device, &Value::Null, detail);
        }
        return;
    }
    let mut ways = Vec::new();
    if node.is_set() && node.is_empty() {
        errs.invalid_here(&node, "must not be empty");
    } else if node.is_set() {
        ways.push("`nodeName`");
        errs.invalid_each(&node, node.as_str(), name::dns1123_subdomain(node.as_str()));
    }
    if selector.is_set() {
        ways.push("`nodeSelector`");
        validate_node_selector(&selector, ValueRules::Strict, errs);
    }
    match all.as_bool() {
        Some(true) => ways.push("`allNodes`"),
        Some(false) => errs.invalid_here(&all, "must be either unset or set to true"),
        None => {}
    }
    match ways.len() {
        0 => errs.required(device, ONE),
        1 => {}
        _ => errs.invalid(device, format!("{{{}}}", ways.join(", ")), ONE),
    }
}

#[cfg(test)]
mod tests {
    use super::is_semver;

    #[test]
    fn a_version_is_as_semver_has_it() {
        for (text, good) in [
            ("1.2.3", true),
            ("1.2.3-alpha.1+build.7", true),
            ("1.2.3-a-b", true),
            ("1.2", false),
            ("01.2.3", false),
            ("1.2.3-01", false),
            ("1.2.3-", false),
            ("v1.2.3", false),
        ] {
            assert_eq!(is_semver(text), good, "{text}");
        }
    }
}
