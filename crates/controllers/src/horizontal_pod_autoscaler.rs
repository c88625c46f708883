//! Autoscalers: as many pods as it takes for each to use what it should.

mod behavior;
mod calculate;
mod measure;
mod scale;
mod status;
mod usage;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::api::autoscaling::v2::{HorizontalPodAutoscaler, MetricStatus};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, PostParams};
use setpoint_api::labels::Selector;
use setpoint_runtime::Key;
use setpoint_runtime::cache::Informer;
use setpoint_runtime::controller::{Action, Context, Error};
use setpoint_runtime::events::{self, Recorder};
use setpoint_runtime::manager::ManagerError;
use setpoint_runtime::retry;

use self::behavior::{Granted, Memory, Wish};
use self::status::{ABLE, ACTIVE, LIMITED, Report};
use crate::Wiring;
use crate::pod::Pod;
use crate::pod_control::message;
use crate::wiring::{normal, warning};

/// How often an autoscaler looks. What it does follows from what was measured, and that is no more often.
const PERIOD: Duration = Duration::from_secs(15);

/// Adds the controller.
pub fn add(wiring: &Wiring<'_>) -> Result<(), ManagerError> {
    let desk = wiring.desk("horizontal-pod-autoscaler-controller")?;
    let (autoscalers, pods): (Informer<HorizontalPodAutoscaler>, _) = (wiring.informer(), wiring.pods());
    let keeper = Arc::new(Keeper {
        autoscalers: autoscalers.clone(),
        pods,
        recorder: desk.recorder.clone(),
        known: Mutex::default(),
    });
    let controller = desk.controller(&autoscalers, 5).build(move |context: Context, key: Key| {
        let keeper = keeper.clone();
        async move { keeper.reconcile(context, key).await }
    });
    desk.run(controller)
}

struct Keeper {
    autoscalers: Informer<HorizontalPodAutoscaler>,
    pods: Informer<Pod>,
    recorder: Recorder,
    /// What was proposed and done lately.
    known: Mutex<BTreeMap<Key, Known>>,
}

#[derive(Default)]
struct Known {
    memory: Memory,
    looked_at: Option<Timestamp>,
    /// Which pods it is for, once that was told.
    selector: Option<Selector>,
}

/// What stands in the way, beyond what the status says.
struct Failure(Option<Error>);

impl From<kube::Error> for Failure {
    fn from(error: kube::Error) -> Failure {
        Failure(Some(error.into()))
    }
}

/// One look at one autoscaler.
struct Look<'a> {
    context: &'a Context,
    keeper: &'a Keeper,
    autoscaler: &'a HorizontalPodAutoscaler,
    key: &'a Key,
    report: Report,
    now: Timestamp,
}

impl Keeper {
    async fn reconcile(&self, context: Context, key: Key) -> Result<Action, Error> {
        let Some(autoscaler) = context.read(&self.autoscalers, &key) else {
            self.known().remove(&key);
            return Ok(Action::done());
        };
        let now = context.clock().wall();
        let looked_at = self.known().entry(key.clone()).or_default().looked_at.replace(now);
        let passed = looked_at.map(|last| Duration::try_from(now.duration_since(last)).unwrap_or_default());
        if let Some(wait) = passed.and_then(|passed| PERIOD.checked_sub(passed)).filter(|wait| !wait.is_zero()) {
            self.known().entry(key).or_default().looked_at = looked_at;
            return Ok(Action::requeue_after(wait));
        }
        let report = Report::new(&autoscaler, context.clock().time());
        let mut look = Look { context: &context, keeper: self, autoscaler: &autoscaler, key: &key, report, now };
        let done = look.run().await;
        let written = look.write().await;
        let failed = done.err().and_then(|failure| failure.0).or(written.err());
        if let Some(error) = failed {
            // Not measured yet, so it need not wait.
            self.known().entry(key).or_default().looked_at = None;
            return Err(error);
        }
        Ok(Action::requeue_after(PERIOD))
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<Key, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the server says that this can't be, now or later.
fn is_refused(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if (400..500).contains(&status.code) && ![409, 429].contains(&status.code))
}

impl Look<'_> {
    async fn run(&mut self) -> Result<(), Failure> {
        let (client, namespace) = (self.context.client(), self.key.namespace().unwrap_or_default());
        let spec = &self.autoscaler.spec;
        let place = match scale::find(client, namespace, &spec.scale_target_ref).await {
            Ok(place) => place,
            Err(why) => return Err(self.no_scale(&why)),
        };
        let scale = match place.read(client).await {
            Ok(scale) => scale,
            // A call that went wrong says nothing about the target.
            Err(error) if !is_refused(&error) => return Err(Failure(Some(error.into()))),
            Err(error) => return Err(self.no_scale(&message(&error))),
        };
        self.report.say(
            ABLE,
            true,
            "SucceededGetScale",
            "the HPA controller was able to get the target's current scale",
        );
        let current = scale.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(0);
        self.keeper.known().entry(self.key.clone()).or_default().memory.begin(current, self.now);

        let min = spec.min_replicas.unwrap_or(1);
        let (desired, why, metrics) = if current == 0 {
            let message = "scaling is disabled since the replica count of the target is zero";
            self.report.say(ACTIVE, false, "ScalingDisabled", message);
            (0, String::new(), Vec::new())
        } else if current > spec.max_replicas {
            (spec.max_replicas, "Current number of replicas above Spec.MaxReplicas".to_owned(), Vec::new())
        } else if current < min {
            (min, "Current number of replicas below Spec.MinReplicas".to_owned(), Vec::new())
        } else {
            self.by_metrics(&scale, current, min).await?
        };
        if desired != current {
            self.rescale(&place, scale, (current, desired), &why, &metrics).await?;
        }
        self.report.count(current, Some(desired), metrics);
        Ok(())
    }

