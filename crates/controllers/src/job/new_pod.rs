//! The pod that a Job makes.

use std::sync::Arc;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Container, EnvVar, EnvVarSource, ObjectFieldSelector, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::member::{COMPLETION_INDEX, INDEX_FAILURES, INDEX_FAILURES_IGNORED, Member, TRACKING};
use super::spec::Spec;
use crate::pod;
use crate::pod_control::from_template;

/// The variable that tells a container its index.
const INDEX_VARIABLE: &str = "JOB_COMPLETION_INDEX";

/// The longest start of a name that the server completes.
const NAME_STEM_MAX: usize = 58;

/// A pod of a Job that has no indexes.
pub fn plain(job: &Job, owner: OwnerReference) -> Option<Pod> {
    let name = job.metadata.name.as_deref()?;
    let mut pod = from_template(&job.spec.as_ref()?.template, name, owner);
    let finalizers = pod.metadata.finalizers.get_or_insert_default();
    if !finalizers.iter().any(|finalizer| finalizer == TRACKING) {
        finalizers.push(TRACKING.to_owned());
    }
    Some(pod)
}

/// The pod of an index, in the place of one that failed if there is one.
pub fn indexed(
    job: &Job,
    spec: &Spec<'_>,
    owner: OwnerReference,
    index: i64,
    before: Option<&Arc<pod::Pod>>,
) -> Option<Pod> {
    let name = job.metadata.name.as_deref()?;
    let mut pod = plain(job, owner)?;
    pod.metadata.generate_name = Some(name_stem(name, index));
    pod.metadata.labels.get_or_insert_default().insert(COMPLETION_INDEX.to_owned(), index.to_string());
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert(COMPLETION_INDEX.to_owned(), index.to_string());
    if spec.backoff_limit_per_index.is_some() {
        let (counted, ignored) = before.map_or((0, 0), |before| failures_after(spec, before));
        annotations.insert(INDEX_FAILURES.to_owned(), counted.to_string());
        if ignored > 0 {
            annotations.insert(INDEX_FAILURES_IGNORED.to_owned(), ignored.to_string());
        }
    }
    let pod_spec = pod.spec.as_mut()?;
    pod_spec.hostname = Some(format!("{name}-{index}"));
    pod_spec.containers.iter_mut().for_each(tell_index);
    pod_spec.init_containers.iter_mut().flatten().for_each(tell_index);
    Some(pod)
}

/// How often an index failed, and how many of these failures were ignored, now that this pod failed too.
fn failures_after(spec: &Spec<'_>, pod: &pod::Pod) -> (i32, i32) {
    let (counted, ignored) = pod.failures_before();
    match spec.consequence(pod).counts() {
        true => (counted.saturating_add(1), ignored),
        false => (counted, ignored.saturating_add(1)),
    }
}

fn tell_index(container: &mut Container) {
    let variables = container.env.get_or_insert_default();
    if variables.iter().any(|variable| variable.name == INDEX_VARIABLE) {
        return;
    }
    let field =
        ObjectFieldSelector { field_path: format!("metadata.labels['{COMPLETION_INDEX}']"), ..Default::default() };
    let source = EnvVarSource { field_ref: Some(field), ..EnvVarSource::default() };
    variables.push(EnvVar { name: INDEX_VARIABLE.to_owned(), value_from: Some(source), ..EnvVar::default() });
}

fn name_stem(job: &str, index: i64) -> String {
    let end = format!("-{index}-");
    let room = NAME_STEM_MAX.saturating_sub(end.len()).min(job.len());
    format!("{}{end}", job.get(..room).unwrap_or(job))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_of_an_index_knows_it_in_five_ways() {
        let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "main"}]}});
        let spec =
            json!({"completionMode": "Indexed", "completions": 3, "backoffLimitPerIndex": 2, "template": template});
        let job: Job = serde_json::from_value(json!({"metadata": {"name": "sum", "uid": "u"}, "spec": spec})).unwrap();
        let failed = json!({"metadata": {"name": "sum-2-x", "annotations": {INDEX_FAILURES: "1"}}});
        let failed: Arc<pod::Pod> = Arc::new(serde_json::from_value(failed).unwrap());
        let pod = indexed(&job, &Spec::of(&job).unwrap(), OwnerReference::default(), 2, Some(&failed)).unwrap();
        let pod = serde_json::to_value(pod).unwrap();
        assert_eq!(pod["metadata"]["generateName"], "sum-2-");
        assert_eq!(pod["metadata"]["finalizers"], json!([TRACKING]));
        assert_eq!(pod["metadata"]["labels"], json!({"a": "b", COMPLETION_INDEX: "2"}));
        assert_eq!(pod["metadata"]["annotations"], json!({COMPLETION_INDEX: "2", INDEX_FAILURES: "2"}));
        assert_eq!(pod["spec"]["hostname"], "sum-2");
        let path = "metadata.labels['batch.kubernetes.io/job-completion-index']";
        let variable = json!({"name": INDEX_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": path}}});
        assert_eq!(pod["spec"]["containers"][0]["env"], json!([variable]));
    }

    #[test]
    fn a_long_name_is_cut_before_the_index() {
        let stem = name_stem(&"x".repeat(63), 12);
        assert_eq!((stem.len(), stem.ends_with("x-12-")), (58, true));
        assert_eq!(name_stem("short", 0), "short-0-");
    }
}
