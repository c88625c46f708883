//! Says in slices which pods answer for a Service.

mod act;
mod endpoint;
pub mod plan;
#[cfg(test)]
mod tests;

use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde::Deserialize;
use setpoint_runtime::cache::{Cached, Informer, LeanMeta};
use setpoint_runtime::controller::{Action, Context, Error, Predicate};
use setpoint_runtime::manager::ManagerError;
use setpoint_runtime::{Key, lean_view};

use self::endpoint::Backend;
use self::plan::{MANAGED_BY, Owner, SERVICE_NAME};
use crate::Wiring;
use crate::backend;
use crate::claim::reference_to;
use crate::pod::{self, Pod};

pub use self::act::carry_out;

/// What slices say who looks after them.
const MANAGER: &str = "endpointslice-controller.k8s.io";

/// The label of a node with its zone.
const ZONE: &str = "topology.kubernetes.io/zone";

/// The index of slices by the key of their Service.
pub const BY_SERVICE: &str = "service";

/// A node: only its labels count.
#[derive(Deserialize)]
struct NodeLabels {
    metadata: LeanMeta,
}

lean_view!(NodeLabels of Node);

/// Adds the controller.
pub fn add(wiring: &Wiring<'_>) -> Result<(), ManagerError> {
    let desk = wiring.desk("endpointslice-controller")?;
    let caches =
        Caches { services: wiring.informer(), slices: slices(wiring), pods: wiring.pods(), nodes: wiring.informer() };
    let (services, pods, of_pods) = (caches.services.clone(), caches.pods.clone(), caches.services.clone());
    let zone_changed = Predicate::new(|old: Option<&NodeLabels>, new: &NodeLabels| {
        old.is_none_or(|old| old.metadata.label(ZONE) != new.metadata.label(ZONE))
    });
    let controller = desk
        .controller(&caches.services, 5)
        .watches(&caches.slices, |slice| service_of(slice, MANAGER).into_iter().collect())
        .watches_where(&caches.pods, backend::matters(), move |pod| backend::services_of(&of_pods, pod))
        .watches_where(&caches.nodes, zone_changed, move |node: &NodeLabels| {
            let snapshot = pods.lister().snapshot();
            let on_node = snapshot.by_index(pod::BY_NODE, node.metadata.key.name());
            on_node.flat_map(|pod| backend::services_of(&services, pod)).collect()
        })
        .build(move |context: Context, key: Key| reconcile(context, caches.clone(), key));
    desk.run(controller)
}

/// The shared cache of slices, with its index.
pub fn slices(wiring: &Wiring<'_>) -> Informer<EndpointSlice> {
    let slices: Informer<EndpointSlice> = wiring.informer();
    slices.add_index(BY_SERVICE, |slice| {
        let name = slice.metadata.labels.as_ref().and_then(|labels| labels.get(SERVICE_NAME));
        let key = name.map(|name| Key::new(slice.metadata.namespace.as_deref(), name));
        key.map(|key| key.as_str().to_owned()).into_iter().collect()
    });
    slices
}

/// The Service that a slice is of, if a controller looks after it.
pub fn service_of(slice: &EndpointSlice, manager: &str) -> Option<Key> {
    let labels = slice.metadata.labels.as_ref()?;
    let name = labels.get(SERVICE_NAME).filter(|_| labels.get(MANAGED_BY).is_some_and(|name| name == manager))?;
    Some(Key::new(slice.metadata.namespace.as_deref(), name))
}

#[derive(Clone)]
struct Caches {
    services: Informer<Service>,
    slices: Informer<EndpointSlice>,
    pods: Informer<Pod>,
    nodes: Informer<NodeLabels>,
}

async fn reconcile(context: Context, caches: Caches, key: Key) -> Result<Action, Error> {
    let Some(service) = context.read(&caches.services, &key) else { return Ok(Action::done()) };
    // One that is going takes its slices with it.
    if backend::is_external_name(&service) || !backend::has_selector(&service) || Cached::is_deleting(&*service) {
        return Ok(Action::done());
    }
    let snapshot = caches.pods.lister().snapshot();
    let nodes = caches.nodes.lister().snapshot();
    let selected =
        snapshot.namespace(key.namespace().unwrap_or_default()).filter(|pod| backend::selects(&service, pod));
    let backends: Vec<_> = selected
        .filter_map(|pod| {
            // A pod on a node that is not there is about to go, unless users want all of them.
            let node = nodes.get(&pod.spec.node_name);
            let is_known = node.is_some() || backend::publishes_unready(&service);
            let zone =
                node.and_then(|node| node.metadata.label(ZONE).map(str::to_owned)).filter(|zone| !zone.is_empty());
            is_known.then_some(Backend { pod, zone })
        })
        .collect();
    let slices = caches.slices.lister().snapshot();
    let own = slices.by_index(BY_SERVICE, key.as_str()).filter(|slice| service_of(slice, MANAGER).is_some());
    let own: Vec<_> = own.cloned().collect();
    let owner = Owner { service: &service, reference: &reference_to(&*service)?, manager: MANAGER };
    let plan = plan::plan(&owner, plan::wanted(&service, &backends), &backend::families(&service), &own);
    if !plan.create.is_empty() {
        backend::ensure_there(&context, &service).await?;
    }
    carry_out(context.client(), key.namespace().unwrap_or_default(), &plan).await?;
    Ok(Action::done())
}
