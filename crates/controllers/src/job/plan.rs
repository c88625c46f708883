//! What a Job needs now: what its pods say, whether it is over, and which pods to make or remove.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::batch::v1::{Job, JobStatus, UncountedTerminatedPods};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::back_off;
use super::failure_policy::Consequence;
use super::indexes::Indexes;
use super::member::Member;
use super::removal::victims;
use super::spec::Spec;
use super::success_policy;
use super::verdict::{End, Verdict};
use crate::pod::Pod;

/// Most pods made or removed in one run, so that a large Job doesn't keep others waiting.
const POD_CHANGES_MAX: usize = 500;

/// What the pods of a Job say.
#[derive(Debug)]
pub struct Observed {
    pub active: Vec<Arc<Pod>>,
    pub ready: i32,
    pub terminating: i32,
    /// All successes: counted, being counted, and new.
    pub succeeded: i64,
    /// All failures that count: counted, being counted, and new.
    pub failed: i64,
    /// Indexes that the status has as done.
    pub counted_indexes: Indexes,
    /// Those and the new ones.
    pub succeeded_indexes: Indexes,
    /// Indexes that have failed for good; only if there is a limit per index.
    pub failed_indexes: Option<Indexes>,
    /// The failed pod of an index that is kept until its successor is there, because it knows how often the index failed.
    pub kept: BTreeMap<i64, Arc<Pod>>,
    pub verdict: Option<Verdict>,
}

/// What to do with pods.
#[derive(Debug)]
pub enum Task {
    /// All is well.
    Nothing,
    /// The verdict must be in the status before pods are deleted because of it.
    WriteVerdict,
    /// The Job is over: what still runs has to end, and is then counted.
    End(Vec<Arc<Pod>>),
    /// These are not wanted any more and don't count.
    Remove(Vec<Arc<Pod>>),
    /// So many, or one for each of these indexes.
    Make(Making),
    /// Too early to make any.
    Wait(Duration),
}

/// Which pods to make.
#[derive(Debug, PartialEq, Eq)]
pub enum Making {
    Plain(usize),
    Indexed(Vec<i64>),
}

/// Looks at the pods that a Job controls.
pub fn observe(job: &Job, spec: &Spec<'_>, pods: &[Arc<Pod>], now: Timestamp) -> Observed {
    let status = job.status.clone().unwrap_or_default();
    let uncounted = status.uncounted_terminated_pods.clone().unwrap_or_default();
    let active: Vec<_> = pods.iter().filter(|pod| pod.is_active()).cloned().collect();
    let (new_succeeded, new_failed) = newly_ended(spec, pods, &uncounted);
    let counted_failures = new_failed.iter().filter(|pod| spec.consequence(pod).counts()).count();
    let sum = |counted: Option<i32>, new: usize, waiting: &Option<Vec<String>>| {
        i64::from(counted.unwrap_or_default()) + (new + waiting.as_ref().map_or(0, Vec::len)) as i64
    };
    let mut observed = Observed {
        ready: active.iter().filter(|pod| pod.is_ready()).count() as i32,
        terminating: pods.iter().filter(|pod| pod.is_terminating()).count() as i32,
        succeeded: sum(status.succeeded, new_succeeded.len(), &uncounted.succeeded),
        failed: sum(status.failed, counted_failures, &uncounted.failed),
        active,
        counted_indexes: Indexes::default(),
        succeeded_indexes: Indexes::default(),
        failed_indexes: None,
        kept: BTreeMap::new(),
        verdict: None,
    };
    if spec.is_indexed {
        observe_indexes(&status, spec, pods, &mut observed);
    }
    observed.verdict = Verdict::written(job).or_else(|| judge(&status, spec, pods, &observed, now));
    observed
}

/// The pods that ended and are neither counted nor being counted.
fn newly_ended<'a>(
    spec: &Spec<'_>,
    pods: &'a [Arc<Pod>],
    uncounted: &UncountedTerminatedPods,
) -> (Vec<&'a Arc<Pod>>, Vec<&'a Arc<Pod>>) {
    let set = |uids: &'_ Option<Vec<String>>| uids.iter().flatten().cloned().collect::<BTreeSet<String>>();
    let (succeeded, failed) = (set(&uncounted.succeeded), set(&uncounted.failed));
    let is_new = |pod: &&Arc<Pod>| pod.is_tracked() && spec.is_countable(pod);
    let has_succeeded = |pod: &&Arc<Pod>| &*pod.status.phase == "Succeeded" && !succeeded.contains(&*pod.metadata.uid);
    let has_failed = |pod: &&Arc<Pod>| spec.is_failed(pod) && !failed.contains(&*pod.metadata.uid);
    let new = || pods.iter().filter(is_new);
    (new().filter(has_succeeded).collect(), new().filter(has_failed).collect())
}

