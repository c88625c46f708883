//! What is there from the first start on: the system's namespaces, the API's own Service and address range, and the
//! defaults that others rely on. A later start finds all of it and changes nothing.

mod flow_control;
mod roles;

pub(crate) use flow_control::{CATCH_ALL, mandatory};

use std::net::{IpAddr, SocketAddr};

use serde_json::{Value, json};
use setpoint_api::Status;
use setpoint_schema::{Context, Edit};
use setpoint_store::{CHANGES_MAX, Change, CommitError, Expectation, Snapshot, Transaction};

use crate::allocation::{self, DEFAULT_RANGE, RANGE_NAME};
use crate::objects;
use crate::server::Inner;

const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

/// The API's own Service has the first address of the range.
const API_ADDRESS: [u8; 4] = [10, 0, 0, 1];
const API_SERVICE: &str = "kubernetes";
const API_NAMESPACE: &str = "default";

/// Other servers on the same store may be starting too.
const TRIES_MAX: usize = 16;

/// Makes what is missing. `listen` is where this server can be reached.
pub(crate) async fn run(server: &Inner, listen: SocketAddr) -> Result<(), Box<Status>> {
    make(server, || missing(server, listen)).await
}

/// Makes those defaults of flow control that somebody deleted.
pub(crate) async fn make_flow_control(server: &Inner) -> Result<(), Box<Status>> {
    make(server, || missing_flow_control(server).collect()).await
}

/// Whether somebody deleted some of these.
pub(crate) fn lacks_flow_control(server: &Inner) -> bool {
    missing_flow_control(server).next().is_some()
}

fn missing_flow_control(server: &Inner) -> impl Iterator<Item = Change> {
    let snapshot = server.store.snapshot();
    flow_control::objects(server.clock.timestamp()).filter_map(move |wanted| create(server, &snapshot, wanted))
}

/// The rules of a role of the whole cluster that there is from the start.
pub(crate) fn rules_of(role: &str) -> Vec<serde_json::Value> {
    roles::rules_of(role)
}

/// Makes the default roles and bindings that are missing.
pub(crate) async fn make_roles(server: &Inner) -> Result<(), Box<Status>> {
    make_missing(server, roles::objects).await
}

/// Makes the roles and bindings of what runs beside the API server.
pub(crate) async fn make_own_roles(server: &Inner) -> Result<(), Box<Status>> {
    make_missing(server, roles::own_objects).await
}

async fn make_missing(server: &Inner, wanted: impl Fn() -> Vec<Wanted>) -> Result<(), Box<Status>> {
    let missing = || {
        let snapshot = server.store.snapshot();
        wanted().into_iter().filter_map(|wanted| grant(server, &snapshot, wanted)).collect()
    };
    make(server, missing).await
}

/// The change that makes a role or a binding, or gives one what it lacks. What somebody added stays, and one that says so is left alone.
fn grant(server: &Inner, snapshot: &Snapshot, wanted: Wanted) -> Option<Change> {
    let served = server.registry.find(wanted.group, wanted.version, wanted.plural)?;
    let (namespace, name) = place(&wanted.object);
    let Some(found) = snapshot.get(&served.stored, namespace.as_deref(), &name) else {
        return create(server, snapshot, wanted);
    };
    let mut object = objects::value(&found);
    if object["metadata"]["annotations"].text(roles::AUTO_UPDATE) != "true"
        || !roles::complete(&mut object, &wanted.object)
    {
        return None;
    }
    let key = objects::key(served, namespace.as_deref(), &name);
    Some(objects::put_change(served, key, Expectation::Unchanged(found.revision()), &object))
}

/// Commits changes, as many at once as there may be.
async fn make(server: &Inner, missing: impl Fn() -> Vec<Change>) -> Result<(), Box<Status>> {
    let mut tries = 0;
    loop {
        let changes = missing();
        let is_all = changes.len() <= CHANGES_MAX;
        let Some(transaction) = changes.into_iter().take(CHANGES_MAX).fold(None, join) else { return Ok(()) };
        match server.store.commit(transaction).await {
            // Looking again would cost as much as making it, and a server is to start at once.
            Ok(_) if is_all => return Ok(()),
            Ok(_) => {}
            Err(CommitError::Exists { .. } | CommitError::Conflict { .. }) if tries < TRIES_MAX => tries += 1,
            Err(error) => return Err(Box::new(Status::internal_error(error))),
        }
    }
}

fn join(all: Option<Transaction>, one: Change) -> Option<Transaction> {
    Some(match all {
        Some(all) => all.and(one),
        None => Transaction::of(one),
    })
}

/// One object that must be there.
struct Wanted {
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    object: Value,
    /// What only the system writes.
    status: Option<Value>,
}

impl Wanted {
    fn new(group: &'static str, version: &'static str, plural: &'static str, object: Value) -> Wanted {
        Wanted { group, version, plural, object, status: None }
    }

    fn with_status(self, status: Value) -> Wanted {
        Wanted { status: Some(status), ..self }
    }
}

/// The changes that make what is missing.
fn missing(server: &Inner, listen: SocketAddr) -> Vec<Change> {
    let snapshot = server.store.snapshot();
    let wanted = namespaces()
        .chain([service_range(server)])
        .chain(priority_classes())
        .chain(flow_control::objects(server.clock.timestamp()));
    let mut changes: Vec<Change> = wanted.filter_map(|wanted| create(server, &snapshot, wanted)).collect();
    let service = api_service(listen.port());
    let kubernetes = service.object.clone();
    if let Some(change) = create(server, &snapshot, service) {
        changes.push(change);
        changes.push(allocation::claim_address(server, IpAddr::from(API_ADDRESS), &kubernetes));
    }
    if is_advertised(listen.ip()) {
        changes.extend(endpoints(listen).into_iter().filter_map(|wanted| put(server, &snapshot, wanted)));
    }
    changes
}

