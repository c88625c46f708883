//! Policies say in their status what is wrong with the types of their expressions, seen with the kinds that they are about. It
//! changes nothing of what they do.

use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};
use setpoint_api::{GroupResource, Status};
use setpoint_schema::Edit;
use setpoint_schema::builtin::admissionregistration::Scope;
use setpoint_schema::cel::{self, Type};
use setpoint_store::{Query, Selection, WatchError};

use super::params::ParamKind;
use crate::admission::pod_resources::items;
use crate::definitions::{RETRY_AFTER, change_status, follow, ignore_gone};
use crate::objects;
use crate::registry::{Registry, Served};
use crate::server::Inner;

/// The most kinds that the expressions of a policy are seen with. As upstream.
const KINDS_MAX: usize = 10;

static POLICIES: LazyLock<GroupResource> =
    LazyLock::new(|| GroupResource::new("admissionregistration.k8s.io", "validatingadmissionpolicies"));

/// Keeps their status true until the server stops.
pub(crate) async fn run(server: Arc<Inner>) {
    server.until_stopped(keep(&server)).await;
}

async fn keep(server: &Inner) {
    loop {
        let Ok(mut policies) = follow(&server.store, &POLICIES) else { return };
        let done = tell(server).await;
        if let Err(status) = &done {
            tracing::warn!(error = %status.message, "the status of policies could not be written yet");
        }
        tokio::select! {
            result = policies.next() => if matches!(result, Err(WatchError::Closed)) { return },
            () = tokio::time::sleep(RETRY_AFTER), if done.is_err() => {}
        }
    }
}

async fn tell(server: &Inner) -> Result<(), Box<Status>> {
    let selection = Selection::everything();
    let query = Query { resource: &POLICIES, namespace: None, selection: &selection, after: None, limit: None };
    let registry = server.kinds.current(&server.store);
    for policy in server.store.snapshot().list(&query).items {
        let policy = objects::value(&policy);
        let generation = policy["metadata"].number("generation").unwrap_or(0);
        if generation <= policy["status"].number("observedGeneration").unwrap_or(0) {
            continue;
        }
        let warnings = check(&policy, &registry);
        let mut change = |policy: &mut Value| {
            if policy["metadata"].number("generation") == Some(generation) {
                let checking = if warnings.is_empty() { json!({}) } else { json!({"expressionWarnings": warnings}) };
                let status = policy.ensure("status");
                status.set("observedGeneration", generation);
                status.set("typeChecking", checking);
            }
        };
        ignore_gone(change_status(server, &POLICIES, policy["metadata"].text("name"), &mut change).await)?;
    }
    Ok(())
}

/// What is wrong with the expressions of a policy.
fn check(policy: &Value, registry: &Registry) -> Vec<Value> {
    let spec = &policy["spec"];
    let kinds = kinds(spec, registry);
    let mut warnings = Vec::new();
    for (index, validation) in items(spec, "validations").enumerate() {
        for field in ["expression", "messageExpression"] {
            let text = validation.text(field);
            let complaints: Vec<String> =
                kinds.iter().filter_map(|served| complaint(text, spec, served, registry)).collect();
            if !text.is_empty() && !complaints.is_empty() {
                let place = format!("spec.validations[{index}].{field}");
                warnings.push(json!({"fieldRef": place, "warning": complaints.join("\n")}));
            }
        }
    }
    warnings
}

/// The kinds that the rules of a policy name, those with wildcards left out.
fn kinds(spec: &Value, registry: &Registry) -> Vec<Arc<Served>> {
    let mut found: Vec<Arc<Served>> = Vec::new();
    for rule in items(&spec["matchConstraints"], "resourceRules") {
        let texts = |field: &str| items(rule, field).filter_map(Value::as_str).collect::<Vec<&str>>();
        let (groups, versions) = (texts("apiGroups"), texts("apiVersions"));
        if groups.iter().chain(&versions).any(|text| text.contains('*')) {
            continue;
        }
        let named = texts("resources").into_iter().filter(|resource| !resource.contains(['*', '/']));
        for resource in named {
            for (group, version) in groups.iter().flat_map(|group| versions.iter().map(move |version| (group, version)))
            {
                found.extend(registry.find(group, version, resource).cloned());
            }
        }
    }
    let key = |served: &Arc<Served>| {
        let kind = &served.kind;
        (kind.group.to_string(), kind.version.to_string(), kind.kind.to_string())
    };
    found.sort_by_key(key);
    found.dedup_by_key(|served| key(served));
    found.truncate(KINDS_MAX);
    found
}

/// What is wrong with an expression about objects of one kind.
fn complaint(text: &str, spec: &Value, served: &Served, registry: &Registry) -> Option<String> {
    let kind = &served.kind;
    let params = ParamKind::read(&spec["paramKind"]);
    let mut scope = Scope::of_parts(params.is_some(), items(spec, "variables").next().is_some());
    let object = Type::of_schema(&kind.kind, kind.root_type());
    scope.set_type("object", object.clone());
    scope.set_type("oldObject", object);
    let known = params.as_ref().and_then(|params| params.find_in(registry));
    if let Some(known) = known {
        scope.set_type("params", Type::of_schema(&known.kind.kind, known.kind.root_type()));
    }
    for variable in items(spec, "variables") {
        let ty = cel::compile(variable.text("expression"), scope.environment()).unwrap_or(Type::Dyn);
        scope.add_own_variable(variable.text("name"), ty);
    }
    let why = cel::compile(text, scope.environment()).err()?;
    let version = if kind.group.is_empty() { format!("/{}", kind.version) } else { kind.api_version() };
    Some(format!("{version}, Kind={}: {why}\n", kind.kind))
}
