//! Runs pods until so many have succeeded, and counts each of them exactly once.

mod act;
mod back_off;
mod failure_policy;
mod indexes;
mod ledger;
mod member;
mod new_pod;
mod plan;
mod removal;
mod spec;
mod success_policy;
#[cfg(test)]
mod tests;
mod verdict;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::batch::v1::{Job, JobStatus};
use kube::api::Api;
use setpoint_runtime::cache::{Cached, Informer};
use setpoint_runtime::controller::{Action, Context, Error};
use setpoint_runtime::events::{Recorder, reference};
use setpoint_runtime::manager::ManagerError;
use setpoint_runtime::{Key, retry};

use self::act::Done;
use self::ledger::{Ledger, Numbers, normal};
use self::member::Member;
use self::plan::{Observed, Task};
use self::spec::Spec;
use self::verdict::{End, Verdict};
use crate::Wiring;
use crate::claim::{Claim, Claimable};
use crate::pod::{self, Pod};
use crate::pod_control::PodControl;
use crate::selector;
use crate::wiring::{normal as say, warning};

pub use self::verdict::finished;

/// Changes of pods and of statuses are taken together for so long: one that ends is seldom the only one. Kubernetes waits for a
/// second, which every step of a Job (pods that are there, ended, counted, released) pays again, so that the shortest Job takes
/// several; a fifth of it takes as many pods together when they come by the hundred, and is hardly felt when one comes alone.
const BATCH: Duration = Duration::from_millis(200);

/// The index of tracked pods by the key of the Job that they say they belong to.
const BY_TRACKING_JOB: &str = "tracking job";

/// Adds the controller.
pub fn add(wiring: &Wiring<'_>) -> Result<(), ManagerError> {
    let desk = wiring.desk("job-controller")?;
    let caches = Caches { jobs: wiring.informer(), pods: wiring.pods() };
    caches.pods.add_index(BY_TRACKING_JOB, |pod| {
        let key = Some(pod).filter(|pod| pod.is_tracked()).and_then(job_of);
        key.map(|key| key.as_str().to_owned()).into_iter().collect()
    });
    let (jobs, recorder) = (caches.jobs.clone(), desk.recorder.clone());
    let controller = desk
        .controller(&caches.jobs, 5)
        .batch(BATCH)
        .watches(&caches.pods, move |pod: &Pod| concerned(&jobs, pod))
        .build(move |context: Context, key: Key| reconcile(context, caches.clone(), recorder.clone(), key));
    desk.run(controller)
}

#[derive(Clone)]
struct Caches {
    jobs: Informer<Job>,
    pods: Informer<Pod>,
}

/// The Jobs that have to look because of a pod: its own, or those that may adopt it.
fn concerned(jobs: &Informer<Job>, pod: &Pod) -> Vec<Key> {
    let mut keys: Vec<_> = job_of(pod).into_iter().collect();
    if pod.controller_reference().is_none() && !pod.is_deleting() {
        let snapshot = jobs.lister().snapshot();
        let adopts = |job: &&Arc<Job>| selector_of(job).is_some_and(|selector| pod.is_selected(&selector));
        keys.extend(snapshot.namespace(&pod.metadata.namespace).filter(adopts).map(|job| Cached::key(&**job)));
    }
    keys
}

/// The Job that controls a pod, or that once did.
fn job_of(pod: &Pod) -> Option<Key> {
    let name = match pod.controller_reference() {
        Some(owner) if owner.kind == "Job" && owner.api_version == "batch/v1" => &*owner.name,
        Some(_) => return None,
        None if pod.is_tracked() => pod.metadata.labels.get("batch.kubernetes.io/job-name").unwrap_or_default(),
        None => return None,
    };
    Some(Key::namespaced(&pod.metadata.namespace, name))
}

fn selector_of(job: &Job) -> Option<setpoint_api::labels::Selector> {
    let selector = selector::read(job.spec.as_ref()?.selector.as_ref()).ok()?;
    // It would adopt everything.
    Some(selector).filter(|selector| !selector.is_everything())
}

async fn reconcile(context: Context, caches: Caches, recorder: Recorder, key: Key) -> Result<Action, Error> {
    let job = context.read(&caches.jobs, &key);
    if job.as_deref().is_some_and(spec::is_managed_elsewhere) {
        return Ok(Action::done());
    }
    let uid = job.as_deref().map_or("", |job| Cached::uid(job));
    release_strays(&context, &caches, &key, job.as_deref(), uid).await?;
    let Some(job) = job.as_deref() else { return Ok(Action::done()) };
    let control = PodControl { client: context.client(), recorder: &recorder, owner: reference(job) };
    if finished(job).is_some() {
        let pods = caches.pods.lister().snapshot();
        let own: Vec<_> = pods.by_index(pod::BY_CONTROLLER, uid).cloned().collect();
        wind_up(&context, &control, own).await?;
        return Ok(Action::done());
    }
    let Some(spec) = Spec::of(job) else {
        let note = "Skipped Job sync because completion mode is unknown".to_owned();
        warning(&recorder, reference(job), "UnknownCompletionMode", "SyncJob", note);
        return Ok(Action::done());
    };
    let Some(pods) = claim(&context, &caches, job).await? else { return Ok(Action::done()) };
    let run = Run { context: &context, control: &control, recorder: &recorder, job, spec: &spec, pods: &pods };
    run.sync().await
}

