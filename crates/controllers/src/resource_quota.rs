//! Quotas say how much of what they limit is used.

mod objects;
mod plan;
mod pods;
mod usage;

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, ResourceQuota, Service};
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use setpoint_runtime::Key;
use setpoint_runtime::cache::{Cached, Informer};
use setpoint_runtime::controller::{Action, Context, Error, Predicate};
use setpoint_runtime::manager::ManagerError;
use setpoint_runtime::retry;

use self::plan::Counter;
use self::usage::Usage;
use crate::Wiring;
use crate::pod::Pod;

/// How often objects are counted that no cache tells about.
const COUNT_AGAIN: Duration = Duration::from_secs(30);

/// How often pods are looked at that are long overdue: only time tells that they don't count any more.
const LOOK_AGAIN: Duration = Duration::from_secs(300);

/// Adds the controller.
pub fn add(wiring: &Wiring<'_>) -> Result<(), ManagerError> {
    let desk = wiring.desk("resourcequota-controller")?;
    let caches = Caches {
        quotas: wiring.informer(),
        pods: wiring.pods(),
        services: wiring.informer(),
        claims: wiring.informer(),
    };
    let of = |quotas: &Informer<ResourceQuota>| {
        let quotas = quotas.clone();
        move |namespace: Option<&str>| -> Vec<Key> {
            let quotas = quotas.lister().snapshot();
            quotas.namespace(namespace.unwrap_or_default()).map(|quota| quota.key()).collect()
        }
    };
    let (of_pod, of_service, of_claim) = (of(&caches.quotas), of(&caches.quotas), of(&caches.quotas));
    let counted = Predicate::new(|old: Option<&Pod>, pod: &Pod| {
        old.is_none_or(|old| old.has_ended() != pod.has_ended() || old.metadata.generation != pod.metadata.generation)
    });
    let controller = desk
        .controller(&caches.quotas, 5)
        .watches_where(&caches.pods, counted, move |pod: &Pod| of_pod(Some(&pod.metadata.namespace)))
        .watches(&caches.services, move |service: &Service| of_service(service.metadata.namespace.as_deref()))
        .watches(&caches.claims, move |claim: &PersistentVolumeClaim| of_claim(claim.metadata.namespace.as_deref()))
        .build(move |context: Context, key: Key| reconcile(context, caches.clone(), key));
    desk.run(controller)
}

#[derive(Clone)]
struct Caches {
    quotas: Informer<ResourceQuota>,
    pods: Informer<Pod>,
    services: Informer<Service>,
    claims: Informer<PersistentVolumeClaim>,
}

/// Counts anew. Everything is asked of the server, never of a cache: what a quota says of itself is as new as what it was charged
/// for, and a count that is older would give away what is taken.
async fn reconcile(context: Context, caches: Caches, key: Key) -> Result<Action, Error> {
    let Some(quota) = context.read(&caches.quotas, &key) else { return Ok(Action::done()) };
    let namespace = key.namespace().unwrap_or_default();
    let hard = quota.spec.as_ref().and_then(|spec| spec.hard.clone()).unwrap_or_default();
    let counters: BTreeSet<Counter> = hard.keys().filter_map(|name| plan::counter(name)).collect();
    let scopes = plan::scopes(&quota);
    let (mut used, mut unknown, mut again) = (Usage::default(), BTreeSet::new(), None::<Duration>);
    for counter in counters {
        match &counter {
            Counter::Pods => {
                let now = context.clock().wall();
                let pods = objects::pods(context.client(), namespace).await?;
                let meant = pods.iter().filter(|pod| scopes.iter().all(|scope| pod.is_in(scope)));
                meant.for_each(|pod| used.extend(&pod.usage(now)));
                if caches.pods.lister().snapshot().namespace(namespace).any(|pod| pod.is_deleting()) {
                    again = Some(again.map_or(LOOK_AGAIN, |again| again.min(LOOK_AGAIN)));
                }
            }
            Counter::Claims => {
                let claims: Vec<PersistentVolumeClaim> = objects::all(context.client(), namespace).await?;
                let meant = claims.iter().filter(|claim| scopes.iter().all(|scope| usage::is_in(claim, scope)));
                meant.for_each(|claim| used.extend(&usage::of_claim(claim)));
            }
            // Other scopes are about pods: quotas with scopes count nothing else.
            _ if !scopes.is_empty() => {}
            Counter::Services => {
                let services: Vec<Service> = objects::all(context.client(), namespace).await?;
                services.iter().for_each(|service| used.extend(&usage::of_service(service)));
            }
            Counter::Devices => {
                again = Some(COUNT_AGAIN);
                let claims: Vec<ResourceClaim> = objects::all(context.client(), namespace).await?;
                claims.iter().for_each(|claim| used.extend(&usage::of_device_claim(claim)));
            }
            Counter::Objects(plural, group) => {
                again = Some(COUNT_AGAIN);
                let name = if group.is_empty() { format!("count/{plural}") } else { format!("count/{plural}.{group}") };
                match objects::count(context.client(), namespace, plural, group).await? {
                    Some(many) => {
                        used.count(&name, many);
                        used.count(plural, many);
                    }
                    None => drop(unknown.insert(name)),
                }
            }
        }
    }
    let is_counted = |name: &str| plan::counter(name).is_some() && !unknown.contains(name);
    if let Some((hard, used)) = plan::status(&quota, &used, is_counted) {
        write(&context, &quota, json!({"hard": hard, "used": used})).await?;
    }
    Ok(again.map_or(Action::done(), Action::requeue_after))
}

/// Writes the whole status of this version of a quota.
async fn write(context: &Context, quota: &ResourceQuota, mut status: serde_json::Value) -> Result<(), Error> {
    // Names that aren't limited any more are taken away.
    let known = json!(quota.status);
    for part in ["hard", "used"] {
        for name in known[part].as_object().into_iter().flat_map(|amounts| amounts.keys()) {
            if status[part].get(name).is_none() {
                status[part][name] = serde_json::Value::Null;
            }
        }
    }
    let patch = json!({"metadata": {"resourceVersion": quota.metadata.resource_version}, "status": status});
    let key = quota.key();
    let api: Api<ResourceQuota> = Api::namespaced(context.client().clone(), key.namespace().unwrap_or_default());
    match api.patch_status(key.name(), &PatchParams::default(), &Patch::Merge(patch)).await {
        Err(error) if retry::is_not_found(&error) => Ok(()),
        other => Ok(other.map(drop)?),
    }
}
