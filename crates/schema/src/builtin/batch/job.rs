//! Job: pods that run to an end, as many times as it takes.

use std::borrow::Cow;

use serde_json::{Value, json};
use setpoint_api::labels::ValueRules;
use setpoint_api::time::Timestamp;
use setpoint_api::{BadValue, name};

use super::super::apps::workload;
use super::super::{cells, go_value, label_selector};
use super::{job_spec, job_status, job_update};
use crate::behaviour::{Behaviour, Context, Generation, keep};
use crate::columns::Column;
use crate::edit::Edit;
use crate::errors::Errors;
use crate::human;
use crate::kind::Kind;
use crate::metadata;
use crate::node::Node;
use crate::selectable::Selectable;

const UID_LABEL: &str = "batch.kubernetes.io/controller-uid";
const NAME_LABEL: &str = "batch.kubernetes.io/job-name";
/// The same two from before labels had prefixes.
const OLD_UID_LABEL: &str = "controller-uid";
const OLD_NAME_LABEL: &str = "job-name";

const SPEC: &str = "io.k8s.api.batch.v1.JobSpec";

const COLUMNS: &[Column<'static>] = &[
    Column::NAME,
    Column::new("Status", "string", |object, _| json!(job_status::word(object))).about("Status of the job."),
    Column::new("Completions", "string", |object, _| completions(object))
        .about_field("io.k8s.api.batch.v1.JobStatus", "succeeded"),
    Column::new("Duration", "string", duration).about("Time required to complete the job."),
    Column::AGE,
    workload::CONTAINERS,
    workload::IMAGES,
    workload::SELECTOR.about_field(SPEC, "selector"),
];

static SELECTABLE: [Selectable; 1] =
    [Selectable::new("status.successful", |object| cells::number(object, &["status", "succeeded"]).to_string())];

/// The decisions of Job.
#[derive(Debug)]
pub struct Job;

impl Behaviour for Job {
    fn default(&self, object: &mut Value) {
        let spec = object.ensure("spec");
        job_spec::default_everywhere(spec);
        job_spec::default_own(spec);
    }

    /// Needs the name and the uid: pods are found by them.
    fn prepare_create(&self, object: &mut Value, _context: &Context) {
        // What the job shares is the set of labels that was given. If there is none, it gets those made for its pods only once
        // they are stored.
        let shares = object.find(&["spec", "template", "metadata", "labels"]).is_some();
        if !object["spec"].flag("manualSelector") {
            generate_selector(object);
        }
        if shares {
            default_labels(object);
        }
        object.remove("status");
        job_spec::drop_disabled_fields(object.ensure("spec"), None);
    }

    fn canonicalize(&self, object: &mut Value) {
        default_labels(object);
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, _context: &Context) {
        default_labels(new);
        keep(new, old, &["status"]);
        job_spec::drop_disabled_fields(new.ensure("spec"), old.get("spec"));
    }

    fn check_create(&self, kind: &Kind, object: &Node<'_>, errs: &mut Errors) {
        check(self, kind, object, None, errs);
    }

    fn check_update(&self, kind: &Kind, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        check(self, kind, new, Some(old), errs);
        metadata::validate_update(new, old, errs);
        validate_spec(&new.get("spec"), Some(&old.get("spec")), errs);
        job_update::validate(new, old, errs);
    }

    fn validate_status_update(&self, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        job_status::validate_update(new, old, errs);
    }

    fn warnings(&self, new: &Node<'_>, old: Option<&Node<'_>>) -> Vec<String> {
        let generation = |object: &Node<'_>| object.get("metadata").int("generation");
        match old {
            None => workload::name_warning(new).into_iter().chain(job_spec::warnings(&new.get("spec"), None)).collect(),
            Some(old) if generation(old) == generation(new) => Vec::new(),
            Some(old) => job_spec::warnings(&new.get("spec"), Some(&old.get("spec"))),
        }
    }

    fn generation(&self) -> Generation {
        Generation::On(&["spec"])
    }

    /// For clients from before there was a garbage collector.
    fn orphans_dependents(&self) -> bool {
        true
    }

    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        if subresource == "status" { &["spec"] } else { &["status"] }
    }

    fn selectable(&self) -> &[Selectable] {
        &SELECTABLE
    }

    fn columns(&self) -> Cow<'_, [Column<'_>]> {
        COLUMNS.into()
    }
}

/// A job without labels has those of its pods, also those that were made for them: it shares them.
fn default_labels(object: &mut Value) {
    let labels =
        object.find(&["spec", "template", "metadata", "labels"]).filter(|labels| **labels != json!({})).cloned();
    let metadata = object.ensure("metadata");
    if let Some(labels) = labels
        && metadata.get("labels").and_then(Value::as_object).is_none_or(|own| own.is_empty())
    {
        metadata.set("labels", labels);
    }
}

