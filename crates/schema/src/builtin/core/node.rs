//! Node: a machine that runs pods.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde_json::{Value, json};
use setpoint_api::{FieldError, Path, ip, name};

use super::resource_list;
use super::toleration::validate_effect;
use crate::behaviour::{Behaviour, Context, keep};
use crate::builtin::cells;
use crate::columns::{Column, field};
use crate::edit::Edit;
use crate::errors::Errors;
use crate::internal_form::shown;
use crate::json;
use crate::kind::Kind;
use crate::metadata;
use crate::node::Node as Cursor;
use crate::selectable::Selectable;

const ROLE_PREFIX: &str = "node-role.kubernetes.io/";
const ROLE: &str = "kubernetes.io/role";
const AVOID_PODS: &str = "scheduler.alpha.kubernetes.io/preferAvoidPods";

const STATUS: &str = "io.k8s.api.core.v1.NodeStatus";
const INFO: &str = "io.k8s.api.core.v1.NodeSystemInfo";

const COLUMNS: &[Column<'static>] = &[
    Column::NAME,
    Column::new("Status", "string", |object, _| json!(readiness(object))).about("The status of the node"),
    Column::new("Roles", "string", |object, _| json!(roles(object))).about("The roles of the node"),
    Column::AGE,
    Column::new("Version", "string", |object, _| field(object, &["status", "nodeInfo", "kubeletVersion"]))
        .about_field(INFO, "kubeletVersion"),
    Column::new("Internal-IP", "string", |object, _| json!(address(object, "InternalIP")))
        .about_field(STATUS, "addresses")
        .wide(),
    Column::new("External-IP", "string", |object, _| json!(address(object, "ExternalIP")))
        .about_field(STATUS, "addresses")
        .wide(),
    Column::new("OS-Image", "string", |object, _| json!(info(object, "osImage"))).about_field(INFO, "osImage").wide(),
    Column::new("Kernel-Version", "string", |object, _| json!(kernel(object)))
        .about_field(INFO, "kernelVersion")
        .wide(),
    Column::new("Container-Runtime", "string", |object, _| json!(info(object, "containerRuntimeVersion")))
        .about_field(INFO, "containerRuntimeVersion")
        .wide(),
];

static SELECTABLE: [Selectable; 1] =
    [Selectable::new("spec.unschedulable", |object| object["spec"].flag("unschedulable").to_string())];

/// The one range that there once was is the first of many; where they differ, a client of those days has spoken.
fn agree_on_cidrs(spec: &mut Value) {
    let first = spec.find(&["podCIDRs"]).and_then(|all| all.get(0)).and_then(Value::as_str).map(str::to_owned);
    let one = spec.text("podCIDR").to_owned();
    match first {
        Some(first) if one.is_empty() => {
            if !first.is_empty() {
                spec.set("podCIDR", first);
            }
        }
        Some(first) if first == one => {}
        None if one.is_empty() => {}
        _ => spec.set("podCIDRs", json!([one])),
    }
}

/// The decisions of Node.
#[derive(Debug)]
pub struct Node;

impl Behaviour for Node {
    fn default(&self, object: &mut Value) {
        if let Some(spec) = object.child("spec") {
            agree_on_cidrs(spec);
        }
        let Some(status) = object.child("status") else { return };
        if !status.has("allocatable") && status.has("capacity") {
            let capacity = status["capacity"].clone();
            status.set("allocatable", capacity);
        }
        resource_list::round_up(status.child("capacity"));
        resource_list::round_up(status.child("allocatable"));
    }

    fn prepare_create(&self, object: &mut Value, _context: &Context) {
        object.ensure("spec").remove("configSource");
        object.ensure("status").remove("config");
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, _context: &Context) {
        keep(new, old, &["status"]);
        if !old["spec"].has("configSource") {
            new.ensure("spec").remove("configSource");
        }
    }

    fn prepare_status_update(&self, new: &mut Value, old: &Value, _context: &Context) {
        keep(new, old, &["spec"]);
        if !old["status"].has("config") {
            new.ensure("status").remove("config");
        }
    }

    fn validate(&self, object: &Cursor<'_>, errs: &mut Errors) {
        let spec = object.get("spec");
        validate_annotations(object, errs);
        validate_taints(&spec.get("taints").at("metadata.taints"), errs);
        validate_resources(object, errs);
        let swap = object.get("status").get("nodeInfo").get("swap").get("capacity");
        if swap.as_int().is_some_and(|bytes| bytes <= 0) {
            errs.invalid_here(&swap.at("metadata.nodeSwapStatus.capacity"), "must be greater than zero");
        }
        validate_features(&object.get("status").get("declaredFeatures"), errs);
        validate_cidrs(&spec.get("podCIDRs"), errs);
    }

