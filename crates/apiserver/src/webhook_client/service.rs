//! Where a Service can be reached from here. Nobody routes its address for the server, so its endpoints are asked themselves.

use std::net::{IpAddr, SocketAddr};

use serde_json::Value;
use setpoint_api::labels::Selector;
use setpoint_api::{GroupResource, fields};
use setpoint_schema::Edit;
use setpoint_store::{Query, Selection};

use super::Surroundings;
use crate::objects;

/// Where to connect to.
pub(super) enum Resolved {
    /// Any of these.
    Addresses(Vec<SocketAddr>),
    /// A name outside of the cluster.
    Name(String),
}

/// The ready endpoints of a service; its own address if it has none and nobody looks for any.
pub(super) fn resolve(around: Surroundings<'_>, namespace: &str, name: &str, port: u16) -> Result<Resolved, String> {
    let snapshot = around.store.snapshot();
    let Some(found) = snapshot.get(&GroupResource::new("", "services"), Some(namespace), name) else {
        return Err(format!("service \"{name}\" not found"));
    };
    let service = objects::value(&found);
    let spec = &service["spec"];
    if spec.text("type") == "ExternalName" {
        return Ok(Resolved::Name(spec.text("externalName").to_owned()));
    }
    let mut ports = items(spec, "ports");
    let Some(wanted) = ports.find(|known| known.number("port") == Some(i64::from(port))) else {
        return Err(format!("no service port {port} found for service \"{name}\""));
    };
    let ready = ready(around, namespace, name, wanted.text("name"));
    if !ready.is_empty() {
        // Another one first each time.
        let start = usize::try_from(around.chance.below(ready.len() as u64)).unwrap_or(0);
        let (before, after) = ready.split_at(start);
        return Ok(Resolved::Addresses([after, before].concat()));
    }
    let has_selector = spec["selector"].as_object().is_some_and(|selector| !selector.is_empty());
    match spec.text("clusterIP").parse::<IpAddr>() {
        Ok(address) if !has_selector => Ok(Resolved::Addresses(vec![SocketAddr::new(address, port)])),
        _ => Err(format!("no endpoints available for service \"{name}\"")),
    }
}

fn ready(around: Surroundings<'_>, namespace: &str, name: &str, port: &str) -> Vec<SocketAddr> {
    let slices = slices(around, namespace, name);
    let in_slices = slices.iter().flat_map(|slice| {
        let number = items(slice, "ports").find(|known| known.text("name") == port).and_then(number_of);
        let ready = items(slice, "endpoints").filter(|endpoint| endpoint["conditions"]["ready"] != false);
        let addresses = ready.filter_map(|endpoint| endpoint["addresses"][0].as_str());
        addresses.filter_map(move |address| Some(SocketAddr::new(address.parse().ok()?, number?)))
    });
    let found: Vec<SocketAddr> = in_slices.collect();
    if !found.is_empty() {
        return found;
    }
    let endpoints = around.store.snapshot().get(&GroupResource::new("", "endpoints"), Some(namespace), name);
    let endpoints = endpoints.map(|endpoints| objects::value(&endpoints)).unwrap_or_default();
    let in_subsets = items(&endpoints, "subsets").flat_map(|subset| {
        let number = items(subset, "ports").find(|known| known.text("name") == port).and_then(number_of);
        let addresses = items(subset, "addresses").map(|address| address.text("ip"));
        addresses.filter_map(move |address| Some(SocketAddr::new(address.parse().ok()?, number?)))
    });
    in_subsets.collect()
}

fn number_of(port: &Value) -> Option<u16> {
    port.number("port").and_then(|number| u16::try_from(number).ok())
}

fn slices(around: Surroundings<'_>, namespace: &str, name: &str) -> Vec<Value> {
    let Ok(labels) = Selector::parse(&format!("kubernetes.io/service-name={name}")) else { return Vec::new() };
    let Ok(everything) = fields::Selector::parse("") else { return Vec::new() };
    let selection = Selection::new(labels, everything);
    let resource = GroupResource::new("discovery.k8s.io", "endpointslices");
    let query =
        Query { resource: &resource, namespace: Some(namespace), selection: &selection, after: None, limit: None };
    around.store.snapshot().list(&query).items.iter().map(|slice| objects::value(slice)).collect()
}

fn items<'v>(object: &'v Value, list: &str) -> impl Iterator<Item = &'v Value> {
    object[list].as_array().into_iter().flatten()
}
