//! Expressions of webhooks and policies, evaluated on a request.

use std::fmt;
use std::sync::Arc;

use serde_json::Value as Json;
use setpoint_api::Status;
use setpoint_schema::builtin::admissionregistration::Scope;
use setpoint_schema::cel::{
    self, Asked, Authorizer, Bindings, Budget, Decision, EvalError, Program, Resource, Target, Value,
};
use setpoint_store::Store;

use super::request::Request;
use crate::authorization::{self, Access, What};
use crate::registry::Served;
use crate::user::User;

/// The most that the conditions of one webhook or policy may cost together. As upstream.
const CONDITIONS_COST_MAX: u64 = 2_500_000;

/// An expression, ready to be evaluated.
#[derive(Debug)]
pub(super) struct Expression {
    pub(super) text: String,
    program: Result<Program, String>,
}

impl Expression {
    pub(super) fn compile(text: &str, scope: &Scope) -> Expression {
        Expression { text: text.to_owned(), program: Program::compile(text, scope.environment()) }
    }

    /// The type of what it gives, if it can be evaluated at all.
    pub(super) fn ty(&self) -> Option<&cel::Type> {
        self.program.as_ref().ok().map(Program::ty)
    }

    /// What it gives, or why nothing. The outer failure ends everything: there is no budget left.
    fn evaluate<'a>(
        &'a self,
        bindings: &Bindings<'a>,
        budget: &mut Budget,
    ) -> Result<Result<Value<'a>, String>, String> {
        let program = match &self.program {
            Ok(program) => program,
            Err(why) => return Ok(Err(format!("compilation error: {why}"))),
        };
        match program.evaluate(bindings, budget) {
            Ok(value) => Ok(Ok(value)),
            Err(error @ EvalError::OutOfBudget) => Err(error.to_string()),
            Err(error) => Ok(Err(format!("expression '{}' resulted in error: {error}", self.text))),
        }
    }
}

/// A named part of a policy's expressions.
#[derive(Debug)]
pub(super) struct Variable {
    name: String,
    /// The name under which expressions ask for it: `variables.name`.
    bound: String,
    expression: Expression,
}

impl Variable {
    pub(super) fn new(name: &str, expression: Expression) -> Variable {
        Variable { name: name.to_owned(), bound: format!("{PREFIX}{name}"), expression }
    }
}

const ALL: &str = "variables";
const PREFIX: &str = "variables.";

/// Evaluates the expressions of one webhook or policy on one request. Variables are computed when an expression first asks for
/// them.
pub(super) struct Evaluation<'a> {
    bindings: Bindings<'a>,
    variables: &'a [Variable],
    values: Vec<Option<Value<'a>>>,
    /// How many variables were computed or are known to fail.
    known: Vec<bool>,
}

impl<'a> Evaluation<'a> {
    pub(super) fn new(inputs: &'a Inputs, variables: &'a [Variable]) -> Evaluation<'a> {
        let (values, known) = (vec![None; variables.len()], vec![false; variables.len()]);
        Evaluation { bindings: inputs.bindings(), variables, values, known }
    }

    /// What an expression gives, or why nothing. The outer failure ends everything: there is no budget left.
    pub(super) fn run(
        &mut self,
        expression: &'a Expression,
        budget: &mut Budget,
    ) -> Result<Result<Value<'a>, String>, String> {
        self.prepare(expression, self.variables.len(), budget)?;
        expression.evaluate(&self.bindings, budget)
    }

    /// Computes the variables that an expression asks for, of those before `end`.
    fn prepare(&mut self, expression: &'a Expression, end: usize, budget: &mut Budget) -> Result<(), String> {
        let Ok(program) = &expression.program else { return Ok(()) };
        for name in program.variables() {
            let all = name == ALL;
            if !all && !name.starts_with(PREFIX) {
                continue;
            }
            for place in 0..end {
                if (all || self.variables[place].bound == name) && !self.known[place] {
                    self.compute(place, budget)?;
                }
            }
            if all {
                self.bind_all();
            }
        }
        Ok(())
    }

    fn compute(&mut self, place: usize, budget: &mut Budget) -> Result<(), String> {
        let variable = &self.variables[place];
        self.prepare(&variable.expression, place, budget)?;
        self.known[place] = true;
        let (name, bound) = (&variable.name, variable.bound.as_str());
        let program = match &variable.expression.program {
            Ok(program) => program,
            Err(why) => {
                self.bindings.fail(bound, format!("composited variable \"{name}\" fails to compile: {why}"));
                return Ok(());
            }
        };
        match program.evaluate(&self.bindings, budget) {
            Ok(value) => {
                self.values[place] = Some(value.clone());
                self.bindings.bind(bound, value);
            }
            Err(error @ EvalError::OutOfBudget) => return Err(error.to_string()),
            Err(error) => {
                self.bindings.fail(bound, format!("composited variable \"{name}\" fails to evaluate: {error}"));
            }
        }
        Ok(())
    }

    /// Binds all variables as one map, for expressions that ask whether one is there.
    fn bind_all(&mut self) {
        let known = self.variables.iter().zip(&self.values);
        let entries = known.filter_map(|(variable, value)| Some((Value::text(variable.name.as_str()), value.clone()?)));
        let all = Value::map(entries.collect());
        self.bindings.bind(ALL, all);
    }
}

