//! CronJob: a Job again and again, by the clock.

use std::borrow::Cow;

use serde_json::{Value, json};
use setpoint_api::BadValue;
use setpoint_api::cron::Cron;

use super::super::apps::workload;
use super::super::int_or_percent::validate_non_negative;
use super::super::{cells, go_value};
use super::{job_spec, time_zone};
use crate::behaviour::{Behaviour, Context, Generation, keep};
use crate::columns::{Column, field};
use crate::edit::Edit;
use crate::errors::Errors;
use crate::human;
use crate::kind::Kind;
use crate::metadata;
use crate::node::Node;

/// Jobs are named after their CronJob, with eleven characters more.
const NAME_BYTES_MAX: usize = 52;
const CONCURRENCY: [&str; 3] = ["Allow", "Forbid", "Replace"];
const JOB_SPEC: [&str; 3] = ["spec", "jobTemplate", "spec"];
const TEMPLATE: [&str; 4] = ["spec", "jobTemplate", "spec", "template"];

const SPEC: &str = "io.k8s.api.batch.v1.CronJobSpec";
const STATUS: &str = "io.k8s.api.batch.v1.CronJobStatus";

const COLUMNS: &[Column<'static>] = &[
    Column::NAME,
    Column::new("Schedule", "string", |object, _| field(object, &["spec", "schedule"])).about_field(SPEC, "schedule"),
    Column::new("Timezone", "string", |object, _| cells::text_or_none(object, &["spec", "timeZone"]))
        .about_field(SPEC, "timeZone"),
    Column::new("Suspend", "boolean", |object, _| suspended(object)).about_field(SPEC, "suspend"),
    Column::new("Active", "integer", |object, _| active(object)).about_field(STATUS, "active"),
    Column::new("Last Schedule", "string", last_schedule).about_field(STATUS, "lastScheduleTime"),
    Column::AGE,
    Column::new("Containers", "string", |object, _| cells::of_containers(object.find(&TEMPLATE), "name"))
        .about("Names of each container in the template.")
        .wide(),
    Column::new("Images", "string", |object, _| cells::of_containers(object.find(&TEMPLATE), "image"))
        .about("Images referenced by each container in the template.")
        .wide(),
    Column::new("Selector", "string", |object, _| {
        cells::selector(object["spec"]["jobTemplate"]["spec"].get("selector"))
    })
    .about_field("io.k8s.api.batch.v1.JobSpec", "selector")
    .wide(),
];

/// The decisions of CronJob.
#[derive(Debug)]
pub struct CronJob;

impl Behaviour for CronJob {
    fn default(&self, object: &mut Value) {
        let spec = object.ensure("spec");
        spec.default_to("concurrencyPolicy", "Allow");
        spec.fill("suspend", false);
        spec.fill("successfulJobsHistoryLimit", 3);
        spec.fill("failedJobsHistoryLimit", 1);
        job_spec::default_everywhere(spec.ensure("jobTemplate").ensure("spec"));
    }

    fn prepare_create(&self, object: &mut Value, _context: &Context) {
        object.remove("status");
        drop_disabled_fields(object, None);
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, _context: &Context) {
        keep(new, old, &["status"]);
        drop_disabled_fields(new, Some(old));
    }

    fn validate(&self, object: &Node<'_>, errs: &mut Errors) {
        validate_spec(&object.get("spec"), None, errs);
        let at = object.get("metadata").get("name");
        if at.as_str().len() > NAME_BYTES_MAX {
            errs.invalid(&at, at.as_str(), format!("must be no more than {NAME_BYTES_MAX} characters"));
        }
    }

    fn check_update(&self, _kind: &Kind, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        metadata::validate_update(new, old, errs);
        validate_spec(&new.get("spec"), Some(&old.get("spec")), errs);
    }

    /// Upstream looks at nothing but the generic rules.
    fn check_status_update(&self, _kind: &Kind, _new: &Node<'_>, _old: &Node<'_>, _errs: &mut Errors) {}

    fn warnings(&self, new: &Node<'_>, old: Option<&Node<'_>>) -> Vec<String> {
        let generation = |object: &Node<'_>| object.get("metadata").int("generation");
        let spec = new.get("spec").get("jobTemplate").get("spec");
        let Some(old) = old else {
            return workload::name_warning(new).into_iter().chain(job_spec::warnings(&spec, None)).collect();
        };
        let mut warnings = Vec::new();
        if generation(old) != generation(new) {
            warnings = job_spec::warnings(&spec, Some(&old.get("spec").get("jobTemplate").get("spec")));
        }
        if new.get("spec").str("schedule").contains("TZ") {
            warnings.push(
                "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see \
                 https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
                    .to_owned(),
            );
        }
        warnings
    }

    fn generation(&self) -> Generation {
        Generation::On(&["spec"])
    }

    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        if subresource == "status" { &["spec"] } else { &["status"] }
    }

    fn columns(&self) -> Cow<'_, [Column<'_>]> {
        COLUMNS.into()
    }
}