/// Endpoints never name an address that means another machine to everyone who reads it.
fn is_advertised(ip: IpAddr) -> bool {
    !ip.is_loopback() && !ip.is_unspecified()
}

/// The change that makes an object, if there is none of its name.
fn create(server: &Inner, snapshot: &Snapshot, wanted: Wanted) -> Option<Change> {
    let served = server.registry.find(wanted.group, wanted.version, wanted.plural)?;
    let kind = &served.kind;
    let (namespace, name) = place(&wanted.object);
    if snapshot.get(&served.stored, namespace.as_deref(), &name).is_some() {
        return None;
    }
    let mut object = wanted.object;
    object.set("apiVersion", kind.api_version());
    object.set("kind", &*kind.kind);
    kind.behaviour.default(&mut object);
    let metadata = object.ensure("metadata");
    metadata.set("uid", server.chance.uid());
    metadata.set("creationTimestamp", server.clock.timestamp());
    kind.prepare_create(&mut object, &Context { now: server.clock.seconds(), ..Context::default() });
    if let Some(status) = wanted.status {
        object.set("status", status);
    }
    kind.behaviour.canonicalize(&mut object);
    kind.normalize(&mut object);
    let key = objects::key(served, namespace.as_deref(), &name);
    Some(objects::put_change(served, key, Expectation::Absent, &object))
}

/// The change that makes an object, or brings it to what it should say.
fn put(server: &Inner, snapshot: &Snapshot, wanted: Wanted) -> Option<Change> {
    let served = server.registry.find(wanted.group, wanted.version, wanted.plural)?;
    let (namespace, name) = place(&wanted.object);
    let Some(found) = snapshot.get(&served.stored, namespace.as_deref(), &name) else {
        return create(server, snapshot, wanted);
    };
    let mut object = objects::value(&found);
    for (field, value) in wanted.object.as_object()?.iter().filter(|(field, _)| *field != "metadata") {
        object.set(field, value.clone());
    }
    served.kind.normalize(&mut object);
    if object == objects::value(&found) {
        return None;
    }
    let key = objects::key(served, namespace.as_deref(), &name);
    Some(objects::put_change(served, key, Expectation::Unchanged(found.revision()), &object))
}

fn place(object: &Value) -> (Option<String>, String) {
    let metadata = &object["metadata"];
    let namespace = Some(metadata.text("namespace").to_owned()).filter(|namespace| !namespace.is_empty());
    (namespace, metadata.text("name").to_owned())
}

fn namespaces() -> impl Iterator<Item = Wanted> {
    NAMESPACES.into_iter().map(|name| {
        let object = json!({
            "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
            "spec": {"finalizers": ["kubernetes"]},
        });
        Wanted::new("", "v1", "namespaces", object).with_status(json!({"phase": "Active"}))
    })
}

fn service_range(server: &Inner) -> Wanted {
    let object = json!({"metadata": {"name": RANGE_NAME}, "spec": {"cidrs": [DEFAULT_RANGE]}});
    let ready = json!({
        "type": "Ready", "status": "True", "reason": "", "lastTransitionTime": server.clock.timestamp(),
        "message": "Kubernetes default Service CIDR is ready",
    });
    Wanted::new("networking.k8s.io", "v1", "servicecidrs", object).with_status(json!({"conditions": [ready]}))
}

fn priority_classes() -> impl Iterator<Item = Wanted> {
    let classes = [
        (
            "system-node-critical",
            2_000_001_000,
            "Used for system critical pods that must not be moved from their current node.",
        ),
        (
            "system-cluster-critical",
            2_000_000_000,
            "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
        ),
    ];
    classes.into_iter().map(|(name, value, description)| {
        let object = json!({"metadata": {"name": name}, "value": value, "description": description});
        Wanted::new("scheduling.k8s.io", "v1", "priorityclasses", object)
    })
}

fn api_service(port: u16) -> Wanted {
    let address = IpAddr::from(API_ADDRESS).to_string();
    let object = json!({
        "metadata": {
            "name": API_SERVICE, "namespace": API_NAMESPACE,
            "labels": {"component": "apiserver", "provider": "kubernetes"},
        },
        "spec": {
            "type": "ClusterIP", "clusterIP": address, "clusterIPs": [address],
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "sessionAffinity": "None",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}],
        },
    });
    Wanted::new("", "v1", "services", object)
}

fn endpoints(listen: SocketAddr) -> [Wanted; 2] {
    let (address, port) = (listen.ip().to_string(), listen.port());
    let ports = json!([{"name": "https", "port": port, "protocol": "TCP"}]);
    let endpoints = json!({
        "metadata": {
            "name": API_SERVICE, "namespace": API_NAMESPACE,
            "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"},
        },
        "subsets": [{"addresses": [{"ip": address}], "ports": ports}],
    });
    let slice = json!({
        "metadata": {
            "name": API_SERVICE, "namespace": API_NAMESPACE, "labels": {"kubernetes.io/service-name": API_SERVICE},
        },
        "addressType": if listen.is_ipv4() { "IPv4" } else { "IPv6" },
        "endpoints": [{"addresses": [address], "conditions": {"ready": true}}],
        "ports": ports,
    });
    [Wanted::new("", "v1", "endpoints", endpoints), Wanted::new("discovery.k8s.io", "v1", "endpointslices", slice)]
}

#[cfg(test)]
mod tests;