    fn check_update(&self, kind: &Kind, new: &Cursor<'_>, old: &Cursor<'_>, errs: &mut Errors) {
        self.check_create(kind, new, errs);
        validate_change(new, old, errs);
    }

    fn check_status_update(&self, _kind: &Kind, new: &Cursor<'_>, old: &Cursor<'_>, errs: &mut Errors) {
        validate_change(new, old, errs);
    }

    fn warnings(&self, new: &Cursor<'_>, old: Option<&Cursor<'_>>) -> Vec<String> {
        // Only a write to /status can change it, and says nothing.
        if old.is_some_and(|old| !new.get("status").same(&old.get("status"))) {
            return Vec::new();
        }
        let spec = new.get("spec");
        let mut found = Vec::new();
        if spec.has("configSource") {
            found.push("spec.configSource: the feature is removed".to_owned());
        }
        if !spec.str("externalID").is_empty() {
            found.push("spec.externalID: this field is deprecated, and is unused by Kubernetes".to_owned());
        }
        for cidr in spec.items("podCIDRs") {
            found.extend(ip::warnings_for_cidr(&Path::root(&cidr.path()), cidr.as_str()));
        }
        found
    }

    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        if subresource.is_empty() { &["status"] } else { &["spec"] }
    }

    fn selectable(&self) -> &[Selectable] {
        &SELECTABLE
    }

    fn columns(&self) -> Cow<'_, [Column<'_>]> {
        COLUMNS.into()
    }
}

/// A removed way to keep pods away; what is left of it is that the annotation can be read.
fn validate_annotations(object: &Cursor<'_>, errs: &mut Errors) {
    let text = object.get("metadata").get("annotations").json().text(AVOID_PODS);
    if text.is_empty() {
        return;
    }
    let at = object.get("metadata").at("metadata.annotations.AvoidPods");
    match json::parse(text.as_bytes()) {
        Err(error) => errs.invalid(&at, AVOID_PODS, error.to_string()),
        Ok(json::Json::Object(_) | json::Json::Null) => {}
        Ok(other) => errs.invalid(
            &at,
            AVOID_PODS,
            format!("json: cannot unmarshal {} into Go value of type v1.AvoidPods", other.kind()),
        ),
    }
}

fn validate_taints(taints: &Cursor<'_>, errs: &mut Errors) {
    let mut seen = BTreeSet::new();
    for taint in taints.clone().into_items() {
        let (key, value, effect) = (taint.get("key"), taint.get("value"), taint.get("effect"));
        errs.invalid_each(&key, key.as_str(), name::qualified_name(key.as_str()));
        let complaints = name::label_value(value.as_str());
        if !complaints.is_empty() {
            errs.invalid(&value, value.as_str(), complaints.join(";"));
        }
        if effect.is_empty() {
            errs.required(&effect, "");
        } else {
            validate_effect(&effect, errs);
        }
        if !seen.insert((effect.as_str(), key.as_str())) {
            let mut error = FieldError::duplicate(&Path::nil(), shown(&taint)).at(taint.path());
            error.detail = "taints must be unique by key and effect pair".to_owned();
            errs.push(error);
        }
    }
}

fn validate_resources(object: &Cursor<'_>, errs: &mut Errors) {
    let status = object.get("status");
    for list in ["capacity", "allocatable"] {
        for (resource, amount) in status.entries(list) {
            let at = amount.at(format!("status.{list}.{resource}"));
            resource_list::validate_amount(&at, resource, errs);
        }
    }
}

/// Sorted names of features, each once.
fn validate_features(features: &Cursor<'_>, errs: &mut Errors) {
    let list: Vec<_> = features.clone().into_items().collect();
    for (index, feature) in list.iter().enumerate() {
        if let Some(problem) = bad_feature_name(feature.as_str()) {
            errs.invalid_here(feature, problem);
        }
        let Some(next) = list.get(index + 1) else { break };
        if feature.as_str() == next.as_str() {
            errs.duplicate(next, next.as_str());
        } else if feature.as_str() > next.as_str() {
            errs.invalid_here(next, "list must be sorted alphabetically");
        }
    }
}

