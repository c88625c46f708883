//! Facts of what a Job does, as tables: its spec, its status, its pods, and what follows.

use std::sync::Arc;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::ledger::{Ledger, Numbers};
use super::member::{COMPLETION_INDEX, INDEX_FAILURES, TRACKING};
use super::plan::{self, Task};
use super::spec::Spec;
use super::verdict::{End, Verdict};
use crate::pod::Pod;

/// Pods are written as words: `a Running`, `b Failed@5 !2` (ended in second 5, exit code 2), `c Pending #1` (index), `d Running -`
/// (deleted), `e Failed ~` (not tracked any more), `f Failed #0 *2` (the index failed twice before).
fn pod(text: &str) -> Arc<Pod> {
    let mut words = text.split(' ');
    let name = words.next().unwrap();
    let (phase, second) = words
        .next()
        .unwrap()
        .split_once('@')
        .map_or_else(|| (text.split(' ').nth(1).unwrap(), "0"), |(phase, second)| (phase, second));
    let mut metadata = json!({"name": name, "namespace": "shop", "uid": name, "finalizers": [TRACKING],
        "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": {}});
    let mut status = json!({"phase": phase, "containerStatuses": []});
    let mut code = if phase == "Failed" { 1 } else { 0 };
    for word in words {
        let (mark, rest) = word.split_at(1);
        match mark {
            "#" => metadata["annotations"][COMPLETION_INDEX] = json!(rest),
            "*" => metadata["annotations"][INDEX_FAILURES] = json!(rest),
            "-" => metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"),
            "~" => metadata["finalizers"] = json!([]),
            "!" => code = rest.parse().unwrap(),
            "r" => {
                status["containerStatuses"] = json!([{"name": "main", "restartCount": rest.parse::<i32>().unwrap()}])
            }
            other => panic!("{other}"),
        }
    }
    if matches!(phase, "Failed" | "Succeeded") {
        let finished = format!("2026-01-01T00:00:{:0>2}Z", second);
        let state = json!({"terminated": {"exitCode": code, "finishedAt": finished}});
        status["containerStatuses"] = json!([{"name": "main", "state": state}]);
    }
    Arc::new(serde_json::from_value(json!({"metadata": metadata, "status": status})).unwrap())
}

fn job(spec: Value, status: Value) -> Job {
    let mut spec = spec;
    let restart = spec["restartPolicy"].take();
    spec["template"] = json!({"spec": {"containers": [], "restartPolicy": restart}});
    serde_json::from_value(json!({"metadata": {"name": "sum", "uid": "u"}, "spec": spec, "status": status})).unwrap()
}

/// Half a minute after the first pods.
fn now() -> Timestamp {
    "2026-01-01T00:00:30Z".parse().unwrap()
}

fn pods(text: &str) -> Vec<Arc<Pod>> {
    text.split(", ").filter(|one| !one.is_empty()).map(pod).collect()
}

/// What is to be done, in a word.
fn task_of(spec: Value, status: Value, text: &str) -> String {
    let (job, pods) = (job(spec, status), pods(text));
    let spec = Spec::of(&job).unwrap();
    let observed = plan::observe(&job, &spec, &pods, now());
    let names = |pods: &[Arc<Pod>]| pods.iter().map(|pod| pod.metadata.name.to_string()).collect::<Vec<_>>().join("");
    match plan::task(&job, &spec, &observed, &pods, now()) {
        Task::Nothing => "nothing".to_owned(),
        Task::WriteVerdict => format!("verdict {}", observed.verdict.unwrap().reason),
        Task::End(pods) => format!("end {}", names(&pods)),
        Task::Remove(pods) => format!("remove {}", names(&pods)),
        Task::Make(making) => format!("make {making:?}"),
        Task::Wait(wait) => format!("wait {}", wait.as_secs()),
    }
}

#[track_caller]
fn check(spec: Value, pods: &str, expected: &str) {
    check_with(spec, json!({}), pods, expected);
}

#[track_caller]
fn check_with(spec: Value, status: Value, pods: &str, expected: &str) {
    assert_eq!(task_of(spec.clone(), status.clone(), pods), expected, "{spec} {status} {pods}");
}

