//! What pods use, as the resource metrics API tells, and what they asked for.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use setpoint_api::quantity::Quantity;

/// What one pod used of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// When that was measured.
    pub at: Timestamp,
    /// Over how long a time before.
    pub window: SignedDuration,
    /// In thousandths.
    pub value: i64,
}

/// What pods used, by their names.
pub type Samples = BTreeMap<String, Sample>;

/// The answer of the resource metrics API.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Measured {
    pub items: Vec<PodMetrics>,
}

/// What was measured of one pod.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct PodMetrics {
    metadata: Named,
    timestamp: Option<Time>,
    window: String,
    containers: Vec<ContainerMetrics>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ContainerMetrics {
    name: String,
    usage: BTreeMap<String, Text>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Named {
    name: String,
    deletion_timestamp: Option<Time>,
}

impl Measured {
    /// What each pod used of a resource, all its containers together or one of them. Pods of which that isn't known are left out.
    pub fn of(&self, resource: &str, container: Option<&str>) -> Samples {
        let value = |pod: &PodMetrics| match container {
            Some(name) => thousandths(pod.containers.iter().find(|one| one.name == name)?.usage.get(resource)?),
            None if pod.containers.is_empty() => None,
            None => pod
                .containers
                .iter()
                .try_fold(0_i64, |sum, one| Some(sum.saturating_add(thousandths(one.usage.get(resource)?)?))),
        };
        let sample = |pod: &PodMetrics| {
            let at = pod.timestamp.as_ref().map_or(Timestamp::MIN, |time| time.0);
            let window = pod.window.parse().unwrap_or(SignedDuration::ZERO);
            Some((pod.metadata.name.clone(), Sample { at, window, value: value(pod)? }))
        };
        self.items.iter().filter_map(sample).collect()
    }
}

/// A pod with what it asked for.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Worker {
    metadata: Named,
    spec: Spec,
    status: Status,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    containers: Vec<Container>,
    init_containers: Vec<Container>,
    resources: Resources,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Container {
    name: String,
    restart_policy: String,
    resources: Resources,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Resources {
    requests: BTreeMap<String, Text>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    phase: String,
    start_time: Option<Time>,
    conditions: Vec<crate::pod::Condition>,
}

/// How long a pod may use much CPU to start.
const CPU_START: SignedDuration = SignedDuration::from_secs(300);

/// A pod that wasn't ready for longer than this since its start has been ready before.
const FIRST_READY: SignedDuration = SignedDuration::from_secs(30);

impl Worker {
    pub fn name(&self) -> &str {
        &self.metadata.name
    }

    /// Whether it is about to go or has failed: it counts for nothing.
    pub fn is_ignored(&self) -> bool {
        self.metadata.deletion_timestamp.is_some() || self.status.phase == "Failed"
    }

    pub fn is_pending(&self) -> bool {
        self.status.phase == "Pending"
    }

    /// Whether what it used of the CPU tells nothing, because it is starting or doesn't work.
    pub fn is_starting(&self, sample: &Sample, now: Timestamp) -> bool {
        let ready = self.status.conditions.iter().find(|condition| &*condition.kind == "Ready");
        let (Some(ready), Some(start)) = (ready, &self.status.start_time) else { return true };
        let is_not = &*ready.status == "False";
        let since = ready.last_transition_time.as_ref().map_or(Timestamp::MIN, |time| time.0);
        if later(start.0, CPU_START) > now {
            return is_not || sample.at < later(since, sample.window);
        }
        is_not && later(start.0, FIRST_READY) > since
    }

    /// What it asked for of a resource, in thousandths: all of it, or one container.
    pub fn request(&self, resource: &str, container: Option<&str>) -> Result<i64, String> {
        let name = self.name();
        if container.is_none() && !self.spec.resources.requests.is_empty() {
            let whole = self.spec.resources.requests.get(resource).and_then(thousandths);
            return whole.ok_or_else(|| format!("missing pod-level request for {resource} in Pod {name}"));
        }
        let sidecars = self.spec.init_containers.iter().filter(|init| init.restart_policy == "Always");
        let mut all = self.spec.containers.iter().chain(sidecars);
        let of = |one: &Container| {
            let request = one.resources.requests.get(resource).and_then(thousandths);
            request.ok_or_else(|| format!("missing request for {resource} in container {} of Pod {name}", one.name))
        };
        match container {
            None => all.try_fold(0_i64, |sum, one| Ok(sum.saturating_add(of(one)?))),
            Some(container) => match all.find(|one| one.name == container) {
                Some(one) => of(one),
                None => Err(format!("container {container} not found in Pod {name}")),
            },
        }
    }
}

fn later(time: Timestamp, wait: SignedDuration) -> Timestamp {
    time.saturating_add(wait).unwrap_or(Timestamp::MAX)
}

fn thousandths(amount: &Text) -> Option<i64> {
    Quantity::parse(&amount.0).ok().map(|amount| amount.milli_value())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn worker(spec: Value) -> Worker {
        serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap()
    }

    fn container(name: &str, cpu: &str) -> Value {
        json!({"name": name, "resources": {"requests": {"cpu": cpu}}})
    }

    #[test]
    fn a_pod_asks_for_what_its_containers_and_sidecars_ask_for_unless_it_says_it_itself() {
        let sidecar = json!({"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1m"}}});
        let spec = json!({"containers": [container("a", "100m"), container("b", "1")],
            "initContainers": [sidecar, container("init", "5")]});
        let pod = worker(spec.clone());
        assert_eq!(pod.request("cpu", None), Ok(1101));
        assert_eq!(pod.request("cpu", Some("b")), Ok(1000));
        assert_eq!(pod.request("cpu", Some("x")), Err("container x not found in Pod p".to_owned()));
        assert_eq!(pod.request("memory", None), Err("missing request for memory in container a of Pod p".to_owned()));
        let mut whole = spec;
        whole["resources"] = json!({"requests": {"cpu": "3"}});
        let pod = worker(whole);
        assert_eq!(pod.request("cpu", None), Ok(3000));
        assert_eq!(pod.request("cpu", Some("a")), Ok(100));
        assert_eq!(pod.request("memory", None), Err("missing pod-level request for memory in Pod p".to_owned()));
    }

    #[test]
    fn what_a_pod_used_is_known_if_it_is_of_all_its_containers() {
        let measured = json!({"items": [
            {"metadata": {"name": "p"}, "timestamp": "2026-01-01T00:00:00Z", "window": "1m30s",
                "containers": [{"name": "a", "usage": {"cpu": "5m"}}, {"name": "b", "usage": {"cpu": "1", "memory": "1Ki"}}]},
            {"metadata": {"name": "nothing"}},
        ]});
        let measured: Measured = serde_json::from_value(measured).unwrap();
        let value = |resource, container| measured.of(resource, container).get("p").map(|sample| sample.value);
        assert_eq!(value("cpu", None), Some(1005));
        assert_eq!(value("cpu", Some("a")), Some(5));
        assert_eq!(value("memory", None), None);
        assert_eq!(value("memory", Some("b")), Some(1_024_000));
        assert_eq!(measured.of("cpu", None)["p"].window, SignedDuration::from_secs(90));
        assert_eq!(measured.of("cpu", None).len(), 1);
    }
}