/// Pods that still wait to be counted by a Job that is gone, or that let them go, are waited for by nobody.
async fn release_strays(
    context: &Context,
    caches: &Caches,
    key: &Key,
    job: Option<&Job>,
    uid: &str,
) -> Result<(), Error> {
    let snapshot = caches.pods.lister().snapshot();
    let tracked = snapshot.by_index(BY_TRACKING_JOB, key.as_str());
    let selector = job.and_then(selector_of);
    let is_stray = |pod: &&Arc<Pod>| match pod.controller() {
        Some(owner) => owner.uid != uid,
        None => {
            job.is_none_or(|job| finished(job).is_some()) || !selector.as_ref().is_some_and(|one| pod.is_selected(one))
        }
    };
    let strays: Vec<_> = tracked.filter(is_stray).cloned().collect();
    if strays.is_empty() {
        return Ok(());
    }
    // The cache of Jobs may be behind that of pods.
    let api: Api<Job> = Api::namespaced(context.client().clone(), key.namespace().unwrap_or_default());
    let live = match api.get_metadata(key.name()).await {
        Ok(live) => live.metadata.uid.unwrap_or_default(),
        Err(error) if retry::is_not_found(&error) => String::new(),
        Err(error) => return Err(error.into()),
    };
    if live != uid {
        return Err(Error::conflict(format!("{key} is newer than the cache")));
    }
    let (_, error) = act::release_all(context.client(), &strays).await;
    error.map_or(Ok(()), |error| Err(error.into()))
}

/// A Job that is over has no pods that run or wait to be counted.
async fn wind_up(context: &Context, control: &PodControl<'_>, pods: Vec<Arc<Pod>>) -> Result<(), Error> {
    let tracked: Vec<_> = pods.iter().filter(|pod| pod.is_tracked()).cloned().collect();
    let (_, error) = act::release_all(context.client(), &tracked).await;
    error.map_or(Ok(()), Err)?;
    let active: Vec<_> = pods.into_iter().filter(|pod| pod.is_active()).collect();
    match act::end(control, &active).await.error {
        Some(error) => Err(error.into()),
        None => Ok(()),
    }
}

/// The pods of a Job; none if some were adopted just now, which the cache has to see first.
async fn claim(context: &Context, caches: &Caches, job: &Job) -> Result<Option<Vec<Arc<Pod>>>, Error> {
    let Some(selector) = selector_of(job) else { return Err(Error::terminal("the Job's selector can't be read")) };
    let claim = Claim { owner: job, selector: &selector, finalizer: Some(member::TRACKING) };
    let snapshot = caches.pods.lister().snapshot();
    let orphans = pod::orphans_of(job.metadata.namespace.as_deref().unwrap_or_default());
    let own = snapshot.by_index(pod::BY_CONTROLLER, Cached::uid(job));
    let candidates: Vec<_> = own.chain(snapshot.by_index(pod::BY_CONTROLLER, &orphans)).cloned().collect();
    let pods = claim.settle(context, candidates).await?;
    Ok(Some(pods).filter(|pods| pods.iter().all(|pod| pod.controller().is_some())))
}

/// One run for a Job that is not over.
struct Run<'a> {
    context: &'a Context,
    control: &'a PodControl<'a>,
    recorder: &'a Recorder,
    job: &'a Job,
    spec: &'a Spec<'a>,
    pods: &'a [Arc<Pod>],
}

