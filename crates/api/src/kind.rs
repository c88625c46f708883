//! The names of kinds and resources: group, version, kind, and the orders among them.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// A resource without its version, as in paths and error messages: `deployments.apps`. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupResource {
    /// The API group; empty for the core group.
    pub group: Arc<str>,
    /// The plural, lower-case name.
    pub resource: Arc<str>,
}

impl GroupResource {
    /// The resource of this name in this group.
    pub fn new(group: impl Into<Arc<str>>, resource: impl Into<Arc<str>>) -> Self {
        Self { group: group.into(), resource: resource.into() }
    }

    /// Stands for "no resource at all", which some answers are about.
    pub fn is_empty(&self) -> bool {
        self.group.is_empty() && self.resource.is_empty()
    }

    /// The same resource in one version.
    pub fn with_version(&self, version: impl Into<Arc<str>>) -> GroupVersionResource {
        GroupVersionResource { group: self.group.clone(), version: version.into(), resource: self.resource.clone() }
    }
}

impl fmt::Display for GroupResource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_qualified(formatter, &self.resource, &self.group)
    }
}

/// A kind without its version, as in messages about objects: `Deployment.apps`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupKind {
    /// The API group; empty for the core group.
    pub group: Arc<str>,
    /// The kind, in camel case.
    pub kind: Arc<str>,
}

impl GroupKind {
    /// The kind of this name in this group.
    pub fn new(group: impl Into<Arc<str>>, kind: impl Into<Arc<str>>) -> Self {
        Self { group: group.into(), kind: kind.into() }
    }

    /// The same kind in one version.
    pub fn with_version(&self, version: impl Into<Arc<str>>) -> GroupVersionKind {
        GroupVersionKind { group: self.group.clone(), version: version.into(), kind: self.kind.clone() }
    }
}

impl fmt::Display for GroupKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_qualified(formatter, &self.kind, &self.group)
    }
}

/// A version of a group: what `apiVersion` holds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupVersion {
    /// The API group; empty for the core group.
    pub group: Arc<str>,
    /// The version, such as `v1`.
    pub version: Arc<str>,
}

impl GroupVersion {
    /// This version of this group.
    pub fn new(group: impl Into<Arc<str>>, version: impl Into<Arc<str>>) -> Self {
        Self { group: group.into(), version: version.into() }
    }

    /// The kind of this name in this group and version.
    pub fn with_kind(&self, kind: impl Into<Arc<str>>) -> GroupVersionKind {
        GroupVersionKind { group: self.group.clone(), version: self.version.clone(), kind: kind.into() }
    }

    /// The resource of this name in this group and version.
    pub fn with_resource(&self, resource: impl Into<Arc<str>>) -> GroupVersionResource {
        GroupVersionResource { group: self.group.clone(), version: self.version.clone(), resource: resource.into() }
    }
}

impl fmt::Display for GroupVersion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            return formatter.write_str(&self.version);
        }
        write!(formatter, "{}/{}", self.group, self.version)
    }
}

/// An `apiVersion` with more than one slash. The text is Kubernetes' own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupVersionError {
    text: String,
}

impl fmt::Display for GroupVersionError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "unexpected GroupVersion string: {}", self.text)
    }
}

impl std::error::Error for GroupVersionError {}

impl FromStr for GroupVersion {
    type Err = GroupVersionError;

    /// `v1` is a version of the core group, `apps/v1` one of a named group. Empty text (and a lone `/`) is the empty
    /// group version, which an object without `apiVersion` has.
    fn from_str(text: &str) -> Result<Self, GroupVersionError> {
        if text.is_empty() || text == "/" {
            return Ok(Self::new("", ""));
        }
        match text.split_once('/') {
            None => Ok(Self::new("", text)),
            Some((_, version)) if version.contains('/') => Err(GroupVersionError { text: text.to_owned() }),
            Some((group, version)) => Ok(Self::new(group, version)),
        }
    }
}

/// A resource in one version: what a request path names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupVersionResource {
    /// The API group; empty for the core group.
    pub group: Arc<str>,
    /// The version, such as `v1`.
    pub version: Arc<str>,
    /// The plural, lower-case name.
    pub resource: Arc<str>,
}

impl GroupVersionResource {
    /// The resource of this name in this group and version.
    pub fn new(group: impl Into<Arc<str>>, version: impl Into<Arc<str>>, resource: impl Into<Arc<str>>) -> Self {
        Self { group: group.into(), version: version.into(), resource: resource.into() }
    }

    /// Without the version.
    pub fn group_resource(&self) -> GroupResource {
        GroupResource { group: self.group.clone(), resource: self.resource.clone() }
    }

    /// Without the resource.
    pub fn group_version(&self) -> GroupVersion {
        GroupVersion { group: self.group.clone(), version: self.version.clone() }
    }
}