fn validate_cidrs(cidrs: &Cursor<'_>, errs: &mut Errors) {
    let list: Vec<_> = cidrs.clone().into_items().collect();
    for cidr in &list {
        errs.extend(ip::validate_legacy_cidr(&Path::root(&cidr.path()), cidr.as_str(), &[]));
    }
    if list.len() < 2 {
        return;
    }
    let parsed: Vec<_> = list.iter().map(|cidr| ip::Cidr::parse_sloppy(cidr.as_str())).collect();
    let unreadable = parsed.iter().position(Option::is_none);
    if let Some(at) = unreadable {
        let text = list[at].as_str();
        errs.internal(cidrs, format!("invalid PodCIDRs. failed to check with dual stack with error:invalid CIDR[{at}]: <nil> (invalid CIDR address: {text})"));
    }
    let families: BTreeSet<bool> = parsed.iter().flatten().map(|cidr| cidr.network().is_ipv4()).collect();
    if unreadable.is_some() || families.len() < 2 || list.len() > 2 {
        errs.invalid_here(cidrs, "may specify no more than one CIDR for each IP family");
    }
}

fn validate_change(new: &Cursor<'_>, old: &Cursor<'_>, errs: &mut Errors) {
    metadata::validate_update(new, old, errs);
    validate_annotations(new, errs);
    validate_resources(new, errs);
    validate_features(&new.get("status").get("declaredFeatures"), errs);
    let mut addresses = BTreeSet::new();
    for address in new.get("status").items("addresses") {
        if !addresses.insert((address.str("type"), address.str("address"))) {
            errs.duplicate(&address, shown(&address));
        }
    }
    let (spec, before) = (new.get("spec"), old.get("spec"));
    let (now, then): (Vec<_>, Vec<_>) = (spec.strings("podCIDRs").collect(), before.strings("podCIDRs").collect());
    if !then.is_empty() && now != then {
        let changes = if now.len() == then.len() { now.iter().zip(&then).filter(|(a, b)| a != b).count() } else { 1 };
        for _ in 0..changes {
            errs.forbidden(&spec.get("podCIDRs"), "node updates may not change podCIDR except from \"\" to valid");
        }
    }
    let provider = before.str("providerID");
    if !provider.is_empty() && provider != spec.str("providerID") {
        errs.forbidden(&spec.get("providerID"), "node updates may not change providerID except from \"\" to valid");
    }
    validate_taints(&spec.get("taints").at("metadata.taints"), errs);
    if spec.str("externalID") != before.str("externalID") {
        errs.forbidden(&spec.get("externalID"), "may not be updated");
    }
}

fn readiness(object: &Value) -> String {
    let conditions = object["status"]["conditions"].as_array().map_or(&[] as &[Value], Vec::as_slice);
    let ready = conditions.iter().rev().find(|condition| condition.text("type") == "Ready");
    let mut words = match ready.map(|condition| condition.text("status")) {
        None => "Unknown".to_owned(),
        Some("True") => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
    };
    if object["spec"].flag("unschedulable") {
        words.push_str(",SchedulingDisabled");
    }
    words
}

fn roles(object: &Value) -> String {
    let labels = object["metadata"].get("labels").and_then(Value::as_object).into_iter().flatten();
    let roles = labels.filter_map(|(label, value)| match label.strip_prefix(ROLE_PREFIX) {
        Some(role) => Some(role),
        None if label == ROLE => value.as_str(),
        None => None,
    });
    let roles: BTreeSet<&str> = roles.filter(|role| !role.is_empty()).collect();
    if roles.is_empty() { cells::NONE.to_owned() } else { roles.into_iter().collect::<Vec<_>>().join(",") }
}

fn address<'a>(object: &'a Value, kind: &str) -> &'a str {
    let addresses = object["status"]["addresses"].as_array().map_or(&[] as &[Value], Vec::as_slice);
    addresses.iter().find(|address| address.text("type") == kind).map_or(cells::NONE, |address| address.text("address"))
}

fn info<'a>(object: &'a Value, field: &str) -> &'a str {
    match object["status"]["nodeInfo"].text(field) {
        "" => "<unknown>",
        text => text,
    }
}

fn kernel(object: &Value) -> String {
    let version = info(object, "kernelVersion");
    match object["status"]["nodeInfo"].text("architecture") {
        "" => version.to_owned(),
        architecture => format!("{version} ({architecture})"),
    }
}

