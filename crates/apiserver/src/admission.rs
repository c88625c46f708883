//! Should this be so: what the server adds to a write, and what it refuses although the object is valid.
//!
//! The rules run in the order of kube-apiserver's default plugins. Those that change an object run before it is validated,
//! those that only judge it afterwards; webhooks and policies after what is built in, and quotas last of all.

mod admin_access;
mod amounts;
mod certificate;
mod connection;
mod default_class;
mod expression;
mod extensions;
mod external_ips;
mod limit_range;
mod matching;
mod namespace;
pub(crate) mod node_restriction;
mod node_taint;
mod notes;
mod owner_references;
mod plugin;
mod pod_resize;
mod pod_resources;
mod pod_security;
mod pod_toleration;
pub(crate) mod policy;
mod priority;
pub(crate) mod quota;
mod reinvocation;
mod request;
mod runtime_class;
mod service_account;
mod storage;
mod vehicle_restriction;
mod webhook;

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use serde_json::Value;
use setpoint_api::{FieldError, GroupResource, Status};
use setpoint_schema::Edit;
use setpoint_schema::builtin::autoscaling::scale;
use setpoint_store::{Object, Query, Selection};

pub(crate) use self::extensions::Extensions;
use self::extensions::Plugins;
use self::notes::Notes;
pub use self::plugin::{Plugin, UnknownPlugin};
use self::reinvocation::Reinvocation;
use self::request::{Operation, Request};

use crate::call::Call;
use crate::objects;
use crate::query::WriteOptions;

/// Before a creation is validated.
pub(crate) async fn create(call: &mut Call<'_>, object: &mut Value, options: &WriteOptions) -> Result<(), Box<Status>> {
    fill_in(call, object).await?;
    let plugins = call.server.extensions.current(&call.server.store);
    if !plugins.mutate() {
        return Ok(());
    }
    let name = object["metadata"].text("name").to_owned();
    let given = request::options(call, "CreateOptions");
    let request = Request::new(call, Operation::Create, &name, given, options.dry_run);
    let (mut rounds, mut notes) = (Reinvocation::default(), Notes::default());
    let mut result = plugins.change(&request, Some(object), None, &mut rounds, &mut notes).await;
    if result.is_ok() && rounds.wanted {
        result = fill_in(call, object).await;
        if result.is_ok() {
            rounds.begin_second(object);
            result = plugins.change(&request, Some(object), None, &mut rounds, &mut notes).await;
        }
    }
    take(call, notes);
    result
}

/// What the server itself adds to a new object.
async fn fill_in(call: &mut Call<'_>, object: &mut Value) -> Result<(), Box<Status>> {
    crate::verbs::check_lives(call, object["metadata"].text("name"))?;
    namespace::check_lives(call, object)?;
    if resource(call) == ("", "pods") {
        limit_range::admit(call, object);
        if call.server.runs(Plugin::ServiceAccount) {
            service_account::admit(call, object).await?;
        }
    }
    node_restriction::create(call, object)?;
    match resource(call) {
        ("", "pods") => {
            priority::admit(call, object)?;
            tolerate(call, object);
            runtime_class::admit(call, object)
        }
        ("", "nodes") => {
            node_taint::admit(object);
            Ok(())
        }
        ("", "persistentvolumeclaims") => {
            if call.server.runs(Plugin::DefaultStorageClass) {
                default_class::admit_claim(call, object);
            }
            protect(call, object, "kubernetes.io/pvc-protection");
            Ok(())
        }
        ("", "persistentvolumes") => {
            protect(call, object, "kubernetes.io/pv-protection");
            Ok(())
        }
        ("storage.k8s.io", "volumeattributesclasses") => {
            protect(call, object, "kubernetes.io/vac-protection");
            Ok(())
        }
        ("networking.k8s.io", "ingresses") => {
            default_class::admit_ingress(call, object);
            Ok(())
        }
        _ => Ok(()),
    }
}

fn tolerate(call: &Call<'_>, pod: &mut Value) {
    if call.server.runs(Plugin::DefaultTolerationSeconds) {
        pod_toleration::admit(pod);
    }
}

