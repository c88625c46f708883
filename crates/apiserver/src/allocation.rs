//! Addresses and ports of Services: each is handed out once.
//!
//! An address in use is an IPAddress object, a node port a record of its own. Both are committed in the same transaction
//! as the Service and must not be there before: so two Services never get the same one, whichever server they were sent
//! to. Who loses such a race starts again from a newer state: there a requested one is refused and another one is drawn.

mod addresses;
mod ports;

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::{Value, json};
use setpoint_api::{FieldError, GroupResource, Path, Status, ip};
use setpoint_schema::builtin::core::service;
use setpoint_schema::{Edit, Kind};
use setpoint_store::{CHANGES_MAX, Change, Expectation, Key, NoFields, Snapshot};

use crate::call::Call;
use crate::objects;
use crate::server::Inner;

pub(crate) use addresses::{DEFAULT_RANGE, RANGE_NAME};

/// The families that Services get addresses of, the default first.
const FAMILIES: [&str; 1] = ["IPv4"];

/// How often a write starts again because what it drew was taken in the meantime.
pub(crate) const DRAW_TRIES_MAX: usize = 16;

/// Node ports of one Service: its transaction holds each of them, beside the Service, its addresses and its Endpoints.
const PORTS_MAX: usize = CHANGES_MAX - 4;

/// Whether objects of a kind hold addresses and ports.
pub(crate) fn concerns(kind: &Kind) -> bool {
    kind.group.is_empty() && kind.plural == "services"
}

/// Fills in the addresses and ports of a new Service.
pub(crate) fn begin_create(call: &Call<'_>, object: &mut Value, dry_run: bool) -> Result<(), Box<Status>> {
    if !concerns(call.kind()) {
        return Ok(());
    }
    let errors = service::begin_create(object, &FAMILIES);
    refuse(object, errors)?;
    let snapshot = call.server.store.snapshot();
    let pool = Pool { server: call.server, snapshot: &snapshot, dry_run };
    addresses::assign(&pool, object)?;
    let mut ports = ports::Claims::new(&pool);
    ports::assign_new(&mut ports, object)?;
    ports::assign_health_check(&mut ports, object, None)
}

/// Fills in the addresses and ports that a changed Service needs and did not have.
pub(crate) fn begin_update(call: &Call<'_>, new: &mut Value, old: &Value, dry_run: bool) -> Result<(), Box<Status>> {
    if !concerns(call.kind()) || call.subresource.is_some() {
        return Ok(());
    }
    let errors = service::begin_update(new, old, &FAMILIES);
    refuse(new, errors)?;
    let snapshot = call.server.store.snapshot();
    let pool = Pool { server: call.server, snapshot: &snapshot, dry_run };
    addresses::reassign(&pool, new, old)?;
    let mut ports = ports::Claims::new(&pool);
    ports::reassign(&mut ports, new, old)?;
    ports::assign_health_check(&mut ports, new, Some(old))
}

/// What a write of a Service claims and what it gives back: changes for the same transaction. `old` is what was stored,
/// `new` what will be.
pub(crate) fn changes(call: &Call<'_>, old: Option<&Value>, new: Option<&Value>) -> Result<Vec<Change>, Box<Status>> {
    if !concerns(call.kind()) {
        return Ok(Vec::new());
    }
    let (before, after) = (Holdings::of(old), Holdings::of(new));
    if let Some(new) = new.filter(|_| after.ports.len() > PORTS_MAX) {
        let path = Path::root("spec");
        return refuse(new, vec![FieldError::too_many(&path.child("ports"), Some(after.ports.len()), PORTS_MAX)])
            .map(|()| Vec::new());
    }
    let server = call.server;
    let snapshot = server.store.snapshot();
    let mut changes = Vec::new();
    if let Some(new) = new {
        changes.extend(after.addresses.difference(&before.addresses).map(|ip| claim_address(server, *ip, new)));
        changes.extend(after.ports.difference(&before.ports).map(|port| claim_port(server, *port, new)));
    }
    if let Some(old) = old {
        let addresses = before.addresses.difference(&after.addresses).map(|ip| address_key(*ip));
        let ports = before.ports.difference(&after.ports).map(|port| port_key(*port));
        let given_back = addresses.chain(ports).filter(|key| is_held_by(&snapshot, key, old));
        changes.extend(given_back.map(|key| Change::delete(key, Expectation::Any)));
    }
    if let (Some(old), None) = (old, new) {
        changes.extend(endpoints_of(&snapshot, old).map(|key| Change::delete(key, Expectation::Any)));
    }
    Ok(changes)
}

