//! Who a pod of a set is: its name, its place in the order, and the labels that say so.

use k8s_openapi::api::apps::v1::StatefulSetSpec;
use k8s_openapi::api::core::v1::{PersistentVolumeClaimVolumeSource, Pod, PodTemplateSpec, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::claims;
use crate::pod;
use crate::pod_control::from_template;
use crate::revisions::REVISION_LABEL;

/// The label with a pod's name.
pub const NAME_LABEL: &str = "statefulset.kubernetes.io/pod-name";

/// The label with a pod's ordinal.
pub const INDEX_LABEL: &str = "apps.kubernetes.io/pod-index";

/// The ordinal of a pod by its name; none if it can't be of the set.
pub fn ordinal_of(set: &str, pod: &str) -> Option<i64> {
    let digits = pod.strip_prefix(set)?.strip_prefix('-')?;
    let ordinal: i32 = digits.parse().ok()?;
    // Neither a sign nor zeros in front: there is one name for each ordinal.
    (ordinal >= 0 && ordinal.to_string() == digits).then_some(i64::from(ordinal))
}

/// The name of the pod with an ordinal.
pub fn pod_name(set: &str, ordinal: i64) -> String {
    format!("{set}-{ordinal}")
}

/// Whether the pod's label says its name.
pub fn is_labelled(pod: &pod::Pod) -> bool {
    pod.metadata.labels.get(NAME_LABEL) == Some(&*pod.metadata.name)
}

/// The pod with an ordinal, as a revision of the template describes it.
pub fn new_pod(
    (set, spec): (&str, &StatefulSetSpec),
    (template, revision): (&PodTemplateSpec, &str),
    ordinal: i64,
    owner: OwnerReference,
) -> Pod {
    let mut pod = from_template(template, set, owner);
    let name = pod_name(set, ordinal);
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(NAME_LABEL.to_owned(), name.clone());
    labels.insert(INDEX_LABEL.to_owned(), ordinal.to_string());
    labels.insert(REVISION_LABEL.to_owned(), revision.to_owned());
    let described = pod.spec.get_or_insert_default();
    described.hostname = Some(name.clone());
    described.subdomain = spec.service_name.clone().filter(|service| !service.is_empty());
    let others = described.volumes.take().unwrap_or_default();
    described.volumes = Some(volumes(set, spec, ordinal, others)).filter(|volumes| !volumes.is_empty());
    pod.metadata.name = Some(name);
    pod
}

/// The volumes of a pod: its claims, and those others that no claim takes the place of.
pub fn volumes(set: &str, spec: &StatefulSetSpec, ordinal: i64, others: Vec<Volume>) -> Vec<Volume> {
    let own = claims::names(set, spec, ordinal).map(|(template, claim_name)| Volume {
        name: template.to_owned(),
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource { claim_name, read_only: None }),
        ..Volume::default()
    });
    let mut all: Vec<_> = own.collect();
    let is_other = |volume: &Volume| !all.iter().any(|own| own.name == volume.name);
    let others: Vec<_> = others.into_iter().filter(is_other).collect();
    all.extend(others);
    all
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::StatefulSet;
    use serde_json::json;

    use super::*;

    #[test]
    fn an_ordinal_is_what_follows_the_name_of_the_set() {
        for (set, pod, ordinal) in [
            ("web", "web-0", Some(0)),
            ("web", "web-12", Some(12)),
            ("web", "web-2147483647", Some(2_147_483_647)),
            ("web", "web-2147483648", None),
            ("web", "web-01", None),
            ("web", "web-+1", None),
            ("web", "web--1", None),
            ("web", "web-", None),
            ("web", "web", None),
            ("web", "web-1-2", None),
            ("web-1", "web-1-2", Some(2)),
            ("web", "db-1", None),
        ] {
            assert_eq!(ordinal_of(set, pod), ordinal, "{set} {pod}");
        }
    }

    #[test]
    fn a_pod_has_a_name_a_host_name_labels_and_its_claims() {
        let set: StatefulSet = serde_json::from_value(json!({
            "metadata": {"name": "web", "uid": "u"},
            "spec": {
                "selector": {"matchLabels": {"app": "web"}}, "serviceName": "nginx",
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [], "volumes": [
                    {"name": "data", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}]}},
                "volumeClaimTemplates": [{"metadata": {"name": "data"}}],
            },
        }))
        .unwrap();
        let spec = set.spec.as_ref().unwrap();
        let owner = setpoint_runtime::owners::controller_reference(&set).unwrap();
        let pod = new_pod(("web", spec), (&spec.template, "web-abc"), 3, owner);
        let pod = serde_json::to_value(pod).unwrap();
        assert_eq!(pod["metadata"]["name"], "web-3");
        assert_eq!(pod["metadata"]["generateName"], "web-", "it says so, though its name is not drawn");
        assert_eq!(
            pod["metadata"]["labels"],
            json!({"app": "web", NAME_LABEL: "web-3", INDEX_LABEL: "3", REVISION_LABEL: "web-abc"})
        );
        assert_eq!((&pod["spec"]["hostname"], &pod["spec"]["subdomain"]), (&json!("web-3"), &json!("nginx")));
        assert_eq!(
            pod["spec"]["volumes"],
            json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data-web-3"}}, {"name": "tmp", "emptyDir": {}}])
        );
    }
}
