//! What may change in a Job once it is there: little, and more while it is suspended.

use serde_json::Value;
use setpoint_api::BadValue;

use super::super::apps::workload;
use super::super::internal_pod;
use super::job_status::is_true;
use super::{failure_policy, success_policy};
use crate::edit::Edit;
use crate::errors::Errors;
use crate::node::Node;

const IMMUTABLE: &str = "field is immutable";

/// What of the template decides where pods go: free as long as none has run.
const SCHEDULING: [&[&str]; 6] = [
    &["spec", "affinity", "nodeAffinity"],
    &["spec", "nodeSelector"],
    &["spec", "tolerations"],
    &["metadata", "annotations"],
    &["metadata", "labels"],
    &["spec", "schedulingGates"],
];

/// That only changes what may.
pub(super) fn validate(new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
    let (spec, old_spec) = (new.get("spec"), old.get("spec"));
    validate_completions(&spec, &old_spec, errs);
    workload::validate_selector_stays(new, old, errs);
    validate_template(&spec, old, errs);
    stays(&spec, &old_spec, "completionMode", errs);
    let (policy, before) = (spec.get("podFailurePolicy"), old_spec.get("podFailurePolicy"));
    if !policy.same(&before) {
        errs.invalid(&policy, failure_policy::shown(&policy), IMMUTABLE);
    }
    stays(&spec, &old_spec, "backoffLimitPerIndex", errs);
    stays(&spec, &old_spec, "managedBy", errs);
    let (policy, before) = (spec.get("successPolicy"), old_spec.get("successPolicy"));
    if !policy.same(&before) {
        errs.invalid(&policy, success_policy::shown(&policy), IMMUTABLE);
    }
}

/// Pointers, so that an absent value is null.
fn stays(spec: &Node<'_>, old: &Node<'_>, field: &'static str, errs: &mut Errors) {
    let at = spec.get(field);
    if !at.same(&old.get(field)) {
        errs.invalid(&at, at.json(), IMMUTABLE);
    }
}

/// The number of indexes may change together with how many run at once.
fn validate_completions(spec: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
    if spec.str("completionMode") != "Indexed" {
        return stays(spec, old, "completions", errs);
    }
    let (at, completions) = (spec.get("completions"), spec.int("completions"));
    if completions.is_some() && completions != old.int("completions") && completions != spec.int("parallelism") {
        errs.invalid(&at, at.json(), "can only be modified in tandem with spec.parallelism");
    }
}

fn validate_template(spec: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
    let template = spec.get("template");
    let mut allowed = old.get("spec").get("template").json().clone();
    let suspended = old.get("spec").bool("suspend");
    let still = is_still(old);
    if still {
        SCHEDULING.iter().for_each(|way| take(&mut allowed, template.json(), way));
    }
    if suspended && still {
        // Resources of containers are free too, and then only the spec is compared.
        take_resources(&mut allowed, template.json());
        let pod = template.get("spec");
        let before = pod.with_value(&allowed["spec"]);
        if !pod.same(&before) {
            errs.invalid(&pod, BadValue::Json(internal_pod::pod_spec(pod.json())), IMMUTABLE);
        }
    } else if !template.same(&template.with_value(&allowed)) {
        errs.invalid(&template, BadValue::Json(internal_pod::pod_template(template.json())), IMMUTABLE);
    }
}

/// Suspended, and none of its pods runs.
fn is_still(job: &Node<'_>) -> bool {
    let status = job.get("status");
    let at_rest = !status.has("startTime") || is_true(job.json(), "Suspended");
    job.get("spec").bool("suspend") && at_rest && status.int("active").unwrap_or(0) == 0
}

/// Takes the value at the end of a way from the new template, absent or not.
fn take(template: &mut Value, new: &Value, way: &[&str]) {
    let [parents @ .., last] = way else { return };
    let value = new.find(way).cloned();
    if value.is_none() && template.find(way).is_none() {
        return;
    }
    let place = parents.iter().fold(&mut *template, |at, name| at.ensure(name));
    place.set_or_remove(last, value);
    // An affinity that says nothing any more is none, if the new one is none.
    if new.find(parents).is_none()
        && template.find(parents).is_some_and(|at| at.as_object().is_some_and(|o| o.is_empty()))
    {
        let [grand @ .., parent] = parents else { return };
        if let Some(at) = template.find_mut(grand) {
            at.remove(parent);
        }
    }
}

fn take_resources(template: &mut Value, new: &Value) {
    for list in ["containers", "initContainers"] {
        let Some(theirs) = new.find(&["spec", list]).and_then(Value::as_array) else { continue };
        let Some(pod) = template.child("spec") else { continue };
        if pod.get(list).and_then(Value::as_array).is_none_or(|ours| ours.len() != theirs.len()) {
            continue;
        }
        for (ours, theirs) in pod.items_mut(list).zip(theirs) {
            if ours.text("name") == theirs.text("name") {
                ours.set_or_remove("resources", theirs.get("resources").cloned());
            }
        }
    }
}
