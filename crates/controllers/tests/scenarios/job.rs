//! Jobs: pods are counted once, whatever happens in between.

use std::time::Duration;

use futures_util::future::BoxFuture;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use setpoint_testkit::{ControlPlane, Kubelet, Limits, Process, Report, Scenario, State};

use crate::process::{controllers, exhaust_with, spawn};
use crate::story::stand_in;

/// What users do with a Job, and what must come of it.
struct Story {
    name: &'static str,
    /// What becomes of its pods.
    outcome: Option<&'static str>,
    spec: fn() -> Value,
    drive: for<'a> fn(&'a Api<Job>, &'a ControlPlane) -> BoxFuture<'a, ()>,
    check: fn(Option<Value>, &[Value]) -> Result<(), String>,
}

impl Scenario for Story {
    fn name(&self) -> &'static str {
        self.name
    }

    fn prepare<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(plane.let_pods_into("default"))
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        controllers(process, "job-controller")
    }

    fn world<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Kubelet::binding_to("node-1").run(plane)
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            let jobs: Api<Job> = Api::default_namespaced(plane.client());
            let mut spec = (self.spec)();
            let annotations = self.outcome.map_or(json!({}), |outcome| json!({"testkit/outcome": outcome}));
            let containers = json!([{"name": "main", "image": "sum"}]);
            spec["template"] = json!({"metadata": {"annotations": annotations},
                "spec": {"restartPolicy": "Never", "containers": containers}});
            let job = serde_json::from_value(json!({"metadata": {"name": "sum"}, "spec": spec})).unwrap();
            jobs.create(&PostParams::default(), &job).await.unwrap();
            (self.drive)(&jobs, plane).await;
        })
    }

    /// A Job never has more successes or failures than there are pods that ended so.
    fn invariant(&self, state: &State) -> Result<(), String> {
        let Some(job) = state.object("batch", "jobs", "default", "sum") else { return Ok(()) };
        let pods = state.objects("", "pods");
        let number = |name: &str| job["status"][name].as_u64().unwrap_or_default() as usize;
        let succeeded = pods.iter().filter(|pod| pod["status"]["phase"] == "Succeeded").count();
        match number("succeeded") > succeeded {
            true => Err(format!("{} pods are counted of {succeeded}", number("succeeded"))),
            false => Ok(()),
        }
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        let pods = state.objects("", "pods");
        if let Some(pod) = pods.iter().find(|pod| pod["metadata"]["finalizers"].is_array()) {
            return Err(format!("{pod} is still waited for"));
        }
        (self.check)(state.object("batch", "jobs", "default", "sum"), &pods)
    }

    /// Names of pods are drawn by chance: what they stand for is compared.
    fn view(&self, object: Value) -> Option<Value> {
        Some(if object["kind"] == "Pod" { stand_in(object) } else { object })
    }
}

/// Whatever else is tried, the controller dies after each of its writes: nothing may be counted twice then.
fn exhaust(story: &Story) -> Report {
    exhaust_with(story, 0, Limits { every_crash: true, ..Limits::default() })
}

fn nothing_more<'a>(_: &'a Api<Job>, _: &'a ControlPlane) -> BoxFuture<'a, ()> {
    Box::pin(async {})
}

/// The conditions that hold, with their reasons, and the counters.
fn summary(job: Option<Value>) -> String {
    let Some(job) = job else { return "gone".to_owned() };
    let status = &job["status"];
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let held = conditions.filter(|condition| condition["status"] == "True");
    let words: Vec<_> = held.map(|one| format!("{} {}", one["type"], one["reason"]).replace('"', "")).collect();
    let number = |name: &str| status[name].as_u64().unwrap_or_default();
    format!("{} succeeded {} failed {}", words.join(", "), number("succeeded"), number("failed"))
}

fn expect(found: String, expected: &str) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err(format!("it is {found:?}")) }
}

