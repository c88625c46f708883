//! Who may say that an object belongs to another.
//!
//! An owner that goes takes its objects with it, and one that waits for them stays: so who changes the owners of an object must be
//! one who may delete it, and who holds an owner back must be one who may set finalizers on it. In the words of Kubernetes, which has
//! this as the plugin OwnerReferencesPermissionEnforcement.

use serde_json::Value;
use setpoint_api::Status;
use setpoint_schema::Edit;

use super::{forbidden, is_scale};
use crate::authorization::{Asked, What};
use crate::call::Call;

/// Checks the owners of an object that is about to be stored; `old` is what it was, if it was there.
pub(super) fn check(call: &Call<'_>, new: &Value, old: Option<&Value>) -> Result<(), Box<Status>> {
    // What is written to the status of a pod is the node's to say; a size has no owners.
    let is_exempt = call.internal || call.user.is_master() || is_scale(call);
    let is_pod_status = super::resource(call) == ("", "pods") && call.subresource == Some("status");
    let (wanted, had) = (owners(new), old.map(owners).unwrap_or_default());
    if is_exempt || is_pod_status || wanted == had {
        return Ok(());
    }
    // What is new is nobody's yet.
    if old.is_some() {
        let kind = call.kind();
        let what = What::Resource {
            group: &kind.group,
            resource: &kind.plural,
            subresource: call.subresource.unwrap_or_default(),
            namespace: call.namespace.filter(|_| kind.namespaced).unwrap_or_default(),
            name: call.object_name(),
        };
        ask(call, new, "delete", what, "cannot set an ownerRef on a resource you can't delete")?;
    }
    wanted.iter().filter(|owner| is_newly_blocking(owner, had)).try_for_each(|owner| check_blocked(call, new, owner))
}

/// The owner is held back until the object is gone: that is what a finalizer does.
fn check_blocked(call: &Call<'_>, object: &Value, owner: &Value) -> Result<(), Box<Status>> {
    let (api_version, kind) = (owner.text("apiVersion"), owner.text("kind"));
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    let registry = call.server.kinds.current(&call.server.store);
    let is_named =
        |named: &setpoint_schema::Kind| *named.kind == *kind && *named.group == *group && *named.version == *version;
    let mut found = registry.kinds().map(|served| &served.kind).filter(|named| is_named(named)).peekable();
    if found.peek().is_none() {
        let why = format!(
            "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion {api_version} Kind {kind}: no matches for kind {} in version {}",
            setpoint_api::quote::quote(kind),
            setpoint_api::quote::quote(api_version),
        );
        return Err(forbidden(call, object, why));
    }
    found.try_for_each(|named| {
        let what = What::Resource {
            group: &named.group,
            resource: &named.plural,
            subresource: "finalizers",
            namespace: call.namespace.filter(|_| named.namespaced).unwrap_or_default(),
            name: owner.text("name"),
        };
        let why = "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on";
        ask(call, object, "update", what, why)
    })
}

fn ask(call: &Call<'_>, object: &Value, verb: &str, what: What<'_>, why: &str) -> Result<(), Box<Status>> {
    match call.server.access.judge(&call.server.store, call.user, &Asked::new(verb, what)) {
        (true, _) => Ok(()),
        (false, reason) => Err(forbidden(call, object, format!("{why}: {reason}, <nil>"))),
    }
}

/// Whether an owner is held back who was not before.
fn is_newly_blocking(owner: &Value, had: &[Value]) -> bool {
    let was = had.iter().find(|before| before.text("uid") == owner.text("uid"));
    owner.flag("blockOwnerDeletion") && !was.is_some_and(|before| before.flag("blockOwnerDeletion"))
}

fn owners(object: &Value) -> &[Value] {
    object["metadata"]["ownerReferences"].as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests;