fn observe_indexes(status: &JobStatus, spec: &Spec<'_>, pods: &[Arc<Pod>], observed: &mut Observed) {
    let read = |text: &Option<String>| Indexes::parse(text.as_deref().unwrap_or_default(), spec.indexes());
    let tracked = || pods.iter().filter(|pod| pod.is_tracked());
    let succeeded = tracked().filter(|pod| &*pod.status.phase == "Succeeded").filter_map(|pod| spec.index_of(pod));
    observed.counted_indexes = read(&status.completed_indexes);
    observed.succeeded_indexes = observed.counted_indexes.with(succeeded);
    observed.succeeded = observed.succeeded_indexes.total();
    let Some(limit) = spec.backoff_limit_per_index else { return };
    let has_failed_for_good = |pod: &&Arc<Pod>| {
        spec.is_failed(pod)
            && match spec.consequence(pod) {
                Consequence::FailIndex => true,
                Consequence::Ignore => false,
                Consequence::Count | Consequence::FailJob(_) => pod.failures_before().0 >= limit,
            }
    };
    let failed = tracked().filter(has_failed_for_good).filter_map(|pod| spec.index_of(pod));
    let failed = read(&status.failed_indexes).with(failed);
    observed.kept = kept(spec, pods, observed, &failed);
    observed.failed_indexes = Some(failed);
}

/// Of each index that nobody works on, the newest pod that failed.
fn kept(spec: &Spec<'_>, pods: &[Arc<Pod>], observed: &Observed, failed: &Indexes) -> BTreeMap<i64, Arc<Pod>> {
    let active: BTreeSet<_> = observed.active.iter().filter_map(|pod| spec.index_of(pod)).collect();
    let rank = |pod: &Pod| {
        let (counted, ignored) = pod.failures_before();
        (i64::from(counted) + i64::from(ignored), pod.finished_at())
    };
    let mut kept: BTreeMap<i64, Arc<Pod>> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| pod.is_tracked() && spec.is_failed(pod)) {
        let Some(index) = spec.index_of(pod) else { continue };
        if active.contains(&index) || failed.has(index) || observed.succeeded_indexes.has(index) {
            continue;
        }
        if kept.get(&index).is_none_or(|other| rank(other) <= rank(pod)) {
            kept.insert(index, pod.clone());
        }
    }
    kept
}

/// Whether the Job is over, in the order in which reasons count.
fn judge(
    status: &JobStatus,
    spec: &Spec<'_>,
    pods: &[Arc<Pod>],
    observed: &Observed,
    now: Timestamp,
) -> Option<Verdict> {
    let failure = |reason: &str, message: &str| Some(Verdict::new(End::Failure, reason, message));
    let failed = pods.iter().filter(|_| spec.failure_policy.is_some()).filter(|pod| spec.is_failed(pod));
    for pod in failed {
        if let Consequence::FailJob(message) = spec.consequence(pod) {
            return failure("PodFailurePolicy", &message);
        }
    }
    if observed.failed > i64::from(spec.backoff_limit) || restarts_exceed_limit(spec, pods) {
        return failure("BackoffLimitExceeded", "Job has reached the specified backoff limit");
    }
    if deadline_in(status, spec, now) == Some(Duration::ZERO) {
        return failure("DeadlineExceeded", "Job was active longer than specified deadline");
    }
    if let Some(failed) = &observed.failed_indexes {
        if spec.max_failed_indexes.is_some_and(|most| failed.total() > i64::from(most)) {
            let message = "Job has exceeded the specified maximal number of failed indexes";
            return failure("MaxFailedIndexesExceeded", message);
        }
        if failed.total() > 0 && failed.total() + observed.succeeded_indexes.total() >= spec.indexes() {
            return failure("FailedIndexes", "Job has failed indexes");
        }
    }
    let met = success_policy::met(
        spec.success_policy.filter(|_| spec.is_indexed),
        spec.indexes(),
        &observed.succeeded_indexes,
    );
    met.map(|message| Verdict::new(End::Success, "SuccessPolicy", message))
}

