//! Policies in CEL: rules that the server evaluates itself, bound to requests and to parameters.

mod mutating;
mod params;
#[cfg(test)]
mod tests;
pub(crate) mod typing;
mod validating;

use std::sync::Arc;

use serde_json::Value;
use setpoint_api::Status;
use setpoint_schema::Edit;
use setpoint_schema::builtin::admissionregistration::Scope;
use setpoint_schema::cel;

pub(super) use self::mutating::{Mutating, mutate};
pub(super) use self::validating::{Validating, validate};

use self::params::{ParamKind, ParamRef};
use super::expression::{Conditions, Expression, Inputs, Seen, Variable};
use super::matching::Criteria;
use super::pod_resources::items;
use super::request::Request;
use crate::registry::Served;

/// What both sorts of policies have.
pub(super) struct Common {
    name: String,
    criteria: Criteria,
    conditions: Conditions,
    variables: Vec<Variable>,
    params: Option<ParamKind>,
    /// Whether a request is refused if the policy can't be evaluated.
    strict: bool,
}

impl Common {
    /// Reads a policy, and what its expressions see.
    fn read(policy: &Value) -> (Common, Scope) {
        let spec = &policy["spec"];
        let strict = spec.text("failurePolicy") != "Ignore";
        let params = ParamKind::read(&spec["paramKind"]);
        let mut scope = Scope::of_parts(params.is_some(), items(spec, "variables").next().is_some());
        let mut variables = Vec::new();
        for variable in items(spec, "variables") {
            let (name, text) = (variable.text("name"), variable.text("expression"));
            let expression = Expression::compile(text, &scope);
            scope.add_own_variable(name, expression.ty().cloned().unwrap_or(cel::Type::Dyn));
            variables.push(Variable::new(name, expression));
        }
        let common = Common {
            name: policy["metadata"].text("name").to_owned(),
            criteria: Criteria::of_resources(&spec["matchConstraints"], false),
            conditions: Conditions::read(spec, &scope, strict),
            variables,
            params,
            strict,
        };
        (common, scope)
    }
}

/// What ties a policy to requests and parameters.
pub(super) struct Binding {
    name: String,
    policy: String,
    criteria: Option<Criteria>,
    params: Option<ParamRef>,
    actions: Vec<String>,
}

impl Binding {
    pub(super) fn read(binding: &Value) -> Arc<Binding> {
        let spec = &binding["spec"];
        let resources = spec.get("matchResources").filter(|resources| resources.is_object());
        Arc::new(Binding {
            name: binding["metadata"].text("name").to_owned(),
            policy: spec.text("policyName").to_owned(),
            criteria: resources.map(|resources| Criteria::of_resources(resources, true)),
            params: ParamRef::read(&spec["paramRef"]),
            actions: items(spec, "validationActions").filter_map(Value::as_str).map(str::to_owned).collect(),
        })
    }

    fn is_about(
        &self,
        request: &Request<'_>,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<bool, Box<Status>> {
        match &self.criteria {
            Some(criteria) => Ok(criteria.matched(request, object, old)?.is_some()),
            None => Ok(true),
        }
    }
}

/// A policy with what ties it to requests.
pub(super) struct Bound<P> {
    policy: Arc<P>,
    bindings: Vec<Arc<Binding>>,
}

impl<P: AsRef<Common>> Bound<P> {
    /// The policies that are tied to something, in their order.
    pub(super) fn all<'p>(policies: impl Iterator<Item = &'p Arc<P>>, bindings: &[Arc<Binding>]) -> Vec<Bound<P>>
    where
        P: 'p,
    {
        let bound = policies.map(|policy| {
            let name = &(**policy).as_ref().name;
            let bindings = bindings.iter().filter(|binding| binding.policy == *name).cloned().collect();
            Bound { policy: Arc::clone(policy), bindings }
        });
        bound.filter(|bound| !bound.bindings.is_empty()).collect()
    }
}

/// A policy that means a request, through one of its bindings, with one of its parameters.
struct Invocation<'p, P> {
    policy: &'p P,
    binding: &'p Binding,
    served: Arc<Served>,
    param: Option<Value>,
}

/// A policy that could not be evaluated as it is configured.
struct Misconfigured<'p> {
    policy: &'p Common,
    binding: Option<&'p Binding>,
    why: String,
}

/// All that mean a request.
type Selected<'p, P> = (Vec<Invocation<'p, P>>, Vec<Misconfigured<'p>>);

/// The policies that mean a request, in order, and those that should but can't.
async fn select<'p, P: AsRef<Common>>(
    policies: &'p [Bound<P>],
    request: &Request<'_>,
    object: Option<&Value>,
    old: Option<&Value>,
) -> Selected<'p, P> {
    let (mut invocations, mut wrong) = (Vec::new(), Vec::new());
    for Bound { policy, bindings } in policies {
        let common: &Common = (**policy).as_ref();
        let matched = common.criteria.matched(request, object, old).map_err(|status| status.message.clone());
        let served = match matched {
            Ok(Some(served)) => served,
            Ok(None) => continue,
            Err(why) => {
                wrong.push(Misconfigured { policy: common, binding: None, why });
                continue;
            }
        };
        if let Err(why) = params::check_kind(common.params.as_ref(), request) {
            wrong.push(Misconfigured { policy: common, binding: None, why });
            continue;
        }
        for binding in bindings {
            let found = match binding.is_about(request, object, old) {
                Ok(false) => continue,
                Ok(true) => params::collect(common.params.as_ref(), binding.params.as_ref(), request).await,
                Err(status) => Err(status.message),
            };
            match found {
                Err(why) => wrong.push(Misconfigured { policy: common, binding: Some(binding), why }),
                Ok(params) => invocations.extend(params.into_iter().map(|param| Invocation {
                    policy: &**policy,
                    binding,
                    served: Arc::clone(&served),
                    param,
                })),
            }
        }
    }
    (invocations, wrong)
}

/// What the expressions of an invocation see beside the request.
fn inputs<P>(invocation: &Invocation<'_, P>, seen: &Arc<Seen>) -> Inputs {
    Inputs { seen: Arc::clone(seen), params: invocation.param.clone().unwrap_or_default() }
}

/// The namespace as expressions see it; a namespace itself has none.
fn namespace_seen(request: &Request<'_>) -> Result<Value, Box<Status>> {
    let is_namespace = request.kind.group.is_empty() && request.kind.kind == "Namespace";
    if request.namespace.is_empty() || is_namespace {
        return Ok(Value::Null);
    }
    let Some(mut namespace) = request.namespace_object().cloned() else {
        let namespaces = setpoint_api::GroupResource::new("", "namespaces");
        return Err(Box::new(Status::not_found(&namespaces, &request.namespace)));
    };
    namespace.remove("apiVersion");
    namespace.remove("kind");
    for field in ["managedFields", "ownerReferences", "selfLink"] {
        namespace.ensure("metadata").remove(field);
    }
    Ok(namespace)
}

/// The name that a refusal gives: that of the request, or what is known of it.
fn shown_name(request: &Request<'_>, object: Option<&Value>) -> String {
    if !request.name.is_empty() {
        return request.name.clone();
    }
    let metadata = object.map(|object| &object["metadata"]);
    let known = ["name", "generateName"].into_iter().filter_map(|field| Some(metadata?.text(field)));
    let mut known = known.filter(|name| !name.is_empty());
    known.next().unwrap_or("Unknown").to_owned()
}