#[test]
fn as_many_pods_run_as_are_wanted() {
    check(json!({"parallelism": 3, "completions": 5}), "", "make Plain(3)");
    check(json!({"parallelism": 3, "completions": 5}), "a Running, b Succeeded", "make Plain(2)");
    check(json!({"parallelism": 3, "completions": 2}), "a Running", "make Plain(1)");
    check(json!({"parallelism": 3, "completions": 2}), "a Succeeded, b Running, c Pending", "remove c");
    check(json!({"parallelism": 0, "completions": 2}), "a Running", "remove a");
    check(json!({"parallelism": 2000, "completions": 2000}), "", "make Plain(500)");
    check_with(json!({"parallelism": 3, "completions": 5}), json!({"succeeded": 4}), "", "make Plain(1)");
    let uncounted = json!({"succeeded": 3, "uncountedTerminatedPods": {"succeeded": ["a"]}});
    check_with(json!({"parallelism": 3, "completions": 5}), uncounted, "a Succeeded", "make Plain(1)");
}

#[test]
fn a_queue_of_work_makes_no_pods_after_the_first_success() {
    check(json!({"parallelism": 2}), "", "make Plain(2)");
    check(json!({"parallelism": 2}), "a Succeeded, b Running", "nothing");
}

#[test]
fn failures_are_replaced_after_a_while() {
    let spec = || json!({"completions": 1});
    check(spec(), "a Failed@25", "wait 5");
    check(spec(), "a Failed@20", "make Plain(1)");
    check(spec(), "a Failed@18, b Failed@20", "wait 10");
    check(spec(), "a Failed@25 ~", "wait 5");
    check(json!({"completions": 2}), "a Failed@25, b Succeeded@26", "make Plain(1)");
    // A pod that was let go before it was deleted was removed by the controller itself.
    check(spec(), "a Running - ~", "make Plain(1)");
}

#[test]
fn a_terminating_pod_is_replaced_at_once_or_when_it_has_ended() {
    check(json!({"completions": 1}), "a Running - ~", "make Plain(1)");
    check(json!({"completions": 1, "podReplacementPolicy": "Failed"}), "a Running -", "nothing");
    check(json!({"completions": 1, "podFailurePolicy": {"rules": []}}), "a Running -", "nothing");
}

#[test]
fn a_suspended_job_has_no_pods() {
    check(json!({"completions": 1, "suspend": true}), "", "nothing");
    check(json!({"completions": 2, "parallelism": 2, "suspend": true}), "a Running, b Pending", "remove ab");
}

#[test]
fn too_many_failures_end_a_job() {
    let spec = || json!({"completions": 2, "backoffLimit": 1, "parallelism": 2});
    check(spec(), "a Failed@1, b Running", "make Plain(1)");
    check(spec(), "a Failed@1, b Failed@1, c Running", "verdict BackoffLimitExceeded");
    check_with(spec(), json!({"failed": 1}), "b Failed@1, c Running", "verdict BackoffLimitExceeded");
    let written = json!({"failed": 1, "conditions": [{"type": "FailureTarget", "status": "True", "reason": "x"}]});
    check_with(spec(), written, "c Running", "end c");
    let restarting = || json!({"completions": 1, "backoffLimit": 3, "restartPolicy": "OnFailure"});
    check(restarting(), "a Running r2", "nothing");
    check(restarting(), "a Running r3", "verdict BackoffLimitExceeded");
}

#[test]
fn a_deadline_ends_a_job() {
    let started = |second: u8| json!({"startTime": format!("2026-01-01T00:00:{second:02}Z")});
    let spec = || json!({"completions": 1, "activeDeadlineSeconds": 10});
    check_with(spec(), started(21), "a Running", "nothing");
    check_with(spec(), started(20), "a Running", "verdict DeadlineExceeded");
    let suspended = json!({"completions": 1, "activeDeadlineSeconds": 10, "suspend": true});
    check_with(suspended, started(20), "a Running", "remove a");
}

