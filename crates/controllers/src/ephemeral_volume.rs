//! Pods that bring volumes of their own get a claim for each; it goes with the pod.

use k8s_openapi::api::core::v1::{self as core, PersistentVolumeClaim, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, ObjectMeta, PostParams};
use setpoint_runtime::cache::{Cached, Informer};
use setpoint_runtime::controller::{Action, Context, Error, Predicate};
use setpoint_runtime::events::Recorder;
use setpoint_runtime::manager::ManagerError;
use setpoint_runtime::{Key, retry};

use crate::Wiring;
use crate::pod::{Pod, claims};
use crate::pod_control::{is_namespace_terminating, message};
use crate::wiring::warning;

/// How many pods are worked on at once. Same as Kubernetes.
const WORKERS: usize = 5;

/// Adds the controller.
pub fn add(wiring: &Wiring<'_>) -> Result<(), ManagerError> {
    let desk = wiring.desk("ephemeral-volume-controller")?;
    let caches = Caches { pods: wiring.pods(), claims: wiring.informer() };
    claims::index(&caches.pods);
    let (pods, recorder) = (caches.pods.clone(), desk.recorder.clone());
    let controller = desk
        .controller(&caches.pods, WORKERS)
        .predicate(Predicate::new(|old: Option<&Pod>, new: &Pod| old.is_none() && brings_volumes(new)))
        // Only one that is gone is of interest: it has to be made again, or its name is free at last.
        .watches_where(&caches.claims, Predicate::new(|_, _| false), move |claim: &PersistentVolumeClaim| {
            let (snapshot, key) = (pods.lister().snapshot(), Cached::key(claim));
            let users = snapshot.by_index(claims::BY_CLAIM, key.as_str());
            users.filter(|pod| brings_volumes(pod)).map(|pod| pod.key()).collect()
        })
        .build(move |context: Context, key: Key| reconcile(context, caches.clone(), recorder.clone(), key));
    desk.run(controller)
}

#[derive(Clone)]
struct Caches {
    pods: Informer<Pod>,
    claims: Informer<PersistentVolumeClaim>,
}

/// Whether a pod that stays has volumes of its own.
fn brings_volumes(pod: &Pod) -> bool {
    !pod.is_deleting() && pod.claims().any(|(_, is_own)| is_own)
}

async fn reconcile(context: Context, caches: Caches, recorder: Recorder, key: Key) -> Result<Action, Error> {
    let Some(pod) = context.read(&caches.pods, &key).filter(|pod| brings_volumes(pod)) else {
        return Ok(Action::done());
    };
    let own = pod.claims().filter(|(_, is_own)| *is_own);
    let found: Vec<_> = own.map(|(claim, _)| (caches.claims.lister().get(claim.as_str()), claim)).collect();
    if found.iter().all(|(claim, _)| claim.as_deref().is_some_and(|claim| is_of(claim, &pod))) {
        return Ok(Action::done());
    }
    // The cache keeps no templates, and may be behind: whose pod is gone needs no claim.
    let namespace = key.namespace().unwrap_or_default();
    let pods: Api<core::Pod> = Api::namespaced(context.client().clone(), namespace);
    let Some(live) = pods.get_opt(key.name()).await?.filter(|live| is_the_same(live, &pod)) else {
        return Ok(Action::done());
    };
    let volumes = live.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    for (volume, wanted) in volumes.filter_map(|volume| Some((volume, plan(&pod, volume)?))) {
        let name = wanted.metadata.name.clone().unwrap_or_default();
        let known = caches.claims.lister().get(Key::namespaced(namespace, &name).as_str());
        if let Err(why) = provide(&context, &pod, known.as_deref(), &wanted).await {
            let note = format!("ephemeral volume {}: {why}", volume.name);
            warning(&recorder, pod.reference(), "FailedBinding", "CreateClaim", note.clone());
            return Err(why.into_error(format!("pod {key}, {note}")));
        }
    }
    Ok(Action::done())
}

fn is_the_same(live: &core::Pod, pod: &Pod) -> bool {
    live.metadata.uid.as_deref() == Some(&*pod.metadata.uid) && live.metadata.deletion_timestamp.is_none()
}

/// Whether a claim was made for a pod, and not for another of the same name or by somebody else.
fn is_of(claim: &PersistentVolumeClaim, pod: &Pod) -> bool {
    claim.controller().is_some_and(|owner| owner.uid == &*pod.metadata.uid)
}

