//! What nodes and pods use, as `metrics.k8s.io`: nothing is stored, all is asked from the nodes.

mod shape;

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use http::{Method, StatusCode};
use serde_json::Value;
use setpoint_api::{GroupResource, Status};
use setpoint_schema::Edit;
use setpoint_store::{Query as StoreQuery, Selection};

use crate::answer::Answer;
use crate::audit::Noted;
use crate::call::Call;
use crate::nearby::Usage;
use crate::path::ResourcePath;
use crate::query::{ListOptions, Query};
use crate::registry::Registry;
use crate::representation::{Form, Representation};
use crate::server::{Inner, decoded, unknown_resource};
use crate::user::User;
use crate::{objects, verbs};

pub(crate) use shape::{GROUP, VERSION, discovery_item, resource_list};

/// Whether the group is served.
pub(crate) fn is_served(server: &Inner) -> bool {
    server.serves_node_metrics.load(Ordering::Relaxed) && server.nearby.get().is_some()
}

/// Whether a path leads here.
pub(crate) fn is_about(server: &Inner, path: &ResourcePath<'_>) -> bool {
    path.group == GROUP && path.version == VERSION && is_served(server)
}

/// Answers with the figures of one node or pod, or of those that a selector chooses.
pub(crate) async fn answer(
    server: &Inner,
    registry: &Registry,
    parts: &http::request::Parts,
    path: &ResourcePath<'_>,
    user: &User,
) -> Answer {
    let is_pods = path.resource == "pods";
    let is_there = matches!(path.resource, "pods" | "nodes") && path.subresource.is_none() && !path.watch;
    let served = registry.find("", "v1", path.resource).filter(|_| is_there).ok_or_else(unknown_resource)?;
    if path.namespace.is_some() != is_pods && (path.name.is_some() || !is_pods) {
        return Err(unknown_resource());
    }
    if parts.method != Method::GET {
        return Err(verbs::not_allowed());
    }
    let (name, namespace) = (path.name.map(decoded).transpose()?, path.namespace.map(decoded).transpose()?);
    let call = Call {
        server,
        served,
        namespace: namespace.as_deref(),
        name: None,
        subresource: None,
        watch_path: false,
        query: Query::parse(parts.uri.query().unwrap_or("")),
        headers: &parts.headers,
        user,
        internal: false,
        fence: None,
        warnings: Vec::new(),
        emptied: Vec::new(),
        audit_annotations: Vec::new(),
        noted: Noted::default(),
        memo: None,
    };
    let figures = Figures::take(server);
    match name {
        Some(name) => one(&call, &figures, is_pods, &name),
        None => many(&call, &figures, is_pods).await,
    }
}

fn one(call: &Call<'_>, figures: &Figures<'_>, is_pods: bool, name: &str) -> Answer {
    let found = call.server.store.snapshot().get(&call.served.stored, call.namespace, name);
    let shown = found.and_then(|found| figures.of(&objects::value(&found), is_pods));
    let shown = shown.ok_or_else(|| {
        let place = call.namespace.map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}"));
        Box::new(Status::not_found(&GroupResource::new(GROUP, shape::resource(is_pods)), &place))
    })?;
    let representation = Representation::of(call.headers, &call.query, false)?;
    let shown = if representation.form == Form::Table { shape::table(&[shown], representation.version) } else { shown };
    Ok(verbs::encode(StatusCode::OK, &shown, representation))
}

async fn many(call: &Call<'_>, figures: &Figures<'_>, is_pods: bool) -> Answer {
    let representation = Representation::of(call.headers, &call.query, false)?;
    let options = ListOptions { limit: None, ..ListOptions::read(&call.query, false)? };
    let found = verbs::find(call, &options).await?;
    let shown: Vec<Value> = found.items.iter().filter_map(|it| figures.of(&objects::value(it), is_pods)).collect();
    let shown = match representation.form {
        Form::Table => shape::table(&shown, representation.version),
        Form::Object | Form::Partial | Form::PartialList => shape::list(is_pods, shown),
    };
    Ok(verbs::encode(StatusCode::OK, &shown, representation))
}

/// The figures of one moment.
struct Figures<'a> {
    server: &'a Inner,
    /// What the pods of each node use together.
    by_node: HashMap<String, Usage>,
}

impl<'a> Figures<'a> {
    fn take(server: &'a Inner) -> Figures<'a> {
        let (pods, everything) = (GroupResource::new("", "pods"), Selection::everything());
        let query = StoreQuery { resource: &pods, namespace: None, selection: &everything, after: None, limit: None };
        let mut figures = Figures { server, by_node: HashMap::new() };
        for pod in server.store.snapshot().list(&query).items {
            let pod = objects::value(&pod);
            let node = pod["spec"].text("nodeName");
            if !node.is_empty() {
                let sum = figures.used_by(&pod).into_iter().fold(Usage::default(), plus);
                let all = figures.by_node.entry(node.to_owned()).or_default();
                *all = plus(std::mem::take(all), sum);
            }
        }
        figures
    }

    /// The figures of a node or a pod; none if nobody measures it.
    fn of(&self, object: &Value, is_pods: bool) -> Option<Value> {
        let window = self.server.clock.seconds();
        if is_pods {
            let containers = self.used_by(object);
            return (!containers.is_empty()).then(|| shape::pod(object, &containers, window));
        }
        let nodes = self.server.nearby.get().filter(|nodes| nodes.has(object))?;
        let pods = self.by_node.get(object["metadata"].text("name")).cloned().unwrap_or_default();
        Some(shape::node(object, &plus(nodes.overhead(), pods), window))
    }

    fn used_by(&self, pod: &Value) -> Vec<Usage> {
        let nodes = self.server.nearby.get();
        let snapshot = self.server.store.snapshot();
        let node = snapshot.get(&GroupResource::new("", "nodes"), None, pod["spec"].text("nodeName"));
        match (nodes, node) {
            (Some(nodes), Some(node)) if nodes.has(&objects::value(&node)) => nodes.usage(pod, self.server.clock.now()),
            _ => Vec::new(),
        }
    }
}

fn plus(one: Usage, other: Usage) -> Usage {
    Usage {
        name: String::new(),
        cpu_nanos: one.cpu_nanos.saturating_add(other.cpu_nanos),
        memory_bytes: one.memory_bytes.saturating_add(other.memory_bytes),
    }
}
