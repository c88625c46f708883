//! Makes and deletes Jobs for their CronJob.

use k8s_openapi::api::batch::v1::{CronJob, CronJobStatus, Job};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use k8s_openapi::jiff::tz::TimeZone;
use kube::Client;
use kube::api::{Api, DeleteParams, PostParams, Preconditions};
use setpoint_runtime::controller::{Context, Error};
use setpoint_runtime::{owners, retry};

use super::active::SCHEDULED_AT;
use super::plan::job_name;
use crate::claim::reference_to;

/// What came of starting a Job.
pub enum Started {
    /// It was made now.
    Made(Box<Job>),
    /// It was made before, and then the status could not be written.
    Before(Box<Job>),
    /// Something else has its name.
    Foreign,
}

/// Jobs are started only by the newest version of their CronJob: a cache that is behind would start again what is gone by now.
pub async fn ensure_current(context: &Context, cron: &CronJob) -> Result<(), Error> {
    let (namespace, name) = place(&cron.metadata);
    let live = Api::<CronJob>::namespaced(context.client().clone(), namespace).get_metadata(name).await?;
    let is_same = live.metadata.resource_version == cron.metadata.resource_version;
    match is_same && live.metadata.uid == cron.metadata.uid {
        true => Ok(()),
        false => Err(Error::conflict(format!("{namespace}/{name} is newer than the cache"))),
    }
}

/// Starts the Job of a moment.
pub async fn start(client: &Client, cron: &CronJob, at: Timestamp, zone: &TimeZone) -> Result<Started, kube::Error> {
    let (namespace, _) = place(&cron.metadata);
    let api: Api<Job> = Api::namespaced(client.clone(), namespace);
    let Ok(job) = new_job(cron, at, zone) else { return Ok(Started::Foreign) };
    match api.create(&PostParams::default(), &job).await {
        Ok(job) => Ok(Started::Made(Box::new(job))),
        Err(error) if retry::is_already_exists(&error) => {
            let there = api.get(job.metadata.name.as_deref().unwrap_or_default()).await?;
            match owners::is_controlled_by(&there.metadata, cron.metadata.uid.as_deref().unwrap_or_default()) {
                true => Ok(Started::Before(Box::new(there))),
                false => Ok(Started::Foreign),
            }
        }
        Err(error) => Err(error),
    }
}

fn new_job(cron: &CronJob, at: Timestamp, zone: &TimeZone) -> Result<Job, Error> {
    let template = cron.spec.job_template.clone();
    let described = template.metadata.unwrap_or_default();
    let mut annotations = described.annotations.unwrap_or_default();
    annotations.insert(SCHEDULED_AT.to_owned(), rfc3339(at, zone));
    let metadata = ObjectMeta {
        name: Some(job_name(cron, at)),
        labels: described.labels,
        annotations: Some(annotations),
        owner_references: Some(vec![reference_to(cron)?]),
        ..ObjectMeta::default()
    };
    Ok(Job { metadata, spec: template.spec, status: None })
}

/// A moment as clocks in a zone show it, with their distance from UTC.
fn rfc3339(at: Timestamp, zone: &TimeZone) -> String {
    let format = if zone.to_offset(at).is_zero() { "%Y-%m-%dT%H:%M:%SZ" } else { "%Y-%m-%dT%H:%M:%S%:z" };
    at.to_zoned(zone.clone()).strftime(format).to_string()
}

/// The Job that a reference is to, if it is still there.
pub async fn find(client: &Client, reference: &ObjectReference) -> Result<Option<Job>, kube::Error> {
    let namespace = reference.namespace.as_deref().unwrap_or_default();
    let api: Api<Job> = Api::namespaced(client.clone(), namespace);
    let job = api.get_opt(reference.name.as_deref().unwrap_or_default()).await?;
    Ok(job.filter(|job| job.metadata.uid == reference.uid))
}

/// Deletes a Job and lets its pods go after it. One that is gone already is fine.
pub async fn delete(client: &Client, job: &Job) -> Result<(), kube::Error> {
    let (namespace, name) = place(&job.metadata);
    let preconditions = Some(Preconditions { uid: job.metadata.uid.clone(), resource_version: None });
    let how = DeleteParams { preconditions, ..DeleteParams::background() };
    match Api::<Job>::namespaced(client.clone(), namespace).delete(name, &how).await {
        Err(error) if retry::is_not_found(&error) => Ok(()),
        other => other.map(drop),
    }
}

/// Writes a status.
pub async fn write_status(client: &Client, cron: &CronJob, status: CronJobStatus) -> Result<(), kube::Error> {
    let (namespace, name) = place(&cron.metadata);
    let api: Api<CronJob> = Api::namespaced(client.clone(), namespace);
    let cron = CronJob { status: Some(status), ..cron.clone() };
    api.replace_status(name, &PostParams::default(), &cron).await.map(drop)
}

fn place(metadata: &ObjectMeta) -> (&str, &str) {
    (metadata.namespace.as_deref().unwrap_or_default(), metadata.name.as_deref().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::super::timetable::time_zone;
    use super::*;

    #[test]
    fn a_moment_is_told_in_the_zone_of_the_schedule() {
        let at = "2026-07-01T00:30:00Z".parse().unwrap();
        for (zone, expected) in [
            ("UTC", "2026-07-01T00:30:00Z"),
            ("Asia/Kolkata", "2026-07-01T06:00:00+05:30"),
            ("America/New_York", "2026-06-30T20:30:00-04:00"),
        ] {
            assert_eq!(rfc3339(at, &time_zone(zone).unwrap()), expected);
        }
    }
}
