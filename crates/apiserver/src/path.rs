//! The URL of a request, taken apart as Kubernetes does.

/// What a path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    /// Objects of an API group and version.
    Resource(ResourcePath<'a>),
    /// Anything else: health, discovery, documents.
    Other(Vec<&'a str>),
}

/// A path to a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourcePath<'a> {
    /// API group; empty for the core group.
    pub group: &'a str,
    /// API version.
    pub version: &'a str,
    /// The namespace in the path.
    pub namespace: Option<&'a str>,
    /// The resource's plural name.
    pub resource: &'a str,
    /// The object's name.
    pub name: Option<&'a str>,
    /// The subresource.
    pub subresource: Option<&'a str>,
    /// What follows the subresource (paths behind `proxy`).
    pub rest: Vec<&'a str>,
    /// The old form of a watch: `/api/v1/watch/...`.
    pub watch: bool,
}

/// Takes a path apart.
pub fn parse(path: &str) -> Target<'_> {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let (group, version, rest) = match parts.as_slice() {
        ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
        ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
        _ => return Target::Other(parts),
    };
    let (watch, rest) = match rest {
        ["watch", rest @ ..] if !rest.is_empty() => (true, rest),
        rest => (false, rest),
    };
    let (namespace, rest) = match rest {
        ["namespaces", _] | ["namespaces", _, "status" | "finalize"] => (None, rest),
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (Some(*namespace), rest),
        rest => (None, rest),
    };
    let mut parts = rest.iter().copied();
    Target::Resource(ResourcePath {
        group,
        version,
        namespace,
        resource: parts.next().unwrap_or_default(),
        name: parts.next(),
        subresource: parts.next(),
        rest: parts.collect(),
        watch,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, namespace: Option<&str>, resource: &str, name: Option<&str>, subresource: Option<&str>) {
        let Target::Resource(found) = parse(path) else { panic!("{path} names no resource") };
        assert_eq!((found.namespace, found.resource), (namespace, resource), "{path}");
        assert_eq!((found.name, found.subresource), (name, subresource), "{path}");
    }

    #[test]
    fn paths_name_collections_objects_and_subresources() {
        check("/api/v1/namespaces", None, "namespaces", None, None);
        check("/api/v1/namespaces/a", None, "namespaces", Some("a"), None);
        check("/api/v1/namespaces/a/finalize", None, "namespaces", Some("a"), Some("finalize"));
        check("/api/v1/namespaces/a/pods", Some("a"), "pods", None, None);
        check("/api/v1/namespaces/a/pods/p/log", Some("a"), "pods", Some("p"), Some("log"));
        check("/apis/apps/v1/deployments/", None, "deployments", None, None);
        check("/api/v1/watch/namespaces/a/secrets/s", Some("a"), "secrets", Some("s"), None);
    }

    #[test]
    fn groups_and_versions_alone_are_documents() {
        for path in ["/", "/api", "/api/v1", "/apis/apps", "/apis/apps/v1/", "/healthz"] {
            assert!(matches!(parse(path), Target::Other(_)), "{path}");
        }
    }
}
