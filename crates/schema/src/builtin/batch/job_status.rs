//! How a Job is doing: counts and conditions that don't contradict each other and never go back.

use serde_json::Value;
use setpoint_api::BadValue;
use setpoint_api::time::Timestamp;

use super::super::go_value;
use super::super::int_or_percent::validate_non_negative;
use super::indexes;
use crate::edit::Edit;
use crate::errors::Errors;
use crate::node::Node;

/// The state of a Job in one word, for its table.
pub(super) fn word(job: &Value) -> &'static str {
    match job {
        _ if has(job, "Complete") => "Complete",
        _ if has(job, "Failed") => "Failed",
        _ if job["metadata"].has("deletionTimestamp") => "Terminating",
        _ if has(job, "Suspended") => "Suspended",
        _ if has(job, "FailureTarget") => "FailureTarget",
        _ if has(job, "SuccessCriteriaMet") => "SuccessCriteriaMet",
        _ => "Running",
    }
}

/// Whether a condition of this type is there and true.
pub(super) fn is_true(job: &Value, kind: &str) -> bool {
    has_status(job, kind, "True")
}

/// The rules for a write to `/status`.
pub(super) fn validate_update(new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
    let jobs = Jobs::new(new, old);
    validate_counts(&jobs.status, errs);
    jobs.validate_conditions_and_times(errs);
    jobs.validate_end(errs);
    jobs.validate_indexes(errs);
    jobs.validate_pods_at_end(errs);
    jobs.validate_success(errs);
    jobs.validate_progress(errs);
}

fn has(job: &Value, kind: &str) -> bool {
    is_true(job, kind)
}

fn has_status(job: &Value, kind: &str, status: &str) -> bool {
    let conditions = job.find(&["status", "conditions"]).and_then(Value::as_array);
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition.text("type") == kind && condition.text("status") == status)
}

fn validate_counts(status: &Node<'_>, errs: &mut Errors) {
    for field in ["active", "succeeded", "failed", "ready", "terminating"] {
        validate_non_negative(&status.get(field), errs);
    }
    let mut seen: Vec<&str> = Vec::new();
    let uncounted = status.get("uncountedTerminatedPods");
    for uid in uncounted.items("succeeded").chain(uncounted.items("failed")) {
        match uid.as_str() {
            "" => errs.invalid(&uid, "", "must not be empty"),
            text if seen.contains(&text) => errs.duplicate(&uid, text),
            text => seen.push(text),
        }
    }
}

/// A Job before and after a write. A rule applies when something it looks at has changed, so that what was stored
/// before the rule came can stay.
struct Jobs<'a> {
    new: Node<'a>,
    old: Node<'a>,
    status: Node<'a>,
    old_status: Node<'a>,
    finished: bool,
    finished_changed: bool,
}

impl<'a> Jobs<'a> {
    fn new(new: &Node<'a>, old: &Node<'a>) -> Self {
        let finished = |job: &Node<'_>| is_true(job.json(), "Complete") || is_true(job.json(), "Failed");
        Self {
            status: new.get("status"),
            old_status: old.get("status"),
            finished: finished(new),
            finished_changed: finished(new) != finished(old),
            new: new.clone(),
            old: old.clone(),
        }
    }

    fn is(&self, kind: &str) -> bool {
        is_true(self.new.json(), kind)
    }

    fn was(&self, kind: &str) -> bool {
        is_true(self.old.json(), kind)
    }

    fn condition_changed(&self, kinds: &[&str]) -> bool {
        kinds.iter().any(|kind| self.is(kind) != self.was(kind))
    }

    fn changed(&self, field: &'static str) -> bool {
        !self.status.get(field).same(&self.old_status.get(field))
    }

    fn number(&self, field: &'static str) -> i64 {
        self.status.int(field).unwrap_or(0)
    }

    fn refuse_conditions(&self, detail: impl Into<String>, errs: &mut Errors) {
        errs.invalid(&self.status.get("conditions"), BadValue::Omitted, detail);
    }

    fn validate_conditions_and_times(&self, errs: &mut Errors) {
        let complete = self.is("Complete");
        if self.condition_changed(&["Complete", "Failed"]) && complete && self.is("Failed") {
            self.refuse_conditions("cannot set Complete=True and Failed=true conditions", errs);
        }
        if self.condition_changed(&["Complete", "FailureTarget"]) && complete && self.is("FailureTarget") {
            self.refuse_conditions("cannot set Complete=True and FailureTarget=true conditions", errs);
        }
        let (at, start) = (self.status.get("completionTime"), self.status.get("startTime"));
        let ends = self.condition_changed(&["Complete"]) || self.changed("completionTime");
        if ends && at.is_set() && !complete {
            errs.invalid(&at, at.as_str(), "cannot set completionTime when there is no Complete=True condition");
        }
        if ends && !at.is_set() && complete {
            errs.required(&at, "completionTime is required for Complete jobs");
        }
        let seconds = |time: &Node<'_>| Timestamp::parse(time.as_str()).ok().map(|time| time.seconds);
        let backward = matches!((seconds(&start), seconds(&at)), (Some(start), Some(end)) if end < start);
        if (self.changed("startTime") || self.changed("completionTime")) && backward {
            errs.invalid(&at, at.as_str(), "must be equal to or after `startTime`");
        }
    }

