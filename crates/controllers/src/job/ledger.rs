//! Counts pods exactly once.
//!
//! A pod that ended is counted in three steps: its identity is put into the status, then its finalizer is taken away, then its
//! identity is replaced by one more in the counter. Whatever happens between two steps, the next run knows from the identity and
//! the finalizer which of them are done.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::batch::v1::{Job, JobStatus, UncountedTerminatedPods};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::member::Member;
use super::plan::Observed;
use super::spec::Spec;
use super::verdict::{End, Verdict, ensure};
use crate::pod::Pod;

/// Most identities in the status at a time, so that it stays below 20 kB.
const UNCOUNTED_MAX: usize = 500;

/// How many pods there are once this run's changes are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    pub active: i32,
    pub ready: i32,
    pub terminating: i32,
}

/// A status in the making.
#[derive(Debug)]
pub struct Ledger {
    pub status: JobStatus,
    /// Pods that lose their finalizer once the status is written.
    pub to_release: Vec<Arc<Pod>>,
    verdict: Option<Verdict>,
    terminating: i32,
    is_full: bool,
    tracked: BTreeSet<Box<str>>,
}

impl Ledger {
    /// The first step: what is to be counted. `verdict` is how the Job ends if it does.
    pub fn open(
        job: &Job,
        spec: &Spec<'_>,
        pods: &[Arc<Pod>],
        observed: &Observed,
        numbers: Numbers,
        verdict: Option<Verdict>,
        now: &Time,
    ) -> Ledger {
        let mut status = normal(job.status.clone().unwrap_or_default());
        if status.start_time.is_none() && !spec.is_suspended {
            status.start_time = Some(now.clone());
        }
        status.active = Some(numbers.active).filter(|count| *count != 0);
        status.ready = Some(numbers.ready);
        status.terminating = Some(numbers.terminating);
        let tracked = pods.iter().filter(|pod| pod.is_tracked()).map(|pod| pod.metadata.uid.clone()).collect();
        let mut ledger = Ledger {
            status,
            to_release: Vec::new(),
            terminating: numbers.terminating,
            is_full: false,
            verdict,
            tracked,
        };
        ledger.count_released();
        ledger.enter(job, spec, pods, observed);
        if spec.is_indexed {
            let text = |indexes: &dyn std::fmt::Display| indexes.to_string();
            let completed = text(&observed.succeeded_indexes);
            ledger.status.succeeded = Some(saturated(observed.succeeded_indexes.total())).filter(|count| *count != 0);
            ledger.status.completed_indexes = Some(completed).filter(|text| !text.is_empty());
            ledger.status.failed_indexes = observed.failed_indexes.as_ref().map(|indexes| text(indexes));
        }
        if let Some(verdict) = ledger.verdict.as_ref().filter(|verdict| !verdict.is_written) {
            let (kind, conditions) = (verdict.end.interim(), &mut ledger.status.conditions);
            ensure(conditions, kind, true, &verdict.reason, &verdict.message, now);
        }
        ledger
    }

    /// The third step, when the finalizers of these pods are gone: counts them, and says whether the Job is over.
    pub fn close(&mut self, released: &[Arc<Pod>], now: &Time) -> Option<&Verdict> {
        for pod in released {
            self.tracked.remove(&pod.metadata.uid);
        }
        self.count_released();
        let uncounted = self.status.uncounted_terminated_pods.as_ref();
        let is_counted = uncounted.is_none_or(|pods| pods.succeeded.is_none() && pods.failed.is_none());
        if !is_counted || self.is_full || self.terminating > 0 {
            return None;
        }
        let verdict = self.verdict.as_ref()?;
        let (kind, conditions) = (verdict.end.terminal(), &mut self.status.conditions);
        ensure(conditions, kind, true, &verdict.reason, &verdict.message, now);
        if verdict.end == End::Success {
            self.status.completion_time = Some(now.clone());
        }
        Some(verdict)
    }

    /// Whether the Job ends.
    pub fn has_verdict(&self) -> bool {
        self.verdict.is_some()
    }

