//! Should this be so: what the server adds to a write, and what it refuses although the object is valid.
//!
//! The rules run in the order of kube-apiserver's default plugins. Those that change an object run before it is validated,
//! those that only judge it afterwards.

mod amounts;
mod certificate;
mod default_class;
mod limit_range;
mod namespace;
mod node_taint;
mod pod_resources;
mod pod_security;
mod pod_toleration;
mod priority;
pub(crate) mod quota;
mod runtime_class;
mod service_account;
mod storage;

use std::sync::Arc;

use serde_json::Value;
use setpoint_api::{GroupResource, Status};
use setpoint_schema::Edit;
use setpoint_store::{Object, Query, Selection};

use crate::authorization::{self, escalation};
use crate::call::Call;
use crate::objects;

/// Before a creation is validated.
pub(crate) async fn create(call: &mut Call<'_>, object: &mut Value) -> Result<(), Box<Status>> {
    crate::verbs::check_lives(call, object["metadata"].text("name"))?;
    namespace::check_lives(call, object)?;
    match resource(call) {
        ("", "pods") => {
            limit_range::admit(call, object);
            service_account::admit(call, object).await?;
            priority::admit(call, object)?;
            pod_toleration::admit(object);
            runtime_class::admit(call, object)
        }
        ("", "nodes") => {
            node_taint::admit(object);
            Ok(())
        }
        ("", "persistentvolumeclaims") => {
            default_class::admit_claim(call, object);
            storage::protect(object, "kubernetes.io/pvc-protection");
            Ok(())
        }
        ("", "persistentvolumes") => {
            storage::protect(object, "kubernetes.io/pv-protection");
            Ok(())
        }
        ("storage.k8s.io", "volumeattributesclasses") => {
            storage::protect(object, "kubernetes.io/vac-protection");
            Ok(())
        }
        ("networking.k8s.io", "ingresses") => {
            default_class::admit_ingress(call, object);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// After a creation was found valid.
pub(crate) fn check_create(call: &mut Call<'_>, object: &Value) -> Result<(), Box<Status>> {
    match resource(call) {
        ("", "pods") => {
            limit_range::check(call, object)?;
            pod_security::check(call, object)?;
            runtime_class::check(call, object)
        }
        ("", "persistentvolumeclaims") => limit_range::check(call, object),
        ("scheduling.k8s.io", "priorityclasses") => priority::check_class(call, object, None),
        ("certificates.k8s.io", "certificatesigningrequests") => certificate::check(call, object),
        (authorization::GROUP, _) => escalation::check(call, object),
        _ => Ok(()),
    }
}

/// Before a change is validated.
pub(crate) fn update(call: &mut Call<'_>, new: &mut Value, old: &Value) -> Result<(), Box<Status>> {
    match (resource(call), call.subresource) {
        (("", "pods"), Some("resize")) if !old["metadata"].has("deletionTimestamp") => {
            limit_range::admit(call, new);
            Ok(())
        }
        (("", "pods"), None) => {
            priority::keep(new, old);
            pod_toleration::admit(new);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// After a change was found valid.
pub(crate) fn check_update(call: &mut Call<'_>, new: &Value, old: &Value) -> Result<(), Box<Status>> {
    match (resource(call), call.subresource) {
        (("", "pods"), None | Some("ephemeralcontainers")) => pod_security::check_change(call, new, old),
        (("", "persistentvolumeclaims"), None) => {
            check_limits(call, new, old)?;
            storage::check_resize(call, new, old)
        }
        (("", "pods"), Some("resize")) => check_limits(call, new, old),
        (("scheduling.k8s.io", "priorityclasses"), None) => priority::check_class(call, new, Some(old)),
        ((authorization::GROUP, _), None) => escalation::check(call, new),
        _ => Ok(()),
    }
}

/// Before a deletion.
pub(crate) fn delete(call: &Call<'_>, name: &str) -> Result<(), Box<Status>> {
    match resource(call) {
        ("", "namespaces") => namespace::check_mortal(call, name),
        _ => Ok(()),
    }
}

/// What is being deleted needs no limits any more.
fn check_limits(call: &Call<'_>, new: &Value, old: &Value) -> Result<(), Box<Status>> {
    if old["metadata"].has("deletionTimestamp") { Ok(()) } else { limit_range::check(call, new) }
}

fn resource<'a>(call: &Call<'a>) -> (&'a str, &'a str) {
    (&call.kind().group, &call.kind().plural)
}

/// The refusal of a valid object.
fn forbidden(call: &Call<'_>, object: &Value, why: impl std::fmt::Display) -> Box<Status> {
    Box::new(Status::forbidden(&call.served.resource, object["metadata"].text("name"), why))
}

/// Another object that a rule asks about.
fn find(call: &Call<'_>, group: &str, plural: &str, namespace: Option<&str>, name: &str) -> Option<Value> {
    let resource = GroupResource::new(group, plural);
    call.server.store.snapshot().get(&resource, namespace, name).map(|object| objects::value(&object))
}

/// The stored objects of a resource of the core group in the namespace of the request.
fn stored_in_namespace(call: &Call<'_>, plural: &str) -> Vec<Arc<Object>> {
    let resource = GroupResource::new("", plural);
    let (selection, namespace) = (Selection::everything(), call.namespace);
    let query = Query { resource: &resource, namespace, selection: &selection, after: None, limit: None };
    call.server.store.snapshot().list(&query).items
}

/// The objects of a resource of the core group in the namespace of the request.
fn in_namespace(call: &Call<'_>, plural: &str) -> impl Iterator<Item = Value> + use<> {
    stored_in_namespace(call, plural).into_iter().map(|object| objects::value(&object))
}

/// All objects of a resource that has few and belongs to the whole cluster.
fn all(call: &Call<'_>, group: &str, plural: &str) -> Vec<Value> {
    let resource = GroupResource::new(group, plural);
    let selection = Selection::everything();
    let query = Query { resource: &resource, namespace: None, selection: &selection, after: None, limit: None };
    let found: Vec<Arc<Object>> = call.server.store.snapshot().list(&query).items;
    found.iter().map(|object| objects::value(object)).collect()
}

#[cfg(test)]
mod tests;
