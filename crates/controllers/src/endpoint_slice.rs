//! Says in slices which pods answer for a Service.

mod act;
mod endpoint;
pub mod plan;
#[cfg(test)]
mod tests;
mod topology;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde::Deserialize;
use setpoint_runtime::cache::{Cached, Informer, LeanMeta};
use setpoint_runtime::config::QueueSettings;
use setpoint_runtime::controller::{Action, Context, Error, Predicate};
use setpoint_runtime::events::{Recorder, reference};
use setpoint_runtime::manager::ManagerError;
use setpoint_runtime::{Key, lean_view};

use self::endpoint::{Backend, Identity, identity};
use self::plan::{MANAGED_BY, Owner, SERVICE_NAME, Wanted};
use self::topology::{Shares, Site};
use crate::Wiring;
use crate::backend;
use crate::claim::reference_to;
use crate::pod::{self, Pod};
use crate::wiring::{MAX_RETRIES, normal, warning};

pub use self::act::carry_out;

/// After a change of a slice its Service is looked at no earlier than this: mostly the change is the controller's own. Same as Kubernetes.
const SLICE_DELAY: Duration = Duration::from_secs(1);

/// The wait after the first failure. Same as Kubernetes.
const RETRY_FIRST: Duration = Duration::from_secs(1);

/// What slices say who looks after them.
const MANAGER: &str = "endpointslice-controller.k8s.io";

/// The label of a node with its zone.
const ZONE: &str = "topology.kubernetes.io/zone";

/// The index of slices by the key of their Service.
pub const BY_SERVICE: &str = "service";

/// A node: where it is, and what it adds to its zone.
#[derive(Deserialize)]
struct NodeFacts {
    metadata: LeanMeta,
    #[serde(default)]
    status: NodeStatus,
}

lean_view!(NodeFacts of Node);