#[test]
fn an_indexed_job_works_on_each_index_once() {
    let spec = || json!({"completionMode": "Indexed", "completions": 4, "parallelism": 3});
    check(spec(), "", "make Indexed([0, 1, 2])");
    check(spec(), "a Running #1", "make Indexed([0, 2])");
    check(spec(), "a Succeeded #0, b Running #1", "make Indexed([2, 3])");
    check_with(spec(), json!({"completedIndexes": "0-2"}), "", "make Indexed([3])");
    check(spec(), "a Running #1, b Pending #1, c Running #9, d Running", "remove cdb");
    // A success without an index is no success.
    check(spec(), "a Succeeded, b Succeeded #7", "make Indexed([0, 1, 2])");
}

#[test]
fn an_index_that_fails_too_often_is_given_up() {
    let spec = || {
        json!({"completionMode": "Indexed", "completions": 2, "parallelism": 2, "backoffLimitPerIndex": 1,
        "backoffLimit": 2147483647})
    };
    check(spec(), "a Failed@1 #0, b Running #1", "make Indexed([0])");
    check(spec(), "a Failed@25 #0, b Running #1", "wait 5");
    check(spec(), "a Failed@1 #0 *1, b Running #1", "nothing");
    check(spec(), "a Failed@1 #0 *1, b Succeeded #1", "nothing");
    let most = json!({"completionMode": "Indexed", "completions": 3, "parallelism": 3, "backoffLimitPerIndex": 0,
        "maxFailedIndexes": 0, "backoffLimit": 2147483647});
    check(most, "a Failed@1 #0, b Running #1, c Running #2", "verdict MaxFailedIndexesExceeded");
}

#[test]
fn policies_decide_before_limits() {
    let rule = |action: &str| json!({"action": action, "onExitCodes": {"operator": "In", "values": [42]}});
    let spec =
        |action: &str| json!({"completions": 1, "backoffLimit": 0, "podFailurePolicy": {"rules": [rule(action)]}});
    check(spec("FailJob"), "a Failed@1 !42, b Running", "verdict PodFailurePolicy");
    check(spec("Ignore"), "a Failed@1 !42", "make Plain(1)");
    check(spec("Count"), "a Failed@1 !42, b Running", "verdict BackoffLimitExceeded");
    check(spec("FailJob"), "a Failed@1 !1, b Running", "verdict BackoffLimitExceeded");
    let enough = json!({"completionMode": "Indexed", "completions": 3, "parallelism": 3,
        "successPolicy": {"rules": [{"succeededIndexes": "0"}]}});
    check(enough, "a Succeeded #0, b Running #1, c Running #2", "verdict SuccessPolicy");
}

/// What the status says after the first and after the last step, and who is let go.
#[track_caller]
fn count(spec: Value, status: Value, text: &str, verdict: Option<Verdict>, expected: [&str; 3]) {
    let (job, pods) = (job(spec, status), pods(text));
    let spec = Spec::of(&job).unwrap();
    let observed = plan::observe(&job, &spec, &pods, now());
    let numbers =
        Numbers { active: observed.active.len() as i32, ready: observed.ready, terminating: observed.terminating };
    let time = Time(now());
    let mut ledger = Ledger::open(&job, &spec, &pods, &observed, numbers, verdict, &time);
    let said = |ledger: &Ledger| {
        let status = serde_json::to_value(&ledger.status).unwrap();
        let uids = |list: &Value| list.as_array().into_iter().flatten().filter_map(Value::as_str).collect::<String>();
        let number = |name: &str| status[name].as_i64().unwrap_or_default();
        let uncounted = &status["uncountedTerminatedPods"];
        let kinds = status["conditions"].as_array().into_iter().flatten().filter_map(|one| one["type"].as_str());
        let mut words = vec![format!("{}+{}", number("succeeded"), uids(&uncounted["succeeded"]))];
        words.push(format!("{}+{}", number("failed"), uids(&uncounted["failed"])));
        words.extend(status["completedIndexes"].as_str().map(str::to_owned));
        words.extend(kinds.map(str::to_owned));
        words.join(" ")
    };
    let open = said(&ledger);
    let released = ledger.to_release.clone();
    let _ = ledger.close(&released, &time);
    let names: String = released.iter().map(|pod| &*pod.metadata.name).collect();
    assert_eq!([open.as_str(), &names, &said(&ledger)], expected, "{text}");
}