    /// Replaces identities of pods that have lost their finalizer by counts.
    fn count_released(&mut self) {
        let tracked = &self.tracked;
        let count = |uids: &mut Option<Vec<String>>, counter: &mut Option<i32>| {
            let (left, done): (Vec<_>, Vec<_>) =
                uids.take().into_iter().flatten().partition(|uid| tracked.contains(&**uid));
            *uids = Some(left).filter(|left| !left.is_empty());
            let counted = i64::from(counter.unwrap_or_default()) + done.len() as i64;
            *counter = Some(saturated(counted)).filter(|count| *count != 0);
        };
        let status = &mut self.status;
        let uncounted = status.uncounted_terminated_pods.get_or_insert_default();
        count(&mut uncounted.succeeded, &mut status.succeeded);
        count(&mut uncounted.failed, &mut status.failed);
    }

    fn enter(&mut self, job: &Job, spec: &Spec<'_>, pods: &[Arc<Pod>], observed: &Observed) {
        let mut pods: Vec<_> = pods.iter().filter(|pod| pod.is_tracked()).collect();
        if spec.is_indexed {
            pods.sort_by_key(|pod| pod.index());
        }
        let end = self.verdict.as_ref().map(|verdict| verdict.end);
        let is_going = job.metadata.deletion_timestamp.is_some();
        let mut uncounted = self.status.uncounted_terminated_pods.take().unwrap_or_default();
        for pod in pods {
            let has_succeeded = &*pod.status.phase == "Succeeded";
            // Who deletes pods because the Job has succeeded must not count them as failed afterwards.
            let has_failed =
                if end == Some(End::Success) { &*pod.status.phase == "Failed" } else { spec.is_failed(pod) };
            let is_kept = spec.index_of(pod).and_then(|index| observed.kept.get(&index));
            let is_kept = is_kept.is_some_and(|kept| kept.metadata.uid == pod.metadata.uid);
            if !(is_going || end.is_some() || has_succeeded || has_failed && !is_kept) {
                continue;
            }
            self.to_release.push(pod.clone());
            let has = |uids: &Option<Vec<String>>| uids.iter().flatten().any(|uid| **uid == *pod.metadata.uid);
            let put = |uids: &mut Option<Vec<String>>| uids.get_or_insert_default().push(pod.metadata.uid.to_string());
            if has_succeeded && !has(&uncounted.failed) {
                if !spec.is_indexed && !has(&uncounted.succeeded) {
                    put(&mut uncounted.succeeded);
                }
            } else if (has_failed || end == Some(End::Failure))
                && !has(&uncounted.failed)
                && spec.is_countable(pod)
                && spec.consequence(pod).counts()
            {
                put(&mut uncounted.failed);
            }
            if length(&uncounted) >= UNCOUNTED_MAX || self.to_release.len() >= UNCOUNTED_MAX {
                self.is_full = true;
                break;
            }
        }
        self.status.uncounted_terminated_pods = Some(uncounted);
    }
}

/// A status in the form in which two that say the same are equal.
pub fn normal(mut status: JobStatus) -> JobStatus {
    let not_zero = |count: Option<i32>| count.filter(|count| *count != 0);
    (status.active, status.succeeded, status.failed) =
        (not_zero(status.active), not_zero(status.succeeded), not_zero(status.failed));
    status.completed_indexes = status.completed_indexes.filter(|text| !text.is_empty());
    status.conditions = status.conditions.filter(|list| !list.is_empty());
    if let Some(pods) = &mut status.uncounted_terminated_pods {
        pods.succeeded = pods.succeeded.take().filter(|uids| !uids.is_empty());
        pods.failed = pods.failed.take().filter(|uids| !uids.is_empty());
    }
    status
}

fn length(uncounted: &UncountedTerminatedPods) -> usize {
    uncounted.succeeded.as_ref().map_or(0, Vec::len) + uncounted.failed.as_ref().map_or(0, Vec::len)
}

fn saturated(count: i64) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
