//! Volumes, claims and classes of their attributes that somebody uses are not deleted before nobody does.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{self as core, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::VolumeAttributesClass;
use kube::api::{Api, ListParams};
use kube::core::Request;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use setpoint_runtime::Key;
use setpoint_runtime::cache::{Cached, Informer};
use setpoint_runtime::controller::{Action, Context, Error, Predicate};
use setpoint_runtime::finalizers::{self, Phase};
use setpoint_runtime::manager::ManagerError;

use crate::Wiring;
use crate::pod::{Pod, claims};

const CLAIM_FINALIZER: &str = "kubernetes.io/pvc-protection";
const VOLUME_FINALIZER: &str = "kubernetes.io/pv-protection";
const CLASS_FINALIZER: &str = "kubernetes.io/vac-protection";

/// How many objects are asked for at once.
const PAGE: u32 = 500;

/// Adds the controller of volumes.
pub fn add_volumes(wiring: &Wiring<'_>) -> Result<(), ManagerError> {
    let desk = wiring.desk("persistentvolume-protection-controller")?;
    let volumes: Informer<PersistentVolume> = wiring.informer();
    let cache = volumes.clone();
    let controller = desk
        .controller(&volumes, 1)
        .predicate(Predicate::new(|_, volume: &PersistentVolume| {
            matches!(finalizers::phase(volume, VOLUME_FINALIZER), Phase::Add | Phase::CleanUp)
        }))
        .build(move |context: Context, key: Key| protect_volume(context, cache.clone(), key));
    desk.run(controller)
}

async fn protect_volume(context: Context, volumes: Informer<PersistentVolume>, key: Key) -> Result<Action, Error> {
    let Some(volume) = context.read(&volumes, &key) else { return Ok(Action::done()) };
    let api: Api<PersistentVolume> = Api::all(context.client().clone());
    let is_bound = volume.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound");
    match finalizers::phase(&*volume, VOLUME_FINALIZER) {
        Phase::Add => drop(finalizers::add(&api, &*volume, VOLUME_FINALIZER).await?),
        Phase::CleanUp if !is_bound => finalizers::remove(&api, &*volume, VOLUME_FINALIZER).await?,
        Phase::CleanUp | Phase::Live | Phase::Gone => {}
    }
    Ok(Action::done())
}

/// Adds the controller of claims.
pub fn add_claims(wiring: &Wiring<'_>) -> Result<(), ManagerError> {
    let desk = wiring.desk("persistentvolumeclaim-protection-controller")?;
    let caches = Caches { claims: wiring.informer(), pods: wiring.pods() };
    claims::index(&caches.pods);
    let controller = desk
        .controller(&caches.claims, 2)
        .predicate(Predicate::new(|_, claim: &PersistentVolumeClaim| {
            matches!(finalizers::phase(claim, CLAIM_FINALIZER), Phase::Add | Phase::CleanUp)
        }))
        .watches_where(&caches.pods, may_let_go(), |pod: &Pod| pod.claims().map(|(key, _)| key).collect())
        .build(move |context: Context, key: Key| protect_claim(context, caches.clone(), key));
    desk.run(controller)
}

/// Pods that don't use their claims any more; those that are gone always pass.
fn may_let_go() -> Predicate<Pod> {
    Predicate::new(|_, pod: &Pod| !pod.spec.claims.is_empty() && (pod.has_ended() || is_shut_down(pod)))
}

#[derive(Clone)]
struct Caches {
    claims: Informer<PersistentVolumeClaim>,
    pods: Informer<Pod>,
}

async fn protect_claim(context: Context, caches: Caches, key: Key) -> Result<Action, Error> {
    let Some(claim) = context.read(&caches.claims, &key) else { return Ok(Action::done()) };
    let namespace = key.namespace().unwrap_or_default();
    let api: Api<PersistentVolumeClaim> = Api::namespaced(context.client().clone(), namespace);
    match finalizers::phase(&*claim, CLAIM_FINALIZER) {
        Phase::Add => drop(finalizers::add(&api, &*claim, CLAIM_FINALIZER).await?),
        Phase::CleanUp => {
            let pods: Vec<Arc<Pod>> =
                caches.pods.lister().snapshot().by_index(claims::BY_CLAIM, key.as_str()).cloned().collect();
            // The cache may not know a pod yet, so the server is asked before the claim goes.
            if !pods.iter().any(|pod| uses(pod, &claim)) && !is_used_now(&context, namespace, &claim).await? {
                finalizers::remove(&api, &*claim, CLAIM_FINALIZER).await?;
            }
        }
        Phase::Live | Phase::Gone => {}
    }
    Ok(Action::done())
}

/// Whether a pod that has a node uses a claim. One that has none can't start with a claim that is being deleted.
fn uses(pod: &Pod, claim: &PersistentVolumeClaim) -> bool {
    let is_its_own = || claim.controller().is_some_and(|owner| owner.uid == &*pod.metadata.uid);
    !pod.spec.node_name.is_empty()
        && pod.claims().any(|(key, is_own)| key == claim.key() && (!is_own || !is_shut_down(pod) && is_its_own()))
}

/// Whether nothing of a pod runs any more, or somebody took it away by force.
fn is_shut_down(pod: &Pod) -> bool {
    pod.is_deleting() && pod.metadata.deletion_grace_period_seconds == Some(0)
}

