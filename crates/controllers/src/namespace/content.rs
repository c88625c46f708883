//! Deletes what is in a namespace, one resource after the other, and counts what remains.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::Client;
use kube::api::{DeleteParams, ListParams};
use kube::core::Request;
use serde::Deserialize;
use serde::de::IgnoredAny;
use setpoint_runtime::retry;

use super::conditions::Findings;
use crate::pod_control::message;
use crate::served::{Resource, Served};

/// How long finalizers are given before the next look. Same as Kubernetes.
const FINALIZERS_TAKE: Duration = Duration::from_secs(15);

/// What is in a namespace, for one who deletes it.
pub struct Content<'a> {
    pub client: &'a Client,
    pub namespace: &'a str,
    /// How long ago its deletion was asked for.
    pub since: Duration,
}

/// What came of a deletion.
#[derive(Debug, Default)]
pub struct Outcome {
    pub findings: Findings,
    /// How long it will take until the rest is gone; none if nothing waits.
    pub estimate: Duration,
}

/// What remains of one resource.
#[derive(Default)]
struct Rest {
    estimate: Duration,
    count: usize,
    finalizers: BTreeMap<String, usize>,
    failure: Option<String>,
}

impl Content<'_> {
    /// Deletes everything: pods first, and the rest only once they are gone.
    pub async fn delete(&self) -> Outcome {
        let mut outcome = Outcome::default();
        let served = match Served::discover(self.client).await {
            Ok(served) => served,
            Err(error) => {
                outcome.findings.discovery = Some(message(&error));
                return outcome;
            }
        };
        if !served.stale.is_empty() {
            outcome.findings.discovery = Some(discovery_failure(&served));
        }
        let deletable = |resource: &&std::sync::Arc<Resource>| resource.is_namespaced && resource.can(&["delete"]);
        let resources: Vec<_> = served.preferred.iter().filter(deletable).collect();
        if let Some(pods) = resources.iter().find(|resource| is_pods(resource)) {
            let rest = self.delete_all(pods).await;
            let remain = rest.count > 0 || rest.failure.is_some();
            outcome.add(pods, rest);
            if remain {
                return outcome;
            }
        }
        for resource in resources.into_iter().filter(|resource| !is_pods(resource)) {
            let rest = self.delete_all(resource).await;
            outcome.add(resource, rest);
        }
        outcome
    }

    /// Deletes all objects of a resource.
    async fn delete_all(&self, resource: &Resource) -> Rest {
        match self.try_delete_all(resource).await {
            Ok(rest) => rest,
            Err(error) => Rest { failure: Some(message(&error)), ..Rest::default() },
        }
    }

    async fn try_delete_all(&self, resource: &Resource) -> Result<Rest, kube::Error> {
        // Most namespaces have nothing of most kinds, and reading is cheaper than deleting nothing.
        let Some(before) = self.list(resource).await?.filter(|items| !items.is_empty()) else {
            return Ok(Rest::default());
        };
        let estimate = if is_pods(resource) { grace(&before) } else { Duration::ZERO };
        let estimate = if self.since >= estimate { Duration::ZERO } else { estimate };
        if before.iter().all(|member| member.metadata.deletion_timestamp.is_some()) {
            // To ask again changes nothing.
            return Ok(self.rest(resource, &before, estimate));
        }
        if !resource.can(&["deletecollection"]) || !self.delete_collection(resource).await? {
            self.delete_each(resource, &before).await?;
        }
        let Some(after) = self.list(resource).await? else { return Ok(Rest { estimate, ..Rest::default() }) };
        Ok(self.rest(resource, &after, estimate))
    }

    fn rest(&self, resource: &Resource, items: &[Member], estimate: Duration) -> Rest {
        if items.is_empty() {
            return Rest::default();
        }
        let mut rest = Rest { estimate, count: items.len(), ..Rest::default() };
        for finalizer in items.iter().flat_map(|item| &item.metadata.finalizers) {
            *rest.finalizers.entry(finalizer.clone()).or_default() += 1;
        }
        if estimate.is_zero() && !rest.finalizers.is_empty() {
            rest.estimate = FINALIZERS_TAKE;
        } else if estimate.is_zero() {
            let Resource { group, version, plural, .. } = resource;
            let namespace = self.namespace;
            rest.failure = Some(format!(
                "unexpected items still remain in namespace: {namespace} for gvr: {group}/{version}, Resource={plural}"
            ));
        }
        rest
    }

    /// Its objects; none if it has no such list.
    async fn list(&self, resource: &Resource) -> Result<Option<Vec<Member>>, kube::Error> {
        if !resource.can(&["list"]) {
            return Ok(None);
        }
        let request = self.request(resource);
        // The grace time of pods is no metadata.
        let request = match is_pods(resource) {
            true => request.list(&ListParams::default()),
            false => request.list_metadata(&ListParams::default()),
        };
        let request = request.map_err(kube::Error::BuildRequest)?;
        match self.client.request::<Contents>(request).await {
            Ok(list) => Ok(Some(list.items.unwrap_or_default())),
            Err(error) if is_unsupported(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Deletes all at once; false if it can't be.
    async fn delete_collection(&self, resource: &Resource) -> Result<bool, kube::Error> {
        let how = DeleteParams::background();
        let request = self.request(resource).delete_collection(&how, &ListParams::default());
        match self.client.request::<IgnoredAny>(request.map_err(kube::Error::BuildRequest)?).await {
            Ok(_) => Ok(true),
            Err(error) if is_unsupported(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn delete_each(&self, resource: &Resource, items: &[Member]) -> Result<(), kube::Error> {
        for item in items {
            let request = self.request(resource).delete(&item.metadata.name, &DeleteParams::background());
            match self.client.request::<IgnoredAny>(request.map_err(kube::Error::BuildRequest)?).await {
                Err(error) if !is_unsupported(&error) => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    fn request(&self, resource: &Resource) -> Request {
        Request::new(resource.collection(self.namespace))
    }
}

impl Outcome {
    fn add(&mut self, resource: &Resource, rest: Rest) {
        self.estimate = self.estimate.max(rest.estimate);
        if rest.count > 0 {
            self.findings.remaining.insert(format!("{}.{}", resource.plural, resource.group), rest.count);
        }
        for (finalizer, count) in rest.finalizers {
            *self.findings.finalizers.entry(finalizer).or_default() += count;
        }
        self.findings.failures.extend(rest.failure);
    }
}

fn is_pods(resource: &Resource) -> bool {
    resource.group.is_empty() && &*resource.plural == "pods"
}

/// The longest grace time of pods that still run.
fn grace(pods: &[Member]) -> Duration {
    let running = pods.iter().filter(|pod| !matches!(&*pod.status.phase, "Succeeded" | "Failed"));
    let seconds = running.filter_map(|pod| pod.spec.termination_grace_period_seconds).max().unwrap_or(0);
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

/// In the words of Kubernetes.
fn discovery_failure(served: &Served) -> String {
    let each: Vec<_> =
        served.stale.iter().map(|version| format!("{version}: stale GroupVersion discovery: {version}")).collect();
    format!(
        "Discovery failed for some groups, {} failing: unable to retrieve the complete list of server APIs: {}",
        each.len(),
        each.join(", ")
    )
}

/// The server knows no such verb, or no such kind any more.
fn is_unsupported(error: &kube::Error) -> bool {
    retry::is_not_found(error) || matches!(error, kube::Error::Api(status) if status.code == 405)
}

#[derive(Deserialize)]
struct Contents {
    /// Kubernetes has null where a list of metadata is empty.
    items: Option<Vec<Member>>,
}

/// What is read of an object.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Member {
    metadata: Metadata,
    spec: PodSpec,
    status: PodStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    name: String,
    deletion_timestamp: Option<IgnoredAny>,
    finalizers: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodSpec {
    termination_grace_period_seconds: Option<i64>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PodStatus {
    phase: String,
}