/// The answer when even after many tries whatever was drawn was taken.
pub(crate) fn exhausted(key: &Key) -> Box<Status> {
    let message = format!("{} was taken while the request was handled; please try again", key.name());
    Box::new(Status::too_many_requests(message, 1))
}

/// Whether a refusal means that another try may find something free.
pub(crate) fn is_lost_race(kind: &Kind, status: &Status) -> bool {
    concerns(kind) && status.code == 429
}

/// Where addresses and ports are looked for.
struct Pool<'a> {
    server: &'a Inner,
    snapshot: &'a Snapshot,
    /// Nothing of it is going to be taken.
    dry_run: bool,
}

impl Pool<'_> {
    fn has(&self, key: &Key) -> bool {
        self.snapshot.get(key.resource(), None, key.name()).is_some()
    }

    fn below(&self, bound: u64) -> u64 {
        self.server.chance.below(bound)
    }
}

/// Addresses and ports that a Service holds.
#[derive(Debug, Default, PartialEq, Eq)]
struct Holdings {
    addresses: BTreeSet<IpAddr>,
    ports: BTreeSet<u16>,
}

impl Holdings {
    fn of(service: Option<&Value>) -> Holdings {
        let Some(service) = service.filter(|service| service["spec"].text("type") != "ExternalName") else {
            return Holdings::default();
        };
        let addresses = service["spec"]["clusterIPs"].as_array().into_iter().flatten();
        let health = service["spec"].number("healthCheckNodePort");
        let health = health.filter(|_| service::needs_health_check_port(service));
        let ports = ports::node_ports(service).into_iter().chain(health);
        Holdings {
            addresses: addresses.filter_map(Value::as_str).filter_map(ip::parse_sloppy).collect(),
            ports: ports.filter_map(|port| u16::try_from(port).ok()).filter(|port| *port != 0).collect(),
        }
    }
}

fn address_key(ip: IpAddr) -> Key {
    Key::cluster(GroupResource::new("networking.k8s.io", "ipaddresses"), &ip.to_string())
}

/// Node ports in use are nobody's objects: they are not served.
fn port_key(port: u16) -> Key {
    Key::cluster(GroupResource::new("setpoint.internal", "nodeports"), &port.to_string())
}

/// The IPAddress of an address that a Service holds.
pub(crate) fn claim_address(server: &Inner, ip: IpAddr, service: &Value) -> Change {
    let served = server.registry.find("networking.k8s.io", "v1", "ipaddresses").expect("a built-in kind");
    let family = if ip.is_ipv4() { "IPv4" } else { "IPv6" };
    let object = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "IPAddress",
        "metadata": {
            "name": ip.to_string(), "uid": server.chance.uid(), "creationTimestamp": server.clock.timestamp(),
            "labels": {
                "ipaddress.kubernetes.io/ip-family": family,
                "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
            },
        },
        "spec": {"parentRef": parent(service)},
    });
    objects::put_change(served, address_key(ip), Expectation::Absent, &object)
}

fn claim_port(server: &Inner, port: u16, service: &Value) -> Change {
    let record = json!({
        "metadata": {"name": port.to_string(), "uid": server.chance.uid()},
        "spec": {"parentRef": parent(service)},
    });
    let (json, _) = objects::encode(&record, false);
    Change::put(port_key(port), Expectation::Absent, json, &NoFields).expect("a sound record")
}

fn parent(service: &Value) -> Value {
    let metadata = &service["metadata"];
    json!({"resource": "services", "namespace": metadata.text("namespace"), "name": metadata.text("name")})
}

/// What someone else took over by hand stays theirs.
fn is_held_by(snapshot: &Snapshot, key: &Key, service: &Value) -> bool {
    let found = snapshot.get(key.resource(), None, key.name()).map(|object| objects::value(&object));
    found.is_some_and(|found| found["spec"]["parentRef"] == parent(service))
}

/// The Endpoints of a Service go with it, so that the next one of its name does not begin with them.
fn endpoints_of(snapshot: &Snapshot, service: &Value) -> Option<Key> {
    let endpoints = GroupResource::new("", "endpoints");
    let (namespace, name) = (service["metadata"].text("namespace"), service["metadata"].text("name"));
    snapshot.get(&endpoints, Some(namespace), name)?;
    Some(Key::namespaced(endpoints, namespace, name))
}

fn refuse(service: &Value, errors: Vec<FieldError>) -> Result<(), Box<Status>> {
    if errors.is_empty() {
        return Ok(());
    }
    let kind = setpoint_api::GroupKind::new("", "Service");
    Err(Box::new(Status::invalid(&kind, service["metadata"].text("name"), &errors)))
}

#[cfg(test)]
mod tests;