#[derive(Default, Deserialize)]
#[serde(default)]
struct NodeStatus {
    allocatable: Allocatable,
    conditions: Box<[Condition]>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Allocatable {
    cpu: Option<Box<str>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Condition {
    #[serde(rename = "type")]
    kind: Box<str>,
    status: Box<str>,
}

impl NodeFacts {
    fn zone(&self) -> Option<&str> {
        self.metadata.label(ZONE).filter(|zone| !zone.is_empty())
    }

    fn is_ready(&self) -> bool {
        self.status.conditions.iter().any(|said| &*said.kind == "Ready" && &*said.status == "True")
    }

    /// All that can make a difference.
    fn facts(&self) -> (Option<&str>, bool, Option<&str>) {
        (self.zone(), self.is_ready(), self.status.allocatable.cpu.as_deref())
    }
}

/// How often and how fast the controllers of slices try again.
pub fn retries(queue: &mut QueueSettings) {
    queue.max_retries = Some(MAX_RETRIES);
    queue.base_delay = RETRY_FIRST;
}

/// Adds the controller.
pub fn add(wiring: &Wiring<'_>) -> Result<(), ManagerError> {
    let desk = wiring.desk("endpointslice-controller")?.queue(retries);
    let caches =
        Caches { services: wiring.informer(), slices: slices(wiring), pods: wiring.pods(), nodes: wiring.informer() };
    let (services, pods, of_pods) = (caches.services.clone(), caches.pods.clone(), caches.services.clone());
    let (slices, recorder) = (caches.slices.clone(), desk.recorder.clone());
    let changed =
        Predicate::new(|old: Option<&NodeFacts>, new: &NodeFacts| old.is_none_or(|old| old.facts() != new.facts()));
    let controller = desk
        .controller(&caches.services, 5)
        // Heard of below, and later.
        .watches(&caches.slices, |_| Vec::new())
        .watches_where(&caches.pods, backend::matters(), move |pod| backend::services_of(&of_pods, pod))
        .watches_where(&caches.nodes, changed, move |node: &NodeFacts| {
            let snapshot = pods.lister().snapshot();
            let on_node = snapshot.by_index(pod::BY_NODE, node.metadata.key.name());
            let mut keys: Vec<Key> = on_node.flat_map(|pod| backend::services_of(&services, pod)).collect();
            let all = services.lister().snapshot();
            keys.extend(all.iter().filter(|service| topology::is_asked_for(service)).map(|service| service.key()));
            keys
        })
        .build(move |context: Context, key: Key| reconcile(context, caches.clone(), recorder.clone(), key));
    let queue = controller.handle().queue().clone();
    let changed = move |event: &setpoint_runtime::cache::Event<EndpointSlice>| {
        if let Some(key) = service_of(event.object(), MANAGER) {
            queue.add_after(key, SLICE_DELAY);
        }
    };
    slices.add_handler(Box::new(changed), None).keep();
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
    nodes: Informer<NodeFacts>,
}

async fn reconcile(context: Context, caches: Caches, recorder: Recorder, key: Key) -> Result<Action, Error> {
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
            let zone = node.and_then(|node| node.zone().map(str::to_owned));
            is_known.then_some(Backend { pod, zone })
        })
        .collect();
    let slices = caches.slices.lister().snapshot();
    let own = slices.by_index(BY_SERVICE, key.as_str()).filter(|slice| service_of(slice, MANAGER).is_some());
    let own: Vec<_> = own.cloned().collect();
    let owner = Owner { service: &service, reference: &reference_to(&*service)?, manager: MANAGER };
    let mut wanted = plan::wanted(&service, &backends);
    if topology::is_asked_for(&service) {
        let sites = nodes.iter().map(|node| Site {
            zone: node.zone(),
            cpu: node.status.allocatable.cpu.as_deref(),
            is_counted: node.is_ready()
                && !topology::NOT_COUNTED.iter().any(|label| node.metadata.label(label).is_some()),
        });
        keep_in_zones(&service, Shares::of(sites).as_ref(), &mut wanted, &own, &recorder);
    }
    let plan = plan::plan(&owner, wanted, &backend::families(&service), &own);
    if !plan.create.is_empty() {
        backend::ensure_there(&context, &service).await?;
    }
    carry_out(context.client(), key.namespace().unwrap_or_default(), &plan).await?;
    Ok(Action::done())
}

/// Says of all endpoints from where their traffic should come, or tells users why not.
fn keep_in_zones(
    service: &Service,
    shares: Option<&Shares>,
    wanted: &mut Wanted,
    slices: &[Arc<EndpointSlice>],
    recorder: &Recorder,
) {
    let said: HashMap<Identity, String> = slices
        .iter()
        .flat_map(|slice| slice.endpoints.iter().flatten())
        .filter_map(|endpoint| {
            let zones = endpoint.hints.as_ref()?.for_zones.as_ref()?;
            Some((identity(endpoint), zones.first()?.name.clone()))
        })
        .collect();
    for family in backend::families(service) {
        let of_family = wanted.iter_mut().filter(|((of, _), _)| *of == family);
        let endpoints = of_family.flat_map(|(_, (_, all))| all.values_mut().map(|it| &mut it.endpoint)).collect();
        let outcome = match shares {
            Some(shares) => topology::assign(shares, endpoints, |endpoint| said.get(&identity(endpoint)).cloned()),
            None => Err(topology::NO_SHARES.to_owned()),
        };
        let (about, kind) = (reference(service), family.as_str());
        match outcome {
            Err(why) => {
                let note = format!("{why}, addressType: {kind}");
                warning(recorder, about, "TopologyAwareHintsDisabled", "SyncService", note);
            }
            Ok(()) if said.is_empty() => {
                let note = format!("Topology Aware Hints has been enabled, addressType: {kind}");
                normal(recorder, about, "TopologyAwareHintsEnabled", "SyncService", note);
            }
            Ok(()) => {}
        }
    }
}
