//! The pod template: what PodTemplate and every workload carry. The rules for pods, applied to a part of another object.

use std::borrow::Cow;

use serde_json::Value;

use super::pod::options::Options;
use super::pod::{annotations, defaults, disabled, spec, warnings};
use crate::behaviour::{Behaviour, Context, Generation};
use crate::builtin::cells;
use crate::columns::Column;
use crate::edit::Edit;
use crate::errors::Errors;
use crate::kind::Kind;
use crate::metadata;
use crate::node::Node;

const COLUMNS: &[Column<'static>] = &[
    Column::NAME,
    Column::new("Containers", "string", |object, _| cells::of_containers(object.find(&["template"]), "name"))
        .about("Names of each container in the template."),
    Column::new("Images", "string", |object, _| cells::of_containers(object.find(&["template"]), "image"))
        .about("Images referenced by each container in the template."),
    Column::new("Pod Labels", "string", |object, _| cells::labels(object.find(&["template", "metadata", "labels"])))
        .about("The labels for the pod template."),
];

/// The decisions of PodTemplate.
#[derive(Debug)]
pub struct PodTemplate;

impl Behaviour for PodTemplate {
    fn default(&self, object: &mut Value) {
        default_pod_template(object.ensure("template"));
    }

    fn prepare_create(&self, object: &mut Value, _context: &Context) {
        drop_disabled_pod_template_fields(object.ensure("template"), None);
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, _context: &Context) {
        drop_disabled_pod_template_fields(new.ensure("template"), old.find(&["template"]));
    }

    fn validate(&self, object: &Node<'_>, errs: &mut Errors) {
        validate_pod_template(&object.get("template"), errs);
    }

    fn check_update(&self, _kind: &Kind, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        metadata::validate_update(new, old, errs);
        validate_pod_template_update(&new.get("template"), &old.get("template"), errs);
    }

    fn warnings(&self, new: &Node<'_>, old: Option<&Node<'_>>) -> Vec<String> {
        let (template, before) = (new.get("template"), old.map(|old| old.get("template")));
        if before.as_ref().is_some_and(|before| template.same(before)) {
            return Vec::new();
        }
        pod_template_warnings(&template, before.as_ref())
    }

    fn generation(&self) -> Generation {
        Generation::On(&["template"])
    }

    fn columns(&self) -> Cow<'_, [Column<'_>]> {
        COLUMNS.into()
    }
}

/// Fills in what the user left out of a `PodTemplateSpec`.
pub fn default_pod_template(template: &mut Value) {
    defaults::default_template(template);
}

/// Removes from a `PodTemplateSpec` the fields of features that are switched off, unless `old` has them.
pub fn drop_disabled_pod_template_fields(template: &mut Value, old: Option<&Value>) {
    let old = old.and_then(|old| old.find(&["spec"]));
    disabled::drop_disabled_spec_fields(template.ensure("spec"), old);
}

/// The rules for the `PodTemplateSpec` of a new object.
pub fn validate_pod_template(template: &Node<'_>, errs: &mut Errors) {
    validate(template, &Options::new(false, None), errs);
}

/// The rules for the `PodTemplateSpec` of an object that exists already: what `old` has stays valid where rules became
/// stricter over time. This is no comparison: which changes are allowed is the workload's own rule.
pub fn validate_pod_template_update(new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
    validate(new, &Options::new(false, Some((&old.get("metadata"), &old.get("spec")))), errs);
}

/// What the user should know about a `PodTemplateSpec`. Paths start where `template` stands.
pub fn pod_template_warnings(template: &Node<'_>, _old: Option<&Node<'_>>) -> Vec<String> {
    warnings::warnings(template, true)
}

/// A field of each container of a `PodTemplateSpec`, with commas between: for the wide columns of workloads.
pub fn container_texts(template: &Value, field: &str) -> Value {
    cells::of_containers(Some(template), field)
}

/// Labels as `a=b,c=d`, `<none>` if there are none: for columns.
pub fn format_labels(labels: Option<&Value>) -> Value {
    cells::labels(labels)
}

fn validate(template: &Node<'_>, options: &Options, errs: &mut Errors) {
    let (meta, spec) = (template.get("metadata"), template.get("spec"));
    metadata::validate_labels(&meta.get("labels").at(template.at_child("labels").path()), errs);
    let annotations = meta.get("annotations").at(template.at_child("annotations").path());
    metadata::validate_annotations(&annotations, errs);
    annotations::validate_annotations(&annotations, &spec, options, errs);
    spec::validate_spec(&spec, None, options, errs);
    annotations::validate_profiles_match(&annotations, &spec, errs);
    if spec.count("ephemeralContainers") > 0 {
        errs.forbidden(&spec.get("ephemeralContainers"), "ephemeral containers not allowed in pod template");
    }
}
