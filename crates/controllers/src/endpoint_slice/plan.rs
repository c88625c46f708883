//! Which slices have to be made, changed and deleted so that each pod that may answer is in one: as few as possible.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::jiff::Timestamp;

use super::endpoint::{Backend, Identity, changed_at, endpoint, identity, in_order, normal, ports};
use crate::backend::{self, Family, HEADLESS, TRIGGER_TIME};

/// Most endpoints in a slice; the server takes 1,000, but small slices are small changes.
const ENDPOINTS_MAX: usize = 100;

/// The label with the name of the Service that a slice is of.
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// The label with the controller that looks after a slice.
pub const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";

/// What to do.
#[derive(Debug, Default)]
pub struct Plan {
    pub create: Vec<EndpointSlice>,
    pub update: Vec<EndpointSlice>,
    pub delete: Vec<Arc<EndpointSlice>>,
}

/// Who looks after slices, and what they are of.
pub struct Owner<'a> {
    pub service: &'a Service,
    pub reference: &'a OwnerReference,
    pub manager: &'static str,
}

/// What is wanted: for each family and set of ports the endpoints, with when they last changed.
pub type Wanted = BTreeMap<(Family, PortKey), (Vec<EndpointPort>, BTreeMap<Identity, Candidate>)>;

/// Ports in a form that can be compared.
pub type PortKey = Vec<(String, i32, String, String)>;

/// An endpoint that is wanted.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub endpoint: Endpoint,
    pub changed_at: Option<Timestamp>,
}

