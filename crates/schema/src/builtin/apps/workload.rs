//! What workloads share: a selector, and a template for the pods that it selects.

use serde_json::{Value, json};
use setpoint_api::labels::ValueRules;
use setpoint_api::{BadValue, name};

use super::super::core::pod_template;
use super::super::{cells, go_value, label_selector};
use crate::behaviour::ScalePaths;
use crate::columns::Column;
use crate::edit::Edit;
use crate::errors::Errors;
use crate::node::Node;

/// Where the template is in all workloads but CronJob.
const TEMPLATE: [&str; 2] = ["spec", "template"];

/// The wide columns that show the containers of the template.
pub(crate) const CONTAINERS: Column<'static> =
    Column::new("Containers", "string", |object, _| cells::of_containers(object.find(&TEMPLATE), "name"))
        .about("Names of each container in the template.")
        .wide();

/// See [`CONTAINERS`].
pub(crate) const IMAGES: Column<'static> =
    Column::new("Images", "string", |object, _| cells::of_containers(object.find(&TEMPLATE), "image"))
        .about("Images referenced by each container in the template.")
        .wide();

/// The wide column that shows the selector; it wants the description of the kind's own field.
pub(crate) const SELECTOR: Column<'static> =
    Column::new("Selector", "string", |object, _| cells::selector(object.find(&["spec", "selector"]))).wide();

/// The number of replicas that are wanted, those that are there, and which they are.
pub(super) fn scale_paths() -> ScalePaths {
    let way = |fields: [&str; 2]| fields.map(str::to_owned).to_vec();
    ScalePaths {
        spec_replicas: way(["spec", "replicas"]),
        status_replicas: way(["status", "replicas"]),
        selector: Some(way(["spec", "selector"])),
    }
}

/// Fills in the template of `spec`.
pub(crate) fn default_template(spec: &mut Value) {
    pod_template::default_pod_template(spec.ensure("template"));
}

/// Removes from the template the fields of features that are switched off.
pub(crate) fn drop_disabled_fields(new: &mut Value, old: Option<&Value>) {
    let old = old.and_then(|old| old.find(&TEMPLATE));
    if let Some(template) = new.find_mut(&TEMPLATE) {
        pod_template::drop_disabled_pod_template_fields(template, old);
    }
}

/// A selector must be there and select something in particular; `kind` is how the message calls the workload.
pub(super) fn validate_selector(spec: &Node<'_>, kind: &str, errs: &mut Errors) {
    let selector = spec.get("selector");
    if !selector.is_set() {
        return errs.required(&selector, "");
    }
    label_selector::validate(&selector, ValueRules::Strict, errs);
    if label_selector::is_empty(&selector) {
        errs.invalid(&selector, shown(&selector), format!("empty selector is invalid for {kind}"));
    }
}

/// Whether the selector can be understood; if not, `complaint` says so.
pub(super) fn selector_is_sound(spec: &Node<'_>, complaint: &str, errs: &mut Errors) -> bool {
    let selector = spec.get("selector");
    let sound = label_selector::read(&selector).is_some_and(|selector| selector.selector().is_ok());
    if !sound {
        errs.invalid(&selector, shown(&selector), complaint);
    }
    sound
}

/// That the selector finds the pods of the template. An empty one finds all, an absent one none.
pub(crate) fn validate_match(spec: &Node<'_>, errs: &mut Errors) {
    let (selector, labels) = (spec.get("selector"), spec.get("template").get("metadata").get("labels"));
    if !selector.is_set() || !label_selector::matches(&selector, &labels) {
        errs.invalid_here(&labels, "`selector` does not match template `labels`");
    }
}

/// The rules for the template itself: new, or with the leniency that the stored one deserves.
pub(crate) fn validate_template(template: &Node<'_>, old: Option<&Node<'_>>, errs: &mut Errors) {
    match old {
        None => pod_template::validate_pod_template(template, errs),
        Some(old) => pod_template::validate_pod_template_update(template, old, errs),
    }
}

/// That pods are restarted for ever; `kind` is how the message calls the workload.
pub(super) fn validate_endless(template: &Node<'_>, kind: &str, errs: &mut Errors) {
    let spec = template.get("spec");
    if spec.str("restartPolicy") != "Always" {
        errs.not_supported(&spec.get("restartPolicy"), spec.str("restartPolicy"), &["Always"]);
    }
    if spec.has("activeDeadlineSeconds") {
        let detail = format!("activeDeadlineSeconds in {kind} is not Supported");
        errs.forbidden(&spec.get("activeDeadlineSeconds"), detail);
    }
}

/// That the selector stays as it is.
pub(crate) fn validate_selector_stays(new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
    let (new, old) = (new.get("spec").get("selector"), old.get("spec").get("selector"));
    if !new.same(&old) {
        errs.invalid(&new, shown(&new), "field is immutable");
    }
}

/// What the user should know about the template: always on creation, and when the generation moves.
pub(super) fn template_warnings(new: &Node<'_>, old: Option<&Node<'_>>) -> Vec<String> {
    let generation = |object: &Node<'_>| object.get("metadata").int("generation");
    match old {
        Some(old) if generation(old) == generation(new) => Vec::new(),
        _ => {
            let before = old.map(|old| old.get("spec").get("template"));
            pod_template::pod_template_warnings(&new.get("spec").get("template"), before.as_ref())
        }
    }
}

/// Pods take their names from the workload, so a name that is no DNS label surprises.
pub(crate) fn name_warning(object: &Node<'_>) -> Option<String> {
    let complaints = name::dns1123_label(object.get("metadata").str("name"));
    let text = "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; \
                a DNS label is recommended:";
    (!complaints.is_empty()).then(|| format!("{text} [{}]", complaints.join(" ")))
}

/// Several replicas out of several: `1/3`.
pub(super) fn share(object: &Value, part: &str) -> Value {
    let number = |way: &[&str]| object.find(way).and_then(Value::as_i64).unwrap_or(0);
    json!(format!("{}/{}", number(&["status", part]), number(&["spec", "replicas"])))
}

fn shown(selector: &Node<'_>) -> BadValue {
    BadValue::Json(go_value::label_selector(selector.value()))
}