fn protect(call: &Call<'_>, object: &mut Value, finalizer: &str) {
    if call.server.runs(Plugin::StorageObjectInUseProtection) {
        storage::protect(object, finalizer);
    }
}

/// What is wrong with a new object that its kind alone can't tell. It is told before all else that is wrong with it.
pub(crate) fn errors_of_surroundings(call: &Call<'_>, object: &Value) -> Option<FieldError> {
    match resource(call) {
        ("resource.k8s.io", "resourceclaims") => admin_access::check(call, &object["spec"]),
        ("resource.k8s.io", "resourceclaimtemplates") => admin_access::check(call, &object["spec"]["spec"]),
        _ => None,
    }
}

/// Whether objects of a kind have a template of pods.
fn makes_pods(resource: (&str, &str)) -> bool {
    matches!(
        resource,
        ("", "podtemplates" | "replicationcontrollers")
            | ("apps", "replicasets" | "deployments" | "daemonsets" | "statefulsets")
            | ("batch", "jobs" | "cronjobs")
    )
}

/// After a creation was found valid.
pub(crate) async fn check_create(
    call: &mut Call<'_>,
    object: &Value,
    options: &WriteOptions,
) -> Result<(), Box<Status>> {
    match resource(call) {
        ("", "pods") => {
            limit_range::check(call, object)?;
            if call.server.runs(Plugin::ServiceAccount) {
                service_account::check(call, object)?;
            }
            pod_security::check(call, object)?;
            runtime_class::check(call, object)
        }
        ("", "persistentvolumeclaims") => limit_range::check(call, object),
        ("", "services") => external_ips::check(call, object, None),
        ("", "namespaces") => pod_security::namespace::check(call, object, None),
        resource if makes_pods(resource) => {
            pod_security::check_template(call, object);
            Ok(())
        }
        ("scheduling.k8s.io", "priorityclasses") => priority::check_class(call, object, None),
        ("certificates.k8s.io", "certificatesigningrequests") => certificate::check(call, object),
        _ => Ok(()),
    }?;
    owner_references::check(call, object, None)?;
    let plugins = call.server.extensions.current(&call.server.store);
    if !plugins.validate() {
        return Ok(());
    }
    let given = request::options(call, "CreateOptions");
    let request = Request::new(call, Operation::Create, object["metadata"].text("name"), given, options.dry_run);
    judge(call, &plugins, &request, Some(object), None).await
}

/// Before a change is validated.
pub(crate) async fn update(
    call: &mut Call<'_>,
    new: &mut Value,
    old: &Value,
    options: &WriteOptions,
) -> Result<(), Box<Status>> {
    node_restriction::update(call, new, old)?;
    vehicle_restriction::update(call, new, old)?;
    keep(call, new, old);
    let plugins = call.server.extensions.current(&call.server.store);
    if !plugins.mutate() || options.kind.is_empty() {
        return Ok(());
    }
    let given = request::options(call, options.kind);
    let request = Request::new(call, Operation::Update, call.object_name(), given, options.dry_run);
    let (mut rounds, mut notes) = (Reinvocation::default(), Notes::default());
    let before = shown(call, old).into_owned();
    let mut seen = shown(call, new).into_owned();
    let mut result = plugins.change(&request, Some(&mut seen), Some(&before), &mut rounds, &mut notes).await;
    if result.is_ok() && rounds.wanted {
        if !is_scale(call) {
            keep(call, &mut seen, old);
        }
        rounds.begin_second(&seen);
        result = plugins.change(&request, Some(&mut seen), Some(&before), &mut rounds, &mut notes).await;
    }
    match is_scale(call) {
        true => resize(call, new, &seen),
        false => *new = seen,
    }
    take(call, notes);
    result
}

