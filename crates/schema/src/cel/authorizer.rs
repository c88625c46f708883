//! Expressions that ask whether somebody may do something. Who knows is passed in.

use std::fmt;
use std::sync::Arc;

use setpoint_api::name;

use super::EvalError;
use super::calls::{Evaluated, Run, unfit};
use super::value::{Special, Value};

/// Who knows what the user of a request, and service accounts, may do.
pub trait Authorizer: fmt::Debug + Send + Sync {
    /// Whether it is allowed, and why.
    fn decide(&self, asked: &Asked<'_>) -> Decision;
}

/// What an expression asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked<'a> {
    /// Namespace and name of a service account; otherwise it is about the user of the request.
    pub account: Option<(&'a str, &'a str)>,
    /// What is to be done.
    pub verb: &'a str,
    /// To what.
    pub target: Target<'a>,
}

/// What something is done to. What isn't named is empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target<'a> {
    /// A path that is none of a resource.
    Path(&'a str),
    /// Objects.
    Resource(&'a Resource),
}

/// Objects that something is done to. What isn't named is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resource {
    /// API group.
    pub group: String,
    /// Plural name.
    pub resource: String,
    /// A part of the object.
    pub subresource: String,
    /// The namespace.
    pub namespace: String,
    /// The object's name.
    pub name: String,
}

/// An answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decision {
    /// Whether it is allowed.
    pub allowed: bool,
    /// Why.
    pub reason: String,
}

/// Who is asked, and about whom.
#[derive(Debug, Clone)]
pub struct Handle {
    authorizer: Arc<dyn Authorizer>,
    account: Option<(String, String)>,
}

impl PartialEq for Handle {
    fn eq(&self, other: &Handle) -> bool {
        Arc::ptr_eq(&self.authorizer, &other.authorizer) && self.account == other.account
    }
}

impl Handle {
    fn decide(&self, verb: &str, target: Target<'_>) -> Decision {
        let account = self.account.as_ref().map(|(namespace, name)| (namespace.as_str(), name.as_str()));
        self.authorizer.decide(&Asked { account, verb, target })
    }
}

/// The value of the variable `authorizer`.
pub fn authorizer(authorizer: &Arc<dyn Authorizer>) -> Value<'static> {
    let handle = Handle { authorizer: Arc::clone(authorizer), account: None };
    Value::special(Special::Authorizer(handle))
}

/// The value of the variable `authorizer.requestResource`.
pub fn request_resource(authorizer: &Arc<dyn Authorizer>, resource: Resource) -> Value<'static> {
    let handle = Handle { authorizer: Arc::clone(authorizer), account: None };
    Value::special(Special::ResourceCheck(handle, resource))
}

pub(super) fn run(name: &str) -> Option<Run> {
    Some(match name {
        "path" => path,
        "group" => group,
        "serviceAccount" => service_account,
        "resource" => resource,
        "subresource" => |args| narrowed(args, |resource| &mut resource.subresource),
        "namespace" => |args| narrowed(args, |resource| &mut resource.namespace),
        "name" => |args| narrowed(args, |resource| &mut resource.name),
        // Rights don't depend on selectors here.
        "fieldSelector" | "labelSelector" => selected,
        "check" => check,
        "allowed" => |args| of_decision(args, |decision| Value::Bool(decision.allowed)),
        "reason" => |args| of_decision(args, |decision| Value::text(decision.reason.as_str())),
        "errored" => |args| of_decision(args, |_| Value::Bool(false)),
        "error" => |args| of_decision(args, |_| Value::text("")),
        _ => return None,
    })
}

fn path<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    let [Value::Special(special), Value::String(path)] = args else { return unfit() };
    let Special::Authorizer(handle) = &**special else { return unfit() };
    if path.as_str().trim().is_empty() {
        return Err(EvalError::failed("path must not be empty"));
    }
    Ok(Value::special(Special::PathCheck(handle.clone(), path.as_str().into())))
}

fn group<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    let [Value::Special(special), Value::String(group)] = args else { return unfit() };
    let Special::Authorizer(handle) = &**special else { return unfit() };
    Ok(Value::special(Special::GroupCheck(handle.clone(), group.as_str().into())))
}

fn service_account<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    let [Value::Special(special), Value::String(namespace), Value::String(account)] = args else { return unfit() };
    let Special::Authorizer(handle) = &**special else { return unfit() };
    if !name::dns1123_subdomain(account.as_str()).is_empty() {
        return Err(EvalError::failed("Invalid service account name"));
    }
    if !name::dns1123_label(namespace.as_str()).is_empty() {
        return Err(EvalError::failed("Invalid service account namespace"));
    }
    let account = Some((namespace.as_str().to_owned(), account.as_str().to_owned()));
    Ok(Value::special(Special::Authorizer(Handle { account, ..handle.clone() })))
}

fn resource<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    let [Value::Special(special), Value::String(resource)] = args else { return unfit() };
    let Special::GroupCheck(handle, group) = &**special else { return unfit() };
    if resource.as_str().trim().is_empty() {
        return Err(EvalError::failed("resource must not be empty"));
    }
    let (group, resource) = (group.to_string(), resource.as_str().to_owned());
    let resource = Resource { group, resource, ..Resource::default() };
    Ok(Value::special(Special::ResourceCheck(handle.clone(), resource)))
}

fn narrowed<'a>(args: &[Value<'a>], field: fn(&mut Resource) -> &mut String) -> Evaluated<'a> {
    let [Value::Special(special), Value::String(text)] = args else { return unfit() };
    let Special::ResourceCheck(handle, resource) = &**special else { return unfit() };
    let mut resource = resource.clone();
    *field(&mut resource) = text.as_str().to_owned();
    Ok(Value::special(Special::ResourceCheck(handle.clone(), resource)))
}

fn selected<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    match args {
        [Value::Special(special), Value::String(_)] if matches!(**special, Special::ResourceCheck(..)) => {
            Ok(Value::Special(Arc::clone(special)))
        }
        _ => unfit(),
    }
}

fn check<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    let [Value::Special(special), Value::String(verb)] = args else { return unfit() };
    let decision = match &**special {
        Special::PathCheck(handle, path) => handle.decide(verb.as_str(), Target::Path(path)),
        Special::ResourceCheck(handle, resource) => handle.decide(verb.as_str(), Target::Resource(resource)),
        _ => return unfit(),
    };
    Ok(Value::special(Special::Decision(decision)))
}

fn of_decision<'a>(args: &[Value<'a>], part: fn(&Decision) -> Value<'static>) -> Evaluated<'a> {
    let [Value::Special(special)] = args else { return unfit() };
    match &**special {
        Special::Decision(decision) => Ok(part(decision)),
        _ => unfit(),
    }
}
