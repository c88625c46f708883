//! CronJobs: each start once, by the clock.

use std::time::Duration;

use futures_util::future::BoxFuture;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use setpoint_testkit::{ControlPlane, Process, Scenario, State};

use crate::process::{controllers, exhaust, spawn};

/// A Job every ten minutes for half an hour, which is never done.
struct Ticking {
    name: &'static str,
    policy: &'static str,
    jobs: usize,
}

fn tick(schedule: &str, zone: &str, policy: &str) -> CronJob {
    let pod = json!({"restartPolicy": "Never", "containers": [{"name": "main", "image": "tick"}]});
    let template = json!({"spec": {"template": {"spec": pod}}});
    let spec = json!({"schedule": schedule, "timeZone": zone, "concurrencyPolicy": policy, "jobTemplate": template});
    serde_json::from_value(json!({"metadata": {"name": "tick"}, "spec": spec})).unwrap()
}

impl Scenario for Ticking {
    fn name(&self) -> &'static str {
        self.name
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        controllers(process, "cronjob-controller")
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            let cron_jobs: Api<CronJob> = Api::default_namespaced(plane.client());
            let cron = tick("*/10 * * * *", "Europe/Berlin", self.policy);
            cron_jobs.create(&PostParams::default(), &cron).await.unwrap();
            plane.advance(Duration::from_secs(29 * 60)).await;
            let patch = Patch::Merge(json!({"spec": {"suspend": true}}));
            cron_jobs.patch("tick", &PatchParams::default(), &patch).await.unwrap();
        })
    }

    fn invariant(&self, state: &State) -> Result<(), String> {
        let jobs = state.objects("batch", "jobs").len();
        if jobs > self.jobs { Err(format!("there are {jobs} jobs")) } else { Ok(()) }
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        let cron = state.object("batch", "cronjobs", "default", "tick").unwrap_or_default();
        let active = cron["status"]["active"].as_array().map_or(0, Vec::len);
        let jobs = state.objects("batch", "jobs").len();
        match (active, jobs) == (self.jobs, self.jobs) {
            true => Ok(()),
            false => Err(format!("{jobs} jobs, {active} of them known as active")),
        }
    }

    /// A Job's identity is in its labels, too: its name and start are what counts.
    fn view(&self, object: Value) -> Option<Value> {
        match object["kind"] == "Job" {
            true => Some(object["metadata"]["annotations"].clone()),
            false => Some(object),
        }
    }
}

#[test]
fn each_start_has_one_job() {
    exhaust(&Ticking { name: "cron_job::each_start_has_one_job", policy: "Allow", jobs: 2 }).assert();
}

#[test]
fn while_one_runs_no_other_is_started() {
    exhaust(&Ticking { name: "cron_job::while_one_runs_no_other_is_started", policy: "Forbid", jobs: 1 }).assert();
}

#[test]
fn a_new_one_replaces_the_old() {
    exhaust(&Ticking { name: "cron_job::a_new_one_replaces_the_old", policy: "Replace", jobs: 1 }).assert();
}

/// At half past two in New York there is one night in the year without that time. A night that nobody saw is made up for once.
#[tokio::test(start_paused = true)]
async fn nights_across_the_changes_of_clocks() {
    const DAY: Duration = Duration::from_secs(24 * 3600);
    let plane = ControlPlane::start().await;
    plane.advance(64 * DAY).await;
    let cron_jobs: Api<CronJob> = Api::default_namespaced(plane.client());
    let cron = tick("30 2 * * *", "America/New_York", "Allow");
    cron_jobs.create(&PostParams::default(), &cron).await.unwrap();
    // Four days in March and four in autumn; nobody is there in between.
    for wait in [234 * DAY, Duration::ZERO] {
        let controllers = spawn(&plane, "cronjob-controller");
        plane.advance(4 * DAY).await;
        controllers.abort();
        plane.advance(wait).await;
    }
    let mut starts: Vec<String> = plane.state().objects("batch", "jobs").iter().map(start_of).collect();
    starts.sort();
    let wanted = [
        "2026-03-06T02:30:00-05:00",
        "2026-03-07T02:30:00-05:00",
        "2026-03-09T02:30:00-04:00",
        "2026-10-29T02:30:00-04:00",
        "2026-10-30T02:30:00-04:00",
        "2026-10-31T02:30:00-04:00",
        "2026-11-01T02:30:00-05:00",
        "2026-11-02T02:30:00-05:00",
    ];
    assert_eq!(starts, wanted);
}

/// In Berlin half past two comes twice in one night of the year, and in another it never does. Each time a new process is there for it.
#[tokio::test(start_paused = true)]
async fn every_night_of_a_year_has_its_job() {
    const MINUTE: Duration = Duration::from_secs(60);
    let plane = ControlPlane::start().await;
    let cron_jobs: Api<CronJob> = Api::default_namespaced(plane.client());
    let jobs: Api<Job> = Api::default_namespaced(plane.client());
    cron_jobs.create(&PostParams::default(), &tick("30 2 * * *", "Europe/Berlin", "Allow")).await.unwrap();
    plane.advance(25 * MINUTE).await;
    let mut starts = Vec::new();
    // Half past two there is half past midnight in summer and half past one in winter.
    for wait in [50 * MINUTE, (23 * 60 - 10) * MINUTE].into_iter().cycle().take(2 * 365) {
        let controllers = spawn(&plane, "cronjob-controller");
        plane.advance(10 * MINUTE).await;
        controllers.abort();
        let made = plane.state().objects("batch", "jobs");
        starts.extend(made.iter().map(start_of));
        for job in made {
            jobs.delete(job["metadata"]["name"].as_str().unwrap(), &DeleteParams::background()).await.unwrap();
        }
        plane.advance(wait).await;
    }
    assert_eq!(starts.len(), 365);
    assert!(starts.iter().all(|start| start.contains("T02:30:00+0")), "{starts:?}");
    let on = |day: &str| starts.iter().filter(|start| start.starts_with(day)).count();
    assert_eq!((on("2026-03-28"), on("2026-03-29"), on("2026-10-24"), on("2026-10-25")), (1, 0, 1, 2));
}

fn start_of(job: &Value) -> String {
    let annotation = &job["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"];
    annotation.as_str().unwrap_or_default().to_owned()
}