/// What the server itself keeps or adds when an object changes.
fn keep(call: &mut Call<'_>, new: &mut Value, old: &Value) {
    match (resource(call), call.subresource) {
        (("", "pods"), Some("resize")) if !old["metadata"].has("deletionTimestamp") => limit_range::admit(call, new),
        (("", "pods"), None) => {
            priority::keep(new, old);
            tolerate(call, new);
        }
        _ => {}
    }
}

/// After a change was found valid.
pub(crate) async fn check_update(
    call: &mut Call<'_>,
    new: &Value,
    old: &Value,
    options: &WriteOptions,
) -> Result<(), Box<Status>> {
    match (resource(call), call.subresource) {
        (("", "pods"), None) => pod_security::check_change(call, new, old),
        (("", "pods"), Some("ephemeralcontainers")) => {
            service_account::check_added(call, new)?;
            pod_security::check_change(call, new, old)
        }
        (("", "persistentvolumeclaims"), None) => {
            check_limits(call, new, old)?;
            storage::check_resize(call, new, old)
        }
        (("", "services"), None) => external_ips::check(call, new, Some(old)),
        (("", "namespaces"), None) => pod_security::namespace::check(call, new, Some(old)),
        (resource, None) if makes_pods(resource) => {
            pod_security::check_template(call, new);
            Ok(())
        }
        (("", "pods"), Some("resize")) => {
            check_limits(call, new, old)?;
            pod_resize::check(call, new, old)
        }
        (("certificates.k8s.io", "certificatesigningrequests"), Some("approval")) => {
            certificate::check_approval(call, old)
        }
        (("certificates.k8s.io", "certificatesigningrequests"), Some("status")) => {
            certificate::check_signing(call, new, old)
        }
        (("resource.k8s.io", "resourceclaims"), Some("status")) => admin_access::check_granted(call, new, old),
        (("scheduling.k8s.io", "priorityclasses"), None) => priority::check_class(call, new, Some(old)),
        _ => Ok(()),
    }?;
    owner_references::check(call, new, Some(old))?;
    let plugins = call.server.extensions.current(&call.server.store);
    if !plugins.validate() || options.kind.is_empty() {
        return Ok(());
    }
    let given = request::options(call, options.kind);
    let request = Request::new(call, Operation::Update, call.object_name(), given, options.dry_run);
    let (new, old) = (shown(call, new).into_owned(), shown(call, old).into_owned());
    judge(call, &plugins, &request, Some(&new), Some(&old)).await
}

/// Before the deletion of an object that is there. `options` are those of the client.
pub(crate) async fn delete(
    call: &mut Call<'_>,
    name: &str,
    old: &Value,
    options: Value,
    dry_run: bool,
) -> Result<(), Box<Status>> {
    let plugins = call.server.extensions.current(&call.server.store);
    // An eviction was judged as such.
    if !plugins.mutate() && !plugins.validate() || call.subresource.is_some() {
        return Ok(());
    }
    // One of many is not named.
    let named = call.name.map_or("", |_| name);
    let request = Request::new(call, Operation::Delete, named, options, dry_run);
    let (mut rounds, mut notes) = (Reinvocation::default(), Notes::default());
    let result = plugins.change(&request, None, Some(old), &mut rounds, &mut notes).await;
    take(call, notes);
    result?;
    judge(call, &plugins, &request, None, Some(old)).await
}

/// Before anything is looked for that is to be deleted.
pub(crate) fn check_delete(call: &Call<'_>, name: &str) -> Result<(), Box<Status>> {
    node_restriction::delete(call, name)?;
    match resource(call) {
        ("", "namespaces") => namespace::check_mortal(call, name),
        _ => Ok(()),
    }
}

/// What is posted to a part of an object, or only answered: a binding, an eviction, a review.
pub(crate) async fn post(
    call: &mut Call<'_>,
    object: &mut Value,
    name: &str,
    options: &WriteOptions,
) -> Result<(), Box<Status>> {
    let given = request::options(call, "CreateOptions");
    pass(call, Operation::Create, name, object, given, options.dry_run).await
}

