//! Which Jobs of a CronJob are under way, as its status has it.

use std::sync::Arc;

use k8s_openapi::api::batch::v1::{CronJob, CronJobStatus, Job};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::job::finished;

/// The annotation of a Job with the time that it was to be started at.
pub const SCHEDULED_AT: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

/// What a look at the Jobs came to.
#[derive(Debug, Default)]
pub struct Look {
    pub status: CronJobStatus,
    /// What users should know.
    pub notes: Vec<Note>,
    /// Jobs that should be there but that the cache doesn't have.
    pub unseen: Vec<ObjectReference>,
}

/// An event to record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    pub is_warning: bool,
    pub reason: &'static str,
    pub text: String,
}

/// Brings the status in line with the Jobs that a CronJob controls.
pub fn look(cron: &CronJob, jobs: &[Arc<Job>]) -> Look {
    let mut look = Look { status: normal(cron.status.clone().unwrap_or_default()), ..Look::default() };
    for job in jobs {
        match finished(job) {
            Some(condition) => look.ended(job, &condition.type_),
            None => look.under_way(job),
        }
    }
    let is_seen = |one: &&ObjectReference| jobs.iter().any(|job| job.metadata.uid == one.uid);
    look.unseen = look.status.active.iter().flatten().filter(|one| !is_seen(one)).cloned().collect();
    look
}

impl Look {
    fn ended(&mut self, job: &Job, how: &str) {
        let name = job.metadata.name.as_deref().unwrap_or_default();
        if forget(&mut self.status, job.metadata.uid.as_deref()) {
            let text = format!("Saw completed job: {name}, condition: {how}");
            self.notes.push(Note { is_warning: false, reason: "SawCompletedJob", text });
        }
        let completed = job.status.as_ref().and_then(|status| status.completion_time.clone());
        if how == "Complete" && completed > self.status.last_successful_time {
            self.status.last_successful_time = completed;
        }
    }

    fn under_way(&mut self, job: &Job) {
        if self.status.active.iter().flatten().any(|one| one.uid == job.metadata.uid) {
            return;
        }
        match scheduled_at(job) {
            // Started, and then the status could not be written.
            Some(at) => {
                remember(&mut self.status, job);
                self.status.last_schedule_time = self.status.last_schedule_time.take().max(Some(at));
            }
            None => {
                let name = job.metadata.name.as_deref().unwrap_or_default();
                let text = format!("Saw a job that the controller did not create or forgot: {name}");
                self.notes.push(Note { is_warning: true, reason: "UnexpectedJob", text });
            }
        }
    }

    /// A Job that should be there is gone.
    pub fn missing(&mut self, job: &ObjectReference) {
        if forget(&mut self.status, job.uid.as_deref()) {
            let text = format!("Active job went missing: {}", job.name.as_deref().unwrap_or_default());
            self.notes.push(Note { is_warning: false, reason: "MissingJob", text });
        }
    }
}

/// Adds a Job to those under way.
pub fn remember(status: &mut CronJobStatus, job: &Job) {
    let reference = ObjectReference {
        api_version: Some("batch/v1".to_owned()),
        kind: Some("Job".to_owned()),
        name: job.metadata.name.clone(),
        namespace: job.metadata.namespace.clone(),
        resource_version: job.metadata.resource_version.clone(),
        uid: job.metadata.uid.clone(),
        ..ObjectReference::default()
    };
    status.active.get_or_insert_default().push(reference);
}

/// Takes a Job from those under way, and says whether it was among them.
pub fn forget(status: &mut CronJobStatus, uid: Option<&str>) -> bool {
    let Some(active) = &mut status.active else { return false };
    let before = active.len();
    active.retain(|one| one.uid.as_deref() != uid);
    let is_less = active.len() < before;
    status.active = status.active.take().filter(|active| !active.is_empty());
    is_less
}

/// A status in the form in which two that say the same are equal.
pub fn normal(status: CronJobStatus) -> CronJobStatus {
    CronJobStatus { active: status.active.filter(|active| !active.is_empty()), ..status }
}

/// When a Job was to be started; none for one that somebody made by hand.
fn scheduled_at(job: &Job) -> Option<Time> {
    let text = job.metadata.annotations.as_ref()?.get(SCHEDULED_AT)?;
    text.parse().ok().map(Time)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn job(name: &str, conditions: Value, annotations: Value) -> Arc<Job> {
        let metadata = json!({"name": name, "uid": name, "annotations": annotations});
        let status = json!({"conditions": conditions, "completionTime": "2026-01-01T00:05:00Z"});
        Arc::new(serde_json::from_value(json!({"metadata": metadata, "status": status})).unwrap())
    }

    fn check(active: &[&str], jobs: &[Arc<Job>], expected: Value, notes: &[&str], unseen: &[&str]) {
        let active: Vec<_> = active.iter().map(|name| json!({"name": name, "uid": name})).collect();
        let spec = json!({"schedule": "", "jobTemplate": {}});
        let cron = json!({"metadata": {}, "spec": spec, "status": {"active": active}});
        let look = look(&serde_json::from_value(cron).unwrap(), jobs);
        let mut status = serde_json::to_value(&look.status).unwrap();
        status["active"] = look.status.active.iter().flatten().filter_map(|one| one.uid.clone()).collect();
        assert_eq!(status, expected);
        assert_eq!(look.notes.iter().map(|note| note.reason).collect::<Vec<_>>(), notes);
        assert_eq!(look.unseen.iter().filter_map(|one| one.uid.as_deref()).collect::<Vec<_>>(), unseen);
    }

    #[test]
    fn the_status_follows_the_jobs() {
        let (complete, failed) =
            (json!([{"type": "Complete", "status": "True"}]), json!([{"type": "Failed", "status": "True"}]));
        check(&["a"], &[job("a", json!([]), json!({}))], json!({"active": ["a"]}), &[], &[]);
        let succeeded = json!({"active": [], "lastSuccessfulTime": "2026-01-01T00:05:00Z"});
        check(&["a"], &[job("a", complete.clone(), json!({}))], succeeded.clone(), &["SawCompletedJob"], &[]);
        check(&[], &[job("a", complete, json!({}))], succeeded, &[], &[]);
        check(&["a"], &[job("a", failed, json!({}))], json!({"active": []}), &["SawCompletedJob"], &[]);
        check(&["a"], &[], json!({"active": ["a"]}), &[], &["a"]);
    }

    #[test]
    fn a_job_that_was_started_before_a_crash_is_remembered() {
        let at = json!({SCHEDULED_AT: "2026-01-01T09:04:00+09:00"});
        let known = json!({"active": ["a"], "lastScheduleTime": "2026-01-01T00:04:00Z"});
        check(&[], &[job("a", json!([]), at)], known, &[], &[]);
        check(&[], &[job("a", json!([]), json!({}))], json!({"active": []}), &["UnexpectedJob"], &[]);
    }
}
