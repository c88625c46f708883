//! Expressions of webhooks and policies: which variables they see and what they must give.

use std::collections::HashSet;

use setpoint_api::name;

use crate::cel::{self, Environment, Type};
use crate::errors::Errors;
use crate::node::Node;

const CONDITIONS_MAX: usize = 64;

/// The variables that an expression sees.
#[derive(Debug, Clone)]
pub struct Scope {
    environment: Environment,
}

impl Scope {
    /// What every expression of admission sees: the request and its object.
    pub fn without_params() -> Self {
        let mut environment = Environment::default();
        environment.declare("object", Type::Dyn);
        environment.declare("oldObject", Type::Dyn);
        environment.declare("namespaceObject", namespace_type());
        environment.declare("request", request_type());
        environment.declare("authorizer", Type::Named("kubernetes.authorization.Authorizer"));
        environment.declare("authorizer.requestResource", Type::Named("kubernetes.authorization.ResourceCheck"));
        Self { environment }
    }

    /// What expressions of a policy see; parameters only if the policy names their kind.
    pub(super) fn of_policy(spec: &Node<'_>) -> Self {
        Self::of_parts(spec.has("paramKind"), spec.count("variables") > 0)
    }

    /// With parameters and variables, if there are any.
    pub fn of_parts(has_params: bool, has_variables: bool) -> Self {
        let mut scope = Self::without_params();
        if has_params {
            scope.environment.declare("params", Type::Dyn);
        }
        if has_variables {
            scope.declare_variables();
        }
        scope
    }

    /// With `variables`, of which there are none yet.
    pub(super) fn declare_variables(&mut self) {
        self.environment.declare("variables", Type::object("kubernetes.variables", []));
    }

    /// Says more of a variable's type.
    pub fn set_type(&mut self, variable: &str, ty: Type) {
        self.environment.declare(variable, ty);
    }

    /// What expressions are compiled with.
    pub fn environment(&self) -> &Environment {
        &self.environment
    }

    /// With `variables.name` as a variable of its own, so that each can be bound, or fail, by itself.
    pub fn add_own_variable(&mut self, name: &str, ty: Type) {
        self.environment.declare(&format!("variables.{name}"), ty.clone());
        self.add_variable(name, ty);
    }

    /// Without the authorizer, which messages may not ask.
    pub fn without_authorizer(&self) -> Self {
        let mut scope = self.clone();
        scope.environment.forget("authorizer");
        scope.environment.forget("authorizer.requestResource");
        scope
    }

    /// With the types that mutations build.
    pub fn with_patch_types(&self) -> Self {
        let mut scope = self.clone();
        scope.environment.allow_struct("Object");
        scope.environment.allow_struct("JSONPatch");
        scope
    }

    /// With `variables.name`, once its expression is known.
    fn add_variable(&mut self, name: &str, ty: Type) {
        self.environment.add_field("variables", name, ty);
    }
}

/// Conditions: a name and an expression that is true or false.
pub(super) fn validate_match_conditions(conditions: &Node<'_>, scope: &Scope, errs: &mut Errors) {
    let mut names = HashSet::new();
    let items = conditions.clone().into_items();
    if items.len() > CONDITIONS_MAX {
        errs.too_many(conditions, items.len(), CONDITIONS_MAX);
    }
    for condition in items {
        let (text, name) = (condition.get("expression"), condition.get("name"));
        let trimmed = text.as_str().trim();
        if trimmed.is_empty() {
            errs.required(&text, "");
        } else {
            check(&text, trimmed, scope, &[Type::Bool], errs);
        }
        if name.is_empty() {
            errs.required(&name, "");
        } else {
            errs.invalid_each(&name, name.as_str(), name::qualified_name(name.as_str()));
            if !names.insert(name.as_str()) {
                errs.duplicate(&name, name.as_str());
            }
        }
    }
}

