//! APIService: who serves a version of a group.

use std::borrow::Cow;

use serde_json::{Value, json};
use setpoint_api::name;
use setpoint_api::quote::quote;
use setpoint_api::time::format_rfc3339;

use crate::behaviour::{Behaviour, Context, keep};
use crate::columns::Column;
use crate::edit::Edit;
use crate::errors::Errors;
use crate::kind::Kind;
use crate::metadata;
use crate::name_rule::NameRule;
use crate::node::Node;

const GROUP_PRIORITY_MAX: i64 = 20_000;
const VERSION_PRIORITY_MAX: i64 = 1_000;

const COLUMNS: &[Column<'static>] = &[
    Column::NAME,
    Column::new("Service", "string", service_cell).about("The reference to the service that hosts this API endpoint."),
    Column::new("Available", "string", available_cell).about("Whether this service is available."),
    Column::AGE,
];

/// The decisions of APIService.
#[derive(Debug)]
pub struct ApiService;

impl Behaviour for ApiService {
    fn default(&self, object: &mut Value) {
        if let Some(service) = object.find_mut(&["spec", "service"]) {
            service.default_absent("port", 443);
        }
    }

    fn prepare_create(&self, object: &mut Value, context: &Context) {
        object.remove("status");
        if object.find(&["spec", "service"]).is_none() {
            let condition = json!({
                "type": "Available", "status": "True", "reason": "Local",
                "message": "Local APIServices are always available",
                "lastTransitionTime": format_rfc3339(context.now),
            });
            object.ensure("status").set("conditions", json!([condition]));
        }
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, _context: &Context) {
        keep(new, old, &["status"]);
    }

    fn prepare_status_update(&self, new: &mut Value, old: &Value, _context: &Context) {
        keep(new, old, &["spec"]);
        let metadata = new.ensure("metadata");
        for field in ["labels", "annotations", "finalizers", "ownerReferences"] {
            metadata.set_or_remove(field, old["metadata"].get(field).cloned());
        }
    }

    fn check_create(&self, _kind: &Kind, object: &Node<'_>, errs: &mut Errors) {
        validate_metadata(object, errs);
        validate_spec(&object.get("spec"), errs);
    }

    fn check_update(&self, kind: &Kind, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        metadata::validate_generic_update(new, old, errs);
        self.check_create(kind, new, errs);
    }

    fn check_status_update(&self, _kind: &Kind, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        metadata::validate_generic_update(new, old, errs);
        for condition in new.get("status").items("conditions") {
            let status = condition.get("status");
            if !matches!(status.as_str(), "True" | "False" | "Unknown") {
                errs.not_supported(&status, status.as_str(), &["True", "False", "Unknown"]);
            }
        }
    }

    fn allow_unconditional_update(&self) -> bool {
        false
    }

    fn name_rule(&self) -> NameRule {
        NameRule::PATH_SEGMENT
    }

    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        match subresource {
            "status" => &["spec", "metadata"],
            _ => &["status"],
        }
    }

    fn columns(&self) -> Cow<'_, [Column<'_>]> {
        COLUMNS.into()
    }
}

/// The rules of any metadata, and that the name is what the version and the group make it.
fn validate_metadata(object: &Node<'_>, errs: &mut Errors) {
    let mut found = Errors::new();
    metadata::validate_generic(object, false, NameRule::PATH_SEGMENT, &mut found);
    let spec = object.get("spec");
    let wanted = format!("{}.{}", spec.str("version"), spec.str("group"));
    let metadata = object.get("metadata");
    let detail = format!("must be `spec.version+\".\"+spec.group`: {}", quote(&wanted));
    for field in ["generateName", "name"] {
        let at = metadata.get(field);
        if !at.is_empty() && name::path_segment_name(at.as_str()).is_empty() && at.as_str() != wanted {
            errs.invalid(&at, at.as_str(), detail.clone());
        }
    }
    errs.extend(found.into_vec());
}

