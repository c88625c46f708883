//! Says in one object which pods answer for a Service: the older twin of slices.

pub mod plan;

use k8s_openapi::api::core::v1::{Endpoints, Service};
use kube::api::{Api, DeleteParams, PostParams, Preconditions};
use setpoint_runtime::cache::{Cached, Informer};
use setpoint_runtime::controller::{Action, Context, Error};
use setpoint_runtime::events::{Recorder, reference};
use setpoint_runtime::manager::ManagerError;
use setpoint_runtime::{Key, retry};

use self::plan::{MANAGED_BY, MANAGER};
use crate::Wiring;
use crate::backend;
use crate::pod::Pod;
use crate::pod_control::{is_namespace_terminating, message};
use crate::wiring::{MAX_RETRIES, warning};

/// Adds the controller.
pub fn add(wiring: &Wiring<'_>) -> Result<(), ManagerError> {
    let desk = wiring.desk("endpoints-controller")?.queue(|queue| queue.max_retries = Some(MAX_RETRIES));
    let caches = Caches { services: wiring.informer(), endpoints: wiring.informer(), pods: wiring.pods() };
    let (services, recorder) = (caches.services.clone(), desk.recorder.clone());
    let controller = desk
        .controller(&caches.services, 5)
        .watches(&caches.endpoints, |endpoints| {
            // Hand-made ones may be there before their Service: they are not looked at.
            let is_own = is_managed(endpoints);
            Some(Cached::key(endpoints)).filter(|_| is_own).into_iter().collect()
        })
        .watches_where(&caches.pods, backend::matters(), move |pod: &Pod| backend::services_of(&services, pod))
        .build(move |context: Context, key: Key| reconcile(context, caches.clone(), recorder.clone(), key));
    desk.run(controller)
}

#[derive(Clone)]
struct Caches {
    services: Informer<Service>,
    endpoints: Informer<Endpoints>,
    pods: Informer<Pod>,
}

fn is_managed(endpoints: &Endpoints) -> bool {
    endpoints.metadata.labels.as_ref().and_then(|labels| labels.get(MANAGED_BY)).is_some_and(|name| name == MANAGER)
}

async fn reconcile(context: Context, caches: Caches, recorder: Recorder, key: Key) -> Result<Action, Error> {
    let current = context.read(&caches.endpoints, &key);
    let Some(service) = context.read(&caches.services, &key) else {
        if let Some(left) = current {
            remove(&context, &key, &left).await?;
        }
        return Ok(Action::done());
    };
    if backend::is_external_name(&service) || !backend::has_selector(&service) || Cached::is_deleting(&*service) {
        return Ok(Action::done());
    }
    let snapshot = caches.pods.lister().snapshot();
    let in_namespace = snapshot.namespace(key.namespace().unwrap_or_default());
    let pods: Vec<&Pod> = in_namespace.map(|pod| &**pod).filter(|pod| backend::selects(&service, pod)).collect();
    if let Some(wanted) = plan::plan(&service, &pods, current.as_deref()) {
        if current.is_none() {
            backend::ensure_there(&context, &service).await?;
        }
        write(&context, &recorder, &key, wanted, current.is_none()).await?;
    }
    Ok(Action::done())
}

async fn write(
    context: &Context,
    recorder: &Recorder,
    key: &Key,
    wanted: Endpoints,
    is_new: bool,
) -> Result<(), Error> {
    let api: Api<Endpoints> = Api::namespaced(context.client().clone(), key.namespace().unwrap_or_default());
    let written = match is_new {
        true => api.create(&PostParams::default(), &wanted).await,
        false => api.replace(key.name(), &PostParams::default(), &wanted).await,
    };
    match written {
        Ok(_) => Ok(()),
        Err(error) if is_namespace_terminating(&error) => Ok(()),
        // The cache is behind; there is nothing to tell.
        Err(error) if retry::is_conflict(&error) || retry::is_already_exists(&error) || retry::is_not_found(&error) => {
            Err(error.into())
        }
        Err(error) => {
            let (reason, what) = match is_new {
                true => ("FailedToCreateEndpoint", "create endpoint for service"),
                false => ("FailedToUpdateEndpoint", "update endpoint"),
            };
            let note = format!("Failed to {what} {key}: {}", message(&error));
            warning(recorder, reference(&wanted), reason, "SyncService", note);
            Err(error.into())
        }
    }
}

/// What is left of a Service that is gone.
async fn remove(context: &Context, key: &Key, left: &Endpoints) -> Result<(), Error> {
    // The cache of Services may be behind.
    let namespace = key.namespace().unwrap_or_default();
    let services: Api<Service> = Api::namespaced(context.client().clone(), namespace);
    match services.get_metadata(key.name()).await {
        Ok(_) => return Err(Error::conflict(format!("{key} is newer than the cache"))),
        Err(error) if retry::is_not_found(&error) => {}
        Err(error) => return Err(error.into()),
    }
    let preconditions = Some(Preconditions { uid: left.metadata.uid.clone(), resource_version: None });
    let how = DeleteParams { preconditions, ..DeleteParams::default() };
    let api: Api<Endpoints> = Api::namespaced(context.client().clone(), namespace);
    match api.delete(key.name(), &how).await {
        Err(error) if retry::is_not_found(&error) => Ok(()),
        other => Ok(other.map(drop)?),
    }
}