impl Run<'_> {
    async fn sync(&self) -> Result<Action, Error> {
        let now = self.context.clock().wall();
        let observed = plan::observe(self.job, self.spec, self.pods, now);
        let task = plan::task(self.job, self.spec, &observed, self.pods, now);
        if !matches!(task, Task::Nothing | Task::Wait(_) | Task::WriteVerdict) {
            act::ensure_current(self.context, self.job).await?;
        }
        let done = self.carry_out(&task, &observed).await?;
        let numbers = Numbers {
            active: observed.active.len() as i32 + done.made - done.removed,
            ready: observed.ready - done.removed_ready,
            terminating: observed.terminating + done.removed,
        };
        let verdict = self.verdict(&task, &observed, numbers, &done);
        let deadline = self.account(&observed, numbers, verdict, &task).await?;
        if let Some(error) = done.error {
            return Err(error.into());
        }
        let wait = match task {
            Task::Wait(wait) => Some(wait),
            _ => None,
        };
        Ok(wait.into_iter().chain(deadline).min().map_or(Action::done(), Action::requeue_after))
    }

    async fn carry_out(&self, task: &Task, observed: &Observed) -> Result<Done, Error> {
        Ok(match task {
            Task::Nothing | Task::Wait(_) | Task::WriteVerdict => Done::default(),
            Task::End(pods) => act::end(self.control, pods).await,
            Task::Remove(pods) => act::remove(self.context.client(), self.control, pods).await,
            Task::Make(making) => act::make(self.control, self.job, self.spec, observed, making).await?,
        })
    }

    /// How the Job ends, if nothing of it runs any more.
    fn verdict(&self, task: &Task, observed: &Observed, numbers: Numbers, done: &Done) -> Option<Verdict> {
        if observed.verdict.is_some() {
            let is_ended = done.error.is_none() && !matches!(task, Task::WriteVerdict);
            return observed.verdict.clone().filter(|_| is_ended);
        }
        let wanted = self.spec.completions.map_or(1, i64::from);
        let is_complete = observed.succeeded >= wanted && numbers.active == 0;
        let message = "Reached expected number of succeeded pods";
        is_complete.then(|| Verdict::new(End::Success, "CompletionsReached", message))
    }

    /// Counts pods in three steps, and says when the Job's time is over.
    async fn account(
        &self,
        observed: &Observed,
        numbers: Numbers,
        verdict: Option<Verdict>,
        task: &Task,
    ) -> Result<Option<Duration>, Error> {
        let (client, time) = (self.context.client(), self.context.clock().time());
        let mut ledger = Ledger::open(self.job, self.spec, self.pods, observed, numbers, verdict, &time);
        if let (Task::WriteVerdict, Some(verdict)) = (task, &observed.verdict) {
            let (kind, conditions) = (verdict.end.interim(), &mut ledger.status.conditions);
            verdict::ensure(conditions, kind, true, &verdict.reason, &verdict.message, &time);
        }
        let is_managed = observed.verdict.is_none() && self.job.metadata.deletion_timestamp.is_none();
        let switched = if is_managed && !ledger.has_verdict() { self.switch(&mut ledger.status) } else { None };
        let mut job = self.job.clone();
        let before = normal(self.job.status.clone().unwrap_or_default());
        if ledger.status != before {
            job = act::write_status(client, &job, ledger.status.clone()).await?;
            if let Some((reason, note)) = switched {
                say(self.recorder, reference(self.job), reason, "SyncJob", note.to_owned());
            }
        }
        // A Job whose end is decided waits for its pods, whose events wake it; its time plays no part any more.
        let deadline = match observed.verdict {
            Some(_) => None,
            None => plan::deadline_in(&ledger.status, self.spec, self.context.clock().wall()),
        };
        let (released, error) = act::release_all(client, &ledger.to_release).await;
        let written = ledger.status.clone();
        let over = ledger.close(&released, &time).cloned();
        if ledger.status != written {
            act::write_status(client, &job, ledger.status.clone()).await?;
        }
        if let Some(error) = error {
            return Err(error.into());
        }
        if let Some(verdict) = over {
            self.announce(&verdict, &ledger.status);
            return Ok(None);
        }
        Ok(deadline)
    }

    /// Says in the status whether the Job is suspended; the event to record if that is new.
    fn switch(&self, status: &mut JobStatus) -> Option<(&'static str, &'static str)> {
        let time = self.context.clock().time();
        if self.spec.is_suspended {
            let is_new =
                verdict::ensure(&mut status.conditions, "Suspended", true, "JobSuspended", "Job suspended", &time);
            if is_new {
                status.start_time = None;
            }
            return is_new.then_some(("Suspended", "Job suspended"));
        }
        let is_new = verdict::ensure(&mut status.conditions, "Suspended", false, "JobResumed", "Job resumed", &time);
        if is_new {
            // The deadline is for the time in which the Job is active without a pause.
            status.start_time = Some(time);
        }
        is_new.then_some(("Resumed", "Job resumed"))
    }

    fn announce(&self, verdict: &Verdict, status: &JobStatus) {
        let about = || reference(self.job);
        match verdict.end {
            End::Success => {
                if self.spec.completions.is_some_and(|wanted| status.succeeded.unwrap_or_default() > wanted) {
                    let note = "Too many succeeded pods running after completion count reached".to_owned();
                    warning(self.recorder, about(), "TooManySucceededPods", "SyncJob", note);
                }
                say(self.recorder, about(), "Completed", "SyncJob", "Job completed".to_owned());
            }
            End::Failure => warning(self.recorder, about(), &verdict.reason, "SyncJob", verdict.message.clone()),
        }
    }
}
