//! Claims of devices: pods get those that they have templates for, and leave behind none that nobody needs.
//!
//! Whether there are devices, and which, is for others to decide. A run is about a pod or about a claim, by the key that they may share:
//! what a pod lacks is made, and claims are rid of those who don't use them any more.

mod act;
mod plan;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate};
use kube::api::Api;
use setpoint_runtime::cache::{Cached, Informer};
use setpoint_runtime::controller::{Action, Context, Error, Predicate};
use setpoint_runtime::events::Recorder;
use setpoint_runtime::manager::ManagerError;
use setpoint_runtime::{Key, retry};

use crate::Wiring;
use crate::pod::Pod;
use crate::wiring::warning;

use self::plan::{Tidy, is_done, owner, used_instead, users};

/// How many are worked on at once. Same as Kubernetes.
const WORKERS: usize = 50;

/// The index of claims by the pods that they were made for, or that use them.
const BY_POD: &str = "pod";

/// Adds the controller.
pub fn add(wiring: &Wiring<'_>) -> Result<(), ManagerError> {
    let desk = wiring.desk("resourceclaim-controller")?;
    let caches = Caches { pods: wiring.pods(), claims: wiring.informer(), templates: wiring.informer() };
    caches.claims.add_index(BY_POD, |claim: &ResourceClaim| {
        let owner = owner(claim).map(|(name, _)| name.to_owned());
        let users = users(claim).map(|user| user.name.clone());
        let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
        owner.into_iter().chain(users).map(|name| Key::namespaced(namespace, &name).as_str().to_owned()).collect()
    });
    let recorder = desk.recorder.clone();
    let controller = desk
        .controller(&caches.pods, WORKERS)
        .predicate(Predicate::new(|_, pod: &Pod| !pod.spec.resource_claims.is_empty()))
        .watches(&caches.claims, |claim: &ResourceClaim| {
            let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
            let owner = owner(claim).map(|(name, _)| Key::namespaced(namespace, name));
            [Cached::key(claim)].into_iter().chain(owner).collect()
        })
        .build(move |context: Context, key: Key| reconcile(context, caches.clone(), recorder.clone(), key));
    desk.run(controller)
}

#[derive(Clone)]
struct Caches {
    pods: Informer<Pod>,
    claims: Informer<ResourceClaim>,
    templates: Informer<ResourceClaimTemplate>,
}

async fn reconcile(context: Context, caches: Caches, recorder: Recorder, key: Key) -> Result<Action, Error> {
    if let Some(pod) = context.read(&caches.pods, &key)
        && !pod.spec.resource_claims.is_empty()
        && pod.is_active()
        && let Err(refused) = act::provide(&context, &caches, &pod).await
    {
        let note = format!("PodResourceClaim {}: {}", refused.claim, refused.why);
        warning(&recorder, pod.reference(), "FailedResourceClaimCreation", "CreateClaim", note);
        return Err(refused.error);
    }
    let snapshot = caches.claims.lister().snapshot();
    let mut claims: Vec<_> = snapshot.by_index(BY_POD, key.as_str()).cloned().collect();
    claims.extend(caches.claims.lister().get(key.as_str()));
    for claim in claims {
        tidy(&context, &caches, &claim).await?;
    }
    Ok(Action::done())
}

/// Rids a claim of those who don't use it any more, and of itself if it was made for a pod that is done.
async fn tidy(context: &Context, caches: &Caches, claim: &ResourceClaim) -> Result<(), Error> {
    let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
    let mut gone = Vec::new();
    for user in users(claim) {
        if is_gone(context, caches, namespace, &user.name, &user.uid).await? {
            gone.push(user.uid.clone());
        }
    }
    let pods = caches.pods.lister();
    let is_there = |claim: &str| caches.claims.lister().get(Key::namespaced(namespace, claim).as_str()).is_some();
    let is_needless = owner(claim).is_some_and(|(name, uid)| {
        let pod = pods.get(Key::namespaced(namespace, name).as_str());
        // Of one that it was told of and that is gone it may not have been told the successor yet.
        let is_surplus = |pod: &Pod| used_instead(claim, pod).is_some_and(is_there);
        pod.is_some_and(|pod| *pod.metadata.uid != *uid || is_done(&pod) || is_surplus(&pod))
    });
    match act::tidy(context, claim, &Tidy::of(claim, &gone, is_needless)).await {
        Err(error) if retry::is_not_found(&error) => Ok(()),
        done => Ok(done?),
    }
}

/// Whether a pod uses nothing any more. One that the cache doesn't know may be there all the same.
async fn is_gone(context: &Context, caches: &Caches, namespace: &str, name: &str, uid: &str) -> Result<bool, Error> {
    if let Some(pod) = caches.pods.lister().get(Key::namespaced(namespace, name).as_str()) {
        return Ok(*pod.metadata.uid != *uid || is_done(&pod));
    }
    let pods: Api<core::Pod> = Api::namespaced(context.client().clone(), namespace);
    Ok(pods.get_metadata_opt(name).await?.is_none_or(|pod| pod.metadata.uid.as_deref() != Some(uid)))
}
