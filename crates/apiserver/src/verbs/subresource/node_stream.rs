//! What nodes serve: logs, commands, ports. Nodes nearby answer themselves; for others the answer says what is missing.

use std::sync::Arc;

use http::StatusCode;
use serde_json::Value;
use setpoint_api::{GroupResource, Status};
use setpoint_schema::Edit;
use setpoint_store::Snapshot;

use crate::answer::{self, Answer};
use crate::call::Call;
use crate::nearby::NearbyNodes;
use crate::objects;

use super::pod_log;

pub(super) fn run(call: &Call<'_>, name: &str) -> Answer {
    match (&*call.kind().plural, name) {
        ("services", _) => Err(service_proxy(call)),
        ("nodes", _) => {
            objects::find(&call.server.store.snapshot(), call.served, None, call.object_name())?;
            Err(unreachable_node(call.object_name()))
        }
        _ => pod(call, name),
    }
}

fn pod(call: &Call<'_>, name: &str) -> Answer {
    let options = if name == "log" { pod_log::Options::read(call)? } else { pod_log::Options::default() };
    let snapshot = call.server.store.snapshot();
    let found = objects::find(&snapshot, call.served, call.namespace, call.object_name())?;
    let pod = objects::value(&found);
    let container = match name {
        "log" | "exec" | "attach" => container(call, &pod)?,
        _ => String::new(),
    };
    match (pod["spec"].text("nodeName"), name) {
        // Nothing ran yet, so nothing was written.
        ("", "log") => Ok(answer::text(StatusCode::OK, "")),
        ("", _) => {
            let message = format!("pod {} does not have a host assigned", call.object_name());
            Err(Box::new(Status::bad_request(message)))
        }
        (node, name) => match (nearby(call, &snapshot, node), name) {
            (Some(nodes), "log") => pod_log::run(call, options, nodes, &pod, &container),
            (Some(nodes), _) => Err(Box::new(Status::bad_request(nodes.refusal(node)))),
            (None, _) => Err(unreachable_node(node)),
        },
    }
}

/// Who answers for a node, if nobody has to be connected to for that.
fn nearby<'a>(call: &Call<'a>, snapshot: &Snapshot, node: &str) -> Option<&'a Arc<dyn NearbyNodes>> {
    let nodes = call.server.nearby.get()?;
    let found = snapshot.get(&GroupResource::new("", "nodes"), None, node)?;
    nodes.has(&objects::value(&found)).then_some(nodes)
}

/// The container that is meant. It must be named unless there is only one, and must be there.
fn container(call: &Call<'_>, pod: &Value) -> Result<String, Box<Status>> {
    let names = |list: &str| -> Vec<String> {
        let all = pod["spec"][list].as_array().into_iter().flatten();
        all.map(|container| container.text("name").to_owned()).collect()
    };
    let (containers, first, added) = (names("containers"), names("initContainers"), names("ephemeralContainers"));
    let (asked, name) = (call.query.get("container"), call.object_name());
    let annotated = pod["metadata"]["annotations"].text("kubectl.kubernetes.io/default-container");
    let asked = if asked.is_empty() { annotated } else { asked };
    let message = match asked {
        "" if containers.len() == 1 => return Ok(containers.into_iter().next().unwrap_or_default()),
        "" if containers.is_empty() => format!("a container name must be specified for pod {name}"),
        "" => {
            let mut choice =
                format!("a container name must be specified for pod {name}, choose one of: [{}]", containers.join(" "));
            if !first.is_empty() {
                choice.push_str(&format!(" or one of the init containers: [{}]", first.join(" ")));
            }
            if !added.is_empty() {
                choice.push_str(&format!(" or one of the ephemeral containers: [{}]", added.join(" ")));
            }
            choice
        }
        asked if containers.iter().chain(&first).chain(&added).any(|known| known == asked) => {
            return Ok(asked.to_owned());
        }
        asked => format!("container {asked} is not valid for pod {name}"),
    };
    Err(Box::new(Status::bad_request(message)))
}

fn unreachable_node(node: &str) -> Box<Status> {
    Box::new(Status::service_unavailable(format!("node {node} does not serve logs, commands or ports")))
}

/// Requests to a service go to one of its endpoints: `name`, `name:port` or `scheme:name:port`.
fn service_proxy(call: &Call<'_>) -> Box<Status> {
    let id = call.object_name();
    let parts: Vec<&str> = id.split(':').collect();
    let (name, port) = match parts[..] {
        [name] => (name, ""),
        [name, port] => (name, port),
        ["" | "http" | "https", name, port] => (name, port),
        _ => {
            let message = format!("invalid service request {}", setpoint_api::quote::quote(id));
            return Box::new(Status::bad_request(message));
        }
    };
    let snapshot = call.server.store.snapshot();
    if let Ok(number) = port.parse::<i64>() {
        let service = match objects::find(&snapshot, call.served, call.namespace, name) {
            Ok(service) => objects::value(&service),
            Err(status) => return status,
        };
        let mut ports = service["spec"]["ports"].as_array().into_iter().flatten();
        if !ports.any(|port| port.number("port") == Some(number)) {
            let message = format!("no service port {number} found for service \"{name}\"");
            return Box::new(Status::service_unavailable(message));
        }
    }
    let endpoints = GroupResource::new("", "endpoints");
    let Some(found) = snapshot.get(&endpoints, call.namespace, name) else {
        return Box::new(Status::not_found(&call.served.resource, name));
    };
    let has_some = objects::value(&found)["subsets"].as_array().is_some_and(|subsets| !subsets.is_empty());
    let message = match has_some {
        false => format!("no endpoints available for service \"{name}\""),
        true => format!("the endpoints of service \"{name}\" can't be reached from this server"),
    };
    Box::new(Status::service_unavailable(message))
}