fn drop_disabled_fields(new: &mut Value, old: Option<&Value>) {
    if let Some(spec) = new.find_mut(&JOB_SPEC) {
        job_spec::drop_disabled_fields(spec, old.and_then(|old| old.find(&JOB_SPEC)));
    }
}

fn validate_spec(spec: &Node<'_>, old: Option<&Node<'_>>, errs: &mut Errors) {
    validate_schedule(spec, old, errs);
    validate_non_negative(&spec.get("startingDeadlineSeconds"), errs);
    let zone = spec.get("timeZone");
    if old.is_none_or(|old| !zone.same(&old.get("timeZone"))) {
        time_zone::validate(&zone, errs);
    }
    let concurrency = spec.get("concurrencyPolicy");
    match concurrency.as_str() {
        "" => errs.required(&concurrency, ""),
        known if CONCURRENCY.contains(&known) => {}
        other => errs.not_supported(&concurrency, other, &CONCURRENCY),
    }
    let job = spec.get("jobTemplate").get("spec");
    job_spec::validate(&job, old.map(|old| old.get("jobTemplate").get("spec")).as_ref(), errs);
    let selector = job.get("selector");
    if selector.is_set() {
        let shown = BadValue::Json(go_value::label_selector(selector.value()));
        errs.invalid(&selector, shown, "`selector` will be auto-generated");
    }
    if job.bool("manualSelector") {
        errs.not_supported(&job.get("manualSelector"), true, &["nil", "false"]);
    }
    validate_non_negative(&spec.get("successfulJobsHistoryLimit"), errs);
    validate_non_negative(&spec.get("failedJobsHistoryLimit"), errs);
}

fn validate_schedule(spec: &Node<'_>, old: Option<&Node<'_>>, errs: &mut Errors) {
    let (at, text) = (spec.get("schedule"), spec.str("schedule"));
    if text.is_empty() {
        return errs.required(&at, "");
    }
    if let Err(complaint) = Cron::parse(text, time_zone::load_error) {
        errs.invalid(&at, text, complaint);
    }
    let had_zone = old.is_some_and(|old| old.str("schedule").contains("TZ"));
    match text.contains("TZ") {
        true if had_zone && spec.has("timeZone") => {
            errs.invalid(&at, text, "cannot use both timeZone field and TZ or CRON_TZ in schedule");
        }
        true if !had_zone => {
            errs.invalid(&at, text, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead");
        }
        _ => {}
    }
}

/// As upstream prints a flag in a table.
fn suspended(object: &Value) -> Value {
    json!(match object.find(&["spec", "suspend"]).and_then(Value::as_bool) {
        None => "<unset>",
        Some(true) => "True",
        Some(false) => "False",
    })
}

fn active(object: &Value) -> Value {
    json!(object.find(&["status", "active"]).and_then(Value::as_array).map_or(0, Vec::len))
}

fn last_schedule(object: &Value, now: i64) -> Value {
    match object.find(&["status", "lastScheduleTime"]) {
        None => json!(cells::NONE),
        time => json!(human::age(time, now)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{columns, create, create_fails, update_fails};
    use super::*;

    const API: &str = "batch/v1";

    fn cron_job(more: Value) -> Value {
        let mut spec = json!({"schedule": "0 * * * *", "jobTemplate": {"spec": job_spec::example(json!({}))}});
        for (name, value) in more.as_object().unwrap() {
            spec.set(name, value.clone());
        }
        json!({"metadata": {"name": "c"}, "spec": spec})
    }

    #[test]
    fn jobs_of_the_past_are_kept_unless_said() {
        let object = create(API, "cronjobs", cron_job(json!({})));
        let spec = &object["spec"];
        assert_eq!((&spec["successfulJobsHistoryLimit"], &spec["failedJobsHistoryLimit"]), (&json!(3), &json!(1)));
        let row = json!(["c", "0 * * * *", "<none>", "False", 0, "<none>", "<unknown>", "c", "nginx", "<none>"]);
        assert_eq!(columns(API, "cronjobs", &object), row);
    }

    #[test]
    fn schedules_and_zones_are_apart() {
        let zoned = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
        create_fails(
            API,
            "cronjobs",
            cron_job(json!({"schedule": "TZ=UTC 0 * * * *"})),
            &format!("spec.schedule: Invalid value: \"TZ=UTC 0 * * * *\": {zoned}"),
        );
        update_fails(
            API,
            "cronjobs",
            cron_job(json!({})),
            cron_job(json!({"timeZone": "Mars"})),
            "spec.timeZone: Invalid value: \"Mars\": unknown time zone Mars",
        );
    }

    #[test]
    fn a_name_leaves_room_for_those_of_jobs() {
        let mut body = cron_job(json!({}));
        body["metadata"]["name"] = json!("a".repeat(53));
        let expected =
            format!("metadata.name: Invalid value: \"{}\": must be no more than 52 characters", "a".repeat(53));
        create_fails(API, "cronjobs", body, &expected);
    }
}
