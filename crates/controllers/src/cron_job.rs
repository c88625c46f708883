//! Starts Jobs by the clock.

mod act;
mod active;
mod plan;
mod timetable;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::batch::v1::{CronJob, CronJobSpec, Job};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use k8s_openapi::jiff::tz::TimeZone;
use setpoint_api::quote::quote;
use setpoint_runtime::Key;
use setpoint_runtime::cache::{Cached, Informer};
use setpoint_runtime::controller::{Action, Context, Error};
use setpoint_runtime::events::{Recorder, reference};
use setpoint_runtime::manager::ManagerError;

use self::act::Started;
use self::active::{Look, Note};
use self::plan::{Due, Missed, SENSELESS, Senseless};
use self::timetable::{Timetable, time_zone};
use crate::Wiring;
use crate::pod_control::{is_namespace_terminating, message};
use crate::wiring::{normal, warning};

/// The index of Jobs by the identity of their controller.
const BY_CONTROLLER: &str = "controller";

/// Adds the controller.
pub fn add(wiring: &Wiring<'_>) -> Result<(), ManagerError> {
    let desk = wiring.desk("cronjob-controller")?;
    let caches = Caches { cron_jobs: wiring.informer(), jobs: wiring.informer() };
    caches.jobs.add_index(BY_CONTROLLER, |job: &Job| {
        Cached::controller(job).map(|owner| owner.uid.to_owned()).into_iter().collect()
    });
    let recorder = desk.recorder.clone();
    let controller = desk
        .controller(&caches.cron_jobs, 5)
        .owns(&caches.jobs)
        .build(move |context: Context, key: Key| reconcile(context, caches.clone(), recorder.clone(), key));
    desk.run(controller)
}

#[derive(Clone)]
struct Caches {
    cron_jobs: Informer<CronJob>,
    jobs: Informer<Job>,
}

async fn reconcile(context: Context, caches: Caches, recorder: Recorder, key: Key) -> Result<Action, Error> {
    let Some(cron) = context.read(&caches.cron_jobs, &key) else { return Ok(Action::done()) };
    let snapshot = caches.jobs.lister().snapshot();
    let jobs: Vec<_> = snapshot.by_index(BY_CONTROLLER, Cached::uid(&*cron)).cloned().collect();
    let mut run = Run { context: &context, recorder: &recorder, cron: &cron, look: active::look(&cron, &jobs) };
    run.find_unseen().await?;
    run.clean_up(&jobs).await;
    let started = run.start().await;
    run.finish().await?;
    started
}

/// One run for a CronJob.
struct Run<'a> {
    context: &'a Context,
    recorder: &'a Recorder,
    cron: &'a CronJob,
    look: Look,
}

