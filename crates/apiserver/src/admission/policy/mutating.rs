//! Policies that change objects.

use std::sync::Arc;

use serde_json::Value;
use setpoint_api::{Status, StatusCause};
use setpoint_schema::Edit;
use setpoint_schema::cel::Budget;
use setpoint_schema::json::Json;
use setpoint_schema::managed;
use setpoint_schema::patch::{JsonPatch, Strictness};

use super::{Binding, Bound, Common, Invocation, inputs, namespace_seen, select, shown_name};
use crate::admission::expression::{Evaluation, Expression, Inputs, Met, Seen};
use crate::admission::pod_resources::items;
use crate::admission::reinvocation::Reinvocation;
use crate::admission::request::Request;

/// A MutatingAdmissionPolicy.
pub(in crate::admission) struct Mutating {
    common: Common,
    mutations: Vec<Mutation>,
    is_reinvoked: bool,
}

impl AsRef<Common> for Mutating {
    fn as_ref(&self) -> &Common {
        &self.common
    }
}

/// One change.
enum Mutation {
    /// An object with the fields to set.
    Apply(Expression),
    /// A list of operations.
    Patch(Expression),
}

impl Mutating {
    pub(in crate::admission) fn read(policy: &Value) -> Arc<Mutating> {
        let (common, scope) = Common::read(policy);
        let (spec, scope) = (&policy["spec"], scope.with_patch_types());
        let mutations = items(spec, "mutations").map(|mutation| {
            let compile = |field: &str| Expression::compile(mutation[field].text("expression"), &scope);
            match mutation.text("patchType") {
                "JSONPatch" => Mutation::Patch(compile("jsonPatch")),
                _ => Mutation::Apply(compile("applyConfiguration")),
            }
        });
        let mutations = mutations.collect();
        Arc::new(Mutating { mutations, is_reinvoked: spec.text("reinvocationPolicy") == "IfNeeded", common })
    }
}

/// Lets policies change an object, one after the other.
pub(in crate::admission) async fn mutate(
    policies: &[Bound<Mutating>],
    request: &Request<'_>,
    mut object: Option<&mut Value>,
    old: Option<&Value>,
    rounds: &mut Reinvocation,
) -> Result<(), Box<Status>> {
    let (invocations, wrong) = select(policies, request, object.as_deref(), old).await;
    let mut errors: Vec<(String, &str)> = Vec::new();
    for one in wrong.iter().filter(|one| one.policy.strict) {
        let (policy, why) = (&one.policy.name, &one.why);
        errors.push(match one.binding {
            Some(binding) => (denied(policy, binding, &format!("failed to configure binding: {why}")), ""),
            None => (format!("policy \"{policy}\" denied request: failed to configure policy: {why}"), ""),
        });
    }
    if !invocations.is_empty() {
        let namespace = namespace_seen(request)?;
        for invocation in &invocations {
            let wrong = invoke(invocation, request, object.as_deref_mut(), old, &namespace, rounds).await?;
            let (policy, binding) = (&invocation.policy.common, invocation.binding);
            let told = wrong.iter().filter(|_| policy.strict).map(|why| denied(&policy.name, binding, why));
            errors.extend(told.map(|message| (message, "Invalid")));
        }
    }
    rounds.policies.leave(object.as_deref());
    match errors.first() {
        None => Ok(()),
        Some((message, reason)) => {
            let name = shown_name(request, object.as_deref());
            let mut status = Status::forbidden(&request.resource(), &name, "admission request denied by policy");
            status.message.clone_from(message);
            if !reason.is_empty() {
                status.reason = (*reason).to_owned();
            }
            let causes = errors.iter().map(|(message, _)| message.clone());
            Err(Box::new(
                causes.fold(status, |status, message| {
                    status.with_cause(StatusCause { message, ..StatusCause::default() })
                }),
            ))
        }
    }
}

fn denied(policy: &str, binding: &Binding, why: &str) -> String {
    format!("policy '{policy}' with binding '{}' denied request: {why}", binding.name)
}

/// Runs the mutations of one policy, and says what went wrong.
async fn invoke(
    invocation: &Invocation<'_, Mutating>,
    request: &Request<'_>,
    object: Option<&mut Value>,
    old: Option<&Value>,
    namespace: &Value,
    rounds: &mut Reinvocation,
) -> Result<Vec<String>, Box<Status>> {
    let policy = invocation.policy;
    let seen = Seen::new(request, &invocation.served, object.as_deref(), old, namespace).await?;
    match policy.common.conditions.judge(&mut Evaluation::new(&inputs(invocation, &seen), &policy.common.variables)) {
        Met::Yes => {}
        Met::No => return Ok(Vec::new()),
        Met::Unknown(why) => return Ok(vec![why]),
    }
    let param = invocation.param.as_ref().map(|param| &param["metadata"]);
    let param = param.map(|at| format!("{}/{}", at.text("namespace"), at.text("name"))).unwrap_or_default();
    let id = format!("{}/{}/{param}", policy.common.name, invocation.binding.name);
    if !rounds.policies.asks(&id) {
        return Ok(Vec::new());
    }
    let mut wrong = Vec::new();
    if let Some(object) = object {
        let before = object.clone();
        for mutation in &policy.mutations {
            let seen = Seen::new(request, &invocation.served, Some(object), old, namespace).await?;
            match mutated(mutation, invocation, &inputs(invocation, &seen)) {
                Ok(next) => {
                    let next = request.converted(&next, &invocation.served, request.served).await?;
                    *object = request.decoded(next)?;
                }
                Err(why) => wrong.push(why),
            }
        }
        if before != *object {
            rounds.policies.require();
            rounds.wanted = true;
        }
    }
    if policy.is_reinvoked {
        rounds.policies.remember(&id);
    }
    Ok(wrong)
}

/// The object after one mutation, in the version that the policy is about.
fn mutated(mutation: &Mutation, invocation: &Invocation<'_, Mutating>, inputs: &Inputs) -> Result<Value, String> {
    let mut budget = Budget::full();
    let mut evaluation = Evaluation::new(inputs, &invocation.policy.common.variables);
    let (Mutation::Apply(expression) | Mutation::Patch(expression)) = mutation;
    let value = evaluation.run(expression, &mut budget)??;
    let made = value.to_json().map_err(|error| error.to_string())?;
    match mutation {
        Mutation::Apply(_) => apply(invocation, &inputs.seen.object, made),
        Mutation::Patch(_) => patch(&inputs.seen.object, &made),
    }
}

fn apply(invocation: &Invocation<'_, Mutating>, object: &Value, mut made: Value) -> Result<Value, String> {
    if !made.is_object() {
        return Err("invalid return type: an ApplyConfiguration is an object".to_owned());
    }
    for field in ["apiVersion", "kind"] {
        made.set(field, object[field].clone());
    }
    let root = invocation.served.kind.root_type();
    managed::lay_over(object, &made, root).map_err(|why| format!("error applying patch: {why}"))
}

fn patch(object: &Value, made: &Value) -> Result<Value, String> {
    let bytes = made.to_string();
    let patch = JsonPatch::decode(bytes.as_bytes(), Strictness::Lax).map_err(|error| format!("JSON Patch: {error}"))?;
    match patch.apply(Json::of(object)) {
        Ok(next) => Ok(next.into_value()),
        // A test that fails means that nothing is to be done.
        Err(error) if error.to_string().ends_with(": test failed") => Ok(object.clone()),
        Err(error) => Err(format!("JSON Patch: {error}")),
    }
}