/// A feature is called `MyFeature` or `MyFeature/mySubFeature`.
fn bad_feature_name(feature: &str) -> Option<String> {
    let quoted = setpoint_api::quote::quote(feature);
    if feature.len() > name::DNS_SUBDOMAIN_BYTES_MAX {
        let max = name::DNS_SUBDOMAIN_BYTES_MAX;
        return Some(format!("invalid feature name {quoted}: must be no more than {max} characters"));
    }
    let segment = |segment: &str| {
        segment.starts_with(|first: char| first.is_ascii_alphabetic())
            && segment.bytes().all(|b| b.is_ascii_alphanumeric())
    };
    let good = feature.starts_with(|first: char| first.is_ascii_uppercase()) && feature.split('/').all(segment);
    (!good).then(|| {
        format!(
            "invalid feature name {quoted}: must start with an UpperCamelCase segment, with subsequent segments separated by \
             '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{
        columns, create, create_fails, selected, status_update_fails, update_fails, warnings,
    };
    use super::*;

    fn node(spec: Value, status: Value) -> Value {
        json!({"metadata": {"name": "n"}, "spec": spec, "status": status})
    }

    #[test]
    fn the_one_range_is_the_first_of_many_and_wins_where_they_differ() {
        for (spec, one, many) in [
            (json!({"podCIDR": "10.1.0.0/24"}), "10.1.0.0/24", json!(["10.1.0.0/24"])),
            (json!({"podCIDRs": ["10.1.0.0/24", "fd00::/64"]}), "10.1.0.0/24", json!(["10.1.0.0/24", "fd00::/64"])),
            (json!({"podCIDR": "10.2.0.0/24", "podCIDRs": ["10.1.0.0/24"]}), "10.2.0.0/24", json!(["10.2.0.0/24"])),
        ] {
            let object = create("v1", "nodes", node(spec, json!({})));
            assert_eq!((&object["spec"]["podCIDR"], &object["spec"]["podCIDRs"]), (&json!(one), &many));
        }
    }

    #[test]
    fn what_is_there_can_be_used_and_is_shown() {
        let status = json!({"capacity": {"cpu": "2"}, "conditions": [{"type": "Ready", "status": "False"}],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]});
        let object = create("v1", "nodes", node(json!({"unschedulable": true}), status));
        assert_eq!(object["status"]["allocatable"], json!({"cpu": "2"}));
        assert_eq!(selected("v1", "nodes", &object, "spec.unschedulable"), "true");
        assert_eq!(
            columns("v1", "nodes", &object),
            json!([
                "n",
                "NotReady,SchedulingDisabled",
                "<none>",
                "<unknown>",
                "",
                "10.0.0.1",
                "<none>",
                "<unknown>",
                "<unknown>",
                "<unknown>"
            ])
        );
    }

    #[test]
    fn taints_ranges_and_amounts_are_checked() {
        for (spec, status, expected) in [
            (json!({"taints": [{"key": "k"}]}), json!({}), "metadata.taints[0].effect: Required value"),
            (
                json!({"taints": [{"key": "k", "effect": "NoExecute"}, {"key": "k", "effect": "NoExecute"}]}),
                json!({}),
                "metadata.taints[1]: Duplicate value: {\"Key\":\"k\",\"Value\":\"\",\"Effect\":\"NoExecute\",\
                 \"TimeAdded\":null}: taints must be unique by key and effect pair",
            ),
            (
                json!({"podCIDRs": ["10.1.0.0/24", "10.2.0.0/24"]}),
                json!({}),
                "spec.podCIDRs: Invalid value: [\"10.1.0.0/24\",\"10.2.0.0/24\"]: may specify no more than one CIDR for each \
                 IP family",
            ),
            (
                json!({"podCIDRs": ["10.1.0.0/24", "x"]}),
                json!({}),
                "[spec.podCIDRs[1]: Invalid value: \"x\": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64), \
                 spec.podCIDRs: Internal error: invalid PodCIDRs. failed to check with dual stack with error:invalid \
                 CIDR[1]: <nil> (invalid CIDR address: x), spec.podCIDRs: Invalid value: [\"10.1.0.0/24\",\"x\"]: may \
                 specify no more than one CIDR for each IP family]",
            ),
            (
                json!({}),
                json!({"allocatable": {"pods": "1.5"}}),
                "status.allocatable.pods: Invalid value: \"1500m\": must be an integer",
            ),
        ] {
            create_fails("v1", "nodes", node(spec, status), expected);
        }
    }

    #[test]
    fn what_a_provider_gave_stays() {
        let with = |id: &str| node(json!({"providerID": id}), json!({}));
        let expected = "spec.providerID: Forbidden: node updates may not change providerID except from \"\" to valid";
        update_fails("v1", "nodes", with("a"), with("b"), expected);
        let addresses = json!({"addresses": [{"type": "X", "address": "y"}, {"type": "X", "address": "y"}]});
        status_update_fails(
            "v1",
            "nodes",
            node(json!({}), json!({})),
            node(json!({}), addresses),
            "status.addresses[1]: Duplicate value: {\"Type\":\"X\",\"Address\":\"y\"}",
        );
    }

    #[test]
    fn an_id_of_old_warns() {
        let body = node(json!({"externalID": "x"}), json!({}));
        let expected = "spec.externalID: this field is deprecated, and is unused by Kubernetes";
        assert_eq!(warnings("v1", "nodes", body), [expected]);
    }
}