#[test]
fn a_pod_is_counted_once_wherever_it_was_left() {
    let spec = || json!({"completions": 5});
    count(spec(), json!({}), "a Succeeded, b Failed, c Running", None, ["0+a 0+b", "ab", "1+ 1+"]);
    // The identity is written, the finalizer is still there.
    let uncounted = || json!({"succeeded": 2, "uncountedTerminatedPods": {"succeeded": ["a"]}});
    count(spec(), uncounted(), "a Succeeded", None, ["2+a 0+", "a", "3+ 0+"]);
    // The finalizer is gone too.
    count(spec(), uncounted(), "a Succeeded ~", None, ["3+ 0+", "", "3+ 0+"]);
    // So is the pod.
    count(spec(), uncounted(), "", None, ["3+ 0+", "", "3+ 0+"]);
    // All is done.
    count(spec(), json!({"succeeded": 3}), "a Succeeded ~", None, ["3+ 0+", "", "3+ 0+"]);
}

#[test]
fn an_indexed_job_counts_indexes() {
    let spec = || json!({"completionMode": "Indexed", "completions": 5});
    count(
        spec(),
        json!({}),
        "a Succeeded #0, b Succeeded #0, c Succeeded #3, d Succeeded #9",
        None,
        ["2+ 0+ 0,3", "abcd", "2+ 0+ 0,3"],
    );
    count(spec(), json!({"completedIndexes": "0-1"}), "a Failed #3", None, ["2+ 0+a 0,1", "a", "2+ 1+ 0,1"]);
}

#[test]
fn when_a_job_fails_what_still_runs_counts_as_failed() {
    let failure = || Some(Verdict::new(End::Failure, "DeadlineExceeded", "too late"));
    let spec = || json!({"completions": 5});
    count(
        spec(),
        json!({}),
        "a Running, b Succeeded",
        failure(),
        ["0+b 0+a FailureTarget", "ab", "1+ 1+ FailureTarget Failed"],
    );
    // It waits for those that are on their way out.
    count(spec(), json!({}), "a Running -", failure(), ["0+ 0+a FailureTarget", "a", "0+ 1+ FailureTarget"]);
}

#[test]
fn when_a_job_succeeds_what_still_runs_does_not_count() {
    let success = || Some(Verdict::new(End::Success, "SuccessPolicy", "enough"));
    let spec = || json!({"completionMode": "Indexed", "completions": 3});
    count(
        spec(),
        json!({}),
        "a Succeeded #0, b Running #1",
        success(),
        ["1+ 0+ 0 SuccessCriteriaMet", "ab", "1+ 0+ 0 SuccessCriteriaMet Complete"],
    );
    count(
        spec(),
        json!({"completedIndexes": "0"}),
        "b Running #1 -",
        success(),
        ["1+ 0+ 0 SuccessCriteriaMet", "b", "1+ 0+ 0 SuccessCriteriaMet"],
    );
}

#[test]
fn ignored_failures_do_not_count() {
    let rule = json!({"action": "Ignore", "onExitCodes": {"operator": "In", "values": [42]}});
    let spec = json!({"completions": 1, "podFailurePolicy": {"rules": [rule]}});
    count(spec, json!({}), "a Failed !42, b Failed !1", None, ["0+ 0+b", "ab", "0+ 1+"]);
}

#[test]
fn the_last_pod_of_an_index_is_kept_until_its_successor_is_there() {
    let spec = || json!({"completionMode": "Indexed", "completions": 2, "backoffLimitPerIndex": 3});
    count(spec(), json!({}), "a Failed@1 #0, b Failed@2 #0 *1", None, ["0+ 0+a", "a", "0+ 1+"]);
    count(spec(), json!({}), "b Failed@2 #0 *1, c Running #0 *2", None, ["0+ 0+b", "b", "0+ 1+"]);
}