fn validate_spec(spec: &Node<'_>, errs: &mut Errors) {
    let (group, version) = (spec.get("group"), spec.get("version"));
    if group.is_empty() {
        if version.as_str() != "v1" {
            errs.required(&group, "only v1 may have an empty group and it better be legacy kube");
        }
    } else {
        errs.invalid_each(&group, group.as_str(), name::dns1123_subdomain(group.as_str()));
    }
    errs.invalid_each(&version, version.as_str(), name::dns1035_label(version.as_str()));
    for (field, max) in [("groupPriorityMinimum", GROUP_PRIORITY_MAX), ("versionPriority", VERSION_PRIORITY_MAX)] {
        let priority = spec.int(field).unwrap_or(0);
        if !(1..=max).contains(&priority) {
            errs.invalid(&spec.get(field), priority, format!("must be positive and less than {max}"));
        }
    }
    let (service, bundle, insecure) = (spec.get("service"), spec.get("caBundle"), spec.get("insecureSkipTLSVerify"));
    if !service.is_set() {
        if !bundle.is_empty() {
            let bytes = crate::base64::decode(bundle.as_str()).map_or(0, |bytes| bytes.len());
            errs.invalid(&bundle, format!("{bytes} bytes"), "local APIServices may not have a caBundle");
        }
        if !insecure.is_empty() {
            errs.invalid_here(&insecure, "local APIServices may not have insecureSkipTLSVerify");
        }
        return;
    }
    for field in ["namespace", "name"] {
        if service.str(field).is_empty() {
            errs.required(&service.get(field), "");
        }
    }
    let port = service.int("port").unwrap_or(0);
    let complaints = name::is_valid_port_num(port);
    if !complaints.is_empty() {
        errs.invalid(&service.get("port"), port, format!("port is not valid: {}", complaints.join(", ")));
    }
    if !insecure.is_empty() && !bundle.is_empty() {
        errs.invalid_here(&insecure, "may not be true if caBundle is present");
    }
}

fn service_cell(object: &Value, _now: i64) -> Value {
    match object.find(&["spec", "service"]) {
        Some(service) => json!(format!("{}/{}", service.text("namespace"), service.text("name"))),
        None => json!("Local"),
    }
}

fn available_cell(object: &Value, _now: i64) -> Value {
    let conditions = object.find(&["status", "conditions"]).and_then(Value::as_array);
    let Some(available) = conditions.into_iter().flatten().find(|condition| condition.text("type") == "Available")
    else {
        return json!("Unknown");
    };
    match (available.text("status"), available.text("reason")) {
        ("True", _) => json!("True"),
        (status, "") => json!(status),
        (status, reason) => json!(format!("{status} ({reason})")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{columns, create, create_fails};
    use super::*;

    const V1: &str = "apiregistration.k8s.io/v1";

    fn service(name: &str, spec: Value) -> Value {
        let mut body = json!({
            "metadata": {"name": name},
            "spec": {"group": "g.example.com", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1},
        });
        for (field, value) in spec.as_object().unwrap() {
            body["spec"].set(field, value.clone());
        }
        body
    }

    #[test]
    fn a_local_service_is_available_at_once() {
        let local = create(V1, "apiservices", service("v1.g.example.com", json!({})));
        assert_eq!(columns(V1, "apiservices", &local), json!(["v1.g.example.com", "Local", "True", "<unknown>"]));
        let remote = json!({"service": {"namespace": "n", "name": "s"}});
        let remote = create(V1, "apiservices", service("v1.g.example.com", remote));
        assert_eq!(remote["spec"]["service"]["port"], 443);
        assert_eq!(columns(V1, "apiservices", &remote), json!(["v1.g.example.com", "n/s", "Unknown", "<unknown>"]));
    }

    #[test]
    fn the_name_is_made_of_version_and_group() {
        create_fails(
            V1,
            "apiservices",
            service("v2.g.example.com", json!({"versionPriority": 0})),
            "[metadata.name: Invalid value: \"v2.g.example.com\": must be `spec.version+\".\"+spec.group`: \
             \"v1.g.example.com\", spec.versionPriority: Invalid value: 0: must be positive and less than 1000]",
        );
    }
}
