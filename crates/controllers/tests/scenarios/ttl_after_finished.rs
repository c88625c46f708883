//! Finished Jobs go when they have had their time.

use std::time::Duration;

use futures_util::future::BoxFuture;
use k8s_openapi::api::batch::v1::Job;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use setpoint_testkit::{ControlPlane, Process, Scenario, State};

use crate::process::{controllers, exhaust};

/// Jobs that are over; users change their mind about one.
struct Finished {
    name: &'static str,
    ttl: i32,
    /// What its time is set to a minute later.
    ttl_later: Option<Option<i32>>,
    stays: bool,
}

impl Scenario for Finished {
    fn name(&self) -> &'static str {
        self.name
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        controllers(process, "ttl-after-finished-controller")
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            let jobs: Api<Job> = Api::default_namespaced(plane.client());
            let pod = json!({"restartPolicy": "Never", "containers": [{"name": "main", "image": "sum"}]});
            let spec = json!({"ttlSecondsAfterFinished": self.ttl, "template": {"spec": pod}});
            let job = serde_json::from_value(json!({"metadata": {"name": "sum"}, "spec": spec})).unwrap();
            jobs.create(&PostParams::default(), &job).await.unwrap();
            let now = plane.clock().time();
            let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": now});
            let status = json!({"startTime": now, "conditions": [condition("FailureTarget"), condition("Failed")]});
            let patch = Patch::Merge(json!({ "status": status }));
            jobs.patch_status("sum", &PatchParams::default(), &patch).await.unwrap();
            if let Some(ttl) = self.ttl_later {
                plane.advance(Duration::from_secs(60)).await;
                let patch = Patch::Merge(json!({"spec": {"ttlSecondsAfterFinished": ttl}}));
                jobs.patch("sum", &PatchParams::default(), &patch).await.unwrap();
            }
            plane.advance(Duration::from_secs(2000)).await;
        })
    }

    /// It is deleted in the foreground; somebody else lets it go.
    fn outcome(&self, state: &State) -> Result<(), String> {
        let job = state.object("batch", "jobs", "default", "sum");
        let stays = job.is_some_and(|job| job["metadata"]["deletionTimestamp"].is_null());
        if stays == self.stays { Ok(()) } else { Err(format!("it stays: {stays}")) }
    }
}

#[test]
fn a_job_goes_after_its_time() {
    let name = "ttl_after_finished::a_job_goes_after_its_time";
    exhaust(&Finished { name, ttl: 600, ttl_later: None, stays: false }).assert();
}

#[test]
fn a_job_that_gets_less_time_goes_earlier() {
    let name = "ttl_after_finished::a_job_that_gets_less_time_goes_earlier";
    exhaust(&Finished { name, ttl: 1_000_000, ttl_later: Some(Some(30)), stays: false }).assert();
}

#[test]
fn a_job_that_may_stay_stays() {
    let name = "ttl_after_finished::a_job_that_may_stay_stays";
    exhaust(&Finished { name, ttl: 600, ttl_later: Some(None), stays: true }).assert();
}
