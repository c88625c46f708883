//! The groups and their versions in the order in which clients should prefer them.

use std::cmp::Reverse;

use setpoint_schema::builtin;

use crate::registry::Registry;

/// A group with its versions, the preferred one first.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) name: String,
    pub(crate) versions: Vec<String>,
}

/// The group behind aggregation, which upstream lists before all others.
const FIRST: &str = "apiregistration.k8s.io";

/// Built-in groups in upstream's order of priority. Groups of equal priority stand in the order of their names.
const ORDER: [&str; 22] = [
    "",
    FIRST,
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "node.k8s.io",
    "discovery.k8s.io",
    "resource.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "internal.apiserver.k8s.io",
];

/// Every group that is served, the core group (with an empty name) first, custom ones last.
pub(crate) fn groups(registry: &Registry) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for served in registry.kinds() {
        let (name, version) = (&*served.kind.group, &*served.kind.version);
        let at = groups.iter().position(|group| group.name == name).unwrap_or_else(|| {
            groups.push(Group { name: name.to_owned(), versions: Vec::new() });
            groups.len() - 1
        });
        if !groups[at].versions.iter().any(|known| known == version) {
            groups[at].versions.push(version.to_owned());
        }
    }
    for group in &mut groups {
        group.versions.sort_by_cached_key(|version| Reverse(rank(version)));
    }
    let place = |name: &str| ORDER.iter().position(|known| *known == name).unwrap_or(ORDER.len());
    groups.sort_by(|a, b| (place(&a.name), &a.name).cmp(&(place(&b.name), &b.name)));
    groups
}

/// Whether a group is one of our own: its unknown versions are answered in another way than unknown groups.
pub(crate) fn is_builtin(group: &str) -> bool {
    builtin::kinds().iter().any(|kind| kind.group == group)
}

/// Stable versions before beta before alpha, then by number; names of another form last, in alphabetical order.
fn rank(version: &str) -> (u8, u32, u32, Reverse<String>) {
    let parsed = parse(version);
    let (stage, major, minor) = parsed.unwrap_or((0, 0, 0));
    let name = if parsed.is_some() { String::new() } else { version.to_owned() };
    (stage, major, minor, Reverse(name))
}

fn parse(version: &str) -> Option<(u8, u32, u32)> {
    let number = |text: &str| {
        let plain = !text.is_empty() && !text.starts_with('0') && text.bytes().all(|b| b.is_ascii_digit());
        plain.then(|| text.parse().ok()).flatten()
    };
    let rest = version.strip_prefix('v')?;
    let (stage, major, minor) = match (rest.split_once("beta"), rest.split_once("alpha")) {
        (Some((major, minor)), _) => (2, major, Some(minor)),
        (None, Some((major, minor))) => (1, major, Some(minor)),
        (None, None) => (3, rest, None),
    };
    Some((stage, number(major)?, minor.map_or(Some(0), number)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_stand_in_upstreams_order() {
        let groups = groups(&Registry::builtin());
        let names: Vec<&str> = groups.iter().map(|group| &*group.name).collect();
        assert_eq!(&names[..4], ["", "apiregistration.k8s.io", "apps", "events.k8s.io"]);
        assert!(names.iter().all(|name| ORDER.contains(name)), "{names:?}");
        let scaling = groups.iter().find(|group| group.name == "autoscaling").unwrap();
        assert_eq!(scaling.versions, ["v2", "v1"]);
    }

    #[test]
    fn versions_are_ordered_by_stability_then_number_then_name() {
        let mut versions =
            ["foo10", "v1alpha1", "v2", "v12alpha1", "v10", "v3beta1", "foo1", "v1", "v11beta2", "v10beta3", "v01"];
        versions.sort_by_cached_key(|version| Reverse(rank(version)));
        let expected =
            ["v10", "v2", "v1", "v11beta2", "v10beta3", "v3beta1", "v12alpha1", "v1alpha1", "foo1", "foo10", "v01"];
        assert_eq!(versions, expected);
    }
}
