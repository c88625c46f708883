//! What a request asks to do.

use http::Method;
use setpoint_api::fields;

use crate::path::ResourcePath;
use crate::query::Query;

/// A verb and what it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked<'a> {
    pub(crate) verb: &'a str,
    pub(crate) what: What<'a>,
    /// The node that a field selector narrows it to.
    pub(crate) on_node: Option<&'a str>,
}

/// Objects, or a path that is none of theirs. What isn't named is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What<'a> {
    Resource { group: &'a str, resource: &'a str, subresource: &'a str, namespace: &'a str, name: &'a str },
    Path(&'a str),
}

impl<'a> Asked<'a> {
    /// A verb on something.
    pub(crate) fn new(verb: &'a str, what: What<'a>) -> Asked<'a> {
        Asked { verb, what, on_node: None }
    }

    /// What a method does with a path outside of the resources.
    pub(crate) fn of_path(verb: &'a str, path: &'a str) -> Asked<'a> {
        Asked::new(verb, What::Path(path))
    }

    /// What a method does with objects, of which its selector chooses some.
    pub(crate) fn of_resource(
        method: &Method,
        path: &ResourcePath<'a>,
        query: &Query<'_>,
        narrowed: &'a Narrowed,
    ) -> Asked<'a> {
        let name = path.name.or(narrowed.name.as_deref()).unwrap_or("");
        let verb = match (method.as_str(), path.name.is_some()) {
            ("GET" | "HEAD", _) if path.watch => "watch",
            ("GET" | "HEAD", true) => "get",
            ("GET" | "HEAD", false) if query.flag("watch") => "watch",
            ("GET" | "HEAD", false) => "list",
            ("POST", _) => "create",
            ("PUT", _) => "update",
            ("PATCH", _) => "patch",
            ("DELETE", true) => "delete",
            ("DELETE", false) => "deletecollection",
            _ => "",
        };
        let (resource, subresource) = (path.resource, path.subresource.unwrap_or(""));
        // A namespace is in itself.
        let own = if path.group.is_empty() && resource == "namespaces" { path.name } else { None };
        let namespace = path.namespace.or(own).unwrap_or("");
        let what = What::Resource { group: path.group, resource, subresource, namespace, name };
        Asked { verb, what, on_node: narrowed.node.as_deref() }
    }

    /// The words of a refusal.
    pub(crate) fn refused_to(&self, user: &str) -> String {
        let user = setpoint_api::quote::quote(user);
        let words = match self.what {
            What::Path(path) => format!("User {user} cannot {} path {}", self.verb, setpoint_api::quote::quote(path)),
            What::Resource { group, resource, subresource, namespace, .. } => {
                let slash = if subresource.is_empty() { "" } else { "/" };
                let scope = match namespace {
                    "" => "at the cluster scope".to_owned(),
                    namespace => format!("in the namespace \"{namespace}\""),
                };
                format!(
                    "User {user} cannot {} resource \"{resource}{slash}{subresource}\" in API group \"{group}\" {scope}",
                    self.verb
                )
            }
        };
        words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
    }
}

/// What a list, a watch or a deletion of many is narrowed to by its field selector.
#[derive(Debug, Default)]
pub(crate) struct Narrowed {
    name: Option<String>,
    node: Option<String>,
}

impl Narrowed {
    pub(crate) fn of(path: &ResourcePath<'_>, query: &Query<'_>) -> Narrowed {
        match path.name {
            Some(_) => Narrowed::default(),
            None => Narrowed::by(query.get("fieldSelector")),
        }
    }

    fn by(selector: &str) -> Narrowed {
        let Ok(selector) = fields::Selector::parse(selector) else { return Narrowed::default() };
        let exactly =
            |field: &str| selector.exact_match(field).map(str::to_owned).filter(|value: &String| !value.is_empty());
        Narrowed { name: exactly("metadata.name"), node: exactly("spec.nodeName") }
    }
}