/// Variables of a policy; each sees those before it.
pub(super) fn validate_variables(spec: &Node<'_>, scope: &mut Scope, errs: &mut Errors) {
    for variable in spec.items("variables") {
        let (name, text) = (variable.get("name"), variable.get("expression"));
        if name.as_str().trim().is_empty() {
            errs.required(&name, "name is not specified");
        } else if !cel::is_identifier(name.as_str()) {
            errs.invalid_here(&name, "must be a valid CEL identifier");
        }
        if text.as_str().trim().is_empty() {
            errs.required(&text, "expression is not specified");
            continue;
        }
        match cel::compile(text.as_str(), &scope.environment) {
            Ok(ty) => scope.add_variable(name.as_str(), ty),
            Err(detail) => {
                errs.invalid_here(&text, detail);
                scope.add_variable(name.as_str(), Type::Dyn);
            }
        }
    }
}

/// That the expression compiles and gives one of these types.
pub(super) fn check(at: &Node<'_>, text: &str, scope: &Scope, wanted: &[Type], errs: &mut Errors) {
    check_shown_as(at, text, text, scope, wanted, errs);
}

/// The same, where the message shows the expression in another form than was compiled.
pub(super) fn check_shown_as(
    at: &Node<'_>,
    text: &str,
    shown: &str,
    scope: &Scope,
    wanted: &[Type],
    errs: &mut Errors,
) {
    let detail = match cel::compile(text, &scope.environment) {
        Err(detail) => detail,
        Ok(ty) if wanted.contains(&ty) => return,
        Ok(ty) => match wanted {
            [one] => format!("must evaluate to {one} but got {ty}"),
            many => {
                let names: Vec<_> = many.iter().map(ToString::to_string).collect();
                format!("must evaluate to one of [{}] but got {ty}", names.join(" "))
            }
        },
    };
    errs.invalid(at, shown, detail);
}

fn object(name: &str, fields: &[(&str, Type)]) -> Type {
    Type::object(name, fields.iter().map(|(name, ty)| ((*name).to_owned(), ty.clone())))
}

/// What expressions see of the request.
fn request_type() -> Type {
    let texts = Type::list(Type::String);
    let kind = [("group", Type::String), ("version", Type::String), ("kind", Type::String)];
    let kind = object("kubernetes.GroupVersionKind", &kind);
    let resource = [("group", Type::String), ("version", Type::String), ("resource", Type::String)];
    let resource = object("kubernetes.GroupVersionResource", &resource);
    let user = [
        ("username", Type::String),
        ("uid", Type::String),
        ("groups", texts.clone()),
        ("extra", Type::map(Type::String, texts)),
    ];
    let fields = [
        ("kind", kind.clone()),
        ("resource", resource.clone()),
        ("subResource", Type::String),
        ("requestKind", kind),
        ("requestResource", resource),
        ("requestSubResource", Type::String),
        ("name", Type::String),
        ("namespace", Type::String),
        ("operation", Type::String),
        ("userInfo", object("kubernetes.UserInfo", &user)),
        ("dryRun", Type::Bool),
        ("options", Type::Dyn),
    ];
    object("kubernetes.AdmissionRequest", &fields)
}

/// What expressions see of the namespace.
fn namespace_type() -> Type {
    let labels = Type::map(Type::String, Type::String);
    let metadata = [
        ("name", Type::String),
        ("generateName", Type::String),
        ("namespace", Type::String),
        ("labels", labels.clone()),
        ("annotations", labels),
        ("UID", Type::String),
        ("creationTimestamp", Type::Timestamp),
        ("deletionGracePeriodSeconds", Type::Int),
        ("deletionTimestamp", Type::Timestamp),
        ("generation", Type::Int),
        ("resourceVersion", Type::String),
        ("finalizers", Type::list(Type::String)),
    ];
    let condition = [
        ("status", Type::String),
        ("type", Type::String),
        ("lastTransitionTime", Type::Timestamp),
        ("message", Type::String),
        ("reason", Type::String),
    ];
    let conditions = Type::list(object("kubernetes.NamespaceCondition", &condition));
    let status = [("conditions", conditions), ("phase", Type::String)];
    let spec = [("finalizers", Type::list(Type::String))];
    let fields = [
        ("metadata", object("kubernetes.NamespaceMetadata", &metadata)),
        ("spec", object("kubernetes.NamespaceSpec", &spec)),
        ("status", object("kubernetes.NamespaceStatus", &status)),
    ];
    object("kubernetes.Namespace", &fields)
}
