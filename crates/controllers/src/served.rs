//! Which kinds the server has, by its discovery: built-in ones, custom ones, those of other servers behind it.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use kube::Client;
use kube::core::discovery::v2::{APIGroupDiscovery, APIResourceDiscovery};

/// A resource in one version of its API.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Resource {
    pub group: Box<str>,
    pub version: Box<str>,
    pub plural: Box<str>,
    pub kind: Box<str>,
    pub is_namespaced: bool,
    verbs: BTreeSet<Box<str>>,
}

impl Resource {
    /// `group/version`, or the version alone.
    pub fn api_version(&self) -> String {
        match &*self.group {
            "" => self.version.to_string(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// Whether it knows all of these verbs.
    pub fn can(&self, verbs: &[&str]) -> bool {
        verbs.iter().all(|verb| self.verbs.contains(*verb))
    }

    /// The path of all objects, in one namespace or in all.
    pub fn collection(&self, namespace: &str) -> String {
        let root = if self.group.is_empty() { "/api" } else { "/apis" };
        let place = match namespace {
            "" => String::new(),
            namespace => format!("namespaces/{namespace}/"),
        };
        format!("{root}/{}/{place}{}", self.api_version(), self.plural)
    }

    /// The path of one object; the namespace counts only for kinds that have one.
    pub fn object(&self, namespace: &str, name: &str) -> String {
        let namespace = if self.is_namespaced { namespace } else { "" };
        format!("{}/{name}", self.collection(namespace))
    }
}

/// All kinds of a server at one moment.
#[derive(Debug, Default)]
pub struct Served {
    by_kind: HashMap<String, Arc<Resource>>,
    /// Each resource in the version that its group prefers.
    pub preferred: Vec<Arc<Resource>>,
    /// API versions whose server did not answer: nothing is known of what they have.
    pub stale: BTreeSet<String>,
}

impl Served {
    /// Asks the server.
    pub async fn discover(client: &Client) -> Result<Served, kube::Error> {
        let (core, groups) =
            tokio::try_join!(client.list_core_api_versions_aggregated(), client.list_api_groups_aggregated())?;
        let served = Served::of(core.items.into_iter().chain(groups.items));
        if served.preferred.is_empty() {
            return Err(kube::Error::Service("the server has no discovery in one document".into()));
        }
        Ok(served)
    }

    fn of(groups: impl Iterator<Item = APIGroupDiscovery>) -> Served {
        let mut served = Served::default();
        for group in groups {
            let name = group.metadata.and_then(|metadata| metadata.name).unwrap_or_default();
            let mut seen = BTreeSet::new();
            for version in group.versions {
                let of_version = version.version.unwrap_or_default();
                if version.freshness.as_deref() == Some("Stale") {
                    let prefix = if name.is_empty() { String::new() } else { format!("{name}/") };
                    served.stale.insert(format!("{prefix}{of_version}"));
                    continue;
                }
                for resource in version.resources.into_iter().filter_map(|one| resource(&name, &of_version, one)) {
                    let resource = Arc::new(resource);
                    let place = place(&resource.api_version(), &resource.kind);
                    served.by_kind.entry(place).or_insert_with(|| resource.clone());
                    if seen.insert(resource.plural.clone()) {
                        served.preferred.push(resource);
                    }
                }
            }
        }
        served
    }

    /// The resource of a kind in exactly this version.
    pub fn of_kind(&self, api_version: &str, kind: &str) -> Option<&Arc<Resource>> {
        self.by_kind.get(&place(api_version, kind))
    }
}

fn place(api_version: &str, kind: &str) -> String {
    format!("{api_version} {kind}")
}

fn resource(group: &str, version: &str, found: APIResourceDiscovery) -> Option<Resource> {
    Some(Resource {
        group: group.into(),
        version: version.into(),
        plural: found.resource?.into(),
        kind: found.response_kind?.kind?.into(),
        is_namespaced: found.scope.as_deref() == Some("Namespaced"),
        verbs: found.verbs.into_iter().map(String::into_boxed_str).collect(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn served() -> Served {
        let resource = |plural: &str, kind: &str, scope: &str| json!({"resource": plural, "responseKind": {"kind": kind}, "scope": scope, "verbs": ["delete", "list"]});
        let groups = json!([
            {"versions": [{"version": "v1", "resources": [resource("pods", "Pod", "Namespaced"), {"resource": "odd"}]}]},
            {"metadata": {"name": "example.com"}, "versions": [
                {"version": "v2", "resources": [resource("boxes", "Box", "Cluster")]},
                {"version": "v1", "resources": [resource("boxes", "Box", "Cluster"), resource("lids", "Lid", "Namespaced")]},
                {"version": "v0", "freshness": "Stale", "resources": []},
            ]},
        ]);
        let groups: Vec<APIGroupDiscovery> = serde_json::from_value(groups).unwrap();
        Served::of(groups.into_iter())
    }

    #[test]
    fn each_resource_is_preferred_once_and_known_in_every_version() {
        let served = served();
        let preferred: Vec<_> = served.preferred.iter().map(|one| one.collection("")).collect();
        assert_eq!(preferred, ["/api/v1/pods", "/apis/example.com/v2/boxes", "/apis/example.com/v1/lids"]);
        assert_eq!(served.of_kind("example.com/v1", "Box").map(|one| &*one.version), Some("v1"));
        assert_eq!(served.of_kind("example.com/v3", "Box"), None);
        assert!(served.stale.contains("example.com/v0"));
        assert!(served.preferred[0].can(&["delete", "list"]) && !served.preferred[0].can(&["list", "watch"]));
    }

    #[test]
    fn paths_have_a_namespace_where_the_kind_has_one() {
        let served = served();
        assert_eq!(served.preferred[0].object("shop", "web"), "/api/v1/namespaces/shop/pods/web");
        assert_eq!(served.preferred[1].object("shop", "web"), "/apis/example.com/v2/boxes/web");
    }
}