/// The endpoints that pods are for a Service.
pub fn wanted(service: &Service, backends: &[Backend<'_>]) -> Wanted {
    let mut wanted = Wanted::new();
    for family in backend::families(service) {
        for backend in backends.iter().filter(|backend| backend::may_answer(backend.pod, true)) {
            let ports = ports(service, backend.pod);
            let group = wanted.entry((family, key_of(&ports))).or_insert_with(|| (ports, BTreeMap::new()));
            if let Some(endpoint) = endpoint(service, backend, family) {
                let candidate = Candidate { endpoint: normal(endpoint), changed_at: changed_at(backend.pod) };
                group.1.insert(identity(&candidate.endpoint), candidate);
            }
        }
    }
    wanted
}

/// Ports in a form that can be compared.
pub fn key_of(ports: &[EndpointPort]) -> PortKey {
    let ports = in_order(ports.to_vec()).into_iter();
    let text = |value: Option<String>| value.unwrap_or_default();
    ports
        .map(|port| (text(port.name), port.port.unwrap_or_default(), text(port.protocol), text(port.app_protocol)))
        .collect()
}

/// What to do with the slices that are there.
pub fn plan(owner: &Owner<'_>, wanted: Wanted, families: &[Family], slices: &[Arc<EndpointSlice>]) -> Plan {
    let mut plan = Plan::default();
    let is_wanted = |slice: &&Arc<EndpointSlice>| families.iter().any(|family| family.as_str() == slice.address_type);
    plan.delete.extend(slices.iter().filter(|slice| !is_wanted(slice)).cloned());
    let mut wanted_of: BTreeMap<Family, Vec<(PortKey, Group)>> = BTreeMap::new();
    for ((family, key), group) in wanted {
        wanted_of.entry(family).or_default().push((key, group));
    }
    for family in families.iter().collect::<BTreeSet<_>>() {
        let existing: Vec<_> = slices.iter().filter(|slice| slice.address_type == family.as_str()).cloned().collect();
        let groups = wanted_of.remove(family).unwrap_or_default();
        plan.add(plan_family(owner, *family, groups, &existing));
    }
    plan
}

type Group = (Vec<EndpointPort>, BTreeMap<Identity, Candidate>);

impl Plan {
    fn add(&mut self, other: Plan) {
        self.create.extend(other.create);
        self.update.extend(other.update);
        self.delete.extend(other.delete);
    }

    /// A slice that would be deleted becomes one that would be made: one write instead of two.
    fn reuse(&mut self, owner: &Owner<'_>) {
        let mut kept = Vec::new();
        for slice in std::mem::take(&mut self.delete) {
            match self.create.pop() {
                Some(new) if owner.owns(&slice) => {
                    let metadata = ObjectMeta {
                        labels: new.metadata.labels,
                        annotations: new.metadata.annotations,
                        ..slice.metadata.clone()
                    };
                    self.update.push(EndpointSlice { metadata, ..new });
                }
                other => {
                    self.create.extend(other);
                    kept.push(slice);
                }
            }
        }
        self.delete = kept;
    }
}

fn plan_family(
    owner: &Owner<'_>,
    family: Family,
    groups: Vec<(PortKey, Group)>,
    existing: &[Arc<EndpointSlice>],
) -> Plan {
    let mut plan = Plan::default();
    let mut by_ports: BTreeMap<PortKey, Vec<Arc<EndpointSlice>>> = BTreeMap::new();
    for slice in existing {
        match owner.owns(slice) {
            true => by_ports.entry(key_of(slice.ports.as_deref().unwrap_or_default())).or_default().push(slice.clone()),
            // Of an older Service of the same name.
            false => plan.delete.push(slice.clone()),
        }
    }
    let is_first = existing.is_empty();
    let said = readiness(existing);
    for (key, (ports, mut candidates)) in groups {
        for (identity, candidate) in &mut candidates {
            // Ports or hints that change are no change of the pod.
            candidate.changed_at =
                candidate.changed_at.filter(|_| said.get(identity) != Some(&serves(&candidate.endpoint)));
        }
        let slices = by_ports.remove(&key).unwrap_or_default();
        plan.add(plan_ports(owner, family, &ports, candidates, &slices, is_first));
    }
    plan.delete.extend(by_ports.into_values().flatten());
    if existing.len() == plan.delete.len() && plan.create.is_empty() {
        let made_at = if is_first { owner.made_at() } else { None };
        let placeholder = Draft::new(&owner.new_slice(family, &[])).stamped(made_at);
        match &plan.delete[..] {
            [only] if is_same(only, &placeholder) && owner.owns(only) => plan.delete.clear(),
            _ => plan.create.push(placeholder),
        }
    }
    plan.reuse(owner);
    plan
}

/// Which endpoints are known, and whether they were ready when they were written down.
fn readiness(slices: &[Arc<EndpointSlice>]) -> BTreeMap<Identity, Option<bool>> {
    let endpoints = slices.iter().flat_map(|slice| slice.endpoints.iter().flatten());
    endpoints.map(|endpoint| (identity(endpoint), serves(endpoint))).collect()
}

fn serves(endpoint: &Endpoint) -> Option<bool> {
    endpoint.conditions.as_ref()?.serving
}

/// Whether a slice is a placeholder already.
fn is_same(slice: &EndpointSlice, placeholder: &EndpointSlice) -> bool {
    slice.endpoints.as_ref().is_none_or(Vec::is_empty)
        && slice.ports.as_ref().is_none_or(Vec::is_empty)
        && slice.metadata.labels == placeholder.metadata.labels
}

fn plan_ports(
    owner: &Owner<'_>,
    family: Family,
    ports: &[EndpointPort],
    mut missing: BTreeMap<Identity, Candidate>,
    slices: &[Arc<EndpointSlice>],
    is_first: bool,
) -> Plan {
    let (mut plan, mut changed, mut unchanged) = (Plan::default(), Vec::new(), Vec::new());
    for slice in slices {
        let mut draft = Draft::new(slice);
        draft.keep(&mut missing);
        let labels = owner.labels();
        if draft.is_changed && draft.endpoints.is_empty() {
            plan.delete.push(slice.clone());
        } else if draft.is_changed || slice.metadata.labels.as_ref() != Some(&labels) {
            draft.slice.metadata.labels = Some(labels);
            changed.push(draft);
        } else {
            unchanged.push(draft);
        }
    }
    changed.sort_by_key(|draft| std::cmp::Reverse(draft.endpoints.len()));
    changed.iter_mut().for_each(|draft| draft.fill(&mut missing));
    while !missing.is_empty() {
        let room = |draft: &Draft| ENDPOINTS_MAX.checked_sub(draft.endpoints.len() + missing.len());
        let fullest =
            (0..unchanged.len()).filter(|at| room(&unchanged[*at]).is_some()).min_by_key(|at| room(&unchanged[*at]));
        match fullest.filter(|_| missing.len() < ENDPOINTS_MAX) {
            Some(at) => {
                let mut draft = unchanged.swap_remove(at);
                draft.fill(&mut missing);
                changed.push(draft);
            }
            None => {
                let mut draft = Draft::new(&owner.new_slice(family, ports));
                draft.fill(&mut missing);
                let changed_at = if is_first { owner.made_at() } else { draft.changed_at };
                plan.create.push(draft.stamped(changed_at));
            }
        }
    }
    plan.update.extend(changed.into_iter().map(|draft| {
        let changed_at = draft.changed_at;
        draft.stamped(changed_at)
    }));
    plan
}

/// A slice in the making.
struct Draft {
    /// All but its endpoints.
    slice: EndpointSlice,
    endpoints: Vec<Endpoint>,
    is_changed: bool,
    /// The earliest change of a pod that is the reason for a change here.
    changed_at: Option<Timestamp>,
}

impl Draft {
    fn new(slice: &EndpointSlice) -> Draft {
        let endpoints = slice.endpoints.clone().unwrap_or_default();
        Draft { slice: slice.clone(), endpoints, is_changed: false, changed_at: None }
    }

    /// The slice, with the time of the change that led to it.
    fn stamped(self, at: Option<Timestamp>) -> EndpointSlice {
        let mut slice = EndpointSlice { endpoints: Some(self.endpoints), ..self.slice };
        let annotations = slice.metadata.annotations.get_or_insert_default();
        match at {
            Some(at) => annotations.insert(TRIGGER_TIME.to_owned(), at.to_string()),
            None => annotations.remove(TRIGGER_TIME),
        };
        if annotations.is_empty() {
            slice.metadata.annotations = None;
        }
        slice
    }

    /// Keeps those endpoints that are wanted, as they are wanted.
    fn keep(&mut self, wanted: &mut BTreeMap<Identity, Candidate>) {
        for old in std::mem::take(&mut self.endpoints) {
            let Some(new) = wanted.remove(&identity(&old)) else {
                self.is_changed = true;
                continue;
            };
            if normal(old) != new.endpoint {
                self.note(&new);
            }
            self.endpoints.push(new.endpoint);
        }
    }

    /// Takes up endpoints as long as there is room.
    fn fill(&mut self, missing: &mut BTreeMap<Identity, Candidate>) {
        while self.endpoints.len() < ENDPOINTS_MAX {
            let Some((_, new)) = missing.pop_first() else { return };
            self.note(&new);
            self.endpoints.push(new.endpoint);
        }
    }

    fn note(&mut self, new: &Candidate) {
        self.is_changed = true;
        self.changed_at = self.changed_at.into_iter().chain(new.changed_at).min();
    }
}

impl Owner<'_> {
    fn owns(&self, slice: &EndpointSlice) -> bool {
        slice.metadata.owner_references.iter().flatten().any(|owner| owner.uid == self.reference.uid)
    }

    /// When the Service was made.
    fn made_at(&self) -> Option<Timestamp> {
        self.service.metadata.creation_timestamp.as_ref().map(|time| time.0)
    }

    /// The labels of the Service, and those by which slices are found.
    fn labels(&self) -> BTreeMap<String, String> {
        let mut labels = self.service.metadata.labels.clone().unwrap_or_default();
        labels.remove(HEADLESS);
        if backend::is_headless(self.service) {
            labels.insert(HEADLESS.to_owned(), String::new());
        }
        labels.insert(SERVICE_NAME.to_owned(), self.service.metadata.name.clone().unwrap_or_default());
        labels.insert(MANAGED_BY.to_owned(), self.manager.to_owned());
        labels
    }

    fn new_slice(&self, family: Family, ports: &[EndpointPort]) -> EndpointSlice {
        let name = self.service.metadata.name.as_deref().unwrap_or_default();
        EndpointSlice {
            metadata: ObjectMeta {
                generate_name: Some(format!("{name}-")),
                namespace: self.service.metadata.namespace.clone(),
                labels: Some(self.labels()),
                owner_references: Some(vec![self.reference.clone()]),
                ..ObjectMeta::default()
            },
            address_type: family.as_str().to_owned(),
            endpoints: Some(Vec::new()),
            ports: Some(ports.to_vec()),
        }
    }
}
