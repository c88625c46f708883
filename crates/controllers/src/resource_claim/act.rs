//! Makes claims, tells pods of them, and writes who uses them.

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimConsumerReference};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use serde_json::{Value, json};
use setpoint_runtime::Key;
use setpoint_runtime::controller::{Context, Error};

use super::plan::{Tidy, is_for, make, owner};
use super::{BY_POD, Caches};
use crate::pod::Pod;
use crate::pod::devices::DeviceClaim;
use crate::pod_control::is_namespace_terminating;

/// Why a pod has not got a claim.
pub struct Refused {
    pub claim: String,
    pub why: String,
    pub error: Error,
}

/// Makes the claims that a pod lacks, tells it of them, and once it is on a node, that it uses them.
pub async fn provide(context: &Context, caches: &Caches, pod: &Pod) -> Result<(), Refused> {
    let mut told: Vec<Value> = Vec::new();
    let mut is_new = false;
    for wanted in &pod.spec.resource_claims {
        let refused = |why: String, error| Refused { claim: wanted.name.to_string(), why, error };
        let (name, is_known) = match known(caches, pod, wanted) {
            Known::Nothing => continue,
            Known::Told(name) => (name, true),
            Known::Made(name) => (name, false),
            Known::Unmade(template) => {
                let made = create(context, caches, pod, wanted, &template).await;
                (made.map_err(|(why, error)| refused(why, error))?, false)
            }
        };
        is_new |= !is_known;
        told.push(json!({"name": wanted.name, "resourceClaimName": name}));
    }
    let failed = |error: Error| Refused { claim: String::new(), why: error.to_string(), error };
    if is_new {
        tell(context, pod, told).await.map_err(failed)?;
    }
    if !pod.spec.node_name.is_empty() {
        reserve(context, caches, pod).await.map_err(failed)?;
    }
    Ok(())
}

enum Known {
    /// It needs none, or somebody else's.
    Nothing,
    /// There is one, and the pod knows.
    Told(String),
    /// There is one, and the pod doesn't know yet.
    Made(String),
    /// There is none yet; it is made by this template.
    Unmade(String),
}

fn known(caches: &Caches, pod: &Pod, wanted: &DeviceClaim) -> Known {
    let Some(template) = &wanted.template else { return Known::Nothing };
    let namespace = &pod.metadata.namespace;
    match pod.status.resource_claims.iter().find(|it| it.name == wanted.name).map(|it| &it.claim) {
        // It turned out to be needless.
        Some(None) => return Known::Nothing,
        Some(Some(name)) => {
            let claim = caches.claims.lister().get(Key::namespaced(namespace, name).as_str());
            let is_own = |claim: &ResourceClaim| owner(claim).is_some_and(|(_, uid)| *uid == *pod.metadata.uid);
            if claim.is_some_and(|claim| is_own(&claim)) {
                return Known::Told(name.to_string());
            }
        }
        None => {}
    }
    // Made by one who died before the pod was told.
    let snapshot = caches.claims.lister().snapshot();
    let key = Key::namespaced(namespace, &pod.metadata.name);
    let mut names: Vec<_> = snapshot
        .by_index(BY_POD, key.as_str())
        .filter(|claim| is_for(claim, pod, &wanted.name) && claim.metadata.deletion_timestamp.is_none())
        .filter_map(|claim| claim.metadata.name.clone())
        .collect();
    names.sort();
    match names.into_iter().next() {
        Some(name) => Known::Made(name),
        None => Known::Unmade(template.to_string()),
    }
}

async fn create(
    context: &Context,
    caches: &Caches,
    pod: &Pod,
    wanted: &DeviceClaim,
    template: &str,
) -> Result<String, (String, Error)> {
    let namespace = &pod.metadata.namespace;
    let Some(found) = caches.templates.lister().get(Key::namespaced(namespace, template).as_str()) else {
        let missing = format!("resourceclaimtemplate.resource.k8s.io {template:?} not found");
        let why = format!("resource claim template {template:?}: {missing}");
        return Err((why.clone(), Error::transient(why)));
    };
    let claims: Api<ResourceClaim> = Api::namespaced(context.client().clone(), namespace);
    match claims.create(&PostParams::default(), &make(pod, &wanted.name, &found)).await {
        Ok(claim) => Ok(claim.metadata.name.unwrap_or_default()),
        Err(error) if is_namespace_terminating(&error) => Err((error.to_string(), Error::terminal(error))),
        Err(error) => Err((format!("create ResourceClaim : {error}"), error.into())),
    }
}

/// Writes into the status of a pod which claims are its own.
async fn tell(context: &Context, pod: &Pod, told: Vec<Value>) -> Result<(), Error> {
    let pods: Api<core::Pod> = Api::namespaced(context.client().clone(), &pod.metadata.namespace);
    let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": {"resourceClaimStatuses": told}});
    match pods.patch_status(&pod.metadata.name, &PatchParams::default(), &Patch::Strategic(patch)).await {
        Err(error) if setpoint_runtime::retry::is_not_found(&error) => Ok(()),
        done => Ok(done.map(drop)?),
    }
}

/// Writes down that a pod on a node uses its claims: whoever bound it may not have.
async fn reserve(context: &Context, caches: &Caches, pod: &Pod) -> Result<(), Error> {
    let namespace = &pod.metadata.namespace;
    for wanted in &pod.spec.resource_claims {
        let made = || pod.status.resource_claims.iter().find(|it| it.name == wanted.name)?.claim.clone();
        let Some(name) = wanted.claim.clone().or_else(made) else { continue };
        let Some(claim) = caches.claims.lister().get(Key::namespaced(namespace, &name).as_str()) else { continue };
        let mut claim = ResourceClaim::clone(&claim);
        let status = claim.status.get_or_insert_default();
        let users = status.reserved_for.get_or_insert_default();
        if status.allocation.is_none() || users.iter().any(|user| *user.uid == *pod.metadata.uid) {
            continue;
        }
        users.push(ResourceClaimConsumerReference {
            api_group: None,
            resource: "pods".to_owned(),
            name: pod.metadata.name.to_string(),
            uid: pod.metadata.uid.to_string(),
        });
        let claims: Api<ResourceClaim> = Api::namespaced(context.client().clone(), namespace);
        claims.replace_status(&name, &PostParams::default(), &claim).await?;
    }
    Ok(())
}

/// Carries out what is left to do with a claim.
pub async fn tidy(context: &Context, claim: &ResourceClaim, plan: &Tidy) -> Result<(), kube::Error> {
    let (namespace, name) = (claim.metadata.namespace.as_deref(), claim.metadata.name.as_deref());
    let (namespace, name) = (namespace.unwrap_or_default(), name.unwrap_or_default());
    let claims: Api<ResourceClaim> = Api::namespaced(context.client().clone(), namespace);
    let mut claim = claim.clone();
    if plan.users.is_some() || plan.gives_back {
        let status = claim.status.get_or_insert_default();
        if let Some(users) = &plan.users {
            status.reserved_for = Some(users.clone()).filter(|users| !users.is_empty());
        }
        if plan.gives_back {
            status.allocation = None;
        }
        claim = claims.replace_status(name, &PostParams::default(), &claim).await?;
    }
    if plan.lets_go {
        Tidy::let_go(&mut claim);
        claim = claims.replace(name, &PostParams::default(), &claim).await?;
    }
    if plan.goes {
        let preconditions = Some(Preconditions { uid: claim.metadata.uid.clone(), resource_version: None });
        claims.delete(name, &DeleteParams { preconditions, ..DeleteParams::default() }).await?;
    }
    Ok(())
}