/// A connection to a part of an object: commands, ports.
pub(crate) async fn connect(call: &mut Call<'_>, part: &str) -> Result<(), Box<Status>> {
    let mut options = connection::options(call, part);
    pass(call, Operation::Connect, call.object_name(), &mut options, Value::Null, false).await
}

/// Both halves of the chain, for what is not stored.
async fn pass(
    call: &mut Call<'_>,
    operation: Operation,
    name: &str,
    object: &mut Value,
    options: Value,
    dry_run: bool,
) -> Result<(), Box<Status>> {
    let plugins = call.server.extensions.current(&call.server.store);
    if !plugins.mutate() && !plugins.validate() {
        return Ok(());
    }
    let request = Request::new(call, operation, name, options, dry_run);
    let (mut rounds, mut notes) = (Reinvocation::default(), Notes::default());
    let mut result = plugins.change(&request, Some(object), None, &mut rounds, &mut notes).await;
    if result.is_ok() && rounds.wanted {
        rounds.begin_second(object);
        result = plugins.change(&request, Some(object), None, &mut rounds, &mut notes).await;
    }
    take(call, notes);
    result?;
    judge(call, &plugins, &request, Some(object), None).await
}

/// Asks those that only judge.
async fn judge(
    call: &mut Call<'_>,
    plugins: &Plugins,
    request: &Request<'_>,
    object: Option<&Value>,
    old: Option<&Value>,
) -> Result<(), Box<Status>> {
    let mut notes = Notes::default();
    let result = plugins.judge(request, object, old, &mut notes).await;
    take(call, notes);
    result
}

fn take(call: &mut Call<'_>, notes: Notes) {
    call.warnings.extend(notes.warnings);
    call.audit_annotations.extend(notes.annotations);
}

fn is_scale(call: &Call<'_>) -> bool {
    call.subresource == Some("scale")
}

/// An object as webhooks and policies see it: of one that is resized, only its size.
fn shown<'v>(call: &Call<'_>, object: &'v Value) -> Cow<'v, Value> {
    match call.kind().behaviour.scale().filter(|_| is_scale(call)) {
        Some(paths) => Cow::Owned(scale::scale_of(object, &paths)),
        None => Cow::Borrowed(object),
    }
}

/// Takes the size that was made of it.
fn resize(call: &Call<'_>, object: &mut Value, seen: &Value) {
    let Some(paths) = call.kind().behaviour.scale() else { return };
    let (Some(size), Some((last, way))) = (seen["spec"].number("replicas"), paths.spec_replicas.split_last()) else {
        return;
    };
    way.iter().fold(object, |at, name| at.ensure(name)).set(last, size);
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
    let metadata = &object["metadata"];
    let name = ["name", "generateName"].into_iter().map(|field| metadata.text(field)).find(|name| !name.is_empty());
    Box::new(Status::forbidden(&call.served.resource, name.unwrap_or("Unknown"), why))
}

/// Another object that a rule asks about.
fn find(call: &Call<'_>, group: &str, plural: &str, namespace: Option<&str>, name: &str) -> Option<Value> {
    let resource = GroupResource::new(group, plural);
    call.server.store.snapshot().get(&resource, namespace, name).map(|object| objects::value(&object))
}

/// Where limit ranges and quotas are stored.
static LIMIT_RANGES: LazyLock<GroupResource> = LazyLock::new(|| GroupResource::new("", "limitranges"));
static QUOTAS: LazyLock<GroupResource> = LazyLock::new(|| GroupResource::new("", "resourcequotas"));

/// The stored objects of a resource in the namespace of the request.
fn stored_in_namespace(call: &Call<'_>, resource: &GroupResource) -> Vec<Arc<Object>> {
    let (selection, namespace) = (Selection::everything(), call.namespace);
    let query = Query { resource, namespace, selection: &selection, after: None, limit: None };
    call.server.store.snapshot().list(&query).items
}

/// The objects of a resource in the namespace of the request.
fn in_namespace(call: &Call<'_>, resource: &GroupResource) -> impl Iterator<Item = Value> + use<> {
    stored_in_namespace(call, resource).into_iter().map(|object| objects::value(&object))
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
