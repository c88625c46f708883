//! Carries a plan out, and writes the status.

use std::fmt;

use futures_util::future::join_all;
use k8s_openapi::api::apps::v1::ReplicaSetStatus;
use kube::api::{Api, PostParams};
use setpoint_runtime::cache::Cached;
use setpoint_runtime::controller::{Context, Error};
use setpoint_runtime::events::{self, Recorder};
use setpoint_runtime::{retry, slow_start};

use super::kind::Replicated;
use super::plan::Plan;
use crate::claim::reference_to;
use crate::pod_control::{PodControl, from_template, is_namespace_terminating, message};

/// Does things for a set.
pub struct Hand<'a, S> {
    pub context: &'a Context,
    pub recorder: &'a Recorder,
    pub set: &'a S,
}

/// Why pods could not be made or deleted.
#[derive(Debug)]
pub enum Failure {
    Create(kube::Error),
    Delete(kube::Error),
    /// There is nothing to make pods from.
    NoLabels,
}

impl<S: Replicated> Hand<'_, S> {
    /// Makes or deletes pods.
    pub async fn carry_out(&self, plan: Plan) -> Result<(), Failure> {
        match plan {
            Plan::Nothing => Ok(()),
            Plan::Create(count) => self.create(count).await,
            Plan::Delete(pods) => {
                let control = self.control();
                let deleted = join_all(pods.iter().map(|pod| control.delete(pod))).await;
                deleted.into_iter().collect::<Result<(), _>>().map_err(Failure::Delete)
            }
        }
    }

    async fn create(&self, count: usize) -> Result<(), Failure> {
        let owner = reference_to(self.set).map_err(|_| Failure::NoLabels)?;
        let template = self.set.template().ok_or(Failure::NoLabels)?;
        let pod = from_template(template, Cached::key(self.set).name(), owner);
        if pod.metadata.labels.as_ref().is_none_or(|labels| labels.is_empty()) {
            return Err(Failure::NoLabels);
        }
        let body = serde_json::to_vec(&pod).map_err(|error| Failure::Create(kube::Error::SerdeError(error)))?;
        let control = self.control();
        let create = |_| async {
            match control.create_encoded(body.clone()).await {
                // Nothing can be made there any more.
                Err(error) if is_namespace_terminating(&error) => Ok(()),
                answer => answer,
            }
        };
        match slow_start::slow_start(count, 1, create).await {
            (_, Some(error)) => Err(Failure::Create(error)),
            (_, None) => Ok(()),
        }
    }

    /// Writes the status if it is another one.
    pub async fn write_status(&self, status: &ReplicaSetStatus) -> Result<(), Error> {
        if is_same(&self.set.status(), status) {
            return Ok(());
        }
        let key = Cached::key(self.set);
        let api: Api<S> = Api::namespaced(self.context.client().clone(), key.namespace().unwrap_or_default());
        let said = self.set.with_status(status.clone());
        let Err(error) = api.replace_status(key.name(), &PostParams::default(), &said).await else { return Ok(()) };
        if retry::is_not_found(&error) {
            return Ok(());
        }
        // Whoever scales a set writes it at the same moment: what its pods are is as true of the newer one, so it is said at once
        // instead of after another run. Once only, as Kubernetes does.
        let Some(newer) = api.get_opt(key.name()).await?.filter(|it| Cached::uid(it) == Cached::uid(self.set)) else {
            return Ok(());
        };
        match api.replace_status(key.name(), &PostParams::default(), &newer.with_status(status.clone())).await {
            Err(error) if retry::is_not_found(&error) => Ok(()),
            answer => Ok(answer.map(drop)?),
        }
    }

    fn control(&self) -> PodControl<'_> {
        let owner = events::reference(self.set);
        PodControl { client: self.context.client(), recorder: self.recorder, owner }
    }
}

/// Whether two statuses say the same: what is absent is zero or empty.
fn is_same(one: &ReplicaSetStatus, other: &ReplicaSetStatus) -> bool {
    let facts = |status: &ReplicaSetStatus| {
        (
            status.replicas,
            status.fully_labeled_replicas.unwrap_or(0),
            status.ready_replicas.unwrap_or(0),
            status.available_replicas.unwrap_or(0),
            status.terminating_replicas,
            status.observed_generation.unwrap_or(0),
            status.conditions.clone().unwrap_or_default(),
        )
    };
    facts(one) == facts(other)
}

impl Failure {
    /// In one word.
    pub fn reason(&self) -> &'static str {
        match self {
            Failure::Create(_) | Failure::NoLabels => "FailedCreate",
            Failure::Delete(_) => "FailedDelete",
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Create(error) => out.write_str(&message(error)),
            Failure::Delete(error) => write!(out, "unable to delete pods: {}", message(error)),
            Failure::NoLabels => out.write_str("unable to create pods, no labels"),
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        match failure {
            Failure::Create(error) | Failure::Delete(error) => error.into(),
            Failure::NoLabels => Error::terminal(failure.to_string()),
        }
    }
}
