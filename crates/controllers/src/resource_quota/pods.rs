//! What a pod takes, and which quotas count it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Affinity, ScopedResourceSelectorRequirement as Scope};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::Value;

use super::usage::Usage;

/// A pod with what it takes.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Pod {
    metadata: Meta,
    spec: Spec,
    status: Status,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Meta {
    deletion_timestamp: Option<Time>,
    deletion_grace_period_seconds: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    active_deadline_seconds: Option<i64>,
    priority_class_name: String,
    containers: Vec<Container>,
    init_containers: Vec<Container>,
    overhead: Option<BTreeMap<String, Text>>,
    resources: Option<Resources>,
    affinity: Option<Affinity>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    phase: String,
    qos_class: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Container {
    resources: Resources,
    restart_policy: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Resources {
    requests: Option<BTreeMap<String, Text>>,
    limits: Option<BTreeMap<String, Text>>,
}

impl Resources {
    fn get(&self, side: Side) -> Usage {
        Usage::read(match side {
            Side::Requests => self.requests.as_ref(),
            Side::Limits => self.limits.as_ref(),
        })
    }
}

#[derive(Clone, Copy)]
enum Side {
    Requests,
    Limits,
}

impl Pod {
    /// What it takes at a moment. One that has ended is only counted as an object.
    pub fn usage(&self, now: Timestamp) -> Usage {
        let mut usage = Usage::default();
        usage.count("count/pods", 1);
        if !self.is_counted(now) {
            return usage;
        }
        usage.count("pods", 1);
        for (name, amount) in self.total(Side::Requests).0 {
            let is_special = name.starts_with("hugepages-");
            if matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") || is_special {
                usage.add(&name, &amount);
            }
            // Beside the usual ones, resources that others bring have a domain in their names.
            if matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") || is_special || name.contains('/') {
                usage.add(&format!("requests.{name}"), &amount);
            }
        }
        for (name, amount) in self.total(Side::Limits).0 {
            if matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") {
                usage.add(&format!("limits.{name}"), &amount);
            }
        }
        usage
    }

    fn is_counted(&self, now: Timestamp) -> bool {
        if matches!(self.status.phase.as_str(), "Succeeded" | "Failed") {
            return false;
        }
        let (Some(deletion), Some(grace)) =
            (&self.metadata.deletion_timestamp, self.metadata.deletion_grace_period_seconds)
        else {
            return true;
        };
        // A pod that should be gone long ago doesn't stand in the way of its successor.
        let end = deletion.0.checked_add(SignedDuration::from_secs(grace)).unwrap_or(Timestamp::MAX);
        now <= end
    }

    /// What all its containers take at most at one moment.
    fn total(&self, side: Side) -> Usage {
        let mut total = Usage::default();
        self.spec.containers.iter().for_each(|container| total.extend(&container.resources.get(side)));
        let (mut sidecars, mut starting) = (Usage::default(), Usage::default());
        for container in &self.spec.init_containers {
            let own = container.resources.get(side);
            if container.restart_policy == "Always" {
                total.extend(&own);
                sidecars.extend(&own);
                starting.at_least(&sidecars);
            } else {
                let mut moment = sidecars.clone();
                moment.extend(&own);
                starting.at_least(&moment);
            }
        }
        total.at_least(&starting);
        // What is said of the pod as a whole counts more.
        for (name, amount) in self.spec.resources.as_ref().map(|own| own.get(side)).unwrap_or_default().0 {
            total.0.insert(name, amount);
        }
        let overhead = Usage::read(self.spec.overhead.as_ref());
        match side {
            Side::Requests => total.extend(&overhead),
            // A limit that isn't there isn't made by what is added to it.
            Side::Limits => overhead
                .0
                .iter()
                .filter(|(name, _)| total.0.contains_key(*name))
                .collect::<Vec<_>>()
                .into_iter()
                .for_each(|(name, amount)| total.add(name, amount)),
        }
        total
    }

    /// Whether it is one of those that a scope means.
    pub fn is_in(&self, scope: &Scope) -> bool {
        let has_deadline = self.spec.active_deadline_seconds.is_some_and(|seconds| seconds >= 0);
        match scope.scope_name.as_str() {
            "Terminating" => has_deadline,
            "NotTerminating" => !has_deadline,
            "BestEffort" => self.status.qos_class == "BestEffort",
            "NotBestEffort" => self.status.qos_class != "BestEffort",
            "PriorityClass" => has_priority(&self.spec.priority_class_name, scope),
            "CrossNamespacePodAffinity" => self.spec.affinity.as_ref().is_some_and(crosses_namespaces),
            _ => false,
        }
    }
}