#[test]
fn two_successes_complete_it() {
    let story = Story {
        name: "job::two_successes_complete_it",
        outcome: Some("succeeded"),
        spec: || json!({"completions": 2, "parallelism": 2}),
        drive: nothing_more,
        check: |job, pods| {
            let ends = "SuccessCriteriaMet CompletionsReached, Complete CompletionsReached";
            expect(format!("{} of {}", summary(job), pods.len()), &format!("{ends} succeeded 2 failed 0 of 2"))
        },
    };
    exhaust(&story).assert();
}

#[test]
fn an_indexed_job_has_each_index_once() {
    let story = Story {
        name: "job::an_indexed_job_has_each_index_once",
        outcome: Some("succeeded"),
        spec: || json!({"completions": 2, "parallelism": 2, "completionMode": "Indexed"}),
        drive: nothing_more,
        check: |job, pods| {
            let indexes = job.as_ref().map(|job| job["status"]["completedIndexes"].clone());
            expect(format!("{indexes:?} of {}", pods.len()), "Some(String(\"0,1\")) of 2")
        },
    };
    exhaust(&story).assert();
}

#[test]
fn too_many_failures_end_it() {
    let story = Story {
        name: "job::too_many_failures_end_it",
        outcome: Some("failed:3"),
        spec: || json!({"completions": 1, "backoffLimit": 1}),
        drive: nothing_more,
        check: |job, pods| {
            let ends = "FailureTarget BackoffLimitExceeded, Failed BackoffLimitExceeded";
            expect(format!("{} of {}", summary(job), pods.len()), &format!("{ends} succeeded 0 failed 2 of 2"))
        },
    };
    exhaust(&story).assert();
}

#[test]
fn a_pause_and_then_a_deadline() {
    let story = Story {
        name: "job::a_pause_and_then_a_deadline",
        outcome: None,
        spec: || json!({"completions": 1, "activeDeadlineSeconds": 1000}),
        drive: |jobs, plane| {
            Box::pin(async move {
                for is_suspended in [true, false] {
                    plane.advance(Duration::from_secs(300)).await;
                    let patch = Patch::Merge(json!({"spec": {"suspend": is_suspended}}));
                    jobs.patch("sum", &PatchParams::default(), &patch).await.unwrap();
                }
                plane.advance(Duration::from_secs(1200)).await;
            })
        },
        check: |job, pods| {
            let ends = "FailureTarget DeadlineExceeded, Failed DeadlineExceeded";
            expect(format!("{} of {}", summary(job), pods.len()), &format!("{ends} succeeded 0 failed 1 of 0"))
        },
    };
    exhaust(&story).assert();
}

#[test]
fn pods_of_a_job_that_is_gone_are_let_go() {
    let story = Story {
        name: "job::pods_of_a_job_that_is_gone_are_let_go",
        outcome: None,
        spec: || json!({"completions": 1}),
        drive: |jobs, plane| {
            Box::pin(async move {
                plane.settle().await.unwrap();
                jobs.delete("sum", &DeleteParams::background()).await.unwrap();
            })
        },
        check: |job, pods| expect(format!("{} {}", summary(job), pods.len()), "gone 1"),
    };
    exhaust(&story).assert();
}

#[test]
fn a_failure_that_a_policy_names_ends_it_at_once() {
    let story = Story {
        name: "job::a_failure_that_a_policy_names_ends_it_at_once",
        outcome: Some("failed:42"),
        spec: || {
            json!({"completions": 1, "backoffLimit": 6, "podFailurePolicy": {"rules": [
                {"action": "FailJob", "onExitCodes": {"containerName": "main", "operator": "In", "values": [42]}}]}})
        },
        drive: nothing_more,
        check: |job, pods| {
            let ends = "FailureTarget PodFailurePolicy, Failed PodFailurePolicy";
            expect(format!("{} of {}", summary(job), pods.len()), &format!("{ends} succeeded 0 failed 1 of 1"))
        },
    };
    exhaust(&story).assert();
}