/// Labels the pods with the name and the uid of the job, and selects by the uid; what the user gave stays.
fn generate_selector(object: &mut Value) {
    let metadata = &object["metadata"];
    let (name, uid) = (metadata.text("name").to_owned(), metadata.text("uid").to_owned());
    let spec = object.ensure("spec");
    let labels = spec.ensure("template").ensure("metadata").ensure("labels");
    for (key, value) in [(OLD_NAME_LABEL, &name), (NAME_LABEL, &name), (OLD_UID_LABEL, &uid), (UID_LABEL, &uid)] {
        if labels.get(key).is_none() {
            labels.set(key, value.as_str());
        }
    }
    let selected = spec.ensure("selector").ensure("matchLabels");
    if selected.get(UID_LABEL).is_none() {
        selected.set(UID_LABEL, uid);
    }
}

fn check(job: &Job, kind: &Kind, object: &Node<'_>, old: Option<&Node<'_>>, errs: &mut Errors) {
    metadata::validate(object, kind.namespaced, job.name_rule(), errs);
    validate_generated_selector(object, old, errs);
    let spec = object.get("spec");
    validate_spec(&spec, old.map(|old| old.get("spec")).as_ref(), errs);
    let completions = spec.int("completions").unwrap_or(0);
    if spec.str("completionMode") == "Indexed" && completions > 0 {
        let at = object.get("metadata").get("name");
        let host = format!("{}-{}", at.as_str(), completions - 1);
        if !name::dns1123_label(&host).is_empty() {
            errs.invalid(&at, at.as_str(), format!("will not able to create pod with invalid DNS label: {host}"));
        }
    }
}

fn validate_generated_selector(object: &Node<'_>, old: Option<&Node<'_>>, errs: &mut Errors) {
    let spec = object.get("spec");
    let selector = spec.get("selector");
    if spec.bool("manualSelector") || !selector.is_set() {
        return;
    }
    let (name, uid) = (object.get("metadata").str("name"), object.get("metadata").str("uid"));
    if uid.is_empty() {
        errs.required(&object.get("metadata").get("uid"), "");
    }
    let has_new = |old: &Node<'_>| {
        let labels = old.get("spec").get("template").get("metadata").get("labels");
        labels.entry(NAME_LABEL).is_set() && labels.entry(UID_LABEL).is_set()
    };
    let mut expected = vec![(OLD_UID_LABEL, uid), (OLD_NAME_LABEL, name)];
    if old.is_none_or(has_new) {
        expected.extend([(UID_LABEL, uid), (NAME_LABEL, name)]);
    }
    let labels = spec.get("template").get("metadata").get("labels");
    for (key, value) in &expected {
        let label = labels.entry(key);
        if !label.is_set() {
            errs.required(&label, format!("must be '{value}'"));
        } else if label.as_str() != *value {
            errs.invalid(&label, BadValue::json(labels.json()), format!("must be '{value}'"));
        }
    }
    if let Some(Ok(parsed)) = label_selector::read(&selector).map(|selector| selector.selector())
        && !parsed.matches(expected.as_slice())
    {
        let shown = BadValue::Json(go_value::label_selector(selector.value()));
        errs.invalid(&selector, shown, "`selector` not auto-generated");
    }
}

fn validate_spec(spec: &Node<'_>, old: Option<&Node<'_>>, errs: &mut Errors) {
    job_spec::validate(spec, old, errs);
    let selector = spec.get("selector");
    if !selector.is_set() {
        errs.required(&selector, "");
    }
    let bad_before = |old: &Node<'_>| {
        let (mut strict, mut lenient) = (Errors::new(), Errors::new());
        label_selector::validate(&old.get("selector"), ValueRules::Strict, &mut strict);
        label_selector::validate(&old.get("selector"), ValueRules::Lenient, &mut lenient);
        strict.len() > lenient.len()
    };
    let values = if old.is_some_and(bad_before) { ValueRules::Lenient } else { ValueRules::Strict };
    label_selector::validate(&selector, values, errs);
    if label_selector::read(&selector).is_some_and(|selector| selector.selector().is_ok()) {
        workload::validate_match(spec, errs);
    }
}

fn completions(object: &Value) -> Value {
    let number = |way: &[&str]| object.find(way).and_then(Value::as_i64);
    let succeeded = number(&["status", "succeeded"]).unwrap_or(0);
    let parallelism = number(&["spec", "parallelism"]).unwrap_or(0);
    json!(match number(&["spec", "completions"]) {
        Some(completions) => format!("{succeeded}/{completions}"),
        None if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        None => format!("{succeeded}/1"),
    })
}