/// What expressions see of a request, apart from parameters.
pub(super) struct Seen {
    pub(super) object: Json,
    old: Json,
    request: Json,
    namespace: Json,
    authorizer: Arc<dyn Authorizer>,
    resource: Resource,
}

/// What expressions see.
pub(super) struct Inputs {
    pub(super) seen: Arc<Seen>,
    pub(super) params: Json,
}

impl Seen {
    /// With the objects in one of their versions.
    pub(super) async fn new(
        request: &Request<'_>,
        served: &Served,
        object: Option<&Json>,
        old: Option<&Json>,
        namespace: &Json,
    ) -> Result<Arc<Seen>, Box<Status>> {
        let (object, old) = (shown(request, served, object).await?, shown(request, served, old).await?);
        let rights = Rights {
            access: Arc::clone(&request.server.access),
            store: request.server.store.clone(),
            user: request.user.clone(),
        };
        let kind = &request.served.kind;
        Ok(Arc::new(Seen {
            object,
            old,
            request: Json::Object(request.to_value(served)),
            namespace: namespace.clone(),
            authorizer: Arc::new(rights),
            resource: Resource {
                group: kind.group.to_string(),
                resource: kind.plural.to_string(),
                subresource: request.subresource.to_owned(),
                namespace: request.namespace.clone(),
                name: request.name.clone(),
            },
        }))
    }
}

/// An object in a version of its kind.
async fn shown(request: &Request<'_>, served: &Served, object: Option<&Json>) -> Result<Json, Box<Status>> {
    match object {
        Some(object) => request.converted(object, request.served, served).await,
        None => Ok(Json::Null),
    }
}

impl Inputs {
    /// The variables that every expression sees.
    fn bindings(&self) -> Bindings<'_> {
        let mut bindings = Bindings::default();
        let seen = &*self.seen;
        let values = [
            ("object", &seen.object),
            ("oldObject", &seen.old),
            ("request", &seen.request),
            ("namespaceObject", &seen.namespace),
            ("params", &self.params),
        ];
        for (name, json) in values {
            bindings.bind(name, Value::from_json(json).unwrap_or(Value::Null));
        }
        bindings.bind("authorizer", cel::authorizer(&seen.authorizer));
        let resource = cel::request_resource(&seen.authorizer, seen.resource.clone());
        bindings.bind("authorizer.requestResource", resource);
        bindings
    }
}

/// What the user of a request, and service accounts, may do.
struct Rights {
    access: Arc<Access>,
    store: Store,
    user: User,
}

impl fmt::Debug for Rights {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "the rights of {}", self.user.name)
    }
}

impl Authorizer for Rights {
    fn decide(&self, asked: &Asked<'_>) -> Decision {
        let account = asked.account.map(|(namespace, name)| User {
            name: format!("system:serviceaccount:{namespace}:{name}"),
            groups: vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")],
            ..User::default()
        });
        let user = account.as_ref().unwrap_or(&self.user);
        let what = match asked.target {
            Target::Path(path) => What::Path(path),
            Target::Resource(of) => What::Resource {
                group: &of.group,
                resource: &of.resource,
                subresource: &of.subresource,
                namespace: &of.namespace,
                name: &of.name,
            },
        };
        let asked = authorization::Asked::new(asked.verb, what);
        let (allowed, reason) = self.access.judge(&self.store, user, &asked);
        Decision { allowed, reason }
    }
}

/// Conditions under which a webhook or a policy is asked at all.
#[derive(Debug)]
pub(super) struct Conditions {
    all: Vec<Expression>,
    /// Whether a request is refused if one of them can't be evaluated.
    strict: bool,
}

/// What conditions say of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Met {
    Yes,
    No,
    /// It can't be told, and so the request is refused.
    Unknown(String),
}

impl Conditions {
    pub(super) fn read(of: &Json, scope: &Scope, strict: bool) -> Conditions {
        let texts = super::pod_resources::items(of, "matchConditions").map(|condition| &condition["expression"]);
        let all = texts.filter_map(Json::as_str).map(|text| Expression::compile(text.trim(), scope)).collect();
        Conditions { all, strict }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn judge<'a>(&'a self, evaluation: &mut Evaluation<'a>) -> Met {
        let mut budget = Budget::of(CONDITIONS_COST_MAX);
        let failed = |why: String| if self.strict { Met::Unknown(why) } else { Met::No };
        let mut errors = Vec::new();
        let mut values = Vec::with_capacity(self.all.len());
        for condition in &self.all {
            match evaluation.run(condition, &mut budget) {
                Ok(value) => values.push(value),
                Err(over) => return failed(over),
            }
        }
        for value in values {
            match value {
                Ok(Value::Bool(false)) => return Met::No,
                Ok(_) => {}
                Err(why) => errors.push(why),
            }
        }
        match errors.len() {
            0 => Met::Yes,
            1 => failed(errors.remove(0)),
            _ => failed(format!("[{}]", errors.join(", "))),
        }
    }
}