#[test]
fn enough_successes_by_policy_complete_it() {
    let story = Story {
        name: "job::enough_successes_by_policy_complete_it",
        outcome: Some("succeeded"),
        // The third index is never needed, so it is never started.
        spec: || {
            json!({"completions": 3, "parallelism": 1, "completionMode": "Indexed",
                "successPolicy": {"rules": [{"succeededIndexes": "0-1", "succeededCount": 2}]}})
        },
        drive: nothing_more,
        check: |job, _| {
            let indexes = job.as_ref().map(|job| job["status"]["completedIndexes"].clone()).unwrap_or_default();
            let ends = "SuccessCriteriaMet SuccessPolicy, Complete SuccessPolicy";
            expect(format!("{} {indexes}", summary(job)), &format!("{ends} succeeded 2 failed 0 \"0,1\""))
        },
    };
    exhaust(&story).assert();
}

#[test]
fn indexes_fail_one_by_one() {
    let story = Story {
        name: "job::indexes_fail_one_by_one",
        outcome: Some("failed:1"),
        spec: || json!({"completions": 2, "parallelism": 2, "completionMode": "Indexed", "backoffLimitPerIndex": 0}),
        drive: nothing_more,
        check: |job, pods| {
            let indexes = job.as_ref().map(|job| job["status"]["failedIndexes"].clone()).unwrap_or_default();
            let ends = "FailureTarget FailedIndexes, Failed FailedIndexes";
            let found = format!("{} {indexes} of {}", summary(job), pods.len());
            expect(found, &format!("{ends} succeeded 0 failed 2 \"0,1\" of 2"))
        },
    };
    exhaust(&story).assert();
}

/// With `podReplacementPolicy: Failed` a pod that was told to go is replaced when it has gone, not before.
#[tokio::test(start_paused = true)]
async fn a_pod_that_is_about_to_go_is_replaced_when_it_has_gone() {
    let plane = ControlPlane::start().await;
    plane.let_pods_into("default").await;
    let _controllers = spawn(&plane, "job-controller");
    tokio::spawn(Kubelet::binding_to("node-1").run(&plane));
    let jobs: Api<Job> = Api::default_namespaced(plane.client());
    let template = json!({"spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 300,
        "containers": [{"name": "main", "image": "sum"}]}});
    let spec = json!({"completions": 1, "podReplacementPolicy": "Failed", "template": template});
    let job = serde_json::from_value(json!({"metadata": {"name": "sum"}, "spec": spec})).unwrap();
    jobs.create(&PostParams::default(), &job).await.unwrap();
    plane.advance(Duration::from_secs(30)).await;
    let pods: Api<Pod> = Api::default_namespaced(plane.client());
    let first = plane.state().objects("", "pods")[0]["metadata"]["name"].as_str().unwrap().to_owned();
    pods.delete(&first, &DeleteParams::default()).await.unwrap();
    plane.advance(Duration::from_secs(100)).await;
    let status =
        |plane: &ControlPlane| plane.state().object("batch", "jobs", "default", "sum").unwrap()["status"].clone();
    assert_eq!(plane.state().objects("", "pods").len(), 1, "it is still on its way out");
    assert_eq!(status(&plane)["terminating"], 1);
    // The last that a node says of a pod that somebody waits for.
    let ended = json!({"status": {"phase": "Failed"}});
    pods.patch_status(&first, &PatchParams::default(), &Patch::Merge(ended)).await.unwrap();
    plane.advance(Duration::from_secs(400)).await;
    let left = plane.state().objects("", "pods");
    let others = left.iter().filter(|pod| pod["metadata"]["name"] != first.as_str()).count();
    assert_eq!(others, 1, "{left:?}");
    assert_eq!(status(&plane)["terminating"].as_i64().unwrap_or(0), 0);
}