    fn no_scale(&mut self, why: &str) -> Failure {
        self.warn("FailedGetScale", why.to_owned());
        let message = format!("the HPA controller was unable to get the target's current scale: {why}");
        self.report.say(ABLE, false, "FailedGetScale", message);
        Failure(None)
    }

    /// How many pods there should be by what they use, and why.
    async fn by_metrics(
        &mut self,
        scale: &Scale,
        current: i32,
        min: i32,
    ) -> Result<(i32, String, Vec<MetricStatus>), Failure> {
        let spec = &self.autoscaler.spec;
        let (proposed, name, metrics) = match self.measure(scale, current).await {
            Ok(measured) => measured,
            Err((why, metrics)) => {
                self.report.count(current, None, metrics);
                self.warn("FailedComputeMetricsReplicas", why);
                return Err(Failure(None));
            }
        };
        let why = match proposed > current {
            true => format!("{name} above target"),
            false => "All metrics below target".to_owned(),
        };
        let wish = Wish { current, proposed, min, max: spec.max_replicas };
        let Granted { replicas, able, is_limited, limit } = {
            let mut known = self.keeper.known();
            let memory = &mut known.entry(self.key.clone()).or_default().memory;
            behavior::grant(wish, spec.behavior.as_ref(), memory, self.now)
        };
        self.report.say(ABLE, true, able.0, able.1);
        self.report.say(LIMITED, is_limited, limit.0, limit.1);
        Ok((replicas, why, metrics))
    }

    async fn rescale(
        &mut self,
        place: &scale::Place,
        mut scale: Scale,
        (current, desired): (i32, i32),
        why: &str,
        metrics: &[MetricStatus],
    ) -> Result<(), Failure> {
        scale.spec.get_or_insert_default().replicas = Some(desired);
        match place.write(self.context.client(), &scale).await {
            Ok(()) => {
                let message = format!("the HPA controller was able to update the target scale to {desired}");
                self.report.say(ABLE, true, "SucceededRescale", message);
                self.report.scaled();
                let note = format!("New size: {desired}; reason: {why}");
                normal(&self.keeper.recorder, events::reference(self.autoscaler), "SuccessfulRescale", "Rescale", note);
                self.keeper.known().entry(self.key.clone()).or_default().memory.changed(current, desired, self.now);
                Ok(())
            }
            // Somebody else changed the target: it is looked at again at once.
            Err(error) if retry::is_conflict(&error) => Err(error.into()),
            Err(error) => {
                let said = message(&error);
                self.warn("FailedRescale", format!("New size: {desired}; reason: {why}; error: {said}"));
                let message = format!("the HPA controller was unable to update the target scale: {said}");
                self.report.say(ABLE, false, "FailedUpdateScale", message);
                self.report.count(current, None, metrics.to_vec());
                Err(error.into())
            }
        }
    }

    /// Writes what is new in the status.
    async fn write(self) -> Result<(), Error> {
        let Some(status) = self.report.change() else { return Ok(()) };
        let namespace = self.key.namespace().unwrap_or_default();
        let api: Api<HorizontalPodAutoscaler> = Api::namespaced(self.context.client().clone(), namespace);
        let new = HorizontalPodAutoscaler { status: Some(status), ..self.autoscaler.clone() };
        match api.replace_status(self.key.name(), &PostParams::default(), &new).await {
            Err(error) if retry::is_not_found(&error) => Ok(()),
            Err(error) => {
                if !retry::is_conflict(&error) {
                    let (said, about) = (message(&error), events::reference(self.autoscaler));
                    warning(&self.keeper.recorder, about, "FailedUpdateStatus", "UpdateStatus", said);
                }
                Err(error.into())
            }
            Ok(_) => Ok(()),
        }
    }

    fn warn(&self, reason: &str, note: String) {
        warning(&self.keeper.recorder, events::reference(self.autoscaler), reason, "Autoscale", note);
    }
}
