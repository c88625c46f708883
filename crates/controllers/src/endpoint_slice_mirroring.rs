//! Shows hand-made Endpoints as slices, for those who read only slices.

mod plan;

use k8s_openapi::api::core::v1::{Endpoints, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use setpoint_runtime::Key;
use setpoint_runtime::cache::{Cached, Informer};
use setpoint_runtime::controller::{Action, Context, Error};
use setpoint_runtime::events::{Recorder, reference};
use setpoint_runtime::manager::ManagerError;

use self::plan::MANAGER;
use crate::Wiring;
use crate::backend;
use crate::claim::reference_to;
use crate::endpoint_slice::plan::Plan;
use crate::endpoint_slice::{BY_SERVICE, carry_out, retries, service_of, slices};
use crate::wiring::warning;

/// Adds the controller.
pub fn add(wiring: &Wiring<'_>) -> Result<(), ManagerError> {
    let desk = wiring.desk("endpointslice-mirroring-controller")?.queue(retries);
    let caches = Caches { endpoints: wiring.informer(), services: wiring.informer(), slices: slices(wiring) };
    let recorder = desk.recorder.clone();
    let controller = desk
        .controller(&caches.endpoints, 5)
        .watches(&caches.services, |service| vec![Cached::key(service)])
        .watches(&caches.slices, |slice| service_of(slice, MANAGER).into_iter().collect())
        .build(move |context: Context, key: Key| reconcile(context, caches.clone(), recorder.clone(), key));
    desk.run(controller)
}

#[derive(Clone)]
struct Caches {
    endpoints: Informer<Endpoints>,
    services: Informer<Service>,
    slices: Informer<EndpointSlice>,
}

async fn reconcile(context: Context, caches: Caches, recorder: Recorder, key: Key) -> Result<Action, Error> {
    let service = context.read(&caches.services, &key);
    let endpoints = context.read(&caches.endpoints, &key);
    let endpoints = endpoints.filter(|endpoints| {
        plan::is_mirrored(endpoints) && service.is_some_and(|service| !backend::has_selector(&service))
    });
    let snapshot = caches.slices.lister().snapshot();
    let own = snapshot.by_index(BY_SERVICE, key.as_str()).filter(|slice| service_of(slice, MANAGER).is_some());
    let own: Vec<_> = own.cloned().collect();
    let plan = match &endpoints {
        None => Plan { delete: own, ..Plan::default() },
        Some(endpoints) => {
            let wanted = plan::wanted(endpoints);
            for (reason, note) in wanted.complaints() {
                warning(&recorder, reference(&**endpoints), reason, "MirrorEndpoints", note);
            }
            plan::plan(endpoints, &reference_to(&**endpoints)?, wanted, &own)
        }
    };
    carry_out(context.client(), key.namespace().unwrap_or_default(), &plan).await?;
    Ok(Action::done())
}