impl Run<'_> {
    /// Jobs that the cache doesn't have may be too new for it.
    async fn find_unseen(&mut self) -> Result<(), Error> {
        for reference in std::mem::take(&mut self.look.unseen) {
            if act::find(self.context.client(), &reference).await?.is_none() {
                self.look.missing(&reference);
            }
        }
        Ok(())
    }

    /// Deletes finished Jobs over the limits; one that can't be deleted now is tried again with the next change.
    async fn clean_up(&mut self, jobs: &[Arc<Job>]) {
        for job in plan::outdated(self.cron, jobs) {
            self.delete(&job).await;
        }
    }

    async fn delete(&mut self, job: &Job) -> bool {
        match act::delete(self.context.client(), job).await {
            Ok(()) => {
                active::forget(&mut self.look.status, job.metadata.uid.as_deref());
                self.note(
                    "SuccessfulDelete",
                    format!("Deleted job {}", job.metadata.name.as_deref().unwrap_or_default()),
                );
                true
            }
            Err(error) => {
                self.warn("FailedDelete", format!("Deleted job: {}", message(&error)));
                false
            }
        }
    }

    /// Starts what is due, and says when to look again.
    async fn start(&mut self) -> Result<Action, Error> {
        let spec = &self.cron.spec;
        if self.cron.metadata.deletion_timestamp.is_some() {
            return Ok(Action::done());
        }
        let Some((table, zone)) = self.timetable(spec) else { return Ok(Action::done()) };
        let now = self.context.clock().wall();
        match plan::due(self.cron, &self.look.status, &table, now) {
            Err(Senseless) => {
                self.warn("InvalidSchedule", format!("invalid schedule: {} : {SENSELESS}", spec.schedule));
                return Ok(Action::done());
            }
            Ok(Due::Nothing) => {}
            Ok(Due::TooLate(at)) => {
                let text = at.strftime("%a, %d %b %Y %H:%M:%S +0000");
                self.warn("MissSchedule", format!("Missed scheduled time to start a job: {text}"));
            }
            Ok(Due::Start(at, missed)) => {
                if missed == Missed::Many {
                    let text = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
                    self.warn("TooManyMissedTimes", text.to_owned());
                }
                self.start_at(spec, at, &zone).await?;
            }
        }
        let wait = plan::until_next(self.cron, &self.look.status, &table, self.context.clock().wall());
        Ok(wait.map_or(Action::done(), |wait| Action::requeue_after(wait.max(Duration::from_millis(1)))))
    }

    /// The schedule and the zone that its times are told in; none if it is suspended or makes no sense, which users are told.
    fn timetable(&mut self, spec: &CronJobSpec) -> Option<(Timetable, TimeZone)> {
        let zone = match spec.time_zone.as_deref().map(|name| (name, time_zone(name))) {
            None => TimeZone::UTC,
            Some((_, Ok(zone))) => zone,
            Some((name, Err(error))) => {
                self.warn("UnknownTimeZone", format!("invalid timeZone: {}: {error}", quote(name)));
                return None;
            }
        };
        if spec.suspend == Some(true) {
            return None;
        }
        if spec.schedule.contains("TZ") {
            let text = quote(&spec.schedule);
            let link = "https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/";
            let text = format!(
                "CRON_TZ or TZ used in schedule {text} is not officially supported, see {link} for more details"
            );
            self.warn("UnsupportedSchedule", text);
        }
        match Timetable::parse(&spec.schedule, Some(&zone)) {
            Ok(table) => Some((table, zone)),
            Err(error) => {
                let text = quote(&spec.schedule);
                self.warn("UnparseableSchedule", format!("unparseable schedule: {text} : {error}"));
                None
            }
        }
    }

    async fn start_at(&mut self, spec: &CronJobSpec, at: Timestamp, zone: &TimeZone) -> Result<(), Error> {
        let name = plan::job_name(self.cron, at);
        let status = &self.look.status;
        let is_active = status.active.iter().flatten().any(|one| one.name.as_deref() == Some(&name));
        if is_active || status.last_schedule_time.as_ref().is_some_and(|last| last.0 == at) {
            return Ok(());
        }
        let active = status.active.clone().unwrap_or_default();
        if spec.concurrency_policy.as_deref() == Some("Forbid") && !active.is_empty() {
            let text = "Not starting job because prior execution is running and concurrency policy is Forbid";
            self.note("JobAlreadyActive", text.to_owned());
            return Ok(());
        }
        act::ensure_current(self.context, self.cron).await?;
        let client = self.context.client();
        if spec.concurrency_policy.as_deref() == Some("Replace") {
            for reference in active {
                match act::find(client, &reference).await? {
                    Some(job) if !self.delete(&job).await => {
                        let name = reference.name.unwrap_or_default();
                        return Err(Error::transient(format!("could not replace job {name}")));
                    }
                    Some(_) => {}
                    None => self.look.missing(&reference),
                }
            }
        }
        let job = match act::start(client, self.cron, at, zone).await {
            Ok(Started::Made(job)) => {
                self.note("SuccessfulCreate", format!("Created job {name}"));
                job
            }
            Ok(Started::Before(job)) => job,
            Ok(Started::Foreign) => return Ok(()),
            Err(error) if is_namespace_terminating(&error) => return Ok(()),
            Err(error) => {
                self.warn("FailedCreate", format!("Error creating job: {}", message(&error)));
                return Err(error.into());
            }
        };
        active::remember(&mut self.look.status, &job);
        self.look.status.last_schedule_time = Some(Time(at));
        Ok(())
    }

    /// Writes the status if it changed, and tells users what happened.
    async fn finish(&mut self) -> Result<(), Error> {
        let status = std::mem::take(&mut self.look.status);
        if status != active::normal(self.cron.status.clone().unwrap_or_default()) {
            act::write_status(self.context.client(), self.cron, status).await?;
        }
        for note in self.look.notes.drain(..) {
            let say = if note.is_warning { warning } else { normal };
            say(self.recorder, reference(self.cron), note.reason, "SyncCronJob", note.text);
        }
        Ok(())
    }

    fn note(&mut self, reason: &'static str, text: String) {
        self.look.notes.push(Note { is_warning: false, reason, text });
    }

    fn warn(&mut self, reason: &'static str, text: String) {
        self.look.notes.push(Note { is_warning: true, reason, text });
    }
}