/// Whether containers that restart in their pods did so too often.
fn restarts_exceed_limit(spec: &Spec<'_>, pods: &[Arc<Pod>]) -> bool {
    if !spec.restarts_containers {
        return false;
    }
    let running = pods.iter().filter(|pod| matches!(&*pod.status.phase, "Running" | "Pending"));
    let statuses =
        running.flat_map(|pod| pod.status.container_statuses.iter().chain(&pod.status.init_container_statuses));
    let restarts: i64 = statuses.map(|status| i64::from(status.restart_count)).sum();
    restarts > 0 && restarts >= i64::from(spec.backoff_limit)
}

/// How long the Job may go on; none if it has no deadline or stands still.
pub fn deadline_in(status: &JobStatus, spec: &Spec<'_>, now: Timestamp) -> Option<Duration> {
    let limit = SignedDuration::from_secs(spec.active_deadline_seconds.filter(|_| !spec.is_suspended)?);
    let started = status.start_time.as_ref().map_or(now, |time| time.0);
    let left = limit.saturating_sub(now.duration_since(started));
    Some(Duration::try_from(left).unwrap_or(Duration::ZERO))
}

/// What to do with the pods of a Job that is not over yet in its status.
pub fn task(job: &Job, spec: &Spec<'_>, observed: &Observed, pods: &[Arc<Pod>], now: Timestamp) -> Task {
    if let Some(verdict) = &observed.verdict {
        return match (observed.active.is_empty(), verdict.is_written) {
            (true, _) => Task::Nothing,
            (false, true) => Task::End(observed.active.clone()),
            (false, false) => Task::WriteVerdict,
        };
    }
    if job.metadata.deletion_timestamp.is_some() {
        return Task::Nothing;
    }
    let active = observed.active.len();
    if spec.is_suspended {
        return remove(observed.active.clone());
    }
    let wanted = wanted_active(spec, observed);
    let excess = victims(spec, &observed.active, active.saturating_sub(wanted));
    if !excess.is_empty() {
        return remove(excess);
    }
    let terminating = if spec.replaces_only_failed { observed.terminating as usize } else { 0 };
    match wanted.saturating_sub(active + terminating).min(POD_CHANGES_MAX) {
        0 => Task::Nothing,
        missing => make(spec, observed, pods, missing, now),
    }
}

fn remove(mut pods: Vec<Arc<Pod>>) -> Task {
    pods.truncate(POD_CHANGES_MAX);
    if pods.is_empty() { Task::Nothing } else { Task::Remove(pods) }
}

fn wanted_active(spec: &Spec<'_>, observed: &Observed) -> usize {
    let wanted = match spec.completions {
        None if observed.succeeded > 0 => return observed.active.len(),
        None => i64::from(spec.parallelism),
        Some(completions) => (i64::from(completions) - observed.succeeded).min(i64::from(spec.parallelism)),
    };
    usize::try_from(wanted).unwrap_or_default()
}

fn make(spec: &Spec<'_>, observed: &Observed, pods: &[Arc<Pod>], count: usize, now: Timestamp) -> Task {
    if spec.backoff_limit_per_index.is_none() {
        let wait = back_off::remaining(spec, pods.iter().map(|pod| &**pod), now);
        if !wait.is_zero() {
            return Task::Wait(wait);
        }
    }
    if !spec.is_indexed {
        return Task::Make(Making::Plain(count));
    }
    let mut taken = observed.succeeded_indexes.with(observed.active.iter().filter_map(|pod| spec.index_of(pod)));
    if spec.replaces_only_failed {
        let terminating = pods.iter().filter(|pod| pod.is_terminating());
        taken = taken.with(terminating.filter_map(|pod| spec.index_of(pod)));
    }
    if let Some(failed) = &observed.failed_indexes {
        taken = taken.union(failed);
    }
    let missing = taken.first_missing(count, spec.indexes());
    let wait_of = |index: &i64| {
        let Some(last) = observed.kept.get(index) else { return Duration::ZERO };
        let (counted, ignored) = last.failures_before();
        let failures = usize::try_from(i64::from(counted) + i64::from(ignored) + 1).unwrap_or_default();
        back_off::after(failures, last.finished_at(), now)
    };
    let (due, early): (Vec<_>, Vec<_>) = missing.into_iter().partition(|index| wait_of(index).is_zero());
    match early.iter().map(wait_of).min() {
        Some(wait) if due.is_empty() => Task::Wait(wait),
        None if due.is_empty() => Task::Nothing,
        _ => Task::Make(Making::Indexed(due)),
    }
}
