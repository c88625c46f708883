//! The status of a claim: what was allocated, for whom it is reserved, what drivers say of the devices.

use std::collections::HashSet;

use serde_json::{Value, json};
use setpoint_api::ip::validate_interface_address;
use setpoint_api::labels::ValueRules;
use setpoint_api::{BadValue, Path};

use super::super::conditions;
use super::super::core::pod::scheduling::validate_node_selector;
use super::super::go_value;
use super::bounded::{each, set};
use super::claim::RequestNames;
use super::claim_layout::ALLOCATION;
use super::configuration::{CONFIGS_MAX, PARAMETERS_BYTES_MAX, validate_configuration, validate_raw};
use super::device::validate_binding_conditions;
use super::names::{validate_driver, validate_label, validate_pool, validate_uid};
use crate::edit::Edit;
use crate::errors::Errors;
use crate::node::Node;

const RESERVED_MAX: usize = 256;
const RESULTS_MAX: usize = 32;
const CONDITIONS_MAX: usize = 8;
const ADDRESSES_MAX: usize = 16;
const INTERFACE_BYTES_MAX: usize = 256;
const HARDWARE_ADDRESS_BYTES_MAX: usize = 128;

/// Driver, pool, device and share.
type DeviceId<'a> = [&'a str; 4];

/// What drivers said of devices that are not allocated any more is forgotten.
pub(super) fn drop_deallocated(new: &mut Value, old: &Value) {
    let mut gone = allocated(old);
    for id in allocated(new) {
        gone.remove(&id);
    }
    let gone: HashSet<[String; 4]> = gone.into_iter().map(|id| id.map(str::to_owned)).collect();
    let Some(status) = new.child("status") else { return };
    if let Some(devices) = status.child("devices").and_then(Value::as_array_mut) {
        devices.retain(|device| !gone.contains(&id_of(device).map(str::to_owned)));
    }
    if status["devices"].as_array().is_some_and(|devices| devices.is_empty()) {
        status.remove("devices");
    }
}

/// The rules for a write to `/status`.
pub(super) fn validate_status(new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
    let (status, old_status) = (new.get("status"), old.get("status"));
    let reserved = status.get("reservedFor");
    set(
        &reserved,
        RESERVED_MAX,
        errs,
        |user| user.str("uid"),
        |user, errs| {
            for field in ["resource", "name", "uid"] {
                if user.str(field).is_empty() {
                    errs.required(&user.get(field), "");
                }
            }
        },
    );
    validate_devices(new, &status.get("devices"), errs);
    let (allocation, before) = (status.get("allocation"), old_status.get("allocation"));
    validate_reserved(&reserved, &old_status.get("reservedFor"), &allocation, new, errs);
    if allocation.is_set() && before.is_set() {
        if !allocation.same(&before) {
            let shown = BadValue::Json(go_value::laid_out(allocation.value(), &ALLOCATION));
            errs.invalid(&allocation, shown, "field is immutable");
        }
    } else if allocation.is_set() {
        validate_allocation(&allocation, &RequestNames::of(&new.get("spec")), errs);
    }
}

fn allocated(claim: &Value) -> HashSet<DeviceId<'_>> {
    let results = claim.find(&["status", "allocation", "devices", "results"]).and_then(Value::as_array);
    results.into_iter().flatten().map(id_of).collect()
}

fn id_of(device: &Value) -> DeviceId<'_> {
    ["driver", "pool", "device", "shareID"].map(|field| device.text(field))
}

fn shown_id(id: &DeviceId<'_>) -> BadValue {
    let names = ["Driver", "Pool", "Device", "ShareID"];
    go_value::object(names.into_iter().zip(id.iter().map(|part| json!(part))))
}

fn validate_devices(claim: &Node<'_>, devices: &Node<'_>, errs: &mut Errors) {
    let allocated = allocated(claim.json());
    let mut seen = HashSet::new();
    for device in devices.clone().into_items() {
        validate_driver(&device.get("driver"), errs);
        validate_pool(&device.get("pool"), errs);
        validate_label(&device.get("device"), errs);
        if device.has("shareID") {
            validate_uid(&device.get("shareID"), errs);
        }
        let id = id_of(device.json());
        if !allocated.contains(&id) {
            errs.invalid(&device, shown_id(&id), "must be an allocated device in the claim");
        }
        if device.count("conditions") > CONDITIONS_MAX {
            errs.too_many(&device.get("conditions"), device.count("conditions"), CONDITIONS_MAX);
        }
        conditions::validate(&device.get("conditions"), errs);
        let data = device.get("data");
        if data.is_set() {
            validate_raw(&data, false, PARAMETERS_BYTES_MAX, errs);
        }
        validate_network(&device.get("networkData"), errs);
    }
    for device in devices.clone().into_items() {
        let id = id_of(device.json());
        if !seen.insert(id) {
            errs.duplicate(&device, shown_id(&id));
        }
    }
}

fn validate_network(network: &Node<'_>, errs: &mut Errors) {
    for (field, max) in [("interfaceName", INTERFACE_BYTES_MAX), ("hardwareAddress", HARDWARE_ADDRESS_BYTES_MAX)] {
        if network.str(field).len() > max {
            errs.too_long(&network.get(field), max);
        }
    }
    set(
        &network.get("ips"),
        ADDRESSES_MAX,
        errs,
        |ip| ip.as_str(),
        |ip, errs| {
            errs.extend(validate_interface_address(&Path::root(&ip.path()), ip.as_str()));
        },
    );
}

fn validate_reserved(
    reserved: &Node<'_>,
    before: &Node<'_>,
    allocation: &Node<'_>,
    claim: &Node<'_>,
    errs: &mut Errors,
) {
    if reserved.is_empty() {
        return;
    }
    if !allocation.is_set() {
        return errs.forbidden(reserved, "may not be specified when `allocated` is not set");
    }
    let known: Vec<&Value> = before.clone().into_items().map(|user| user.json()).collect();
    let added = reserved.clone().into_items().any(|user| !known.contains(&user.json()));
    if added && claim.get("metadata").has("deletionTimestamp") {
        let detail = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set";
        errs.forbidden(reserved, detail);
    }
}

fn validate_allocation(allocation: &Node<'_>, names: &RequestNames<'_>, errs: &mut Errors) {
    let devices = allocation.get("devices");
    each(&devices.get("results"), RESULTS_MAX, errs, |result, errs| {
        names.validate_reference(&result.get("request"), errs);
        validate_driver(&result.get("driver"), errs);
        validate_pool(&result.get("pool"), errs);
        validate_label(&result.get("device"), errs);
        validate_binding_conditions(result, errs);
        if result.has("shareID") {
            validate_uid(&result.get("shareID"), errs);
        }
    });
    each(&devices.get("config"), 2 * CONFIGS_MAX, errs, |config, errs| {
        let source = config.get("source");
        match source.as_str() {
            "" => errs.required(&source, ""),
            "FromClaim" | "FromClass" => {}
            other => errs.not_supported(&source, other, &["FromClaim", "FromClass"]),
        }
        names.validate_references(&config.get("requests"), errs);
        validate_configuration(config, false, errs);
    });
    let selector = allocation.get("nodeSelector");
    if selector.is_set() {
        validate_node_selector(&selector, ValueRules::Strict, errs);
    }
}