/// The claim that a volume of a pod needs; none if it isn't of that kind.
fn plan(pod: &Pod, volume: &Volume) -> Option<PersistentVolumeClaim> {
    let template = volume.ephemeral.as_ref()?.volume_claim_template.as_ref()?;
    let described = template.metadata.clone().unwrap_or_default();
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        name: pod.metadata.name.to_string(),
        uid: pod.metadata.uid.to_string(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    };
    Some(PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(format!("{}-{}", pod.metadata.name, volume.name)),
            namespace: Some(pod.metadata.namespace.to_string()),
            labels: described.labels,
            annotations: described.annotations,
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: Some(template.spec.clone()),
        status: None,
    })
}

/// Why a pod doesn't get a claim.
enum Refusal {
    /// There is one of this name that is somebody else's.
    Foreign(String),
    Api(kube::Error),
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Refusal::Foreign(why) => out.write_str(why),
            Refusal::Api(error) => out.write_str(&message(error)),
        }
    }
}

impl Refusal {
    fn into_error(self, said: String) -> Error {
        match self {
            // Nothing that time mends: the deletion of that claim wakes the pod.
            Refusal::Foreign(_) => Error::terminal(said),
            Refusal::Api(error) => error.into(),
        }
    }
}

/// Makes a claim, unless it is there.
async fn provide(
    context: &Context,
    pod: &Pod,
    known: Option<&PersistentVolumeClaim>,
    wanted: &PersistentVolumeClaim,
) -> Result<(), Refusal> {
    let (namespace, name) = (&*pod.metadata.namespace, wanted.metadata.name.as_deref().unwrap_or_default());
    let judge = |claim: &PersistentVolumeClaim| match is_of(claim, pod) {
        true => Ok(()),
        false => Err(Refusal::Foreign(format!(
            "PVC {namespace}/{name} was not created for pod {namespace}/{} (pod is not owner)",
            pod.metadata.name
        ))),
    };
    if let Some(known) = known {
        return judge(known);
    }
    let api: Api<PersistentVolumeClaim> = Api::namespaced(context.client().clone(), namespace);
    match api.create(&PostParams::default(), wanted).await {
        Ok(_) => Ok(()),
        Err(error) if is_namespace_terminating(&error) => Ok(()),
        // The cache is behind: whose it is has to be looked up.
        Err(error) if retry::is_already_exists(&error) => match api.get_opt(name).await.map_err(Refusal::Api)? {
            Some(found) => judge(&found),
            None => Err(Refusal::Api(error)),
        },
        Err(error) => Err(Refusal::Api(error)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod() -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "web", "namespace": "shop", "uid": "u"}})).unwrap()
    }

    #[test]
    fn a_claim_has_the_name_and_the_owner_by_which_it_goes_with_its_pod() {
        let template = json!({"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
        let volume = |source: Value| -> Volume {
            let mut volume = json!({"name": "scratch"});
            volume.as_object_mut().unwrap().extend(source.as_object().unwrap().clone());
            serde_json::from_value(volume).unwrap()
        };
        let planned = plan(&pod(), &volume(json!({"ephemeral": {"volumeClaimTemplate": template}}))).unwrap();
        assert_eq!(
            serde_json::to_value(planned).unwrap(),
            json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": {"name": "web-scratch", "namespace": "shop", "labels": {"a": "b"}, "annotations": {"c": "d"},
                    "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "u", "controller": true,
                        "blockOwnerDeletion": true}]},
                "spec": template["spec"]})
        );
        for other in [json!({"emptyDir": {}}), json!({"persistentVolumeClaim": {"claimName": "x"}})] {
            assert_eq!(plan(&pod(), &volume(other.clone())), None, "{other}");
        }
    }

    #[test]
    fn a_claim_is_a_pods_own_only_if_that_very_pod_controls_it() {
        for (uid, controls, is_own) in [("u", true, true), ("u", false, false), ("earlier", true, false)] {
            let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": uid, "controller": controls});
            let claim = json!({"metadata": {"name": "web-scratch", "ownerReferences": [owner]}});
            assert_eq!(is_of(&serde_json::from_value(claim).unwrap(), &pod()), is_own, "{uid} {controls}");
        }
    }
}