    fn validate_end(&self, errs: &mut Errors) {
        let failed_changed = self.condition_changed(&["Failed"]) || self.changed("failedIndexes");
        if failed_changed && self.is("Failed") && !self.is("FailureTarget") {
            self.refuse_conditions("cannot set Failed=True condition without the FailureTarget=true condition", errs);
        }
        let success_changed = self.condition_changed(&["Complete", "SuccessCriteriaMet"]);
        if success_changed && self.is("Complete") && !self.is("SuccessCriteriaMet") {
            let detail = "cannot set Complete=True condition without the SuccessCriteriaMet=true condition";
            self.refuse_conditions(detail, errs);
        }
        let active = self.number("active");
        if (self.finished_changed || self.changed("active")) && active > 0 && self.finished {
            errs.invalid(&self.status.get("active"), active, "active>0 is invalid for finished job");
        }
        let spec = self.new.get("spec");
        let never_meant_to_run = spec.bool("suspend") && spec.int("completions") == Some(0);
        let start = self.status.get("startTime");
        let start_matters = (self.finished_changed || self.changed("startTime")) && !never_meant_to_run;
        if start_matters && !start.is_set() && self.finished {
            errs.required(&start, "startTime is required for finished job");
        }
        let uncounted = self.status.get("uncountedTerminatedPods");
        let left = uncounted.count("succeeded") + uncounted.count("failed") > 0;
        if (self.finished_changed || self.changed("uncountedTerminatedPods")) && self.finished && left {
            let list = |field| go_value::scalar(uncounted.get(field).value());
            let shown = go_value::structure([("Succeeded", list("succeeded")), ("Failed", list("failed"))]);
            errs.invalid(&uncounted, BadValue::Json(shown), "must be empty for finished job");
        }
    }

    fn validate_indexes(&self, errs: &mut Errors) {
        let spec = self.new.get("spec");
        let (completed, failed) = (self.status.get("completedIndexes"), self.status.get("failedIndexes"));
        let (completed_changed, failed_changed) = (self.changed("completedIndexes"), self.changed("failedIndexes"));
        let completions = spec.int("completions");
        let per_index = spec.has("backoffLimitPerIndex");
        let refuse = |at: &Node<'_>, name: &str, errs: &mut Errors| {
            if let Some(Err(error)) = completions.map(|completions| indexes::count(at.as_str(), completions)) {
                errs.invalid(at, at.as_str(), format!("error parsing {name}: {error}"));
            }
        };
        if completed_changed {
            refuse(&completed, "completedIndexes", errs);
        }
        if failed_changed && per_index && failed.is_set() {
            refuse(&failed, "failedIndexes", errs);
        }
        if completed_changed && !completed.as_str().is_empty() && spec.str("completionMode") != "Indexed" {
            let detail = "cannot set non-empty completedIndexes when non-indexed completion mode";
            errs.invalid(&completed, completed.as_str(), detail);
        }
        if failed_changed && !per_index && failed.is_set() {
            let detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
            errs.invalid(&failed, failed.as_str(), detail);
        }
        if (failed_changed || completed_changed)
            && let Some(index) = completions.and_then(|max| indexes::overlap(completed.as_str(), failed.as_str(), max))
        {
            let detail = format!("failedIndexes and completedIndexes overlap at index: {index}");
            errs.invalid(&failed, failed.as_str(), detail);
        }
    }

    fn validate_pods_at_end(&self, errs: &mut Errors) {
        let (terminating, ready) = (self.number("terminating"), self.number("ready"));
        if (self.finished_changed || self.changed("terminating")) && terminating > 0 && self.finished {
            errs.invalid(&self.status.get("terminating"), terminating, "terminating>0 is invalid for finished job");
        }
        if (self.changed("ready") || self.changed("active"))
            && self.status.has("ready")
            && ready > self.number("active")
        {
            errs.invalid(&self.status.get("ready"), ready, "cannot set more ready pods than active");
        }
    }

    fn validate_success(&self, errs: &mut Errors) {
        let met = self.is("SuccessCriteriaMet");
        if met && self.is("Failed") {
            self.refuse_conditions("cannot set SuccessCriteriaMet=True and Failed=true conditions", errs);
        }
        if met && self.is("FailureTarget") {
            self.refuse_conditions("cannot set SuccessCriteriaMet=True and FailureTarget=true conditions", errs);
        }
        if self.new.get("spec").has("successPolicy") && !met && self.is("Complete") {
            let detail = "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True";
            self.refuse_conditions(detail, errs);
        }
    }

    /// What has happened stays so.
    fn validate_progress(&self, errs: &mut Errors) {
        for kind in ["Failed", "Complete", "FailureTarget"].into_iter().filter(|kind| self.was(kind) && !self.is(kind))
        {
            self.refuse_conditions(format!("cannot disable the terminal {kind}=True condition"), errs);
        }
        let spec = self.new.get("spec");
        let elastic = spec.str("completionMode") == "Indexed" && spec.int("completions") == spec.int("parallelism");
        for field in ["failed", "succeeded"] {
            let (now, before) = (self.number(field), self.old_status.int(field).unwrap_or(0));
            if now < before && (field == "failed" || !elastic) {
                errs.invalid(&self.status.get(field), now, format!("cannot decrease the {field} counter"));
            }
        }
        let end = self.status.get("completionTime");
        if end.is_set() && self.old_status.has("completionTime") && self.changed("completionTime") {
            errs.invalid(&end, end.as_str(), "field is immutable");
        }
        let resuming = self.was("Suspended") && has_status(self.new.json(), "Suspended", "False");
        let start = self.status.get("startTime");
        if self.changed("startTime") && !resuming && self.old_status.has("startTime") && !spec.bool("suspend") {
            errs.invalid(&start, start.json(), "field is immutable for unsuspended job once set");
        }
        let (met, was_met) = (self.is("SuccessCriteriaMet"), self.was("SuccessCriteriaMet"));
        if was_met && !met {
            self.refuse_conditions("cannot disable the SuccessCriteriaMet=True condition", errs);
        }
        if self.was("Complete") && !was_met && met {
            let detail = "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions";
            self.refuse_conditions(detail, errs);
        }
    }
}
