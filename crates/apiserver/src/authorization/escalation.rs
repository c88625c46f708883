//! Nobody gives away what they don't have: a role may hold, and a binding may give, only what its author may do.

use serde_json::Value;
use setpoint_api::{GroupResource, Status};
use setpoint_schema::Edit;

use super::rule::uncovered;
use super::{Asked, GROUP, Rule, What};
use crate::call::Call;
use crate::objects;

/// Checks a role or a binding that is about to be written. Others are of no concern.
pub(crate) fn check(call: &Call<'_>, object: &Value) -> Result<(), Box<Status>> {
    let kind = call.kind();
    if kind.group != GROUP || call.user.is_master() || call.internal {
        return Ok(());
    }
    let metadata = &object["metadata"];
    let (name, namespace) = (metadata.text("name"), metadata.text("namespace"));
    match &*kind.plural {
        "roles" | "clusterroles" => {
            if may(call, "escalate", &kind.plural, namespace, name) {
                return Ok(());
            }
            if object["aggregationRule"].is_object() {
                let everything = Rule::everything();
                confirm(call, object, namespace, &everything).map_err(|_| {
                    forbidden(call, name, "must have cluster-admin privileges to use the aggregationRule")
                })?;
            }
            confirm(call, object, namespace, &Rule::read_all(object))
        }
        "rolebindings" | "clusterrolebindings" => check_binding(call, object, namespace),
        _ => Ok(()),
    }
}

fn check_binding(call: &Call<'_>, binding: &Value, namespace: &str) -> Result<(), Box<Status>> {
    let reference = &binding["roleRef"];
    let (plural, at) = match reference.text("kind") {
        "ClusterRole" => ("clusterroles", None),
        _ => ("roles", Some(namespace)),
    };
    let name = reference.text("name");
    if may(call, "bind", plural, namespace, name) {
        return Ok(());
    }
    let resource = GroupResource::new(GROUP, plural);
    let Some(role) = call.server.store.snapshot().get(&resource, at, name) else {
        // In the words of Kubernetes, which names the binding's resource.
        return Err(Box::new(Status::not_found(&call.served.resource, name)));
    };
    confirm(call, binding, namespace, &Rule::read_all(&objects::value(&role)))
}

fn may(call: &Call<'_>, verb: &str, resource: &str, namespace: &str, name: &str) -> bool {
    let what = What::Resource { group: GROUP, resource, subresource: "", namespace, name };
    call.server.access.judge(&call.server.store, call.user, &Asked::new(verb, what)).0
}

/// That the user has all of some rules.
fn confirm(call: &Call<'_>, object: &Value, namespace: &str, wanted: &[Rule]) -> Result<(), Box<Status>> {
    let policies = call.server.access.current(&call.server.store);
    let missing = uncovered(&policies.rules_of(call.user, namespace), wanted);
    if missing.is_empty() {
        return Ok(());
    }
    let groups: Vec<Box<str>> = call.user.groups.iter().map(|group| Box::from(&**group)).collect();
    let why = format!(
        "user {} (groups=[{}]) is attempting to grant RBAC permissions not currently held:\n{}",
        setpoint_api::quote::quote(&call.user.name),
        super::rule::quoted(&groups),
        missing.join("\n")
    );
    Err(forbidden(call, object["metadata"].text("name"), &why))
}

fn forbidden(call: &Call<'_>, name: &str, why: &str) -> Box<Status> {
    Box::new(Status::forbidden(&call.served.resource, name, why))
}
