//! Deletes finished Jobs that say for how long they are of interest.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{Api, DeleteParams, Preconditions};
use setpoint_runtime::Key;
use setpoint_runtime::cache::Informer;
use setpoint_runtime::controller::{Action, Context, Error};
use setpoint_runtime::manager::ManagerError;
use setpoint_runtime::retry;

use crate::Wiring;
use crate::job::finished;

/// Adds the controller.
pub fn add(wiring: &Wiring<'_>) -> Result<(), ManagerError> {
    let desk = wiring.desk("ttl-after-finished-controller")?;
    let jobs: Informer<Job> = wiring.informer();
    let cache = jobs.clone();
    let controller =
        desk.controller(&jobs, 5).build(move |context: Context, key: Key| reconcile(context, cache.clone(), key));
    desk.run(controller)
}

async fn reconcile(context: Context, jobs: Informer<Job>, key: Key) -> Result<Action, Error> {
    let Some(job) = context.read(&jobs, &key) else { return Ok(Action::done()) };
    let Some(end) = expires_at(&job) else { return Ok(Action::done()) };
    let wait = context.clock().until(end);
    if !wait.is_zero() {
        return Ok(Action::requeue_after(wait));
    }
    // Somebody may have given it more time since the cache saw it.
    let api: Api<Job> = Api::namespaced(context.client().clone(), key.namespace().unwrap_or_default());
    let Some(live) = api.get_opt(key.name()).await? else { return Ok(Action::done()) };
    if expires_at(&live).is_none_or(|end| end > context.clock().wall()) {
        return Err(Error::conflict(format!("{key} is newer than the cache")));
    }
    let preconditions =
        Some(Preconditions { uid: live.metadata.uid, resource_version: live.metadata.resource_version });
    let how = DeleteParams { preconditions, ..DeleteParams::foreground() };
    match api.delete(key.name(), &how).await {
        Err(error) if retry::is_not_found(&error) => Ok(Action::done()),
        other => Ok(other.map(|_| Action::done())?),
    }
}

/// When a Job has had its time; none if it is not over, is going already, or may stay.
fn expires_at(job: &Job) -> Option<Timestamp> {
    let seconds = job.spec.as_ref()?.ttl_seconds_after_finished?;
    let end = finished(job).filter(|_| job.metadata.deletion_timestamp.is_none())?.last_transition_time.as_ref()?;
    end.0.checked_add(SignedDuration::from_secs(i64::from(seconds))).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_finished_job_expires_after_its_time() {
        let condition = |kind: &str, status: &str| json!([{"type": kind, "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        let check = |ttl: Value, conditions: Value, deleted: Value, expected: Option<&str>| {
            let job = json!({"metadata": {"deletionTimestamp": deleted}, "status": {"conditions": conditions},
                "spec": {"ttlSecondsAfterFinished": ttl, "template": {}}});
            let found = expires_at(&serde_json::from_value(job.clone()).unwrap());
            assert_eq!(found.map(|end| end.to_string()).as_deref(), expected, "{job}");
        };
        check(json!(60), condition("Complete", "True"), json!(null), Some("2026-01-01T00:01:00Z"));
        check(json!(0), condition("Failed", "True"), json!(null), Some("2026-01-01T00:00:00Z"));
        check(json!(null), condition("Failed", "True"), json!(null), None);
        check(json!(60), condition("Complete", "False"), json!(null), None);
        check(json!(60), condition("Suspended", "True"), json!(null), None);
        check(json!(60), condition("Complete", "True"), json!("2026-01-01T00:00:00Z"), None);
    }
}
