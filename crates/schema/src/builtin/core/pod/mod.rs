//! Pod: containers that run together on one node.

use std::borrow::Cow;

use serde_json::{Value, json};
use setpoint_api::{Path, ip, name, time};

use crate::behaviour::{Behaviour, Context, Generation, keep};
use crate::columns::Column;
use crate::edit::Edit;
use crate::errors::Errors;
use crate::kind::Kind;
use crate::metadata;
use crate::name_rule::NameRule;
use crate::node::Node;
use crate::selectable::{Selectable, as_text};
use options::Options;

pub mod annotations;
pub mod containers;
pub mod defaults;
pub mod disabled;
mod env;
mod image_name;
mod mounts;
pub mod options;
mod overlaps;
mod prepare;
mod probes;
mod projected;
mod quality_of_service;
pub mod remote_volumes;
pub mod resources;
pub mod scheduling;
mod security;
pub mod spec;
mod status;
mod table;
#[cfg(test)]
mod tests;
mod update;
pub mod volumes;
pub mod warnings;
mod windows;

static SELECTABLE: [Selectable; 10] = [
    Selectable::new("spec.nodeName", node_name),
    Selectable::new("spec.host", node_name),
    Selectable::new("spec.restartPolicy", |pod| as_text(pod.find(&["spec", "restartPolicy"]))),
    Selectable::new("spec.schedulerName", |pod| as_text(pod.find(&["spec", "schedulerName"]))),
    Selectable::new("spec.serviceAccountName", |pod| as_text(pod.find(&["spec", "serviceAccountName"]))),
    Selectable::new("spec.hostNetwork", |pod| pod["spec"].flag("hostNetwork").to_string()),
    Selectable::new("status.phase", |pod| as_text(pod.find(&["status", "phase"]))),
    Selectable::new("status.podIP", |pod| as_text(pod.find(&["status", "podIP"]))),
    // Taken in a selector, but no pod has a value for it.
    Selectable::new("status.podIPs", |_| String::new()),
    Selectable::new("status.nominatedNodeName", |pod| as_text(pod.find(&["status", "nominatedNodeName"]))),
];

/// The decisions of Pod.
#[derive(Debug)]
pub struct Pod;

impl Behaviour for Pod {
    fn default(&self, object: &mut Value) {
        defaults::default_pod(object);
    }

    fn prepare_create(&self, object: &mut Value, context: &Context) {
        let class = match object["status"].text("qosClass") {
            "" => quality_of_service::quality_of_service(&object["spec"]).to_owned(),
            given => given.to_owned(),
        };
        object.set("status", json!({"phase": "Pending", "qosClass": class}));
        disabled::drop_disabled_spec_fields(object.ensure("spec"), None);
        prepare::note_gates(object, &time::format_rfc3339(context.now));
        prepare::merge_label_keys(object);
        prepare::take_app_armor_from_annotations(object);
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, _context: &Context) {
        keep(new, old, &["status"]);
        disabled::drop_disabled_spec_fields(new.ensure("spec"), old.find(&["spec"]));
    }

    fn prepare_status_update(&self, new: &mut Value, old: &Value, _context: &Context) {
        keep(new, old, &["spec"]);
        let owners = old.find(&["metadata", "ownerReferences"]).cloned();
        new.ensure("metadata").set_or_remove("ownerReferences", owners);
        prepare::keep_observations(new.ensure("status"), &old["status"]);
        disabled::drop_disabled_status_fields(new.ensure("status"), old.find(&["status"]));
    }

    fn prepare_subresource_update(&self, subresource: &str, new: &mut Value, old: &Value, context: &Context) {
        match subresource {
            "ephemeralcontainers" => prepare::keep_all_but_ephemeral_containers(new, old),
            "resize" => prepare::keep_all_but_resources(new, old),
            _ => return self.prepare_update(new, old, context),
        }
        disabled::drop_disabled_spec_fields(new.ensure("spec"), old.find(&["spec"]));
    }