fn duration(object: &Value, now: i64) -> Value {
    let time = |field: &str| {
        let text = object.find(&["status", field]).and_then(Value::as_str)?;
        Timestamp::parse(text).ok().map(|time| time.seconds)
    };
    match time("startTime") {
        None => json!(""),
        Some(start) => json!(human::duration(time("completionTime").unwrap_or(now) - start)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{columns, create, create_fails, selected, try_create, update, update_fails};
    use super::*;

    const API: &str = "batch/v1";

    fn job(more: Value) -> Value {
        json!({"metadata": {"name": "j", "uid": "u"}, "spec": job_spec::example(more)})
    }

    #[test]
    fn a_job_without_labels_shares_those_of_its_pods() {
        let mut body = job(json!({}));
        body["spec"].ensure("template").ensure("metadata").set("labels", json!({"app": "a"}));
        let all = json!({"app": "a", UID_LABEL: "u", NAME_LABEL: "j", OLD_UID_LABEL: "u", OLD_NAME_LABEL: "j"});
        assert_eq!(create(API, "jobs", body.clone())["metadata"]["labels"], all);
        body["metadata"].set("labels", json!({"app": "a"}));
        assert_eq!(create(API, "jobs", body.clone())["metadata"]["labels"], json!({"app": "a"}));
        body["metadata"].set("name", "-");
        body["metadata"].remove("labels");
        assert!(try_create(API, "jobs", body.clone()).1.unwrap().contains("metadata.labels: "));
        body["spec"]["template"].remove("metadata");
        assert!(!try_create(API, "jobs", body).1.unwrap().contains("metadata.labels: "));
    }

    #[test]
    fn pods_are_found_by_the_uid() {
        let object = create(API, "jobs", job(json!({})));
        assert_eq!(object["spec"]["selector"], json!({"matchLabels": {UID_LABEL: "u"}}));
        assert_eq!(
            object["spec"]["template"]["metadata"]["labels"],
            json!({UID_LABEL: "u", NAME_LABEL: "j", OLD_UID_LABEL: "u", OLD_NAME_LABEL: "j"})
        );
        assert_eq!(object["spec"]["backoffLimit"], 6);
        assert_eq!(
            columns(API, "jobs", &object),
            json!(["j", "Running", "0/1", "", "<unknown>", "c", "nginx", "batch.kubernetes.io/controller-uid=u"])
        );
        assert_eq!(selected(API, "jobs", &object, "status.successful"), "0");
    }

    #[test]
    fn a_selector_is_generated_or_claimed() {
        create_fails(
            API,
            "jobs",
            job(json!({"manualSelector": true})),
            "[spec.selector: Required value, spec.template.metadata.labels: Invalid value: null: `selector` does not match \
             template `labels`]",
        );
    }

    #[test]
    fn limits_per_index_need_indexes() {
        for (spec, expected) in [
            (
                json!({"backoffLimitPerIndex": 1}),
                "spec.backoffLimitPerIndex: Invalid value: 1: requires indexed completion mode",
            ),
            (
                json!({"completionMode": "Indexed", "completions": 2, "maxFailedIndexes": 1}),
                "spec.backoffLimitPerIndex: Required value: when maxFailedIndexes is specified",
            ),
            (
                json!({"completionMode": "Indexed", "parallelism": 1}),
                "spec.completions: Required value: when completion mode is Indexed",
            ),
            (
                json!({"managedBy": "x"}),
                "spec.managedBy: Invalid value: \"x\": must be a domain-prefixed path (such as \"acme.io/foo\")",
            ),
        ] {
            create_fails(API, "jobs", job(spec), expected);
        }
    }

    #[test]
    fn policies_are_sound() {
        let failure = |rule: Value| json!({"podFailurePolicy": {"rules": [rule]}});
        let codes = |operator: &str, values: Value| json!({"operator": operator, "values": values});
        for (spec, expected) in [
            (
                failure(json!({"action": "", "onExitCodes": codes("In", json!([1]))})),
                "spec.podFailurePolicy.rules[0].action: Required value: valid values: \
                 [\"Count\" \"FailIndex\" \"FailJob\" \"Ignore\"]",
            ),
            (
                failure(json!({"action": "FailJob", "onExitCodes": codes("In", json!([3, 0]))})),
                "[spec.podFailurePolicy.rules[0].onExitCodes.values[1]: Invalid value: 0: must not be 0 for the In operator, \
                 spec.podFailurePolicy.rules[0].onExitCodes.values: Invalid value: [3,0]: must be ordered]",
            ),
            (
                json!({"successPolicy": {"rules": [{"succeededIndexes": "0"}]}}),
                "spec.successPolicy: Invalid value: {\"Rules\":[{\"SucceededIndexes\":\"0\",\"SucceededCount\":null}]}: \
                 requires indexed completion mode",
            ),
        ] {
            create_fails(API, "jobs", job(spec), expected);
        }
    }

    #[test]
    fn most_of_a_job_stays() {
        let labels = json!({UID_LABEL: "u", NAME_LABEL: "j", OLD_UID_LABEL: "u", OLD_NAME_LABEL: "j"});
        let stored = |more: Value| {
            let mut job = job(more);
            job["spec"]["template"]["metadata"] = json!({"labels": labels});
            job["spec"]["selector"] = json!({"matchLabels": {UID_LABEL: "u"}});
            job
        };
        let object = update(API, "jobs", stored(json!({})), stored(json!({"suspend": true})));
        assert_eq!(object["metadata"]["generation"], 2);
        update_fails(
            API,
            "jobs",
            stored(json!({"completions": 1})),
            stored(json!({"completions": 2})),
            "spec.completions: Invalid value: 2: field is immutable",
        );
        update_fails(
            API,
            "jobs",
            stored(json!({"managedBy": "a/b"})),
            stored(json!({})),
            "spec.managedBy: Invalid value: null: field is immutable",
        );
    }
}