fn has_priority(class: &str, scope: &Scope) -> bool {
    let is_listed = scope.values.iter().flatten().any(|value| value == class);
    match scope.operator.as_str() {
        "Exists" => !class.is_empty(),
        "DoesNotExist" => class.is_empty(),
        "In" => !class.is_empty() && is_listed,
        "NotIn" => !is_listed,
        _ => false,
    }
}

/// Whether any term of an affinity speaks of other namespaces.
fn crosses_namespaces(affinity: &Affinity) -> bool {
    fn any_term(value: &Value) -> bool {
        match value {
            Value::Object(fields) => {
                let names = fields.get("namespaces").and_then(Value::as_array).is_some_and(|names| !names.is_empty());
                names || fields.contains_key("namespaceSelector") || fields.values().any(any_term)
            }
            Value::Array(items) => items.iter().any(any_term),
            _ => false,
        }
    }
    let terms = serde_json::json!([affinity.pod_affinity, affinity.pod_anti_affinity]);
    any_term(&terms)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(value: Value) -> Pod {
        serde_json::from_value(value).unwrap()
    }

    fn check(value: Value, expected: Value) {
        let usage = pod(value.clone()).usage("2026-01-01T01:00:00Z".parse().unwrap());
        let said: Value = usage.0.iter().map(|(name, amount)| (name.clone(), json!(amount.to_string()))).collect();
        assert_eq!(said, expected, "{value}");
    }

    #[test]
    fn a_pod_takes_what_its_containers_take_at_most_at_once() {
        let cpu = |amount: &str| json!({"resources": {"requests": {"cpu": amount}}});
        let sidecar = json!({"restartPolicy": "Always", "resources": {"requests": {"cpu": "50m"}}});
        check(json!({"status": {"phase": "Succeeded"}}), json!({"count/pods": "1"}));
        check(json!({}), json!({"count/pods": "1", "pods": "1"}));
        check(
            json!({"spec": {"containers": [cpu("100m"), cpu("200m")], "initContainers": [cpu("250m")]}}),
            json!({"count/pods": "1", "pods": "1", "cpu": "300m", "requests.cpu": "300m"}),
        );
        check(
            json!({"spec": {"containers": [cpu("100m")], "initContainers": [sidecar, cpu("250m")], "overhead": {"cpu": "5m"}}}),
            json!({"count/pods": "1", "pods": "1", "cpu": "305m", "requests.cpu": "305m"}),
        );
        check(
            json!({"spec": {"containers": [{"resources": {"limits": {"memory": "1Gi"}, "requests": {"example.com/gpu": "2"}}}]}}),
            json!({"count/pods": "1", "pods": "1", "limits.memory": "1Gi", "requests.example.com/gpu": "2"}),
        );
        // Should have been gone.
        let late = json!({"deletionTimestamp": "2026-01-01T00:00:30Z", "deletionGracePeriodSeconds": 30});
        check(json!({"metadata": late}), json!({"count/pods": "1"}));
    }

    #[test]
    fn scopes_choose_pods() {
        let scope = |name: &str, operator: &str, values: &[&str]| -> Scope {
            serde_json::from_value(json!({"scopeName": name, "operator": operator, "values": values})).unwrap()
        };
        let elsewhere = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "zone", "namespaces": ["other"]}]}});
        for (value, scope, is_in) in [
            (json!({"spec": {"activeDeadlineSeconds": 5}}), scope("Terminating", "Exists", &[]), true),
            (json!({}), scope("NotTerminating", "Exists", &[]), true),
            (json!({"status": {"qosClass": "BestEffort"}}), scope("BestEffort", "Exists", &[]), true),
            (json!({"status": {"qosClass": "Burstable"}}), scope("BestEffort", "Exists", &[]), false),
            (json!({"spec": {"priorityClassName": "high"}}), scope("PriorityClass", "In", &["high"]), true),
            (json!({"spec": {"priorityClassName": "low"}}), scope("PriorityClass", "In", &["high"]), false),
            (json!({}), scope("PriorityClass", "Exists", &[]), false),
            (json!({"spec": {"affinity": elsewhere}}), scope("CrossNamespacePodAffinity", "Exists", &[]), true),
            (json!({}), scope("CrossNamespacePodAffinity", "Exists", &[]), false),
        ] {
            assert_eq!(pod(value.clone()).is_in(&scope), is_in, "{value} {scope:?}");
        }
    }
}