    fn check_create(&self, _kind: &Kind, object: &Node<'_>, errs: &mut Errors) {
        validate_pod(object, &Options::new(true, None), errs);
        let spec = object.get("spec");
        if spec.count("ephemeralContainers") > 0 {
            errs.forbidden(&spec.get("ephemeralContainers"), "cannot be set on create");
        }
        if !spec.str("nodeName").is_empty() && spec.count("schedulingGates") > 0 {
            errs.forbidden(&spec.get("nodeName"), "cannot be set until all schedulingGates have been cleared");
        }
        annotations::validate_profiles_match(&object.get("metadata").get("annotations"), &spec, errs);
    }

    fn check_update(&self, _kind: &Kind, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        update::validate_update(new, old, errs);
    }

    fn check_status_update(&self, _kind: &Kind, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        status::validate_status_update(new, old, errs);
    }

    fn check_subresource_update(&self, sub: &str, kind: &Kind, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        match sub {
            "ephemeralcontainers" => update::validate_ephemeral_update(new, old, errs),
            "resize" => update::validate_resize(new, old, errs),
            _ => self.check_update(kind, new, old, errs),
        }
    }

    fn warnings(&self, new: &Node<'_>, old: Option<&Node<'_>>) -> Vec<String> {
        if let Some(old) = old {
            return address_warnings(new, old);
        }
        let mut found = warnings::app_armor_warnings(new);
        let complaints = name::dns1123_label(new.get("metadata").str("name"));
        if !complaints.is_empty() {
            found.push(format!(
                "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is \
                 recommended: [{}]",
                complaints.join(" ")
            ));
        }
        found.extend(warnings::warnings(new, false));
        found
    }

    fn generation(&self) -> Generation {
        Generation::On(&["spec"])
    }

    fn grace_seconds(&self, object: &Value, asked: Option<i64>) -> Option<i64> {
        let (spec, status) = (&object["spec"], &object["status"]);
        let never_ran = spec.text("nodeName").is_empty() || matches!(status.text("phase"), "Failed" | "Succeeded");
        let period = asked.or(spec.number("terminationGracePeriodSeconds")).unwrap_or(0);
        Some(match period {
            _ if never_ran => 0,
            ..0 => 1,
            _ => period,
        })
    }

    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        match subresource {
            "" => &["status"],
            "status" => &["spec", "metadata.deletionTimestamp", "metadata.ownerReferences"],
            _ => &[],
        }
    }

    fn selectable(&self) -> &[Selectable] {
        &SELECTABLE
    }

    fn columns(&self) -> Cow<'_, [Column<'_>]> {
        table::COLUMNS.into()
    }

    fn row_conditions(&self, object: &Value) -> Vec<Value> {
        table::row_conditions(object)
    }
}

/// The rules for a pod that hold on creation and on every update of its spec.
fn validate_pod(pod: &Node<'_>, options: &Options, errs: &mut Errors) {
    metadata::validate(pod, true, NameRule::SUBDOMAIN, errs);
    let (meta, spec) = (pod.get("metadata"), pod.get("spec"));
    annotations::validate_annotations(&meta.get("annotations"), &spec, options, errs);
    spec::validate_spec(&spec, Some(&meta), options, errs);
    if spec.str("serviceAccountName").is_empty() {
        let sources = spec.items("volumes").flat_map(|volume| volume.get("projected").items("sources"));
        for source in sources.filter(|source| source.has("serviceAccountToken")) {
            let detail = "must not be specified when serviceAccountName is not set";
            errs.forbidden(&source.get("serviceAccountToken"), detail);
        }
    }
    for container in spec.items("containers").chain(spec.items("initContainers")) {
        containers::validate_image_blanks(&container, errs);
    }
}

/// Only a write to the status brings new addresses.
fn address_warnings(new: &Node<'_>, old: &Node<'_>) -> Vec<String> {
    let mut warnings = Vec::new();
    for field in ["podIPs", "hostIPs"] {
        let (now, before) = (new.get("status"), old.get("status"));
        if now.get(field).same(&before.get(field)) {
            continue;
        }
        for address in now.items(field).map(|address| address.get("ip")) {
            warnings.extend(ip::warnings_for_ip(&Path::root(&address.path()), address.as_str()));
        }
    }
    warnings
}

fn node_name(pod: &Value) -> String {
    as_text(pod.find(&["spec", "nodeName"]))
}