impl fmt::Display for GroupVersionResource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}, Resource={}", self.group, self.version, self.resource)
    }
}

/// A kind in one version: what `apiVersion` and `kind` say together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupVersionKind {
    /// The API group; empty for the core group.
    pub group: Arc<str>,
    /// The version, such as `v1`.
    pub version: Arc<str>,
    /// The kind, in camel case.
    pub kind: Arc<str>,
}

impl GroupVersionKind {
    /// The kind of this name in this group and version.
    pub fn new(group: impl Into<Arc<str>>, version: impl Into<Arc<str>>, kind: impl Into<Arc<str>>) -> Self {
        Self { group: group.into(), version: version.into(), kind: kind.into() }
    }

    /// Without the version.
    pub fn group_kind(&self) -> GroupKind {
        GroupKind { group: self.group.clone(), kind: self.kind.clone() }
    }

    /// Without the kind.
    pub fn group_version(&self) -> GroupVersion {
        GroupVersion { group: self.group.clone(), version: self.version.clone() }
    }
}

impl fmt::Display for GroupVersionKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}, Kind={}", self.group, self.version, self.kind)
    }
}

/// Orders versions by priority, the preferred one first: `v10`, `v2`, `v1`, `v1beta2`, `v1beta1`, `v1alpha1`, then
/// everything of another shape in alphabetical order.
pub fn compare_versions(left: &str, right: &str) -> Ordering {
    match (KubeVersion::parse(left), KubeVersion::parse(right)) {
        (Some(left), Some(right)) => right.cmp(&left),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => left.cmp(right),
    }
}

/// Field order is the order of importance.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct KubeVersion {
    stability: Stability,
    major: u64,
    minor: u64,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Stability {
    Alpha,
    Beta,
    General,
}

impl KubeVersion {
    fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix('v')?;
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let major = rest[..digits].parse().ok()?;
        let (stability, minor) = match &rest[digits..] {
            "" => return Some(Self { stability: Stability::General, major, minor: 0 }),
            tail => match tail.strip_prefix("alpha") {
                Some(minor) => (Stability::Alpha, minor),
                None => (Stability::Beta, tail.strip_prefix("beta")?),
            },
        };
        if !minor.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        Some(Self { stability, major, minor: minor.parse().ok()? })
    }
}

fn write_qualified(formatter: &mut fmt::Formatter<'_>, name: &str, group: &str) -> fmt::Result {
    formatter.write_str(name)?;
    if group.is_empty() {
        return Ok(());
    }
    write!(formatter, ".{group}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_core_group_is_silent_in_names() {
        assert_eq!(GroupResource::new("apps", "deployments").to_string(), "deployments.apps");
        assert_eq!(GroupResource::new("", "pods").to_string(), "pods");
        assert_eq!(GroupKind::new("apps", "Deployment").to_string(), "Deployment.apps");
        assert_eq!(GroupKind::new("", "Pod").to_string(), "Pod");
        assert_eq!(GroupVersionKind::new("apps", "v1", "Deployment").to_string(), "apps/v1, Kind=Deployment");
        assert_eq!(GroupVersionKind::new("", "v1", "Pod").to_string(), "/v1, Kind=Pod");
        assert_eq!(GroupVersionResource::new("", "v1", "pods").to_string(), "/v1, Resource=pods");
    }

    #[test]
    fn an_api_version_is_a_version_with_at_most_one_group() {
        for (text, expected) in [
            ("v1", Ok(("", "v1"))),
            ("apps/v1", Ok(("apps", "v1"))),
            ("/v1", Ok(("", "v1"))),
            ("apps/", Ok(("apps", ""))),
            ("", Ok(("", ""))),
            ("/", Ok(("", ""))),
            ("a/b/c", Err("unexpected GroupVersion string: a/b/c")),
        ] {
            let parsed = text.parse::<GroupVersion>();
            let seen = parsed.as_ref().map(|it| (&*it.group, &*it.version)).map_err(ToString::to_string);
            assert_eq!(seen, expected.map_err(str::to_owned), "{text:?}");
        }
        assert_eq!(GroupVersion::new("", "v1").to_string(), "v1");
        assert_eq!(GroupVersion::new("apps", "v1").to_string(), "apps/v1");
    }

    #[test]
    fn stable_versions_come_before_beta_before_alpha_before_others() {
        let mut versions =
            ["foo1", "v1alpha1", "v1beta1", "v3beta1", "v1", "v10", "v2", "foo10", "v12alpha1", "v1beta", "v11beta2"];
        versions.sort_by(|left, right| compare_versions(left, right));
        assert_eq!(
            versions,
            ["v10", "v2", "v1", "v11beta2", "v3beta1", "v1beta1", "v12alpha1", "v1alpha1", "foo1", "foo10", "v1beta"]
        );
    }
}