async fn is_used_now(context: &Context, namespace: &str, claim: &PersistentVolumeClaim) -> Result<bool, Error> {
    let path = Api::<core::Pod>::namespaced(context.client().clone(), namespace).resource_url().to_owned();
    is_any_now(context, &path, |pod: &Pod| uses(pod, claim)).await
}

/// Adds the controller of classes of volume attributes.
pub fn add_classes(wiring: &Wiring<'_>) -> Result<(), ManagerError> {
    let desk = wiring.desk("volumeattributesclass-protection-controller")?;
    let classes: Informer<VolumeAttributesClass> = wiring.informer();
    let claims: Informer<PersistentVolumeClaim> = wiring.informer();
    let volumes: Informer<PersistentVolume> = wiring.informer();
    let keys = |names: Vec<&str>| names.into_iter().map(Key::cluster).collect();
    let cache = classes.clone();
    let controller = desk
        .controller(&classes, 1)
        .predicate(Predicate::new(|_, class: &VolumeAttributesClass| {
            matches!(finalizers::phase(class, CLASS_FINALIZER), Phase::Add | Phase::CleanUp)
        }))
        .watches(&claims, move |claim| keys(classes_of_claim(claim)))
        .watches(&volumes, move |volume| keys(classes_of_volume(volume)))
        .build(move |context: Context, key: Key| protect_class(context, cache.clone(), key));
    desk.run(controller)
}

async fn protect_class(context: Context, classes: Informer<VolumeAttributesClass>, key: Key) -> Result<Action, Error> {
    let Some(class) = context.read(&classes, &key) else { return Ok(Action::done()) };
    let api: Api<VolumeAttributesClass> = Api::all(context.client().clone());
    match finalizers::phase(&*class, CLASS_FINALIZER) {
        Phase::Add => drop(finalizers::add(&api, &*class, CLASS_FINALIZER).await?),
        Phase::CleanUp if !is_class_used_now(&context, key.name()).await? => {
            finalizers::remove(&api, &*class, CLASS_FINALIZER).await?;
        }
        Phase::CleanUp | Phase::Live | Phase::Gone => {}
    }
    Ok(Action::done())
}

/// Whether a volume or a claim names a class. Classes go rarely, so the server is asked: a cache may not know all of them yet.
async fn is_class_used_now(context: &Context, class: &str) -> Result<bool, Error> {
    let claims = Api::<PersistentVolumeClaim>::all(context.client().clone()).resource_url().to_owned();
    let volumes = Api::<PersistentVolume>::all(context.client().clone()).resource_url().to_owned();
    Ok(is_any_now(context, &volumes, |volume| classes_of_volume(volume).contains(&class)).await?
        || is_any_now(context, &claims, |claim| classes_of_claim(claim).contains(&class)).await?)
}

/// The classes that a claim asks for, has, or is on its way to.
fn classes_of_claim(claim: &PersistentVolumeClaim) -> Vec<&str> {
    let status = claim.status.as_ref();
    let asked = claim.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.as_deref());
    let current = status.and_then(|status| status.current_volume_attributes_class_name.as_deref());
    let change = status.and_then(|status| status.modify_volume_status.as_ref());
    let target = change.and_then(|change| change.target_volume_attributes_class_name.as_deref());
    [asked, current, target].into_iter().flatten().filter(|name| !name.is_empty()).collect()
}

fn classes_of_volume(volume: &PersistentVolume) -> Vec<&str> {
    let name = volume.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.as_deref());
    name.into_iter().filter(|name| !name.is_empty()).collect()
}

#[derive(Deserialize)]
struct Page<K> {
    metadata: kube::core::ListMeta,
    items: Vec<K>,
}

/// Whether there is such an object on the server now.
async fn is_any_now<K: DeserializeOwned>(
    context: &Context,
    path: &str,
    is_one: impl Fn(&K) -> bool,
) -> Result<bool, Error> {
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let request = Request::new(path).list(&params).map_err(kube::Error::BuildRequest)?;
        let page: Page<K> = context.client().request(request).await?;
        if page.items.iter().any(&is_one) {
            return Ok(true);
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_claim_is_used_by_pods_that_have_a_node() {
        let claim: PersistentVolumeClaim =
            serde_json::from_value(json!({"metadata": {"namespace": "shop", "name": "web-c",
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "u", "controller": true}]}}))
            .unwrap();
        let named = json!([{"name": "x", "persistentVolumeClaim": {"claimName": "web-c"}}]);
        let own = json!([{"name": "c", "ephemeral": {}}]);
        let shut = json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0});
        for (volumes, node, uid, more, used) in [
            (&named, "n", "u", json!({}), true),
            (&named, "", "u", json!({}), false),
            (&named, "n", "other", shut.clone(), true),
            (&own, "n", "u", json!({}), true),
            (&own, "n", "u", shut.clone(), false),
            (&own, "n", "other", json!({}), false),
            (&json!([]), "n", "u", json!({}), false),
        ] {
            let mut metadata = json!({"namespace": "shop", "name": "web", "uid": uid});
            let Value::Object(more) = more else { unreachable!() };
            metadata.as_object_mut().unwrap().extend(more);
            let pod: Pod =
                serde_json::from_value(json!({"metadata": metadata, "spec": {"nodeName": node, "volumes": volumes}}))
                    .unwrap();
            assert_eq!(uses(&pod, &claim), used, "{volumes} {node} {uid}");
        }
    }
}
