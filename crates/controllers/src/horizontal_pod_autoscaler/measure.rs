//! What metrics propose: which pods count, what they use, and what is said when that can't be told.

use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::api::autoscaling::v2::{
    ContainerResourceMetricStatus, ExternalMetricSource, MetricSpec, MetricStatus, MetricTarget, MetricValueStatus,
    ResourceMetricStatus,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use kube::api::ListParams;
use kube::core::Request;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use setpoint_api::labels::Selector;
use setpoint_api::quantity::{Format, Quantity};
use setpoint_runtime::retry;

use super::Look;
use super::calculate::{Metric, Proposal, Target, Tolerances};
use super::status::ACTIVE;
use super::usage::{Measured, Worker};
use crate::claim::Claimable;
use crate::pod_control::message;
use crate::selector;

impl Look<'_> {
    /// The highest proposal of all metrics, and the name of its metric.
    pub(super) async fn measure(
        &mut self,
        scale: &Scale,
        current: i32,
    ) -> Result<(i32, String, Vec<MetricStatus>), (String, Vec<MetricStatus>)> {
        let selector = self.selector(scale).map_err(|why| (why, Vec::new()))?;
        let specs = self.autoscaler.spec.metrics.as_deref().unwrap_or_default();
        let (mut best, mut name, mut metrics, mut failures) = (0, String::new(), Vec::new(), Vec::new());
        for spec in specs {
            match self.by_metric(spec, &selector, current).await {
                Ok((proposed, of, status)) => {
                    metrics.push(status);
                    if best == 0 || proposed > best {
                        (best, name) = (proposed, of);
                    }
                }
                Err(failure) => {
                    // What is not known has no name either.
                    metrics.push(MetricStatus::default());
                    failures.push(failure);
                }
            }
        }
        if let Some((reason, condition, why)) = failures.first() {
            let why =
                format!("invalid metrics ({} invalid out of {}), first error is: {why}", failures.len(), specs.len());
            if failures.len() >= specs.len() || best < current {
                self.report.say(
                    ACTIVE,
                    false,
                    reason,
                    format!("the HPA was unable to compute the replica count: {condition}"),
                );
                return Err((why, metrics));
            }
        }
        let message = format!("the HPA was able to successfully calculate a replica count from {name}");
        self.report.say(ACTIVE, true, "ValidMetricFound", message);
        Ok((best, name, metrics))
    }

    /// Which pods there are by the scale; they must be those of no other autoscaler.
    fn selector(&mut self, scale: &Scale) -> Result<String, String> {
        let text = scale.status.as_ref().and_then(|status| status.selector.clone()).unwrap_or_default();
        if text.is_empty() {
            self.warn("SelectorRequired", "selector is required".to_owned());
            self.report.say(ACTIVE, false, "InvalidSelector", "the HPA target's scale is missing a selector");
            return Err("selector is required".to_owned());
        }
        let fail = |look: &mut Self, reason, why: String| {
            look.warn(reason, why.clone());
            look.report.say(ACTIVE, false, reason, why.clone());
            Err(why)
        };
        let selector = match Selector::parse(&text) {
            Ok(selector) => selector,
            Err(error) => {
                let why = format!("couldn't convert selector into a corresponding internal selector object: {error}");
                return fail(self, "InvalidSelector", why);
            }
        };
        let others = self.others(&selector);
        if others.len() > 1 {
            let why = format!("pods by selector {text} are controlled by multiple HPAs: [{}]", others.join(" "));
            return fail(self, "AmbiguousSelector", why);
        }
        Ok(text)
    }

    /// All autoscalers, this one too, that are for the pods of a selector.
    fn others(&self, selector: &Selector) -> Vec<String> {
        let mut known = self.keeper.known();
        known.entry(self.key.clone()).or_default().selector = Some(selector.clone());
        let pods = self.keeper.pods.lister().snapshot();
        let namespace = self.key.namespace().unwrap_or_default();
        let mine: Vec<_> = pods.namespace(namespace).filter(|pod| pod.is_selected(selector)).collect();
        let same = known.iter().filter(|(key, known)| {
            let selects = |other: &Selector| mine.iter().any(|pod| pod.is_selected(other));
            key.namespace() == self.key.namespace() && known.selector.as_ref().is_some_and(selects)
        });
        same.map(|(key, _)| key.to_string()).collect()
    }

    /// What one metric proposes. If it can't: the reason, what the condition says, and what the event says.
    async fn by_metric(
        &mut self,
        spec: &MetricSpec,
        selector: &str,
        current: i32,
    ) -> Result<(i32, String, MetricStatus), (&'static str, String, String)> {
        let tolerances = Tolerances::of(self.autoscaler.spec.behavior.as_ref());
        let of = |resource, container, target| Metric { resource, container, target, tolerances };
        if let Some(source) = spec.resource.as_ref().filter(|_| spec.type_ == "Resource") {
            let name = format!("{} resource utilization (percentage of request)", source.name);
            let answer =
                self.by_resource(&source.target, selector, current, |target| of(&source.name, None, target)).await;
            return match answer {
                Ok(found) => Ok((
                    found.replicas,
                    named(&found, &source.name, name),
                    MetricStatus {
                        type_: spec.type_.clone(),
                        resource: Some(ResourceMetricStatus {
                            name: source.name.clone(),
                            current: value(&source.name, &found),
                        }),
                        ..MetricStatus::default()
                    },
                )),
                Err(why) => {
                    let said = format!("failed to get {} resource metric value: {why}", source.name);
                    Err(self.no_metric("FailedGetResourceMetric", why, said))
                }
            };
        }
        if let Some(source) = spec.container_resource.as_ref().filter(|_| spec.type_ == "ContainerResource") {
            let container = Some(source.container.as_str());
            let name = format!("{} container resource utilization (percentage of request)", source.name);
            let answer =
                self.by_resource(&source.target, selector, current, |target| of(&source.name, container, target)).await;
            return match answer {
                Ok(found) => Ok((
                    found.replicas,
                    named(&found, &source.name, name),
                    MetricStatus {
                        type_: spec.type_.clone(),
                        container_resource: Some(ContainerResourceMetricStatus {
                            name: source.name.clone(),
                            container: source.container.clone(),
                            current: value(&source.name, &found),
                        }),
                        ..MetricStatus::default()
                    },
                )),
                Err(why) => {
                    let said = format!("failed to get {} container metric value: {why}", source.container);
                    Err(self.no_metric("FailedGetContainerResourceMetric", why, said))
                }
            };
        }
        Err(self.unserved(spec))
    }

    /// Metrics that come from APIs which no server here has.
    fn unserved(&mut self, spec: &MetricSpec) -> (&'static str, String, String) {
        let missing =
            "unable to fetch metrics from custom metrics API: no custom metrics API (custom.metrics.k8s.io) registered";
        match spec.type_.as_str() {
            "Pods" => {
                let name = spec.pods.as_ref().map_or("", |pods| &pods.metric.name);
                let why = format!("unable to get metric {name}: {missing}");
                let said = format!("failed to get pods metric value: {why}");
                self.no_metric("FailedGetPodsMetric", why, said)
            }
            "Object" => {
                let (name, kind, object) = spec.object.as_ref().map_or(("", "", ""), |object| {
                    (&object.metric.name, &object.described_object.kind, &object.described_object.name)
                });
                let namespace = self.key.namespace().unwrap_or_default();
                let why = format!("unable to get metric {name}: {kind} on {namespace} {object}/{missing}");
                let said = format!("failed to get object metric value: {why}");
                self.no_metric("FailedGetObjectMetric", why, said)
            }
            "External" => {
                let namespace = self.key.namespace().unwrap_or_default();
                let (why, said) = unserved_external(namespace, &spec.external.clone().unwrap_or_default());
                self.no_metric("FailedGetExternalMetric", why, said)
            }
            other => {
                let why = format!("unknown metric source type {other:?}invalid spec");
                self.no_metric("InvalidMetricSourceType", why.clone(), why)
            }
        }
    }

    fn no_metric(&mut self, reason: &'static str, why: String, said: String) -> (&'static str, String, String) {
        self.warn(reason, why.clone());
        (reason, why, said)
    }

    async fn by_resource<'m>(
        &self,
        target: &MetricTarget,
        selector: &str,
        current: i32,
        metric: impl Fn(Target) -> Metric<'m>,
    ) -> Result<Proposal, String> {
        let average = target.average_value.as_ref().and_then(|text| Quantity::parse(&text.0).ok());
        let (metric, what) = match (average, target.average_utilization) {
            (Some(average), _) => (metric(Target::Average(average.milli_value())), "usage"),
            (None, Some(percent)) => (metric(Target::Utilization(percent)), "utilization"),
            (None, None) => {
                return Err("invalid resource metric source: neither an average utilization target nor an average value (usage) target was set".to_owned());
            }
        };
        let propose = async {
            let measured = self
                .measured(selector)
                .await
                .map_err(|why| format!("unable to get metrics for resource {}: {why}", metric.resource))?;
            let pods = self.workers(selector).await.map_err(|error| message(&error))?;
            metric.propose(current, &pods, measured.of(metric.resource, metric.container), self.now)
        };
        propose.await.map_err(|why| format!("failed to get {} {what}: {why}", metric.resource))
    }

    async fn measured(&self, selector: &str) -> Result<Measured, String> {
        let path = format!("/apis/metrics.k8s.io/v1beta1/namespaces/{}/pods", self.key.namespace().unwrap_or_default());
        let answer: Result<Measured, kube::Error> = self.list(&path, selector).await;
        let unable = |why: &str| format!("unable to fetch metrics from resource metrics API: {why}");
        match answer {
            Err(error) if retry::is_not_found(&error) => {
                Err(unable("the server could not find the requested resource (get pods.metrics.k8s.io)"))
            }
            Err(error) => Err(unable(&message(&error))),
            Ok(measured) if measured.items.is_empty() => {
                Err("no metrics returned from resource metrics API".to_owned())
            }
            Ok(measured) => Ok(measured),
        }
    }

    /// The pods with what they asked for, which no cache knows.
    async fn workers(&self, selector: &str) -> Result<Vec<Worker>, kube::Error> {
        #[derive(Deserialize)]
        struct List {
            items: Vec<Worker>,
        }
        let path = format!("/api/v1/namespaces/{}/pods", self.key.namespace().unwrap_or_default());
        Ok(self.list::<List>(&path, selector).await?.items)
    }

    async fn list<T: DeserializeOwned>(&self, path: &str, selector: &str) -> Result<T, kube::Error> {
        let params = ListParams::default().labels(selector);
        let request = Request::new(path).list(&params).map_err(kube::Error::BuildRequest)?;
        self.context.client().request(request).await
    }
}

