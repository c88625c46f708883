//! The labels of requests.

use std::borrow::Cow;

use crate::registry::Served;

/// What can be done, as upstream's metrics call it.
const VERBS: [(&str, &str); 13] = [
    ("get", "GET"),
    ("list", "LIST"),
    ("watch", "WATCH"),
    ("create", "POST"),
    ("update", "PUT"),
    ("patch", "PATCH"),
    ("apply", "APPLY"),
    ("delete", "DELETE"),
    ("deletecollection", "DELETECOLLECTION"),
    ("connect", "CONNECT"),
    ("log", "GET"),
    ("head", "HEAD"),
    ("options", "OPTIONS"),
];

/// How much a request is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// No resource at all.
    #[default]
    None,
    /// Objects of all namespaces, or of a kind that has none.
    Cluster,
    /// Objects of one namespace.
    Namespace,
    /// One object.
    Resource,
}

/// What a request was about. Only known values, or `other`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestLabels {
    group: Cow<'static, str>,
    version: Cow<'static, str>,
    resource: Cow<'static, str>,
    subresource: Cow<'static, str>,
    verb: &'static str,
    scope: Scope,
    dry_run: bool,
}

impl RequestLabels {
    /// The labels of a request for a kind, or of one for no kind that we know.
    pub fn new(served: Option<&Served>, verb: &str, subresource: Option<&str>, scope: Scope) -> RequestLabels {
        let verb = VERBS.iter().find(|(name, _)| *name == verb).map_or("other", |(_, label)| label);
        let subresource = match (served, subresource) {
            (_, None) => "".into(),
            (Some(served), Some(name)) => {
                served.kind.subresource(name).map_or(Cow::Borrowed("other"), |known| known.name.clone())
            }
            (None, Some(_)) => "other".into(),
        };
        let kind = served.map(RequestLabels::of_kind).unwrap_or_default();
        RequestLabels { verb, scope, subresource, ..kind }
    }

    /// The same for a request that changes nothing.
    #[must_use]
    pub fn dry_run(self) -> RequestLabels {
        RequestLabels { dry_run: true, ..self }
    }

    pub(super) fn of_kind(served: &Served) -> RequestLabels {
        RequestLabels {
            group: served.kind.group.clone(),
            version: served.kind.version.clone(),
            resource: served.kind.plural.clone(),
            ..RequestLabels::default()
        }
    }

    pub(super) fn is_long_running(&self) -> bool {
        matches!(self.verb, "WATCH" | "CONNECT")
    }

    pub(super) fn all(&self) -> [(&str, &str); 8] {
        let [verb, group, version, resource, subresource, scope, component] = self.without_dry_run();
        let dry_run = ("dry_run", if self.dry_run { "All" } else { "" });
        [verb, dry_run, group, version, resource, subresource, scope, component]
    }

    pub(super) fn without_dry_run(&self) -> [(&str, &str); 7] {
        let scope = match self.scope {
            Scope::None => "",
            Scope::Cluster => "cluster",
            Scope::Namespace => "namespace",
            Scope::Resource => "resource",
        };
        let [group, version, resource] = self.of_resource();
        [
            ("verb", self.verb),
            group,
            version,
            resource,
            ("subresource", &self.subresource),
            ("scope", scope),
            ("component", "apiserver"),
        ]
    }

    pub(super) fn of_resource(&self) -> [(&str, &str); 3] {
        [("group", &self.group), ("version", &self.version), ("resource", &self.resource)]
    }
}
