//! Where an object lives: its resource, its namespace (if any) and its name.

use std::fmt;
use std::sync::Arc;

use setpoint_api::kind::GroupResource;

/// The address of one object.
///
/// Namespace and name are kept as one path, `namespace/name` or just `name`, so that a table orders its objects by the
/// bytes of that path: the order in which Kubernetes lists them.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    resource: GroupResource,
    path: Arc<str>,
}

impl Key {
    /// The key of an object in a namespace.
    pub fn namespaced(resource: GroupResource, namespace: &str, name: &str) -> Key {
        debug_assert!(!namespace.is_empty() && !namespace.contains('/') && !name.contains('/'));
        Key { resource, path: path_of(Some(namespace), name).into() }
    }

    /// The key of an object that belongs to the whole cluster.
    pub fn cluster(resource: GroupResource, name: &str) -> Key {
        debug_assert!(!name.contains('/'));
        Key { resource, path: name.into() }
    }

    pub(crate) fn from_path(resource: GroupResource, path: Arc<str>) -> Key {
        Key { resource, path }
    }

    /// The resource that the object belongs to.
    pub fn resource(&self) -> &GroupResource {
        &self.resource
    }

    /// The namespace, for an object that has one.
    pub fn namespace(&self) -> Option<&str> {
        split(&self.path).0
    }

    /// The object's name.
    pub fn name(&self) -> &str {
        split(&self.path).1
    }

    /// `namespace/name`, or `name` without a namespace.
    pub fn path(&self) -> &Arc<str> {
        &self.path
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.resource, self.path)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The path under which a table keeps an object.
pub(crate) fn path_of(namespace: Option<&str>, name: &str) -> String {
    match namespace {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    }
}

/// Namespace and name of a path.
pub(crate) fn split(path: &str) -> (Option<&str>, &str) {
    match path.split_once('/') {
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, path),
    }
}