/// What a metric is called in conditions and events.
fn named(found: &Proposal, resource: &str, by_percent: String) -> String {
    if found.utilization.is_some() { by_percent } else { format!("{resource} resource") }
}

fn value(resource: &str, found: &Proposal) -> MetricValueStatus {
    let format = if resource == "memory" { Format::BinarySi } else { Format::DecimalSi };
    MetricValueStatus {
        average_utilization: found.utilization,
        average_value: Some(Text(Quantity::from_milli(found.average, format).to_string())),
        value: None,
    }
}

/// Why a metric from outside can't be had: what the condition says, and what the event says.
fn unserved_external(namespace: &str, source: &ExternalMetricSource) -> (String, String) {
    let name = &source.metric.name;
    let selector = source.metric.selector.as_ref().map_or_else(|| "nil".to_owned(), selector::as_printed);
    let why = format!(
        "unable to get external metric {namespace}/{name}/{selector}: unable to fetch metrics from external metrics API: \
         the server could not find the requested resource (get {name}.external.metrics.k8s.io)"
    );
    let tried = match source.target.average_value {
        Some(_) => format!("failed to get {name} external metric"),
        None => format!("failed to get external metric {name}"),
    };
    let said = format!("failed to get {name} external metric value: {tried}: {why}");
    (why, said)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_metric_from_outside_is_told_with_its_selector() {
        let told = |source| unserved_external("shop", &serde_json::from_value(source).unwrap());
        let missing = "unable to fetch metrics from external metrics API: the server could not find the requested resource \
                       (get q.external.metrics.k8s.io)";
        let (why, said) = told(json!({"metric": {"name": "q"}, "target": {"type": "Value", "value": "1"}}));
        assert_eq!(why, format!("unable to get external metric shop/q/nil: {missing}"));
        assert_eq!(said, format!("failed to get q external metric value: failed to get external metric q: {why}"));
        let selector = json!({"matchLabels": {"a": "b"}});
        let target = json!({"type": "AverageValue", "averageValue": "1"});
        let (why, said) = told(json!({"metric": {"name": "q", "selector": selector}, "target": target}));
        let shown =
            "&LabelSelector{MatchLabels:map[string]string{a: b,},MatchExpressions:[]LabelSelectorRequirement{},}";
        assert_eq!(why, format!("unable to get external metric shop/q/{shown}: {missing}"));
        assert_eq!(said, format!("failed to get q external metric value: failed to get q external metric: {why}"));
    }
}
